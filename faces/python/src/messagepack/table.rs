//! Which of the functions that generated code hands in are leaves of ours.

use super::Reader;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// What a function reads, where that is known.
#[derive(Clone, Copy)]
pub(super) enum Leaf {
    Boolean,
    Integer(i128, i128),
    F32,
    F64,
    String,
    Bytes,
    Bin32,
}

const NAMES: [(&str, Leaf); 14] = [
    ("string", Leaf::String),
    ("u32", Leaf::Integer(0, u32::MAX as i128)),
    ("u64", Leaf::Integer(0, u64::MAX as i128)),
    ("bytes", Leaf::Bytes),
    ("boolean", Leaf::Boolean),
    ("bin32", Leaf::Bin32),
    ("u8", Leaf::Integer(0, u8::MAX as i128)),
    ("u16", Leaf::Integer(0, u16::MAX as i128)),
    ("i8", Leaf::Integer(i8::MIN as i128, i8::MAX as i128)),
    ("i16", Leaf::Integer(i16::MIN as i128, i16::MAX as i128)),
    ("i32", Leaf::Integer(i32::MIN as i128, i32::MAX as i128)),
    ("i64", Leaf::Integer(i64::MIN as i128, i64::MAX as i128)),
    ("f32", Leaf::F32),
    ("f64", Leaf::F64),
];

static METHODS: PyOnceLock<Vec<(Py<PyAny>, Leaf)>> = PyOnceLock::new();

/// The leaf that `read` is a method for; `None` for anything else that may be called.
pub(super) fn leaf(read: &Bound<'_, PyAny>) -> PyResult<Option<Leaf>> {
    let py = read.py();
    let methods = METHODS.get_or_try_init(py, || {
        let class = py.get_type::<Reader>();
        NAMES.iter().map(|(name, leaf)| Ok((class.getattr(*name)?.unbind(), *leaf))).collect::<PyResult<_>>()
    })?;
    Ok(methods.iter().find(|(method, _)| method.is(read)).map(|(_, leaf)| *leaf))
}
