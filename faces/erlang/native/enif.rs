//! The part of the virtual machine's C interface that is used here, as `erl_nif.h` declares it since OTP 22.
//!
//! Written by hand because it is small, and because the bindings that exist leave out the watching of
//! descriptors, which this library is about. The functions are found in the virtual machine when it loads the
//! library.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

/// A term, as the virtual machine passes it around: meaningful only in the environment it was made for.
pub(crate) type RawTerm = usize;

/// A place that terms live in.
#[repr(C)]
pub(crate) struct RawEnv {
    _opaque: [u8; 0],
}

/// A kind of objects of ours that terms may hold on to.
#[repr(C)]
pub(crate) struct RawKind {
    _opaque: [u8; 0],
}

/// A process of this node.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pid {
    pub(crate) term: RawTerm,
}

#[repr(C)]
pub(crate) struct Binary {
    pub(crate) size: usize,
    pub(crate) data: *mut u8,
    reference: *mut c_void,
    spare: [*mut c_void; 2],
}

#[repr(C)]
pub(crate) struct MapIterator {
    words: [usize; 7],
    /// More than any version of the virtual machine has declared.
    spare: [usize; 5],
}

/// A process that is watched.
#[repr(C)]
pub(crate) struct Monitor {
    data: [u8; 64],
}

pub(crate) type Function = unsafe extern "C" fn(*mut RawEnv, c_int, *const RawTerm) -> RawTerm;

#[repr(C)]
pub(crate) struct FunctionEntry {
    pub(crate) name: *const c_char,
    pub(crate) arity: c_uint,
    pub(crate) function: Function,
    pub(crate) flags: c_uint,
}

#[repr(C)]
pub(crate) struct LibraryEntry {
    pub(crate) major: c_int,
    pub(crate) minor: c_int,
    pub(crate) name: *const c_char,
    pub(crate) function_count: c_int,
    pub(crate) functions: *const FunctionEntry,
    pub(crate) load: Option<unsafe extern "C" fn(*mut RawEnv, *mut *mut c_void, RawTerm) -> c_int>,
    pub(crate) reload: Option<unsafe extern "C" fn(*mut RawEnv, *mut *mut c_void, RawTerm) -> c_int>,
    pub(crate) upgrade:
        Option<unsafe extern "C" fn(*mut RawEnv, *mut *mut c_void, *mut *mut c_void, RawTerm) -> c_int>,
    pub(crate) unload: Option<unsafe extern "C" fn(*mut RawEnv, *mut c_void)>,
    pub(crate) variant: *const c_char,
    pub(crate) options: c_uint,
    pub(crate) kind_bytes: usize,
    pub(crate) min_runtime: *const c_char,
}

// SAFETY: every pointer in it is to a constant.
unsafe impl Sync for LibraryEntry {}
// SAFETY: as above.
unsafe impl Sync for FunctionEntry {}

#[repr(C)]
pub(crate) struct KindInit {
    pub(crate) drop: Option<unsafe extern "C" fn(*mut RawEnv, *mut c_void)>,
    pub(crate) stop: Option<unsafe extern "C" fn(*mut RawEnv, *mut c_void, c_int, c_int)>,
    pub(crate) down: Option<unsafe extern "C" fn(*mut RawEnv, *mut c_void, *mut Pid, *mut Monitor)>,
    pub(crate) members: c_int,
    pub(crate) call: *const c_void,
}

/// What a term is, by `ErlNifTermType`.
pub(crate) mod kind {
    use std::ffi::c_int;
    pub(crate) const ATOM: c_int = 1;
    pub(crate) const BITSTRING: c_int = 2;
    pub(crate) const FLOAT: c_int = 3;
    pub(crate) const FUN: c_int = 4;
    pub(crate) const INTEGER: c_int = 5;
    pub(crate) const LIST: c_int = 6;
    pub(crate) const MAP: c_int = 7;
    pub(crate) const PID: c_int = 8;
    pub(crate) const PORT: c_int = 9;
    pub(crate) const REFERENCE: c_int = 10;
    pub(crate) const TUPLE: c_int = 11;
}

/// The schedulers that call for long: any thread of a kind above the usual schedulers'.
pub(crate) const THREAD_NORMAL: c_int = 1;
pub(crate) const JOB_FOR_LONG: c_int = 1;
pub(crate) const LATIN1: c_int = 1;
pub(crate) const MAP_FIRST: c_int = 1;
pub(crate) const SELECT_READ: c_int = 1;
pub(crate) const SELECT_STOP: c_int = 4;
pub(crate) const KIND_CREATE: c_int = 1;
pub(crate) const KIND_TAKE_OVER: c_int = 2;

unsafe extern "C" {
    pub(crate) fn enif_priv_data(env: *mut RawEnv) -> *mut c_void;
    pub(crate) fn enif_alloc_env() -> *mut RawEnv;
    pub(crate) fn enif_clear_env(env: *mut RawEnv);
    pub(crate) fn enif_free_env(env: *mut RawEnv);
    pub(crate) fn enif_make_copy(to: *mut RawEnv, term: RawTerm) -> RawTerm;
    pub(crate) fn enif_send(caller: *mut RawEnv, to: *const Pid, env: *mut RawEnv, message: RawTerm)
    -> c_int;
    pub(crate) fn enif_get_local_pid(env: *mut RawEnv, term: RawTerm, pid: *mut Pid) -> c_int;
    pub(crate) fn enif_self(env: *mut RawEnv, pid: *mut Pid) -> *mut Pid;
    pub(crate) fn enif_is_process_alive(env: *mut RawEnv, pid: *const Pid) -> c_int;

    pub(crate) fn enif_open_resource_type_x(
        env: *mut RawEnv,
        name: *const c_char,
        init: *const KindInit,
        flags: c_int,
        tried: *mut c_int,
    ) -> *mut RawKind;
    pub(crate) fn enif_alloc_resource(kind: *mut RawKind, size: usize) -> *mut c_void;
    pub(crate) fn enif_release_resource(object: *mut c_void);
    pub(crate) fn enif_make_resource(env: *mut RawEnv, object: *mut c_void) -> RawTerm;
    pub(crate) fn enif_get_resource(
        env: *mut RawEnv,
        term: RawTerm,
        kind: *mut RawKind,
        object: *mut *mut c_void,
    ) -> c_int;
    pub(crate) fn enif_monitor_process(
        env: *mut RawEnv,
        object: *mut c_void,
        target: *const Pid,
        monitor: *mut Monitor,
    ) -> c_int;
    pub(crate) fn enif_select(
        env: *mut RawEnv,
        event: c_int,
        flags: c_int,
        object: *mut c_void,
        pid: *const Pid,
        reference: RawTerm,
    ) -> c_int;

    pub(crate) fn enif_term_type(env: *mut RawEnv, term: RawTerm) -> c_int;
    pub(crate) fn enif_get_long(env: *mut RawEnv, term: RawTerm, value: *mut c_long) -> c_int;
    pub(crate) fn enif_get_ulong(env: *mut RawEnv, term: RawTerm, value: *mut c_ulong) -> c_int;
    pub(crate) fn enif_get_double(env: *mut RawEnv, term: RawTerm, value: *mut f64) -> c_int;
    pub(crate) fn enif_get_atom(
        env: *mut RawEnv,
        term: RawTerm,
        into: *mut c_char,
        size: c_uint,
        encoding: c_int,
    ) -> c_int;
    pub(crate) fn enif_get_tuple(
        env: *mut RawEnv,
        term: RawTerm,
        arity: *mut c_int,
        items: *mut *const RawTerm,
    ) -> c_int;
    pub(crate) fn enif_get_list_cell(
        env: *mut RawEnv,
        term: RawTerm,
        head: *mut RawTerm,
        tail: *mut RawTerm,
    ) -> c_int;
    pub(crate) fn enif_is_empty_list(env: *mut RawEnv, term: RawTerm) -> c_int;
    pub(crate) fn enif_get_list_length(env: *mut RawEnv, term: RawTerm, length: *mut c_uint) -> c_int;
    pub(crate) fn enif_get_map_size(env: *mut RawEnv, term: RawTerm, size: *mut usize) -> c_int;
    pub(crate) fn enif_map_iterator_create(
        env: *mut RawEnv,
        map: RawTerm,
        iterator: *mut MapIterator,
        entry: c_int,
    ) -> c_int;
    pub(crate) fn enif_map_iterator_destroy(env: *mut RawEnv, iterator: *mut MapIterator);
    pub(crate) fn enif_map_iterator_get_pair(
        env: *mut RawEnv,
        iterator: *mut MapIterator,
        key: *mut RawTerm,
        value: *mut RawTerm,
    ) -> c_int;
    pub(crate) fn enif_map_iterator_next(env: *mut RawEnv, iterator: *mut MapIterator) -> c_int;
    pub(crate) fn enif_inspect_binary(env: *mut RawEnv, term: RawTerm, binary: *mut Binary) -> c_int;
    pub(crate) fn enif_inspect_iolist_as_binary(
        env: *mut RawEnv,
        term: RawTerm,
        binary: *mut Binary,
    ) -> c_int;
    pub(crate) fn enif_term_to_binary(env: *mut RawEnv, term: RawTerm, binary: *mut Binary) -> c_int;
    pub(crate) fn enif_binary_to_term(
        env: *mut RawEnv,
        data: *const u8,
        size: usize,
        term: *mut RawTerm,
        options: c_uint,
    ) -> usize;
    pub(crate) fn enif_release_binary(binary: *mut Binary);

    pub(crate) fn enif_make_long(env: *mut RawEnv, value: c_long) -> RawTerm;
    pub(crate) fn enif_make_ulong(env: *mut RawEnv, value: c_ulong) -> RawTerm;
    pub(crate) fn enif_make_double(env: *mut RawEnv, value: f64) -> RawTerm;
    pub(crate) fn enif_make_atom_len(env: *mut RawEnv, name: *const c_char, length: usize) -> RawTerm;
    pub(crate) fn enif_make_existing_atom_len(
        env: *mut RawEnv,
        name: *const c_char,
        length: usize,
        atom: *mut RawTerm,
        encoding: c_int,
    ) -> c_int;
    pub(crate) fn enif_make_new_binary(env: *mut RawEnv, size: usize, term: *mut RawTerm) -> *mut u8;
    pub(crate) fn enif_make_tuple_from_array(
        env: *mut RawEnv,
        items: *const RawTerm,
        count: c_uint,
    ) -> RawTerm;
    pub(crate) fn enif_make_list_from_array(
        env: *mut RawEnv,
        items: *const RawTerm,
        count: c_uint,
    ) -> RawTerm;
    pub(crate) fn enif_make_map_from_arrays(
        env: *mut RawEnv,
        keys: *const RawTerm,
        values: *const RawTerm,
        count: usize,
        map: *mut RawTerm,
    ) -> c_int;
    pub(crate) fn enif_make_badarg(env: *mut RawEnv) -> RawTerm;
    pub(crate) fn enif_thread_type() -> c_int;
    pub(crate) fn enif_schedule_nif(
        env: *mut RawEnv,
        name: *const c_char,
        flags: c_int,
        function: Function,
        count: c_int,
        arguments: *const RawTerm,
    ) -> RawTerm;
    pub(crate) fn enif_consume_timeslice(env: *mut RawEnv, percent: c_int) -> c_int;
}
