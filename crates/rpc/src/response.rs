//! Frames to JSON, a response's to a result and a request's to parameters: one walk over the frame, driven by
//! the schema, straight into the answer.
//!
//! The frame comes from a handler of ours or from a service elsewhere, and is trusted no more than a
//! request's: what the schema does not have is no answer.

use crate::plan::{Message, Method, Plan, Seen, Shape, Struct};
use std::collections::HashSet;
use std::fmt::Write;
use thalweg_wire::json::write as json;
use thalweg_wire::messagepack::{DecodeError, DecodeErrorKind, Reader};

/// What a frame says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecodedResponse {
    /// What it should; its fields were appended as an object.
    Fields,
    /// That the service refused, in these words.
    Refusal(String),
}

/// What the JSON of a frame may take for each byte of the frame.
const JSON_PER_BYTE: usize = 64;

/// What it may take besides, however short the frame: an absent field takes nothing there, and its name in
/// JSON.
const JSON_BESIDES: usize = 16 << 20;

/// How many bytes of JSON a frame may become.
pub(crate) fn json_bytes_max(frame: &[u8]) -> usize {
    frame.len().saturating_mul(JSON_PER_BYTE).saturating_add(JSON_BESIDES)
}

/// Appends the fields of a response or an item as an object, unless the frame is the service's error. The
/// object has at most `room` bytes, and at most [`json_bytes_max`].
///
/// # Errors
/// It is neither, or does not fit ([`DecodeErrorKind::Memory`]); nothing was appended.
pub(crate) fn decode(
    plan: &Plan,
    message: &Message,
    frame: &[u8],
    room: usize,
    out: &mut Vec<u8>,
) -> Result<DecodedResponse, DecodeError> {
    let mut reader = Reader::new(frame);
    let tag = reader.response()?;
    if tag != message.tag.as_bytes() {
        if tag == plan.error_tag.as_bytes() {
            return refusal(&mut reader).map(DecodedResponse::Refusal);
        }
        return Err(reader.refuse(DecodeErrorKind::UnknownMessage, "frame"));
    }
    whole(plan, &message.fields, reader, room.min(json_bytes_max(frame)), out)?;
    Ok(DecodedResponse::Fields)
}

/// Appends the fields of a request as an object, and says which command it is of. The object has at most
/// [`json_bytes_max`] bytes.
///
/// # Errors
/// It is no request of this service, or does not fit; nothing was appended.
pub(crate) fn decode_request<'p>(
    plan: &'p Plan,
    frame: &[u8],
    out: &mut Vec<u8>,
) -> Result<(&'p str, &'p Method), DecodeError> {
    let mut reader = Reader::new(frame);
    let tag = reader.request()?;
    let (name, method) =
        plan.of_tag(tag).ok_or_else(|| reader.refuse(DecodeErrorKind::UnknownMessage, "frame"))?;
    whole(plan, &method.request.fields, reader, json_bytes_max(frame), out)?;
    Ok((name, method))
}

/// Appends the rest of a frame, or nothing.
fn whole(
    plan: &Plan,
    fields: &Struct,
    reader: Reader<'_>,
    room: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let start = out.len();
    let mut walk = Walk { plan, reader, end: start.saturating_add(room), out };
    let walked = walk.fields(fields).and_then(|()| walk.reader.finish());
    walked.inspect_err(|_| out.truncate(start))
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
            _ => return Err(reader.refuse(DecodeErrorKind::UnknownField, "error")),
        }
    }
    reader.finish()?;
    reader.required(message, "error.message").map(|message| message.into_owned())
}

/// The walk over one frame.
struct Walk<'w, 'f> {
    plan: &'w Plan,
    reader: Reader<'f>,
    out: &'w mut Vec<u8>,
    /// What `out` may grow to.
    end: usize,
}

impl Walk<'_, '_> {
    fn fields(&mut self, fields: &Struct) -> Result<(), DecodeError> {
        let mut seen = Seen::none_of(fields);
        self.out.push(b'{');
        for count in 0..self.reader.fields("fields")? {
            let name = self.reader.key()?;
            let place = fields.find(name, count).ok_or_else(|| self.refuse(DecodeErrorKind::UnknownField))?;
            if !seen.note(place) {
                return Err(self.refuse(DecodeErrorKind::Duplicate));
            }
            let field = &fields.fields[place];
            self.out.extend_from_slice(&field.label);
            self.value(&field.shape)?;
            self.part()?;
        }
        for (place, field) in fields.fields.iter().enumerate() {
            if seen.has(place) {
                continue;
            }
            if !field.is_optional() {
                return Err(self.refuse(DecodeErrorKind::Missing));
            }
            // What is absent is null, so that every answer has every field.
            self.out.extend_from_slice(&field.label);
            self.out.extend_from_slice(b"null");
            self.part()?;
        }
        close(self.out, b'{', b'}');
        Ok(())
    }

    fn refuse(&self, kind: DecodeErrorKind) -> DecodeError {
        self.reader.refuse(kind, "fields")
    }

    /// Ends a part of an object or an array. One part takes no more than a small multiple of what the frame
    /// or the schema has of it, so that it is enough to look here whether there is room.
    fn part(&mut self) -> Result<(), DecodeError> {
        self.out.push(b',');
        if self.out.len() > self.end { Err(self.refuse(DecodeErrorKind::Memory)) } else { Ok(()) }
    }

    fn value(&mut self, shape: &Shape) -> Result<(), DecodeError> {
        let Self { plan, reader, out, .. } = self;
        match shape {
            Shape::Bool => out.extend_from_slice(if reader.boolean()? { b"true" } else { b"false" }),
            Shape::Unsigned(bits) => match reader.u64()? {
                number if number <= u64::MAX >> (64 - bits) => json::unsigned(out, number),
                _ => return Err(self.refuse(DecodeErrorKind::Range)),
            },
            Shape::Signed(bits) => match reader.i64()? {
                number if number == number << (64 - bits) >> (64 - bits) => json::signed(out, number),
                _ => return Err(self.refuse(DecodeErrorKind::Range)),
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
                    return Err(self.refuse(DecodeErrorKind::UnknownWord));
                }
                json::string(out, &word);
            }
            Shape::Struct(place) => return self.fields(self.plan.structure(*place)),
            Shape::Optional(of) => {
                if !reader.nil() {
                    return self.value(of);
                }
                out.extend_from_slice(b"null");
            }
            Shape::List(of) => {
                let count = reader.begin_list(1)?;
                return self.elements(of, count);
            }
            Shape::Array(of, count) => {
                reader.begin_array(*count)?;
                return self.elements(of, *count);
            }
            Shape::Map(of) => return self.map(of),
        }
        Ok(())
    }

    fn map(&mut self, of: &Shape) -> Result<(), DecodeError> {
        let count = self.reader.begin_map(1)?;
        self.out.push(b'{');
        let mut keys = HashSet::new();
        for _ in 0..count {
            let key = self.reader.string()?;
            json::string(self.out, &key);
            self.out.push(b':');
            self.value(of)?;
            self.part()?;
            if !keys.insert(key) {
                return Err(self.refuse(DecodeErrorKind::Duplicate));
            }
        }
        close(self.out, b'{', b'}');
        Ok(())
    }

    fn elements(&mut self, of: &Shape, count: usize) -> Result<(), DecodeError> {
        self.out.push(b'[');
        for _ in 0..count {
            self.value(of)?;
            self.part()?;
        }
        close(self.out, b'[', b']');
        Ok(())
    }
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
        // As an integer it would have no sign.
        0.0 if number.is_sign_negative() => "-0.0".to_owned(),
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
