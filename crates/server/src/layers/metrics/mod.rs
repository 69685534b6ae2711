//! `GET /metrics`: what the server did and holds, for Prometheus (text exposition format 0.0.4), and
//! `GET /v1/stats`, which is the same in brief ([`crate::layers::stats`]).
//!
//! Purpose: reads what every reactor and the store count for themselves; nothing is asked of anybody, so a
//! scrape disturbs none of them. Owns the list of reactors and the names, which are an interface: they are
//! added to, not changed. Each counter is read for itself, so that sums of one scrape may be off by what
//! happened during it.

mod kinds;

use super::stats;
use crate::engine::Engine;
use crate::layers::pass_on;
pub(crate) use kinds::resident_bytes;
use parking_lot::Mutex;
use std::fmt::{self, Write};
use std::sync::Arc;
use thalweg_http::{Limit, Message, Meters, Traffic};
use thalweg_log::Stats;
use thalweg_reactor::{Activity, Handle};
use thalweg_sync::meter::Distribution;
use thalweg_wire::exchange::{
    Advance, Announced, Answer, Live, Method, Now, Refusal, Request, Response, Service, Weight,
};
use thalweg_wire::piece::Piece;

const PATH: &str = "/metrics";
const LINES: &[u8] = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nCache-Control: no-store\r\n\
    X-Content-Type-Options: nosniff\r\n";
/// Microseconds in a second. Divided by, not multiplied by its inverse, so that a bound has no more digits
/// than it takes.
const MICROS: f64 = 1e6;

/// Whether one of the two is what a request asks for.
fn is_asked(request: &Request<'_>) -> bool {
    [PATH, stats::PATH].contains(&request.path) && reads(request)
}

fn reads(request: &Request<'_>) -> bool {
    matches!(request.method, Method::Get | Method::Head)
}

/// The words in which the other pages refuse.
const READ_ONLY: Refusal = Refusal {
    status: 405,
    code: "method-not-allowed",
    field: "method",
    detail: "this path does not take that method; Allow lists those that it takes",
};
const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

/// What one reactor did, and its connections.
pub(crate) type Reactor = (Activity, Traffic);

/// One value of each reactor, with its label.
fn each(reactors: &[Reactor], value: fn(&Reactor) -> u64) -> impl Iterator<Item = (String, u64)> {
    let labelled = move |(index, reactor)| (format!("reactor=\"{index}\""), value(reactor));
    reactors.iter().enumerate().map(labelled)
}

/// What each limit of one reactor came to, with its labels.
fn overloads((index, (_, traffic)): (usize, &Reactor)) -> impl Iterator<Item = (String, u64)> {
    let labelled = move |(limit, count): (Limit, u64)| {
        (format!("reactor=\"{index}\",limit=\"{}\"", limit.name()), count)
    };
    Limit::ALL.into_iter().zip(traffic.overloads).map(labelled)
}

/// The reactors there are.
#[derive(Default)]
pub(crate) struct Board(Mutex<Vec<(Handle<Message>, Arc<Meters>)>>);

impl Board {
    /// Takes a reactor in; where it is to count.
    pub(crate) fn add(&self, handle: Handle<Message>) -> Arc<Meters> {
        let meters = Arc::<Meters>::default();
        self.0.lock().push((handle, meters.clone()));
        meters
    }

    /// What each of them did.
    pub(crate) fn read(&self) -> Vec<Reactor> {
        self.0.lock().iter().map(|(handle, meters)| (handle.activity(), meters.traffic())).collect()
    }
}

/// A service with the page beside it.
pub(crate) struct Metrics<S> {
    inner: S,
    engine: Engine,
    board: Arc<Board>,
}

impl<S> Metrics<S> {
    /// Puts the page beside a service.
    pub(crate) fn new(inner: S, engine: Engine, board: Arc<Board>) -> Self {
        Self { inner, engine, board }
    }

    fn page(&self) -> Response {
        let mut page = Page::default();
        // Writing to a string cannot fail.
        let _ = self.write(&mut page);
        let body = [Piece::from(page.0)].into_iter().collect();
        Response { status: 200, fields: LINES.into(), body }
    }

    fn write(&self, page: &mut Page) -> fmt::Result {
        let stats = self.engine.stats();
        self.store(page, &stats)?;
        let reactors = self.board.read();
        self.reactors(page, &reactors)?;
        self.turns(page, &reactors)?;
        page.memory(kinds::kinds(&self.engine, &stats, reactors.iter().map(|(_, traffic)| traffic)))
    }

    fn reactors(&self, page: &mut Page, reactors: &[Reactor]) -> fmt::Result {
        let each = |value| each(reactors, value);
        page.counter("connections_accepted_total", "Connections accepted.", each(|(_, t)| t.opened))?;
        page.gauge("connections", "Connections there are.", each(|(_, t)| t.connections()))?;
        page.gauge("subscribers", "Connections that follow a stream.", each(|(_, t)| t.subscribers))?;
        page.counter("received_bytes_total", "Bytes that came.", each(|(_, t)| t.received_bytes))?;
        page.counter("sent_bytes_total", "Bytes that were taken.", each(|(_, t)| t.sent_bytes))?;
        page.counter(
            "reads_total",
            "System calls that read from connections.",
            each(|(_, t)| t.calls.reads),
        )?;
        page.counter(
            "writes_total",
            "System calls that wrote to connections.",
            each(|(_, t)| t.calls.writes),
        )?;
        page.counter("tls_handshakes_total", "TLS handshakes completed.", each(|(_, t)| t.handshakes))?;
        page.counter(
            "tls_handshakes_failed_total",
            "TLS handshakes that failed, and requests that came without one.",
            each(|(_, t)| t.handshakes_failed),
        )?;
        page.counter(
            "deliveries_total",
            "Subscribers served because their stream moved.",
            each(|(_, t)| t.deliveries),
        )?;
        page.counter(
            "overloads_total",
            "Requests refused, and connections cut, because a limit was reached.",
            reactors.iter().enumerate().flat_map(overloads),
        )?;
        page.counter(
            "rests_total",
            "Rests that large reads had to take because writes came.",
            each(|(_, t)| t.rests),
        )?;
        let classes = (1..=5).map(|class| {
            let count = reactors.iter().map(|(_, traffic)| traffic.responses[class - 1]).sum();
            (format!("class=\"{class}xx\""), count)
        });
        page.counter(
            "responses_total",
            "Responses by class of status; an event stream counts once.",
            classes,
        )?;
        let help = "An append, from the turn that read it whole to the moment its answer might leave.";
        page.seconds("append_seconds", help, reactors, |traffic| &traffic.append_us)?;
        let help = "A walk over the subscribers of a stream that moved, or a part of a long one.";
        page.seconds("fan_out_seconds", help, reactors, |traffic| &traffic.fan_out_us)
    }

    fn turns(&self, page: &mut Page, reactors: &[Reactor]) -> fmt::Result {
        let each = |value| each(reactors, value);
        page.counter("turns_total", "Turns of the reactor.", each(|(a, _)| a.turns))?;
        page.counter("waits_total", "System calls that asked what is ready.", each(|(a, _)| a.waits))?;
        page.counter("messages_total", "Messages from other threads.", each(|(a, _)| a.messages))?;
        page.counter(
            "wakes_total",
            "System calls that woke the reactor for a message.",
            each(|(a, _)| a.wakes),
        )?;
        page.counter(
            "wakes_saved_total",
            "Messages that needed no wake: the reactor was up, or being woken.",
            each(|(a, _)| a.messages.saturating_sub(a.wakes)),
        )?;
        page.gauge(
            "mailbox_depth_max",
            "The most messages one turn found.",
            each(|(a, _)| a.messages_at_once),
        )
    }

    fn store(&self, page: &mut Page, stats: &Stats) -> fmt::Result {
        let one = |value| [(String::new(), value)].into_iter();
        page.counter("commits_total", "Commits, each a batch in the log.", one(stats.batches))?;
        page.counter("commit_bytes_total", "Bytes of segments that commits took.", one(stats.batch_bytes))?;
        page.counter("records_total", "Records appended.", one(stats.entries))?;
        page.counter("commit_refusals_total", "Commits that the disk had no room for.", one(stats.failures))?;
        page.counter("reclaimed_bytes_total", "Payload bytes let go.", one(stats.purged_bytes))?;
        page.gauge("streams", "Streams, the server's own and retained ones included.", one(stats.logs))?;
        page.gauge("segments", "Segments of the store.", one(stats.segments))?;
        page.gauge("segment_bytes", "Bytes allocated for segments.", one(stats.segment_bytes))?;
        let help = "Bytes that say again what segments hold, each stream's together.";
        page.gauge("settled_bytes", help, one(stats.settled_bytes))?;
        let damaged_spans = self.engine.damaged_spans();
        page.gauge(
            "damaged_spans",
            "Spans of the store that do not read as they were written.",
            one(damaged_spans),
        )?;
        let help = "1 once a write or a sync failed: nothing is written until the server is started again.";
        page.gauge("store_failed", help, one(stats.failed.into()))?;
        let sessions = self.engine.state().sessions() as u64;
        page.gauge("state_sessions", "Sessions of the state that are open.", one(sessions))?;
        let groups = self.engine.groups();
        let help = "Commits made durable by one sync.";
        page.histogram("group_commits", help, true, "", &groups.batches, 1.0)?;
        page.histogram("sync_seconds", "A sync of the log to the disk.", true, "", &groups.took_us, MICROS)
    }
}

/// The page being written.
#[derive(Default)]
struct Page(String);

impl Page {
    fn begin(&mut self, name: &str, kind: &str, help: &str) -> fmt::Result {
        write!(self.0, "# HELP thalweg_{name} {help}\n# TYPE thalweg_{name} {kind}\n")
    }

    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl Iterator<Item = (String, u64)>,
    ) -> fmt::Result {
        self.begin(name, kind, help)?;
        for (labels, value) in values {
            let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
            writeln!(self.0, "thalweg_{name}{open}{labels}{close} {value}")?;
        }
        Ok(())
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (String, u64)>,
    ) -> fmt::Result {
        self.family(name, "counter", help, values)
    }

    fn gauge(&mut self, name: &str, help: &str, values: impl Iterator<Item = (String, u64)>) -> fmt::Result {
        self.family(name, "gauge", help, values)
    }

    /// A histogram of each reactor, of what is noted in microseconds.
    fn seconds(
        &mut self,
        name: &str,
        help: &str,
        reactors: &[Reactor],
        values: fn(&Traffic) -> &Distribution,
    ) -> fmt::Result {
        for (index, (_, traffic)) in reactors.iter().enumerate() {
            let labels = format!("reactor=\"{index}\"");
            self.histogram(name, help, index == 0, &labels, values(traffic), MICROS)?;
        }
        Ok(())
    }

    /// One histogram of a family, `first` the one that its head stands before; `per_unit` of its values are
    /// one of what it shows.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        first: bool,
        labels: &str,
        values: &Distribution,
        per_unit: f64,
    ) -> fmt::Result {
        if first {
            self.begin(name, "histogram", help)?;
        }
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, count) in &values.buckets {
            // Exact: bounds are powers of two less one, far below 2^53.
            let bound =
                bound.map_or_else(|| "+Inf".to_owned(), |bound| (bound as f64 / per_unit).to_string());
            writeln!(self.0, "thalweg_{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}")?;
        }
        let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
        let count = values.buckets.last().map_or(0, |(_, count)| *count);
        writeln!(self.0, "thalweg_{name}_sum{open}{labels}{close} {}", values.sum as f64 / per_unit)?;
        writeln!(self.0, "thalweg_{name}_count{open}{labels}{close} {count}")
    }

    fn memory(&mut self, kinds: [(&str, u64); 10]) -> fmt::Result {
        let values = kinds.into_iter().map(|(kind, bytes)| (format!("kind=\"{kind}\""), bytes));
        self.gauge("memory_bytes", "Memory by kind: all that is resident, and what of it is which.", values)
    }
}

impl<S: Service> Service for Metrics<S> {
    type Topic = S::Topic;

    fn weight(&self, head: &Request<'_>) -> Weight {
        if is_asked(head) { Weight::Small } else { self.inner.weight(head) }
    }

    fn call(&mut self, request: &Request<'_>, now: Now) -> Answer<S::Topic> {
        // The service behind knows the other path, and takes what it does not know for a stream's.
        if request.path == PATH && request.method == Method::Options {
            return Answer::Respond(Response { status: 204, fields: ALLOW.into(), body: Default::default() });
        }
        if request.path == PATH && !reads(request) {
            let mut response = self.inner.refuse(&READ_ONLY, Announced::of(request), now);
            response.fields.push(ALLOW);
            return Answer::Respond(response);
        }
        if !is_asked(request) {
            return self.inner.call(request, now);
        }
        let brief = request.path == stats::PATH;
        Answer::Respond(if brief { stats::respond(&self.engine, &self.board) } else { self.page() })
    }

    pass_on! { appends admit alone look writes turn_ended gone failed watch unwatch acknowledge advance deadline refuse }
}
