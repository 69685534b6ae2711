//! What a client may be told when it connects.

use super::session::CALLS_MAX;
use crate::error::Error;
use std::time::Duration;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{LENGTH_DEFAULT, LENGTH_MAX, SchemaHash};

/// How a client connects and what bounds it keeps.
///
/// ```
/// use std::time::Duration;
/// use thalweg_service::ClientOptions;
/// let options = ClientOptions { deadline: Some(Duration::from_secs(2)), ..ClientOptions::default() };
/// assert_eq!(options.in_flight_max, 1_024);
/// ```
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The schema the caller was generated from; zeros fit any. The server refuses another.
    pub schema: SchemaHash,
    /// How long to go on trying to connect: until somebody listens, has room, and says welcome. Zero tries
    /// once, and waits a second for a welcome.
    pub connect_within: Duration,
    /// The deadline of a call that has none of its own.
    pub deadline: Option<Duration>,
    /// Calls in flight at most; one more is [`Fault::Overloaded`].
    pub in_flight_max: u32,
    /// Bytes at most that wait to be sent before a further call is [`Fault::Overloaded`]. One frame always
    /// fits.
    pub unsent_bytes_max: usize,
    /// The longest request to send and the longest answer to take.
    pub frame_bytes_max: u32,
    /// Ask for shared memory on a `.sock` too, and do without where there is none. A `.shm` is never anything
    /// else.
    pub shared: bool,
    /// Bytes of each ring to ask for; 0 leaves that to the server.
    pub ring_bytes: u32,
    /// May look for some microseconds for an answer in shared memory before sleeping, where that makes sense.
    pub spin: bool,
    /// What to do when the connection ends.
    pub reconnect: Reconnect,
    /// Speak plain frames: no hello, answers in order, neither cancellation nor credit.
    pub plain: bool,
    /// Connect only to a server that this process's user or root runs. At a path that any user may create,
    /// another user's server could read and answer the requests.
    pub same_user_only: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            schema: [0; 32],
            connect_within: Duration::from_secs(5),
            deadline: None,
            in_flight_max: 1_024,
            unsent_bytes_max: 64 << 20,
            frame_bytes_max: LENGTH_DEFAULT,
            shared: false,
            ring_bytes: 0,
            spin: true,
            reconnect: Reconnect::Never,
            plain: false,
            same_user_only: true,
        }
    }
}

impl ClientOptions {
    /// Refuses what can never be right.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        let refuse = |what: String| Err(Error::new(Fault::BadArgument, what));
        if self.in_flight_max == 0 || self.in_flight_max > CALLS_MAX {
            return refuse(format!("in_flight_max is {}: give 1 to {CALLS_MAX}", self.in_flight_max));
        }
        if self.frame_bytes_max == 0 || self.frame_bytes_max > LENGTH_MAX {
            return refuse(format!("frame_bytes_max is {}: give 1 to {LENGTH_MAX}", self.frame_bytes_max));
        }
        if self.plain && self.shared {
            return refuse("plain frames do not travel through shared memory: give one of the two".into());
        }
        Ok(self)
    }
}

/// What a client does when its connection ends. Either way each call that was in flight fails, and its error
/// says whether the server may have had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reconnect {
    /// Nothing: further calls fail.
    #[default]
    Never,
    /// The next call connects anew, within [`ClientOptions::connect_within`], pausing longer after each
    /// attempt that failed.
    Backoff {
        /// The first pause.
        first: Duration,
        /// No pause is longer.
        most: Duration,
    },
}
