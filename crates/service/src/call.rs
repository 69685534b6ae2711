//! A call's identifier, its options, and its events.

use crate::error::Error;
use std::time::Duration;
use thalweg_wire::fault::Fault;

/// Identifies one call of one client. No two calls of a client ever have the same identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);

impl CallId {
    /// The identifier as a number, for languages without a type for it.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The identifier with this number. One that belongs to no call is refused where it is used.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// What may be set for one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// How long the call may take, instead of the deadline in the client's options. Both ends enforce it.
    pub deadline: Option<Duration>,
    /// Of a stream: how many items may come before [`crate::Client::grant`] lets more come. `None`: the
    /// number in the server's welcome. 0 is refused, because a frame cannot express it.
    pub credit: Option<u32>,
    /// One frame answers: an item in its place fails the call as [`Fault::BadAnswer`], and cancels it.
    /// Without this either may come, and the caller has to tell them apart.
    pub unary: bool,
}

/// An answer, an item or a failure of one call.
#[derive(Debug)]
pub struct Event<'c> {
    /// The call.
    pub call: CallId,
    /// What happened.
    pub kind: EventKind,
    /// The frame that brought it, borrowed from what was received; empty where none did.
    pub frame: &'c [u8],
}

impl Event<'_> {
    /// Whether the service itself refused, in a frame with its own words: generated code reads that as any
    /// other answer.
    pub(crate) fn is_refusal(&self) -> bool {
        !self.frame.is_empty()
            && matches!(&self.kind, EventKind::Failed(error) if error.fault == Fault::Refused)
    }
}

/// What happened to a call.
#[derive(Debug)]
pub enum EventKind {
    /// One item of a stream; more will come.
    Item,
    /// The answer, or the end of a stream. Nothing more will come.
    End,
    /// Why there is no answer. Nothing more will come.
    Failed(Error),
}
