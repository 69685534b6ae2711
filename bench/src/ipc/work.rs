//! What is measured: how large a message is, how many are under way, and where the two ends run.

/// Who carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A blocking thread at each end of a Unix socket: one write and one read per message.
    Socket,
    /// The same over two pipes.
    Pipe,
    /// Two words in shared memory, each end spinning on the other's.
    Spin,
    /// Two words in shared memory, each end sleeping on the other's.
    Futex,
    /// No other end: the message is copied there and back.
    Memcpy,
    /// Our rings, without a service on them.
    Rings,
    /// Our service: frames, answered where they arrive.
    Serial,
    /// Our concurrent service, answered where they arrive.
    Reactor,
    /// Our concurrent service, each answered by one of two threads of its own.
    Pool,
    /// Our service: the echo example's `Fields`, encoded and decoded at both ends.
    Typed,
    /// Our service with as many clients as it takes, each with a call under way.
    Crowd,
    /// The same crowd: one of it is killed, another takes its place.
    Killed,
    /// No side of its own: the process that is killed.
    Visitor,
}

impl Side {
    /// Its name in samples.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Pipe => "pipe",
            Self::Spin => "spin",
            Self::Futex => "futex",
            Self::Memcpy => "memcpy",
            Self::Rings => "rings",
            Self::Serial => "serial",
            Self::Reactor => "reactor",
            Self::Pool => "pool",
            Self::Typed => "typed",
            Self::Crowd => "crowd",
            Self::Killed => "killed",
            Self::Visitor => "visitor",
        }
    }

    /// The side of a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let all = [Self::Socket, Self::Pipe, Self::Spin, Self::Futex, Self::Memcpy, Self::Rings];
        let ours = [Self::Serial, Self::Reactor, Self::Pool, Self::Typed];
        let crowd = [Self::Crowd, Self::Killed, Self::Visitor];
        all.into_iter().chain(ours).chain(crowd).find(|side| side.name() == name)
    }
}

/// Where the two ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pins {
    /// Both on processor 0.
    OneCore,
    /// The far end on 0, the near one on 1.
    TwoCores,
    /// Wherever the kernel likes.
    Free,
}

impl Pins {
    /// The processors of the far and of the near end.
    pub(crate) const fn processors(self) -> (Option<usize>, Option<usize>) {
        match self {
            Self::OneCore => (Some(0), Some(0)),
            Self::TwoCores => (Some(0), Some(1)),
            Self::Free => (None, None),
        }
    }
}

/// What carries the bytes of our sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Socket,
    Memory,
}

/// One line of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) carrier: Carrier,
    /// Bytes of a message, each way.
    pub(crate) bytes: usize,
    /// Messages under way at once, per client.
    pub(crate) depth: usize,
    pub(crate) clients: usize,
    pub(crate) pins: Pins,
    /// Microseconds of processor time that answering takes.
    pub(crate) effort_us: u64,
    pub(crate) sides: &'static [Side],
}

const ONE: Work = Work {
    name: "",
    carrier: Carrier::Memory,
    bytes: 64,
    depth: 1,
    clients: 1,
    pins: Pins::TwoCores,
    effort_us: 0,
    sides: &[],
};

use Side::{Crowd, Futex, Killed, Memcpy, Pipe, Pool, Reactor, Rings, Serial, Socket, Spin, Typed};

/// Everything that is measured.
pub(crate) const WORKS: &[Work] = &[
    Work {
        name: "memory-one-core",
        pins: Pins::OneCore,
        sides: &[Rings, Serial, Reactor, Typed, Futex],
        ..ONE
    },
    Work { name: "memory-two-cores", sides: &[Rings, Serial, Reactor, Typed, Spin, Futex], ..ONE },
    Work { name: "memory-free", pins: Pins::Free, sides: &[Serial, Reactor], ..ONE },
    Work { name: "memory-1k", bytes: 1_024, sides: &[Rings, Serial, Memcpy], ..ONE },
    Work { name: "memory-64k", bytes: 65_536, sides: &[Rings, Serial, Memcpy], ..ONE },
    Work { name: "memory-deep", depth: 16, sides: &[Rings, Serial, Reactor, Typed], ..ONE },
    Work {
        name: "memory-deep-one-core",
        depth: 16,
        pins: Pins::OneCore,
        sides: &[Rings, Serial, Reactor, Typed],
        ..ONE
    },
    Work { name: "memory-crowd", pins: Pins::Free, sides: &[Crowd], ..ONE },
    Work { name: "memory-killed", pins: Pins::Free, sides: &[Killed], ..ONE },
    Work { name: "memory-pool", depth: 16, pins: Pins::Free, sides: &[Pool], ..ONE },
    Work {
        name: "socket-one-core",
        carrier: Carrier::Socket,
        pins: Pins::OneCore,
        sides: &[Serial, Reactor, Socket, Pipe],
        ..ONE
    },
    Work {
        name: "socket-two-cores",
        carrier: Carrier::Socket,
        sides: &[Serial, Reactor, Socket, Pipe],
        ..ONE
    },
    Work {
        name: "socket-deep",
        carrier: Carrier::Socket,
        depth: 16,
        sides: &[Serial, Reactor, Typed, Socket],
        ..ONE
    },
    Work { name: "socket-64k", carrier: Carrier::Socket, bytes: 65_536, sides: &[Serial, Socket], ..ONE },
    Work {
        name: "socket-clients",
        carrier: Carrier::Socket,
        clients: 4,
        pins: Pins::Free,
        sides: &[Serial, Reactor, Socket],
        ..ONE
    },
    Work {
        name: "socket-pool",
        carrier: Carrier::Socket,
        depth: 16,
        pins: Pins::Free,
        sides: &[Pool],
        ..ONE
    },
    Work { name: "reads-1", effort_us: 10, pins: Pins::Free, sides: &[Serial, Pool], ..ONE },
    Work { name: "reads-2", depth: 2, effort_us: 10, pins: Pins::Free, sides: &[Serial, Pool], ..ONE },
    Work { name: "reads-4", depth: 4, effort_us: 10, pins: Pins::Free, sides: &[Serial, Pool], ..ONE },
    Work { name: "reads-8", depth: 8, effort_us: 10, pins: Pins::Free, sides: &[Serial, Pool], ..ONE },
    Work { name: "reads-16", depth: 16, effort_us: 10, pins: Pins::Free, sides: &[Serial, Pool], ..ONE },
    Work {
        name: "reads-clients-2",
        clients: 2,
        effort_us: 10,
        pins: Pins::Free,
        sides: &[Serial, Pool],
        ..ONE
    },
    Work {
        name: "reads-clients-4",
        clients: 4,
        effort_us: 10,
        pins: Pins::Free,
        sides: &[Serial, Pool],
        ..ONE
    },
    Work {
        name: "reads-clients-7",
        clients: 7,
        effort_us: 10,
        pins: Pins::Free,
        sides: &[Serial, Pool],
        ..ONE
    },
];
