//! A program started by one call of the kernel: a child that shares this process's memory until the program
//! has begun.
//!
//! Purpose: what `posix_spawn` does, in fewer steps. A flag of the call takes every signal handler off, where
//! a library has to ask for each; the descriptor of the child's end comes with the child; and the child
//! begins on the processor that its parent leaves to it anyway, because being woken on another one takes
//! longer than all that the child does.
//!
//! Invariants: from before the child is there until it has none of its parent's handlers, every signal is
//! blocked. The child runs on a stack of its own, calls nothing but the kernel, neither allocates nor takes a
//! lock, and writes nothing but [`Start::refused`] and [`Start::step`]; its parent's thread stands still
//! meanwhile. Checked by the tests of [`super`].

use super::{Program, Refused, Started, Step, takes_aside};
use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// More than a child needs that only calls the kernel.
const STACK_BYTES: usize = 64 * 1024;
/// What a child ends with that could not become a program.
const NOT_STARTED: libc::c_int = 127;
/// In place of an error's number: the kernel does not know how all descriptors are closed at once (Linux
/// 5.9), or does not allow it; the C library copes.
const NOT_CLOSED: libc::c_int = -1;
const SIGNALS_BYTES: usize = size_of::<u64>();

/// What the child needs, all of it in its parent's memory.
struct Start<'a> {
    program: &'a Program<'a>,
    /// One pointer for each path.
    paths: &'a [*const libc::c_char],
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    /// The signals that the program has blocked: those of this thread.
    blocked: u64,
    /// The processors it may use, if it begins on one of them.
    processors: Option<libc::cpu_set_t>,
    /// Why it did not become the program.
    refused: libc::c_int,
    /// What it did last.
    step: Step,
}

/// Starts a program. `None`: this kernel does not know the call, or a filter (seccomp) forbids it.
pub(super) fn start(
    program: &Program<'_>,
    paths: &[*const libc::c_char],
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) -> Option<Result<Started, Refused>> {
    let mut start = Start {
        program,
        paths,
        arguments,
        environment,
        blocked: 0,
        processors: None,
        refused: 0,
        step: Step::Process,
    };
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let mut end: RawFd = -1;
    // SAFETY: a record of numbers, for which zeroes are a value.
    let mut asked: libc::clone_args = unsafe { std::mem::zeroed() };
    asked.flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64 | CLEAR_HANDLERS;
    asked.pidfd = (&raw mut end).addr() as u64;
    asked.exit_signal = libc::SIGCHLD as u64;
    asked.stack = stack.as_mut_ptr().addr() as u64;
    asked.stack_size = STACK_BYTES as u64;
    // SAFETY: the masks are numbers of the size that is said; the thread's own comes back below, whatever
    // happens. The child gets a stack that lives until it no longer uses it, because this thread goes on only
    // then.
    let answer = unsafe {
        change_signals(&u64::MAX, &raw mut start.blocked);
        start.processors = stay();
        let answer = clone_and_begin(&asked, &raw mut start);
        if let Some(processors) = &start.processors {
            go_anywhere(processors);
        }
        change_signals(&start.blocked, std::ptr::null_mut());
        answer
    };
    drop(stack);
    let process = match libc::c_int::try_from(answer) {
        Ok(process) if process > 0 => process,
        refused => {
            let error = unless_unknown(refused.unwrap_or(-libc::EAGAIN))?;
            return Some(Err(Refused { step: Step::Process, error }));
        }
    };
    // SAFETY: the kernel made it for this call, and nobody else knows it.
    let started = Started { process, end: unsafe { OwnedFd::from_raw_fd(end) } };
    Some(match start.refused {
        0 => Ok(started),
        refused => {
            // It is over already, so this does not wait; if somebody else collected it, so much the better.
            let _ = started.ended();
            if refused == NOT_CLOSED {
                return None;
            }
            Err(Refused { step: start.step, error: io::Error::from_raw_os_error(refused) })
        }
    })
}

/// `CLONE_CLEAR_SIGHAND`, which the C library declares in fewer bits than it has.
const CLEAR_HANDLERS: u64 = 1 << 32;

/// What the kernel said, unless it does not know the call or somebody forbids it.
fn unless_unknown(negative: libc::c_int) -> Option<io::Error> {
    match -negative {
        libc::ENOSYS | libc::EPERM | libc::EINVAL => None,
        number => Some(io::Error::from_raw_os_error(number)),
    }
}

/// Sets the blocked signals of this thread, with those that the C library keeps for itself.
///
/// # Safety
/// `before` is null or may be written to.
unsafe fn change_signals(to: &u64, before: *mut u64) {
    // SAFETY: two masks of the size that is said. The call fails only for other sizes.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, to, before, SIGNALS_BYTES) };
}

/// Keeps this thread on the processor it is on; those that it had, for [`go_anywhere`].
fn stay() -> Option<libc::cpu_set_t> {
    // SAFETY: a set of bits, for which zeroes are a value; the calls write and read sets of the size that is
    // said.
    unsafe {
        let (mut had, mut here): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        let processor = usize::try_from(libc::sched_getcpu()).ok()?;
        let bytes = size_of::<libc::cpu_set_t>();
        if processor >= bytes * 8
            || libc::sched_getaffinity(0, bytes, &mut had) != 0
            || libc::CPU_COUNT(&had) < 2
        {
            return None;
        }
        libc::CPU_SET(processor, &mut here);
        (libc::sched_setaffinity(0, bytes, &here) == 0).then_some(had)
    }
}

/// Gives this thread back the processors that it had. The kernel keeps what is asked for, and bounds by it
/// what a later change of the machine's or the container's processors brings: so all are asked for, unless
/// those are more than it had. Where none of those that it had is there any more, it has all that there are.
fn go_anywhere(had: &libc::cpu_set_t) {
    let bytes = size_of::<libc::cpu_set_t>();
    // SAFETY: sets of bits, for which zeroes are a value; the calls write and read sets of the size that is
    // said.
    unsafe {
        let (mut all, mut now): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        std::ptr::from_mut(&mut all).cast::<u8>().write_bytes(u8::MAX, bytes);
        let asked = libc::sched_setaffinity(0, bytes, &all) == 0;
        if !asked || libc::sched_getaffinity(0, bytes, &mut now) != 0 || !libc::CPU_EQUAL(&now, had) {
            libc::sched_setaffinity(0, bytes, had);
        }
    }
}

/// Makes a child that begins with [`begin`]: its process, or an error's number below zero.
///
/// Each operand has a register by name. The compiler may give any other one the frame pointer, which the
/// child empties before it reads them.
///
/// # Safety
/// `asked` names a stack that nobody else uses, and shares memory only until the child lets go of it.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_and_begin(asked: &libc::clone_args, start: *mut Start<'_>) -> libc::c_long {
    let answer;
    // SAFETY: the parent comes back from the call as from any other, with three registers changed. The child
    // has a stack that is aligned as callees expect, calls `begin`, and never gets beyond it. The kernel
    // leaves it the registers that the call does not answer in.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, rdx",
            "call r8",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") asked,
            in("rsi") size_of::<libc::clone_args>(),
            in("rdx") start,
            in("r8") begin as unsafe extern "C" fn(*mut Start<'_>) -> !,
            out("rcx") _,
            out("r11") _,
        );
    }
    answer
}

/// The same on the other machine.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone_and_begin(asked: &libc::clone_args, start: *mut Start<'_>) -> libc::c_long {
    let answer;
    // SAFETY: as above; the call changes nothing but where it answers.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x2",
            "blr x3",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone3,
            inlateout("x0") asked => answer,
            in("x1") size_of::<libc::clone_args>(),
            in("x2") start,
            in("x3") begin as unsafe extern "C" fn(*mut Start<'_>) -> !,
        );
    }
    answer
}

/// The child: becomes the program, or says why not.
///
/// # Safety
/// In a child that shares its parent's memory while the parent's thread stands still.
unsafe extern "C" fn begin(start: *mut Start<'_>) -> ! {
    // SAFETY: the parent's thread keeps it and waits.
    let start = unsafe { &mut *start };
    // SAFETY: as the caller promised.
    unsafe {
        start.refused = match prepare(start) {
            0 => execute(start),
            refused => refused,
        };
        libc::_exit(NOT_STARTED)
    }
}

fn failed() -> libc::c_int {
    // SAFETY: the thread's own word, which the parent's thread does not read meanwhile.
    unsafe { *libc::__errno_location() }
}

/// Gives the child what the program is to have; the number of an error, or zero.
///
/// # Safety
/// As [`begin`].
unsafe fn prepare(start: &mut Start<'_>) -> libc::c_int {
    let program = start.program;
    // SAFETY: calls of the kernel alone, on numbers and on strings and sets that the parent keeps.
    unsafe {
        if let Some(processors) = &start.processors {
            go_anywhere(processors);
        }
        if program.default_signals {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        }
        start.step = Step::Group;
        let leads = program.new_session && libc::setsid() < 0;
        if leads || program.process_group.is_some_and(|group| libc::setpgid(0, group) != 0) {
            return failed();
        }
        start.step = Step::Standard;
        // One of the first three that is to be in another's place is taken aside: what comes into its own
        // place would be taken for it.
        let mut standard = program.standard;
        for (target, source) in (0..).zip(&mut standard) {
            if let Some(number) = source.filter(|number| takes_aside(*number, target)) {
                let aside = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3);
                if aside < 0 {
                    return failed();
                }
                *source = Some(aside);
            }
        }
        for (target, source) in (0..).zip(standard) {
            let Some(source) = source else { continue };
            // What is in its place already only has to stay open.
            let placed = if source == target {
                libc::fcntl(target, libc::F_SETFD, 0)
            } else {
                libc::dup2(source, target)
            };
            if placed < 0 {
                return failed();
            }
        }
        let others = program.closes_others;
        if others && libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) != 0 {
            return NOT_CLOSED;
        }
        start.step = Step::Directory;
        if program.directory.map(CStr::as_ptr).is_some_and(|directory| libc::chdir(directory) != 0) {
            return failed();
        }
        start.step = Step::Program;
        change_signals(&start.blocked, std::ptr::null_mut());
        0
    }
}

/// Tries one path after the other; why none of them was it: the first refusal that is more than that there is
/// no such program, or else the last.
///
/// # Safety
/// As [`begin`].
unsafe fn execute(start: &Start<'_>) -> libc::c_int {
    let (mut refused, mut absent) = (0, libc::ENOENT);
    for path in start.paths {
        // SAFETY: strings and lists that end with a null, kept by the parent; the call comes back only when
        // it is refused.
        unsafe { libc::execve(*path, start.arguments, start.environment) };
        match failed() {
            why @ (libc::ENOENT | libc::ENOTDIR) => absent = why,
            why if refused == 0 => refused = why,
            _ => {}
        }
    }
    if refused == 0 { absent } else { refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors() -> libc::cpu_set_t {
        // SAFETY: a set of bits, for which zeroes are a value, of the size that is said.
        unsafe {
            let mut now: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut now), 0);
            now
        }
    }

    #[test]
    fn a_thread_whose_processors_went_meanwhile_has_all_that_there_are() {
        let before = processors();
        let Some(mut had) = stay() else { return };
        // SAFETY: a set of bits.
        unsafe { libc::CPU_ZERO(&mut had) };
        go_anywhere(&had);
        // SAFETY: two sets of bits.
        assert!(unsafe { libc::CPU_EQUAL(&processors(), &before) });
    }
}
