//! The right, and the duty, to answer one call.

use crate::borrowed;
use crate::outcome::{code, value};
use crate::wake;
use std::ffi::c_void;
use thalweg_service::{Error, Reply};
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Flow;

/// The right, and the duty, to answer one call: once, now or later, from any thread, but from one at a time.
/// Its owner hands it to `thalweg_reply_end`, `thalweg_reply_fail` or `thalweg_reply_drop`, each of which
/// takes it away.
pub struct ThalwegReply {
    reply: Reply,
}

/// What a producer of a stream does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ThalwegFlow {
    /// There is room for the next item.
    Go = 0,
    /// The item was taken, but there is no room for another yet: see `thalweg_reply_changed`. A producer that
    /// does not wait has its call ended before long.
    Wait = 1,
    /// Nobody waits for more: end the call.
    Gone = 2,
}

pub(crate) fn lend(reply: Reply) -> *mut ThalwegReply {
    Box::into_raw(Box::new(ThalwegReply { reply }))
}

/// # Safety
/// `reply` is null, or came from `lend` and was not taken back.
unsafe fn take(reply: *mut ThalwegReply) -> Result<Reply, Error> {
    if reply.is_null() {
        return Err(Error::new(Fault::BadArgument, "the reply is null"));
    }
    // SAFETY: the caller's promise, and not null.
    Ok(unsafe { Box::from_raw(reply) }.reply)
}

/// Ends the call with a response frame, or with the service's own error. Takes the reply away.
///
/// # Safety
/// `reply` is null or one that was not taken away; `frame` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_end(reply: *mut ThalwegReply, frame: *const u8, length: usize) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let (reply, frame) = unsafe { (take(reply)?, borrowed::bytes(frame, length)?) };
        reply.end(frame);
        Ok(())
    })
}

/// Ends the call with a fault (a code of `enum thalweg_fault`) and a message for people, `length` bytes of
/// UTF-8. Takes the reply away. An unknown code is THALWEG_BAD_ARGUMENT, and the call ends as
/// THALWEG_ABANDONED.
///
/// # Safety
/// `reply` is null or one that was not taken away; `message` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_fail(
    reply: *mut ThalwegReply,
    fault: u16,
    message: *const u8,
    length: usize,
) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let (reply, message) = unsafe { (take(reply)?, borrowed::bytes(message, length)?) };
        let fault = Fault::of(fault)
            .ok_or_else(|| Error::new(Fault::BadArgument, format!("{fault} is no fault's code")))?;
        reply.fail(fault, &String::from_utf8_lossy(message));
        Ok(())
    })
}

/// Ends the call as THALWEG_ABANDONED. Takes the reply away; null is fine.
///
/// # Safety
/// `reply` is null or one that was not taken away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_drop(reply: *mut ThalwegReply) {
    if !reply.is_null() {
        // SAFETY: the caller's promise, and not null.
        value((), || drop(unsafe { take(reply) }));
    }
}

/// Sends one item of a stream, and says whether to make another.
///
/// # Safety
/// `reply` is null or one that was not taken away; `frame` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_item(
    reply: *mut ThalwegReply,
    frame: *const u8,
    length: usize,
) -> ThalwegFlow {
    value(ThalwegFlow::Gone, || {
        // SAFETY: the caller's promise.
        let lent = unsafe {
            borrowed::handle(reply, "the reply").and_then(|r| Ok((r, borrowed::bytes(frame, length)?)))
        };
        match lent.map(|(reply, frame)| reply.reply.item(frame)) {
            Ok(Flow::Go) => ThalwegFlow::Go,
            Ok(Flow::Wait) => ThalwegFlow::Wait,
            Ok(Flow::Gone) | Err(_) => ThalwegFlow::Gone,
        }
    })
}

/// Whether nobody waits for the answer any more: the call was cancelled, its deadline passed, or its client
/// is gone. It is to be ended, or dropped, all the same.
///
/// # Safety
/// `reply` is null or one that was not taken away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_cancelled(reply: *const ThalwegReply) -> bool {
    // SAFETY: the caller's promise.
    value(true, || unsafe { borrowed::option(reply) }.is_none_or(|reply| reply.reply.is_cancelled()))
}

/// Has `wake` called with `context` once a stream may go on or nobody waits for the answer any more; at once
/// if it is so already, before this returns. It is called from whatever thread brought that about, which must
/// not be held up: let it set a flag or wake somebody, and not use the reply. One that was given before is
/// forgotten. What takes the reply away forgets it too: no `wake` begins after that, but one that another
/// thread has begun may still run. `release`, which may be null, is called once, from any thread, when `wake`
/// will not be called (any more), whatever this function answers: then nobody uses `context`. What takes the
/// reply away calls it before it returns, unless such a wake still runs, which calls it when it is over.
///
/// # Safety
/// `reply` is null or one that was not taken away; `wake` and `release` may be called with `context` from any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_reply_changed(
    reply: *mut ThalwegReply,
    wake: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
    release: Option<unsafe extern "C" fn(context: *mut c_void)>,
) -> u16 {
    code(|| {
        // First, so that the context is released whatever else is wrong.
        // SAFETY: the caller's promise.
        let waker = unsafe { wake::waker(wake.unwrap_or(wakes_nobody), context, release) };
        if wake.is_none() {
            return Err(Error::new(Fault::BadArgument, "wake is null"));
        }
        // SAFETY: the caller's promise.
        let reply = unsafe { borrowed::handle(reply, "the reply")? };
        reply.reply.changed(&waker);
        Ok(())
    })
}

extern "C" fn wakes_nobody(_: *mut c_void) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    extern "C" fn wake(_: *mut c_void) {}

    extern "C" fn release(context: *mut c_void) {
        // SAFETY: the tests give a number that outlives the call.
        unsafe { *context.cast::<u32>() += 1 };
    }

    /// Whatever was wrong, the caller learns that its context is not used any more.
    #[test]
    fn a_context_that_was_not_taken_is_released_once() {
        for given in [Some(wake as wake::Call), None] {
            let mut released = 0_u32;
            let context = (&raw mut released).cast();
            // SAFETY: no reply; a context that lives, and functions for it.
            let fault = unsafe { thalweg_reply_changed(null_mut(), given, context, Some(release)) };
            assert_eq!((fault, released), (Fault::BadArgument as u16, 1), "{}", given.is_some());
        }
    }
}
