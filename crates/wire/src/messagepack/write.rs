//! Values as bytes, each in its smallest encoding. Every function appends to `out` and takes its value by
//! reference, so that they compose: `list(out, &values, u32)`.

use std::collections::BTreeMap;

/// True or false.
pub fn boolean(out: &mut Vec<u8>, value: &bool) {
    out.push(if *value { 0xc3 } else { 0xc2 });
}

/// An unsigned integer.
///
/// ```
/// use thalweg_wire::messagepack::write;
/// let mut out = Vec::new();
/// write::u64(&mut out, &200);
/// assert_eq!(out, [0xcc, 200]);
/// ```
pub fn u64(out: &mut Vec<u8>, value: &u64) {
    let value = *value;
    if value < 0x80 {
        out.push(value as u8);
    } else if value <= 0xff {
        out.extend_from_slice(&[0xcc, value as u8]);
    } else if value <= 0xffff {
        tagged(out, 0xcd, (value as u16).to_be_bytes());
    } else if value <= 0xffff_ffff {
        tagged(out, 0xce, (value as u32).to_be_bytes());
    } else {
        tagged(out, 0xcf, value.to_be_bytes());
    }
}

/// A signed integer. One that is not negative is written as the unsigned one of the same value.
pub fn i64(out: &mut Vec<u8>, value: &i64) {
    let value = *value;
    if value >= 0 {
        u64(out, &value.unsigned_abs());
    } else if value >= -32 {
        out.push(value as u8);
    } else if value >= i64::from(i8::MIN) {
        out.extend_from_slice(&[0xd0, value as u8]);
    } else if value >= i64::from(i16::MIN) {
        tagged(out, 0xd1, (value as i16).to_be_bytes());
    } else if value >= i64::from(i32::MIN) {
        tagged(out, 0xd2, (value as i32).to_be_bytes());
    } else {
        tagged(out, 0xd3, value.to_be_bytes());
    }
}

macro_rules! narrow {
    ($($name:ident as $wide:ident),*) => {$(
        /// The integer of this width.
        pub fn $name(out: &mut Vec<u8>, value: &$name) {
            $wide(out, &$wide::from(*value));
        }
    )*};
}
narrow!(u8 as u64, u16 as u64, u32 as u64, i8 as i64, i16 as i64, i32 as i64);

/// A 32-bit float. There is one NaN on the wire, since not every language can tell two apart.
pub fn f32(out: &mut Vec<u8>, value: &f32) {
    let bits = if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
    tagged(out, 0xca, bits.to_be_bytes());
}

/// A 64-bit float, with one NaN too.
pub fn f64(out: &mut Vec<u8>, value: &f64) {
    let bits = if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
    tagged(out, 0xcb, bits.to_be_bytes());
}

/// UTF-8 text.
pub fn string<S: AsRef<str> + ?Sized>(out: &mut Vec<u8>, value: &S) {
    let text = value.as_ref();
    string_header(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// The header of a string of this many bytes.
pub fn string_header(out: &mut Vec<u8>, length: usize) {
    if length < 32 {
        out.push(0xa0 | length as u8);
    } else {
        counted(out, [0xd9, 0xda, 0xdb], length);
    }
}

/// Any bytes.
pub fn bytes<B: AsRef<[u8]> + ?Sized>(out: &mut Vec<u8>, value: &B) {
    let bytes = value.as_ref();
    bytes_header(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The header of a binary value of this many bytes.
pub fn bytes_header(out: &mut Vec<u8>, length: usize) {
    counted(out, [0xc4, 0xc5, 0xc6], length);
}

/// Exactly 32 bytes.
pub fn bin32(out: &mut Vec<u8>, value: &[u8; 32]) {
    out.extend_from_slice(&[0xc4, 32]);
    out.extend_from_slice(value);
}

/// A value that may be absent.
pub fn optional<T>(out: &mut Vec<u8>, value: &Option<T>, write: impl FnOnce(&mut Vec<u8>, &T)) {
    match value {
        Some(value) => write(out, value),
        None => out.push(0xc0),
    }
}

/// A list or a fixed array.
pub fn list<T>(out: &mut Vec<u8>, values: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    list_header(out, values.len());
    values.iter().for_each(|value| write(out, value));
}

/// The header of a list of this many values.
pub fn list_header(out: &mut Vec<u8>, length: usize) {
    if length < 16 {
        out.push(0x90 | length as u8);
    } else {
        many(out, [0xdc, 0xdd], length);
    }
}

/// Values by string keys, in the keys' byte order.
pub fn map<K: AsRef<str>, T>(
    out: &mut Vec<u8>,
    values: &BTreeMap<K, T>,
    mut write: impl FnMut(&mut Vec<u8>, &T),
) {
    map_header(out, values.len());
    for (key, value) in values {
        string(out, key);
        write(out, value);
    }
}

/// The header of a map of this many keys with their values.
pub fn map_header(out: &mut Vec<u8>, length: usize) {
    if length < 16 {
        out.push(0x80 | length as u8);
    } else {
        many(out, [0xde, 0xdf], length);
    }
}

fn tagged<const N: usize>(out: &mut Vec<u8>, tag: u8, bytes: [u8; N]) {
    out.push(tag);
    out.extend_from_slice(&bytes);
}

/// A length of one, two or four bytes. A frame holds at most 1 GiB, so four are enough.
fn counted(out: &mut Vec<u8>, tags: [u8; 3], length: usize) {
    if length <= 0xff {
        out.extend_from_slice(&[tags[0], length as u8]);
    } else {
        many(out, [tags[1], tags[2]], length);
    }
}

fn many(out: &mut Vec<u8>, tags: [u8; 2], length: usize) {
    if length <= 0xffff {
        tagged(out, tags[0], (length as u16).to_be_bytes());
    } else {
        tagged(out, tags[1], (length as u32).to_be_bytes());
    }
}
