//! Erlang terms as bytes: the table of `docs/erlang.md` in this direction. `decode` is the other, and the
//! worker has both.
//!
//! Bounded: terms are nested [`DEPTH_MAX`] deep at most, and one of more than [`INLINE_BYTES_MAX`] is written
//! apart. *Checked by* `thalweg_terms_SUITE`, with random terms both ways.

use crate::atoms::atoms;
use crate::enif::RawTerm;
use crate::term::{Env, Kind, same};
use thalweg_wire::messagepack::write;
use thalweg_wire::term::write::{extended, large};
use thalweg_wire::term::{self, DEPTH_MAX, TermError, extension};

/// What is longer is not written in the middle of a process's turn.
pub(crate) const INLINE_BYTES_MAX: usize = 64 << 10;

/// Why a term has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoValue(pub(crate) &'static str);

/// Why a term was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodeError {
    NoValue(NoValue),
    /// It is for a scheduler where calls may take long.
    Large,
}

impl From<NoValue> for EncodeError {
    fn from(what: NoValue) -> Self {
        Self::NoValue(what)
    }
}

impl From<TermError> for EncodeError {
    fn from(wrong: TermError) -> Self {
        Self::NoValue(NoValue(wrong.0))
    }
}

type Written = Result<(), EncodeError>;

/// How much further it goes: levels deeper, and bytes in all.
#[derive(Clone, Copy)]
struct Room {
    depth: u32,
    bytes: usize,
}

impl Room {
    fn of(env: Env) -> Self {
        Self { depth: DEPTH_MAX, bytes: if env.is_apart() { usize::MAX } else { INLINE_BYTES_MAX } }
    }

    fn deeper(self) -> Result<Self, NoValue> {
        let depth = self.depth.checked_sub(1).ok_or(NoValue("a term that is nested too deep"))?;
        Ok(Self { depth, ..self })
    }

    fn has(self, out: &[u8], bytes: usize) -> Written {
        if bytes <= self.bytes.saturating_sub(out.len()) { Ok(()) } else { Err(EncodeError::Large) }
    }
}

/// Appends a term.
pub(crate) fn term(env: Env, term: RawTerm, out: &mut Vec<u8>) -> Written {
    encode(env, term, out, Room::of(env))
}

/// Appends what arguments are: a proper list.
pub(crate) fn list(env: Env, list: RawTerm, out: &mut Vec<u8>) -> Written {
    encode_list(env, list, out, Room::of(env))
}

fn encode(env: Env, term: RawTerm, out: &mut Vec<u8>, room: Room) -> Written {
    let deeper = room.deeper()?;
    room.has(out, 1)?;
    match env.kind(term) {
        Kind::Integer => integer(env, term, out),
        Kind::Binary => {
            let bytes = env.binary(term).unwrap_or_default();
            room.has(out, bytes.len())?;
            binary(bytes, out);
        }
        Kind::Atom => atom(env, term, out),
        Kind::Float => write::f64(out, &env.float(term).unwrap_or_default()),
        Kind::List => return encode_list(env, term, out, deeper),
        Kind::Tuple => return tuple(env, term, out, deeper),
        Kind::Map => {
            write::map_header(out, env.map_size(term).unwrap_or_default());
            return env.pairs(term, |key, value| {
                encode(env, key, out, deeper)?;
                encode(env, value, out, deeper)
            });
        }
        Kind::Pid => env.external(term, |form| extended(out, extension::PID, form)),
        Kind::Reference => env.external(term, |form| extended(out, extension::REFERENCE, form)),
        Kind::Other(what) => return Err(NoValue(what).into()),
    }
    Ok(())
}

fn encode_list(env: Env, list: RawTerm, out: &mut Vec<u8>, room: Room) -> Written {
    // An item takes a byte at least.
    let length = env.list_length_within(list, room.bytes).map_err(|()| EncodeError::Large)?;
    write::list_header(out, length.ok_or(NoValue("an improper list"))?);
    env.items(list).try_for_each(|item| encode(env, item, out, room))
}

/// A tuple: `{bytes, B}` says that a binary is no text.
fn tuple(env: Env, term: RawTerm, out: &mut Vec<u8>, room: Room) -> Written {
    let items = env.tuple(term).unwrap_or_default();
    if let [tag, value] = items
        && same(*tag, atoms(env).bytes)
        && let Some(bytes) = env.binary(*value)
    {
        room.has(out, bytes.len())?;
        write::bytes(out, bytes);
        return Ok(());
    }
    term::write::tuple(out, items.len(), |out| {
        items.iter().try_for_each(|item| encode(env, *item, out, room))
    })
}

fn integer(env: Env, term: RawTerm, out: &mut Vec<u8>) {
    if let Some(value) = env.integer(term) {
        return write::i64(out, &value);
    }
    if let Some(value) = env.natural(term) {
        return write::u64(out, &value);
    }
    env.external(term, |form| {
        let (sign, magnitude) = match form {
            [131, 110, _, sign, magnitude @ ..] | [131, 111, _, _, _, _, sign, magnitude @ ..] => {
                (*sign, magnitude)
            }
            _ => return,
        };
        large(out, sign != 0, magnitude);
    });
}

/// Text where it is text.
fn binary(bytes: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => write::string(out, text),
        Err(_) => write::bytes(out, bytes),
    }
}

fn atom(env: Env, term: RawTerm, out: &mut Vec<u8>) {
    let known = atoms(env);
    if same(term, known.yes) {
        out.push(0xc3);
    } else if same(term, known.no) {
        out.push(0xc2);
    } else if same(term, known.none) {
        out.push(0xc0);
    } else {
        let mut name = Vec::with_capacity(32);
        env.atom_name(term, &mut name);
        extended(out, extension::ATOM, &name);
    }
}
