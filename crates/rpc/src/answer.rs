//! What came of a call, as the answer that is sent.

use crate::mount::fault_of;
use crate::pending::{Items, StreamFailure};
use crate::plan::{Method, Plan};
use crate::request::FieldError;
use crate::response::{self, DecodedResponse};
use thalweg_service::Error;
use thalweg_wire::excerpt::excerpt;
use thalweg_wire::fault::Fault;
use thalweg_wire::json::write as json;
use thalweg_wire::jsonrpc::{self, Id, InvalidRequest, write};
use thalweg_wire::messagepack::DecodeErrorKind;

/// What is said of an answer that there is no room for beside all others that wait.
pub(crate) const NO_ROOM: &str =
    "the call was made, and there is no room for its answer: others that wait take all of it";

/// The end of a call: a fault's code or 0, and the frame that came with it.
pub(crate) fn ended(
    plan: &Plan,
    method: &Method,
    items: &Items,
    id: Id<'_>,
    code: u16,
    frame: &[u8],
    out: &mut Vec<u8>,
) {
    if let Some(broken) = &items.broken {
        return match broken {
            StreamFailure::TooMany => fault(
                out,
                id,
                Fault::Overrun,
                "the stream has more items than one answer holds: call over a socket",
            ),
            StreamFailure::NoRoom => fault(out, id, Fault::Overrun, NO_ROOM),
            StreamFailure::Unfit(why) => fault(out, id, Fault::BadAnswer, why),
        };
    }
    if code != 0 {
        let code = fault_of(code);
        return match response::words(frame) {
            Some(words) if !words.is_empty() => fault(out, id, code, &words),
            _ => fault(out, id, code, code.says()),
        };
    }
    let start = out.len();
    write::begin_result(out);
    if method.item.is_some() {
        out.extend_from_slice(b"{\"items\":[");
        out.extend_from_slice(items.bytes.strip_suffix(b",").unwrap_or_default());
        out.extend_from_slice(b"],\"end\":");
    }
    match response::decode(plan, &method.response, frame, usize::MAX, out) {
        Ok(DecodedResponse::Fields) => {
            if method.item.is_some() {
                out.push(b'}');
            }
            write::end(out, id);
        }
        Ok(DecodedResponse::Refusal(words)) => {
            out.truncate(start);
            fault(out, id, Fault::Refused, &words);
        }
        Err(error) => {
            out.truncate(start);
            fault(out, id, Fault::BadAnswer, &error.to_string());
        }
    }
}

/// An item of a stream, of which at most so many items and so many bytes are collected.
pub(crate) fn item(plan: &Plan, method: &Method, items: &mut Items, most: (usize, usize), frame: &[u8]) {
    let Items { bytes, count, broken } = items;
    if broken.is_some() {
        return;
    }
    let Some(message) = &method.item else {
        *broken = Some(StreamFailure::Unfit("an item of what is no stream".to_owned()));
        return;
    };
    let room = most.1.saturating_sub(bytes.len());
    match response::decode(plan, message, frame, room, bytes) {
        Ok(DecodedResponse::Fields) => bytes.push(b','),
        Ok(DecodedResponse::Refusal(_)) => {
            *broken = Some(StreamFailure::Unfit("an item that is an error".to_owned()))
        }
        Err(error) if error.kind == DecodeErrorKind::Memory && room < response::json_bytes_max(frame) => {
            *broken = Some(StreamFailure::TooMany);
        }
        Err(error) => *broken = Some(StreamFailure::Unfit(error.to_string())),
    }
    *count += 1;
    if *count > most.0 || bytes.len() > most.1 {
        *broken = Some(StreamFailure::TooMany);
    }
    if broken.is_some() {
        *bytes = Vec::new();
    }
}

/// A fault, by its number in the one table.
pub(crate) fn fault(out: &mut Vec<u8>, id: Id<'_>, fault: Fault, message: &str) {
    write::error(out, id, fault.rpc_code(), message, |data| {
        begin_data(data, fault);
        data.push(b'}');
    });
}

/// What every fault says of itself. Whether what a service refused would be refused again only the service's
/// own words tell.
fn begin_data(data: &mut Vec<u8>, fault: Fault) {
    let mut put = |parts: [&str; 3]| parts.iter().for_each(|part| data.extend_from_slice(part.as_bytes()));
    put(["{\"fault\":\"", fault.word(), "\""]);
    if fault != Fault::Refused {
        put([",\"retry\":\"", fault.retry().word(), "\""]);
    }
}

/// A call that could not be made.
pub(crate) fn failed(out: &mut Vec<u8>, id: Id<'_>, error: &Error) {
    fault(out, id, error.fault, &error.to_string());
}

/// An object that is no request.
pub(crate) fn invalid(out: &mut Vec<u8>, invalid: &InvalidRequest<'_>) {
    let field = excerpt(invalid.field);
    let message = format!("{field}: {}", invalid.what);
    write::error(out, invalid.id, jsonrpc::INVALID_REQUEST, &message, |data| {
        data.extend_from_slice(b"{\"field\":");
        json::string(data, field);
        data.push(b'}');
    });
}

/// Parameters that do not fit.
pub(crate) fn field_error(out: &mut Vec<u8>, id: Id<'_>, error: &FieldError) {
    let field = excerpt(&error.field);
    let message = format!("{field}: {}", error.what);
    write::error(out, id, Fault::BadRequest.rpc_code(), &message, |data| {
        begin_data(data, Fault::BadRequest);
        data.extend_from_slice(b",\"field\":");
        json::string(data, field);
        data.push(b'}');
    });
}

/// A name that is no method's.
pub(crate) fn unknown(out: &mut Vec<u8>, id: Id<'_>, plan: &Plan, method: &str) {
    let message = format!("{} has no method {:?}: rpc.discover lists them", plan.name, excerpt(method));
    fault(out, id, Fault::UnknownCommand, &message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_stops_where_the_room_for_its_stream_ends() {
        let fields: Vec<String> = (0..200).map(|n| format!("\"a_field_{n}\": \"u8?\"")).collect();
        let text = format!(
            r#"{{ "service": "Wide", "error": {{ "message": "string" }}, "types": {{ "Row": {{ {} }} }},
                "commands": {{ "Get": {{ "request": {{}}, "stream": {{ "rows": "Row[]" }}, "response": {{}} }} }} }}"#,
            fields.join(", ")
        );
        let plan = Plan::of(&thalweg_schema::parse("wide.jsonc", &text).unwrap());
        let frame = |rows: u8| {
            [b"\x92\xabWideGetItem\x81\xa4rows\xdc\x00", &[rows][..], &vec![0x80; rows.into()]].concat()
        };
        let mut items = Items::default();
        item(&plan, &plan.methods[0], &mut items, (10, 20_000), &frame(1));
        assert_eq!((items.count, &items.broken), (1, &None));
        // What is wrong behind the bound is not come to.
        let wrong = [frame(200), vec![0]].concat();
        item(&plan, &plan.methods[0], &mut items, (10, 20_000), &wrong);
        assert_eq!((&items.broken, items.bytes.capacity()), (&Some(StreamFailure::TooMany), 0));
    }
}
