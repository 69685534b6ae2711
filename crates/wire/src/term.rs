//! Erlang's terms as bytes: MessagePack, with an extension for whatever MessagePack has no word for.
//!
//! Both ends of a Python worker speak it, the virtual machine's and the interpreter's, each with values of
//! its own: so reading is a walk over the bytes that leaves making the values to its caller ([`Build`]), and
//! of writing there is what is beyond MessagePack. `docs/erlang.md` has the table.
//!
//! Bounded: values are nested [`DEPTH_MAX`] deep at most, which is what keeps the walk's recursion short, and
//! no more is allocated than a fixed multiple of the bytes. Whatever the bytes are, nothing panics.

use thiserror::Error;

/// So deep may values be nested, in both directions.
pub const DEPTH_MAX: u32 = 256;

/// Extension types, by what they hold.
pub mod extension {
    /// An atom's name.
    pub const ATOM: u8 = 1;
    /// A tuple: an array behind the header.
    pub const TUPLE: u8 = 2;
    /// A process's external form.
    pub const PID: u8 = 3;
    /// A reference's external form.
    pub const REFERENCE: u8 = 4;
    /// An integer of more than 64 bits: 0 or 1 for its sign, then its magnitude, least byte first.
    pub const INTEGER: u8 = 5;
}

/// Why bytes are no term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TermError(pub &'static str);

/// Makes values of what is read.
pub trait Build {
    /// A value.
    type Value;
    /// Why there is none: the bytes are wrong, or it has no place over here.
    type Error: From<TermError>;

    /// Nothing: `none`, `None`.
    fn none(&mut self) -> Self::Value;
    /// A truth value.
    fn boolean(&mut self, value: bool) -> Self::Value;
    /// An integer.
    fn integer(&mut self, value: i64) -> Self::Value;
    /// An integer that is not negative.
    fn natural(&mut self, value: u64) -> Self::Value;
    /// An integer by its sign and its magnitude, least byte first.
    ///
    /// # Errors
    /// It is too large.
    fn large(&mut self, is_negative: bool, magnitude: &[u8]) -> Result<Self::Value, Self::Error>;
    /// A number that need not be finite.
    fn float(&mut self, value: f64) -> Self::Value;
    /// What should be text.
    ///
    /// # Errors
    /// It is no UTF-8.
    fn text(&mut self, text: &[u8]) -> Result<Self::Value, Self::Error>;
    /// Bytes.
    fn bytes(&mut self, bytes: &[u8]) -> Self::Value;
    /// A list.
    ///
    /// # Errors
    /// There is no memory.
    fn list(&mut self, items: Vec<Self::Value>) -> Result<Self::Value, Self::Error>;
    /// A tuple.
    ///
    /// # Errors
    /// As of a list.
    fn tuple(&mut self, items: Vec<Self::Value>) -> Result<Self::Value, Self::Error>;
    /// A map: each key, and behind it its value.
    ///
    /// # Errors
    /// Two keys are one, or something cannot be a key.
    fn map(&mut self, pairs: Vec<Self::Value>) -> Result<Self::Value, Self::Error>;
    /// An atom by its name.
    ///
    /// # Errors
    /// There is no such atom.
    fn atom(&mut self, name: &[u8]) -> Result<Self::Value, Self::Error>;
    /// A process by its external form.
    ///
    /// # Errors
    /// It is none.
    fn pid(&mut self, form: &[u8]) -> Result<Self::Value, Self::Error>;
    /// A reference by its external form.
    ///
    /// # Errors
    /// It is none.
    fn reference(&mut self, form: &[u8]) -> Result<Self::Value, Self::Error>;
}

/// Reads a value that takes all of the bytes.
///
/// # Errors
/// The bytes are no term, or one without a value.
pub fn read<B: Build>(build: &mut B, bytes: &[u8]) -> Result<B::Value, B::Error> {
    let mut reader = Reader { build, rest: bytes };
    let value = reader.value(DEPTH_MAX)?;
    reader.end("bytes behind the value")?;
    Ok(value)
}

/// Reads the items of a list that takes all of the bytes.
///
/// # Errors
/// As [`read`]; what the bytes hold is no list.
pub fn read_items<B: Build>(build: &mut B, bytes: &[u8]) -> Result<Vec<B::Value>, B::Error> {
    let mut reader = Reader { build, rest: bytes };
    let items = reader.array(DEPTH_MAX)?;
    reader.end("bytes behind the value")?;
    Ok(items)
}

struct Reader<'m, 'b, B> {
    build: &'m mut B,
    rest: &'b [u8],
}

impl<'b, B: Build> Reader<'_, 'b, B> {
    fn end(&self, what: &'static str) -> Result<(), TermError> {
        if self.rest.is_empty() { Ok(()) } else { Err(TermError(what)) }
    }

    fn take(&mut self, count: u64) -> Result<&'b [u8], TermError> {
        let taken = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) = taken.ok_or(TermError("a value is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of this many bytes, the most significant first.
    fn number(&mut self, bytes: u64) -> Result<u64, TermError> {
        Ok(self.take(bytes)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn value(&mut self, depth: u32) -> Result<B::Value, B::Error> {
        let deeper = depth.checked_sub(1).ok_or(TermError("a value that is nested too deep"))?;
        let first = self.take(1)?[0];
        Ok(match first {
            0x00..=0x7f => self.build.integer(i64::from(first)),
            0xe0..=0xff => self.build.integer(i64::from(first.cast_signed())),
            0xa0..=0xbf => self.text(u64::from(first & 0x1f))?,
            0x90..=0x9f => self.list(u64::from(first & 0x0f), deeper)?,
            0x80..=0x8f => self.map(u64::from(first & 0x0f), deeper)?,
            0xc0 => self.build.none(),
            0xc2 | 0xc3 => self.build.boolean(first == 0xc3),
            0xc4..=0xc6 => {
                let length = self.number(1 << (first - 0xc4))?;
                let bytes = self.take(length)?;
                self.build.bytes(bytes)
            }
            0xd9..=0xdb => {
                let length = self.number(1 << (first - 0xd9))?;
                self.text(length)?
            }
            0xcc..=0xcf => {
                let number = self.number(1 << (first - 0xcc))?;
                self.build.natural(number)
            }
            0xd0..=0xd3 => {
                let bytes = 1 << (first - 0xd0);
                // Its sign is that of its first bit.
                let spare = 64 - 8 * bytes;
                let number = (self.number(bytes)? << spare).cast_signed() >> spare;
                self.build.integer(number)
            }
            0xca => {
                let bits = self.number(4)? as u32;
                self.build.float(f64::from(f32::from_bits(bits)))
            }
            0xcb => {
                let bits = self.number(8)?;
                self.build.float(f64::from_bits(bits))
            }
            0xdc | 0xdd => {
                let count = self.number(2 << (first - 0xdc))?;
                self.list(count, deeper)?
            }
            0xde | 0xdf => {
                let count = self.number(2 << (first - 0xde))?;
                self.map(count, deeper)?
            }
            0xc7..=0xc9 => {
                let length = self.number(1 << (first - 0xc7))?;
                self.extension(length, deeper)?
            }
            0xd4..=0xd8 => self.extension(1 << (first - 0xd4), deeper)?,
            0xc1 => return Err(TermError("a byte that begins no value").into()),
        })
    }

    fn text(&mut self, length: u64) -> Result<B::Value, B::Error> {
        let text = self.take(length)?;
        self.build.text(text)
    }

    fn items(&mut self, count: u64, depth: u32) -> Result<Vec<B::Value>, B::Error> {
        // Each takes a byte at least.
        if count > self.rest.len() as u64 {
            return Err(TermError("a value is cut off").into());
        }
        (0..count).map(|_| self.value(depth)).collect()
    }

    fn list(&mut self, count: u64, depth: u32) -> Result<B::Value, B::Error> {
        let items = self.items(count, depth)?;
        self.build.list(items)
    }

    fn map(&mut self, count: u64, depth: u32) -> Result<B::Value, B::Error> {
        let pairs = self.items(count.saturating_mul(2), depth)?;
        self.build.map(pairs)
    }

    fn extension(&mut self, length: u64, depth: u32) -> Result<B::Value, B::Error> {
        let kind = self.take(1)?[0];
        let payload = self.take(length)?;
        match kind {
            extension::ATOM => self.build.atom(payload),
            extension::TUPLE => {
                let mut inner = Reader { build: &mut *self.build, rest: payload };
                let items = inner.array(depth)?;
                inner.end("bytes behind a tuple")?;
                self.build.tuple(items)
            }
            extension::PID => self.build.pid(payload),
            extension::REFERENCE => self.build.reference(payload),
            extension::INTEGER => {
                let (sign, magnitude) =
                    payload.split_first().ok_or(TermError("an integer without digits"))?;
                self.build.large(*sign != 0, magnitude)
            }
            _ => Err(TermError("an extension that nobody declared").into()),
        }
    }

    fn array(&mut self, depth: u32) -> Result<Vec<B::Value>, B::Error> {
        let count = match self.take(1)?[0] {
            small @ 0x90..=0x9f => u64::from(small & 0x0f),
            0xdc => self.number(2)?,
            0xdd => self.number(4)?,
            _ => return Err(TermError("no array where one belongs").into()),
        };
        self.items(count, depth)
    }
}

/// Writes what is beyond MessagePack.
pub mod write {
    use super::{TermError, extension};
    use crate::messagepack::write::list_header;

    /// An extension with its payload.
    pub fn extended(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
        header(out, kind, payload.len());
        out.extend_from_slice(payload);
    }

    /// An integer that no 64 bits hold, by its sign and its magnitude, least byte first.
    pub fn large(out: &mut Vec<u8>, is_negative: bool, magnitude: &[u8]) {
        header(out, extension::INTEGER, magnitude.len() + 1);
        out.push(u8::from(is_negative));
        out.extend_from_slice(magnitude);
    }

    /// A tuple of `count` items, which `items` writes. Its length in bytes is filled in afterwards.
    ///
    /// # Errors
    /// What `items` says; a tuple of more than 4 GiB.
    pub fn tuple<E: From<TermError>>(
        out: &mut Vec<u8>,
        count: usize,
        items: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        out.extend_from_slice(&[0xc9, 0, 0, 0, 0, extension::TUPLE]);
        let start = out.len();
        list_header(out, count);
        items(out)?;
        let length = u32::try_from(out.len() - start).map_err(|_| TermError("a tuple of more than 4 GiB"))?;
        out[start - 5..start - 1].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn header(out: &mut Vec<u8>, kind: u8, length: usize) {
        match length {
            0..=0xff => out.extend_from_slice(&[0xc7, length as u8]),
            0x100..=0xffff => {
                out.push(0xc8);
                out.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                out.push(0xc9);
                out.extend_from_slice(&(length as u32).to_be_bytes());
            }
        }
        out.push(kind);
    }
}

#[cfg(test)]
mod tests;
