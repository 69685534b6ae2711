//! The right, and the duty, to answer one call, from any thread.

use crate::server::ClientId;
use crate::server::calls::answers::Place;
use crate::server::calls::call::{Admission, Call};
use crate::server::calls::inline;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, LENGTH_MAX};
use thalweg_wire::service::{self, Flow, error_frame};

const TOO_LONG: &str = "the answer is longer than a frame can be";

/// Answers one call, once, now or later, from any thread. Dropped unanswered it answers with
/// [`Fault::Abandoned`]: an error, never silence. Given while the handler is being called, on the reactor's
/// thread, an answer costs neither lock nor allocation.
pub struct Reply {
    /// `None` once answered.
    call: Option<Arc<Call>>,
    place: Place,
    /// Items may be held back, so the end has to wait behind them.
    holds: bool,
    /// Something went by way of the reactor's queue or is held back: nothing may overtake it.
    queues: bool,
    /// A waker was given, which the answer has to forget.
    watches: bool,
}

impl Reply {
    pub(crate) fn new(call: Arc<Call>, place: Place) -> Self {
        Self { call: Some(call), place, holds: false, queues: false, watches: false }
    }

    /// Ends the call with a response, or with the service's own error.
    pub fn end(mut self, frame: &[u8]) {
        self.finish(0, frame);
    }

    /// Ends the call with the response that `fill` appends, without a copy where the handler is still being
    /// called: what stands in front of it there is other calls' answers.
    pub fn end_with(mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        self.forget_wakers();
        let Some(call) = &self.call else { return };
        let mut fill = Some(fill);
        let here = |output: &mut Vec<u8>| {
            let start = output.len();
            if let Some(fill) = fill.take() {
                fill(output);
            }
            if output.len() - start <= LENGTH_MAX as usize {
                return Some(0);
            }
            output.truncate(start);
            output.extend_from_slice(&error_frame(call.answers().error_tag(), TOO_LONG));
            Some(Fault::FrameTooLarge as u16)
        };
        if !self.queues && inline::write(call, here).is_ok() {
            self.call = None;
        } else if let Some(fill) = fill {
            let mut frame = Vec::new();
            fill(&mut frame);
            self.finish(0, &frame);
        }
    }

    /// Ends the call with a fault, in words for people.
    pub fn fail(mut self, fault: Fault, message: &str) {
        self.refuse(fault, message);
    }

    /// Sends one item of a stream, and says whether to make another. A producer that does not wait when it is
    /// told to has its call ended with [`Fault::Overrun`] before long.
    pub fn item(&mut self, frame: &[u8]) -> Flow {
        let Some(call) = &self.call else { return Flow::Gone };
        if frame.len() > LENGTH_MAX as usize {
            self.refuse(Fault::FrameTooLarge, TOO_LONG);
            return Flow::Gone;
        }
        match call.admit(frame) {
            Admission::Leaves(flow) => {
                let here = |output: &mut Vec<u8>| {
                    output.extend_from_slice(frame);
                    None
                };
                let written = if self.queues { None } else { inline::write(call, here).ok() };
                match written {
                    Some(true) => flow,
                    // Its connection finds out when the handler is through.
                    Some(false) => {
                        call.congest();
                        Flow::Wait
                    }
                    None => {
                        self.queues = true;
                        call.answers().push(self.place, FrameKind::Item, 0, frame);
                        flow
                    }
                }
            }
            Admission::Held => {
                (self.holds, self.queues) = (true, true);
                Flow::Wait
            }
            Admission::Unwanted => Flow::Gone,
            Admission::Overrun => {
                self.refuse(Fault::Overrun, "wait for credit between items");
                Flow::Gone
            }
        }
    }

    /// What would become of an item: for a producer that makes one only if it would leave.
    pub fn flow(&self) -> Flow {
        self.call.as_ref().map_or(Flow::Gone, |call| call.flow())
    }

    /// Whether the answer is not wanted any more: the call was cancelled, its deadline passed, or its
    /// client is gone. It is to be ended, or dropped, all the same.
    pub fn is_cancelled(&self) -> bool {
        self.call.as_ref().is_none_or(|call| call.is_cancelled())
    }

    /// Wakes `waker` once, when there is credit again or the answer is not wanted any more; at once, on this
    /// thread, if either holds already. A waker that was given before is forgotten, and so is this one with
    /// the answer: both are dropped then. A wake that another thread has begun by that time may still run.
    pub fn changed(&mut self, waker: &Waker) {
        self.watches = true;
        match &self.call {
            Some(call) => call.changed(waker),
            None => waker.wake_by_ref(),
        }
    }

    /// Wakes `waker` once the answer is not wanted any more; at once if that holds already. It is forgotten
    /// as that of [`Reply::changed`] is, which is another.
    pub fn when_cancelled(&mut self, waker: &Waker) {
        self.watches = true;
        match &self.call {
            Some(call) => call.when_cancelled(waker),
            None => waker.wake_by_ref(),
        }
    }

    /// Whether there is room for an answer, or none is wanted any more. There is no room while the connection
    /// has more unsent than it may, and on a plain one none before the call's turn while more than that waits
    /// for its turn: an answer that is given all the same adds to it. For answers that are long and can wait.
    pub fn has_room(&self) -> bool {
        self.call.as_ref().is_none_or(|call| call.has_room())
    }

    /// Has `waker` woken once, when [`Reply::has_room`]; `false`, and no wake, if it has now. The waker is
    /// forgotten as that of [`Reply::changed`] is, which is another.
    pub fn await_room(&mut self, waker: &Waker) -> bool {
        self.watches = true;
        self.call.as_ref().is_some_and(|call| call.await_room(waker))
    }

    /// The client that asked.
    pub fn client(&self) -> ClientId {
        ClientId::of(self.place.key)
    }

    /// From here on no waker is woken for this reply, whose producer may be gone once it has answered.
    fn forget_wakers(&mut self) {
        if let Some(call) = self.call.as_ref().filter(|_| self.watches) {
            call.forget_wakers();
            self.watches = false;
        }
    }

    fn refuse(&mut self, fault: Fault, message: &str) {
        if let Some(call) = &self.call {
            let frame = error_frame(call.answers().error_tag(), message);
            self.finish(fault as u16, &frame);
        }
    }

    fn finish(&mut self, fault: u16, frame: &[u8]) {
        if frame.len() > LENGTH_MAX as usize {
            return self.refuse(Fault::FrameTooLarge, TOO_LONG);
        }
        self.forget_wakers();
        let Some(call) = self.call.take() else { return };
        if self.holds && call.hold_end(fault, frame) {
            return;
        }
        let here = |output: &mut Vec<u8>| {
            output.extend_from_slice(frame);
            Some(fault)
        };
        if self.queues || inline::write(&call, here).is_err() {
            call.answers().push(self.place, FrameKind::End, fault, frame);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.refuse(Fault::Abandoned, "the handler gave no answer");
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reply").field("client", &self.client()).finish_non_exhaustive()
    }
}

impl service::Reply for Reply {
    fn item(&mut self, frame: &[u8]) -> Flow {
        self.item(frame)
    }

    fn end(&mut self, frame: &[u8]) {
        self.finish(0, frame);
    }

    fn fail(&mut self, fault: Fault, error: &str, message: &str) {
        self.finish(fault as u16, &error_frame(error, message));
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled()
    }

    fn changed(&mut self, waker: &Waker) {
        self.changed(waker);
    }
}
