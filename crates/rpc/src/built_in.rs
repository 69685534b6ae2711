//! Methods that every service has: what it is, and, where that is allowed, that it be slow for once.

use crate::answer;
use crate::gateway::Bounds;
use crate::plan::Plan;
use crate::request::Unfit;
use serde_json::Value;
use std::time::Duration;
use thalweg_wire::jsonrpc::{Call, Id, Params, write};

/// Has the next body wait, so that a client can be held against a slow server.
const DELAY: &str = "rpc.delay";

/// Carries out what has an effect: how long the next body is to wait, if this says so.
pub(crate) fn delay(call: &Call<'_>, bounds: &Bounds) -> Option<Result<Duration, Unfit>> {
    (call.method == DELAY && !bounds.delay_max.is_zero())
        .then(|| milliseconds(call.params).and_then(|time| within(time, bounds.delay_max)))
}

fn milliseconds(params: Params<'_>) -> Result<Duration, Unfit> {
    let number = match params {
        Params::Absent => None,
        Params::Positions(text) | Params::Names(text) => match serde_json::from_str(text) {
            Ok(Value::Array(values)) if values.len() == 1 => values[0].as_u64(),
            Ok(Value::Object(fields)) if fields.len() == 1 => {
                fields.get("milliseconds").and_then(Value::as_u64)
            }
            _ => None,
        },
    };
    let what = "one whole number, and nothing else, is expected";
    let unfit = || Unfit { field: "milliseconds".to_owned(), what: what.into() };
    number.map(Duration::from_millis).ok_or_else(unfit)
}

fn within(time: Duration, most: Duration) -> Result<Duration, Unfit> {
    if time <= most {
        return Ok(time);
    }
    let what = format!("{} ms at most", most.as_millis());
    Err(Unfit { field: "milliseconds".to_owned(), what: what.into() })
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
            let unfit = Unfit { field: "params".to_owned(), what: "there are no parameters".into() };
            answer::unfit(out, id, &unfit);
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
    let hash: String = plan.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{{\"service\":\"{}\",\"version\":\"{}\",\"schema\":\"{hash}\"}}",
        plan.name,
        env!("CARGO_PKG_VERSION")
    )
}
