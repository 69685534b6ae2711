//! Values as bytes, each function appending to a `bytearray`.

use super::encode_error;
use super::leaf::{Known, Leaf};
use crate::payload::Payload;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyModule, PySequence, PyString};
use thalweg_wire::messagepack::write;

static FUNCTIONS: Known = Known::new();

/// Bytes of what is written first and appended in one piece.
const PIECE_BYTES: usize = 48;

/// Appends.
#[inline]
fn push(out: &Bound<'_, PyByteArray>, bytes: &[u8]) -> PyResult<()> {
    let before = out.len();
    out.resize(before + bytes.len())?;
    // SAFETY: the interpreter's lock is held and nothing of Python's runs until this has been written, so the
    // array keeps its place; it was just made long enough.
    let written = unsafe { &mut out.as_bytes_mut()[before..] };
    written.copy_from_slice(bytes);
    Ok(())
}

#[inline]
fn leaf(out: &Bound<'_, PyByteArray>, value: &Bound<'_, PyAny>, leaf: Leaf) -> PyResult<()> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    leaf.write(&mut piece, value)?;
    push(out, &piece)
}

fn header(out: &Bound<'_, PyByteArray>, write: fn(&mut Vec<u8>, usize), length: usize) -> PyResult<()> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    write(&mut piece, length);
    push(out, &piece)
}

/// Writes a value by whatever writes it.
struct Write<'a, 'py> {
    function: &'a Bound<'py, PyAny>,
    leaf: Option<Leaf>,
}

impl<'a, 'py> Write<'a, 'py> {
    #[inline]
    fn of(function: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let module = |py: Python<'py>| Ok(py.import("thalweg._native")?.into_any());
        Ok(Self { function, leaf: FUNCTIONS.leaf(function, "write_", module)? })
    }

    #[inline]
    fn next(&self, out: &Bound<'py, PyByteArray>, value: &Bound<'py, PyAny>) -> PyResult<()> {
        match self.leaf {
            Some(of) => leaf(out, value, of),
            None => self.function.call1((out, value)).map(drop),
        }
    }
}

macro_rules! leaves {
    ($($function:ident: $leaf:ident),+) => {
        $(#[pyfunction]
        fn $function(out: &Bound<'_, PyByteArray>, value: &Bound<'_, PyAny>) -> PyResult<()> {
            leaf(out, value, Leaf::$leaf)
        })+

        fn add_leaves(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($function, module)?)?;)+
            Ok(())
        }
    };
}

leaves! {
    write_boolean: Boolean,
    write_u8: U8,
    write_u16: U16,
    write_u32: U32,
    write_u64: U64,
    write_i8: I8,
    write_i16: I16,
    write_i32: I32,
    write_i64: I64,
    write_f32: F32,
    write_f64: F64,
    write_string: String,
    write_bin32: Bin32
}

/// The one leaf that may be long: it is copied where it goes.
#[pyfunction]
fn write_bytes(out: &Bound<'_, PyByteArray>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let payload = Payload::of(value)?;
    header(out, write::bytes_header, payload.bytes().len())?;
    push(out, payload.bytes())
}

#[pyfunction]
fn write_optional<'py>(
    out: &Bound<'py, PyByteArray>,
    value: &Bound<'py, PyAny>,
    write: &Bound<'py, PyAny>,
) -> PyResult<()> {
    if value.is_none() { push(out, &[0xc0]) } else { Write::of(write)?.next(out, value) }
}

#[pyfunction]
fn write_list<'py>(
    out: &Bound<'py, PyByteArray>,
    values: &Bound<'py, PyAny>,
    write: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let write = Write::of(write)?;
    if values.is_instance_of::<PyString>()
        || values.is_instance_of::<PyBytes>()
        || values.is_instance_of::<PyByteArray>()
    {
        return Err(encode_error(out.py(), format!("a {} is no list", values.get_type().name()?)));
    }
    // A copy: what writes the values, and other threads meanwhile, may change the list.
    let values = values.cast::<PySequence>()?.to_list()?;
    header(out, write::list_header, values.len())?;
    values.iter().try_for_each(|value| write.next(out, &value))
}

#[pyfunction]
fn write_array<'py>(
    out: &Bound<'py, PyByteArray>,
    expected: usize,
    values: &Bound<'py, PyAny>,
    write: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let found = values.len()?;
    if found != expected {
        return Err(encode_error(out.py(), format!("{found} values where {expected} belong")));
    }
    write_list(out, values, write)
}

/// By code points, which is the byte order of the keys' UTF-8.
#[pyfunction]
fn write_map<'py>(
    out: &Bound<'py, PyByteArray>,
    values: &Bound<'py, PyDict>,
    write: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let write = Write::of(write)?;
    // A copy, as of a list.
    let items = values.items();
    items.sort()?;
    header(out, write::map_header, items.len())?;
    for item in items {
        let (key, value) = item.extract::<(Bound<'_, PyString>, Bound<'_, PyAny>)>()?;
        leaf(out, &key, Leaf::String)?;
        write.next(out, &value)?;
    }
    Ok(())
}

/// Puts the functions into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_leaves(module)?;
    module.add_function(wrap_pyfunction!(write_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(write_optional, module)?)?;
    module.add_function(wrap_pyfunction!(write_list, module)?)?;
    module.add_function(wrap_pyfunction!(write_array, module)?)?;
    module.add_function(wrap_pyfunction!(write_map, module)?)
}
