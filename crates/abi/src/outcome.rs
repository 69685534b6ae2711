//! What a function answers: a code, and for callers that want to know more, the words of the last fault on
//! this thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thalweg_service::Error;
use thalweg_wire::fault::Fault;

thread_local! {
    static DETAIL: RefCell<CString> = RefCell::default();
}

/// What went wrong last on this thread, in words, with what to do about it. Only of use right after a
/// function has answered with a fault, or has handed out why a call has no answer: one that succeeds leaves
/// it as it was. Lent until that happens again on this thread; never null.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_error_detail() -> *const c_char {
    // Where a thread ends, after what it keeps is gone, there are no words.
    DETAIL.try_with(|detail| detail.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs what a function does, and makes its outcome a code.
pub(crate) fn code(act: impl FnOnce() -> Result<(), Error>) -> u16 {
    let error = match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error,
        Err(panic) => Error::new(Fault::System, panicked(&*panic)),
    };
    keep(&error);
    error.fault as u16
}

/// Keeps this as the last error of this thread; returns its words.
pub(crate) fn keep(error: &Error) -> CString {
    let words = text(&error.to_string());
    // Fails only on a thread that ends, which may still close what it opened: then the words are not kept.
    let _ = DETAIL.try_with(|detail| detail.replace(words.clone()));
    words
}

/// The same for a function that cannot fail but by a panic: then it answers with `otherwise`.
pub(crate) fn value<T>(otherwise: T, act: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(otherwise)
}

/// Words as C has them: what follows a NUL is left out.
pub(crate) fn text(words: &str) -> CString {
    let end = words.find('\0').unwrap_or(words.len());
    CString::new(&words[..end]).unwrap_or_default()
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "a panic inside the library, which is an error of the library: {}",
        words.unwrap_or("without words")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn detail() -> String {
        // SAFETY: the function answers with a string of this thread, which nothing replaces meanwhile.
        unsafe { CStr::from_ptr(thalweg_error_detail()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(code(|| panic!("seventeen")), Fault::System as u16);
        assert!(detail().ends_with("seventeen"), "{}", detail());
        assert_eq!(value(3, || panic!()), 3);
    }

    /// As an object of C++ that belongs to the thread does in its destructor.
    #[test]
    fn a_thread_that_ends_may_still_fail() {
        struct Last(std::sync::mpsc::Sender<(u16, String)>);
        impl Drop for Last {
            fn drop(&mut self) {
                let fault = code(|| Err(Error::new(Fault::NoServer, "")));
                self.0.send((fault, detail())).unwrap();
            }
        }
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(|| {
            // What is made first goes last.
            LAST.set(Some(Last(sender)));
            code(|| Err(Error::new(Fault::Closed, "")));
        });
        assert_eq!(receiver.recv().unwrap(), (Fault::NoServer as u16, String::new()));
    }

    #[test]
    fn words_stay_until_the_next_failure_of_the_same_thread() {
        assert_eq!(code(|| Err(Error::new(Fault::NoServer, "a\0b"))), Fault::NoServer as u16);
        assert_eq!(code(|| Ok(())), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(detail(), "");
                code(|| Err(Error::new(Fault::Closed, "elsewhere")));
            });
        });
        assert_eq!(detail(), "nobody listens there: a");
    }
}
