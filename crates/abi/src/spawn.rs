//! A service's program: started, waited for, tended and ended.
//!
//! A spawned program may be used from any thread, but from one at a time. The kernel kills the program when
//! the *thread* that started it ends: start it from one that lives as long as it should.

use crate::borrowed;
use crate::client::{ThalwegClient, endpoint as endpoint_of, lend};
use crate::client_options::{ThalwegClientOptions, milliseconds, options_of};
use crate::outcome::{code, value};
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::time::Duration;
use thalweg_service::{Error, Exit, ProgramEvent, Respawn, SpawnOptions, Spawned};
use thalweg_wire::fault::Fault;

/// What `respawn_within_ms` is unless somebody says otherwise.
const RESPAWN_WITHIN_MS: u64 = 60_000;

/// A program that serves an endpoint. From `thalweg_spawned_start`, to be handed to `thalweg_spawned_close`.
pub struct ThalwegSpawned {
    spawned: Spawned,
}

/// How a program is started, and what happens when it does not do as it should. Begin with
/// `thalweg_spawn_defaults()`. Strings end with a NUL.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThalwegSpawnOptions {
    /// What it is told: `arguments_count` strings.
    pub arguments: *const *const c_char,
    /// See `arguments`.
    pub arguments_count: usize,
    /// Variables it gets beside those of this process: `environment_count` strings, `NAME=VALUE` each.
    pub environment: *const *const c_char,
    /// See `environment`.
    pub environment_count: usize,
    /// Where it runs; null for where this process does.
    pub directory: *const c_char,
    /// The file that its output and its errors are appended to, to be quoted when it fails; null for where
    /// those of this process go.
    pub log: *const c_char,
    /// How long it may take until its endpoint answers.
    pub ready_within_ms: u64,
    /// How long it may take to end when it is asked to, before it is killed.
    pub end_within_ms: u64,
    /// The period in which it is started anew at most `respawn_most` times.
    pub respawn_within_ms: u64,
    /// The most restarts within `respawn_within_ms` after it ended unasked; 0 for none.
    pub respawn_most: u32,
    /// It speaks plain frames only.
    pub plain: bool,
    /// Over `-` it gets two pipes, and not a socket.
    pub pipes: bool,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ThalwegExitKind {
    /// It has not.
    Running = 0,
    /// By itself, with a code.
    Code = 1,
    /// By a signal.
    Signal = 2,
    /// Nobody knows how: this process ignores SIGCHLD, or waits elsewhere for all its children.
    Unknown = 3,
}

/// How a program ended, and the code or the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ThalwegExit {
    /// How.
    pub kind: ThalwegExitKind,
    /// The code, or the signal's number; 0 while it runs, -1 where nobody knows.
    pub number: i32,
}

impl From<Option<Exit>> for ThalwegExit {
    fn from(exit: Option<Exit>) -> Self {
        let (kind, number) = match exit {
            None => (ThalwegExitKind::Running, 0),
            Some(Exit::Code(code)) => (ThalwegExitKind::Code, code),
            Some(Exit::Signal(signal)) => (ThalwegExitKind::Signal, signal),
            Some(Exit::Unknown) => (ThalwegExitKind::Unknown, -1),
        };
        Self { kind, number }
    }
}

impl ThalwegSpawnOptions {
    /// # Safety
    /// Its pointers point to what they say.
    unsafe fn options(&self) -> Result<SpawnOptions, Error> {
        // SAFETY: the caller's promise, here and below.
        let arguments = unsafe { strings(self.arguments, self.arguments_count, "an argument") }?;
        // SAFETY: as above.
        let environment = unsafe { strings(self.environment, self.environment_count, "a variable") }?;
        let variable = |text: &&str| {
            let (name, word) = text.split_once('=').ok_or_else(|| {
                Error::new(Fault::BadArgument, format!("a variable without a value: {text}; give NAME=VALUE"))
            })?;
            Ok((name.into(), word.into()))
        };
        // SAFETY: as above.
        let (directory, log) =
            unsafe { (optional(self.directory, "the directory")?, optional(self.log, "the log")?) };
        let within = Duration::from_millis(self.respawn_within_ms);
        let respawn = match self.respawn_most {
            0 => Respawn::Never,
            most => Respawn::Limited { most, within },
        };
        Ok(SpawnOptions {
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: environment.iter().map(variable).collect::<Result<_, Error>>()?,
            directory: directory.map(Into::into),
            log: log.map(Into::into),
            ready_within: Duration::from_millis(self.ready_within_ms),
            plain: self.plain,
            pipes: self.pipes,
            end_within: Duration::from_millis(self.end_within_ms),
            respawn,
        })
    }
}

/// # Safety
/// `list` points to `count` strings that a NUL ends.
unsafe fn strings<'a>(list: *const *const c_char, count: usize, what: &str) -> Result<Vec<&'a str>, Error> {
    // SAFETY: the caller's promise.
    let list = unsafe { borrowed::list(list, count, what) }?;
    // SAFETY: the caller's promise.
    list.iter().map(|text| unsafe { borrowed::string(*text, what) }).collect()
}

/// # Safety
/// `text` is null or a string that a NUL ends.
unsafe fn optional<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { borrowed::string(text, what) }.map(Some)
}

/// No arguments, ten seconds to answer, five to end, and no second start.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_spawn_defaults() -> ThalwegSpawnOptions {
    let of = SpawnOptions::default();
    ThalwegSpawnOptions {
        arguments: std::ptr::null(),
        arguments_count: 0,
        environment: std::ptr::null(),
        environment_count: 0,
        directory: std::ptr::null(),
        log: std::ptr::null(),
        ready_within_ms: milliseconds(of.ready_within),
        end_within_ms: milliseconds(of.end_within),
        respawn_within_ms: RESPAWN_WITHIN_MS,
        respawn_most: 0,
        plain: of.plain,
        pipes: of.pipes,
    }
}

/// Starts a program (a path, or a name that is looked for as a shell does) and waits until its endpoint
/// answers. Null options are the defaults. Faults: THALWEG_BAD_ARGUMENT where there is no such program,
/// THALWEG_PERMISSION_DENIED where it may not be run, THALWEG_ADDRESS_IN_USE where another server answers
/// already, THALWEG_NO_SERVER when it ended before it answered, THALWEG_CONNECT_TIMEOUT when it did not
/// answer in time and was ended. `thalweg_error_detail` quotes the end of its log.
///
/// # Safety
/// `program` and `endpoint` are strings that a NUL ends; `options` is null or points to options whose
/// pointers point to what they say; `spawned` to a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_start(
    program: *const c_char,
    endpoint: *const c_char,
    options: *const ThalwegSpawnOptions,
    spawned: *mut *mut ThalwegSpawned,
) -> u16 {
    code(|| {
        let place = borrowed::place(spawned, "the place for the program")?;
        // SAFETY: the caller's promise.
        let (program, at) = unsafe {
            (borrowed::string(program, "the program")?, borrowed::string(endpoint, "the endpoint")?)
        };
        // SAFETY: the caller's promise.
        let options = match unsafe { borrowed::option(options) } {
            // SAFETY: the caller's promise.
            Some(options) => unsafe { options.options() }?,
            None => SpawnOptions::default(),
        };
        let started = ThalwegSpawned { spawned: Spawned::start(program, endpoint_of(at)?, options)? };
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(Box::into_raw(Box::new(started))) };
        Ok(())
    })
}

/// Ends the program as `thalweg_spawned_stop` does, and frees what is known of it; null is fine.
///
/// # Safety
/// `spawned` is null, or came from `thalweg_spawned_start` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_close(spawned: *mut ThalwegSpawned) {
    if !spawned.is_null() {
        // SAFETY: the caller's promise, and not null.
        value((), || drop(unsafe { Box::from_raw(spawned) }));
    }
}

/// Looks whether the program still runs, and starts it anew if it does not and may be: then `respawned`,
/// which may be null, is how it had ended. THALWEG_NO_SERVER: it ended, and stays so. THALWEG_CLOSED: it was
/// stopped.
///
/// # Safety
/// `spawned` is null or a program; `respawned` is null or points to a place for an exit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_tend(
    spawned: *mut ThalwegSpawned,
    respawned: *mut ThalwegExit,
) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let ThalwegSpawned { spawned } = unsafe { borrowed::handle(spawned, "the program") }?;
        let before = match spawned.tend()? {
            ProgramEvent::Running => None,
            ProgramEvent::Respawned(exit) => Some(exit),
        };
        if !respawned.is_null() {
            // SAFETY: the caller's promise; what stands there is not read.
            unsafe { respawned.write(before.into()) };
        }
        Ok(())
    })
}

/// Tends the program, then connects to it. Over `-`, once. The client is the caller's, and outlives the
/// program as one whose connection ended.
///
/// # Safety
/// `spawned` is null or a program; `options` is null or points to options; `client` to a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_connect(
    spawned: *mut ThalwegSpawned,
    options: *const ThalwegClientOptions,
    client: *mut *mut ThalwegClient,
) -> u16 {
    code(|| {
        let place = borrowed::place(client, "the place for the client")?;
        // SAFETY: the caller's promise.
        let ThalwegSpawned { spawned } = unsafe { borrowed::handle(spawned, "the program") }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options_of(options) };
        let connected = lend(spawned.connect(options)?);
        // SAFETY: the caller's promise; what stands there is not read.
        unsafe { place.write(connected) };
        Ok(())
    })
}

/// Ends a program that does not do as it should, by force if it must be, and starts it anew.
///
/// # Safety
/// `spawned` is null or a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_restart(spawned: *mut ThalwegSpawned) -> u16 {
    // SAFETY: the caller's promise.
    code(|| unsafe { borrowed::handle(spawned, "the program") }?.spawned.restart())
}

/// Asks the program to end (TERM), and kills it when it has not within `end_within_ms`. `exit`, which may be
/// null, is how it ended.
///
/// # Safety
/// `spawned` is null or a program; `exit` is null or points to a place for an exit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_stop(spawned: *mut ThalwegSpawned, exit: *mut ThalwegExit) -> u16 {
    code(|| {
        // SAFETY: the caller's promise.
        let ended = unsafe { borrowed::handle(spawned, "the program") }?.spawned.stop()?;
        if !exit.is_null() {
            // SAFETY: the caller's promise; what stands there is not read.
            unsafe { exit.write(ended.into()) };
        }
        Ok(())
    })
}

/// Readable when the program ended, and another one after it was started anew. It belongs to the program. -1
/// while there is none.
///
/// # Safety
/// `spawned` is null or a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_descriptor(spawned: *const ThalwegSpawned) -> c_int {
    value(-1, || {
        // SAFETY: the caller's promise.
        let spawned = unsafe { borrowed::option(spawned) };
        spawned.and_then(|of| of.spawned.descriptor()).map_or(-1, |descriptor| descriptor.as_raw_fd())
    })
}

/// The program's process, 0 while there is none.
///
/// # Safety
/// `spawned` is null or a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_spawned_process(spawned: *const ThalwegSpawned) -> u32 {
    // SAFETY: the caller's promise.
    value(0, || unsafe { borrowed::option(spawned) }.and_then(|of| of.spawned.process()).unwrap_or(0))
}
