//! JSON to a frame, parameters to a request's and a result to a response's: one walk over the text, driven by
//! the schema, straight into the frame.
//!
//! Counts are written before what they count is known, in encodings of a fixed width that are filled in
//! afterwards; any decoder of the protocol takes those. How deep a walk goes is the schema's depth, never the
//! text's.

use crate::plan::{Field, Message, Method, Plan, Seen, Shape, Struct};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::collections::HashSet;
use thalweg_wire::json::{Kind, SyntaxError, Text};
use thalweg_wire::jsonrpc::Params;
use thalweg_wire::messagepack::write;

/// Why parameters do not fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// Where: `entry.tags[3]`, or `params`.
    pub(crate) field: String,
    pub(crate) what: Cow<'static, str>,
}

type FieldResult = Result<(), Box<FieldError>>;

fn field_error<T>(what: impl Into<Cow<'static, str>>) -> Result<T, Box<FieldError>> {
    Err(Box::new(FieldError { field: String::new(), what: what.into() }))
}

impl From<SyntaxError> for Box<FieldError> {
    fn from(syntax: SyntaxError) -> Self {
        Box::new(FieldError { field: String::new(), what: syntax.what.into() })
    }
}

/// Puts a name in front of where something is wrong.
fn inside(name: &str) -> impl FnOnce(Box<FieldError>) -> Box<FieldError> {
    move |mut error| {
        let joint = if error.field.is_empty() || error.field.starts_with('[') { "" } else { "." };
        // One of no letters is one, too.
        let name = if name.is_empty() { r#""""# } else { name };
        error.field = format!("{name}{joint}{}", error.field);
        error
    }
}

/// Writes the frame of a request, `[[tag, fields]]`.
///
/// # Errors
/// The parameters do not fit; what is behind `out` then is of no use.
pub(crate) fn encode(plan: &Plan, method: &Method, params: Params<'_>, out: &mut Vec<u8>) -> FieldResult {
    out.extend_from_slice(&[0x91, 0x92]);
    write::string(out, &method.request.tag);
    let fields = &method.request.fields;
    let written = match params {
        Params::Names(text) => whole(text, |text| members(plan, fields, text, out)),
        Params::Positions(text) => whole(text, |text| positions(plan, fields, text, out)),
        Params::Absent => {
            out.push(0x80);
            all_optional(fields.fields.iter())
        }
    };
    written.map_err(named("params"))
}

/// Writes the frame of a response, `[tag, fields]`, from the object that a result is.
///
/// # Errors
/// The result does not fit; what is behind `out` then is of no use.
pub(crate) fn encode_result(plan: &Plan, message: &Message, result: &str, out: &mut Vec<u8>) -> FieldResult {
    out.push(0x92);
    write::string(out, &message.tag);
    let written = whole(result, |text| {
        expect(text, Kind::Object)?;
        members(plan, &message.fields, text, out)
    });
    written.map_err(named("result"))
}

/// Walks all of a text.
fn whole<'t>(text: &'t str, walk: impl FnOnce(&mut Text<'t>) -> FieldResult) -> FieldResult {
    let mut text = Text::new(text);
    walk(&mut text)?;
    Ok(text.finish()?)
}

/// What is wrong with the whole is said of it by this name.
fn named(name: &str) -> impl FnOnce(Box<FieldError>) -> Box<FieldError> {
    move |mut error| {
        if error.field.is_empty() {
            error.field = name.to_owned();
        }
        error
    }
}

/// A struct's fields by their names.
fn members(plan: &Plan, fields: &Struct, text: &mut Text<'_>, out: &mut Vec<u8>) -> FieldResult {
    let count_at = begin_fields(fields, out);
    let mut seen = Seen::none_of(fields);
    let mut count = 0;
    let mut more = text.begin_object()?;
    while more {
        let key = text.key()?.text();
        let Some(place) = fields.find(key.as_bytes(), count) else {
            return field_error("there is no such field").map_err(inside(&key));
        };
        let field = &fields.fields[place];
        if !seen.note(place) {
            return field_error("it is there twice").map_err(inside(&field.name));
        }
        write_field(plan, field, text, out)?;
        count += 1;
        more = text.next_member()?;
    }
    end_fields(fields, out, count_at, count);
    let others = fields.fields.iter().enumerate().filter(|(place, _)| !seen.has(*place));
    all_optional(others.map(|(_, field)| field))
}

/// A message's fields by their order.
fn positions(plan: &Plan, fields: &Struct, text: &mut Text<'_>, out: &mut Vec<u8>) -> FieldResult {
    let count_at = begin_fields(fields, out);
    let mut count = 0;
    let mut more = text.begin_array()?;
    while more {
        let Some(field) = fields.fields.get(count) else {
            return field_error(format!("more than {} parameters", fields.fields.len()));
        };
        write_field(plan, field, text, out)?;
        count += 1;
        more = text.next_element()?;
    }
    end_fields(fields, out, count_at, count);
    all_optional(fields.fields.iter().skip(count))
}

fn write_field(plan: &Plan, field: &Field, text: &mut Text<'_>, out: &mut Vec<u8>) -> FieldResult {
    out.extend_from_slice(&field.key);
    let written = match &field.shape {
        // Without the way through all the others.
        Shape::Unsigned(bits) => unsigned(*bits, text, out),
        shape => value(plan, shape, text, out),
    };
    written.map_err(inside(&field.name))
}

/// Fields that are missing have to be optional.
#[inline]
fn all_optional<'f>(mut missing: impl Iterator<Item = &'f Field>) -> FieldResult {
    match missing.find(|field| !field.is_optional()) {
        Some(field) => field_error("it is missing").map_err(inside(&field.name)),
        None => Ok(()),
    }
}

/// Room for how many fields there are: as much as the schema's number takes.
fn begin_fields(fields: &Struct, out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(if fields.fields.len() < 16 { &[0x80] } else { &[0xdf, 0, 0, 0, 0] });
    at
}

fn end_fields(fields: &Struct, out: &mut [u8], at: usize, count: usize) {
    if fields.fields.len() < 16 {
        out[at] |= count as u8;
    } else {
        fill_in(out, at, count);
    }
}

/// Fills in a count that was left open at a place, behind its tag.
fn fill_in(out: &mut [u8], at: usize, count: usize) {
    // A text is shorter than 4 GiB, and so is any count in it.
    out[at + 1..at + 5].copy_from_slice(&(count as u32).to_be_bytes());
}

fn expect(text: &mut Text<'_>, wanted: Kind) -> FieldResult {
    let found = text.kind()?;
    if found == wanted {
        return Ok(());
    }
    field_error(format!("expected {}, found {}", wanted.phrase(), found.phrase()))
}

fn value(plan: &Plan, shape: &Shape, text: &mut Text<'_>, out: &mut Vec<u8>) -> FieldResult {
    match shape {
        Shape::Bool => {
            expect(text, Kind::Bool)?;
            write::boolean(out, &text.boolean()?);
        }
        Shape::Unsigned(bits) => return unsigned(*bits, text, out),
        Shape::Signed(bits) => return signed(*bits, text, out),
        Shape::F32 => write::f32(out, &float(text, |written| written.parse().ok(), f32::is_finite)?),
        Shape::F64 => write::f64(out, &float(text, |written| written.parse().ok(), f64::is_finite)?),
        Shape::String => {
            expect(text, Kind::String)?;
            write::string(out, &text.string()?.text());
        }
        Shape::Bytes => drop(bytes(text, out)?),
        Shape::Bin32 => {
            let length = bytes(text, out)?;
            if length != 32 {
                return field_error(format!("expected 32 bytes, found {length}"));
            }
        }
        Shape::Enum(place) => {
            expect(text, Kind::String)?;
            let word = text.string()?.text();
            let words = plan.words(*place);
            if !words.iter().any(|known| *known == *word) {
                return field_error(format!("expected one of {}", words.join(", ")));
            }
            write::string(out, &word);
        }
        Shape::Struct(place) => {
            expect(text, Kind::Object)?;
            return members(plan, plan.structure(*place), text, out);
        }
        Shape::Optional(of) => {
            if !text.null()? {
                return value(plan, of, text, out);
            }
            out.push(0xc0);
        }
        Shape::List(of) => {
            let at = out.len();
            out.extend_from_slice(&[0xdd, 0, 0, 0, 0]);
            let count = elements(plan, of, text, out)?;
            fill_in(out, at, count);
        }
        Shape::Array(of, wanted) => {
            write::list_header(out, *wanted);
            let count = elements(plan, of, text, out)?;
            if count != *wanted {
                return field_error(format!("expected {wanted} elements, found {count}"));
            }
        }
        Shape::Map(of) => return map(plan, of, text, out),
    }
    Ok(())
}

fn elements(
    plan: &Plan,
    of: &Shape,
    text: &mut Text<'_>,
    out: &mut Vec<u8>,
) -> Result<usize, Box<FieldError>> {
    expect(text, Kind::Array)?;
    let mut count = 0;
    let mut more = text.begin_array()?;
    while more {
        value(plan, of, text, out).map_err(|error| inside(&format!("[{count}]"))(error))?;
        count += 1;
        more = text.next_element()?;
    }
    Ok(count)
}

fn map(plan: &Plan, of: &Shape, text: &mut Text<'_>, out: &mut Vec<u8>) -> FieldResult {
    expect(text, Kind::Object)?;
    let at = out.len();
    out.extend_from_slice(&[0xdf, 0, 0, 0, 0]);
    let mut keys = HashSet::new();
    let mut more = text.begin_object()?;
    while more {
        let key = text.key()?.text();
        write::string(out, &key);
        value(plan, of, text, out).map_err(inside(&key))?;
        if let Some(twice) = keys.replace(key) {
            return field_error("it is there twice").map_err(inside(&twice));
        }
        more = text.next_member()?;
    }
    fill_in(out, at, keys.len());
    Ok(())
}

fn unsigned(bits: u8, text: &mut Text<'_>, out: &mut Vec<u8>) -> FieldResult {
    let number = match text.unsigned() {
        Some(number) => number,
        None => {
            expect(text, Kind::Number)?;
            match text.number()? {
                // Minus nothing is nothing.
                "-0" => 0,
                written => return field_error(range(written, false, bits)),
            }
        }
    };
    if number > u64::MAX >> (64 - bits) {
        return field_error(unfit(false, bits));
    }
    write::u64(out, &number);
    Ok(())
}

fn signed(bits: u8, text: &mut Text<'_>, out: &mut Vec<u8>) -> FieldResult {
    expect(text, Kind::Number)?;
    let written = text.number()?;
    let shift = 64 - bits;
    match written.parse::<i64>() {
        Ok(number) if (i64::MIN >> shift..=i64::MAX >> shift).contains(&number) => write::i64(out, &number),
        _ => return field_error(range(written, true, bits)),
    }
    Ok(())
}

fn range(written: &str, signed: bool, bits: u8) -> Cow<'static, str> {
    if written.contains(['.', 'e', 'E']) {
        return "expected an integer, without point or exponent".into();
    }
    unfit(signed, bits)
}

fn unfit(signed: bool, bits: u8) -> Cow<'static, str> {
    let sign = if signed { "signed" } else { "unsigned" };
    format!("it does not fit {bits} bits, {sign}").into()
}

/// A number, or one of the three words that stand for what JSON's numbers cannot say.
fn float<F: Copy + From<f32>>(
    text: &mut Text<'_>,
    parse: impl FnOnce(&str) -> Option<F>,
    is_finite: impl FnOnce(F) -> bool,
) -> Result<F, Box<FieldError>> {
    if text.kind()? == Kind::String {
        return match text.string()?.plain() {
            Some("NaN") => Ok(f32::NAN.into()),
            Some("Infinity") => Ok(f32::INFINITY.into()),
            Some("-Infinity") => Ok(f32::NEG_INFINITY.into()),
            _ => field_error("expected a number, or \"NaN\", \"Infinity\" or \"-Infinity\""),
        };
    }
    expect(text, Kind::Number)?;
    match parse(text.number()?) {
        Some(number) if is_finite(number) => Ok(number),
        _ => field_error("it is too large for its type"),
    }
}

/// Bytes out of base64, decoded where they belong; how many.
fn bytes(text: &mut Text<'_>, out: &mut Vec<u8>) -> Result<usize, Box<FieldError>> {
    expect(text, Kind::String)?;
    let written = text.string()?.text();
    let padding = written.bytes().rev().take(2).take_while(|byte| *byte == b'=').count();
    let length = (written.len() / 4 * 3).saturating_sub(padding);
    write::bytes_header(out, length);
    let start = out.len();
    out.resize(start + length, 0);
    match STANDARD.decode_slice(written.as_bytes(), &mut out[start..]) {
        Ok(decoded) if decoded == length => Ok(length),
        _ => field_error("expected bytes as base64, with padding"),
    }
}

#[cfg(test)]
mod tests;
