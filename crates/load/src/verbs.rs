//! The verbs: which roles, how many of each, and what is said of them.

use crate::arguments::{BenchVerb, Common, Idle, Span, Via};
use crate::driver::Shared;
use crate::error::Error;
use crate::floor;
use crate::record;
use crate::roles::{Churn, Follow, Pace, Read, Rest, Role, Work, Write};
use crate::session::Session;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use thalweg_wire::path;

/// Connections that prepare.
const PREPARING: u64 = 64;
/// Bytes of one append that fills a stream.
const FILL_BYTES: u64 = 1 << 20;
/// Time for records that are under way when the writers end to arrive.
const ARRIVING_MAX: Duration = Duration::from_secs(10);
/// Held and dropped before memory is looked at first, so that one-time costs are not taken for a slope.
const WARM_UP_CONNECTIONS: u64 = 100;
const BYTES: &str = "application/octet-stream";
const TEXT: &str = "text/plain";

type Report = Map<String, Value>;

/// Does what the verb says.
///
/// # Errors
/// [`Error`].
pub(crate) fn run(verb: &BenchVerb) -> Result<Value, Error> {
    let (name, report) = match verb {
        BenchVerb::Append { common, span, connections, streams, first, rate, operations, created } => {
            let (connections, streams, first) = (*connections, *streams, *first);
            let load = Appends { connections, streams, first, rate: *rate, created: *created };
            ("append", load.run(common, *span, operations.unwrap_or(u64::MAX))?)
        }
        BenchVerb::Create { common, span, connections, first, operations, fork_of } => {
            let work = match fork_of {
                Some(source) => Work::Fork {
                    first: *first,
                    fields: format!("Stream-Forked-From: {}\r\n", path::of_stream(source)),
                },
                None => Work::Create { first: *first },
            };
            ("create", create(common, *span, *connections, &work, operations.unwrap_or(u64::MAX))?)
        }
        BenchVerb::CatchUp {
            common,
            span,
            connections,
            streams,
            stream_bytes,
            operations,
            created,
            only_fill,
        } => {
            let operations = operations.unwrap_or(u64::MAX);
            let (connections, streams, stream_bytes) = (*connections, *streams, *stream_bytes);
            let load = CatchUp { connections, streams, stream_bytes, operations, created: *created };
            ("catch-up", load.run(&common.of_verb("catch-up"), *span, *only_fill)?)
        }
        BenchVerb::FanOut { common, span, via, connections, streams, rate, operations } => {
            let operations = operations.unwrap_or(u64::MAX);
            let (connections, streams) = (*connections, *streams);
            let load = FanOut { via: *via, connections, streams, rate: *rate, operations };
            ("fan-out", load.run(&common.of_verb("fan-out"), *span)?)
        }
        BenchVerb::Idle { common, kind, sizes, apart, seconds, created } => {
            let load = Idles { kind: *kind, apart: *apart, created: *created, seconds: *seconds };
            ("idle", load.run(&common.of_verb("idle"), sizes)?)
        }
        BenchVerb::Mixed { common, span, streams, rate, sse, long_poll, churn } => {
            let load =
                Mixed { streams: *streams, rate: *rate, sse: *sse, long_poll: *long_poll, churn: *churn };
            ("mixed", load.run(&common.of_verb("mixed"), *span)?)
        }
        BenchVerb::Floor { listen } => match floor::serve(*listen)? {},
    };
    let mut report = report;
    report.insert("verb".to_owned(), name.into());
    Ok(Value::Object(report))
}

fn boxed(role: impl Role + 'static) -> Box<dyn Role> {
    Box::new(role)
}

fn some(number: u64, what: &str) -> Result<u64, Error> {
    if number > 0 { Ok(number) } else { Err(Error::Asked(format!("nothing to do: {what} is above zero"))) }
}

fn create_streams(session: &mut Session, first: u64, streams: u64, media: &'static str) -> Result<(), Error> {
    let roles = (0..PREPARING.min(streams)).map(|_| boxed(Write::new(Work::Create { first }, media, None)));
    session.prepare(roles.collect(), streams)
}

/// Why a stream that holds something is not followed.
const HELD: &str = "what they hold would be counted as delivered";

/// Creates streams that are not there.
fn create_new(session: &mut Session, streams: u64, media: &'static str, else_: &str) -> Result<(), Error> {
    create_streams(session, 0, streams, media)?;
    match session.shared().counts.existed {
        0 => Ok(()),
        existed => Err(Error::Conflict(format!("{existed} of the streams to be filled exist; {else_}"))),
    }
}

struct Appends {
    connections: u32,
    streams: u64,
    first: u64,
    rate: Option<u32>,
    created: bool,
}

impl Appends {
    fn run(&self, common: &Common, span: Span, operations: u64) -> Result<Report, Error> {
        let connections = some(self.connections.into(), "--connections")?;
        let streams = some(self.streams, "--streams")?;
        let mut session = Session::new(common, connections)?;
        if !self.created {
            create_streams(&mut session, self.first, streams, BYTES)?;
        }
        session.shared().limit = operations;
        let work = Work::Append { first: self.first, streams, record: record::blank(common.bytes) };
        let each = self.rate.map(|rate| f64::from(rate) / connections as f64);
        let role = |n: u64| {
            let pace = each.map(|each| Pace::new(each, n as f64 / connections as f64));
            boxed(Write::new(work.clone(), BYTES, pace))
        };
        let mut report = session
            .open_and_measure(span, (0..connections).map(role), |shared| shared.over >= connections)?;
        report.insert("appended".to_owned(), session.shared().counts.appended.into());
        report.insert("offeredPerSecond".to_owned(), json!(self.rate));
        Ok(report)
    }
}

fn create(common: &Common, span: Span, connections: u32, work: &Work, limit: u64) -> Result<Report, Error> {
    let connections = some(connections.into(), "--connections")?;
    let mut session = Session::new(common, connections)?;
    session.shared().limit = limit;
    let role = |_| boxed(Write::new(work.clone(), BYTES, None));
    let mut report =
        session.open_and_measure(span, (0..connections).map(role), |shared| shared.over >= connections)?;
    let counts = &session.shared().counts;
    if let Some(why) = counts.complaints.first().filter(|_| counts.created == 0 && counts.existed > 0) {
        return Err(Error::Conflict(why.clone()));
    }
    report.insert("created".to_owned(), session.shared().counts.created.into());
    Ok(report)
}

struct CatchUp {
    connections: u32,
    streams: u64,
    stream_bytes: u64,
    operations: u64,
    created: bool,
}

impl CatchUp {
    fn run(&self, common: &Common, span: Span, only_fill: bool) -> Result<Report, Error> {
        let connections = some(self.connections.into(), "--connections")?;
        let (streams, times) = (some(self.streams, "--streams")?, self.stream_bytes / FILL_BYTES);
        if self.stream_bytes == 0 || !self.stream_bytes.is_multiple_of(FILL_BYTES) {
            let given = self.stream_bytes;
            let asked =
                format!("--stream-bytes {given}: it takes whole mebibytes, multiples of {FILL_BYTES}");
            return Err(Error::Asked(asked));
        }
        let mut session = Session::new(common, connections)?;
        if !self.created {
            // Others would hold more than is looked for.
            create_new(&mut session, streams, BYTES, "--created reads what is there")?;
            let chunk: Arc<[u8]> = record::blank(usize::try_from(FILL_BYTES).unwrap_or(usize::MAX)).into();
            let work = Work::Fill { chunk, times, left: 0 };
            let roles = (0..PREPARING.min(streams)).map(|_| boxed(Write::new(work.clone(), BYTES, None)));
            session.prepare(roles.collect(), streams)?;
        }
        if only_fill {
            let filled = [("filled".to_owned(), streams.into()), ("failed".to_owned(), 0.into())];
            return Ok(filled.into_iter().collect());
        }
        session.open((0..connections).map(|n| boxed(Read::new(n % streams, self.stream_bytes))))?;
        let mut report = session.measure(span, |shared| shared.counts.operations >= self.operations)?;
        let (bytes, us) = (report["bodyBytes"].as_u64(), report["serverUs"].as_f64());
        let per_gib = bytes.filter(|bytes| *bytes > 0).zip(us);
        let per_gib = per_gib.map(|(bytes, us)| us / 1e6 / (bytes as f64 / f64::from(1 << 30)));
        report.insert("serverSecondsPerGib".to_owned(), json!(per_gib));
        Ok(report)
    }
}

struct FanOut {
    via: Via,
    connections: u32,
    streams: u64,
    rate: u32,
    operations: u64,
}

impl FanOut {
    fn run(&self, common: &Common, span: Span) -> Result<Report, Error> {
        let connections = some(self.connections.into(), "--connections")?;
        let streams = some(self.streams, "--streams")?;
        let mut session = Session::new(common, connections + streams)?;
        create_new(&mut session, streams, TEXT, HELD)?;
        let follower = |n: u64| boxed(Follow::new(self.via, n % streams, common.bytes));
        session.open((0..connections).map(follower))?;
        session.attach(connections)?;
        session.shared().limit = self.operations;
        publish(&mut session, common, streams, f64::from(self.rate))?;
        let mut report = session.measure(span, |shared| shared.over >= streams)?;
        arrive(&mut session, &mut report)?;
        report.insert("offeredPerSecond".to_owned(), (u64::from(self.rate) * streams).into());
        Ok(report)
    }
}

/// Starts a writer for each stream; each appends `rate` records a second.
fn publish(session: &mut Session, common: &Common, streams: u64, rate: f64) -> Result<(), Error> {
    let shared = session.shared();
    shared.published = (0..streams).map(|_| 0).collect();
    shared.over = 0;
    let writer = |stream: u64| {
        let work = Work::Publish { stream, record: record::blank(common.bytes) };
        boxed(Write::new(work, TEXT, Some(Pace::new(rate, stream as f64 / streams as f64))))
    };
    session.open((0..streams).map(writer))
}

/// Ends writing, waits for what is under way, and says what did not arrive.
fn arrive(session: &mut Session, report: &mut Report) -> Result<(), Error> {
    let shared = session.shared();
    shared.writing_ends = true;
    let writers = shared.published.len() as u64;
    // What was sent is answered first: only then is it known what has to arrive.
    session.drive(ARRIVING_MAX, |shared| shared.over >= writers)?;
    session.drive(ARRIVING_MAX, Shared::has_all_arrived)?;
    let shared = session.shared();
    report.insert("published".to_owned(), shared.published.iter().sum::<u64>().into());
    report.insert("delivered".to_owned(), shared.delivered.into());
    report.insert("missing".to_owned(), shared.missing().into());
    report.insert("outOfOrder".to_owned(), shared.counts.out_of_order.into());
    report.insert("failed".to_owned(), shared.counts.failed.into());
    Ok(())
}

struct Idles {
    kind: Idle,
    apart: bool,
    created: bool,
    seconds: u64,
}

impl Idles {
    fn run(&self, common: &Common, sizes: &[u32]) -> Result<Report, Error> {
        let most = sizes.iter().copied().max().map_or(0, u64::from);
        let mut session = Session::new(common, most)?;
        let streams = if self.apart { most.max(WARM_UP_CONNECTIONS) } else { 1 };
        if !self.created {
            create_streams(&mut session, 0, streams, TEXT)?;
        }
        let role = |n: u64| boxed(Rest::new(self.kind, n % streams));
        let mut warm = Session::new(common, WARM_UP_CONNECTIONS)?;
        warm.open((0..WARM_UP_CONNECTIONS).map(role))?;
        warm.attach(WARM_UP_CONNECTIONS)?;
        drop(warm);
        let (mut held, mut points) = (0, Vec::new());
        for size in sizes.iter().copied().map(u64::from) {
            session.open((held..size).map(role))?;
            held = held.max(size);
            session.attach(held)?;
            if let Some((resident, anonymous)) = session.settled_memory()? {
                points.push((size, resident, anonymous));
            }
        }
        session.drive(Duration::from_secs(self.seconds), |_| false)?;
        let mut report = grown(&points);
        let counts = &session.shared().counts;
        report.insert("held".to_owned(), held.into());
        report.insert("failed".to_owned(), counts.failed.into());
        report.insert("complaints".to_owned(), json!(counts.complaints));
        Ok(report)
    }
}

/// How resident and anonymous memory grow with connections.
fn grown(points: &[(u64, u64, u64)]) -> Report {
    let each = |(size, resident, anonymous): &(u64, u64, u64)| json!({ "connections": size, "residentBytes": resident, "anonymousBytes": anonymous });
    let mut report = Report::new();
    report.insert("points".to_owned(), points.iter().map(each).collect());
    report.insert("residentBytesEach".to_owned(), json!(slope(points.iter().map(|p| (p.0, p.1)))));
    report.insert("anonymousBytesEach".to_owned(), json!(slope(points.iter().map(|p| (p.0, p.2)))));
    report
}

/// Least squares: bytes per connection; `None` without two different sizes.
fn slope(points: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let points: Vec<(f64, f64)> = points.map(|(n, bytes)| (n as f64, bytes as f64)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (below > 0.0).then(|| above / below)
}

struct Mixed {
    streams: u64,
    rate: u32,
    sse: u32,
    long_poll: u32,
    churn: u32,
}

impl Mixed {
    fn run(&self, common: &Common, span: Span) -> Result<Report, Error> {
        let streams = some(self.streams, "--streams")?;
        let (sse, polls, churn) = (u64::from(self.sse), u64::from(self.long_poll), u64::from(self.churn));
        let mut session = Session::new(common, sse + polls + churn + streams)?;
        create_new(&mut session, streams, TEXT, HELD)?;
        let by = |via: Via, n: u64| boxed(Follow::new(via, n % streams, common.bytes));
        session.open((0..sse).map(|n| by(Via::Sse, n)))?;
        session.open((0..polls).map(|n| by(Via::LongPoll, n)))?;
        session.attach(sse + polls)?;
        publish(&mut session, common, streams, f64::from(self.rate) / streams as f64)?;
        session.open((0..churn).map(|n| boxed(Churn::new(n, streams))))?;
        let mut report = session.measure(span, gone)?;
        arrive(&mut session, &mut report)?;
        report.insert("offeredPerSecond".to_owned(), self.rate.into());
        Ok(report)
    }
}

/// The server is gone.
fn gone(shared: &Shared) -> bool {
    shared.counts.failed > 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_line_is_its_slope() {
        let line = [(0, 5_000), (1_000, 105_000), (5_000, 505_000)];
        assert!((slope(line.into_iter()).unwrap() - 100.0).abs() < 1e-9);
        assert_eq!(slope([(5, 1)].into_iter()), None);
    }
}
