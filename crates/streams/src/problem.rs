//! Refusals: a status, the field at fault and the rule it broke, as problem+json.

use crate::headers::Headers;
use crate::store::StoreError;
use smallvec::smallvec;
use std::borrow::Cow;
use thalweg_wire::exchange::Response;
use thalweg_wire::field::Name;
use thalweg_wire::problem::{self, PROBLEM_MEDIA};

/// The refusal of a create beyond `streams_max`.
pub(crate) const TOO_MANY: &str = "the server holds as many streams as it may (streams_max): delete some, or try again when some have expired";

/// A refusal that has not become a response yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: u16,
    rule: &'static str,
    field: &'static str,
    detail: Cow<'static, str>,
}

impl Problem {
    pub(crate) fn new(
        status: u16,
        rule: &'static str,
        field: impl Into<&'static str>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, rule, field: field.into(), detail: detail.into() }
    }

    /// The stream does not exist, any more or yet.
    pub(crate) fn missing() -> Self {
        Self::new(404, "stream-missing", "path", "no stream of that name exists; create it with PUT")
    }

    /// The stream was deleted and is kept for its forks.
    pub(crate) fn retained() -> Self {
        let detail =
            "the stream was deleted and is kept for its forks only; its name is free once they are deleted";
        Self::new(410, "stream-deleted", "path", detail)
    }

    /// PROTOCOL 5.6: an offset before the earliest that is retained.
    pub(crate) fn purged() -> Self {
        let detail = "the records at that offset are no longer kept: read from -1, where the oldest that are kept begin";
        Self::new(410, "offset-gone", "offset", detail)
    }

    /// There are as many streams as there may be.
    pub(crate) fn too_many() -> Self {
        Self::new(429, "too-many-streams", "path", TOO_MANY)
    }

    /// Others kept committing first.
    pub(crate) fn contended() -> Self {
        Self::new(
            503,
            "stream-contended",
            "path",
            "other writers kept committing to the stream first: nothing was done, send the request again",
        )
    }

    /// Retention kept moving the beginning away from a read of it.
    pub(crate) fn overtaken() -> Self {
        let detail = "retention kept moving the beginning of the stream while it was being read: send the request again";
        Self::new(503, "stream-contended", "path", detail)
    }

    /// The refusal as a response.
    pub(crate) fn respond(&self) -> Response {
        self.respond_with(|_| {})
    }

    /// The refusal as a response with more header lines.
    pub(crate) fn respond_with(&self, add: impl FnOnce(&mut Headers)) -> Response {
        let mut headers = Headers::new();
        headers.line(Name::ContentType, PROBLEM_MEDIA.as_bytes());
        headers.constant(problem::lines(self.status));
        add(&mut headers);
        let Self { status, rule, field, detail } = self;
        let problem = problem::Problem { status: *status, rule, field, detail, error: None };
        headers.respond(self.status, smallvec![problem.encode().into()])
    }
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        let (status, rule, field) = match error {
            StoreError::Gone => return Self::missing(),
            StoreError::Purged => return Self::purged(),
            StoreError::Conflict | StoreError::Exists | StoreError::SourceGone => return Self::contended(),
            StoreError::Full(_) => (507, "store-full", "body"),
            StoreError::Io(_) => (503, "store-refused", "store"),
            StoreError::TooLarge { .. } => (413, "commit-too-large", "body"),
            StoreError::Poisoned(_) => (503, "store-poisoned", "store"),
            StoreError::Damaged(_) => (500, "store-damaged", "store"),
            StoreError::PastEnd => (400, "offset-past-end", "offset"),
        };
        Self::new(status, rule, field, error.to_string())
    }
}
