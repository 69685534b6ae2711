//! Frames to JSON, a response's to a result and a request's to parameters: one walk over the frame, driven by
//! the schema, straight into the answer.
//!
//! The frame comes from a handler of ours or from a service elsewhere, and is trusted no more than a
//! request's: what the schema does not have is no answer.

use crate::plan::{Message, Method, Plan, Seen, Shape, Struct};
use std::collections::HashSet;
use std::fmt::Write;
use thalweg_wire::json::write as json;
use thalweg_wire::messagepack::{DecodeError, Reader, Wrong};

/// What a frame says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// What it should; its fields were appended as an object.
    Fields,
    /// That the service refused, in these words.
    Refusal(String),
}

/// Appends the fields of a response or an item as an object, unless the frame is the service's error.
///
/// # Errors
/// It is neither; nothing was appended.
pub(crate) fn decode(
    plan: &Plan,
    message: &Message,
    frame: &[u8],
    out: &mut Vec<u8>,
) -> Result<Says, DecodeError> {
    let mut reader = Reader::new(frame);
    let tag = reader.response()?;
    if tag != message.tag.as_bytes() {
        if tag == plan.error_tag.as_bytes() {
            return refusal(&mut reader).map(Says::Refusal);
        }
        return Err(reader.refuse(Wrong::UnknownMessage, "frame"));
    }
    let start = out.len();
    let walked = fields(plan, &message.fields, &mut reader, out).and_then(|()| reader.finish());
    match walked {
        Ok(()) => Ok(Says::Fields),
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Appends the fields of a request as an object, and says which command it is of.
///
/// # Errors
/// It is no request of this service; nothing was appended.
pub(crate) fn decode_request<'p>(
    plan: &'p Plan,
    frame: &[u8],
    out: &mut Vec<u8>,
) -> Result<(&'p str, &'p Method), DecodeError> {
    let mut reader = Reader::new(frame);
    let tag = reader.request()?;
    let (name, method) = plan.of_tag(tag).ok_or_else(|| reader.refuse(Wrong::UnknownMessage, "frame"))?;
    let start = out.len();
    let walked = fields(plan, &method.request.fields, &mut reader, out).and_then(|()| reader.finish());
    walked.inspect_err(|_| out.truncate(start))?;
    Ok((name, method))
}

/// The words in which a service refuses: its error has one field, and a fault's frame is such an error, too.
#[cfg(feature = "server")]
pub(crate) fn words(frame: &[u8]) -> Option<String> {
    let mut reader = Reader::new(frame);
    reader.response().and_then(|_| refusal(&mut reader)).ok()
}

fn refusal(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let mut message = None;
    for _ in 0..reader.fields("error")? {
        match reader.key()? {
            b"message" => reader.field(&mut message, "error.message", Reader::string)?,
            _ => return Err(reader.refuse(Wrong::UnknownField, "error")),
        }
    }
    reader.finish()?;
    reader.required(message, "error.message").map(|message| message.into_owned())
}

fn fields(
    plan: &Plan,
    fields: &Struct,
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let mut seen = Seen::none_of(fields);
    out.push(b'{');
    for count in 0..reader.fields("fields")? {
        let name = reader.key()?;
        let place = fields.find(name, count).ok_or_else(|| reader.refuse(Wrong::UnknownField, "fields"))?;
        if !seen.note(place) {
            return Err(reader.refuse(Wrong::Duplicate, "fields"));
        }
        let field = &fields.fields[place];
        out.extend_from_slice(&field.label);
        value(plan, &field.shape, reader, out)?;
        out.push(b',');
    }
    for (place, field) in fields.fields.iter().enumerate() {
        if seen.has(place) {
            continue;
        }
        if !field.is_optional() {
            return Err(reader.refuse(Wrong::Missing, "fields"));
        }
        // What is absent is null, so that every answer has every field.
        out.extend_from_slice(&field.label);
        out.extend_from_slice(b"null,");
    }
    close(out, b'{', b'}');
    Ok(())
}

/// Ends what was written with a comma behind each part.
fn close(out: &mut Vec<u8>, open: u8, end: u8) {
    match out.last_mut() {
        Some(last) if *last == b',' => *last = end,
        _ => {
            debug_assert_eq!(out.last(), Some(&open), "nothing else stands behind nothing");
            out.push(end);
        }
    }
}

fn value(plan: &Plan, shape: &Shape, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    match shape {
        Shape::Bool => out.extend_from_slice(if reader.boolean()? { b"true" } else { b"false" }),
        Shape::Unsigned(bits) => match reader.u64()? {
            number if number <= u64::MAX >> (64 - bits) => json::unsigned(out, number),
            _ => return Err(reader.refuse(Wrong::Range, "fields")),
        },
        Shape::Signed(bits) => match reader.i64()? {
            number if number == number << (64 - bits) >> (64 - bits) => json::signed(out, number),
            _ => return Err(reader.refuse(Wrong::Range, "fields")),
        },
        Shape::F32 => {
            let number = reader.f32()?;
            float(
                out,
                number.is_nan(),
                f64::from(number),
                format_args!("{number}"),
                format_args!("{number:e}"),
            );
        }
        Shape::F64 => {
            let number = reader.f64()?;
            float(out, number.is_nan(), number, format_args!("{number}"), format_args!("{number:e}"));
        }
        Shape::String => json::string(out, &reader.string()?),
        Shape::Bytes => json::base64(out, &reader.bytes()?),
        Shape::Bin32 => json::base64(out, &reader.bin32()?),
        Shape::Enum(place) => {
            let word = reader.string()?;
            if !plan.words(*place).iter().any(|known| *known == *word) {
                return Err(reader.refuse(Wrong::UnknownWord, "fields"));
            }
            json::string(out, &word);
        }
        Shape::Struct(place) => fields(plan, plan.structure(*place), reader, out)?,
        Shape::Optional(of) => {
            if !reader.nil() {
                return value(plan, of, reader, out);
            }
            out.extend_from_slice(b"null");
        }
        Shape::List(of) => {
            let count = reader.begin_list(1)?;
            elements(plan, of, count, reader, out)?;
        }
        Shape::Array(of, count) => {
            reader.begin_array(*count)?;
            elements(plan, of, *count, reader, out)?;
        }
        Shape::Map(of) => {
            let count = reader.begin_map(1)?;
            out.push(b'{');
            let mut keys = HashSet::new();
            for _ in 0..count {
                let key = reader.string()?;
                json::string(out, &key);
                out.push(b':');
                value(plan, of, reader, out)?;
                out.push(b',');
                if !keys.insert(key) {
                    return Err(reader.refuse(Wrong::Duplicate, "fields"));
                }
            }
            close(out, b'{', b'}');
        }
    }
    Ok(())
}

fn elements(
    plan: &Plan,
    of: &Shape,
    count: usize,
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    out.push(b'[');
    for _ in 0..count {
        value(plan, of, reader, out)?;
        out.push(b',');
    }
    close(out, b'[', b']');
    Ok(())
}

/// From here on digits alone would be taken for an integer that is to be kept exact.
const INTEGERS_END: f64 = 9_007_199_254_740_992.0;

/// The shortest digits that give the same number back; words for what JSON's numbers cannot say.
fn float(
    out: &mut Vec<u8>,
    is_nan: bool,
    number: f64,
    plain: std::fmt::Arguments<'_>,
    short: std::fmt::Arguments<'_>,
) {
    let written = match number {
        _ if is_nan => "\"NaN\"".to_owned(),
        f64::INFINITY => "\"Infinity\"".to_owned(),
        f64::NEG_INFINITY => "\"-Infinity\"".to_owned(),
        _ => {
            let mut text = String::new();
            let is_handy = number == 0.0 || (1e-5..INTEGERS_END).contains(&number.abs());
            // Writing to a string cannot fail.
            let _ = text.write_fmt(if is_handy { plain } else { short });
            text
        }
    };
    out.extend_from_slice(written.as_bytes());
}
