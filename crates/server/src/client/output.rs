//! What verbs print: text for people, or JSON, one object or a line per object, for programs.

use super::failure::Failure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use thalweg_sys::standard::wait_until_unread;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people and pipes.
    Text,
    /// For programs: one object, or one per line.
    Json,
}

impl Output {
    /// Prints a result in the form that was asked for.
    ///
    /// # Errors
    /// Standard output cannot be written. A reader that closed it is no error.
    pub(crate) fn say(self, text: impl Display, json: impl Serialize) -> Result<(), Failure> {
        self.line(text, json).map(|_| ())
    }

    /// As [`Output::say`]; `None` once its reader has closed it.
    pub(crate) fn line(self, text: impl Display, json: impl Serialize) -> Result<Option<()>, Failure> {
        let mut out = io::stdout().lock();
        let mut bytes = match self {
            Self::Text => text.to_string().into_bytes(),
            Self::Json => one_line(&json)?,
        };
        if !bytes.ends_with(b"\n") && !bytes.is_empty() {
            bytes.push(b'\n');
        }
        written(out.write_all(&bytes).and_then(|()| out.flush()))
    }

    /// Reports progress to the user on standard error, in the form that was asked for.
    pub(super) fn tell(self, text: impl Display) {
        match self {
            Self::Text => notice(format_args!("thalweg: {text}")),
            Self::Json => notice(json!({ "notice": text.to_string() })),
        }
    }
}

/// Has the program end with 0 once the reader of standard output has closed it, whatever it waits for then.
///
/// # Errors
/// No thread can be started to watch it.
pub(super) fn end_when_unread() -> Result<(), Failure> {
    let watch = || {
        if wait_until_unread(io::stdout().as_fd()).is_ok() {
            std::process::exit(0)
        }
    };
    let started = std::thread::Builder::new().name("output".into()).spawn(watch);
    started.map(drop).map_err(Failure::Output)
}

fn one_line(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(value).map_err(|error| Failure::Output(error.into()))?;
    // Only raw messages bring line ends along, and in JSON those stand between tokens only.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    Ok(line)
}

/// Says something on standard error, a line at once. A closed standard error is no failure: what is under way
/// goes on.
pub(crate) fn notice(text: impl Display) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// What a write to standard output came to; `None` when the reader at its other end has had enough.
pub(super) fn written(outcome: io::Result<()>) -> Result<Option<()>, Failure> {
    match outcome {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
        Err(error) => Err(Failure::Output(error)),
    }
}

/// Part of a stream, as a line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    next_offset: &'a str,
    closed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<&'a RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Prints a stream's content as it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printer {
    pub(super) output: Output,
    /// The stream holds JSON messages, which come as arrays.
    pub(super) messages: bool,
}

impl Printer {
    /// Prints what came up to `next`, unless that is nothing and the stream is open. `None` when the output
    /// has no reader any more.
    ///
    /// # Errors
    /// [`Failure::Event`] for messages that are no JSON array; standard output cannot be written.
    pub(super) fn print(self, content: &[u8], next: &str, closed: bool) -> Result<Option<()>, Failure> {
        let messages = self.messages_in(content)?;
        let is_empty = messages.as_ref().map_or(content.is_empty(), Vec::is_empty);
        if is_empty && !closed { Ok(Some(())) } else { self.print_part(content, messages, next, closed) }
    }

    /// As [`Printer::print`], also of a part that is empty: a program learns the offset at which to continue.
    pub(super) fn print_whatever_came(
        self,
        content: &[u8],
        next: &str,
        closed: bool,
    ) -> Result<Option<()>, Failure> {
        self.print_part(content, self.messages_in(content)?, next, closed)
    }

    /// The messages of a part, of a stream that holds some.
    fn messages_in(self, content: &[u8]) -> Result<Option<Vec<&RawValue>>, Failure> {
        if self.messages { messages(content).map(Some) } else { Ok(None) }
    }

    fn print_part(
        self,
        content: &[u8],
        messages: Option<Vec<&RawValue>>,
        next: &str,
        closed: bool,
    ) -> Result<Option<()>, Failure> {
        let mut out = Vec::with_capacity(content.len() + 2);
        match (self.output, messages) {
            (Output::Json, messages) => {
                let text = if messages.is_none() { std::str::from_utf8(content).ok() } else { None };
                let base64 = (messages.is_none() && text.is_none()).then(|| STANDARD.encode(content));
                out = one_line(&Part { next_offset: next, closed, messages, text, base64 })?;
            }
            (Output::Text, Some(messages)) => {
                for message in messages {
                    out.extend(one_line(&message)?);
                }
            }
            (Output::Text, None) => out.extend_from_slice(content),
        }
        let mut stdout = io::stdout().lock();
        written(stdout.write_all(&out).and_then(|()| stdout.flush()))
    }
}

/// The messages of a JSON array, as they are written in it. Nothing at all is no message.
///
/// # Errors
/// [`Failure::Event`].
pub(super) fn messages(content: &[u8]) -> Result<Vec<&RawValue>, Failure> {
    if content.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(content).map_err(|error| Failure::Event(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_digits_and_lose_their_line_ends() {
        let found = messages(b"[1.00, {\"a\":\n 12345678901234567890},\"x\"]").unwrap();
        assert_eq!(found.iter().map(|m| m.get()).collect::<Vec<_>>()[0], "1.00");
        assert_eq!(one_line(&found[1]).unwrap(), b"{\"a\":  12345678901234567890}\n");
        assert!(messages(b"").unwrap().is_empty() && messages(b"{}").is_err());
    }

    #[test]
    fn a_part_is_text_where_it_can_be() {
        let part = Part { next_offset: "5", closed: false, messages: None, text: Some("a\nb"), base64: None };
        assert_eq!(one_line(&part).unwrap(), b"{\"nextOffset\":\"5\",\"closed\":false,\"text\":\"a\\nb\"}\n");
    }
}
