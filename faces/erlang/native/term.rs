//! Terms, and the environments they live in.
//!
//! Owns: every call of the virtual machine that looks at a term or makes one. A term is a word that means
//! something only together with its environment, so all of them are methods of [`Env`]; that a term belongs
//! to the environment it is used with is what every caller here keeps by having one environment at a time.
//! Never knows a connection.

use crate::enif::{self, RawEnv, RawTerm, kind};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

/// The longest name an atom can have, in bytes.
const ATOM_BYTES_MAX: usize = 255 * 4;

/// An environment, as long as a call into the library lasts or its owner keeps it.
#[derive(Clone, Copy)]
pub(crate) struct Env(pub(crate) *mut RawEnv);

/// What a term is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Atom,
    Binary,
    Float,
    Integer,
    List,
    Map,
    Pid,
    Reference,
    Tuple,
    /// A function, a port, or bits that are no whole bytes.
    Other(&'static str),
}

impl Env {
    pub(crate) fn kind(self, term: RawTerm) -> Kind {
        // SAFETY: the term is of this environment.
        match unsafe { enif::enif_term_type(self.0, term) } {
            kind::ATOM => Kind::Atom,
            kind::BITSTRING if self.binary(term).is_some() => Kind::Binary,
            kind::BITSTRING => Kind::Other("bits that are no whole bytes"),
            kind::FLOAT => Kind::Float,
            kind::INTEGER => Kind::Integer,
            kind::LIST => Kind::List,
            kind::MAP => Kind::Map,
            kind::PID => Kind::Pid,
            kind::REFERENCE => Kind::Reference,
            kind::TUPLE => Kind::Tuple,
            kind::PORT => Kind::Other("a port"),
            kind::FUN => Kind::Other("a fun"),
            _ => Kind::Other("a term of an unknown kind"),
        }
    }

    pub(crate) fn integer(self, term: RawTerm) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the term is of this environment, the place is ours.
        (unsafe { enif::enif_get_long(self.0, term, &raw mut value) } != 0).then_some(value)
    }

    pub(crate) fn natural(self, term: RawTerm) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as above.
        (unsafe { enif::enif_get_ulong(self.0, term, &raw mut value) } != 0).then_some(value)
    }

    pub(crate) fn float(self, term: RawTerm) -> Option<f64> {
        let mut value = 0.0;
        // SAFETY: as above.
        (unsafe { enif::enif_get_double(self.0, term, &raw mut value) } != 0).then_some(value)
    }

    pub(crate) fn pid(self, term: RawTerm) -> Option<enif::Pid> {
        let mut pid = enif::Pid { term: 0 };
        // SAFETY: as above.
        (unsafe { enif::enif_get_local_pid(self.0, term, &raw mut pid) } != 0).then_some(pid)
    }

    /// The bytes of a binary, which live as long as its term.
    pub(crate) fn binary<'t>(self, term: RawTerm) -> Option<&'t [u8]> {
        let mut binary = MaybeUninit::<enif::Binary>::zeroed();
        // SAFETY: the term is of this environment, and the place is large enough.
        let found = unsafe { enif::enif_inspect_binary(self.0, term, binary.as_mut_ptr()) } != 0;
        // SAFETY: it was filled in; its bytes stay where they are for as long as the environment keeps the
        // term, which is longer than any call here.
        found.then(|| unsafe { bytes_of(&binary.assume_init()) })
    }

    /// The bytes of a binary or of nested lists of bytes, which live as long as the call.
    pub(crate) fn iodata<'t>(self, term: RawTerm) -> Option<&'t [u8]> {
        let mut binary = MaybeUninit::<enif::Binary>::zeroed();
        // SAFETY: as in `binary`.
        let found = unsafe { enif::enif_inspect_iolist_as_binary(self.0, term, binary.as_mut_ptr()) } != 0;
        // SAFETY: as in `binary`; a copy that had to be made is freed when the call returns.
        found.then(|| unsafe { bytes_of(&binary.assume_init()) })
    }

    /// Appends an atom's name as UTF-8.
    pub(crate) fn atom_name(self, term: RawTerm, out: &mut Vec<u8>) {
        let mut name = [0u8; 256];
        let place = name.as_mut_ptr().cast::<c_char>();
        // SAFETY: the term is of this environment and the place as long as is said.
        let length = unsafe { enif::enif_get_atom(self.0, term, place, 256, enif::LATIN1) };
        if length > 0 {
            let latin = &name[..length as usize - 1];
            if latin.is_ascii() {
                out.extend_from_slice(latin);
            } else {
                let text: String = latin.iter().map(|byte| char::from(*byte)).collect();
                out.extend_from_slice(text.as_bytes());
            }
            return;
        }
        // One with letters beyond Latin-1: its external form has them.
        self.external(term, |form| match form {
            [131, 119, _, name @ ..] | [131, 118, _, _, name @ ..] => out.extend_from_slice(name),
            _ => {}
        });
    }

    pub(crate) fn tuple<'t>(self, term: RawTerm) -> Option<&'t [RawTerm]> {
        let (mut arity, mut items) = (0, ptr::null());
        // SAFETY: the term is of this environment.
        let found = unsafe { enif::enif_get_tuple(self.0, term, &raw mut arity, &raw mut items) } != 0;
        if !found || arity == 0 {
            return found.then_some(&[]);
        }
        // SAFETY: a tuple's items lie in the environment, which outlives the call.
        Some(unsafe { std::slice::from_raw_parts(items, arity as usize) })
    }

    /// The length of a list; `None` of an improper one, and of anything else.
    pub(crate) fn list_length(self, term: RawTerm) -> Option<usize> {
        let mut length: c_uint = 0;
        // SAFETY: the term is of this environment.
        (unsafe { enif::enif_get_list_length(self.0, term, &raw mut length) } != 0).then_some(length as usize)
    }

    /// As [`Env::list_length`], walked no further than so many items: `Err` for a list that is longer.
    pub(crate) fn list_length_within(self, list: RawTerm, most: usize) -> Result<Option<usize>, ()> {
        let (mut rest, mut length) = (list, 0);
        let (mut head, mut tail) = (0, 0);
        // SAFETY: what is left of a list is a term of its environment.
        while unsafe { enif::enif_get_list_cell(self.0, rest, &raw mut head, &raw mut tail) } != 0 {
            if length == most {
                return Err(());
            }
            (rest, length) = (tail, length + 1);
        }
        // SAFETY: as above.
        Ok((unsafe { enif::enif_is_empty_list(self.0, rest) } != 0).then_some(length))
    }

    /// The items of a proper list.
    pub(crate) fn items(self, list: RawTerm) -> impl Iterator<Item = RawTerm> {
        let mut rest = list;
        std::iter::from_fn(move || {
            let (mut head, mut tail) = (0, 0);
            // SAFETY: what is left of a list is a term of its environment.
            let found = unsafe { enif::enif_get_list_cell(self.0, rest, &raw mut head, &raw mut tail) } != 0;
            rest = tail;
            found.then_some(head)
        })
    }

    pub(crate) fn map_size(self, term: RawTerm) -> Option<usize> {
        let mut size = 0;
        // SAFETY: the term is of this environment.
        (unsafe { enif::enif_get_map_size(self.0, term, &raw mut size) } != 0).then_some(size)
    }

    /// Walks the pairs of a map, until one is refused.
    pub(crate) fn pairs<E>(
        self,
        map: RawTerm,
        mut each: impl FnMut(RawTerm, RawTerm) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut iterator = MaybeUninit::<enif::MapIterator>::zeroed();
        let place = iterator.as_mut_ptr();
        // SAFETY: the term is of this environment, the place larger than an iterator.
        if unsafe { enif::enif_map_iterator_create(self.0, map, place, enif::MAP_FIRST) } == 0 {
            return Ok(());
        }
        let (mut key, mut value) = (0, 0);
        let mut outcome = Ok(());
        // SAFETY: the iterator was made above and is destroyed below.
        while unsafe { enif::enif_map_iterator_get_pair(self.0, place, &raw mut key, &raw mut value) } != 0 {
            outcome = each(key, value);
            if outcome.is_err() {
                break;
            }
            // SAFETY: as above.
            unsafe { enif::enif_map_iterator_next(self.0, place) };
        }
        // SAFETY: made above, and not used any more.
        unsafe { enif::enif_map_iterator_destroy(self.0, place) };
        outcome
    }

    /// Looks at a term's external form, the leading 131 included.
    pub(crate) fn external<R>(self, term: RawTerm, look: impl FnOnce(&[u8]) -> R) -> R {
        let mut binary = MaybeUninit::<enif::Binary>::zeroed();
        // SAFETY: the term is of this environment, the place large enough.
        if unsafe { enif::enif_term_to_binary(self.0, term, binary.as_mut_ptr()) } == 0 {
            return look(&[]);
        }
        // SAFETY: it was filled in, and is released below, after the last look.
        let binary = unsafe { binary.assume_init_mut() };
        // SAFETY: as above.
        let outcome = look(unsafe { bytes_of(binary) });
        // SAFETY: made above.
        unsafe { enif::enif_release_binary(binary) };
        outcome
    }

    /// The term that an external form stands for. Atoms that do not exist yet are refused.
    pub(crate) fn of_external(self, form: &[u8]) -> Option<RawTerm> {
        const SAFE: c_uint = 0x2000_0000;
        let mut term = 0;
        // SAFETY: the bytes are borrowed for the call.
        let read =
            unsafe { enif::enif_binary_to_term(self.0, form.as_ptr(), form.len(), &raw mut term, SAFE) };
        (read == form.len()).then_some(term)
    }

    /// An atom of ours.
    pub(crate) fn atom(self, name: &str) -> RawTerm {
        // SAFETY: the name is borrowed for the call.
        unsafe { enif::enif_make_atom_len(self.0, name.as_ptr().cast(), name.len()) }
    }

    /// An atom that exists already.
    pub(crate) fn existing_atom(self, name: &[u8]) -> Option<RawTerm> {
        if name.len() > ATOM_BYTES_MAX {
            return None;
        }
        if name.is_ascii() {
            let mut atom = 0;
            let (place, length) = (name.as_ptr().cast(), name.len());
            // SAFETY: the name is borrowed for the call.
            let found = unsafe {
                enif::enif_make_existing_atom_len(self.0, place, length, &raw mut atom, enif::LATIN1)
            };
            return (found != 0).then_some(atom);
        }
        let mut form = vec![131, 118];
        form.extend_from_slice(&(name.len() as u16).to_be_bytes());
        form.extend_from_slice(name);
        self.of_external(&form)
    }

    pub(crate) fn make_integer(self, value: i64) -> RawTerm {
        // SAFETY: makes a term in this environment.
        unsafe { enif::enif_make_long(self.0, value) }
    }

    pub(crate) fn make_natural(self, value: u64) -> RawTerm {
        // SAFETY: as above.
        unsafe { enif::enif_make_ulong(self.0, value) }
    }

    pub(crate) fn make_float(self, value: f64) -> RawTerm {
        // SAFETY: as above; the caller has made sure that it is finite.
        unsafe { enif::enif_make_double(self.0, value) }
    }

    pub(crate) fn make_binary(self, bytes: &[u8]) -> RawTerm {
        let mut term = 0;
        // SAFETY: makes a binary of this very length, which has not been handed out yet.
        unsafe {
            let place = enif::enif_make_new_binary(self.0, bytes.len(), &raw mut term);
            ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        term
    }

    pub(crate) fn make_tuple(self, items: &[RawTerm]) -> RawTerm {
        // SAFETY: all items are of this environment.
        unsafe { enif::enif_make_tuple_from_array(self.0, items.as_ptr(), items.len() as c_uint) }
    }

    pub(crate) fn make_list(self, items: &[RawTerm]) -> RawTerm {
        // SAFETY: as above.
        unsafe { enif::enif_make_list_from_array(self.0, items.as_ptr(), items.len() as c_uint) }
    }

    /// `None` when a key comes twice.
    pub(crate) fn make_map(self, keys: &[RawTerm], values: &[RawTerm]) -> Option<RawTerm> {
        let mut map = 0;
        let count = keys.len().min(values.len());
        // SAFETY: as above, as many of each.
        let made = unsafe {
            enif::enif_make_map_from_arrays(self.0, keys.as_ptr(), values.as_ptr(), count, &raw mut map)
        };
        (made != 0).then_some(map)
    }

    pub(crate) fn bad_argument(self) -> RawTerm {
        // SAFETY: only ever returned from the call that this environment belongs to.
        unsafe { enif::enif_make_badarg(self.0) }
    }

    /// The process that calls.
    pub(crate) fn caller(self) -> enif::Pid {
        let mut pid = enif::Pid { term: 0 };
        // SAFETY: called from a process, as all functions of the library are.
        unsafe { enif::enif_self(self.0, &raw mut pid) };
        pid
    }

    /// Whether a process of this node has not ended.
    pub(crate) fn is_alive(self, pid: &enif::Pid) -> bool {
        // SAFETY: called from a process; the other one's name is borrowed for the call.
        unsafe { enif::enif_is_process_alive(self.0, pid) != 0 }
    }

    /// Whether this runs where calls may take long: on a scheduler that no other process waits for.
    pub(crate) fn is_apart(self) -> bool {
        // SAFETY: asks about the thread.
        unsafe { enif::enif_thread_type() > enif::THREAD_NORMAL }
    }

    /// Has a function called anew where it may take long. What this is must be what the call under way
    /// returns.
    pub(crate) fn again_apart(self, name: &CStr, function: enif::Function, arguments: &[RawTerm]) -> RawTerm {
        let count = arguments.len() as c_int;
        // SAFETY: everything is borrowed for the call; the function is one of the library's own.
        unsafe {
            let (name, arguments) = (name.as_ptr(), arguments.as_ptr());
            enif::enif_schedule_nif(self.0, name, enif::JOB_FOR_LONG, function, count, arguments)
        }
    }

    /// Tells the scheduler that a call took so much of a process's turn.
    pub(crate) fn took(self, percent: i32) {
        if percent == 0 {
            return;
        }
        // SAFETY: called from a process.
        unsafe { enif::enif_consume_timeslice(self.0, percent.min(100) as c_int) };
    }
}

/// # Safety
/// The binary was filled in by the virtual machine and lives as long as is made of it.
unsafe fn bytes_of<'b>(binary: &enif::Binary) -> &'b [u8] {
    if binary.size == 0 {
        return &[];
    }
    // SAFETY: said above.
    unsafe { std::slice::from_raw_parts(binary.data, binary.size) }
}

/// Whether two terms are the same word: what atoms that are equal are.
pub(crate) fn same(left: RawTerm, right: RawTerm) -> bool {
    left == right
}

/// An environment of ours: a message is made in it and sent, or a reference kept.
#[derive(Debug)]
pub(crate) struct Letter(NonNull<RawEnv>);

// SAFETY: an environment that belongs to no process may be used by one thread after the other.
unsafe impl Send for Letter {}

impl Letter {
    /// `None` when there is no memory.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: freed when this is dropped.
        NonNull::new(unsafe { enif::enif_alloc_env() }).map(Self)
    }

    pub(crate) fn env(&mut self) -> Env {
        Env(self.0.as_ptr())
    }

    /// Keeps a copy of a term.
    pub(crate) fn copy(&mut self, term: RawTerm) -> RawTerm {
        // SAFETY: copies from wherever it is, which the caller's environment keeps.
        unsafe { enif::enif_make_copy(self.0.as_ptr(), term) }
    }

    /// Sends a term that was made in here, and forgets everything in here. Whether there is such a process.
    pub(crate) fn send(&mut self, caller: Env, to: &enif::Pid, message: RawTerm) -> bool {
        // SAFETY: `caller` is the environment of the call that is under way; the message is of this
        // environment, which is empty afterwards.
        unsafe {
            let sent = enif::enif_send(caller.0, to, self.0.as_ptr(), message) != 0;
            enif::enif_clear_env(self.0.as_ptr());
            sent
        }
    }

    pub(crate) fn clear(&mut self) {
        // SAFETY: no term of it is kept elsewhere: they are kept beside it, and dropped with it.
        unsafe { enif::enif_clear_env(self.0.as_ptr()) };
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        // SAFETY: made by `new`.
        unsafe { enif::enif_free_env(self.0.as_ptr()) };
    }
}
