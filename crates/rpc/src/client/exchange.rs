//! One request and its answer, wherever it stands.

use super::options::Ask;
use super::target::ResolvedUrl;
use std::fmt;
use std::time::Instant;
use thalweg_service::{CallId, Error as Failure};
use thalweg_wire::excerpt::excerpt;
use thalweg_wire::fault::{Fault, Retry};
use thalweg_wire::json::{Kind, Text, write as json};
use thalweg_wire::jsonrpc::write;

/// What stands in a head for its body's length until that is known: as many blanks as it may have digits.
pub(crate) const NO_LENGTH: &str = "          ";
/// What follows.
pub(crate) const HEAD_END: &str = "\r\n\r\n";

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
    /// It was begun before, over a connection that ended.
    pub(crate) is_again: bool,
    /// Bytes of it left over that one, so it may have been carried out.
    pub(crate) has_left: bool,
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
        ask.all().try_for_each(|(method, params)| check_params(method, params))?;
        text.clear();
        text.extend_from_slice(&resolved.head);
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
        if text.len() - end > NO_LENGTH.len() {
            return Err(Failure::new(Fault::FrameTooLarge, "a request of more than 9 GB"));
        }
        text.copy_within(end.., start - HEAD_END.len() - NO_LENGTH.len());
        text.truncate(end);
        let calls = if ask.notifies { 0 } else { count as u64 };
        let (is_batch, is_idempotent) = (ask.is_batch, ask.is_idempotent);
        let (is_again, has_left) = (false, false);
        Ok(Self { name, first_id, calls, is_batch, is_idempotent, until, text, is_again, has_left })
    }

    /// Why it has no answer, by why its last sending has none. Of an earlier one that left, what is known of
    /// the last says nothing.
    pub(crate) fn unanswered(&self, failure: Failure) -> Failure {
        if self.has_left && failure.fault.retry() == Retry::Safe {
            let detail = format!("sent again, it was not carried out: {failure}");
            return Failure::new(Fault::Disconnected, detail);
        }
        failure
    }

    /// Whether it was to be over by then.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// Refuses parameters that would not stay within their place in a request: what ended them early would go on
/// as members of the request itself, a method among them.
fn check_params(method: &str, params: &str) -> Result<(), Failure> {
    if params.is_empty() {
        return Ok(());
    }
    let mut text = Text::new(params);
    let refuse = |why: &dyn fmt::Display| {
        let method = excerpt(method);
        let what = format!("the parameters of {method} are to be a JSON array or object, or empty: {why}");
        Err(Failure::new(Fault::BadArgument, what))
    };
    match text.kind() {
        Ok(Kind::Array | Kind::Object) => match text.value().and_then(|_| text.finish()) {
            Ok(()) => Ok(()),
            Err(syntax) => refuse(&syntax),
        },
        Ok(kind) => refuse(&format_args!("they are {}", kind.phrase())),
        Err(syntax) => refuse(&syntax),
    }
}

/// The failure of a call that was never sent, so that repeating it does nothing twice.
pub(crate) fn never_sent(what: &str) -> Failure {
    Failure::new(Fault::ConnectTimeout, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever stands in its parameters, a request asks for the method that its caller named.
    #[test]
    fn parameters_that_are_not_one_array_or_object_are_refused() {
        let resolved = ResolvedUrl::of("http://127.0.0.1:1/x", None).unwrap();
        let put = |params: &str| {
            let ask = Ask::one("Get", params);
            Exchange::new(CallId::from_number(1), 1, &resolved, &ask, None, Vec::new())
        };
        for params in ["", "[]", " {\"a\": [1, {}]}\n", "[18446744073709551616, 1e400, \"\\u0041\"]"] {
            assert!(put(params).is_ok(), "{params}");
        }
        for (params, says) in [
            ("[1],\"method\":\"Drop\"", "something behind the value at byte 3"),
            ("{},\"id\":7,\"x\":{}", "something behind the value at byte 2"),
            ("[1", "at byte 2"),
            ("[NaN]", "at byte 1"),
            ("{'a': 1}", "at byte 1"),
            ("[1] [2]", "at byte 4"),
            ("1", "they are a number"),
            ("null", "they are null"),
            (" ", "at byte 1"),
            ("\u{a0}[1]", "at byte 0"),
        ] {
            let failure = put(params).unwrap_err();
            assert_eq!(failure.fault, Fault::BadArgument);
            let what = failure.to_string();
            assert!(what.contains("parameters of Get") && what.contains(says), "{params}: {what}");
        }
    }

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
