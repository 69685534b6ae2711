//! Values that hold no others, and which of the functions that generated code hands in are ours for them.

use super::encode_error;
use crate::payload::Payload;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyString};
use thalweg_wire::messagepack::{DecodeError, Reader as Walk, write};

/// What a field may be.
#[derive(Clone, Copy)]
pub(super) enum Leaf {
    Boolean,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    String,
    Bytes,
    Bin32,
}

impl Leaf {
    const ALL: [Self; 14] = [
        Self::String,
        Self::U64,
        Self::U32,
        Self::Bytes,
        Self::Boolean,
        Self::Bin32,
        Self::U8,
        Self::U16,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Bin32 => "bin32",
        }
    }

    /// Takes the value that stands where `walk` is.
    #[inline]
    pub(super) fn read(
        self,
        py: Python<'_>,
        walk: &mut Walk<'_>,
    ) -> Result<PyResult<Py<PyAny>>, DecodeError> {
        Ok(match self {
            Self::Boolean => walk.boolean()?.into_py_any(py),
            Self::U8 => walk.u8()?.into_py_any(py),
            Self::U16 => walk.u16()?.into_py_any(py),
            Self::U32 => walk.u32()?.into_py_any(py),
            Self::U64 => walk.u64()?.into_py_any(py),
            Self::I8 => walk.i8()?.into_py_any(py),
            Self::I16 => walk.i16()?.into_py_any(py),
            Self::I32 => walk.i32()?.into_py_any(py),
            Self::I64 => walk.i64()?.into_py_any(py),
            Self::F32 => walk.f32()?.into_py_any(py),
            Self::F64 => walk.f64()?.into_py_any(py),
            Self::String => Ok(PyString::new(py, &walk.string()?).into_any().unbind()),
            Self::Bytes => Ok(PyBytes::new(py, &walk.bytes()?).into_any().unbind()),
            Self::Bin32 => Ok(PyBytes::new(py, &walk.bin32()?).into_any().unbind()),
        })
    }

    /// Writes a value behind what `out` holds.
    #[inline]
    pub(super) fn write(self, out: &mut Vec<u8>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        match self {
            Self::Boolean => write::boolean(out, &value.cast::<PyBool>()?.is_true()),
            Self::U8 => write::u64(out, &unsigned(value, u8::MAX.into())?),
            Self::U16 => write::u64(out, &unsigned(value, u16::MAX.into())?),
            Self::U32 => write::u64(out, &unsigned(value, u32::MAX.into())?),
            Self::U64 => write::u64(out, &unsigned(value, u64::MAX)?),
            Self::I8 => write::i64(out, &signed(value, i8::MIN.into(), i8::MAX.into())?),
            Self::I16 => write::i64(out, &signed(value, i16::MIN.into(), i16::MAX.into())?),
            Self::I32 => write::i64(out, &signed(value, i32::MIN.into(), i32::MAX.into())?),
            Self::I64 => write::i64(out, &signed(value, i64::MIN, i64::MAX)?),
            Self::F32 => write::f32(out, &single(value)?),
            Self::F64 => write::f64(out, &value.extract()?),
            Self::String => {
                let text = value.cast::<PyString>()?;
                let text = text.to_str().map_err(|_| encode_error(py, "a string with a lone surrogate"))?;
                write::string(out, text);
            }
            Self::Bytes => write::bytes(out, Payload::of(value)?.bytes()),
            Self::Bin32 => {
                let payload = Payload::of(value)?;
                let bytes = payload.bytes();
                let exactly = <&[u8; 32]>::try_from(bytes);
                let wrong = |_| encode_error(py, format!("{} bytes are no bin32", bytes.len()));
                write::bin32(out, exactly.map_err(wrong)?);
            }
        }
        Ok(())
    }
}

#[inline]
fn unsigned(value: &Bound<'_, PyAny>, most: u64) -> PyResult<u64> {
    match value.extract::<u64>() {
        Ok(number) if number <= most => Ok(number),
        Ok(_) => Err(no_integer(value, 0, most.into())),
        Err(error) => Err(beyond(value, error, 0, most.into())),
    }
}

#[inline]
fn signed(value: &Bound<'_, PyAny>, least: i64, most: i64) -> PyResult<i64> {
    match value.extract::<i64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(_) => Err(no_integer(value, least.into(), most.into())),
        Err(error) => Err(beyond(value, error, least.into(), most.into())),
    }
}

/// A number too large even for 64 bits; what is no number stays the error it is.
#[cold]
fn beyond(value: &Bound<'_, PyAny>, error: PyErr, least: i128, most: i128) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(value.py()) { no_integer(value, least, most) } else { error }
}

#[cold]
fn no_integer(value: &Bound<'_, PyAny>, least: i128, most: i128) -> PyErr {
    encode_error(value.py(), format!("{value} is no integer from {least} to {most}"))
}

fn single(value: &Bound<'_, PyAny>) -> PyResult<f32> {
    let wide: f64 = value.extract()?;
    let single = wide as f32;
    if single.is_infinite() && wide.is_finite() {
        return Err(encode_error(value.py(), format!("{value} is no 32-bit float")));
    }
    Ok(single)
}

/// Functions of ours by the leaves that they are for.
pub(super) struct Known(PyOnceLock<Vec<(Py<PyAny>, Leaf)>>);

impl Known {
    pub(super) const fn new() -> Self {
        Self(PyOnceLock::new())
    }

    /// The leaf that `function` is ours for. `owner` has our functions as attributes, each called `prefix`
    /// and the leaf.
    #[inline]
    pub(super) fn leaf<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        prefix: &str,
        owner: impl FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Leaf>> {
        let known = self.0.get_or_try_init(function.py(), || {
            let owner = owner(function.py())?;
            let named =
                |leaf: &Leaf| Ok((owner.getattr(format!("{prefix}{}", leaf.name()))?.unbind(), *leaf));
            Leaf::ALL.iter().map(named).collect::<PyResult<_>>()
        })?;
        Ok(known.iter().find(|(ours, _)| ours.is(function)).map(|(_, leaf)| *leaf))
    }
}
