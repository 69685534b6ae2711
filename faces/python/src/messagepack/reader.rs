//! Bytes as values.
//!
//! A reader is borrowed for one step at a time and never while a function of Python's runs, because that
//! function reads on with the same reader.

use super::decode_error;
use super::leaf::{Known, Leaf};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::fmt::Display;
use thalweg_wire::messagepack::{DecodeError, DecodeErrorKind, Reader as Walk};

static METHODS: Known = Known::new();

/// Walks one frame.
#[pyclass(module = "thalweg.messagepack")]
pub(crate) struct Reader {
    frame: Py<PyBytes>,
    at: usize,
    place: Place,
    /// How much structs, lists and maps may still take in memory.
    room: usize,
}

/// What they may take for each byte of a frame, and besides.
const HELD_PER_BYTE: usize = 64;
const HELD_BESIDES: usize = 16 << 20;
/// What the smallest of each takes; a struct has a word more for each field.
const WORD: usize = 8;
const STRUCT: usize = 8 * WORD;
const LIST: usize = 10 * WORD;
const MAP: usize = 11 * WORD;

/// What is being read, to be named if it is refused.
enum Place {
    Frame,
    Struct(Py<PyString>),
    /// By its name on the wire, as in every language.
    Field(Py<PyString>, Py<PyBytes>),
}

impl Reader {
    /// Reads on from where the reader stands.
    #[inline]
    fn step<'py, T>(
        &mut self,
        py: Python<'py>,
        step: impl FnOnce(&mut Walk<'_>) -> Result<T, DecodeError>,
    ) -> PyResult<T> {
        let mut walk = Walk::resume(self.frame.as_bytes(py), self.at);
        let outcome = step(&mut walk);
        self.at = walk.at();
        outcome.map_err(|error| self.refusal(py, &error.kind, error.at))
    }

    #[inline]
    fn leaf(&mut self, py: Python<'_>, leaf: Leaf) -> PyResult<Py<PyAny>> {
        self.step(py, |walk| leaf.read(py, walk))?
    }

    /// Counts what a value takes in memory: one that is a byte on the wire may be large there.
    #[inline]
    fn hold(&mut self, py: Python<'_>, size: usize) -> PyResult<()> {
        let Some(room) = self.room.checked_sub(size) else {
            return Err(self.refusal(py, &DecodeErrorKind::Memory, self.at));
        };
        self.room = room;
        Ok(())
    }

    #[cold]
    fn refusal(&self, py: Python<'_>, kind: &DecodeErrorKind, at: usize) -> PyErr {
        let place = match &self.place {
            Place::Frame => "frame".to_owned(),
            Place::Struct(name) => name.to_string(),
            Place::Field(of, name) => field(of, name.as_bytes(py)),
        };
        decode_error(py, place, kind.to_string(), at)
    }
}

/// A function that reads a value, and what it reads if that is known.
struct Read<'a, 'py> {
    function: &'a Bound<'py, PyAny>,
    leaf: Option<Leaf>,
}

impl<'a, 'py> Read<'a, 'py> {
    #[inline]
    fn of(function: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let leaf = METHODS.leaf(function, "", |py| Ok(py.get_type::<Reader>().into_any()))?;
        Ok(Self { function, leaf })
    }

    #[inline]
    fn next(&self, reader: &Bound<'py, Reader>) -> PyResult<Py<PyAny>> {
        match self.leaf {
            Some(leaf) => reader.borrow_mut().leaf(reader.py(), leaf),
            None => self.function.call1((reader,)).map(Bound::unbind),
        }
    }
}

#[pymethods]
impl Reader {
    #[new]
    fn new(frame: &Bound<'_, PyAny>) -> PyResult<Self> {
        let frame = match frame.cast::<PyBytes>() {
            Ok(bytes) => bytes.clone(),
            Err(_) => PyBytes::new(frame.py(), crate::payload::Payload::of(frame)?.bytes()),
        };
        let room = frame.as_bytes().len().saturating_mul(HELD_PER_BYTE).saturating_add(HELD_BESIDES);
        Ok(Self { frame: frame.unbind(), at: 0, place: Place::Frame, room })
    }

    /// An error about what was read last.
    fn refuse(&self, py: Python<'_>, reason: String, place: String) -> PyErrValue {
        PyErrValue(decode_error(py, place, reason, self.at))
    }

    /// Ends the frame.
    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        self.place = Place::Frame;
        self.step(py, |walk| walk.finish())
    }

    fn boolean(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::Boolean)
    }

    fn u8(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::U8)
    }

    fn u16(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::U16)
    }

    fn u32(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::U32)
    }

    fn u64(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::U64)
    }

    fn i8(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::I8)
    }

    fn i16(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::I16)
    }

    fn i32(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::I32)
    }

    fn i64(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::I64)
    }

    fn f32(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::F32)
    }

    fn f64(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::F64)
    }

    fn string(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::String)
    }

    fn bytes(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::Bytes)
    }

    /// Exactly 32 bytes.
    fn bin32(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.leaf(py, Leaf::Bin32)
    }

    /// A string's bytes, to be compared with those that are declared.
    fn key<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.step(py, |walk| walk.key().map(|key| PyBytes::new(py, key)))
    }

    /// A word of an enum: what `words` has for it.
    fn word<'py>(&mut self, py: Python<'py>, words: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let at = self.at;
        let word = self.key(py)?;
        words.get_item(word)?.ok_or_else(|| self.refusal(py, &DecodeErrorKind::UnknownWord, at))
    }

    /// Begins a request's envelope and returns its tag.
    fn request<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.step(py, |walk| walk.request().map(|tag| latin(py, tag)))
    }

    /// Begins the envelope of a response, an item or an error; returns its tag.
    fn response<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.step(py, |walk| walk.response().map(|tag| latin(py, tag)))
    }

    fn optional(slf: &Bound<'_, Self>, read: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if slf.borrow_mut().step(slf.py(), |walk| Ok(walk.nil()))? {
            return Ok(slf.py().None());
        }
        Read::of(read)?.next(slf)
    }

    fn list<'py>(
        slf: &Bound<'py, Self>,
        item_bytes_min: usize,
        read: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let count = slf.borrow_mut().step(slf.py(), |walk| walk.begin_list(item_bytes_min))?;
        slf.borrow_mut().hold(slf.py(), LIST)?;
        several(slf, count, read)
    }

    fn array<'py>(
        slf: &Bound<'py, Self>,
        expected: usize,
        read: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        slf.borrow_mut().step(slf.py(), |walk| walk.begin_array(expected))?;
        slf.borrow_mut().hold(slf.py(), LIST)?;
        several(slf, expected, read)
    }

    fn map<'py>(
        slf: &Bound<'py, Self>,
        item_bytes_min: usize,
        read: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let read = Read::of(read)?;
        let values = PyDict::new(py);
        let count = slf.borrow_mut().step(py, |walk| walk.begin_map(item_bytes_min))?;
        slf.borrow_mut().hold(py, MAP)?;
        for _ in 0..count {
            let at = slf.borrow().at;
            let key = slf.borrow_mut().leaf(py, Leaf::String)?;
            if values.contains(&key)? {
                return Err(slf.borrow().refusal(py, &DecodeErrorKind::Duplicate, at));
            }
            values.set_item(key, read.next(slf)?)?;
        }
        Ok(values)
    }

    /// The attributes of a struct; optional ones may be missing.
    fn r#struct<'py>(
        slf: &Bound<'py, Self>,
        place: &Bound<'py, PyString>,
        fields: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let values = PyDict::new(py);
        let (outer, count) = {
            let mut reader = slf.borrow_mut();
            let outer = std::mem::replace(&mut reader.place, Place::Struct(place.clone().unbind()));
            let count = reader.step(py, |walk| walk.begin_map(1))?;
            reader.hold(py, STRUCT + WORD * fields.len())?;
            (outer, count)
        };
        for _ in 0..count {
            let key = slf.borrow_mut().key(py)?;
            let Some(field) = fields.get_item(&key)? else {
                let at = slf.borrow().at;
                return Err(decode_error(
                    py,
                    place.to_string(),
                    DecodeErrorKind::UnknownField.to_string(),
                    at,
                ));
            };
            let field = Field::of(&field)?;
            slf.borrow_mut().place = Place::Field(place.clone().unbind(), key.unbind());
            if values.contains(&field.name)? {
                let reader = slf.borrow();
                return Err(reader.refusal(py, &DecodeErrorKind::Duplicate, reader.at));
            }
            let value = Read::of(&field.read)?.next(slf)?;
            values.set_item(field.name, value)?;
            slf.borrow_mut().place = Place::Struct(place.clone().unbind());
        }
        if count < fields.len() {
            required(slf, place, fields, &values)?;
        }
        slf.borrow_mut().place = outer;
        Ok(values)
    }
}

/// A row of a struct's table.
struct Field<'py> {
    name: Bound<'py, PyString>,
    is_required: Bound<'py, PyAny>,
    read: Bound<'py, PyAny>,
}

impl<'py> Field<'py> {
    #[inline]
    fn of(row: &Bound<'py, PyAny>) -> PyResult<Self> {
        let row = row.cast::<PyTuple>()?;
        Ok(Self {
            name: row.get_item(0)?.cast_into()?,
            is_required: row.get_item(1)?,
            read: row.get_item(2)?,
        })
    }
}

/// A field as it is named when it is refused.
#[cold]
fn field(of: impl Display, name: &[u8]) -> String {
    format!("{of}.{}", String::from_utf8_lossy(name))
}

/// Whether everything that has to be there is.
fn required<'py>(
    slf: &Bound<'py, Reader>,
    place: &Bound<'py, PyString>,
    fields: &Bound<'py, PyDict>,
    values: &Bound<'py, PyDict>,
) -> PyResult<()> {
    for (key, row) in fields {
        let row = Field::of(&row)?;
        if row.is_required.is_truthy()? && !values.contains(&row.name)? {
            let place = field(place, key.cast::<PyBytes>()?.as_bytes());
            return Err(decode_error(slf.py(), place, DecodeErrorKind::Missing.to_string(), slf.borrow().at));
        }
    }
    Ok(())
}

fn several<'py>(
    slf: &Bound<'py, Reader>,
    count: usize,
    read: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let read = Read::of(read)?;
    let values = PyList::empty(slf.py());
    for _ in 0..count {
        values.append(read.next(slf)?)?;
    }
    Ok(values)
}

/// A tag, each byte a character: any bytes are a tag that can be looked for.
fn latin<'py>(py: Python<'py>, tag: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(tag) {
        Ok(tag) if tag.is_ascii() => PyString::new(py, tag),
        _ => PyString::new(py, &tag.iter().copied().map(char::from).collect::<String>()),
    }
}

/// An exception that is returned, to be raised by the caller.
pub(crate) struct PyErrValue(PyErr);

impl<'py> IntoPyObject<'py> for PyErrValue {
    type Target = pyo3::exceptions::PyBaseException;
    type Output = Bound<'py, Self::Target>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, PyErr> {
        Ok(self.0.into_value(py).into_bound(py))
    }
}
