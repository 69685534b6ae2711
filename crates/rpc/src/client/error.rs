//! Why a call has no result.

use std::borrow::Cow;
use std::fmt;
use thalweg_service::Error as Failure;
use thalweg_wire::fault::{Fault, Retry};
use thalweg_wire::json::{Quoted, Text};
use thalweg_wire::jsonrpc::{INVALID_REQUEST, PARSE_ERROR};

/// An error that the server answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteError {
    /// Its number.
    pub code: i64,
    /// For people.
    pub message: String,
    /// What else is said, as JSON; empty for nothing.
    pub data: String,
}

impl RemoteError {
    /// The word of one table that servers of ours put beside the number, if they did.
    pub fn fault(&self) -> Option<Fault> {
        let word = member(&self.data, "fault")?;
        Fault::ALL.iter().copied().find(|fault| fault.word() == word)
    }

    /// Whether the same call may be made again. Where no fault is named, what a server took for no JSON or no
    /// request it did not carry out, whatever server it is; another number says nothing about that.
    pub fn retry(&self) -> Retry {
        const NOT_BEGUN: [i64; 2] = [PARSE_ERROR as i64, INVALID_REQUEST as i64];
        match self.fault() {
            Some(fault) => fault.retry(),
            None if NOT_BEGUN.contains(&self.code) => Retry::Safe,
            None => Retry::Unknown,
        }
    }
}

/// What a JSON object says under a name, if that is a string: the object itself, and nothing inside of it. Of
/// a name that is there twice the last counts, as in other faces.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let mut text = Text::new(object);
    let mut found = None;
    let mut goes_on = text.begin_object().ok()?;
    while goes_on {
        let is_asked = text.key().ok()?.text() == name;
        let value = text.value().ok()?;
        if is_asked {
            found = Text::new(value).string().ok().map(Quoted::text);
        }
        goes_on = text.next_member().ok()?;
    }
    found
}

impl fmt::Display for RemoteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.message, self.code)
    }
}

/// Why a call has no result.
#[derive(Clone, Debug)]
pub enum Error {
    /// The server answered with an error.
    Remote(RemoteError),
    /// There was no answer, or none that can be taken for one.
    Failed(Failure),
}

impl Error {
    /// Whether the same call may be made again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Remote(said) => said.retry(),
            Self::Failed(failure) => failure.retry(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(said) => said.fmt(out),
            Self::Failed(failure) => failure.fmt(out),
        }
    }
}

impl std::error::Error for Error {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// An answer with an error becomes the fault that it names, for callers that only know faults.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Remote(said) => Self::new(said.fault().unwrap_or(Fault::BadAnswer), said.to_string()),
            Error::Failed(failure) => failure,
        }
    }
}
