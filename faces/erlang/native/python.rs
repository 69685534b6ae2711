//! What is asked of a Python worker: terms as requests of `schemas/python.jsonc`.

use crate::atoms::atoms;
use crate::encode::{self, EncodeError, NoValue};
use crate::enif::RawTerm;
use crate::generated::types::{
    PythonAnswer, PythonEvaluate, PythonExecute, PythonForget, PythonGenerate, PythonInvoke, PythonPost,
};
use crate::term::{Env, Kind, same};
use std::borrow::Cow;
use thalweg_wire::messagepack::{request_frame, write};

/// Why there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// A term that has no value in Python.
    NoValue(NoValue),
    /// An argument of the wrong kind.
    BadArgument,
    /// Too much to be written in the middle of a process's turn.
    Large,
}

impl From<EncodeError> for RequestError {
    fn from(why: EncodeError) -> Self {
        match why {
            EncodeError::NoValue(what) => Self::NoValue(what),
            EncodeError::Large => Self::Large,
        }
    }
}

type Made = Result<(), RequestError>;

/// A name: an atom or text.
fn name(env: Env, term: RawTerm) -> Result<String, RequestError> {
    let bytes = match env.kind(term) {
        Kind::Atom => {
            let mut bytes = Vec::with_capacity(32);
            env.atom_name(term, &mut bytes);
            bytes
        }
        _ => env.iodata(term).ok_or(RequestError::BadArgument)?.to_vec(),
    };
    String::from_utf8(bytes).map_err(|_| RequestError::BadArgument)
}

/// A list of arguments. One that is improper has no value; what is no list is no arguments.
fn positional(env: Env, term: RawTerm) -> Result<Vec<u8>, RequestError> {
    if env.kind(term) != Kind::List {
        return Err(RequestError::BadArgument);
    }
    let mut out = Vec::with_capacity(64);
    encode::list(env, term, &mut out)?;
    Ok(out)
}

/// A map from names, or nothing where it is empty.
fn named(env: Env, term: RawTerm) -> Result<Option<Vec<u8>>, RequestError> {
    let size = env.map_size(term).ok_or(RequestError::BadArgument)?;
    if size == 0 {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(64);
    write::map_header(&mut out, size);
    env.pairs(term, |key, value| {
        write::string(&mut out, &name(env, key)?);
        encode::term(env, value, &mut out).map_err(RequestError::from)
    })?;
    Ok(Some(out))
}

fn value(env: Env, term: RawTerm) -> Result<Vec<u8>, RequestError> {
    let mut out = Vec::with_capacity(64);
    encode::term(env, term, &mut out)?;
    Ok(out)
}

/// The callback in whose course a call is made.
fn within(env: Env, term: RawTerm) -> Option<u64> {
    env.natural(term)
}

/// A call: `{Module, Name, Positional, Named, Within}`.
pub(crate) fn invoke(env: Env, call: &[RawTerm], out: &mut Vec<u8>) -> Made {
    let [module, function, arguments, keywords, callback] = call else {
        return Err(RequestError::BadArgument);
    };
    let (positional, named) = (positional(env, *arguments)?, named(env, *keywords)?);
    let request = PythonInvoke {
        module: name(env, *module)?.into(),
        name: name(env, *function)?.into(),
        positional: positional.into(),
        named: named.map(Cow::Owned),
        within: within(env, *callback),
    };
    out.clear();
    request_frame(&request, out);
    Ok(())
}

/// A stream: `{Module, Name, Positional, Named, Batch | none, Within | none}`.
pub(crate) fn stream(env: Env, call: &[RawTerm], out: &mut Vec<u8>) -> Made {
    let [module, function, arguments, keywords, batch, callback] = call else {
        return Err(RequestError::BadArgument);
    };
    let (positional, named) = (positional(env, *arguments)?, named(env, *keywords)?);
    let request = PythonGenerate {
        module: name(env, *module)?.into(),
        name: name(env, *function)?.into(),
        positional: positional.into(),
        named: named.map(Cow::Owned),
        batch: env.natural(*batch).and_then(|batch| u32::try_from(batch).ok()),
        within: within(env, *callback),
    };
    out.clear();
    request_frame(&request, out);
    Ok(())
}

/// Source to run: `{IsExpression, Source, Variables, Scope, Within}`.
pub(crate) fn source(env: Env, call: &[RawTerm], out: &mut Vec<u8>) -> Made {
    let [is_expression, source, variables, scope, callback] = call else {
        return Err(RequestError::BadArgument);
    };
    let variables = named(env, *variables)?.map(Cow::Owned);
    let scope: Cow<'_, [u8]> = env.binary(*scope).ok_or(RequestError::BadArgument)?.into();
    let (source, within) = (name(env, *source)?, within(env, *callback));
    if source.len() > encode::INLINE_BYTES_MAX && !env.is_apart() {
        return Err(RequestError::Large);
    }
    let source = source.into();
    out.clear();
    if same(*is_expression, atoms(env).yes) {
        request_frame(&PythonEvaluate { source, variables, scope, within }, out);
    } else {
        request_frame(&PythonExecute { source, variables, scope, within }, out);
    }
    Ok(())
}

/// What a callback came to.
pub(crate) fn answer(env: Env, number: u64, ok: bool, term: RawTerm, out: &mut Vec<u8>) -> Made {
    let value = value(env, term)?.into();
    out.clear();
    request_frame(&PythonAnswer { number, ok, value }, out);
    Ok(())
}

/// An event for the worker's loop.
pub(crate) fn post(env: Env, kind: u32, number: u64, payload: RawTerm, out: &mut Vec<u8>) -> Made {
    let value = value(env, payload)?.into();
    out.clear();
    request_frame(&PythonPost { kind, number, value }, out);
    Ok(())
}

/// Lets a namespace go.
pub(crate) fn forget(scope: &[u8], out: &mut Vec<u8>) {
    out.clear();
    request_frame(&PythonForget { scope: scope.into() }, out);
}
