//! One request and its answer, wherever it stands.

use super::options::Ask;
use super::target::ResolvedUrl;
use std::time::Instant;
use thalweg_service::{CallId, Error as Failure};
use thalweg_wire::fault::Fault;
use thalweg_wire::json::write as json;
use thalweg_wire::jsonrpc::write;

/// Digits that a body's length may have.
const LENGTH_DIGITS: usize = 10;

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
        resolved: &ResolvedUrl,
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
        text.extend_from_slice(&resolved.head);
        // The length is put in once it is known: as many digits as it may have, blanks where it has fewer.
        let length_at = text.len();
        text.extend_from_slice(&[b' '; LENGTH_DIGITS]);
        text.extend_from_slice(b"\r\n\r\n");
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
        let end = text.len();
        json::unsigned(&mut text, (end - start) as u64);
        if text.len() - end > LENGTH_DIGITS {
            return Err(Failure::new(Fault::FrameTooLarge, "a request of more than 9 GB"));
        }
        text.copy_within(end.., length_at);
        text.truncate(end);
        let calls = if ask.notifies { 0 } else { count as u64 };
        let (is_batch, is_idempotent) = (ask.is_batch, ask.is_idempotent);
        Ok(Self { name, first_id, calls, is_batch, is_idempotent, until, text, is_again: false })
    }

    /// Whether it was to be over by now.
    pub(crate) fn is_overdue(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// The failure of a call that was never sent, so that repeating it does nothing twice.
pub(crate) fn never_sent(what: &str) -> Failure {
    Failure::new(Fault::ConnectTimeout, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_stands_in_front_of_its_body_with_blanks_for_the_digits_that_it_has_not() {
        let resolved = ResolvedUrl::of("http://127.0.0.1:1/x", None).unwrap();
        for length in [0, 5, 100, 12_345] {
            let params = format!("[\"{}\"]", "a".repeat(length));
            let ask = Ask::one("m", &params);
            let exchange =
                Exchange::new(CallId::from_number(1), 7, &resolved, &ask, None, Vec::new()).unwrap();
            let text = String::from_utf8(exchange.text).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let (_, announced) = head.rsplit_once("Content-Length: ").unwrap();
            assert_eq!(announced, format!("{:<10}", body.len()));
            assert!(body.ends_with(",\"id\":7}"), "{body}");
        }
    }
}
