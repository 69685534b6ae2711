//! What is measured of the stream server, on which sides, and what it is held to.

use super::rows::Metric;
use super::side::Side;

/// How a work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// One run of the load.
    Load,
    /// A run of the load while others read whole streams.
    Beside,
    /// Filled, the server ended and started again, then read.
    AtRest,
    /// Filled by small appends to all of its streams in turn, then read.
    Among,
    /// The same, once it is history that was read before.
    Settled,
    /// Idle streams of one append each: memory of each.
    Streams,
}

/// A work. Its name begins with its group, whose rows are kept together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) scene: Scene,
    pub(super) durability: &'static str,
    /// Of `thalweg bench`.
    pub(super) words: &'static str,
    /// The same for a run that only shows that it runs.
    pub(super) tiny: &'static str,
    pub(super) sides: &'static [Side],
}

/// The group of the work of that name.
pub(super) fn group(name: &'static str) -> &'static str {
    name.split_once('/').map_or(name, |(group, _)| group)
}

const ALL: &[Side] = &[Side::Ours, Side::Rust, Side::Node, Side::Floor];
const SERVERS: &[Side] = &[Side::Ours, Side::Rust, Side::Node];
const TWO: &[Side] = &[Side::Ours, Side::Rust];
const FLOORED: &[Side] = &[Side::Ours, Side::Rust, Side::Floor];
const ALONE: &[Side] = &[Side::Ours, Side::Floor];
const OURS: &[Side] = &[Side::Ours];

const fn load(name: &'static str, words: &'static str, tiny: &'static str, sides: &'static [Side]) -> Work {
    Work { name, scene: Scene::Load, durability: "sync", words, tiny, sides }
}

/// Of one stream: the floor knows none, and sends what it got to every follower.
const FAN: &str = "fan-out --connections 7 --operations 20";
const POLLS: &str = "fan-out --via long-poll --connections 7 --streams 2 --operations 20";

/// Every work, in the order of the report.
pub(super) const WORKS: &[Work] = &[
    load("append/100", "append", "append --connections 4 --streams 4 --operations 200", ALL),
    load(
        "append/10000",
        "append --streams 10000",
        "append --connections 4 --streams 40 --operations 200",
        ALL,
    ),
    Work {
        durability: "memory",
        ..load("append/memory", "append", "append --connections 4 --streams 4 --operations 200", ALL)
    },
    load(
        "append/one",
        "append --connections 1 --streams 1",
        "append --connections 1 --streams 1 --operations 50",
        FLOORED,
    ),
    load("append/create", "create", "create --connections 4 --operations 200", ALL),
    Work {
        scene: Scene::AtRest,
        ..load(
            "catch-up/at-rest",
            CATCH_UP,
            "catch-up --connections 3 --stream-bytes 1048576 --operations 9",
            TWO,
        )
    },
    load(
        "catch-up/just-written",
        CATCH_UP,
        "catch-up --connections 3 --stream-bytes 1048576 --operations 9",
        SERVERS,
    ),
    Work {
        scene: Scene::Among,
        ..load(
            "catch-up/among",
            "catch-up --connections 64 --streams 64 --stream-bytes 1048576",
            "catch-up --connections 2 --streams 2 --stream-bytes 1048576 --operations 4",
            TWO,
        )
    },
    Work {
        scene: Scene::Settled,
        ..load(
            "catch-up/settled",
            "catch-up --connections 64 --streams 64 --stream-bytes 1048576",
            "catch-up --connections 2 --streams 2 --stream-bytes 1048576 --operations 4",
            TWO,
        )
    },
    load("sse/64", "fan-out --connections 64", FAN, FLOORED),
    load("sse/256", "fan-out --connections 256", FAN, FLOORED),
    load("sse/1000", "fan-out --connections 1000", FAN, ALL),
    load("sse/2048", "fan-out --connections 2048", FAN, FLOORED),
    load("long-poll/1000", "fan-out --via long-poll --connections 1000", POLLS, SERVERS),
    load(
        "beside/alone",
        "append --connections 64 --rate 2000",
        "append --connections 4 --streams 4 --rate 1000 --operations 100",
        ALONE,
    ),
    Work {
        scene: Scene::Beside,
        ..load(
            "beside/readers",
            "append --connections 64 --rate 2000",
            "append --connections 4 --streams 4 --rate 1000 --operations 100",
            OURS,
        )
    },
    load("idle/sse", "idle --kind sse", IDLE_SSE, TWO),
    load("idle/long-poll", "idle --kind long-poll", "idle --kind long-poll --sizes 0,5,10", TWO),
    load("idle/kept-alive", "idle --kind kept-alive", "idle --kind kept-alive --sizes 0,5,10", TWO),
    Work { scene: Scene::Streams, ..load("idle/stream", "10000", "200", TWO) },
    Work { scene: Scene::Streams, ..load("idle/million", "1000000", "300", OURS) },
];

const CATCH_UP: &str = "catch-up --connections 100 --stream-bytes 16777216";
const IDLE_SSE: &str = "idle --kind sse --sizes 0,5,10";

/// What a figure of ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Against {
    /// The same figure of another side.
    Side(Side),
    /// Our own figure of another work.
    Work(&'static str),
    /// Our own figure of another work, that many times.
    Times(f64, &'static str),
    /// A figure that is asked for.
    Fixed(f64),
}

/// What a figure may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bar {
    /// So many times the other, at least.
    AtLeast(f64),
    /// So many times the other, at most.
    AtMost(f64),
    /// Whatever it is: for the record.
    None,
}

/// A line of the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) text: &'static str,
    pub(super) work: &'static str,
    pub(super) metric: Metric,
    pub(super) against: Against,
    pub(super) bar: Bar,
}

const fn line(text: &'static str, work: &'static str, metric: Metric, against: Against, bar: Bar) -> Line {
    Line { text, work, metric, against, bar }
}

use Against::{Fixed, Side as Of, Times};
use Bar::{AtLeast, AtMost};
use Metric::{BytesEach, BytesRate, Cost, CostOfGib, MemoryEach, Missing, P50, P99, Rate};
use Side::{Floor, Node, Rust};

/// The report.
pub(super) const LINES: &[Line] = &[
    line("durable append, 256 connections, 100 streams", "append/100", Cost, Of(Rust), AtMost(0.5)),
    line("durable append, 256 connections, 100 streams", "append/100", Rate, Of(Floor), AtLeast(0.75)),
    line("durable append, 256 connections, 100 streams", "append/100", Rate, Of(Rust), Bar::None),
    line("durable append, 256 connections, 100 streams", "append/100", Rate, Of(Node), Bar::None),
    line("durable append, 10,000 streams", "append/10000", Cost, Of(Rust), AtMost(0.5)),
    line("durable append, 10,000 streams", "append/10000", Rate, Of(Floor), AtLeast(0.75)),
    line("durable append, 10,000 streams", "append/10000", Rate, Of(Rust), Bar::None),
    line("append in memory", "append/memory", Rate, Of(Floor), AtLeast(0.85)),
    line("append in memory", "append/memory", Rate, Of(Rust), Bar::None),
    line("durable append, one connection", "append/one", P50, Of(Rust), AtMost(0.9)),
    line(
        "durable creates beside durable appends",
        "append/create",
        Rate,
        Against::Work("append/100"),
        AtLeast(0.8),
    ),
    line("durable creates", "append/create", Rate, Of(Rust), Bar::None),
    line("durable creates", "append/create", Rate, Of(Node), Bar::None),
    line("catch-up, 16 MiB, 100 clients, at rest", "catch-up/at-rest", BytesRate, Of(Rust), AtLeast(1.0)),
    line("catch-up, 16 MiB, 100 clients, at rest", "catch-up/at-rest", CostOfGib, Of(Rust), AtMost(1.0)),
    line(
        "catch-up, 16 MiB, 100 clients, just written",
        "catch-up/just-written",
        BytesRate,
        Of(Rust),
        AtLeast(0.6),
    ),
    line(
        "catch-up, 16 MiB, 100 clients, just written",
        "catch-up/just-written",
        BytesRate,
        Of(Node),
        Bar::None,
    ),
    line(
        "catch-up, 1 MiB in 256 bytes each among 64 streams",
        "catch-up/among",
        BytesRate,
        Of(Rust),
        Bar::None,
    ),
    line(
        "catch-up, 1 MiB in 256 bytes each among 64 streams",
        "catch-up/among",
        CostOfGib,
        Of(Rust),
        Bar::None,
    ),
    line("catch-up, the same, read a second time", "catch-up/settled", BytesRate, Of(Rust), AtLeast(1.0)),
    line("catch-up, the same, read a second time", "catch-up/settled", CostOfGib, Of(Rust), AtMost(1.0)),
    line("SSE, 1,000 subscribers, 50/s", "sse/1000", P99, Of(Rust), AtMost(0.7)),
    line("SSE, 1,000 subscribers, 50/s", "sse/1000", Cost, Of(Rust), AtMost(0.5)),
    line("SSE, 1,000 subscribers, 50/s", "sse/1000", P99, Of(Node), Bar::None),
    line("SSE, 1,000 subscribers, 50/s", "sse/1000", Cost, Of(Floor), Bar::None),
    line("SSE, 64 subscribers", "sse/64", P99, Of(Rust), Bar::None),
    line(
        "SSE, 256 subscribers beside 64, four times as many",
        "sse/256",
        P99,
        Times(4.0, "sse/64"),
        AtMost(1.0),
    ),
    line(
        "SSE, 2,048 subscribers beside 256, eight times as many",
        "sse/2048",
        P99,
        Times(8.0, "sse/256"),
        AtMost(1.0),
    ),
    line(
        "long-poll, 1,000 clients, 50/s: records that did not arrive",
        "long-poll/1000",
        Missing,
        Fixed(0.0),
        AtMost(1.0),
    ),
    line("long-poll, 1,000 clients, 50/s", "long-poll/1000", P99, Fixed(40_000.0), AtMost(1.0)),
    line("long-poll, 1,000 clients, 50/s", "long-poll/1000", Rate, Of(Rust), Bar::None),
    line(
        "append at 2,000/s while 100 clients catch up",
        "beside/readers",
        P99,
        Against::Work("beside/alone"),
        AtMost(2.0),
    ),
    line("idle SSE connection", "idle/sse", BytesEach, Fixed(128.0), AtMost(1.0)),
    line("idle SSE connection", "idle/sse", BytesEach, Of(Rust), Bar::None),
    line("idle long-poll connection", "idle/long-poll", BytesEach, Fixed(128.0), AtMost(1.0)),
    line("idle long-poll connection", "idle/long-poll", BytesEach, Of(Rust), Bar::None),
    line("idle kept-alive connection", "idle/kept-alive", BytesEach, Fixed(128.0), AtMost(1.0)),
    line("idle kept-alive connection", "idle/kept-alive", BytesEach, Of(Rust), Bar::None),
    line("idle stream, 32-byte name, of 1,000,000", "idle/million", MemoryEach, Fixed(400.0), AtMost(1.0)),
    line("idle stream, 32-byte name, of 10,000", "idle/stream", MemoryEach, Of(Rust), Bar::None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_of_works_that_are_done_on_the_sides_they_name() {
        let sides = |name: &str| WORKS.iter().find(|work| work.name == name).map(|work| work.sides);
        for line in LINES {
            let of = sides(line.work).unwrap_or_else(|| panic!("{}: no work", line.work));
            match line.against {
                Against::Side(side) => assert!(of.contains(&side), "{}: not on {side:?}", line.work),
                Against::Work(other) | Against::Times(_, other) => {
                    assert!(sides(other).is_some(), "{other}: no work");
                }
                Against::Fixed(_) => {}
            }
        }
        for work in WORKS {
            let used = |line: &Line| {
                let other = matches!(line.against, Against::Work(name) | Against::Times(_, name) if name == work.name);
                line.work == work.name || other
            };
            assert!(LINES.iter().any(used), "{}: for nothing", work.name);
        }
    }
}
