//! Python values as bytes: `decode` the other way round.

use super::terms::{Atom, Pid, Reference};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyMemoryView, PySet, PyString,
    PyTuple,
};
use thalweg_wire::messagepack::write;

/// Extension types, by what they hold.
pub(crate) mod extension {
    /// An atom's name.
    pub(crate) const ATOM: u8 = 1;
    /// A tuple: an array behind the header.
    pub(crate) const TUPLE: u8 = 2;
    /// A process's external form.
    pub(crate) const PID: u8 = 3;
    /// A reference's external form.
    pub(crate) const REFERENCE: u8 = 4;
    /// An integer of more than 64 bits: 0 or 1 for its sign, then its magnitude, least byte first.
    pub(crate) const INTEGER: u8 = 5;
}

/// So deep may values be nested, in both directions.
pub(crate) const DEPTH_MAX: u32 = 256;

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
        return items.iter().try_for_each(|item| encode(&item, out, deeper));
    } else if let Ok(map) = value.cast::<PyDict>() {
        write::map_header(out, map.len());
        return map.iter().try_for_each(|(key, value)| {
            encode(&key, out, deeper)?;
            encode(&value, out, deeper)
        });
    } else if let Ok(items) = value.cast::<PyTuple>() {
        return tuple(items, out, deeper);
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        write::bytes(out, bytes.as_bytes());
    } else if let Ok(atom) = value.cast::<Atom>() {
        extended(out, extension::ATOM, atom.get().name.as_bytes());
    } else {
        return rarer(value, out, deeper);
    }
    Ok(())
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
        write::list_header(out, value.len()?);
        return value.try_iter()?.try_for_each(|item| encode(&item?, out, deeper));
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
    extension_header(out, extension::INTEGER, bytes.as_bytes().len() + 1);
    out.push(u8::from(is_negative));
    out.extend_from_slice(bytes.as_bytes());
    Ok(())
}

fn tuple(items: &Bound<'_, PyTuple>, out: &mut Vec<u8>, deeper: u32) -> PyResult<()> {
    // How long it will be is known afterwards.
    out.extend_from_slice(&[0xc9, 0, 0, 0, 0, extension::TUPLE]);
    let start = out.len();
    write::list_header(out, items.len());
    items.iter_borrowed().try_for_each(|item| encode(&item, out, deeper))?;
    let length =
        u32::try_from(out.len() - start).map_err(|_| PyValueError::new_err("a tuple of more than 4 GiB"))?;
    out[start - 5..start - 1].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn extended(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    extension_header(out, kind, payload.len());
    out.extend_from_slice(payload);
}

fn extension_header(out: &mut Vec<u8>, kind: u8, length: usize) {
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
