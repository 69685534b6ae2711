//! Methods that every service has: what it is, and, where that is allowed, that it be slow for once.

use crate::answer;
use crate::gateway::Bounds;
use crate::plan::Plan;
use crate::request::FieldError;
use std::time::Duration;
use thalweg_wire::hex::Hex;
use thalweg_wire::json::{SyntaxError, Text};
use thalweg_wire::jsonrpc::{Call, Id, Params, write};

/// Has the next body wait, so that a client can be held against a slow server.
const DELAY: &str = "rpc.delay";
/// What it takes.
const MILLISECONDS: &str = "milliseconds";

/// Carries out what has an effect: how long the next body is to wait, if this says so.
pub(crate) fn delay(call: &Call<'_>, bounds: &Bounds) -> Option<Result<Duration, FieldError>> {
    (call.method == DELAY && !bounds.delay_max.is_zero())
        .then(|| milliseconds(call.params).and_then(|time| within(time, bounds.delay_max)))
}

fn milliseconds(params: Params<'_>) -> Result<Duration, FieldError> {
    let written = match params {
        Params::Absent => None,
        Params::Positions(text) => only_element(text).ok().flatten(),
        Params::Names(text) => only_member(text, MILLISECONDS).ok().flatten(),
    };
    let what = "one whole number, and nothing else, is expected";
    let error = || FieldError { field: MILLISECONDS.to_owned(), what: what.into() };
    written.and_then(|written| written.parse().ok()).map(Duration::from_millis).ok_or_else(error)
}

/// The element of an array that has no other.
fn only_element(array: &str) -> Result<Option<&str>, SyntaxError> {
    let mut text = Text::new(array);
    if !text.begin_array()? {
        return Ok(None);
    }
    let value = text.value()?;
    Ok((!text.next_element()?).then_some(value))
}

/// The member of an object that has no other, not even the same once more.
fn only_member<'t>(object: &'t str, name: &str) -> Result<Option<&'t str>, SyntaxError> {
    let mut text = Text::new(object);
    if !text.begin_object()? || text.key()?.text() != name {
        return Ok(None);
    }
    let value = text.value()?;
    Ok((!text.next_member()?).then_some(value))
}

fn within(time: Duration, most: Duration) -> Result<Duration, FieldError> {
    if time <= most {
        return Ok(time);
    }
    let what = format!("{} ms at most", most.as_millis());
    Err(FieldError { field: MILLISECONDS.to_owned(), what: what.into() })
}

/// Says that it was done.
pub(crate) fn null(out: &mut Vec<u8>, id: Id<'_>) {
    write::begin_result(out);
    out.extend_from_slice(b"null");
    write::end(out, id);
}

/// Answers any other.
pub(crate) fn answer(plan: &Plan, description: &[u8], call: &Call<'_>, id: Id<'_>, out: &mut Vec<u8>) {
    // A bracket on either side, and nothing in between.
    let takes_none = |params: &str| params.bytes().filter(|byte| !byte.is_ascii_whitespace()).count() == 2;
    let fits = match call.params {
        Params::Absent => true,
        Params::Positions(params) | Params::Names(params) => takes_none(params),
    };
    match call.method.as_ref() {
        "rpc.discover" | "rpc.version" if !fits => {
            let error = FieldError { field: "params".to_owned(), what: "there are no parameters".into() };
            answer::field_error(out, id, &error);
        }
        "rpc.discover" => {
            write::begin_result(out);
            out.extend_from_slice(description);
            write::end(out, id);
        }
        "rpc.version" => {
            write::begin_result(out);
            out.extend_from_slice(version(plan).as_bytes());
            write::end(out, id);
        }
        method => answer::unknown(out, id, plan, method),
    }
}

fn version(plan: &Plan) -> String {
    let hash = Hex(&plan.hash);
    format!(
        "{{\"service\":\"{}\",\"version\":\"{}\",\"schema\":\"{hash}\"}}",
        plan.name,
        env!("CARGO_PKG_VERSION")
    )
}
