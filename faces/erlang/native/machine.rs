//! As much of the virtual machine as the tests in this library call, which run in none: terms are values that
//! a test can look at, and a message goes to where a test finds it. The functions that no test comes to end
//! the tests, and say which they are.
//!
//! Environments are told apart by nothing: terms live as long as the tests do.

use crate::enif::{Pid, RawEnv, RawTerm};
use crate::term::Env;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_int, c_uint, c_ulong};
use std::ptr;
use std::sync::{Mutex, MutexGuard};

/// What a term is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Atom(String),
    Natural(u64),
    Binary(Vec<u8>),
    Tuple(Vec<Value>),
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn atom(name: &str) -> Value {
        Value::Atom(name.into())
    }

    pub(crate) fn tuple(items: impl Into<Vec<Value>>) -> Value {
        Value::Tuple(items.into())
    }
}

/// A term: of a binary the bytes are its maker's to write after it was made.
#[derive(Clone)]
enum Term {
    Whole(Value),
    Bytes { place: usize, length: usize },
}

struct Machine {
    /// A term is its place here and one more, since 0 is none.
    terms: Vec<Term>,
    sent: HashMap<RawTerm, Vec<Value>>,
    pids: RawTerm,
    ended: HashSet<RawTerm>,
}

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Machine) -> T) -> T {
    let mut machine: MutexGuard<'_, _> = MACHINE.lock().unwrap();
    let begin = || Machine { terms: Vec::new(), sent: HashMap::new(), pids: 0, ended: HashSet::new() };
    act(machine.get_or_insert_with(begin))
}

impl Machine {
    fn make(&mut self, term: Term) -> RawTerm {
        self.terms.push(term);
        self.terms.len()
    }

    fn value(&self, term: RawTerm) -> Value {
        match &self.terms[term - 1] {
            Term::Whole(value) => value.clone(),
            Term::Bytes { place, length } => {
                // SAFETY: was allocated with this length and zeros, and is never freed.
                Value::Binary(unsafe { std::slice::from_raw_parts(*place as *const u8, *length) }.to_vec())
            }
        }
    }

    /// # Safety
    /// `items` are `count` terms.
    unsafe fn values(&self, items: *const RawTerm, count: c_uint) -> Vec<Value> {
        // SAFETY: as the caller promises.
        let items = unsafe { std::slice::from_raw_parts(items, count as usize) };
        items.iter().map(|term| self.value(*term)).collect()
    }
}

/// An environment.
pub(crate) fn env() -> Env {
    Env(ptr::dangling_mut())
}

/// A process that no other test has.
pub(crate) fn pid() -> Pid {
    with(|machine| {
        machine.pids += 1;
        Pid { term: machine.pids }
    })
}

/// Ends a process.
pub(crate) fn end(pid: Pid) {
    with(|machine| machine.ended.insert(pid.term));
}

pub(crate) fn value(term: RawTerm) -> Value {
    with(|machine| machine.value(term))
}

/// What a process was sent since the last time that this was asked.
pub(crate) fn sent(pid: Pid) -> Vec<Value> {
    with(|machine| machine.sent.remove(&pid.term).unwrap_or_default())
}

#[unsafe(no_mangle)]
extern "C" fn enif_alloc_env() -> *mut RawEnv {
    env().0
}

#[unsafe(no_mangle)]
extern "C" fn enif_clear_env(_env: *mut RawEnv) {}

#[unsafe(no_mangle)]
extern "C" fn enif_free_env(_env: *mut RawEnv) {}

#[unsafe(no_mangle)]
extern "C" fn enif_make_copy(_to: *mut RawEnv, term: RawTerm) -> RawTerm {
    term
}

/// # Safety
/// `to` is a process.
#[unsafe(no_mangle)]
unsafe extern "C" fn enif_send(
    _caller: *mut RawEnv,
    to: *const Pid,
    _env: *mut RawEnv,
    message: RawTerm,
) -> c_int {
    // SAFETY: as the caller promises.
    let to = unsafe { *to };
    with(|machine| {
        let message = machine.value(message);
        machine.sent.entry(to.term).or_default().push(message);
    });
    1
}

/// # Safety
/// `name` is so many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn enif_make_atom_len(_env: *mut RawEnv, name: *const c_char, length: usize) -> RawTerm {
    // SAFETY: as the caller promises.
    let name = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) };
    with(|machine| machine.make(Term::Whole(Value::Atom(String::from_utf8_lossy(name).into_owned()))))
}

/// # Safety
/// `pid` is a process.
#[unsafe(no_mangle)]
unsafe extern "C" fn enif_is_process_alive(_env: *mut RawEnv, pid: *const Pid) -> c_int {
    // SAFETY: as the caller promises.
    let pid = unsafe { *pid };
    with(|machine| c_int::from(!machine.ended.contains(&pid.term)))
}

#[unsafe(no_mangle)]
extern "C" fn enif_make_ulong(_env: *mut RawEnv, value: c_ulong) -> RawTerm {
    with(|machine| machine.make(Term::Whole(Value::Natural(value))))
}

/// # Safety
/// `term` is a place for one.
#[unsafe(no_mangle)]
unsafe extern "C" fn enif_make_new_binary(_env: *mut RawEnv, size: usize, term: *mut RawTerm) -> *mut u8 {
    let place = vec![0u8; size].leak().as_mut_ptr();
    let made = with(|machine| machine.make(Term::Bytes { place: place.expose_provenance(), length: size }));
    // SAFETY: as the caller promises.
    unsafe { *term = made };
    place
}

/// # Safety
/// `items` are `count` terms.
#[unsafe(no_mangle)]
unsafe extern "C" fn enif_make_tuple_from_array(
    _env: *mut RawEnv,
    items: *const RawTerm,
    count: c_uint,
) -> RawTerm {
    with(|machine| {
        // SAFETY: as the caller promises.
        let items = unsafe { machine.values(items, count) };
        machine.make(Term::Whole(Value::Tuple(items)))
    })
}

/// # Safety
/// `items` are `count` terms.
#[unsafe(no_mangle)]
unsafe extern "C" fn enif_make_list_from_array(
    _env: *mut RawEnv,
    items: *const RawTerm,
    count: c_uint,
) -> RawTerm {
    with(|machine| {
        // SAFETY: as the caller promises.
        let items = unsafe { machine.values(items, count) };
        machine.make(Term::Whole(Value::List(items)))
    })
}

macro_rules! absent {
    ($($name:ident),+ $(,)?) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                panic!("{}: no test came to it before", stringify!($name));
            }
        )+
    };
}

absent! {
    enif_priv_data, enif_get_local_pid, enif_self, enif_open_resource_type_x,
    enif_alloc_resource, enif_release_resource, enif_make_resource, enif_get_resource,
    enif_monitor_process, enif_select, enif_term_type, enif_get_long, enif_get_ulong,
    enif_get_double, enif_get_atom, enif_get_tuple, enif_get_list_cell, enif_is_empty_list,
    enif_get_list_length, enif_get_map_size, enif_map_iterator_create, enif_map_iterator_destroy,
    enif_map_iterator_get_pair, enif_map_iterator_next, enif_inspect_binary,
    enif_inspect_iolist_as_binary, enif_term_to_binary, enif_binary_to_term, enif_release_binary,
    enif_make_long, enif_make_double, enif_make_existing_atom_len, enif_make_map_from_arrays,
    enif_make_badarg, enif_thread_type, enif_schedule_nif, enif_consume_timeslice,
}
