//! The process that waits for what comes of a call, and the message that tells it.
//!
//! A waiter keeps a [`Letter`]: first its reference lives in it, then the message is written there and leaves
//! without another copy. Letters of waiters that were answered are used again.

use crate::atoms::atoms;
use crate::connection::Lines;
use crate::decode;
use crate::enif::{Pid, RawTerm};
use crate::generated::types::{Kind, PythonAttendItem, PythonResponse};
use crate::term::{Env, Letter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thalweg_service::{Error, EventKind};
use thalweg_wire::fault::Fault;

/// What the frames that answer a call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Of a service that we know nothing of: as it is.
    Frame,
    /// The same of a stream.
    Frames,
    /// What Python came to.
    Outcome,
    /// One of several that are told of together: which, and at which place.
    Part(u64, usize),
    /// What a generator brings.
    Values,
    /// What a worker says by itself.
    Events,
    /// That something was done, which is not told.
    Nothing,
    /// That something was taken notice of which had to be told, however many calls are in flight.
    Notice,
}

impl Expect {
    /// More than one frame may come, and no router need hurry for them.
    pub(crate) const fn is_patient(self) -> bool {
        matches!(self, Self::Events | Self::Values | Self::Frames)
    }

    /// Is given up when its process ends, of which there is no message.
    pub(crate) const fn is_awaited(self) -> bool {
        matches!(self, Self::Frame | Self::Outcome | Self::Part(..))
    }

    /// Is made only while there is room for a call.
    pub(crate) const fn is_bounded(self) -> bool {
        !matches!(self, Self::Events | Self::Notice)
    }
}

/// One waiter.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) pid: Pid,
    pub(crate) letter: Letter,
    /// In the letter.
    pub(crate) reference: RawTerm,
    pub(crate) expect: Expect,
    /// Frames of its that are kept to be read apart.
    pub(crate) held: usize,
}

/// What an event is for its waiter, in an environment.
pub(crate) struct Delivery {
    /// What it comes to.
    pub(crate) term: RawTerm,
    /// Nothing more will come.
    pub(crate) is_last: bool,
}

/// Says what came of a call: `{ok, Value}`, `{error, Reason}`, of a stream also `{data, Value}` and `done`.
/// An error is the last that is told of a stream, be it that one of its values has no term. So is
/// `{error, panicked}`, where the frame was not read to its end: its waiter is told that instead of nothing.
pub(crate) fn tell(env: Env, expect: Expect, kind: &EventKind, frame: &[u8]) -> Delivery {
    told(env, || read(env, expect, kind, frame))
}

fn told(env: Env, read: impl FnOnce() -> Delivery) -> Delivery {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Delivery { term: panicked(env), is_last: true })
}

/// `{error, panicked}`.
pub(crate) fn panicked(env: Env) -> RawTerm {
    let known = atoms(env);
    pair(env, known.error, known.panicked)
}

fn read(env: Env, expect: Expect, kind: &EventKind, frame: &[u8]) -> Delivery {
    match kind {
        // A service that refuses says so in words of its own, which generated code reads as any other answer.
        EventKind::Failed(error)
            if error.fault == Fault::Refused && is_foreign(expect) && !frame.is_empty() =>
        {
            Delivery { term: end(env, expect, frame), is_last: true }
        }
        EventKind::Failed(error) => Delivery { term: failure(env, error), is_last: true },
        EventKind::Item => item(env, expect, frame),
        EventKind::End => Delivery { term: end(env, expect, frame), is_last: true },
    }
}

const fn is_foreign(expect: Expect) -> bool {
    matches!(expect, Expect::Frame | Expect::Frames)
}

fn pair(env: Env, tag: RawTerm, value: RawTerm) -> RawTerm {
    env.make_tuple(&[tag, value])
}

fn item(env: Env, expect: Expect, frame: &[u8]) -> Delivery {
    let known = atoms(env);
    let value = match expect {
        Expect::Frames => Ok(pair(env, known.frame, env.make_binary(frame))),
        _ => match PythonResponse::decode(frame) {
            Ok(PythonResponse::GenerateItem(item)) => match decode::term(env, &item.value) {
                Ok(value) => Ok(pair(env, known.data, value)),
                Err(wrong) => Err(no_value(env, &wrong.0)),
            },
            _ => Err(pair(env, known.fault, env.atom("bad_frame"))),
        },
    };
    match value {
        Ok(term) => Delivery { term, is_last: false },
        Err(reason) => Delivery { term: pair(env, known.error, reason), is_last: true },
    }
}

fn end(env: Env, expect: Expect, frame: &[u8]) -> RawTerm {
    let known = atoms(env);
    if is_foreign(expect) {
        return pair(env, known.ok, env.make_binary(frame));
    }
    match PythonResponse::decode(frame) {
        Ok(PythonResponse::InvokeResponse(outcome)) => match decode::term(env, &outcome.value) {
            Ok(_) if outcome.ok && expect == Expect::Values => known.done,
            Ok(value) => pair(env, if outcome.ok { known.ok } else { known.error }, value),
            Err(wrong) => pair(env, known.error, no_value(env, &wrong.0)),
        },
        Ok(PythonResponse::ErrorResponse(error)) => {
            let words = env.make_binary(error.message.as_bytes());
            pair(env, known.error, pair(env, known.refused, words))
        }
        Ok(_) => known.ok,
        Err(wrong) => {
            let words = env.make_binary(wrong.to_string().as_bytes());
            pair(env, known.error, env.make_tuple(&[known.fault, env.atom("bad_frame"), words]))
        }
    }
}

/// What has no value over here.
pub(crate) fn no_value(env: Env, what: &str) -> RawTerm {
    pair(env, atoms(env).no_erlang_value, env.make_binary(what.as_bytes()))
}

/// `{error, {fault, Name, Detail}}`.
pub(crate) fn failure(env: Env, error: &Error) -> RawTerm {
    let known = atoms(env);
    let name = env.atom(error.fault.word());
    let detail = env.make_binary(error.to_string().as_bytes());
    pair(env, known.error, env.make_tuple(&[known.fault, name, detail]))
}

/// `{error, {overloaded, Current, Max}}` of the bound that was reached, or as any other failure.
pub(crate) fn refusal(env: Env, error: &Error, (current, most): (u64, u64)) -> RawTerm {
    if error.fault != Fault::Overloaded {
        return failure(env, error);
    }
    let known = atoms(env);
    let numbers = [known.overloaded, env.make_natural(current), env.make_natural(most)];
    pair(env, known.error, env.make_tuple(&numbers))
}

/// What a worker said by itself, for its keeper; what it sends to a process goes straight there.
pub(crate) fn event(
    caller: Env,
    waiter: &mut Waiter,
    lines: &mut Lines,
    kind: &EventKind,
    frame: &[u8],
) -> bool {
    let (pid, reference) = (waiter.pid, waiter.reference);
    let env = waiter.letter.env();
    let Some(item) = attended(kind, frame) else {
        waiter.letter.send(caller, &pid, down(env, reference));
        return true;
    };
    if line_of(&item).is_some_and(|bytes| !lines.admit(bytes)) {
        return false;
    }
    let (to, message) = message_of(env, &item, pid);
    waiter.letter.send(caller, &to, message);
    // The letter was emptied, its reference with it: events are told apart by their kind.
    waiter.reference = atoms(env).undefined;
    false
}

/// What a frame has a worker say, unless it is the end of all that it says.
pub(crate) fn attended<'f>(kind: &EventKind, frame: &'f [u8]) -> Option<PythonAttendItem<'f>> {
    if !matches!(kind, EventKind::Item) {
        return None;
    }
    match catch_unwind(|| PythonResponse::decode(frame)) {
        Ok(Ok(PythonResponse::AttendItem(item))) => Some(item),
        _ => None,
    }
}

/// The message that nothing more will be heard of a worker.
pub(crate) fn down(env: Env, reference: RawTerm) -> RawTerm {
    let known = atoms(env);
    env.make_tuple(&[known.thalweg_event, reference, known.down])
}

/// The bytes of a line of a log, if it is one.
pub(crate) fn line_of(item: &PythonAttendItem<'_>) -> Option<usize> {
    (item.kind == Kind::Log).then_some(item.value.len())
}

/// The message that an item is, and whose. Of one that has no term, or whose reading panics, the keeper is
/// told: it answers what waits for an answer.
pub(crate) fn message_of(env: Env, item: &PythonAttendItem<'_>, keeper: Pid) -> (Pid, RawTerm) {
    let known = atoms(env);
    let kind = env.atom(item.kind.word());
    let wrong = match catch_unwind(|| decode::term(env, &item.value)) {
        Ok(Ok(value)) => return addressed(env, (kind, item.number, value), keeper),
        Ok(Err(wrong)) => no_value(env, &wrong.0),
        Err(_) => known.panicked,
    };
    (keeper, env.make_tuple(&[known.thalweg_event, known.error, env.make_natural(item.number), wrong]))
}

fn addressed(env: Env, (kind, number, value): (RawTerm, u64, RawTerm), keeper: Pid) -> (Pid, RawTerm) {
    let known = atoms(env);
    if kind == known.send {
        let target = env.tuple(value).and_then(|pair| match pair {
            [to, message] => Some((env.pid(*to)?, *message)),
            _ => None,
        });
        if let Some((to, message)) = target {
            return (to, message);
        }
        // A process of another node: the keeper sends it on.
    }
    (keeper, env.make_tuple(&[known.thalweg_event, kind, env.make_natural(number), value]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{self, Value};

    #[test]
    fn a_reading_that_panics_tells_its_waiter() {
        let env = machine::env();
        let Delivery { term, is_last } = told(env, || panic!("on purpose"));
        assert_eq!(machine::value(term), Value::tuple([Value::atom("error"), Value::atom("panicked")]));
        assert!(is_last, "the rest of the frame is unread, so that nothing more can be told");
    }
}
