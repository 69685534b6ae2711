//! What a server allows.

use std::borrow::Cow;
use std::time::Duration;
use thalweg_transport::RING_BYTES_DEFAULT;
use thalweg_wire::frame::{LENGTH_DEFAULT, SchemaHash};

/// What a server allows. Everything has a bound; the defaults suit a service whose clients are local
/// programs.
///
/// ```
/// use thalweg_service::ServerOptions;
/// let options = ServerOptions { error_tag: "EchoErrorResponse".into(), ..ServerOptions::default() };
/// assert_eq!(options.in_flight_max, 1_024);
/// ```
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The schema it was made from; zeros fit any.
    pub schema: SchemaHash,
    /// The tag of the service's error, for answers that the server makes itself.
    pub error_tag: Cow<'static, str>,
    /// The longest request. A longer one is refused and skipped.
    pub frame_bytes_max: u32,
    /// The largest ring a client may ask for, in bytes, each way.
    pub ring_bytes_max: u32,
    /// Clients at once. More wait to be accepted. One for which the process has no descriptor left is told
    /// that it is [`Overloaded`](thalweg_wire::fault::Fault::Overloaded), which is safe to repeat.
    pub clients_max: u32,
    /// How long a client that connected may take to say what it speaks: a hello, or the first length of plain
    /// frames. One that has said only a part of it by then is disconnected. One that has said nothing may be
    /// a plain client without a request yet: it stays until its place is needed, by a client that waits
    /// because of `clients_max`, or for which there is no descriptor.
    pub hello_within: Duration,
    /// Calls of one connection that have begun and not ended; on a plain one also those whose answers wait
    /// for their turn. A connection at this bound is not read from.
    pub in_flight_max: u32,
    /// Bytes of the requests of those calls, which handlers that answer later keep. A connection at this
    /// bound is not read from; one request always fits, however long.
    pub in_flight_bytes_max: usize,
    /// Bytes of answers that one connection has not taken, or that wait there for their turn. A connection
    /// over this bound is not read from, and its streams are told to wait.
    pub unsent_bytes_max: usize,
    /// Items that a new stream may send before its client asks for more.
    pub stream_credit: u32,
    /// Look again for a moment before sleeping while work comes fast.
    pub spin: bool,
    /// How long clients may take, once the server was stopped, to take their last answers.
    pub drain_grace: Duration,
    /// Only this process's user may connect.
    pub same_user_only: bool,
}

impl ServerOptions {
    /// The defaults for the service of a schema: `schema` is its generated hash, `error_tag` the tag of its
    /// error.
    ///
    /// ```
    /// use thalweg_service::ServerOptions;
    /// # const SCHEMA_HASH: [u8; 32] = [7; 32];
    /// let options = ServerOptions::of(SCHEMA_HASH, "EchoErrorResponse");
    /// assert_eq!((options.schema, &*options.error_tag), (SCHEMA_HASH, "EchoErrorResponse"));
    /// ```
    pub fn of(schema: SchemaHash, error_tag: impl Into<Cow<'static, str>>) -> Self {
        Self { schema, error_tag: error_tag.into(), ..Self::default() }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            schema: [0; 32],
            error_tag: Cow::Borrowed("ErrorResponse"),
            frame_bytes_max: LENGTH_DEFAULT,
            ring_bytes_max: RING_BYTES_DEFAULT,
            clients_max: 65_000,
            hello_within: Duration::from_secs(10),
            in_flight_max: 1_024,
            in_flight_bytes_max: 64 << 20,
            unsent_bytes_max: 4 << 20,
            stream_credit: 64,
            spin: true,
            drain_grace: Duration::from_secs(5),
            same_user_only: true,
        }
    }
}
