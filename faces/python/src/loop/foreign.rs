//! Calls into the interpreter that its limited interface names too late or not at all.
//!
//! `PyObject_Vectorcall` belongs to it only since 3.12, and the calls for contexts never did, though all of
//! them are documented, exported by every CPython since 3.9, and unchanged: with them one wheel still serves
//! all versions, and a callback costs no tuple and no method lookup. A build without one of them does not
//! import, rather than misbehave.

use pyo3::exceptions::PyBaseException;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::c_int;
use std::mem::ManuallyDrop;

/// Tells a callee that it may use the place before the first argument.
const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

unsafe extern "C" {
    fn PyContext_New() -> *mut PyObject;
    fn PyContext_CopyCurrent() -> *mut PyObject;
    fn PyContext_Copy(context: *mut PyObject) -> *mut PyObject;
    fn PyContext_Enter(context: *mut PyObject) -> c_int;
    fn PyContext_Exit(context: *mut PyObject) -> c_int;
    fn PyObject_Vectorcall(
        callable: *mut PyObject,
        arguments: *const *mut PyObject,
        count_and_flags: usize,
        names: *mut PyObject,
    ) -> *mut PyObject;
}

/// Takes an object off the garbage collector's list: what lets go of everything by itself is not worth a look
/// of it, and thousands of such objects are many looks.
#[inline]
pub(crate) fn untrack<T>(py: Python<'_>, object: Py<T>) -> Py<T> {
    let _ = py;
    // SAFETY: the interpreter's lock is held, and the object is alive and of one of our classes, which all
    // have the collector's header; taking one off the list twice does nothing.
    unsafe { pyo3::ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) };
    object
}

/// Has the garbage collector look at an object again, after [`untrack`].
#[inline]
pub(crate) fn track<T>(py: Python<'_>, object: &Py<T>) {
    let (_, object) = (py, object.as_ptr());
    // SAFETY: as in `untrack`; what is on the list already is not put there twice, and all that the collector
    // is shown of it is there.
    unsafe {
        if pyo3::ffi::PyObject_GC_IsTracked(object) == 0 {
            pyo3::ffi::PyObject_GC_Track(object.cast());
        }
    }
}

/// How many references there are to an object, weak ones aside. Under the interpreter's lock only.
#[inline]
pub(crate) fn references<T>(object: &Py<T>) -> isize {
    // SAFETY: the object is alive, and it is not counted without the lock.
    unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) }
}

/// Whether this is the only one.
#[inline]
pub(crate) fn is_only<T>(object: &Py<T>) -> bool {
    references(object) == 1
}

/// Does something while an exception passes for being handled, as in an `except` clause: whatever is raised
/// meanwhile has it for its context.
pub(crate) fn handling<R>(exception: &Bound<'_, PyBaseException>, work: impl FnOnce() -> R) -> R {
    // SAFETY: the interpreter's lock is held. Both calls take and give references of their own; what was
    // handled before, if anything, is put back.
    unsafe {
        let before = pyo3::ffi::PyErr_GetHandledException();
        pyo3::ffi::PyErr_SetHandledException(exception.as_ptr());
        let outcome = work();
        pyo3::ffi::PyErr_SetHandledException(before);
        pyo3::ffi::Py_XDECREF(before);
        outcome
    }
}

/// Whether nothing else refers to an object of a class.
pub(crate) struct Weak {
    class: *mut pyo3::ffi::PyTypeObject,
    /// Where its objects name the references to them that do not keep them; `None`: not known.
    offset: Option<usize>,
}

// SAFETY: the class is compared, and never reached through here.
unsafe impl Send for Weak {}
// SAFETY: as above.
unsafe impl Sync for Weak {}

impl Weak {
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let offset: isize = class.getattr("__weakrefoffset__")?.extract()?;
        let offset = usize::try_from(offset).ok().filter(|offset| *offset > 0);
        Ok(Self { class: class.as_type_ptr(), offset })
    }

    /// Whether an object is of the class itself, and this is the only reference to it.
    #[inline]
    pub(crate) fn is_alone<T>(&self, py: Python<'_>, object: &Py<T>) -> bool {
        let (_, only, object, Some(offset)) = (py, is_only(object), object.as_ptr(), self.offset) else {
            return false;
        };
        // SAFETY: the interpreter's lock is held and the object is alive; every object of the class has a
        // pointer at the offset that the class names, which is null while there is no weak reference to it.
        unsafe {
            only && pyo3::ffi::Py_TYPE(object) == self.class
                && object.byte_add(offset).cast::<*mut PyObject>().read().is_null()
        }
    }
}

/// A copy of the current context.
#[inline]
pub(crate) fn current_context(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // SAFETY: the interpreter's lock is held; a new reference comes back, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, PyContext_CopyCurrent()).map(Bound::unbind) }
}

/// A copy of a context.
pub(crate) fn copy_context<'py>(context: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the lock is held, and the call itself refuses what is no context; a new reference comes back,
    // or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(context.py(), PyContext_Copy(context.as_ptr())) }
}

/// A copy of the current context; `None`: there is nothing in it, so an empty one does.
#[inline]
pub(crate) fn current_context_unless_empty(py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    let context = current_context(py)?;
    Ok(if is_empty(py, &context)? { None } else { Some(context) })
}

/// Whether there is nothing in a context.
#[inline]
pub(crate) fn is_empty(py: Python<'_>, context: &Py<PyAny>) -> PyResult<bool> {
    // SAFETY: the interpreter's lock is held and the object is alive; the call itself refuses what is no
    // mapping.
    match unsafe { pyo3::ffi::PyMapping_Size(context.as_ptr()) } {
        0 => Ok(true),
        1.. => Ok(false),
        _ => Err(PyErr::fetch(py)),
    }
}

/// A context with nothing in it.
#[inline]
pub(crate) fn empty_context(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // SAFETY: the interpreter's lock is held; a new reference comes back, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, PyContext_New()).map(Bound::unbind) }
}

/// A context that was entered. It is left however what is done in it ends: what unwinds must not leave it the
/// thread's.
struct Entered<'c, 'py>(&'c Bound<'py, PyAny>);

impl<'c, 'py> Entered<'c, 'py> {
    #[inline]
    fn new(context: &'c Bound<'py, PyAny>) -> PyResult<Self> {
        // SAFETY: the lock is held, and the call itself refuses what is no context.
        match unsafe { PyContext_Enter(context.as_ptr()) } {
            0 => Ok(Self(context)),
            _ => Err(PyErr::fetch(context.py())),
        }
    }

    #[inline]
    fn leave(self) -> PyResult<()> {
        ManuallyDrop::new(self).exit()
    }

    #[inline]
    fn exit(&self) -> PyResult<()> {
        // SAFETY: it was entered, and whatever was entered since has been left.
        match unsafe { PyContext_Exit(self.0.as_ptr()) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(self.0.py())),
        }
    }
}

impl Drop for Entered<'_, '_> {
    fn drop(&mut self) {
        drop(self.exit());
    }
}

/// Does `work` in a context.
///
/// # Errors
/// The context is entered already, or it is none; or what `work` says.
#[inline]
pub(crate) fn in_context<R>(context: &Bound<'_, PyAny>, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let entered = Entered::new(context)?;
    let outcome = work();
    let left = entered.leave();
    outcome.and_then(|done| left.map(|()| done))
}

/// `callable(argument)`.
#[inline]
pub(crate) fn call_one<'py>(
    callable: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let places = [std::ptr::null_mut(), argument.as_ptr()];
    // SAFETY: the lock is held; the one argument lives through the call, and there is a place before it to be
    // used; a new reference comes back, or null with an exception set.
    unsafe {
        let result = PyObject_Vectorcall(
            callable.as_ptr(),
            places.as_ptr().add(1),
            1 | ARGUMENTS_OFFSET,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// `callable(first, second)`.
#[inline]
pub(crate) fn call_two<'py>(
    callable: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let places = [std::ptr::null_mut(), first.as_ptr(), second.as_ptr()];
    // SAFETY: as in `call_one`, with two arguments.
    unsafe {
        let result = PyObject_Vectorcall(
            callable.as_ptr(),
            places.as_ptr().add(1),
            2 | ARGUMENTS_OFFSET,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}
