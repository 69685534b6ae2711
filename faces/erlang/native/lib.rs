//! Services and Python workers in Erlang: the native half of the application `thalweg`.
//!
//! Owns what Erlang cannot do by itself: clients of services over sockets and shared memory, whose answers
//! arrive as messages, and terms as the bytes that a Python worker reads. Never knows supervision, pools or
//! timeouts: those are Erlang's, in `src/`. Starts no thread, and no call in here waits longer than the look
//! of 20 µs for its own answer.
//!
//! `enif` is the virtual machine's interface, `term` all there is to terms, `handle` how a connection is an
//! object of the virtual machine; `connection` is the lock, the router and the waiters; `encode` and `decode`
//! are the table of values.

mod atoms;
mod connection;
mod decode;
mod encode;
mod enif;
#[rustfmt::skip]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "generated for callers that need more of it")]
mod generated;
mod handle;
#[cfg(test)]
mod machine;
mod nif;
mod python;
mod term;
mod waiter;

use enif::{FunctionEntry, LibraryEntry, RawEnv, RawTerm};
use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use term::Env;

/// Calls a function with its arguments; no panic leaves it.
///
/// # Safety
/// Called by the virtual machine, with an environment and as many arguments as it says.
unsafe fn enter(
    function: fn(Env, &[RawTerm]) -> nif::Answer,
    (name, entry): (&CStr, enif::Function),
    env: *mut RawEnv,
    count: c_int,
    arguments: *const RawTerm,
) -> RawTerm {
    let env = Env(env);
    // SAFETY: said above.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count as usize) };
    match catch_unwind(AssertUnwindSafe(|| function(env, arguments))) {
        Ok(Some(nif::AGAIN_APART)) => env.again_apart(name, entry, arguments),
        Ok(answer) => answer.unwrap_or_else(|| env.bad_argument()),
        Err(_) => waiter::panicked(env),
    }
}

macro_rules! functions {
    ($($name:literal, $arity:literal: $function:ident $(, $flags:expr)?;)+) => {
        $(
            /// # Safety
            /// Called by the virtual machine, with an environment and as many arguments as it says.
            unsafe extern "C" fn $function(env: *mut RawEnv, count: c_int, arguments: *const RawTerm) -> RawTerm {
                // SAFETY: said above.
                unsafe { enter(nif::$function, ($name, $function), env, count, arguments) }
            }
        )+

        static FUNCTIONS: &[FunctionEntry] =
            &[$(FunctionEntry { name: $name.as_ptr(), arity: $arity, function: $function, flags: 0 $(+ $flags)? }),+];
    };
}

functions! {
    c"open", 3: open;
    c"turn", 1: turn;
    c"call", 4: call;
    c"source", 4: source;
    c"gather", 3: gather;
    c"stream", 4: stream;
    c"request", 4: request;
    c"request_stream", 4: request_stream;
    c"attend", 1: attend;
    c"watch_process", 1: watch_process;
    c"kill_process", 1: kill_process;
    c"cast", 2: cast;
    c"cancel_group", 2: cancel_group;
    c"answer", 4: answer;
    c"post", 4: post;
    c"forget", 2: forget;
    c"grant", 3: grant;
    c"taken", 2: taken;
    c"cancel", 2: cancel;
    c"await", 2: wait;
    c"awaits", 2: awaits;
    c"await_group", 2: wait_group;
    c"load", 1: load;
    c"tend", 1: tend;
    c"unpack", 1: unpack, enif::JOB_FOR_LONG as u32;
    c"give_up", 1: give_up;
    c"close", 1: close;
    c"encode", 1: to_bytes;
    c"decode", 1: of_bytes;
}

static LIBRARY: LibraryEntry = LibraryEntry {
    major: 2,
    minor: 16,
    name: c"thalweg_nif".as_ptr(),
    function_count: FUNCTIONS.len() as c_int,
    functions: FUNCTIONS.as_ptr(),
    load: Some(load_library),
    reload: None,
    upgrade: Some(upgrade_library),
    unload: None,
    variant: c"beam.vanilla".as_ptr(),
    options: 1,
    kind_bytes: size_of::<enif::KindInit>(),
    min_runtime: c"erts-13.0".as_ptr(),
};

/// # Safety
/// Called by the virtual machine, with a place for the library's data.
unsafe extern "C" fn load_library(env: *mut RawEnv, data: *mut *mut c_void, _info: RawTerm) -> c_int {
    let env = Env(env);
    atoms::prepare(env);
    // SAFETY: said above.
    unsafe { set_data(data, handle::declare(env)) }
}

/// # Safety
/// Called by the virtual machine, when newer code takes over, with a place for the library's data. The code
/// has to be of the same library: another build knows nothing of the connections that there are, nor how
/// they lie in memory.
unsafe extern "C" fn upgrade_library(
    env: *mut RawEnv,
    data: *mut *mut c_void,
    _old: *mut *mut c_void,
    _info: RawTerm,
) -> c_int {
    // SAFETY: said above.
    unsafe { set_data(data, handle::keep(Env(env))) }
}

/// Makes the kind of our objects the library's data; 0, unless there is none.
///
/// # Safety
/// There is such a place.
unsafe fn set_data(data: *mut *mut c_void, kind: Option<NonNull<enif::RawKind>>) -> c_int {
    let Some(kind) = kind else { return 1 };
    // SAFETY: said above.
    unsafe { *data = kind.as_ptr().cast() };
    0
}

/// Where the virtual machine begins.
#[unsafe(no_mangle)]
extern "C" fn nif_init() -> *const LibraryEntry {
    &raw const LIBRARY
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Value;

    #[test]
    fn a_function_that_panics_says_so() {
        fn panics(_env: Env, _arguments: &[RawTerm]) -> nif::Answer {
            panic!("on purpose")
        }
        // SAFETY: an environment, and as many arguments as is said: none.
        let answer = unsafe { enter(panics, (c"close", close), machine::env().0, 0, [].as_ptr()) };
        assert_eq!(machine::value(answer), Value::tuple([Value::atom("error"), Value::atom("panicked")]));
    }
}
