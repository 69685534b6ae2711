//! Why a call, a connection or a server did not do what was asked.

use std::error;
use std::fmt;
use std::io;
use std::sync::Arc;
use thalweg_wire::fault::{Fault, Retry};

/// A [`Fault`], where it happened, and what to do about it.
///
/// ```
/// use thalweg_service::Error;
/// use thalweg_wire::fault::{Fault, Retry};
/// let error = Error::new(Fault::NoServer, "run/echo.sock: start its server first");
/// assert_eq!(error.to_string(), "nobody listens there: run/echo.sock: start its server first");
/// assert_eq!(error.retry(), Retry::Safe);
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    /// Which row of the one table.
    pub fault: Fault,
    /// What, where, and what to do. May be empty.
    pub detail: String,
    /// What the operating system said, if it was asked. Shared, so that one failure can end many calls.
    pub source: Option<Arc<io::Error>>,
}

impl Error {
    /// A fault with its detail.
    pub fn new(fault: Fault, detail: impl Into<String>) -> Self {
        Self { fault, detail: detail.into(), source: None }
    }

    /// A fault that the operating system reported.
    pub fn system(fault: Fault, detail: impl Into<String>, source: io::Error) -> Self {
        Self { fault, detail: detail.into(), source: Some(Arc::new(source)) }
    }

    /// Why a call that would have begun after this went wrong did not: of a connection that is gone already
    /// nothing can have been sent.
    ///
    /// ```
    /// use thalweg_service::Error;
    /// use thalweg_wire::fault::{Fault, Retry};
    /// let late = Error::new(Fault::Disconnected, "run/echo.sock").of_later_call();
    /// assert_eq!((late.fault, late.retry()), (Fault::NotSent, Retry::Safe));
    /// let refused = Error::new(Fault::PermissionDenied, "").of_later_call();
    /// assert_eq!(refused.fault, Fault::PermissionDenied, "it did not begin, and would not another time");
    /// ```
    #[must_use]
    pub fn of_later_call(&self) -> Self {
        let fault = if self.retry() == Retry::Unknown { Fault::NotSent } else { self.fault };
        Self { fault, ..self.clone() }
    }

    /// Whether the same call may be made again.
    pub const fn retry(&self) -> Retry {
        self.fault.retry()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.fault.says())?;
        if !self.detail.is_empty() {
            write!(out, ": {}", self.detail)?;
        }
        match &self.source {
            Some(source) => write!(out, ": {source}"),
            None => Ok(()),
        }
    }
}

impl error::Error for Error {}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::system(Fault::System, "", source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_fault_place_and_cause() {
        let cause = io::Error::other("no room");
        assert_eq!(Error::from(cause).to_string(), "the operating system failed: no room");
        let bare = Error::new(Fault::Cancelled, "");
        assert_eq!(bare.to_string(), "the call was cancelled");
        assert_eq!(bare.retry(), Retry::Unknown);
    }
}
