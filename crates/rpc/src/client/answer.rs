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
    /// The body that they came in.
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
    let text = text(input, body)?;
    let mut parts: SmallVec<[Option<Part>; 1]> = SmallVec::new();
    parts.resize(usize::try_from(exchange.calls).unwrap_or_default(), None);
    let mut wrong = None;
    let mut for_all = None;
    let start = text.as_ptr().addr();
    let came_as_batch = answers(&text, |answer| {
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
    if let Some(said) = for_all.filter(|_| !came_as_batch && parts.iter().all(Option::is_none)) {
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

/// The body, of all that came in.
fn text(mut input: Vec<u8>, body: Range<usize>) -> Result<String, Failure> {
    input.truncate(body.end);
    input.drain(..body.start);
    String::from_utf8(input).map_err(|_| bad("no UTF-8"))
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
    let body = text(input, body)?;
    if body.trim_ascii().is_empty() {
        return Ok(Answers::default());
    }
    let (mut refused, mut is_answer) = (None, false);
    answers(&body, |answer| match answer.outcome {
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
