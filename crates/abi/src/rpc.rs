//! A client of JSON-RPC over connections that are kept: JSON goes in, JSON comes out.
//!
//! A client may be used from any thread, but from one at a time.

use crate::borrowed;
use crate::client::wait;
use crate::client_options::{duration, milliseconds};
use crate::outcome::{code, keep, text, value};
use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::time::Duration;
use thalweg_rpc::client::{Answers, Ask, Completion, Options, Statistics, Target};
use thalweg_rpc::{Bearer, Client};
use thalweg_service::{CallId, Error};
use thalweg_wire::fault::Fault;

/// Connections to services that are called by JSON-RPC, and no thread. From `thalweg_rpc_open`, to be handed
/// to `thalweg_rpc_close`.
pub struct ThalwegRpc {
    client: Client,
    /// What came of the calls that were taken last.
    answers: Answers,
    /// Why they have none, or the words of the error that was read last.
    detail: CString,
}

/// What a client of JSON-RPC allows itself. Begin with `thalweg_rpc_defaults()`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegRpcOptions {
    /// How long an answer is waited for, connecting included, where a call says nothing else; 0 for ever.
    pub deadline_ms: u64,
    /// How long a connection is kept while nothing goes over it.
    pub idle_for_ms: u64,
    /// The longest answer.
    pub answer_bytes_max: u64,
    /// Connections to one address at once; further calls wait for one of them.
    pub connections_max: u32,
    /// Connections that are kept while nothing goes over them, of all addresses together.
    pub idle_max: u32,
    /// Requests that have not ended; one more is THALWEG_OVERLOADED.
    pub in_flight_max: u32,
    /// Services that `thalweg_rpc_target` keeps beside the client's own.
    pub targets_max: u32,
    /// What lets it in where a server has tokens: a string that a NUL ends, which goes with every request, or
    /// null for none. It is read while the client is opened, and not afterwards.
    pub token: *const c_char,
    /// May look for some microseconds for an answer before sleeping, as long as that finds any.
    pub spin: bool,
}

/// A call: strings that a NUL ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegRpcCall {
    /// The method.
    pub method: *const c_char,
    /// A JSON array or object; null for none.
    pub params: *const c_char,
}

/// How calls are made. Zeros are what the client's options say, at its own service.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ThalwegRpcAsk {
    /// How long their answers are waited for; 0 for what the client's options say.
    pub deadline_ms: u64,
    /// Of which service: a number from `thalweg_rpc_target`, or 0.
    pub target: u32,
    /// They go as a batch, even if there is one.
    pub batch: bool,
    /// They have no answers.
    pub notifies: bool,
    /// Twice is as good as once: may be sent again when a connection ends before the answer comes.
    pub idempotent: bool,
}

/// What came of calls.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegRpcDone {
    /// Of which; 0 where nothing came.
    pub call: u64,
    /// The number of answers for `thalweg_rpc_answer_at`: one for each call that has an answer, 0 after a
    /// fault.
    pub answers: usize,
    /// Of a fault: what, where, and what to do. Never null, and lent until the next function is called with
    /// this client.
    pub detail: *const c_char,
    /// Why there are no answers; 0 where there are.
    pub fault: u16,
}

/// An answer. What it points to is lent until the next function is called with this client.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegRpcAnswer {
    /// The result, or what an error holds beside its words: JSON, `length` bytes, without a NUL.
    pub json: *const u8,
    /// Bytes of it; 0 for an error that holds nothing else.
    pub length: usize,
    /// Of an error: its words. Never null.
    pub message: *const c_char,
    /// Of an error: its number in JSON-RPC. Else 0.
    pub code: i64,
    /// Of an error of a server of ours: its fault. Else 0.
    pub fault: u16,
    /// The server answered with an error.
    pub is_error: bool,
}

/// What a client of JSON-RPC has done so far.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ThalwegRpcStatistics {
    /// Connections opened.
    pub opened: u64,
    /// Connections closed, by either side.
    pub closed: u64,
    /// Requests that went over a connection that had served another.
    pub reused: u64,
    /// Requests that waited for a connection to be free.
    pub waits: u64,
    /// Requests that were sent again.
    pub retried: u64,
    /// Connections that nothing goes over now.
    pub idle: usize,
    /// Connections in all, now.
    pub connections: usize,
    /// Requests that have not ended.
    pub in_flight: usize,
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl From<&Options> for ThalwegRpcOptions {
    fn from(of: &Options) -> Self {
        Self {
            deadline_ms: of.deadline.map_or(0, milliseconds),
            idle_for_ms: milliseconds(of.idle_for),
            answer_bytes_max: of.answer_bytes_max as u64,
            connections_max: count(of.connections_max),
            idle_max: count(of.idle_max),
            in_flight_max: count(of.in_flight_max),
            targets_max: count(of.targets_max),
            token: std::ptr::null(),
            spin: of.spin,
        }
    }
}

/// What they say.
///
/// # Safety
/// Their token is null or a string that a NUL ends.
unsafe fn taken(of: &ThalwegRpcOptions) -> Result<Options, Error> {
    let token = match of.token.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => Some(Bearer::new(unsafe { borrowed::string(of.token, "the token")? })?),
    };
    Ok(Options {
        deadline: duration(of.deadline_ms),
        idle_for: Duration::from_millis(of.idle_for_ms),
        answer_bytes_max: usize::try_from(of.answer_bytes_max).unwrap_or(usize::MAX),
        connections_max: of.connections_max as usize,
        idle_max: of.idle_max as usize,
        in_flight_max: of.in_flight_max as usize,
        targets_max: of.targets_max as usize,
        spin: of.spin,
        token,
    })
}

/// A minute for an answer, eight connections to an address, of which two are kept.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_rpc_defaults() -> ThalwegRpcOptions {
    ThalwegRpcOptions::from(&Options::default())
}

/// A client of the service at a URL, `http://host:port/rpc/name`. Connects with the first call. Null options
/// are the defaults. Faults: THALWEG_BAD_ARGUMENT for a URL that is none or an option that cannot be right, a
/// token among them; THALWEG_NO_SERVER for a host that nobody knows.
///
/// # Safety
/// `url` is a string that a NUL ends, and so is the token of the options if there is one; `options` is null
/// or points to options; `client` to a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_open(
    url: *const c_char,
    options: *const ThalwegRpcOptions,
    client: *mut *mut ThalwegRpc,
) -> u16 {
    code(|| {
        let place = borrowed::place(client, "the place for the client")?;
        // SAFETY: the caller's promise.
        let (url, options) = unsafe { (borrowed::string(url, "the URL")?, borrowed::option(options)) };
        // SAFETY: the caller's promise.
        let options = options.map(|options| unsafe { taken(options) }).transpose()?;
        let client = Client::new(url, options.unwrap_or_default())?;
        let opened = ThalwegRpc { client, answers: Answers::default(), detail: CString::default() };
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

/// Closes every connection and frees the client; null is fine. Calls under way are not heard of any more.
///
/// # Safety
/// `client` is null, or came from `thalweg_rpc_open` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_close(client: *mut ThalwegRpc) {
    if !client.is_null() {
        // SAFETY: the caller's promise, and not null.
        value((), || drop(unsafe { Box::from_raw(client) }));
    }
}

/// Another service, or the same at another address, over the same connections: its number, for
/// `struct thalweg_rpc_ask`. At most `targets_max` are kept. One more replaces the least recently called one
/// that has neither a connection nor a call that waits for one: its number is THALWEG_BAD_ARGUMENT from then
/// on. Its URL gets a new number when it is named again. Faults: as of `thalweg_rpc_open`.
///
/// # Safety
/// `client` is null or a client; `url` is a string that a NUL ends; `target` points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_target(
    client: *mut ThalwegRpc,
    url: *const c_char,
    target: *mut u32,
) -> u16 {
    code(|| {
        let place = borrowed::place(target, "the place for the target")?;
        // SAFETY: the caller's promise.
        let (of, url) =
            unsafe { (borrowed::handle(client, "the client")?, borrowed::string(url, "the URL")?) };
        let number = of.client.target(url)?.number();
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(number) };
        Ok(())
    })
}

/// The descriptor for a foreign loop: readable whenever `thalweg_rpc_turn` without waiting has something to
/// do. One such turn comes first, and one after each round of calls. It belongs to the client.
///
/// # Safety
/// `client` is null or a client; `descriptor` points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_descriptor(client: *mut ThalwegRpc, descriptor: *mut c_int) -> u16 {
    code(|| {
        let place = borrowed::place(descriptor, "the place for the descriptor")?;
        // SAFETY: the caller's promise.
        let number = unsafe { borrowed::handle(client, "the client") }?.client.descriptor()?.as_raw_fd();
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(number) };
        Ok(())
    })
}

/// Begins calls, which go together, and says by which number; no two of a client have the same. They leave
/// with the next turn or wait. Without an `ask` one call goes alone and several as a batch. Faults:
/// THALWEG_OVERLOADED, THALWEG_BAD_ARGUMENT; then nothing was begun.
///
/// # Safety
/// `client` is null or a client; `calls` points to `calls_count` calls whose pointers point to what they say;
/// `ask` is null or points to one; `number` to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_begin(
    client: *mut ThalwegRpc,
    calls: *const ThalwegRpcCall,
    calls_count: usize,
    ask: *const ThalwegRpcAsk,
    number: *mut u64,
) -> u16 {
    code(|| {
        let place = borrowed::place(number, "the place for the number")?;
        // SAFETY: the caller's promise.
        let of = unsafe { borrowed::handle(client, "the client")? };
        // SAFETY: the caller's promise.
        let calls = unsafe { calls_of(calls, calls_count) }?;
        // SAFETY: the caller's promise.
        let ask = unsafe { borrowed::option(ask) }.copied();
        let is_batch = ask.map_or(calls.len() > 1, |ask| ask.batch);
        let ask = ask.unwrap_or_default();
        let begun = of.client.begin(&Ask {
            calls: &calls,
            call: None,
            is_batch,
            notifies: ask.notifies,
            is_idempotent: ask.idempotent,
            deadline: duration(ask.deadline_ms),
            target: Some(Target::from_number(ask.target)),
        })?;
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(begun.number()) };
        Ok(())
    })
}

/// # Safety
/// `list` points to `length` calls whose pointers point to what they say.
unsafe fn calls_of<'a>(list: *const ThalwegRpcCall, length: usize) -> Result<Vec<(&'a str, &'a str)>, Error> {
    if list.is_null() || length == 0 {
        return Err(Error::new(Fault::BadArgument, "there are no calls"));
    }
    // SAFETY: the caller's promise.
    let list = unsafe { borrowed::list(list, length, "the calls") }?;
    let read = |call: &ThalwegRpcCall| {
        // SAFETY: the caller's promise.
        let method = unsafe { borrowed::string(call.method, "a method") }?;
        if call.params.is_null() {
            return Ok((method, ""));
        }
        // SAFETY: the caller's promise.
        Ok((method, unsafe { borrowed::string(call.params, "parameters") }?))
    };
    list.iter().map(read).collect()
}

/// Cancels these calls; no event reports them. Their connection is closed, by which a server may notice.
/// Unknown calls are ignored.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_cancel(client: *mut ThalwegRpc, call: u64) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        unsafe { borrowed::handle(client, "the client") }?.client.cancel(CallId::from_number(call));
        Ok(())
    })
}

/// Writes what was begun, waits for input up to `wait_ms` milliseconds (0: does not wait; negative: without a
/// limit) and reads it: then `thalweg_rpc_next` has what came. `happened`, which may be null, is the number
/// of things that came; 0 at the end of the wait and after a signal. Faults: THALWEG_SYSTEM.
///
/// # Safety
/// `client` is null or a client; `happened` is null or points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_turn(
    client: *mut ThalwegRpc,
    wait_ms: i64,
    happened: *mut usize,
) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let came = unsafe { borrowed::handle(client, "the client") }?.client.turn(wait(wait_ms))?;
        if !happened.is_null() {
            // SAFETY: the caller's promise; what stands there is not read.
            unsafe { happened.write(came) };
        }
        Ok(())
    })
}

/// What came next, of whatever calls, in order of arrival; of call 0 until another turn.
///
/// # Safety
/// `client` is null or a client; `done` points to a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_next(client: *mut ThalwegRpc, done: *mut ThalwegRpcDone) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { hear(client, done, |client| Ok(client.next())) })
}

/// Waits for what comes of calls that were begun. What comes of others meanwhile is kept for them. Why they
/// have no answers is said there too; THALWEG_BAD_ARGUMENT says that there are no such calls.
///
/// # Safety
/// As of `thalweg_rpc_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_wait(
    client: *mut ThalwegRpc,
    call: u64,
    done: *mut ThalwegRpcDone,
) -> u16 {
    let call = CallId::from_number(call);
    let listen = |client: &mut Client| {
        if !client.knows(call) {
            return Err(Error::new(Fault::BadArgument, "no such calls are under way"));
        }
        Ok(Some(Completion { call, outcome: client.wait(call) }))
    };
    // SAFETY: the caller's promise.
    code(|| unsafe { hear(client, done, listen) })
}

/// # Safety
/// `client` is null or a client that nobody else uses meanwhile; `done` is null or a place for one.
unsafe fn hear(
    client: *mut ThalwegRpc,
    done: *mut ThalwegRpcDone,
    listen: impl FnOnce(&mut Client) -> Result<Option<Completion>, Error>,
) -> Result<(), Error> {
    let place = borrowed::place(done, "the place for what came")?;
    // SAFETY: the caller's promise.
    let of = unsafe { borrowed::handle(client, "the client") }?;
    let came = listen(&mut of.client)?;
    (of.answers, of.detail) = (Answers::default(), CString::default());
    let (mut call, mut fault) = (0, 0);
    if let Some(Completion { call: of_which, outcome }) = came {
        call = of_which.number();
        match outcome {
            Ok(answers) => of.answers = answers,
            // Also kept for `thalweg_error_detail`: a caller that raises the fault finds its words there, and
            // not those of an earlier one.
            Err(error) => (of.detail, fault) = (keep(&error), error.fault as u16),
        }
    }
    let told = ThalwegRpcDone { call, answers: of.answers.len(), detail: of.detail.as_ptr(), fault };
    // SAFETY: the caller's promise; what stands there is not read.
    unsafe { place.write(told) };
    Ok(())
}

/// One of the answers to the calls that were taken last, by the place of its call among them.
/// THALWEG_BAD_ARGUMENT: there is none at that place.
///
/// # Safety
/// `client` is null or a client; `answer` points to a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_answer_at(
    client: *mut ThalwegRpc,
    place: usize,
    answer: *mut ThalwegRpcAnswer,
) -> u16 {
    code(|| {
        let into = borrowed::place(answer, "the place for the answer")?;
        // SAFETY: the caller's promise.
        let ThalwegRpc { answers, detail, .. } = unsafe { borrowed::handle(client, "the client") }?;
        let found = answers.at(place).ok_or_else(|| {
            Error::new(
                Fault::BadArgument,
                format!("there are {} answers, and none at {place}", answers.len()),
            )
        })?;
        *detail = found.err().map_or_else(CString::default, |said| text(&said.message));
        let json = found.unwrap_or_else(|said| &said.data);
        let told = ThalwegRpcAnswer {
            json: json.as_ptr(),
            length: json.len(),
            message: detail.as_ptr(),
            code: found.err().map_or(0, |said| said.code),
            fault: found.err().and_then(|said| said.fault()).map_or(0, |fault| fault as u16),
            is_error: found.is_err(),
        };
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { into.write(told) };
        Ok(())
    })
}

/// Asks whether the client's own service was made from the schema with this hash of 32 bytes, as generated
/// code has it, and waits for what the server says. Faults: THALWEG_SCHEMA_MISMATCH where it was not; why
/// there is no answer, or which fault it is.
///
/// # Safety
/// `client` is null or a client; `hash` is null or points to 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_expect_schema(client: *mut ThalwegRpc, hash: *const u8) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let hash = unsafe { borrowed::option(hash.cast::<[u8; 32]>()) };
        let hash = hash.ok_or_else(|| Error::new(Fault::BadArgument, "the hash is null"))?;
        // SAFETY: the caller's promise.
        Ok(unsafe { borrowed::handle(client, "the client") }?.client.expect_schema(hash)?)
    })
}

/// What the client has done so far; all zeros for null.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rpc_statistics_of(client: *const ThalwegRpc) -> ThalwegRpcStatistics {
    value(ThalwegRpcStatistics::default(), || {
        // SAFETY: the caller's promise.
        let Some(ThalwegRpc { client, .. }) = (unsafe { borrowed::option(client) }) else {
            return ThalwegRpcStatistics::default();
        };
        let Statistics { opened, closed, reused, waits, retried, idle, connections } = client.statistics();
        let in_flight = client.in_flight();
        ThalwegRpcStatistics { opened, closed, reused, waits, retried, idle, connections, in_flight }
    })
}

#[cfg(test)]
mod tests;
