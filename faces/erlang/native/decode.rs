//! Bytes as Erlang terms: `encode` the other way round, and the table of `docs/erlang.md`. The walk over the
//! bytes is [`thalweg_wire::term`]'s; atoms are only ever found, never made, because their number is bounded.

use crate::atoms::atoms;
use crate::enif::RawTerm;
use crate::term::{Env, Kind};
use thalweg_wire::term::{self, Build, TermError};

/// Why bytes are no term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoTerm(pub(crate) String);

impl From<TermError> for NoTerm {
    fn from(wrong: TermError) -> Self {
        Self(wrong.0.to_owned())
    }
}

/// Reads a term that takes all of the bytes.
pub(crate) fn term(env: Env, bytes: &[u8]) -> Result<RawTerm, NoTerm> {
    term::read(&mut Terms(env), bytes)
}

struct Terms(Env);

impl Terms {
    /// What an external form stands for, if it is of the kind that it was said to be.
    fn external(&self, form: &[u8], kind: Kind) -> Result<RawTerm, NoTerm> {
        let term = self.0.of_external(form).filter(|term| self.0.kind(*term) == kind);
        term.ok_or(NoTerm::from(TermError("no process and no reference")))
    }
}

impl Build for Terms {
    type Value = RawTerm;
    type Error = NoTerm;

    fn none(&mut self) -> RawTerm {
        atoms(self.0).none
    }

    fn boolean(&mut self, value: bool) -> RawTerm {
        if value { atoms(self.0).yes } else { atoms(self.0).no }
    }

    fn integer(&mut self, value: i64) -> RawTerm {
        self.0.make_integer(value)
    }

    fn natural(&mut self, value: u64) -> RawTerm {
        self.0.make_natural(value)
    }

    fn large(&mut self, is_negative: bool, magnitude: &[u8]) -> Result<RawTerm, NoTerm> {
        let sign = u8::from(is_negative);
        let mut form = vec![131];
        match u8::try_from(magnitude.len()) {
            Ok(length) => form.extend_from_slice(&[110, length, sign]),
            Err(_) => {
                form.push(111);
                form.extend_from_slice(&(magnitude.len() as u32).to_be_bytes());
                form.push(sign);
            }
        }
        form.extend_from_slice(magnitude);
        self.0.of_external(&form).ok_or(NoTerm::from(TermError("an integer that is too large")))
    }

    /// Erlang's floats are finite.
    fn float(&mut self, value: f64) -> RawTerm {
        let known = atoms(self.0);
        match value {
            _ if value.is_finite() => self.0.make_float(value),
            _ if value.is_nan() => known.nan,
            _ if value > 0.0 => known.infinity,
            _ => known.negative_infinity,
        }
    }

    fn text(&mut self, text: &[u8]) -> Result<RawTerm, NoTerm> {
        Ok(self.0.make_binary(text))
    }

    fn bytes(&mut self, bytes: &[u8]) -> RawTerm {
        self.0.make_binary(bytes)
    }

    fn list(&mut self, items: Vec<RawTerm>) -> Result<RawTerm, NoTerm> {
        Ok(self.0.make_list(&items))
    }

    fn tuple(&mut self, items: Vec<RawTerm>) -> Result<RawTerm, NoTerm> {
        Ok(self.0.make_tuple(&items))
    }

    fn map(&mut self, pairs: Vec<RawTerm>) -> Result<RawTerm, NoTerm> {
        let keys: Vec<RawTerm> = pairs.iter().step_by(2).copied().collect();
        let values: Vec<RawTerm> = pairs.iter().skip(1).step_by(2).copied().collect();
        self.0.make_map(&keys, &values).ok_or(NoTerm::from(TermError("two keys that are one in Erlang")))
    }

    fn atom(&mut self, name: &[u8]) -> Result<RawTerm, NoTerm> {
        let words = || NoTerm(format!("no atom is called {}", String::from_utf8_lossy(name)));
        self.0.existing_atom(name).ok_or_else(words)
    }

    fn pid(&mut self, form: &[u8]) -> Result<RawTerm, NoTerm> {
        self.external(form, Kind::Pid)
    }

    fn reference(&mut self, form: &[u8]) -> Result<RawTerm, NoTerm> {
        self.external(form, Kind::Reference)
    }
}
