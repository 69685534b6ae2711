//! The works, and who does each.

use crate::far::FarEnd;

/// What is measured.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// The processor of each end.
    pub(crate) far: usize,
    pub(crate) near: usize,
    /// Connections at once.
    pub(crate) connections: usize,
    /// Calls in one body.
    pub(crate) batch: usize,
    /// A connection for each body.
    pub(crate) anew: bool,
    pub(crate) sides: &'static [Side],
}

/// Who does a work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) near: Near,
    pub(crate) far: FarEnd,
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// Our client.
    Ours,
    /// A request that was put together before, a socket, a thread that waits.
    Raw,
    /// The same, looking instead of waiting.
    Spinning,
    /// Such requests over many sockets, from one thread with an epoll.
    Many,
    /// Our client, with a call under way over each of its connections.
    OursMany,
}

const fn side(name: &'static str, near: Near, far: FarEnd) -> Side {
    Side { name, near, far }
}

const OURS: Side = side("ours", Near::Ours, FarEnd::Ours);
/// Our server alone, called as cheaply as can be.
const SERVER: Side = side("server", Near::Raw, FarEnd::Ours);
const FLOOR: Side = side("floor", Near::Raw, FarEnd::Raw);
const SPIN: Side = side("spin", Near::Spinning, FarEnd::Spinning);
/// Other people's servers, called as cheaply as can be.
const HYPER: Side = side("hyper", Near::Raw, FarEnd::Hyper);
const JSONRPSEE: Side = side("jsonrpsee-server", Near::Raw, FarEnd::Jsonrpsee);

const MANY: &[Side] = &[
    side("ours", Near::OursMany, FarEnd::Ours),
    side("server", Near::Many, FarEnd::Ours),
    side("hyper", Near::Many, FarEnd::Hyper),
    side("jsonrpsee-server", Near::Many, FarEnd::Jsonrpsee),
    side("floor", Near::Many, FarEnd::Raw),
];

/// The same with a connection for each call.
const MANY_ANEW: &[Side] = &[
    side("ours", Near::OursMany, FarEnd::Ours),
    side("server", Near::Many, FarEnd::Ours),
    side("floor", Near::Many, FarEnd::Raw),
];

const ONE: Work = Work {
    name: "one-core",
    far: 0,
    near: 0,
    connections: 1,
    batch: 1,
    anew: false,
    sides: &[OURS, SERVER, HYPER, JSONRPSEE, FLOOR],
};

const MANY_16: Work = Work { connections: 16, sides: MANY, ..ONE };
const MANY_64: Work = Work { connections: 64, sides: MANY, ..ONE };

/// All of them.
pub(crate) const WORKS: &[Work] = &[
    ONE,
    Work { name: "two-cores", near: 1, sides: &[OURS, SERVER, HYPER, JSONRPSEE, FLOOR, SPIN], ..ONE },
    Work { name: "anew", anew: true, ..ONE },
    Work { name: "anew-two-cores", near: 1, anew: true, ..ONE },
    Work { name: "connections-16", near: 1, ..MANY_16 },
    Work { name: "connections-64", near: 1, ..MANY_64 },
    Work { name: "connections-16-one-core", ..MANY_16 },
    Work { name: "connections-64-one-core", ..MANY_64 },
    Work { name: "anew-16", near: 1, anew: true, sides: MANY_ANEW, ..MANY_16 },
    Work { name: "anew-64", near: 1, anew: true, sides: MANY_ANEW, ..MANY_64 },
    Work { name: "anew-16-one-core", anew: true, sides: MANY_ANEW, ..MANY_16 },
    Work { name: "anew-64-one-core", anew: true, sides: MANY_ANEW, ..MANY_64 },
    Work { name: "batch-64", near: 1, batch: 64, sides: &[OURS], ..ONE },
    Work { name: "batch-64-one-core", batch: 64, sides: &[OURS], ..ONE },
];
