//! Bytes as Erlang terms: `encode` the other way round. Whatever the bytes are, nothing panics and nothing is allocated
//! beyond a fixed multiple of them; atoms are only ever found, never made, because their number is bounded.

use crate::atoms::atoms;
use crate::encode::{DEPTH_MAX, extension};
use crate::enif::RawTerm;
use crate::term::Env;

/// Why bytes are no term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoTerm(pub(crate) String);

fn wrong(what: &str) -> NoTerm {
    NoTerm(what.to_owned())
}

/// Reads a term that takes all of the bytes.
pub(crate) fn term(env: Env, bytes: &[u8]) -> Result<RawTerm, NoTerm> {
    let mut reader = Reader { env, rest: bytes };
    let term = reader.term(DEPTH_MAX)?;
    if reader.rest.is_empty() { Ok(term) } else { Err(wrong("bytes behind the value")) }
}

struct Reader<'b> {
    env: Env,
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], NoTerm> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| wrong("a value is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of so many bytes, the most significant first.
    fn number(&mut self, bytes: usize) -> Result<u64, NoTerm> {
        Ok(self.take(bytes)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn binary(&mut self, length: u64) -> Result<RawTerm, NoTerm> {
        Ok(self.env.make_binary(self.take(length as usize)?))
    }

    fn term(&mut self, depth: u32) -> Result<RawTerm, NoTerm> {
        let Some(deeper) = depth.checked_sub(1) else { return Err(wrong("a value that is nested too deep")) };
        let env = self.env;
        let known = atoms(env);
        let first = self.take(1)?[0];
        Ok(match first {
            0x00..=0x7f => env.make_integer(i64::from(first)),
            0xe0..=0xff => env.make_integer(i64::from(first as i8)),
            0xa0..=0xbf => self.binary(u64::from(first & 0x1f))?,
            0x90..=0x9f => self.list(u64::from(first & 0x0f), deeper)?,
            0x80..=0x8f => self.map(u64::from(first & 0x0f), deeper)?,
            0xc0 => known.none,
            0xc2 => known.no,
            0xc3 => known.yes,
            0xc4 | 0xd9 => self.sized(1, Self::binary)?,
            0xc5 | 0xda => self.sized(2, Self::binary)?,
            0xc6 | 0xdb => self.sized(4, Self::binary)?,
            0xcc => env.make_natural(self.number(1)?),
            0xcd => env.make_natural(self.number(2)?),
            0xce => env.make_natural(self.number(4)?),
            0xcf => env.make_natural(self.number(8)?),
            0xd0 => env.make_integer(i64::from(self.number(1)? as i8)),
            0xd1 => env.make_integer(i64::from(self.number(2)? as i16)),
            0xd2 => env.make_integer(i64::from(self.number(4)? as i32)),
            0xd3 => env.make_integer(self.number(8)? as i64),
            0xca => {
                let bits = self.number(4)? as u32;
                self.float(f64::from(f32::from_bits(bits)))
            }
            0xcb => {
                let bits = self.number(8)?;
                self.float(f64::from_bits(bits))
            }
            0xdc => self.sized(2, |reader, count| reader.list(count, deeper))?,
            0xdd => self.sized(4, |reader, count| reader.list(count, deeper))?,
            0xde => self.sized(2, |reader, count| reader.map(count, deeper))?,
            0xdf => self.sized(4, |reader, count| reader.map(count, deeper))?,
            0xc7 => self.sized(1, |reader, length| reader.extension(length, deeper))?,
            0xc8 => self.sized(2, |reader, length| reader.extension(length, deeper))?,
            0xc9 => self.sized(4, |reader, length| reader.extension(length, deeper))?,
            0xd4..=0xd8 => self.extension(1 << (first - 0xd4), deeper)?,
            0xc1 => return Err(wrong("a byte that begins no value")),
        })
    }

    fn sized<T>(
        &mut self,
        bytes: usize,
        read: impl FnOnce(&mut Self, u64) -> Result<T, NoTerm>,
    ) -> Result<T, NoTerm> {
        let length = self.number(bytes)?;
        read(self, length)
    }

    /// Erlang's floats are finite.
    fn float(&self, value: f64) -> RawTerm {
        let known = atoms(self.env);
        match value {
            _ if value.is_finite() => self.env.make_float(value),
            _ if value.is_nan() => known.nan,
            _ if value > 0.0 => known.infinity,
            _ => known.negative_infinity,
        }
    }

    fn items(&mut self, count: u64, depth: u32) -> Result<Vec<RawTerm>, NoTerm> {
        // Each takes a byte at least.
        if count > self.rest.len() as u64 {
            return Err(wrong("a value is cut off"));
        }
        (0..count).map(|_| self.term(depth)).collect()
    }

    fn list(&mut self, count: u64, depth: u32) -> Result<RawTerm, NoTerm> {
        let items = self.items(count, depth)?;
        Ok(self.env.make_list(&items))
    }

    fn map(&mut self, count: u64, depth: u32) -> Result<RawTerm, NoTerm> {
        let pairs = self.items(count.saturating_mul(2), depth)?;
        let keys: Vec<RawTerm> = pairs.iter().step_by(2).copied().collect();
        let values: Vec<RawTerm> = pairs.iter().skip(1).step_by(2).copied().collect();
        self.env.make_map(&keys, &values).ok_or_else(|| wrong("two keys that are one in Erlang"))
    }

    fn extension(&mut self, length: u64, depth: u32) -> Result<RawTerm, NoTerm> {
        let kind = self.take(1)?[0];
        let payload = self.take(length as usize)?;
        let env = self.env;
        match kind {
            extension::ATOM => env
                .existing_atom(payload)
                .ok_or_else(|| NoTerm(format!("no atom is called {}", String::from_utf8_lossy(payload)))),
            extension::TUPLE => {
                let mut inner = Reader { env, rest: payload };
                let count = inner.array_length()?;
                let items = inner.items(count, depth)?;
                if inner.rest.is_empty() {
                    Ok(env.make_tuple(&items))
                } else {
                    Err(wrong("bytes behind a tuple"))
                }
            }
            extension::PID | extension::REFERENCE => {
                env.of_external(payload).ok_or_else(|| wrong("no process and no reference"))
            }
            extension::INTEGER => self.large(payload),
            _ => Err(wrong("an extension that nobody declared")),
        }
    }

    fn array_length(&mut self) -> Result<u64, NoTerm> {
        match self.take(1)?[0] {
            small @ 0x90..=0x9f => Ok(u64::from(small & 0x0f)),
            0xdc => self.number(2),
            0xdd => self.number(4),
            _ => Err(wrong("a tuple that is no array")),
        }
    }

    fn large(&self, payload: &[u8]) -> Result<RawTerm, NoTerm> {
        let (sign, magnitude) = payload.split_first().ok_or_else(|| wrong("an integer without digits"))?;
        let mut form = vec![131];
        match u8::try_from(magnitude.len()) {
            Ok(length) => form.extend_from_slice(&[110, length, *sign]),
            Err(_) => {
                form.push(111);
                form.extend_from_slice(&(magnitude.len() as u32).to_be_bytes());
                form.push(*sign);
            }
        }
        form.extend_from_slice(magnitude);
        self.env.of_external(&form).ok_or_else(|| wrong("an integer that is too large"))
    }
}
