//! Bytes from Python, looked at where they lie.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What is bytes-like: its memory stays where it is for as long as this lives.
pub(crate) enum Payload<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(PyUntypedBuffer),
    Copied(Vec<u8>),
}

impl<'py> Payload<'py> {
    #[inline]
    pub(crate) fn of(data: &Bound<'py, PyAny>) -> PyResult<Payload<'py>> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Payload::Bytes(bytes.clone()));
        }
        let buffer = PyUntypedBuffer::get(data)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the bytes of a payload must lie side by side"));
        }
        Ok(Payload::Buffer(buffer))
    }

    /// The same for a caller that lets Python go on before it reads the bytes: a buffer that Python may
    /// write to is copied.
    pub(crate) fn kept(self) -> Payload<'py> {
        match self {
            Payload::Buffer(_) => Payload::Copied(self.bytes().to_vec()),
            kept => kept,
        }
    }

    /// The bytes. To be read with the interpreter's lock held: without it, another thread may write to a
    /// `bytearray` between the moment it is checksummed and the moment it is copied.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Bytes(bytes) => bytes.as_bytes(),
            Payload::Copied(bytes) => bytes,
            Payload::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: an exported buffer that is contiguous has this many bytes there and is not moved or
            // freed before it is released; nothing writes to it while the interpreter's lock is held.
            Payload::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast_const().cast(), buffer.len_bytes())
            },
        }
    }
}
