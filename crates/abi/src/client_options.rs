//! A client's options as C has them.

use crate::borrowed;
use std::time::Duration;
use thalweg_service::{CallOptions, ClientOptions, Reconnect};

/// How a client connects and what bounds it keeps. Begin with `thalweg_client_defaults()`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegClientOptions {
    /// SHA-256 of the schema the caller was generated from; zeros fit any. The server refuses another.
    pub schema: [u8; 32],
    /// How long to go on trying to connect: until somebody listens, has room, and says welcome. 0 tries once.
    pub connect_within_ms: u64,
    /// The deadline of a call that has none of its own; 0 for none.
    pub deadline_ms: u64,
    /// The first pause before connecting anew once the connection has ended, and the longest; 0 never
    /// connects anew.
    pub reconnect_first_ms: u64,
    /// See `reconnect_first_ms`.
    pub reconnect_most_ms: u64,
    /// Bytes at most that wait to be sent before a further call is THALWEG_OVERLOADED. One frame always fits.
    pub unsent_bytes_max: u64,
    /// Calls in flight at most; one more is THALWEG_OVERLOADED.
    pub in_flight_max: u32,
    /// The longest request to send and the longest answer to take.
    pub frame_bytes_max: u32,
    /// Bytes of each ring of shared memory to ask for; 0 leaves that to the server.
    pub ring_bytes: u32,
    /// Ask for shared memory on a `.sock` too, and do without where there is none. A `.shm` is never anything
    /// else.
    pub shared: bool,
    /// May look for some microseconds for an answer in shared memory before sleeping, where that makes sense.
    pub spin: bool,
    /// Speak plain frames: no hello, answers in order, neither cancellation nor credit.
    pub plain: bool,
    /// Only a server that this process's user runs, or root, is spoken to.
    pub same_user_only: bool,
}

/// What one call may be given. Zeros give it what the client's options say.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ThalwegCallOptions {
    /// The call's deadline; 0 for the one in the client's options.
    pub deadline_ms: u64,
    /// Of a stream: how many items may come before `thalweg_client_grant` lets more come; 0 for what the
    /// server says.
    pub credit: u32,
    /// One frame answers: an item of a stream in its place fails the call as THALWEG_BAD_ANSWER, and cancels
    /// it. Without this either may come, and the caller has to tell them apart.
    pub unary: bool,
}

/// What suits a client of a local service.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_client_defaults() -> ThalwegClientOptions {
    ThalwegClientOptions::from(&ClientOptions::default())
}

/// Milliseconds of which 0 is none.
pub(crate) fn duration(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

impl From<&ClientOptions> for ThalwegClientOptions {
    fn from(of: &ClientOptions) -> Self {
        let (first, most) = match of.reconnect {
            Reconnect::Never => (Duration::ZERO, Duration::ZERO),
            Reconnect::Backoff { first, most } => (first, most),
        };
        Self {
            schema: of.schema,
            connect_within_ms: milliseconds(of.connect_within),
            deadline_ms: of.deadline.map_or(0, milliseconds),
            reconnect_first_ms: milliseconds(first),
            reconnect_most_ms: milliseconds(most),
            unsent_bytes_max: of.unsent_bytes_max as u64,
            in_flight_max: of.in_flight_max,
            frame_bytes_max: of.frame_bytes_max,
            ring_bytes: of.ring_bytes,
            shared: of.shared,
            spin: of.spin,
            plain: of.plain,
            same_user_only: of.same_user_only,
        }
    }
}

impl From<&ThalwegClientOptions> for ClientOptions {
    fn from(of: &ThalwegClientOptions) -> Self {
        let reconnect = duration(of.reconnect_first_ms).map_or(Reconnect::Never, |first| {
            Reconnect::Backoff { first, most: Duration::from_millis(of.reconnect_most_ms).max(first) }
        });
        Self {
            schema: of.schema,
            connect_within: Duration::from_millis(of.connect_within_ms),
            deadline: duration(of.deadline_ms),
            in_flight_max: of.in_flight_max,
            unsent_bytes_max: usize::try_from(of.unsent_bytes_max).unwrap_or(usize::MAX),
            frame_bytes_max: of.frame_bytes_max,
            shared: of.shared,
            ring_bytes: of.ring_bytes,
            spin: of.spin,
            reconnect,
            plain: of.plain,
            same_user_only: of.same_user_only,
        }
    }
}

/// What a caller gave, or the defaults.
///
/// # Safety
/// `options` is null or points to options.
pub(crate) unsafe fn options_of(options: *const ThalwegClientOptions) -> ClientOptions {
    // SAFETY: the caller's promise.
    unsafe { borrowed::option(options) }.map_or_else(ClientOptions::default, ClientOptions::from)
}

impl From<&ThalwegCallOptions> for CallOptions {
    fn from(of: &ThalwegCallOptions) -> Self {
        Self {
            deadline: duration(of.deadline_ms),
            credit: (of.credit > 0).then_some(of.credit),
            unary: of.unary,
        }
    }
}
