//! A client: connect, call, and take what comes, by turns or by waiting.
//!
//! A client may be used from any thread, but from one at a time.

use crate::borrowed;
use crate::client_options::{ThalwegCallOptions, ThalwegClientOptions, options_of};
use crate::outcome::{code, keep, value};
use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_service::{CallId, CallOptions, Client, ClientOptions, Error, Event, EventKind};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;

/// One connection to a service, with any number of calls in flight, and no thread. From
/// `thalweg_client_open`, to be handed to `thalweg_client_close`.
pub struct ThalwegClient {
    client: Client,
    /// Why the call failed whose event was taken last.
    detail: CString,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ThalwegEventKind {
    /// Nothing came.
    Nothing = 0,
    /// One item of a stream; more will come.
    Item = 1,
    /// The answer, or the end of a stream. Nothing more will come of the call.
    End = 2,
    /// There is no answer: `fault` and `detail` say why. Nothing more will come of the call.
    Failed = 3,
}

/// What came of a call. What it points to is lent until the next function is called with this client, other
/// than `thalweg_client_grant` and `thalweg_client_state_of`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegEvent {
    /// Of which call.
    pub call: u64,
    /// The frame that brought it, `length` bytes.
    pub frame: *const u8,
    /// Bytes of the frame; 0 where none came.
    pub length: usize,
    /// Of a failure: what, where, and what to do. Never null.
    pub detail: *const c_char,
    /// Of a failure: its fault. Else 0.
    pub fault: u16,
    /// What it is.
    pub kind: ThalwegEventKind,
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ThalwegClientState {
    /// Calls that have not ended.
    pub in_flight: usize,
    /// Items that each new stream may send before it is granted more; 0 where streams know no credit.
    pub credit: u32,
    /// Frames go through shared memory.
    pub shared: bool,
    /// There is a connection now.
    pub connected: bool,
}

/// How long a turn may wait: milliseconds; 0 does not wait, a negative number waits without a limit.
pub(crate) fn wait(wait_ms: i64) -> Wait {
    match u64::try_from(wait_ms) {
        Ok(0) => Wait::Poll,
        Ok(ms) => Instant::now().checked_add(Duration::from_millis(ms)).map_or(Wait::Block, Wait::Until),
        Err(_) => Wait::Block,
    }
}

pub(crate) fn endpoint(text: &str) -> Result<Endpoint, Error> {
    text.parse().map_err(|problem| Error::new(Fault::BadArgument, format!("{problem}")))
}

/// Connects to an endpoint (`*.sock`, `*.shm`, `-`), trying again within `connect_within_ms` while that may
/// help. Null options are the defaults. Faults: THALWEG_NO_SERVER, THALWEG_CONNECT_TIMEOUT,
/// THALWEG_PERMISSION_DENIED, THALWEG_NO_SHARED_MEMORY, THALWEG_SCHEMA_MISMATCH, THALWEG_VERSION_MISMATCH,
/// THALWEG_BAD_ARGUMENT.
///
/// # Safety
/// `endpoint` is a string that a NUL ends; `options` is null or points to options; `client` to a place for a
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_open(
    endpoint: *const c_char,
    options: *const ThalwegClientOptions,
    client: *mut *mut ThalwegClient,
) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { open(endpoint, options, client, Client::connect) })
}

/// As `thalweg_client_open`, without waiting: calls may be made at once and leave when the connection is
/// there, which turns bring about. They fail if it does not come.
///
/// # Safety
/// As of `thalweg_client_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_begin(
    endpoint: *const c_char,
    options: *const ThalwegClientOptions,
    client: *mut *mut ThalwegClient,
) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { open(endpoint, options, client, Client::begin) })
}

/// # Safety
/// As of `thalweg_client_open`.
unsafe fn open(
    path: *const c_char,
    options: *const ThalwegClientOptions,
    client: *mut *mut ThalwegClient,
    how: fn(&Endpoint, ClientOptions) -> Result<Client, Error>,
) -> Result<(), Error> {
    let place = borrowed::place(client, "the place for the client")?;
    // SAFETY: the caller's promise.
    let (path, options) = unsafe { (borrowed::string(path, "the endpoint")?, options_of(options)) };
    let opened = lend(how(&endpoint(path)?, options)?);
    // SAFETY: the caller's promise; what stands there is not read.
    unsafe { place.write(opened) };
    Ok(())
}

/// A client that becomes the caller's.
pub(crate) fn lend(client: Client) -> *mut ThalwegClient {
    Box::into_raw(Box::new(ThalwegClient { client, detail: CString::default() }))
}

/// Ends the connection and frees the client; null is fine. Calls in flight are not heard of any more.
///
/// # Safety
/// `client` is null, or came from `thalweg_client_open` or `_begin` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_close(client: *mut ThalwegClient) {
    if !client.is_null() {
        // SAFETY: the caller's promise, and not null.
        value((), || drop(unsafe { Box::from_raw(client) }));
    }
}

/// The descriptor for a foreign loop: readable whenever `thalweg_client_turn` without waiting has something
/// to do. One such turn comes first, and one after each round of calls. It belongs to the client, and stays
/// the same through reconnections.
///
/// # Safety
/// `client` is null or a client; `descriptor` points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_descriptor(
    client: *mut ThalwegClient,
    descriptor: *mut c_int,
) -> u16 {
    code(|| {
        let place = borrowed::place(descriptor, "the place for the descriptor")?;
        // SAFETY: the caller's promise.
        let client = unsafe { borrowed::handle(client, "the client")? };
        let number = client.client.descriptor()?.as_raw_fd();
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(number) };
        Ok(())
    })
}

/// Queues a request, `length` bytes that are copied, and says by which number the call goes; no two calls of
/// a client have the same. It leaves with the next flush, turn or wait. Null options give the call what the
/// client's say. Faults: THALWEG_FRAME_TOO_LARGE, THALWEG_OVERLOADED, THALWEG_DRAINING, or why there is no
/// connection; then nothing was queued and the client may be used as before.
///
/// # Safety
/// `client` is null or a client; `request` points to `length` bytes; `options` is null or points to options;
/// `call` to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_call(
    client: *mut ThalwegClient,
    request: *const u8,
    length: usize,
    options: *const ThalwegCallOptions,
    call: *mut u64,
) -> u16 {
    code(|| {
        let place = borrowed::place(call, "the place for the call")?;
        // SAFETY: the caller's promise.
        let (client, request, options) = unsafe {
            (
                borrowed::handle(client, "the client")?,
                borrowed::bytes(request, length)?,
                borrowed::option(options).map_or_else(CallOptions::default, CallOptions::from),
            )
        };
        let number = client.client.call(request, options)?.number();
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(number) };
        Ok(())
    })
}

/// Cancels the call. It still ends: with its answer if that was faster, else with THALWEG_CANCELLED. What
/// such an answer names may be gone: a server may take it back. An unknown call is ignored.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_cancel(client: *mut ThalwegClient, call: u64) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { with(client, |client| client.cancel(CallId::from_number(call))) })
}

/// Cancels the call and never says anything of it again.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_forget(client: *mut ThalwegClient, call: u64) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { with(client, |client| client.forget(CallId::from_number(call))) })
}

/// Lets a stream send `items` more items.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_grant(client: *mut ThalwegClient, call: u64, items: u32) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { with(client, |client| client.grant(CallId::from_number(call), items)) })
}

/// Writes what is queued, as far as it can be now, and has the descriptor tell again of what came and was not
/// taken. A connection that ended shows in what comes of the calls.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_flush(client: *mut ThalwegClient) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { borrowed::handle(client, "the client") }?.client.flush())
}

/// # Safety
/// `client` is null or a client that nobody else uses meanwhile.
unsafe fn with(client: *mut ThalwegClient, act: impl FnOnce(&mut Client)) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    act(&mut unsafe { borrowed::handle(client, "the client") }?.client);
    Ok(())
}

/// Writes what is queued, waits for input up to `wait_ms` milliseconds (0: does not wait; negative: without a
/// limit) and reads it: then `thalweg_client_next` has what came. It does not wait while an event of any call
/// was not taken. `happened`, which may be null, is the number of things that happened; 0 at the end of the
/// wait and after a signal. Faults: nothing is in flight and there is no connection, so that nothing could
/// come; THALWEG_SYSTEM.
///
/// # Safety
/// `client` is null or a client; `happened` is null or points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_turn(
    client: *mut ThalwegClient,
    wait_ms: i64,
    happened: *mut usize,
) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { turn(client, happened, |client| client.turn(wait(wait_ms))) })
}

/// As `thalweg_client_turn`, for a caller that takes what comes of one call by `thalweg_client_take`: what
/// came of others, and was not taken, does not keep it from waiting. THALWEG_OVERRUN as of
/// `thalweg_client_wait`.
///
/// # Safety
/// As of `thalweg_client_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_turn_for(
    client: *mut ThalwegClient,
    call: u64,
    wait_ms: i64,
    happened: *mut usize,
) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe {
        turn(client, happened, |client| client.turn_for(CallId::from_number(call), wait(wait_ms)))
    })
}

/// # Safety
/// `client` is null or a client that nobody else uses meanwhile; `happened` is null or a place for a number.
unsafe fn turn(
    client: *mut ThalwegClient,
    happened: *mut usize,
    take: impl FnOnce(&mut Client) -> Result<usize, Error>,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let client = unsafe { borrowed::handle(client, "the client") }?;
    let count = take(&mut client.client)?;
    if !happened.is_null() {
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { happened.write(count) };
    }
    Ok(())
}

/// What came next, of whatever call, in order of arrival; of the kind THALWEG_EVENT_KIND_NOTHING until
/// another turn. A foreign loop asks until then: the descriptor says nothing of what was left.
///
/// # Safety
/// `client` is null or a client; `event` points to a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_next(client: *mut ThalwegClient, event: *mut ThalwegEvent) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { hear(client, event, |client| Ok(client.next())) })
}

/// What came next of one call; of the kind THALWEG_EVENT_KIND_NOTHING until another turn, or when there is no
/// such call.
///
/// # Safety
/// As of `thalweg_client_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_take(
    client: *mut ThalwegClient,
    call: u64,
    event: *mut ThalwegEvent,
) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { hear(client, event, |client| Ok(client.take(CallId::from_number(call)))) })
}

/// Waits for what comes next of one call: its answer, or of a stream an item or the end. What comes of other
/// calls meanwhile is kept for them. Why the call has no answer is an event too; THALWEG_BAD_ARGUMENT says
/// that there is no such call, THALWEG_OVERRUN that 4 MiB of items of plain streams before it were kept
/// and not taken: then it is still in flight.
///
/// # Safety
/// As of `thalweg_client_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_wait(
    client: *mut ThalwegClient,
    call: u64,
    event: *mut ThalwegEvent,
) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { hear(client, event, |client| client.wait_event(CallId::from_number(call)).map(Some)) })
}

/// # Safety
/// `client` is null or a client that nobody else uses meanwhile; `event` is null or a place for one.
unsafe fn hear(
    client: *mut ThalwegClient,
    event: *mut ThalwegEvent,
    listen: impl FnOnce(&mut Client) -> Result<Option<Event<'_>>, Error>,
) -> Result<(), Error> {
    let place = borrowed::place(event, "the place for the event")?;
    // SAFETY: the caller's promise.
    let ThalwegClient { client, detail } = unsafe { borrowed::handle(client, "the client") }?;
    let told = match listen(client)? {
        Some(event) => told(event, detail),
        None => ThalwegEvent {
            call: 0,
            frame: std::ptr::null(),
            length: 0,
            detail: detail.as_ptr(),
            fault: 0,
            kind: ThalwegEventKind::Nothing,
        },
    };
    // SAFETY: the caller's promise; what stands there is not read.
    unsafe { place.write(told) };
    Ok(())
}

fn told(event: Event<'_>, detail: &mut CString) -> ThalwegEvent {
    let (kind, fault) = match event.kind {
        EventKind::Item => (ThalwegEventKind::Item, 0),
        EventKind::End => (ThalwegEventKind::End, 0),
        EventKind::Failed(error) => {
            // Also kept for `thalweg_error_detail`: a caller that raises the fault finds its words there, and
            // not those of an earlier one.
            *detail = keep(&error);
            (ThalwegEventKind::Failed, error.fault as u16)
        }
    };
    ThalwegEvent {
        call: event.call.number(),
        frame: event.frame.as_ptr(),
        length: event.frame.len(),
        detail: detail.as_ptr(),
        fault,
        kind,
    }
}

/// What the client is doing; all zeros for null.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_client_state_of(client: *const ThalwegClient) -> ThalwegClientState {
    value(ThalwegClientState::default(), || {
        // SAFETY: the caller's promise.
        let Some(ThalwegClient { client, .. }) = (unsafe { borrowed::option(client) }) else {
            return ThalwegClientState::default();
        };
        ThalwegClientState {
            in_flight: client.in_flight(),
            credit: client.credit(),
            shared: client.is_shared(),
            connected: client.is_connected(),
        }
    })
}
