//! A server: open, and take requests by turns, or run with a callback; each request comes with the duty to
//! answer it.
//!
//! A server may be used from any thread, but from one at a time. Its stoppers and replies may be used
//! meanwhile from others.
//!
//! *Invariant*: while a `run` has the server, nothing else borrows it. A callback that asks for it all the
//! same, which it may do by the pointer it has, finds `runs` set and is refused; checked by
//! `a_callback_cannot_use_the_server_that_calls_it`.

use crate::borrowed;
use crate::client::{endpoint, wait};
use crate::outcome::{code, value};
use crate::reply::{self, ThalwegReply};
use crate::server_options::{ThalwegServerOptions, ThalwegServerStatistics, thalweg_server_defaults};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Instant;
use thalweg_service::{Error, Handler, Incoming, Reply, Request, Server, Stopper};
use thalweg_wire::fault::Fault;

/// A server, with no thread. From `thalweg_server_open`, to be handed to `thalweg_server_close`.
pub struct ThalwegServer {
    server: Server,
    /// The request that was taken last.
    lent: Vec<u8>,
    /// A `run` uses it.
    runs: Cell<bool>,
    /// Cloned for each `thalweg_server_stopper`, on any thread, during a run as well.
    stopper: Stopper,
}

/// Whether a run has the server; only that is looked at.
///
/// # Safety
/// `server` is null or a server.
unsafe fn runs(server: *const ThalwegServer) -> bool {
    // SAFETY: the caller's promise, and not null; a run borrows the other fields.
    !server.is_null() && unsafe { &(*server).runs }.get()
}

/// The server, unless it is one of its callbacks that asks.
///
/// # Safety
/// `server` is null or a server that nobody else uses meanwhile, its own callbacks aside.
unsafe fn at_rest<'a>(server: *mut ThalwegServer) -> Result<&'a mut ThalwegServer, Error> {
    // SAFETY: the caller's promise.
    if unsafe { runs(server) } {
        let why = "the server calls this very function: use it before or after its run, and a stopper or a reply meanwhile";
        return Err(Error::new(Fault::BadArgument, why));
    }
    // SAFETY: the caller's promise.
    unsafe { borrowed::handle(server, "the server") }
}

/// As [`at_rest`], for functions that cannot return an error.
///
/// # Safety
/// As there.
unsafe fn looked_at<'a>(server: *const ThalwegServer) -> Option<&'a ThalwegServer> {
    // SAFETY: the caller's promise.
    unsafe { if runs(server) { None } else { borrowed::option(server) } }
}

/// Lends the server to a run.
///
/// # Safety
/// As of [`at_rest`].
unsafe fn run(
    server: *mut ThalwegServer,
    run: impl FnOnce(&mut Server) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe { at_rest(server) }?;
    // SAFETY: it is a server; callbacks look at the one field and are kept from the other.
    let (runs, server) = unsafe { (&(*server).runs, &mut (*server).server) };
    runs.set(true);
    let _guard = RunGuard(runs);
    run(server)
}

/// A run is over once this is dropped, by a panic too.
struct RunGuard<'s>(&'s Cell<bool>);

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// What stops a server from wherever one is.
pub struct ThalwegStopper {
    stopper: Stopper,
}

/// Where a serial handler's answer is put together.
pub struct ThalwegAnswer {
    bytes: Vec<u8>,
}

/// A request, with the duty to answer it.
#[derive(Debug)]
#[repr(C)]
pub struct ThalwegRequest {
    /// Who asked; no two clients of a server have the same number.
    pub client: u64,
    /// The request, `length` bytes. From a turn it is lent until the next function is called with the server;
    /// to a callback, until that returns.
    pub frame: *const u8,
    /// Bytes of the frame.
    pub length: usize,
    /// Milliseconds until the call's deadline; negative for none.
    pub deadline_ms: i64,
    /// What answers it, and is the receiver's; null when there is no request.
    pub reply: *mut ThalwegReply,
    /// Nothing else waits or is in flight, and no other client asked within the last millisecond: to answer
    /// at once delays nobody.
    pub alone: bool,
}

/// Listens at `count` endpoints (`*.sock`, `*.shm`, `-`). A path is taken over only from a server that is
/// dead. Null options are the defaults. Faults: THALWEG_ADDRESS_IN_USE, THALWEG_PERMISSION_DENIED,
/// THALWEG_BAD_ARGUMENT, THALWEG_SYSTEM.
///
/// # Safety
/// `endpoints` points to `count` strings that a NUL ends; `options` is null or points to options; `server` to
/// a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_open(
    endpoints: *const *const c_char,
    count: usize,
    options: *const ThalwegServerOptions,
    server: *mut *mut ThalwegServer,
) -> u16 {
    code(|| {
        let place = borrowed::place(server, "the place for the server")?;
        if endpoints.is_null() || count == 0 {
            return Err(Error::new(Fault::BadArgument, "no endpoint is given"));
        }
        // SAFETY: the caller's promise.
        let paths = unsafe { borrowed::list(endpoints, count, "the endpoints") }?;
        let endpoints: Result<Vec<_>, Error> = paths
            .iter()
            // SAFETY: the caller's promise.
            .map(|path| unsafe { borrowed::string(*path, "an endpoint") }.and_then(endpoint))
            .collect();
        // SAFETY: the caller's promise.
        let options = match unsafe { borrowed::option(options) } {
            // SAFETY: the caller's promise.
            Some(options) => unsafe { options.options() }?,
            // SAFETY: the defaults hold no string.
            None => unsafe { thalweg_server_defaults().options() }?,
        };
        let server = Server::bind(&endpoints?, options)?;
        let stopper = server.stopper();
        let opened = ThalwegServer { server, lent: Vec::new(), runs: Cell::new(false), stopper };
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

/// Ends every connection, removes the paths and frees the server; null is fine. (While another process holds
/// a directory's lock the paths stay; the next server that binds there removes them.) Replies that are still
/// out may be used, and answer nobody. One of its callbacks cannot close it: then nothing is done.
///
/// # Safety
/// `server` is null, or came from `thalweg_server_open` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_close(server: *mut ThalwegServer) {
    // SAFETY: the caller's promise.
    if !server.is_null() && !unsafe { runs(server) } {
        // SAFETY: the caller's promise, and not null.
        value((), || drop(unsafe { Box::from_raw(server) }));
    }
}

/// The descriptor for a foreign loop: readable whenever `thalweg_server_turn` without waiting has something
/// to do. It belongs to the server. -1 for null, and to a callback of a run.
///
/// # Safety
/// `server` is null or a server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_descriptor(server: *const ThalwegServer) -> c_int {
    // SAFETY: the caller's promise.
    value(-1, || unsafe { looked_at(server) }.map_or(-1, |of| of.server.descriptor().as_raw_fd()))
}

/// Reads, writes and waits up to `wait_ms` milliseconds (0: does not wait; negative: without a limit): then
/// `thalweg_server_next` has the requests that came. `happened`, which may be null, is the number of things
/// that happened.
///
/// # Safety
/// `server` is null or a server; `happened` is null or points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_turn(
    server: *mut ThalwegServer,
    wait_ms: i64,
    happened: *mut usize,
) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let server = unsafe { at_rest(server) }?;
        let count = server.server.turn(wait(wait_ms))?;
        if !happened.is_null() {
            // SAFETY: the caller's promise; what stands there is not read.
            unsafe { happened.write(count) };
        }
        Ok(())
    })
}

/// Whether the server was stopped and everything that was begun is answered: the end of a loop of turns.
/// Never while it runs.
///
/// # Safety
/// `server` is null or a server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_is_stopped(server: *const ThalwegServer) -> bool {
    // SAFETY: the caller's promise.
    value(true, || unsafe { !runs(server) && looked_at(server).is_none_or(|of| of.server.is_stopped()) })
}

/// The next request that came; one whose reply is null when there is none until another turn. A foreign loop
/// asks until then, whatever became of a request: only then do answers leave, and does the descriptor tell of
/// what comes.
///
/// # Safety
/// `server` is null or a server; `request` points to a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_next(
    server: *mut ThalwegServer,
    request: *mut ThalwegRequest,
) -> u16 {
    code(|| {
        let place = borrowed::place(request, "the place for the request")?;
        // SAFETY: the caller's promise.
        let ThalwegServer { server, lent, .. } = unsafe { at_rest(server) }?;
        let request = match server.next() {
            Some(incoming) => taken(incoming, lent),
            None => ThalwegRequest {
                client: 0,
                frame: std::ptr::null(),
                length: 0,
                deadline_ms: -1,
                reply: std::ptr::null_mut(),
                alone: false,
            },
        };
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(request) };
        Ok(())
    })
}

fn taken(incoming: Incoming, lent: &mut Vec<u8>) -> ThalwegRequest {
    *lent = incoming.request;
    ThalwegRequest {
        client: incoming.client.number(),
        frame: lent.as_ptr(),
        length: lent.len(),
        deadline_ms: left(incoming.deadline),
        reply: reply::lend(incoming.reply),
        alone: incoming.alone,
    }
}

fn left(deadline: Option<Instant>) -> i64 {
    deadline.map_or(-1, |at| {
        at.saturating_duration_since(Instant::now()).as_millis().try_into().unwrap_or(i64::MAX)
    })
}

/// Answers requests one after the other, on this thread, until the server is stopped: `handle` is lent a
/// request until it returns, and says its answer by `thalweg_answer_write`. One that writes nothing answers
/// with an empty frame. It may use a stopper, and nothing else of the server: THALWEG_BAD_ARGUMENT.
///
/// # Safety
/// `server` is null or a server; `handle` may be called with `context`, and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_run(
    server: *mut ThalwegServer,
    handle: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            frame: *const u8,
            length: usize,
            answer: *mut ThalwegAnswer,
        ),
    >,
    context: *mut c_void,
) -> u16 {
    code(|| {
        let handle = handle.ok_or_else(|| Error::new(Fault::BadArgument, "handle is null"))?;
        let serve = |request: &[u8], output: &mut Vec<u8>| {
            let mut answer = ThalwegAnswer { bytes: std::mem::take(output) };
            // SAFETY: the caller's promise; what is lent lives until it returns.
            unsafe { handle(context, request.as_ptr(), request.len(), &raw mut answer) };
            *output = answer.bytes;
        };
        // SAFETY: the caller's promise.
        unsafe { run(server, |server| server.run(serve)) }
    })
}

/// Appends to the answer that a serial handler gives.
///
/// # Safety
/// `answer` is null or the one a handler was called with, which has not returned; `bytes` points to `length`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_answer_write(
    answer: *mut ThalwegAnswer,
    bytes: *const u8,
    length: usize,
) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let (answer, bytes) =
            unsafe { (borrowed::handle(answer, "the answer")?, borrowed::bytes(bytes, length)?) };
        answer.bytes.extend_from_slice(bytes);
        Ok(())
    })
}

/// Hands requests out as they come, on this thread, until the server is stopped; then takes no more and
/// returns when each one that was handed out has been answered. `take` is lent the request until it returns,
/// but for the reply, which is its own: what is answered before it returns costs neither lock nor copy. It
/// may use a stopper, and nothing else of the server: THALWEG_BAD_ARGUMENT.
///
/// # Safety
/// `server` is null or a server; `take` may be called with `context`, and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_run_reactor(
    server: *mut ThalwegServer,
    take: Option<unsafe extern "C" fn(context: *mut c_void, request: *const ThalwegRequest)>,
    context: *mut c_void,
) -> u16 {
    code(|| {
        let take = take.ok_or_else(|| Error::new(Fault::BadArgument, "take is null"))?;
        // SAFETY: the caller's promise.
        unsafe { run(server, |server| server.serve(CallbackHandler { take, context })) }
    })
}

struct CallbackHandler {
    take: unsafe extern "C" fn(context: *mut c_void, request: *const ThalwegRequest),
    context: *mut c_void,
}

impl Handler for CallbackHandler {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        let request = ThalwegRequest {
            client: request.client.number(),
            frame: request.frame.as_ptr(),
            length: request.frame.len(),
            deadline_ms: left(request.deadline),
            reply: reply::lend(reply),
            alone: request.alone,
        };
        // SAFETY: what `thalweg_server_run_reactor` was promised; what is lent lives until it returns.
        unsafe { (self.take)(self.context, &raw const request) };
    }
}

/// What stops this server, to be handed to `thalweg_stopper_free`. It may outlive the server. Any thread may
/// ask, and a callback, while the server is open.
///
/// # Safety
/// `server` is null or a server; `stopper` points to a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_stopper(
    server: *const ThalwegServer,
    stopper: *mut *mut ThalwegStopper,
) -> u16 {
    code(|| {
        let place = borrowed::place(stopper, "the place for the stopper")?;
        if server.is_null() {
            return Err(Error::new(Fault::BadArgument, "the server is null"));
        }
        // SAFETY: the caller's promise, and not null; nobody borrows this field otherwise than to read it.
        let made = ThalwegStopper { stopper: unsafe { &(*server).stopper }.clone() };
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Stops the server, from any thread: it takes nothing new, what has begun is answered, then its `run`
/// returns. More than once is fine, and so is null.
///
/// # Safety
/// `stopper` is null or one that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_stopper_stop(stopper: *const ThalwegStopper) {
    // SAFETY: the caller's promise.
    value((), || unsafe { borrowed::option(stopper) }.map_or((), |of| of.stopper.stop()));
}

/// Frees a stopper; null is fine.
///
/// # Safety
/// `stopper` is null, or came from `thalweg_server_stopper` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_stopper_free(stopper: *mut ThalwegStopper) {
    if !stopper.is_null() {
        // SAFETY: the caller's promise, and not null.
        value((), || drop(unsafe { Box::from_raw(stopper) }));
    }
}

/// What the server has done so far; all zeros for null, and to a callback of a run.
///
/// # Safety
/// `server` is null or a server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_server_statistics_of(
    server: *const ThalwegServer,
) -> ThalwegServerStatistics {
    value(ThalwegServerStatistics::default(), || {
        // SAFETY: the caller's promise.
        let server = unsafe { looked_at(server) };
        server.map_or_else(ThalwegServerStatistics::default, |of| of.server.statistics().into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::ptr::null_mut;

    struct Callback {
        server: *mut ThalwegServer,
        stopper: *mut ThalwegStopper,
        refused: Vec<u16>,
    }

    extern "C" fn handle(context: *mut c_void, _: *const u8, _: usize, answer: *mut ThalwegAnswer) {
        // SAFETY: the test's own context, and what this function was lent.
        unsafe {
            let Callback { server, stopper, refused } = &mut *context.cast::<Callback>();
            let (mut count, mut other) = (0, null_mut());
            refused.push(thalweg_server_turn(*server, 0, &raw mut count));
            refused.push(thalweg_server_run(*server, Some(handle), context));
            assert_eq!(thalweg_server_stopper(*server, &raw mut other), 0);
            thalweg_stopper_free(other);
            assert_eq!(thalweg_server_descriptor(*server), -1);
            assert!(!thalweg_server_is_stopped(*server));
            assert_eq!(thalweg_server_statistics_of(*server).requests, 0);
            thalweg_server_close(*server);
            assert_eq!(thalweg_answer_write(answer, b"done".as_ptr(), 4), 0);
            thalweg_stopper_stop(*stopper);
        }
    }

    #[test]
    fn a_callback_cannot_use_the_server_that_calls_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.sock");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let (mut server, mut stopper) = (null_mut(), null_mut());
        let names = [name.as_ptr()];
        // SAFETY: one string, places for the handles, and a context that outlives the run.
        unsafe {
            assert_eq!(thalweg_server_open(names.as_ptr(), 1, std::ptr::null(), &raw mut server), 0);
            assert_eq!(thalweg_server_stopper(server, &raw mut stopper), 0);
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(b"\x02\0\0\0hi").unwrap();
            let mut context = Callback { server, stopper, refused: Vec::new() };
            assert_eq!(thalweg_server_run(server, Some(handle), (&raw mut context).cast()), 0);
            assert_eq!(context.refused, [Fault::BadArgument as u16; 2]);
            let mut answer = [0; 8];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"\x04\0\0\0done");
            assert_eq!(
                thalweg_server_statistics_of(server).requests,
                1,
                "after the run it may be used again"
            );
            thalweg_stopper_free(stopper);
            thalweg_server_close(server);
        }
        assert!(!path.exists());
    }
}
