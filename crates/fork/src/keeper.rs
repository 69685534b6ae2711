//! A process as its supervisor sees it. One thread sends all its orders, so that a process that does not
//! answer does not delay the orders of others.
//!
//! # Invariants
//!
//! 1. *One order is under way at a time*, however late its answer: an answer is that of the last order, and
//!    a descriptor beside an order's line belongs to that order.
//! 2. *A copy's process id is the one that the kernel gives for the sender of its words*, not the one that
//!    the words give: the supervisor kills processes by it.
//! 3. *An order's time limit begins when it comes in*, not when its turn comes: orders that wait behind one
//!    that hangs run out of time with it.
//! 4. *The caller of an order hears its outcome*, however late that is: the table says what a process has
//!    confirmed.
//!
//! *Checked by* the tests below and `tests/forks.rs`.

use crate::line::Line;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use thalweg_sys::{fork, socket};
use thiserror::Error;

/// Only the part of a stack that is used takes memory.
const STACK_BYTES: usize = 128 * 1024;

/// How often a late answer is looked for while nothing is to be told.
const LOOK: Duration = Duration::from_millis(50);

/// What a process is to be told, and until when.
pub(crate) struct Job {
    pub(crate) until: Instant,
    pub(crate) run: Box<dyn FnOnce(&mut Told) + Send>,
}

/// Called once the outcome of an order is known: whether it was carried out.
type Outcome = Box<dyn FnOnce(bool) + Send>;

/// Why a process has not done what it was told.
#[derive(Debug, Error)]
pub(crate) enum Undone {
    /// It was not told, or it refused, or it ended: it will not do it.
    #[error("{0}")]
    Refused(String),
    /// It has not answered in time, and may do it yet.
    #[error("{0}")]
    Late(String),
}

/// A process, and until when it may answer.
pub(crate) struct Told {
    line: Line,
    until: Instant,
    /// The order that was not answered in time, until it is.
    late: Option<(&'static str, Outcome)>,
}

/// Keeps a process. The thread ends when nobody has a sender of its jobs any more.
pub(crate) fn keep(told: Told) -> io::Result<Sender<Job>> {
    let (sender, receiver): (Sender<Job>, Receiver<Job>) = channel();
    let run = move || {
        let mut told = told;
        while let Some(job) = next(&receiver, &mut told) {
            told.until = job.until;
            (job.run)(&mut told);
        }
    };
    std::thread::Builder::new().name("keeper".to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(sender)
}

/// The next job. A late answer is taken meanwhile, though nobody asks for it.
fn next(receiver: &Receiver<Job>, told: &mut Told) -> Option<Job> {
    while told.settle_by(Instant::now()).is_err() {
        match receiver.recv_timeout(LOOK) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    receiver.recv().ok()
}

impl Told {
    /// The two ends of a line: the supervisor's, and what becomes a process's standard input.
    pub(crate) fn pair(until: Instant) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socket::pair()?;
        // A program expects of its standard input that it waits.
        socket::block(theirs.as_fd())?;
        Ok((Self { line: Line::new(ours), until, late: None }, theirs))
    }

    /// Gives an order and waits for its answer. `outcome` is called once: before this answers, or, when the
    /// answer is late, when it comes.
    fn ask(
        &mut self,
        order: &'static str,
        beside: Option<&OwnedFd>,
        outcome: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), Undone> {
        match self.settle().and_then(|()| self.say(order, beside)).and_then(|()| self.answer(self.until)) {
            Ok(_) => {
                outcome(true);
                Ok(())
            }
            Err(Undone::Refused(why)) => {
                outcome(false);
                Err(Undone::Refused(format!("{order}: {why}")))
            }
            Err(Undone::Late(why)) => {
                self.late = Some((order, Box::new(outcome)));
                Err(Undone::Late(format!("{order}: {why}")))
            }
        }
    }

    fn say(&self, order: &str, beside: Option<&OwnedFd>) -> Result<(), Undone> {
        if self.until <= Instant::now() {
            return Err(refused("its time was over before its turn came"));
        }
        self.line.say(order, beside.map(AsFd::as_fd)).map_err(refused)
    }

    /// What follows `ok`; or why not.
    fn answer(&mut self, until: Instant) -> Result<String, Undone> {
        let (words, _) = self.line.listen(until).map_err(unheard)?;
        match words.split_once(' ').unwrap_or((&words, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            ("error", why) => Err(refused(why)),
            _ => Err(refused(format!("the process says {words:?}"))),
        }
    }

    /// Waits for the answer that is late, if one is; an error while it does not come.
    pub(crate) fn settle(&mut self) -> Result<(), Undone> {
        self.settle_by(self.until)
    }

    fn settle_by(&mut self, until: Instant) -> Result<(), Undone> {
        let Some((order, outcome)) = self.late.take() else { return Ok(()) };
        match self.answer(until) {
            Err(Undone::Late(_)) => {
                self.late = Some((order, outcome));
                Err(refused(format!("the process has not answered to {order:?} yet")))
            }
            answer => {
                outcome(answer.is_ok());
                Ok(())
            }
        }
    }

    /// Has it listen there.
    pub(crate) fn listen_at(
        &mut self,
        listener: &OwnedFd,
        outcome: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), Undone> {
        self.ask("listen", Some(listener), outcome)
    }

    /// Has it fork; the copy, and its number.
    pub(crate) fn fork(&mut self) -> Result<(Self, u32), Undone> {
        let (mut child, theirs) = Self::pair(self.until).map_err(refused)?;
        child.line.note_speakers(true).map_err(refused)?;
        // A copy that comes late finds nobody at the other end of its line, and ends.
        self.ask("fork", Some(&theirs), drop)?;
        drop(theirs);
        // From here on letting go of the child's line ends the child.
        let process = child.line.speaker(self.until).map_err(unheard)?;
        let said = child.answer(self.until)?;
        child.line.note_speakers(false).map_err(refused)?;
        if said.parse() != Ok(process) {
            return Err(refused(format!("what says that it is process {said:?} is process {process}")));
        }
        // It has been an orphan since before its parent answered.
        if !fork::is_child(process).map_err(refused)? {
            return Err(refused(format!("process {process} is no child of the supervisor's, or has ended")));
        }
        Ok((child, process))
    }

    /// Until when what it is told now may take.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    pub(crate) fn emancipate(&mut self, outcome: impl FnOnce(bool) + Send + 'static) -> Result<(), Undone> {
        self.ask("emancipate", None, outcome)
    }

    /// Has it end; whether nobody is at the other end of its line any more.
    pub(crate) fn shutdown(&mut self) -> Result<(), Undone> {
        self.ask("shutdown", None, drop)?;
        if self.line.await_end(self.until) { Ok(()) } else { Err(refused("it does not end")) }
    }
}

fn unheard(error: io::Error) -> Undone {
    match error.kind() {
        io::ErrorKind::TimedOut => Undone::Late(error.to_string()),
        _ => refused(error),
    }
}

fn refused(why: impl std::fmt::Display) -> Undone {
    Undone::Refused(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Heard;
    use std::sync::mpsc::TryRecvError;

    fn within(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    /// What a process was told, and whether something came beside it.
    fn heard(process: &mut Line) -> Option<(String, bool)> {
        match process.hear().unwrap() {
            Heard::Line(words, beside) => Some((words, beside.is_some())),
            Heard::Nothing | Heard::End => None,
        }
    }

    #[test]
    fn a_late_answer_is_that_of_its_order_and_of_no_other() {
        let (mut told, theirs) = Told::pair(within(10)).unwrap();
        let (listener, _other) = socket::pair().unwrap();
        let mut process = Line::new(theirs);
        let (sender, freed) = channel();
        let late = told.emancipate(move |is_done| sender.send(is_done).unwrap());
        assert!(matches!(late, Err(Undone::Late(_))), "{late:?}");
        assert_eq!(freed.try_recv(), Err(TryRecvError::Empty), "nobody knows yet");
        told.until = within(10);
        // Nothing else is said meanwhile: a listener would lie beside the order before.
        let (sender, moved) = channel();
        let refused = told.listen_at(&listener, move |is_done| sender.send(is_done).unwrap());
        assert!(matches!(refused, Err(Undone::Refused(_))), "{refused:?}");
        assert_eq!(moved.try_recv(), Ok(false));
        assert_eq!(heard(&mut process), Some(("emancipate".to_owned(), false)));
        assert_eq!(heard(&mut process), None);
        process.say("ok", None).unwrap();
        told.until = within(1_000);
        let (sender, moved) = channel();
        let late = told.listen_at(&listener, move |is_done| sender.send(is_done).unwrap());
        assert!(matches!(late, Err(Undone::Late(_))), "{late:?}: the answer to the order before");
        assert_eq!((freed.try_recv(), moved.try_recv()), (Ok(true), Err(TryRecvError::Empty)));
        assert_eq!(heard(&mut process), Some(("listen".to_owned(), true)));
        process.say("error not there", None).unwrap();
        told.settle().unwrap();
        assert_eq!(moved.try_recv(), Ok(false));
    }

    /// One that hangs, as a keeper has it.
    #[test]
    fn what_waits_behind_an_order_that_hangs_is_over_with_it() {
        let (told, theirs) = Told::pair(within(60_000)).unwrap();
        let mut process = Line::new(theirs);
        let (jobs, (sender, done)) = (keep(told).unwrap(), channel());
        let until = within(300);
        for _ in 0..50 {
            let sender = sender.clone();
            let run = Box::new(move |told: &mut Told| sender.send(told.emancipate(drop)).unwrap());
            jobs.send(Job { until, run }).unwrap();
        }
        let outcomes: Vec<_> = done.iter().take(50).collect();
        assert!(until.elapsed() < Duration::from_millis(300 * 25), "each waited for itself");
        assert!(matches!(outcomes[0], Err(Undone::Late(_))));
        assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Err(Undone::Refused(_)))));
        assert_eq!((heard(&mut process).is_some(), heard(&mut process)), (true, None));
        // It answers at last, and what comes then is told, but for what has no time left.
        process.say("ok", None).unwrap();
        for (until, is_told) in [(until, false), (within(60_000), true)] {
            let sender = sender.clone();
            let run = Box::new(move |told: &mut Told| sender.send(told.emancipate(drop)).unwrap());
            jobs.send(Job { until, run }).unwrap();
            if is_told {
                process.listen(within(60_000)).unwrap();
                process.say("ok", None).unwrap();
            }
            assert_eq!(done.recv().unwrap().is_ok(), is_told);
        }
    }

    /// What is said where a copy should speak.
    fn forked(words: &str) -> Result<u32, String> {
        let (mut told, theirs) = Told::pair(within(60_000)).unwrap();
        let mut process = Line::new(theirs);
        let (order, line) = std::thread::scope(|scope| {
            let parent = scope.spawn(|| {
                let (order, line) = process.listen(within(60_000)).unwrap();
                Line::new(line.expect("the copy's line")).say(words, None).unwrap();
                process.say("ok", None).unwrap();
                order
            });
            let forked = told.fork();
            (parent.join().unwrap(), forked)
        });
        assert_eq!(order, "fork");
        line.map(|(_, process)| process).map_err(|why| why.to_string())
    }

    #[test]
    fn a_copy_is_who_speaks_and_a_child_whatever_it_says_of_itself() {
        let this = std::process::id();
        let other = forked("ok 1").unwrap_err();
        assert_eq!(other, format!("what says that it is process \"1\" is process {this}"));
        assert!(forked("ok").unwrap_err().contains(&format!("is process {this}")));
        let own = forked(&format!("ok {this}")).unwrap_err();
        assert_eq!(own, format!("process {this} is no child of the supervisor's, or has ended"));
        assert_eq!(forked("error no room").unwrap_err(), "no room");
    }

    #[test]
    fn an_order_is_not_done_when_its_process_ends_before_a_late_answer() {
        let (mut told, theirs) = Told::pair(within(10)).unwrap();
        let (sender, freed) = channel();
        told.emancipate(move |is_done| sender.send(is_done).unwrap()).unwrap_err();
        drop(theirs);
        told.settle().unwrap();
        assert_eq!(freed.try_recv(), Ok(false));
    }
}
