//! The programs that the tests have a supervisor start: this program again, told by its first argument what
//! to be.

use crate::control::until;
use std::cell::Cell;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use thalweg_fork::{Order, Program};
use thalweg_rpc::{Mount, ServerOptions};
use thalweg_service::{Reply, Request};
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::{fork, handover, socket};
use thalweg_wire::messagepack::{Reader, write};

pub(crate) const SCHEMA: &str = r#"{
    "service": "Sum",
    "error": { "message": "string" },
    "commands": { "Add": { "request": { "n": "u64" }, "response": { "sum": "u64", "process": "u64" } } },
}"#;

/// What is answered only together with what is added next, wherever that is.
pub(crate) const HELD: u64 = u64::MAX;

/// The server: a sum, which a fork copies. While there is a gate, adding takes until there is none.
pub(crate) fn sum(gate: &Path) {
    let schema = thalweg_schema::parse("sum.jsonc", SCHEMA).unwrap();
    let sum = Rc::new(Cell::new(0_u64));
    let held: Rc<Cell<Option<Reply>>> = Rc::default();
    let mount = || {
        let (sum, held, gate) = (sum.clone(), held.clone(), gate.to_owned());
        let handler = move |request: Request<'_>, reply: Reply| {
            let mut reader = Reader::new(request.frame);
            reader.request().unwrap();
            assert_eq!(reader.fields("SumAdd").unwrap(), 1);
            reader.key().unwrap();
            let number = reader.u64().unwrap();
            if number == HELD {
                std::fs::write(reached(&gate), "").unwrap();
                return drop(held.replace(Some(reply)));
            }
            if gate.exists() {
                std::fs::write(reached(&gate), "").unwrap();
                until("open", || !gate.exists());
            }
            sum.set(sum.get() + number);
            let answer = |reply: Reply| {
                reply.end_with(|out| {
                    out.push(0x92);
                    write::string(out, "SumAddResponse");
                    out.push(0x82);
                    write::string(out, "sum");
                    write::u64(out, &sum.get());
                    write::string(out, "process");
                    write::u64(out, &std::process::id().into());
                })
            };
            held.take().into_iter().chain([reply]).for_each(answer);
        };
        ("sum", Mount::here(&schema, handler))
    };
    thalweg_fork::serve(&ServerOptions::default(), &mount).unwrap();
}

/// What is there once somebody waits at a gate.
pub(crate) fn reached(gate: &Path) -> PathBuf {
    gate.with_extension("reached")
}

/// There once the one that was copied has said so.
pub(crate) fn forked(gate: &Path) -> PathBuf {
    gate.with_extension("forked")
}

/// A server that does nothing it is told: it only stays.
pub(crate) fn wedged() {
    std::io::stdin().lock().read_to_end(&mut Vec::new()).ok();
    loop {
        std::thread::park();
    }
}

/// A server that does nothing but what it is told. While there is a gate, a copy of it waits before it is
/// told where to listen.
pub(crate) fn hesitant(gate: &Path) {
    let mut program = Program::inherited().unwrap();
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(_)) => program.done().unwrap(),
            Some(Order::Fork(branch)) => {
                let is_copy = program.fork(branch).unwrap();
                if gate.exists() {
                    std::fs::write(if is_copy { reached(gate) } else { forked(gate) }, "").unwrap();
                }
                while is_copy && gate.exists() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Some(Order::End) => return program.done().unwrap(),
        }
    }
}

/// A server that once it listens has no room for another descriptor, or for so many.
pub(crate) fn crowded(room: usize) {
    let (mut program, mut full) = (Program::inherited().unwrap(), Vec::<OwnedFd>::new());
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(listener)) => {
                full.push(listener);
                full.extend(std::iter::from_fn(|| Some(std::fs::File::open("/dev/null").ok()?.into())));
                full.truncate(full.len() - room);
                program.done().unwrap();
            }
            Some(Order::Fork(branch)) => {
                assert!(!program.fork(branch).unwrap(), "there is no room for a copy")
            }
            Some(Order::End) => return program.done().unwrap(),
        }
    }
}

/// A server that does as it is told, and when it was to end lets go of what it is told by, and goes on.
pub(crate) fn lingering() {
    let mut program = Program::inherited().unwrap();
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(_)) => program.done().unwrap(),
            Some(Order::Fork(branch)) => drop(program.fork(branch).unwrap()),
            Some(Order::End) => {
                program.done().unwrap();
                break;
            }
        }
    }
    let mut other = std::process::Command::new("sleep");
    let failed = other.arg("60").stdin(std::process::Stdio::null()).exec();
    panic!("{failed}");
}

/// A server that starts another process when it is told to listen, writes down which, and goes on when it is
/// told to end.
#[allow(clippy::zombie_processes, reason = "it is ended with its group, which the supervisor waits for")]
pub(crate) fn family(gate: &Path) {
    let (mut program, mut is_to_end) = (Program::inherited().unwrap(), false);
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(_)) => {
                let mut other = std::process::Command::new("sleep");
                let other = other.arg("120").stdin(std::process::Stdio::null()).spawn().unwrap();
                std::fs::write(started_by(gate, std::process::id()), other.id().to_string()).unwrap();
                program.done().unwrap();
            }
            Some(Order::Fork(branch)) => drop(program.fork(branch).unwrap()),
            // The second time its supervisor is gone.
            Some(Order::End) if is_to_end => return,
            Some(Order::End) => {
                is_to_end = true;
                program.done().unwrap();
            }
        }
    }
}

/// Where a server of a family writes down what it has started.
pub(crate) fn started_by(gate: &Path, process: u32) -> PathBuf {
    gate.with_extension(process.to_string())
}

/// A server behind a program that makes a session for it.
pub(crate) fn in_a_session() {
    let this = std::env::current_exe().unwrap();
    let failed = std::process::Command::new("setsid").arg("--wait").arg(this).arg("groupless").exec();
    panic!("{failed}");
}

/// A server that forks as one in another language may: its copies stay in its group.
pub(crate) fn groupless() {
    let mut line = socket::standard_input().unwrap();
    let mut words = Vec::with_capacity(64);
    let say = |line: BorrowedFd<'_>, words: &str| {
        assert_eq!(socket::send(line, words.as_bytes()).unwrap(), Some(words.len()));
    };
    loop {
        wait_readable(line.as_fd(), 60_000).unwrap();
        words.clear();
        let (count, beside) = handover::receive(line.as_fd(), &mut words).unwrap();
        match (&words[..], beside) {
            (b"listen\n", _) => say(line.as_fd(), "ok\n"),
            (b"fork\n", Some(copy)) => {
                if fork::branch(copy.as_fd()).unwrap() {
                    line = copy;
                    say(line.as_fd(), &format!("ok {}\n", std::process::id()));
                } else {
                    say(line.as_fd(), "ok\n");
                }
            }
            _ if count.is_none() => continue,
            _ => return,
        }
    }
}

/// A server that speaks for a copy that it never makes, by its own number.
pub(crate) fn pretender() {
    let line = socket::standard_input().unwrap();
    let (mut words, mut copies) = (Vec::with_capacity(64), Vec::new());
    let say = |line: BorrowedFd<'_>, words: &str| {
        assert_eq!(socket::send(line, words.as_bytes()).unwrap(), Some(words.len()));
    };
    loop {
        wait_readable(line.as_fd(), 60_000).unwrap();
        words.clear();
        let (count, beside) = handover::receive(line.as_fd(), &mut words).unwrap();
        match (&words[..], beside) {
            (b"listen\n", _) => {}
            (b"fork\n", Some(copy)) => {
                say(copy.as_fd(), &format!("ok {}\n", std::process::id()));
                copies.push(copy);
            }
            _ if count.is_none() => continue,
            _ => return,
        }
        say(line.as_fd(), "ok\n");
    }
}

/// Goes on twice with a word that it has not written yet.
pub(crate) fn talker() {
    let (_ours, theirs) = socket::pair().unwrap();
    print!("once");
    fork::branch(theirs.as_fd()).unwrap();
}
