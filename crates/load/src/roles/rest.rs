//! The idle client: sends one request, and stays connected.

use super::{Next, Role};
use crate::arguments::Idle;
use crate::driver::Shared;
use crate::target::Body;

/// The role.
pub(crate) struct Rest {
    kind: Idle,
    stream: u64,
    attached: bool,
}

impl Rest {
    pub(crate) fn new(kind: Idle, stream: u64) -> Self {
        Self { kind, stream, attached: false }
    }

    fn attach(&mut self, shared: &mut Shared) {
        shared.attached += u64::from(!std::mem::replace(&mut self.attached, true));
    }
}

impl Role for Rest {
    fn name(&self) -> &'static str {
        match self.kind {
            Idle::KeptAlive => "kept-alive",
            Idle::LongPoll => "long-poll",
            Idle::Sse => "sse",
        }
    }

    fn stream(&self) -> u64 {
        self.stream
    }

    fn next(&mut self, shared: &mut Shared, out: &mut Vec<u8>) -> Next {
        if self.attached && self.kind == Idle::KeptAlive {
            return Next::Rest;
        }
        let (method, query) = match self.kind {
            Idle::KeptAlive => ("HEAD", ""),
            Idle::LongPoll => ("GET", "?offset=now&live=long-poll"),
            Idle::Sse => ("GET", "?offset=now&live=sse"),
        };
        shared.target.request(out, method, self.stream, query, &Body::None);
        if self.kind == Idle::LongPoll {
            self.attach(shared);
        }
        Next::Sent
    }

    fn body(&mut self, shared: &mut Shared, _: &[u8]) {
        self.attach(shared);
    }

    fn answered(&mut self, shared: &mut Shared) {
        if self.kind == Idle::KeptAlive {
            self.attach(shared);
        }
    }

    fn asks_for_head(&self) -> bool {
        self.kind == Idle::KeptAlive
    }
}
