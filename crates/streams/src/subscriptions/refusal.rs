//! Refusals under `__ds`: problem+json with the protocol's own `error` member beside it, or exactly the body
//! that the protocol pins (PROTOCOL 7.1, 7.2).

use super::subscription::Refused;
use crate::headers::Headers;
use crate::problem::TOO_MANY;
use crate::store::StoreError;
use serde_json::{Value, json};
use smallvec::smallvec;
use thalweg_wire::exchange::Response;
use thalweg_wire::piece::Piece;
use thalweg_wire::problem::{self, PROBLEM_MEDIA, Problem};

/// A refusal that has not become a response yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    status: u16,
    code: &'static str,
    /// The methods that would have been taken, where this one is not.
    allow: Option<&'static str>,
    /// What it was decided on is durable once that is complete.
    ticket: u64,
    body: Body,
}

#[derive(Clone, Debug, PartialEq)]
enum Body {
    Problem { field: &'static str, detail: String },
    Pinned(Value),
}

impl Refusal {
    pub(crate) fn new(
        status: u16,
        code: &'static str,
        field: impl Into<&'static str>,
        detail: impl Into<String>,
    ) -> Refusal {
        let body = Body::Problem { field: field.into(), detail: detail.into() };
        Refusal { status, code, allow: None, ticket: 0, body }
    }

    /// A conflict whose body the protocol has.
    fn pinned(code: &'static str, body: Value) -> Refusal {
        Refusal { status: 409, code, allow: None, ticket: 0, body: Body::Pinned(body) }
    }

    /// The resource takes other methods.
    pub(crate) fn method(allow: &'static str) -> Refusal {
        let refusal =
            Refusal::new(405, "METHOD_NOT_ALLOWED", "method", format!("this resource allows {allow}"));
        Refusal { allow: Some(allow), ..refusal }
    }

    /// There is no such subscription.
    pub(crate) fn missing() -> Refusal {
        Refusal::new(
            404,
            "SUBSCRIPTION_NOT_FOUND",
            "path",
            "no subscription of that id exists; create it with PUT",
        )
    }

    /// What is kept under that identifier is not understood.
    pub(crate) fn foreign() -> Refusal {
        let detail = "the subscription was written by a later version of this program, or is damaged: it stays as it is, and \
            wakes nobody; use that version, or delete the subscription";
        Refusal::new(500, "SUBSCRIPTION_NOT_UNDERSTOOD", "path", detail)
    }

    /// A subscription is kept in a stream of its own, and there are as many as there may be.
    pub(crate) fn too_many() -> Refusal {
        Refusal::new(429, "TOO_MANY_STREAMS", "path", TOO_MANY)
    }

    /// What a rule refused, in `generation`.
    pub(crate) fn of(refused: Refused, generation: u64) -> Refusal {
        match refused {
            Refused::Fenced => Refusal::pinned("FENCED", json!({ "error": { "code": "FENCED" } })),
            Refused::AlreadyClaimed { holder } => {
                let code = "ALREADY_CLAIMED";
                let error = json!({ "code": code, "current_holder": holder, "generation": generation });
                Refusal::pinned(code, json!({ "error": error }))
            }
            Refused::NothingPending => {
                let detail = "nothing is pending; wait for the next event in the wake stream";
                Refusal::new(409, "NO_PENDING_WORK", "path", detail)
            }
            Refused::PastEnd { stream } => {
                let detail = format!("the ack lies past the end of {stream}");
                Refusal::new(400, "INVALID_OFFSET", "acks.offset", detail)
            }
        }
    }

    /// The same, to be told after a ticket.
    pub(crate) fn after(self, ticket: u64) -> Refusal {
        Refusal { ticket, ..self }
    }

    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    pub(crate) fn respond(&self) -> Response {
        let mut headers = Headers::new();
        headers.constant(problem::lines(self.status));
        if self.status == 401 {
            // RFC 9110 15.5.2 asks for a challenge.
            headers.constant(b"WWW-Authenticate: Bearer\r\n");
        }
        if let Some(allow) = self.allow {
            headers.line("Allow", allow.as_bytes());
        }
        let body = match &self.body {
            Body::Pinned(body) => {
                headers.constant(b"Content-Type: application/json\r\n");
                Piece::from(body.to_string())
            }
            Body::Problem { field, detail } => {
                headers.line("Content-Type", PROBLEM_MEDIA.as_bytes());
                let rule = self.code.to_ascii_lowercase().replace('_', "-");
                let error = Some(self.code);
                Problem { status: self.status, rule: &rule, field, detail, error }.encode().into()
            }
        };
        headers.respond(self.status, smallvec![body])
    }
}

impl From<&StoreError> for Refusal {
    fn from(error: &StoreError) -> Refusal {
        let (status, code) = match error {
            StoreError::Full(_) => (507, "STORE_FULL"),
            StoreError::TooLarge { .. } => (413, "TOO_LARGE"),
            StoreError::Damaged(_) => (500, "STORE_DAMAGED"),
            _ => (503, "STORE_UNAVAILABLE"),
        };
        Refusal::new(status, code, "store", error.to_string())
    }
}
