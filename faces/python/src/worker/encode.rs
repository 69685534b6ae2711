//! Python values as bytes: `decode` the other way round.

use super::terms::{Atom, Pid, Reference};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyMemoryView, PySet, PyString,
    PyTuple,
};
use thalweg_wire::messagepack::write;
use thalweg_wire::term::write::{extended, large};
use thalweg_wire::term::{self, DEPTH_MAX, TermError, extension};

/// Appends a value.
pub(crate) fn value(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    encode(value, out, DEPTH_MAX)
}

fn encode(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: u32) -> PyResult<()> {
    let deeper =
        depth.checked_sub(1).ok_or_else(|| PyValueError::new_err("a value that is nested too deep"))?;
    if value.is_none() {
        out.push(0xc0);
    } else if let Ok(text) = value.cast::<PyString>() {
        write::string(out, &text.to_cow()?);
    } else if let Ok(flag) = value.cast::<PyBool>() {
        write::boolean(out, &flag.is_true());
    } else if let Ok(number) = value.cast::<PyInt>() {
        integer(number, out)?;
    } else if let Ok(number) = value.cast::<PyFloat>() {
        write::f64(out, &number.value());
    } else if let Ok(items) = value.cast::<PyList>() {
        write::list_header(out, items.len());
        return several(items.len(), items.iter().map(Ok), out, deeper);
    } else if let Ok(map) = value.cast::<PyDict>() {
        return pairs(map, out, deeper);
    } else if let Ok(items) = value.cast::<PyTuple>() {
        return term::write::tuple(out, items.len(), |out| {
            items.iter_borrowed().try_for_each(|item| encode(&item, out, deeper).map_err(Stopped))
        })
        .map_err(|Stopped(raised)| raised);
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        write::bytes(out, bytes.as_bytes());
    } else if let Ok(atom) = value.cast::<Atom>() {
        extended(out, extension::ATOM, atom.get().name.as_bytes());
    } else {
        return rarer(value, out, deeper);
    }
    Ok(())
}

/// As many items as were said to come: what is written of one may have Python run, and change what holds it.
fn several<'py>(
    count: usize,
    mut items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    out: &mut Vec<u8>,
    deeper: u32,
) -> PyResult<()> {
    for _ in 0..count {
        encode(&items.next().ok_or_else(changed)??, out, deeper)?;
    }
    if items.next().is_some() { Err(changed()) } else { Ok(()) }
}

/// The same of a dictionary, whose iterator is not asked once that has changed: it would panic.
fn pairs(map: &Bound<'_, PyDict>, out: &mut Vec<u8>, deeper: u32) -> PyResult<()> {
    let (count, mut pairs) = (map.len(), map.iter());
    write::map_header(out, count);
    for _ in 0..count {
        let pair = if map.len() == count { pairs.next() } else { None };
        let (key, value) = pair.ok_or_else(changed)?;
        encode(&key, out, deeper)?;
        encode(&value, out, deeper)?;
    }
    Ok(())
}

#[cold]
fn changed() -> PyErr {
    PyRuntimeError::new_err("a value that changed while it was written")
}

/// What is seldom sent.
fn rarer(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, deeper: u32) -> PyResult<()> {
    if let Ok(pid) = value.cast::<Pid>() {
        extended(out, extension::PID, &pid.get().form);
    } else if let Ok(reference) = value.cast::<Reference>() {
        extended(out, extension::REFERENCE, &reference.get().form);
    } else if let Ok(bytes) = value.cast::<PyByteArray>() {
        write::bytes(out, &bytes.to_vec());
    } else if value.cast::<PyMemoryView>().is_ok() {
        let bytes = value.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        write::bytes(out, bytes.as_bytes());
    } else if value.cast::<PySet>().is_ok() || value.cast::<PyFrozenSet>().is_ok() {
        let count = value.len()?;
        write::list_header(out, count);
        return several(count, value.try_iter()?, out, deeper);
    } else {
        let kind = value.get_type().fully_qualified_name()?;
        return Err(PyTypeError::new_err(format!("{kind} has no value in Erlang")));
    }
    Ok(())
}

fn integer(number: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(value) = number.extract::<i64>() {
        write::i64(out, &value);
        return Ok(());
    }
    if let Ok(value) = number.extract::<u64>() {
        write::u64(out, &value);
        return Ok(());
    }
    let is_negative = number.lt(0)?;
    let magnitude = if is_negative { number.neg()? } else { number.clone().into_any() };
    let bits: usize = magnitude.call_method0("bit_length")?.extract()?;
    let bytes = magnitude.call_method1("to_bytes", (bits.div_ceil(8), "little"))?.cast_into::<PyBytes>()?;
    large(out, is_negative, bytes.as_bytes());
    Ok(())
}

/// Why a value was not written.
struct Stopped(PyErr);

impl From<TermError> for Stopped {
    fn from(wrong: TermError) -> Self {
        Self(PyValueError::new_err(wrong.0))
    }
}
