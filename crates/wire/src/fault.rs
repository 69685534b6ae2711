//! The one table of what can go wrong with a call: code, name, what it means, HTTP status, JSON-RPC code, and
//! whether to try again may help. Every face's error type is generated from it, so a fault has one name and
//! one number everywhere.
//!
//! Codes are part of the wire (`frame::Header::fault`) and of the C interface: they are never reused, and new
//! ones are added at the end. 0 means that nothing went wrong.

use std::fmt;

/// Whether the same call may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It would go wrong again.
    Never,
    /// The call was not carried out: repeating it does nothing twice.
    Safe,
    /// The call may have been carried out: repeat it only if twice is as good as once.
    Unknown,
}

impl Retry {
    /// The word that faces and documents use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Safe => "safe",
            Self::Unknown => "unknown",
        }
    }
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $word:literal, $http:literal, $rpc:literal, $retry:ident, $says:literal;)+) => {
        /// What went wrong with a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name = $code,)+
        }

        impl Fault {
            /// Every fault, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The fault of a code; `None` for 0 and for codes of a newer version.
            pub const fn of(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Its name in documents and in languages that name things with underscores.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// The HTTP status that says the same.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $http,)+ }
            }

            /// The JSON-RPC error code that says the same.
            pub const fn rpc_code(self) -> i32 {
                match self { $(Self::$name => $rpc,)+ }
            }

            /// Whether the same call may be made again.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)+ }
            }

            /// What it means, in the words of a table.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim_ascii(),)+ }
            }

            /// One sentence for people.
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)+ }
            }
        }
    };
}

faults! {
    /// The service refused, in its own words.
    Refused = 1, "refused", 422, -32000, Never, "the service refused";
    /// The frame is no request of this service: not MessagePack, or fields that are wrong, missing or too
    /// many.
    BadRequest = 2, "bad_request", 400, -32602, Never, "the request does not fit the schema";
    /// No command has this name.
    UnknownCommand = 3, "unknown_command", 404, -32601, Never, "the service has no such command";
    /// The bytes are no frames of the protocol; the connection ends.
    BadFrame = 4, "bad_frame", 400, -32019, Never, "the bytes are no frame";
    /// The frame is longer than its reader allows.
    FrameTooLarge = 5, "frame_too_large", 413, -32020, Never, "the frame is longer than is allowed";
    /// A call was begun under the id of one that has not ended.
    DuplicateId = 6, "duplicate_id", 400, -32021, Never, "a call with this id has not ended yet";
    /// The two ends were generated from different schemas.
    SchemaMismatch = 7, "schema_mismatch", 409, -32001, Never, "client and server were made from different schemas";
    /// The two ends speak different versions of the protocol.
    VersionMismatch = 8, "version_mismatch", 505, -32002, Never, "client and server speak different versions";
    /// The endpoint offers shared memory only, or none, or has none left.
    NoSharedMemory = 9, "no_shared_memory", 503, -32003, Never, "shared memory was not agreed on";
    /// The call was cancelled.
    Cancelled = 10, "cancelled", 499, -32004, Unknown, "the call was cancelled";
    /// The call's deadline passed.
    DeadlineExceeded = 11, "deadline_exceeded", 504, -32005, Unknown, "the deadline passed";
    /// The handler ended without an answer.
    Abandoned = 12, "abandoned", 500, -32006, Unknown, "the handler gave no answer";
    /// A bound was reached before any work was done.
    Overloaded = 13, "overloaded", 503, -32007, Safe, "a limit was reached: try again later";
    /// The server is ending and takes nothing new.
    Draining = 14, "draining", 503, -32008, Safe, "the server is ending";
    /// A stream's producer went on although nobody took what it made.
    Overrun = 15, "overrun", 500, -32009, Unknown, "the stream ran ahead of its reader";
    /// The connection ended before the answer came.
    Disconnected = 16, "disconnected", 502, -32010, Unknown, "the connection ended before the answer came";
    /// The request was not sent: the connection ended before, or its deadline passed.
    NotSent = 17, "not_sent", 502, -32011, Safe, "the request was not sent";
    /// Nobody listens at the endpoint.
    NoServer = 18, "no_server", 502, -32012, Safe, "nobody listens there";
    /// The endpoint did not take the connection in time.
    ConnectTimeout = 19, "connect_timeout", 504, -32013, Safe, "the server did not take the connection in time";
    /// The endpoint may not be used by this user.
    PermissionDenied = 20, "permission_denied", 403, -32014, Never, "this user may not use the endpoint";
    /// Another server has the endpoint.
    AddressInUse = 21, "address_in_use", 409, -32015, Never, "another server has the endpoint";
    /// This end was closed.
    Closed = 22, "closed", 410, -32016, Never, "this end was closed";
    /// The answer does not fit the schema.
    BadAnswer = 23, "bad_answer", 502, -32017, Unknown, "the answer does not fit the schema";
    /// The peer wrote what no peer may write into shared memory.
    BrokenPeer = 24, "broken_peer", 502, -32018, Unknown, "the peer broke the rules of shared memory";
    /// An argument that can never be right.
    BadArgument = 25, "bad_argument", 400, -32602, Never, "an argument cannot be right";
    /// The operating system failed.
    System = 26, "system", 500, -32603, Unknown, "the operating system failed";
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.says())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{INVALID_REQUEST, PARSE_ERROR};
    use std::collections::HashSet;

    #[test]
    fn codes_run_from_one_and_names_are_unique() {
        let codes: Vec<u16> = Fault::ALL.iter().map(|fault| *fault as u16).collect();
        assert_eq!(codes, (1..=Fault::ALL.len() as u16).collect::<Vec<_>>());
        let words: HashSet<&str> = Fault::ALL.iter().map(|fault| fault.word()).collect();
        assert_eq!(words.len(), Fault::ALL.len());
        for fault in Fault::ALL {
            assert_eq!(Fault::of(*fault as u16), Some(*fault));
            assert!((400..600).contains(&fault.http_status()) && fault.rpc_code() < 0, "{fault:?}");
            // These say of a body that nothing of it was carried out, which of a call that was made is not
            // known.
            assert!(![PARSE_ERROR, INVALID_REQUEST].contains(&fault.rpc_code()), "{fault:?}");
        }
        assert_eq!((Fault::of(0), Fault::of(9_999)), (None, None));
    }
}
