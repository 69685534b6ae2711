//! One request and its answer, wherever it stands.

use super::options::Ask;
use super::target::Place;
use std::time::Instant;
use thalweg_service::{CallId, Error as Failure};
use thalweg_wire::fault::Fault;
use thalweg_wire::jsonrpc::write;

/// What goes over a connection, and back.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) name: CallId,
    /// The id of its first call; the others follow.
    pub(crate) first_id: u64,
    /// Calls that are answered.
    pub(crate) calls: u64,
    pub(crate) is_batch: bool,
    pub(crate) is_idempotent: bool,
    pub(crate) until: Option<Instant>,
    /// The whole request.
    pub(crate) text: Vec<u8>,
    /// It was sent before, over a connection that ended.
    pub(crate) is_again: bool,
}

impl Exchange {
    /// Puts a request together. `text` is room for it.
    pub(crate) fn new(
        name: CallId,
        first_id: u64,
        place: &Place,
        ask: &Ask<'_>,
        until: Option<Instant>,
        mut text: Vec<u8>,
    ) -> Result<Self, Failure> {
        let count = ask.all().count();
        if count == 0 || (count > 1 && !ask.is_batch) {
            return Err(Failure::new(Fault::BadArgument, "one call, or a batch of at least one"));
        }
        let wrong =
            |(_, params): (&str, &str)| !params.is_empty() && !params.trim_start().starts_with(['[', '{']);
        if ask.all().any(wrong) {
            return Err(Failure::new(Fault::BadArgument, "parameters are a JSON array or object, or empty"));
        }
        text.clear();
        text.extend_from_slice(&place.head);
        // The length is put in once it is known: as many digits as it may have, blanks where it has fewer.
        let length_at = text.len();
        text.extend_from_slice(b"          \r\n\r\n");
        let start = text.len();
        if ask.is_batch {
            text.push(b'[');
        }
        for (id, (method, params)) in (first_id..).zip(ask.all()) {
            if id > first_id {
                text.push(b',');
            }
            write::call(&mut text, method, params, (!ask.notifies).then_some(id));
        }
        if ask.is_batch {
            text.push(b']');
        }
        let length = (text.len() - start).to_string();
        let Some(room) = text[length_at..start].get_mut(..length.len()).filter(|_| length.len() <= 10) else {
            return Err(Failure::new(Fault::FrameTooLarge, "a request of more than 9 GB"));
        };
        room.copy_from_slice(length.as_bytes());
        let calls = if ask.notifies { 0 } else { count as u64 };
        let (is_batch, is_idempotent) = (ask.is_batch, ask.is_idempotent);
        Ok(Self { name, first_id, calls, is_batch, is_idempotent, until, text, is_again: false })
    }

    /// Whether it was to be over by now.
    pub(crate) fn is_overdue(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// It is over, and whoever repeats it does nothing twice.
pub(crate) fn never_sent(what: &str) -> Failure {
    Failure::new(Fault::ConnectTimeout, what)
}
