//! Answers that are given while the handler is still being called, on the reactor's own thread.
//!
//! They need no mailbox, no lock and no allocation: while a handler runs, the connection's output lies in a
//! variable of this thread beside the call it is for, and a [`Reply`](crate::Reply) for that very call writes
//! into it. Calls are told apart by their address, which is theirs alone while they live, so a reply that
//! belongs to another call, server or thread never finds itself here.

use crate::server::calls::call::Call;
use crate::server::calls::framing::Framing;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The call that is being handled on this thread.
struct InlineCall {
    /// Its address; 0 for none.
    call: usize,
    framing: Framing,
    output: Vec<u8>,
    /// Length of the output, in bytes, from which streams are told to wait.
    full_at: usize,
    ended: bool,
}

const NONE: InlineCall =
    InlineCall { call: 0, framing: Framing::Plain, output: Vec::new(), full_at: usize::MAX, ended: false };

thread_local! {
    static HERE: RefCell<InlineCall> = const { RefCell::new(NONE) };
}

fn address(call: &Arc<Call>) -> usize {
    Arc::as_ptr(call).addr()
}

/// Handles a call: what it is answered meanwhile goes into `output`, its items until that is `full_at` long.
/// Whether it has ended. A handler that panics has dropped its reply, which is an answer too.
pub(crate) fn handle(
    call: &Arc<Call>,
    framing: Framing,
    output: &mut Vec<u8>,
    full_at: usize,
    handler: impl FnOnce(),
) -> bool {
    let here =
        InlineCall { call: address(call), framing, output: std::mem::take(output), full_at, ended: false };
    // A handler may itself turn another server on this thread.
    let before = HERE.with(|place| place.replace(here));
    let _ = catch_unwind(AssertUnwindSafe(handler));
    let here = HERE.with(|place| place.replace(before));
    *output = here.output;
    here.ended
}

/// Writes a frame of an answer if its call is the one that is being handled here; whether there is room for
/// more. `fill` writes the payload, and says what it ends with: `None` for an item, else a fault's code or 0.
pub(crate) fn write(
    call: &Arc<Call>,
    fill: impl FnOnce(&mut Vec<u8>) -> Option<u16>,
) -> Result<bool, NotHere> {
    let taken = HERE.try_with(|place| {
        let mut here = place.try_borrow_mut().ok()?;
        if here.call != address(call) || here.ended {
            return None;
        }
        // Whatever `fill` does must not find this call here again.
        here.call = 0;
        Some((here.framing, std::mem::take(&mut here.output), here.full_at))
    });
    let Ok(Some((framing, mut output, full_at))) = taken else { return Err(NotHere(())) };
    let unfinished = framing.begin(&mut output);
    let back = Back { call: address(call), output, unfinished, framing };
    Ok(back.fill(fill) <= full_at)
}

/// The call is handled elsewhere.
pub(crate) struct NotHere(());

/// Puts the output back, even when the payload's writer panics: then without the frame it began.
struct Back {
    call: usize,
    output: Vec<u8>,
    unfinished: usize,
    framing: Framing,
}

impl Back {
    /// How long the output is then.
    fn fill(mut self, fill: impl FnOnce(&mut Vec<u8>) -> Option<u16>) -> usize {
        let fault = fill(&mut self.output);
        self.framing.finish(&mut self.output, self.unfinished, fault);
        self.unfinished = self.output.len();
        let ended = fault.is_some();
        HERE.with(|place| place.borrow_mut().ended = ended);
        self.unfinished
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        self.output.truncate(self.unfinished);
        HERE.with(|place| {
            let mut here = place.borrow_mut();
            here.call = self.call;
            here.output = std::mem::take(&mut self.output);
        });
    }
}
