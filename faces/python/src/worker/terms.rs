//! Erlang's values that Python has no word for.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// An atom: equal to one of the same name, and to nothing else.
#[pyclass(module = "thalweg.erlang", frozen, eq, hash, from_py_object)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Atom {
    /// Its name.
    #[pyo3(get)]
    pub(super) name: String,
}

#[pymethods]
impl Atom {
    #[new]
    fn new(name: String) -> PyResult<Self> {
        if name.chars().count() > 255 {
            return Err(PyValueError::new_err("an atom's name has 255 characters at most"));
        }
        Ok(Self { name })
    }

    fn __repr__(&self) -> String {
        format!("Atom({:?})", self.name)
    }

    fn __str__(&self) -> &str {
        &self.name
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (String,)) {
        (slf.get_type().into_any(), (slf.get().name.clone(),))
    }
}

macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[pyclass(module = "thalweg.erlang", frozen)]
        #[derive(Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name {
            /// As Erlang writes it.
            pub(super) form: Vec<u8>,
        }

        #[pymethods]
        impl $name {
            fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
                other.cast::<Self>().is_ok_and(|other| other.get() == self)
            }

            fn __hash__(&self) -> u64 {
                hash(self)
            }

            fn __repr__(&self) -> String {
                format!("<{} {:016x}>", stringify!($name), hash(self))
            }

            /// As Erlang writes it.
            #[getter]
            fn form<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
                PyBytes::new(py, &self.form)
            }
        }
    };
}

opaque! {
    /// A process.
    Pid
}

opaque! {
    /// A reference.
    Reference
}
