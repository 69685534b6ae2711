//! Functions by name. Modules are found once.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Modules(Mutex<HashMap<String, Py<PyAny>>>);

impl Modules {
    /// A function by its module and its name, which may lead through objects.
    pub(super) fn function<'py>(
        &self,
        py: Python<'py>,
        module: &str,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let known = self.0.lock().get(module).map(|found| found.clone_ref(py));
        let module = match known {
            Some(found) => found.into_bound(py),
            None => {
                let found = py.import(module)?.into_any();
                self.0.lock().insert(module.to_owned(), found.clone().unbind());
                found
            }
        };
        if name.contains('.') {
            return name.split('.').try_fold(module, |object, part| object.getattr(part));
        }
        module.getattr(PyString::intern(py, name))
    }
}
