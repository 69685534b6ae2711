//! Connections as objects of the virtual machine: made, found in a term, watched, and let go of.
//!
//! The virtual machine counts what holds an object: terms, and itself while it watches the descriptor. The
//! descriptor is closed when it says that it stopped to watch, and the rest goes when nothing holds the
//! object any more.

use crate::connection::{Connection, State};
use crate::enif::{self, KindInit, Monitor, Pid, RawEnv, RawKind, RawTerm};
use crate::term::Env;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kind of our objects.
#[derive(Debug)]
struct Class(NonNull<RawKind>);

// SAFETY: a kind is a constant of the virtual machine, good in every thread.
unsafe impl Send for Class {}

/// The kind that this library declared last: tells whether a library that is taken over is this one. Calls
/// find their kind with their environment ([`kind`]).
static DECLARED: Mutex<Option<Class>> = Mutex::new(None);

fn declared() -> MutexGuard<'static, Option<Class>> {
    DECLARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Declares the kind, for the virtual machine to keep with the library. Called while that is being loaded,
/// which may be again: objects of the kind before keep the library in memory when its module is purged.
pub(crate) fn declare(env: Env) -> Option<NonNull<RawKind>> {
    let kind = open(env, enif::KIND_CREATE)?;
    *declared() = Some(Class(kind));
    Some(kind)
}

/// Keeps the kind for newer code that takes the library over. `None`: it is another's.
pub(crate) fn keep(env: Env) -> Option<NonNull<RawKind>> {
    let known = declared().as_ref()?.0;
    open(env, enif::KIND_TAKE_OVER).filter(|kind| *kind == known)
}

/// The kind that the library was loaded with.
fn kind(env: Env) -> Option<NonNull<RawKind>> {
    // SAFETY: the environment is of a call into the library, whose data is the kind.
    NonNull::new(unsafe { enif::enif_priv_data(env.0) }.cast())
}

fn open(env: Env, flags: c_int) -> Option<NonNull<RawKind>> {
    let init = KindInit {
        drop: Some(dropped),
        stop: Some(stopped),
        down: Some(down),
        members: 3,
        call: ptr::null(),
    };
    // SAFETY: called while the library is being loaded, or taken over, as it has to be; everything is
    // borrowed for the call.
    let kind = unsafe {
        enif::enif_open_resource_type_x(
            env.0,
            c"thalweg_connection".as_ptr(),
            &raw const init,
            flags,
            ptr::null_mut(),
        )
    };
    NonNull::new(kind)
}

/// Hands a connection over to the virtual machine. The connection goes when its router does.
pub(crate) fn make(env: Env, connection: Connection) -> Option<RawTerm> {
    let kind = kind(env)?;
    let router = connection.router;
    let mut monitor = MaybeUninit::<Monitor>::uninit();
    // SAFETY: the object is as large as is said and initialised before it is seen; the term holds it
    // when this lets go. The monitor's place is ours.
    unsafe {
        let object = enif::enif_alloc_resource(kind.as_ptr(), size_of::<Connection>());
        object.cast::<Connection>().write(connection);
        let term = enif::enif_make_resource(env.0, object);
        enif::enif_release_resource(object);
        let watched = enif::enif_monitor_process(env.0, object, &raw const router, monitor.as_mut_ptr());
        (watched == 0).then_some(term)
    }
}

/// The connection that a term is. It lives as long as the call, because the term does.
pub(crate) fn of<'c>(env: Env, term: RawTerm) -> Option<&'c Connection> {
    let kind = kind(env)?;
    let mut object = ptr::null_mut();
    // SAFETY: the term is of this environment.
    let found = unsafe { enif::enif_get_resource(env.0, term, kind.as_ptr(), &raw mut object) } != 0;
    // SAFETY: an object of this kind is a connection, and the caller's term holds it.
    found.then(|| unsafe { &*object.cast::<Connection>() })
}

/// Has the router be sent a message when the descriptor is readable, once. `false`: it was left.
pub(crate) fn watch(env: Env, connection: &Connection, undefined: RawTerm) -> bool {
    // Under the lock, so that it is not closed meanwhile.
    let state = connection.lock();
    let of = (connection.descriptor, undefined);
    !state.is_left() && select(env, connection, enif::SELECT_READ, &raw const connection.router, of)
}

/// Has a process be sent a message once the process at the other end has ended, that ended or can be watched.
/// `false`: it can not.
pub(crate) fn watch_process(env: Env, connection: &Connection, keeper: Pid, reference: RawTerm) -> bool {
    let mut state = connection.lock();
    if state.is_left() {
        return false;
    }
    let Ok(descriptor) = state.find_process() else { return false };
    select(env, connection, enif::SELECT_READ, &raw const keeper, (descriptor, reference))
}

/// Ends a connection: every call is told so, and the descriptor is closed as soon as it is not watched.
pub(crate) fn close(env: Env, connection: &Connection, undefined: RawTerm) {
    // A part at a time, so that others find the lock free in between.
    while connection.lock().close(env) {}
    while connection.lock().has_groups() {
        connection.unpack(env);
    }
    let mut state = connection.lock();
    let leaves = state.leave_descriptor();
    let process = state.watched_process().filter(|_| leaves);
    // What follows may come back for the lock at once.
    drop(state);
    for descriptor in process.into_iter().chain(leaves.then_some(connection.descriptor)) {
        select(env, connection, enif::SELECT_STOP, ptr::null(), (descriptor, undefined));
    }
}

fn select(
    env: Env,
    connection: &Connection,
    flags: c_int,
    pid: *const Pid,
    (descriptor, reference): (RawFd, RawTerm),
) -> bool {
    let object: *const Connection = connection;
    // SAFETY: the connection lies in an object, which a term of the caller holds; the descriptor is open
    // until the virtual machine was told to stop.
    let outcome =
        unsafe { enif::enif_select(env.0, descriptor, flags, object.cast_mut().cast(), pid, reference) };
    outcome >= 0
}

/// Has the connection hear when a process ends: once, however many streams the process opens. `false`: it has
/// ended.
///
/// The caller's lock keeps [`down`] waiting until the process is known to be watched.
pub(crate) fn monitor(env: Env, connection: &Connection, state: &mut State, pid: Pid) -> bool {
    if !state.begin_to_watch(pid) {
        return true;
    }
    let object: *const Connection = connection;
    let mut monitor = MaybeUninit::<Monitor>::uninit();
    // SAFETY: as above; a monitor goes with its process or with the object, so its name is not kept.
    let outcome = unsafe {
        enif::enif_monitor_process(env.0, object.cast_mut().cast(), &raw const pid, monitor.as_mut_ptr())
    };
    outcome == 0
}

/// # Safety
/// Called by the virtual machine with an object of ours that nothing holds any more.
unsafe extern "C" fn dropped(_env: *mut RawEnv, object: *mut c_void) {
    // SAFETY: it was written when it was made, and it is not looked at again.
    unsafe { ptr::drop_in_place(object.cast::<Connection>()) };
}

/// # Safety
/// Called by the virtual machine with an object of ours.
unsafe extern "C" fn stopped(_env: *mut RawEnv, object: *mut c_void, event: c_int, _direct: c_int) {
    // SAFETY: it is a connection, which the caller holds.
    let connection = unsafe { &*object.cast::<Connection>() };
    if event == connection.descriptor {
        connection.lock().drop_client();
    } else {
        connection.lock().drop_process();
    }
}

/// # Safety
/// Called by the virtual machine with an object of ours.
unsafe extern "C" fn down(env: *mut RawEnv, object: *mut c_void, pid: *mut Pid, _monitor: *mut Monitor) {
    let env = Env(env);
    // SAFETY: as above; the name of the process is there for the call.
    let (connection, pid) = unsafe { (&*object.cast::<Connection>(), *pid) };
    if pid == connection.router {
        return close(env, connection, env.atom("undefined"));
    }
    let mut state = connection.lock();
    state.bereave(pid);
    state.leave(env);
}
