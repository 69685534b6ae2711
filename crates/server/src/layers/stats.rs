//! `GET /v1/stats`: what the server holds and did since it started, in brief: one JSON object of counts, for
//! `thalweg stats` and for programs that do not parse Prometheus' format.
//!
//! Its names are an interface, as those of `/metrics` are. What `thalweg_streams` says there without a server
//! in front of it is part of it. Counts begin at 0 with each start.

use crate::engine::{Engine, Totals};
use crate::layers::metrics::{Board, Reactor, resident_bytes};
use serde::Serialize;
use thalweg_http::Traffic;
use thalweg_sync::meter::Distribution;
use thalweg_wire::exchange::Response;
use thalweg_wire::piece::Piece;

pub(crate) const PATH: &str = "/v1/stats";
/// PROTOCOL 12.7: as on every other answer below `/v1/`.
const LINES: &[u8] = b"Content-Type: application/json\r\nCache-Control: no-store\r\n\
    X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: cross-origin\r\n";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    #[serde(flatten)]
    totals: Totals,
    /// Syncs to the disk, the commits that they made durable, and how long they took together.
    syncs: u64,
    synced_commits: u64,
    sync_us: u64,
    /// Now.
    connections: u64,
    /// Of those, the ones that follow a stream.
    subscribers: u64,
    /// Appends over HTTP that were carried out, and how long they took together.
    appends: u64,
    append_us: u64,
    /// Subscribers served because their stream moved.
    delivered: u64,
    /// Requests refused, and connections cut, because a bound was reached.
    refusals: u64,
    received_bytes: u64,
    sent_bytes: u64,
    /// Now: what readers have not taken.
    unsent_bytes: u64,
    /// Now: what is resident.
    memory_bytes: u64,
}

/// 200 with the object.
pub(crate) fn respond(engine: &Engine, board: &Board) -> Response {
    // Words and integers written to memory: cannot fail.
    let body = serde_json::to_vec(&Stats::of(engine, &board.read())).unwrap_or_default();
    Response { status: 200, fields: LINES.into(), body: [Piece::from(body)].into_iter().collect() }
}

impl Stats {
    fn of(engine: &Engine, reactors: &[Reactor]) -> Self {
        let groups = engine.groups();
        let sum = |value: fn(&Traffic) -> u64| reactors.iter().map(|(_, traffic)| value(traffic)).sum();
        Self {
            totals: engine.totals(),
            syncs: count(&groups.took_us),
            synced_commits: groups.batches.sum,
            sync_us: groups.took_us.sum,
            connections: sum(Traffic::connections),
            subscribers: sum(|traffic| traffic.subscribers),
            appends: sum(|traffic| count(&traffic.append_us)),
            append_us: sum(|traffic| traffic.append_us.sum),
            delivered: sum(|traffic| traffic.deliveries),
            refusals: sum(|traffic| traffic.overloads_in_all()),
            received_bytes: sum(|traffic| traffic.received_bytes),
            sent_bytes: sum(|traffic| traffic.sent_bytes),
            unsent_bytes: sum(|traffic| traffic.unsent_bytes),
            memory_bytes: resident_bytes(),
        }
    }
}

/// How many values were noted.
fn count(values: &Distribution) -> u64 {
    values.buckets.last().map_or(0, |(_, count)| *count)
}
