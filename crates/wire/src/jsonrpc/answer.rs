//! Answers, as a client reads them: strictly, because what does not fit is not to be guessed at.

use super::VERSION;
use crate::json::{Kind, SyntaxError, Text};
use std::borrow::Cow;
use std::fmt;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Of which call, as it is written; `null` where the server could not tell.
    pub id: &'a str,
    /// What came of it.
    pub outcome: Outcome<'a>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A result, as it is written.
    Result(&'a str),
    /// An error.
    Error {
        /// Its number.
        code: i64,
        /// For people.
        message: Cow<'a, str>,
        /// What else is said, as it is written.
        data: Option<&'a str>,
    },
}

/// Why a body is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerError {
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the answer is not JSON-RPC 2.0: {}", self.what)
    }
}

impl std::error::Error for AnswerError {}

impl From<SyntaxError> for AnswerError {
    fn from(syntax: SyntaxError) -> Self {
        Self { what: syntax.what }
    }
}

/// Calls `each` with every answer in a body, in order; whether they came as a batch.
///
/// ```
/// use thalweg_wire::jsonrpc::{Outcome, answers};
/// let body = r#"{"jsonrpc":"2.0","result":{"n":18446744073709551615},"id":1}"#;
/// answers(body, |answer| assert_eq!(answer.outcome, Outcome::Result(r#"{"n":18446744073709551615}"#)))?;
/// # Ok::<(), thalweg_wire::jsonrpc::AnswerError>(())
/// ```
///
/// # Errors
/// It is none; those before the fault were reported.
pub fn answers<'a>(body: &'a str, mut each: impl FnMut(Answer<'a>)) -> Result<bool, AnswerError> {
    let mut text = Text::new(body);
    if text.kind()? != Kind::Array {
        each(answer(&mut text)?);
        text.finish()?;
        return Ok(false);
    }
    let mut more = text.begin_array()?;
    while more {
        each(answer(&mut text)?);
        more = text.next_element()?;
    }
    text.finish()?;
    Ok(true)
}

fn wrong<T>(what: &'static str) -> Result<T, AnswerError> {
    Err(AnswerError { what })
}

fn fill<T>(slot: &mut Option<T>, value: T) -> Result<(), AnswerError> {
    if slot.replace(value).is_some() { wrong("a member is there twice") } else { Ok(()) }
}

fn answer<'a>(text: &mut Text<'a>) -> Result<Answer<'a>, AnswerError> {
    let (mut version, mut id, mut outcome) = (None, None, None);
    let mut more = text.begin_object()?;
    while more {
        match name(text)? {
            Name::Version => {
                let is_ours = text.passes(VERSION) || text.value()? == VERSION;
                fill(&mut version, is_ours)?;
            }
            Name::Id => fill(&mut id, self::id(text)?)?,
            Name::Result => fill(&mut outcome, Outcome::Result(text.value()?))?,
            Name::Error => fill(&mut outcome, error(text)?)?,
            Name::Other => drop(text.value()?),
        }
        more = text.next_member()?;
    }
    match (version, id, outcome) {
        (Some(true), Some(id), Some(outcome)) => Ok(Answer { id, outcome }),
        (Some(true), None, _) => wrong("no id"),
        (Some(true), _, None) => wrong("neither result nor error"),
        _ => wrong("no version 2.0"),
    }
}

/// An id, as it is written.
#[inline]
fn id<'a>(text: &mut Text<'a>) -> Result<&'a str, AnswerError> {
    // As our client has them.
    if let Some(written) = text.unsigned_written() {
        return Ok(written);
    }
    let kind = text.kind()?;
    let written = text.value()?;
    match kind {
        Kind::String | Kind::Number | Kind::Null => Ok(written),
        _ => wrong("an id that can be none"),
    }
}

/// The name of a member.
enum Name {
    Version,
    Id,
    Result,
    Error,
    Other,
}

/// The next member's name, and the colon. Names are compared as they are written: one with escapes is another
/// name here, since servers write these without any.
#[inline]
fn name(text: &mut Text<'_>) -> Result<Name, SyntaxError> {
    if text.passes(r#""jsonrpc":"#) {
        return Ok(Name::Version);
    }
    if text.passes(r#""result":"#) {
        return Ok(Name::Result);
    }
    if text.passes(r#""id":"#) {
        return Ok(Name::Id);
    }
    Ok(match text.key()?.raw() {
        "jsonrpc" => Name::Version,
        "result" => Name::Result,
        "id" => Name::Id,
        "error" => Name::Error,
        _ => Name::Other,
    })
}

fn error<'a>(text: &mut Text<'a>) -> Result<Outcome<'a>, AnswerError> {
    let (mut code, mut message, mut data) = (None, None, None);
    let mut more = text.begin_object()?;
    while more {
        match text.key()?.raw() {
            "code" => {
                let number = text.number()?.parse().or_else(|_| wrong("an error's code is no integer"))?;
                fill(&mut code, number)?;
            }
            "message" => fill(&mut message, text.string()?.text())?,
            "data" => fill(&mut data, text.value()?)?,
            _ => drop(text.value()?),
        }
        more = text.next_member()?;
    }
    match (code, message) {
        (Some(code), Some(message)) => Ok(Outcome::Error { code, message, data }),
        _ => wrong("an error without code and message"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_answer_is_refused() {
        for body in [
            "",
            "1",
            "{}",
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","result":1}"#,
            r#"{"result":1,"id":1}"#,
            r#"{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":1}"#,
            r#"{"jsonrpc":"2.0","result":1,"result":1,"id":1}"#,
            r#"{"jsonrpc":"2.0","error":{"code":"1","message":""},"id":1}"#,
            r#"{"jsonrpc":"2.0","error":{"code":1},"id":1}"#,
            r#"{"jsonrpc":"2.0","result":1,"id":[]}"#,
            r#"{"jsonrpc":"2.0","result":1,"id":1} x"#,
        ] {
            assert!(answers(body, |_| {}).is_err(), "{body}");
        }
    }

    #[test]
    fn a_batch_is_read_in_order() {
        let body = r#"[{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"\u0041","data":[1]}},{"id":2,"result":null,"jsonrpc":"2.0"}]"#;
        let mut seen = Vec::new();
        assert_eq!(answers(body, |answer| seen.push(answer)), Ok(true));
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].outcome, Outcome::Error { code: -1, message: "A".into(), data: Some("[1]") });
        assert_eq!((seen[1].id, &seen[1].outcome), ("2", &Outcome::Result("null")));
        // With blanks where they may be, it is the same.
        let (blanks, mut again) = (body.replace(':', " : ").replace(',', " , "), Vec::new());
        assert_eq!(answers(&blanks, |answer| again.push(answer)), Ok(true));
        assert_eq!((again.len(), &again[1]), (2, &seen[1]));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(body in any::<String>()) {
            let _ = answers(&body, |_| {});
        }
    }
}
