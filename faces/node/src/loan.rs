//! Maps lent to users, who may part a buffer from its bytes: a byte stream moves the bytes of what is
//! enqueued into a buffer of its own, and that one may be sent to another thread.
//!
//! The engine says when nobody has the bytes any more, whichever thread was the last to have them; but at the
//! end of the environment that made a buffer it takes its bytes back, whoever has them. So by then it is
//! known which buffers have theirs: those maps go. One whose buffer lost its bytes stays until the process
//! ends, because another thread may read it. Of one whose buffer is gone nobody can say whether it had them:
//! nearly always it had, and the engine has not come to say so yet. Such a map stays until 1,024 others
//! followed it.
//!
//! The engine takes the bytes out of each buffer before it gives them back, and begins with what was made
//! last. So an empty buffer, the watch, is made behind every one that is lent, in place of the watch before
//! it, and kept: it goes only as the environment ends, and then before all others. If an engine had another
//! order, maps would stay that need not.
//!
//! *Checked by* `tests/loan.test.js`: threads that end with and without their bytes, and what is mapped then.

use crate::error::{Result, failure};
use crate::lend::external;
use napi::bindgen_prelude::{Env, Unknown};
use napi::sys;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, forget, take};
use std::ptr::null_mut;
use std::rc::Rc;
use thalweg_log::Mapped;

const GONE_MAX: usize = 1024;

/// Maps whose buffer was gone when its environment ended, the latest last.
static GONE: Mutex<VecDeque<Gone>> = Mutex::new(VecDeque::new());

struct Gone(#[expect(dead_code, reason = "kept mapped")] Option<Mapped>);

// SAFETY: an address, of which nothing is read, and an owner that may be dropped on any thread.
unsafe impl Send for Gone {}

thread_local! {
    /// Not dropped with the thread: there is no environment any more by then.
    static LOANS: ManuallyDrop<RefCell<Loans>> = ManuallyDrop::default();
}

/// What this thread's environment lent.
#[derive(Default)]
struct Loans {
    open: Vec<Rc<Loan>>,
    watch: Option<Reference>,
    /// How many watches were made: the number of the one that is kept.
    watches: u64,
}

struct Loan {
    map: Cell<Option<Mapped>>,
    /// The buffer, which is not kept by it.
    buffer: Cell<Option<Reference>>,
}

/// An `ArrayBuffer` over the map, for users.
pub(crate) fn lend_out(env: &Env, map: Mapped) -> Result<Unknown<'_>> {
    let (start, length) = (map.start().as_ptr().cast::<c_void>(), map.length());
    let loan = Rc::new(Loan { map: Cell::new(Some(map)), buffer: Cell::default() });
    let keeper = Rc::into_raw(loan.clone());
    // SAFETY: the bytes stay mapped until `give_back` drops the loan.
    let buffer = unsafe { external(env, start, length, give_back, keeper.cast_mut().cast()) };
    if buffer.is_err() {
        // SAFETY: the engine did not take it.
        drop(unsafe { Rc::from_raw(keeper) });
    }
    let buffer = buffer?;
    loan.buffer.set(Some(Reference::new(env, buffer, 0)?));
    LOANS.with(|loans| loans.borrow_mut().open.push(loan));
    watch(env)?;
    // SAFETY: a value that the engine has just made in this environment.
    Ok(unsafe { Unknown::from_raw_unchecked(env.raw(), buffer) })
}

/// Keeps a watch behind all that is lent.
fn watch(env: &Env) -> Result<()> {
    let number = LOANS.with(|loans| loans.borrow().watches + 1);
    let keeper = Box::into_raw(Box::new(number));
    // SAFETY: there are no bytes.
    let buffer = unsafe { external(env, keeper.cast(), 0, end, keeper.cast()) };
    if buffer.is_err() {
        // SAFETY: the engine did not take it.
        drop(unsafe { Box::from_raw(keeper) });
    }
    let kept = Reference::new(env, buffer?, 1)?;
    let former = LOANS.with(|loans| {
        let mut loans = loans.borrow_mut();
        loans.watches = number;
        loans.watch.replace(kept)
    });
    former.into_iter().for_each(Reference::delete);
    Ok(())
}

/// A watch goes. If it is the one that is kept, the environment ends, and each buffer that is there has its
/// bytes unless somebody took them.
///
/// # Safety
/// As of `GiveBack`, with the number of a watch.
unsafe extern "C" fn end(_env: sys::napi_env, _bytes: *mut c_void, number: *mut c_void) {
    // SAFETY: as the caller promises.
    let number = unsafe { Box::from_raw(number.cast::<u64>()) };
    let Loans { open, watch, .. } = LOANS.with(|loans| {
        let mut loans = loans.borrow_mut();
        if loans.watches == *number { take(&mut *loans) } else { Loans::default() }
    });
    watch.into_iter().for_each(Reference::delete);
    for loan in open {
        match loan.buffer.get().map_or(State::Gone, Reference::state) {
            State::Whole => {}
            State::Taken => forget(loan.map.take()),
            State::Gone => gone(loan.map.take()),
        }
    }
}

fn gone(map: Option<Mapped>) {
    let mut gone = GONE.lock();
    gone.push_back(Gone(map));
    let former = if gone.len() > GONE_MAX { gone.pop_front() } else { None };
    drop(gone);
    drop(former);
}

/// Nobody has the bytes any more, or the environment ends.
///
/// # Safety
/// As of `GiveBack`, with a count of a loan.
unsafe extern "C" fn give_back(_env: sys::napi_env, _bytes: *mut c_void, loan: *mut c_void) {
    // SAFETY: as the caller promises.
    let loan = unsafe { Rc::from_raw(loan.cast::<Loan>()) };
    LOANS.with(|loans| loans.borrow_mut().open.retain(|open| !Rc::ptr_eq(open, &loan)));
    loan.buffer.take().into_iter().for_each(Reference::delete);
}

/// Whether a buffer is there, and has its bytes.
enum State {
    Whole,
    Taken,
    Gone,
}

/// An environment's reference to a buffer, used on its thread as long as it is there.
#[derive(Clone, Copy)]
struct Reference {
    env: sys::napi_env,
    raw: sys::napi_ref,
}

impl Reference {
    /// One that keeps the buffer, or with a count of 0 does not.
    fn new(env: &Env, buffer: sys::napi_value, count: u32) -> Result<Reference> {
        let mut raw = null_mut();
        // SAFETY: a value of this environment, in a call from JavaScript.
        let status = unsafe { sys::napi_create_reference(env.raw(), buffer, count, &mut raw) };
        match status {
            sys::Status::napi_ok => Ok(Reference { env: env.raw(), raw }),
            _ => Err(failure("UNSUPPORTED", format!("no reference to a buffer: the engine said {status}"))),
        }
    }

    /// What became of the buffer.
    fn state(self) -> State {
        let (mut buffer, mut is_detached) = (null_mut(), true);
        // SAFETY: as the type says; the engine opened a scope for the call that this is in.
        unsafe {
            sys::napi_get_reference_value(self.env, self.raw, &mut buffer);
            if buffer.is_null() {
                return State::Gone;
            }
            sys::napi_is_detached_arraybuffer(self.env, buffer, &mut is_detached);
        }
        if is_detached { State::Taken } else { State::Whole }
    }

    fn delete(self) {
        // SAFETY: as the type says, and what held it let go of it.
        unsafe { sys::napi_delete_reference(self.env, self.raw) };
    }
}
