//! Bytes as Python values: the table of `docs/erlang.md` in this direction. Whatever the bytes are, nothing panics and
//! nothing is allocated beyond a fixed multiple of them.

use super::encode::{DEPTH_MAX, extension};
use super::terms::{Atom, Pid, Reference};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

fn wrong(what: &'static str) -> PyErr {
    PyValueError::new_err(what)
}

/// Reads a value that takes all of the bytes.
pub(crate) fn value<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let mut reader = Reader { py, rest: bytes };
    let value = reader.value(DEPTH_MAX)?;
    reader.end()?;
    Ok(value)
}

/// Reads a list's items, which take all of the bytes, as arguments.
pub(crate) fn arguments<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    let mut reader = Reader { py, rest: bytes };
    let count = reader.array_length()?;
    let items = reader.items(count, DEPTH_MAX)?;
    reader.end()?;
    PyTuple::new(py, items)
}

struct Reader<'py, 'b> {
    py: Python<'py>,
    rest: &'b [u8],
}

impl<'py, 'b> Reader<'py, 'b> {
    fn end(&self) -> PyResult<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(wrong("bytes behind the value")) }
    }

    fn take(&mut self, count: usize) -> PyResult<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| wrong("a value is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of so many bytes, the most significant first.
    fn number(&mut self, bytes: usize) -> PyResult<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn integer(&self, value: i64) -> Bound<'py, PyAny> {
        PyInt::new(self.py, value).into_any()
    }

    fn value(&mut self, depth: u32) -> PyResult<Bound<'py, PyAny>> {
        let deeper = depth.checked_sub(1).ok_or_else(|| wrong("a value that is nested too deep"))?;
        let py = self.py;
        let first = self.take(1)?[0];
        Ok(match first {
            0x00..=0x7f => self.integer(i64::from(first)),
            0xe0..=0xff => self.integer(i64::from(first as i8)),
            0xa0..=0xbf => self.text(u64::from(first & 0x1f))?,
            0x90..=0x9f => self.list(u64::from(first & 0x0f), deeper)?,
            0x80..=0x8f => self.map(u64::from(first & 0x0f), deeper)?,
            0xc0 => py.None().into_bound(py),
            0xc2 | 0xc3 => PyBool::new(py, first == 0xc3).to_owned().into_any(),
            0xc4..=0xc6 => self.sized(1 << (first - 0xc4), Self::bytes)?,
            0xd9..=0xdb => self.sized(1 << (first - 0xd9), Self::text)?,
            0xcc..=0xcf => PyInt::new(py, self.number(1 << (first - 0xcc))?).into_any(),
            0xd0 => {
                let number = self.number(1)?;
                self.integer(i64::from(number as i8))
            }
            0xd1 => {
                let number = self.number(2)?;
                self.integer(i64::from(number as i16))
            }
            0xd2 => {
                let number = self.number(4)?;
                self.integer(i64::from(number as i32))
            }
            0xd3 => {
                let number = self.number(8)?;
                self.integer(number as i64)
            }
            0xca => PyFloat::new(py, f64::from(f32::from_bits(self.number(4)? as u32))).into_any(),
            0xcb => PyFloat::new(py, f64::from_bits(self.number(8)?)).into_any(),
            0xdc | 0xdd => self.sized(2 << (first - 0xdc), |reader, count| reader.list(count, deeper))?,
            0xde | 0xdf => self.sized(2 << (first - 0xde), |reader, count| reader.map(count, deeper))?,
            0xc7..=0xc9 => {
                self.sized(1 << (first - 0xc7), |reader, length| reader.extension(length, deeper))?
            }
            0xd4..=0xd8 => self.extension(1 << (first - 0xd4), deeper)?,
            0xc1 => return Err(wrong("a byte that begins no value")),
        })
    }

    fn sized<T>(&mut self, bytes: usize, read: impl FnOnce(&mut Self, u64) -> PyResult<T>) -> PyResult<T> {
        let length = self.number(bytes)?;
        read(self, length)
    }

    fn text(&mut self, length: u64) -> PyResult<Bound<'py, PyAny>> {
        let text =
            std::str::from_utf8(self.take(length as usize)?).map_err(|_| wrong("text that is not UTF-8"))?;
        Ok(PyString::new(self.py, text).into_any())
    }

    fn bytes(&mut self, length: u64) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyBytes::new(self.py, self.take(length as usize)?).into_any())
    }

    fn items(&mut self, count: u64, depth: u32) -> PyResult<Vec<Bound<'py, PyAny>>> {
        // Each takes a byte at least.
        if count > self.rest.len() as u64 {
            return Err(wrong("a value is cut off"));
        }
        (0..count).map(|_| self.value(depth)).collect()
    }

    fn list(&mut self, count: u64, depth: u32) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(self.py, self.items(count, depth)?)?.into_any())
    }

    fn map(&mut self, count: u64, depth: u32) -> PyResult<Bound<'py, PyAny>> {
        if count > self.rest.len() as u64 {
            return Err(wrong("a value is cut off"));
        }
        let map = PyDict::new(self.py);
        for _ in 0..count {
            let key = self.value(depth)?;
            map.set_item(key, self.value(depth)?)?;
        }
        // 1 and 1.0 and True are one key here.
        if map.len() as u64 == count {
            Ok(map.into_any())
        } else {
            Err(wrong("two keys that are one in Python"))
        }
    }

    fn array_length(&mut self) -> PyResult<u64> {
        match self.take(1)?[0] {
            small @ 0x90..=0x9f => Ok(u64::from(small & 0x0f)),
            0xdc => self.number(2),
            0xdd => self.number(4),
            _ => Err(wrong("no array where one belongs")),
        }
    }

    fn extension(&mut self, length: u64, depth: u32) -> PyResult<Bound<'py, PyAny>> {
        let kind = self.take(1)?[0];
        let payload = self.take(length as usize)?;
        let py = self.py;
        match kind {
            extension::ATOM => {
                let name = std::str::from_utf8(payload).map_err(|_| wrong("an atom that is not UTF-8"))?;
                Ok(Bound::new(py, Atom { name: name.to_owned() })?.into_any())
            }
            extension::TUPLE => {
                let mut inner = Reader { py, rest: payload };
                let count = inner.array_length()?;
                let items = inner.items(count, depth)?;
                inner.end()?;
                Ok(PyTuple::new(py, items)?.into_any())
            }
            extension::PID => Ok(Bound::new(py, Pid { form: payload.to_vec() })?.into_any()),
            extension::REFERENCE => Ok(Bound::new(py, Reference { form: payload.to_vec() })?.into_any()),
            extension::INTEGER => {
                let (sign, magnitude) =
                    payload.split_first().ok_or_else(|| wrong("an integer without digits"))?;
                let value = py
                    .get_type::<PyInt>()
                    .call_method1("from_bytes", (PyBytes::new(py, magnitude), "little"))?;
                if *sign == 0 { Ok(value) } else { value.neg() }
            }
            _ => Err(wrong("an extension that nobody declared")),
        }
    }
}
