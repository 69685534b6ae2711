//! What is wrong with bytes that should be a value, and where.

use thiserror::Error;

/// Why bytes are not the value they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{place}: {kind} at byte {at}")]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Where in the frame.
    pub at: usize,
    /// The field or message being read, as `EchoBytes.data`; `frame` outside of any.
    pub place: &'static str,
}

/// What a decoder refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// The frame ends inside a value.
    #[error("the frame ends too early")]
    Truncated,
    /// The frame goes on behind the message.
    #[error("bytes behind the message")]
    Trailing,
    /// A value of another type.
    #[error("expected {expected}, found byte {found:#04x}")]
    Type {
        /// The type that belongs here.
        expected: &'static str,
        /// The byte that begins the value.
        found: u8,
    },
    /// Values that take more memory than a frame of this length may.
    #[error("values that take too much memory for such a frame")]
    Memory,
    /// An integer the field cannot hold.
    #[error("an integer out of range")]
    Range,
    /// A string that is not UTF-8.
    #[error("a string that is not UTF-8")]
    Utf8,
    /// A fixed array, `bin32` or envelope of another length.
    #[error("expected a length of {expected}, found {found}")]
    Length {
        /// The length that belongs here.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// A field that is not declared.
    #[error("a field nobody declared")]
    UnknownField,
    /// A field or key that is there already.
    #[error("a field or key that is there twice")]
    Duplicate,
    /// A field that is declared and not there.
    #[error("a field is missing")]
    Missing,
    /// A word that is none of the enum's.
    #[error("a word the enum does not have")]
    UnknownWord,
    /// A message that is none of the service's.
    #[error("a message nobody declared")]
    UnknownMessage,
}
