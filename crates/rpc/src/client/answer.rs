//! What was answered, held against what was asked.

use super::error::{Error, RemoteError};
use super::exchange::Exchange;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;
use thalweg_service::{CallId, Error as Failure};
use thalweg_wire::fault::Fault;
use thalweg_wire::jsonrpc::{Outcome, answers};

/// What was answered to the calls of one exchange, in their order.
#[derive(Clone, Default)]
pub struct Answers {
    /// What they came in: the body, and the head in front of it where that could stay.
    text: String,
    /// Each is there; while a body is being read, those that came so far.
    parts: SmallVec<[Option<Part>; 1]>,
}

#[derive(Clone, Debug)]
enum Part {
    /// Where the result stands.
    Result(Range<usize>),
    Failed(Box<RemoteError>),
}

/// What came of calls that were begun.
#[derive(Debug)]
pub struct Completion {
    /// Of which.
    pub call: CallId,
    /// What.
    pub outcome: Result<Answers, Failure>,
}

impl Answers {
    /// How many there are: none of notifications.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The answer to the call at this index: its result as JSON, or the server's error.
    pub fn at(&self, index: usize) -> Option<Result<&str, &RemoteError>> {
        Some(match self.parts.get(index)?.as_ref()? {
            Part::Result(range) => Ok(self.text.get(range.clone()).unwrap_or_default()),
            Part::Failed(said) => Err(said),
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Result<&str, &RemoteError>> {
        (0..self.len()).filter_map(|index| self.at(index))
    }

    /// The only one; nothing, of a notification.
    ///
    /// # Errors
    /// The server's error.
    pub fn one(&self) -> Result<&str, Error> {
        self.at(0).unwrap_or(Ok("")).map_err(|said| Error::Remote(said.clone()))
    }

    /// The memory, to be used again.
    pub(crate) fn into_room(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

/// Reads a body, which is part of what came in, as the answers to an exchange: each of its calls once, in any
/// order, and nothing else.
///
/// # Errors
/// [`Fault::BadAnswer`].
pub(crate) fn read(exchange: &Exchange, input: Vec<u8>, body: Range<usize>) -> Result<Answers, Failure> {
    let (text, body_at) = text(input, body)?;
    let body = text.get(body_at..).unwrap_or_default();
    let mut parts: SmallVec<[_; 1]> =
        SmallVec::from_elem(None, usize::try_from(exchange.calls).unwrap_or_default());
    let mut wrong = None;
    let mut for_all = None;
    let start = text.as_ptr().addr();
    let came_as_batch = answers(body, |answer| {
        let part = match answer.outcome {
            Outcome::Result(result) => {
                // A slice of the text, so its address gives its place.
                let at = result.as_ptr().addr() - start;
                Part::Result(at..at + result.len())
            }
            Outcome::Error { code, message, data } => {
                let (message, data) = (message.into_owned(), data.unwrap_or_default().to_owned());
                let said = Box::new(RemoteError { code, message, data });
                if answer.id == "null" {
                    for_all = Some(said);
                    return;
                }
                Part::Failed(said)
            }
        };
        let index = answer.id.parse::<u64>().ok().and_then(|id| id.checked_sub(exchange.first_id));
        let index = index.and_then(|index| parts.get_mut(usize::try_from(index).ok()?));
        match index {
            Some(index @ None) => *index = Some(part),
            Some(Some(_)) => wrong = Some("a call was answered twice"),
            None => wrong = Some("an answer to a call that was not made"),
        }
    })
    .map_err(|error| bad(error.what))?;
    if let Some(wrong) = wrong {
        return Err(bad(wrong));
    }
    if let Some(said) = for_all {
        if came_as_batch {
            return Err(bad("an error of no call among the answers"));
        }
        // Nothing of it was carried out.
        parts.fill(Some(Part::Failed(said)));
        return Ok(Answers { text, parts });
    }
    if came_as_batch != exchange.is_batch {
        return Err(bad("a batch is answered by an array, and nothing else is"));
    }
    if parts.iter().any(Option::is_none) {
        return Err(bad("a call without an answer"));
    }
    Ok(Answers { text, parts })
}

/// What came in as text, up to the end of the body, and where the body begins in it. A head that is text too
/// stays in front: taking it out would move the whole body.
fn text(mut input: Vec<u8>, body: Range<usize>) -> Result<(String, usize), Failure> {
    input.truncate(body.end);
    let (text, body_at) = match String::from_utf8(input) {
        Ok(text) => (text, body.start),
        Err(error) => {
            let mut input = error.into_bytes();
            input.drain(..body.start.min(input.len()));
            (String::from_utf8(input).map_err(|_| bad("no UTF-8"))?, 0)
        }
    };
    if text.is_char_boundary(body_at) { Ok((text, body_at)) } else { Err(bad("no UTF-8")) }
}

fn bad(what: &str) -> Failure {
    Failure::new(Fault::BadAnswer, what)
}

/// Reads a body that answers calls which have no answers: nothing, or why none of it, or part of it, was
/// taken for a request.
///
/// # Errors
/// What the server says; [`Fault::BadAnswer`].
pub(crate) fn read_none(input: Vec<u8>, body: Range<usize>) -> Result<Answers, Failure> {
    let (text, body_at) = text(input, body)?;
    let body = text.get(body_at..).unwrap_or_default();
    if body.trim_ascii().is_empty() {
        return Ok(Answers::default());
    }
    let (mut refused, mut is_answer) = (None, false);
    answers(body, |answer| match answer.outcome {
        Outcome::Error { code, message, data } if answer.id == "null" => {
            let said = RemoteError {
                code,
                message: message.into_owned(),
                data: data.unwrap_or_default().to_owned(),
            };
            refused.get_or_insert(said);
        }
        _ => is_answer = true,
    })
    .map_err(|error| bad(error.what))?;
    match refused.filter(|_| !is_answer) {
        Some(said) => Err(Failure::new(said.fault().unwrap_or(Fault::BadRequest), said.to_string())),
        None => Err(bad("an answer to a notification")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Ask;
    use super::super::target::ResolvedUrl;
    use super::*;
    use proptest::prelude::*;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n";
    const ONE: &[u8] = br#"{"jsonrpc":"2.0","result":"\u00e4","id":1}"#;

    fn exchange() -> Exchange {
        let resolved = ResolvedUrl::of("http://127.0.0.1:1/x", None).unwrap();
        let ask = Ask::one("m", "");
        Exchange::new(CallId::from_number(1), 1, &resolved, &ask, None, Vec::new()).unwrap()
    }

    /// All that came in, and where in it the body stands.
    fn input(head: &[u8], body: &[u8], tail: &[u8]) -> (Vec<u8>, Range<usize>) {
        ([head, body, tail].concat(), head.len()..head.len() + body.len())
    }

    #[test]
    fn what_is_not_utf_8_is_no_answer() {
        for body in [&b"\xff"[..], b"{\"jsonrpc\":\"2.0\",\"result\":\"\xff\",\"id\":1}", b"\xc3"] {
            let (text, range) = input(HEAD, body, b"\xa4");
            let failure = read(&exchange(), text.clone(), range.clone()).unwrap_err();
            assert_eq!((failure.fault, failure.detail.as_str()), (Fault::BadAnswer, "no UTF-8"));
            let failure = read_none(text, range).unwrap_err();
            assert_eq!((failure.fault, failure.detail.as_str()), (Fault::BadAnswer, "no UTF-8"));
        }
    }

    #[test]
    fn among_the_answers_to_a_batch_is_none_but_of_its_calls() {
        let resolved = ResolvedUrl::of("http://127.0.0.1:1/x", None).unwrap();
        let ask = Ask { calls: &[("m", "")], is_batch: true, ..Ask::default() };
        let exchange = Exchange::new(CallId::from_number(1), 1, &resolved, &ask, None, Vec::new()).unwrap();
        let failed = br#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"none"},"id":null}"#;
        let read = |body: &[&[u8]]| {
            let (text, range) = input(HEAD, &body.concat(), b"");
            read(&exchange, text, range)
        };
        assert_eq!(read(&[b"[", ONE, b"]"]).unwrap().one().unwrap(), r#""\u00e4""#);
        assert!(matches!(read(&[failed]).unwrap().one(), Err(Error::Remote(said)) if said.code == -32600));
        for body in
            [&[b"[", ONE, b",", failed, b"]"][..], &[b"[", failed, b"]"], &[b"[", ONE, b",", ONE, b"]"]]
        {
            assert_eq!(read(body).unwrap_err().fault, Fault::BadAnswer);
        }
    }

    /// A head may be in any encoding that says what HTTP has to by ASCII.
    #[test]
    fn what_stands_beside_a_body_may_be_anything() {
        for head in [HEAD, b"", b"HTTP/1.1 200 OK\r\nServer: \xe4\r\n\r\n"] {
            for tail in [&b""[..], b"\xff", b"}"] {
                let (text, range) = input(head, ONE, tail);
                let answers = read(&exchange(), text, range).unwrap();
                assert_eq!((answers.len(), answers.one().unwrap()), (1, r#""\u00e4""#));
                let (text, range) = input(head, b" \r\n", tail);
                assert!(read_none(text, range).unwrap().is_empty());
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_anywhere_are_survived(
            text in any::<Vec<u8>>(),
            (start, end) in (0..200_usize, 0..200_usize),
        ) {
            for body in [start..end, 0..text.len()] {
                let _ = read(&exchange(), text.clone(), body.clone());
                let _ = read_none(text.clone(), body);
            }
        }
    }
}
