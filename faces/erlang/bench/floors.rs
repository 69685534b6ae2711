//! Floors of the benchmark: what the virtual machine's interface does by itself, as `floors.erl` names it.
//!
//! Owns nothing that is shipped. The application's own declarations of the interface are used, so the floors
//! are those of the very functions that it stands on.

#[allow(dead_code, reason = "the application uses more of it")]
#[path = "../native/enif.rs"]
mod enif;
#[allow(dead_code, reason = "the application uses more of it")]
#[path = "../native/term.rs"]
mod term;

use enif::{FunctionEntry, KindInit, LibraryEntry, RawEnv, RawTerm};
use std::ffi::{c_int, c_void};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use term::{Env, Letter};

/// What the interface calls a job for a scheduler apart.
const DIRTY: u32 = 1;

/// The kind of the object that is watched.
struct Class(NonNull<enif::RawKind>);

// SAFETY: a kind is a constant of the virtual machine, good in every thread.
unsafe impl Send for Class {}
// SAFETY: as above.
unsafe impl Sync for Class {}

/// Set once, while the library is loaded.
static CLASS: OnceLock<Class> = OnceLock::new();

/// A pipe that is watched. It lasts as long as the virtual machine, which is one figure's.
struct Watched {
    input: PipeReader,
    output: PipeWriter,
}

fn nothing(env: Env, _: &[RawTerm]) -> Option<RawTerm> {
    Some(env.atom("ok"))
}

/// `send(Pid, Messages, Items)`: so many messages, each a list of so many integers.
fn send(env: Env, arguments: &[RawTerm]) -> Option<RawTerm> {
    let [pid, messages, items] = arguments else { return None };
    let (pid, messages, items) = (env.pid(*pid)?, env.natural(*messages)?, env.natural(*items)?);
    let mut letter = Letter::new()?;
    for _ in 0..messages {
        let place = letter.env();
        let items: Vec<RawTerm> = (0..items).map(|item| place.make_natural(item)).collect();
        let message = place.make_list(&items);
        letter.send(env, &pid, message);
    }
    Some(env.atom("ok"))
}

/// `watched()`: a pipe.
fn watched(env: Env, _: &[RawTerm]) -> Option<RawTerm> {
    let (input, output) = std::io::pipe().ok()?;
    let kind = CLASS.get()?.0.as_ptr();
    // SAFETY: the object is as large as is said and written before anybody sees it. It is held once for ever,
    // because what is watched must not go.
    unsafe {
        let object = enif::enif_alloc_resource(kind, size_of::<Watched>());
        object.cast::<Watched>().write(Watched { input, output });
        Some(enif::enif_make_resource(env.0, object))
    }
}

/// `ring(Watched)`: has the caller be told that there is a byte, and writes it.
fn ring(env: Env, arguments: &[RawTerm]) -> Option<RawTerm> {
    let object = object(env, arguments.first().copied()?)?;
    // SAFETY: the object lasts for ever.
    let watched = unsafe { &*object.cast::<Watched>() };
    let caller = env.caller();
    let descriptor = watched.input.as_raw_fd();
    // SAFETY: the descriptor is the object's own, open as long as it.
    let outcome = unsafe {
        enif::enif_select(
            env.0,
            descriptor,
            enif::SELECT_READ,
            object,
            &raw const caller,
            env.atom("undefined"),
        )
    };
    (outcome >= 0 && (&watched.output).write_all(b"x").is_ok()).then(|| env.atom("ok"))
}

/// `hush(Watched)`: takes the byte away.
fn hush(env: Env, arguments: &[RawTerm]) -> Option<RawTerm> {
    let object = object(env, arguments.first().copied()?)?;
    // SAFETY: the object lasts for ever.
    let watched = unsafe { &*object.cast::<Watched>() };
    (&watched.input).read_exact(&mut [0]).is_ok().then(|| env.atom("ok"))
}

fn object(env: Env, term: RawTerm) -> Option<*mut c_void> {
    let kind = CLASS.get()?.0.as_ptr();
    let mut object = ptr::null_mut();
    // SAFETY: the term is of this environment.
    let found = unsafe { enif::enif_get_resource(env.0, term, kind, &raw mut object) } != 0;
    found.then_some(object)
}

macro_rules! functions {
    ($($name:literal, $arity:literal, $flags:expr => $function:ident as $entry:ident;)+) => {
        $(
            /// # Safety
            /// Called by the virtual machine, with an environment and as many arguments as it says.
            unsafe extern "C" fn $entry(env: *mut RawEnv, count: c_int, arguments: *const RawTerm) -> RawTerm {
                let env = Env(env);
                let arguments = match count {
                    0 => &[],
                    // SAFETY: said above.
                    _ => unsafe { std::slice::from_raw_parts(arguments, count as usize) },
                };
                $function(env, arguments).unwrap_or_else(|| env.bad_argument())
            }
        )+

        static FUNCTIONS: &[FunctionEntry] =
            &[$(FunctionEntry { name: $name.as_ptr(), arity: $arity, function: $entry, flags: $flags }),+];
    };
}

functions! {
    c"nothing", 0, 0 => nothing as nothing_entry;
    c"nothing_dirty", 0, DIRTY => nothing as nothing_dirty_entry;
    c"send", 3, 0 => send as send_entry;
    c"watched", 0, 0 => watched as watched_entry;
    c"ring", 1, 0 => ring as ring_entry;
    c"hush", 1, 0 => hush as hush_entry;
}

static LIBRARY: LibraryEntry = LibraryEntry {
    major: 2,
    minor: 16,
    name: c"floors".as_ptr(),
    function_count: FUNCTIONS.len() as c_int,
    functions: FUNCTIONS.as_ptr(),
    load: Some(load),
    reload: None,
    upgrade: None,
    unload: None,
    variant: c"beam.vanilla".as_ptr(),
    options: 1,
    kind_bytes: size_of::<KindInit>(),
    min_runtime: c"erts-13.0".as_ptr(),
};

/// # Safety
/// Called by the virtual machine, once.
unsafe extern "C" fn load(env: *mut RawEnv, _data: *mut *mut c_void, _info: RawTerm) -> c_int {
    let init = KindInit { drop: None, stop: Some(stopped), down: None, members: 2, call: ptr::null() };
    // SAFETY: called while loading, as it has to be; everything is borrowed for the call.
    let kind = unsafe {
        let name = c"watched".as_ptr();
        enif::enif_open_resource_type_x(env, name, &raw const init, enif::KIND_CREATE, ptr::null_mut())
    };
    c_int::from(NonNull::new(kind).is_none_or(|kind| CLASS.set(Class(kind)).is_err()))
}

/// # Safety
/// Called by the virtual machine; nothing is ever stopped here.
unsafe extern "C" fn stopped(_env: *mut RawEnv, _object: *mut c_void, _event: c_int, _direct: c_int) {}

/// Where the virtual machine begins.
#[unsafe(no_mangle)]
extern "C" fn nif_init() -> *const LibraryEntry {
    &raw const LIBRARY
}
