//! A process as its supervisor has it: what it is told goes through one thread, so that one that does not answer keeps
//! nobody else from being told.

use crate::line::Line;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use thalweg_sys::socket;

/// Only the part of a stack that is used takes memory.
const STACK_BYTES: usize = 128 * 1024;

/// What a process is to be told.
pub(crate) type Job = Box<dyn FnOnce(&mut Told) + Send>;

/// A process, and how long it may take to answer.
pub(crate) struct Told {
    line: Line,
    patience: Duration,
}

/// Keeps a process. The thread ends when nobody has a sender of its jobs any more.
pub(crate) fn keep(told: Told) -> io::Result<Sender<Job>> {
    let (sender, receiver): (Sender<Job>, Receiver<Job>) = channel();
    let run = move || {
        let mut told = told;
        for job in receiver {
            job(&mut told);
        }
    };
    std::thread::Builder::new().name("keeper".to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(sender)
}

impl Told {
    /// The two ends of a line: the supervisor's, and what becomes a process's standard input.
    pub(crate) fn pair(patience: Duration) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socket::pair()?;
        // A program expects of its standard input that it waits.
        socket::block(theirs.as_fd())?;
        Ok((Self { line: Line::new(ours), patience }, theirs))
    }

    fn ask(&mut self, order: &str, beside: Option<&OwnedFd>) -> Result<String, String> {
        let failed = |error: io::Error| format!("{order}: {error}");
        self.line.say(order, beside.map(AsFd::as_fd)).map_err(failed)?;
        self.answer().map_err(|words| format!("{order}: {words}"))
    }

    /// What follows `ok`; or why not.
    pub(crate) fn answer(&mut self) -> Result<String, String> {
        let (words, _) = self.line.listen(self.patience).map_err(|error| error.to_string())?;
        match words.split_once(' ').unwrap_or((&words, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            ("error", why) => Err(why.to_owned()),
            _ => Err(format!("the process says {words:?}")),
        }
    }

    /// Has it listen there.
    pub(crate) fn listen_at(&mut self, listener: &OwnedFd) -> Result<(), String> {
        self.ask("listen", Some(listener)).map(drop)
    }

    /// Has it fork; the copy, and its number.
    pub(crate) fn fork(&mut self) -> Result<(Self, u32), String> {
        let (mut child, theirs) = Self::pair(self.patience).map_err(|error| error.to_string())?;
        self.ask("fork", Some(&theirs))?;
        drop(theirs);
        // From here on letting go of the child's line ends the child.
        let process = child.answer()?;
        let process = process.parse().map_err(|_| format!("{process:?} is no number of a process"))?;
        Ok((child, process))
    }

    pub(crate) fn emancipate(&mut self) -> Result<(), String> {
        self.ask("emancipate", None).map(drop)
    }

    /// Has it end; whether it has.
    pub(crate) fn shutdown(&mut self) -> Result<(), String> {
        self.ask("shutdown", None)?;
        if self.line.await_end(self.patience) { Ok(()) } else { Err("it does not end".to_owned()) }
    }
}
