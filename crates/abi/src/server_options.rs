//! A server's options and statistics as C has them.

use crate::borrowed;
use crate::client_options::milliseconds;
use std::ffi::c_char;
use std::time::Duration;
use thalweg_service::{Error, ServerOptions, Statistics};

/// What a server allows. Begin with `thalweg_server_defaults()`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegServerOptions {
    /// SHA-256 of the schema it was made from; zeros fit any.
    pub schema: [u8; 32],
    /// The tag of the service's error, for answers that the server makes itself. Copied; null for the
    /// default.
    pub error_tag: *const c_char,
    /// Bytes of answers that one connection has not taken. A connection over this bound is not read from, and
    /// its streams are told to wait.
    pub unsent_bytes_max: u64,
    /// Bytes of the requests of one connection's calls that have begun and not ended. A connection at this
    /// bound is not read from; one request always fits.
    pub in_flight_bytes_max: u64,
    /// How long clients may take, once the server was stopped, to take their last answers.
    pub drain_grace_ms: u64,
    /// How long a client that connected may take to say what it speaks. One that has said only a part of it
    /// by then is disconnected; one that has said nothing gives its place to another that waits.
    pub hello_within_ms: u64,
    /// The longest request. A longer one is refused and skipped.
    pub frame_bytes_max: u32,
    /// The largest ring of shared memory a client may ask for, in bytes, each way.
    pub ring_bytes_max: u32,
    /// Clients at once. More wait to be accepted.
    pub clients_max: u32,
    /// Calls of one connection that have begun and not ended. A connection at this bound is not read from.
    pub in_flight_max: u32,
    /// Items that a new stream may send before its client asks for more.
    pub stream_credit: u32,
    /// Look again for a moment before sleeping while work comes fast.
    pub spin: bool,
    /// Only this process's user may connect.
    pub same_user_only: bool,
}

/// What a server has done so far, and what it is busy with.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ThalwegServerStatistics {
    /// Clients connected.
    pub clients: u64,
    /// Of them over shared memory.
    pub shared_clients: u64,
    /// Calls that were handed out and have not been answered.
    pub in_flight: u64,
    /// Bytes of their requests, as far as their clients are connected.
    pub in_flight_bytes: u64,
    /// Requests that came, but those that were too long to be taken.
    pub requests: u64,
    /// Of these, those whose calls ended: answered, refused, cancelled, overdue, or left by a client that is
    /// gone.
    pub answers: u64,
    /// System calls that read.
    pub reads: u64,
    /// System calls that wrote.
    pub writes: u64,
    /// System calls that woke a peer behind shared memory.
    pub bells: u64,
    /// System calls that waited, or asked what is ready.
    pub waits: u64,
}

/// What suits a service whose clients are local programs.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_server_defaults() -> ThalwegServerOptions {
    let of = ServerOptions::default();
    ThalwegServerOptions {
        schema: of.schema,
        error_tag: std::ptr::null(),
        unsent_bytes_max: of.unsent_bytes_max as u64,
        in_flight_bytes_max: of.in_flight_bytes_max as u64,
        drain_grace_ms: milliseconds(of.drain_grace),
        hello_within_ms: milliseconds(of.hello_within),
        frame_bytes_max: of.frame_bytes_max,
        ring_bytes_max: of.ring_bytes_max,
        clients_max: of.clients_max,
        in_flight_max: of.in_flight_max,
        stream_credit: of.stream_credit,
        spin: of.spin,
        same_user_only: of.same_user_only,
    }
}

impl ThalwegServerOptions {
    /// The same in Rust.
    ///
    /// # Safety
    /// `error_tag` is null or points to a string that a NUL ends.
    pub(crate) unsafe fn options(&self) -> Result<ServerOptions, Error> {
        let mut options = ServerOptions {
            schema: self.schema,
            frame_bytes_max: self.frame_bytes_max,
            ring_bytes_max: self.ring_bytes_max,
            clients_max: self.clients_max,
            in_flight_max: self.in_flight_max,
            unsent_bytes_max: usize::try_from(self.unsent_bytes_max).unwrap_or(usize::MAX),
            in_flight_bytes_max: usize::try_from(self.in_flight_bytes_max).unwrap_or(usize::MAX),
            stream_credit: self.stream_credit,
            spin: self.spin,
            drain_grace: Duration::from_millis(self.drain_grace_ms),
            hello_within: Duration::from_millis(self.hello_within_ms),
            same_user_only: self.same_user_only,
            ..ServerOptions::default()
        };
        if !self.error_tag.is_null() {
            // SAFETY: the caller's promise.
            options.error_tag = unsafe { borrowed::string(self.error_tag, "error_tag") }?.to_owned().into();
        }
        Ok(options)
    }
}

impl From<Statistics> for ThalwegServerStatistics {
    fn from(of: Statistics) -> Self {
        Self {
            clients: of.clients,
            shared_clients: of.shared_clients,
            in_flight: of.in_flight,
            in_flight_bytes: of.in_flight_bytes,
            requests: of.requests,
            answers: of.answers,
            reads: of.reads,
            writes: of.writes,
            bells: of.bells,
            waits: of.waits,
        }
    }
}
