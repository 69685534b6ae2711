//! The orders to one server process. Each process has a thread of its own that sends them, so a process that
//! does not answer delays no orders to others.
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
//! *Checked by* the tests below and `tests/forks/`.

use crate::line::Line;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use thalweg_sys::{fork, socket};
use thiserror::Error;

/// Only the part of a stack that is used takes memory.
const STACK_BYTES: usize = 128 * 1024;

/// The interval at which an overdue answer is looked for while no job waits.
const LOOK: Duration = Duration::from_millis(50);

/// A job for the thread of one process, and its time limit.
pub(crate) struct Job {
    pub(crate) until: Instant,
    pub(crate) run: Box<dyn FnOnce(&mut OrderChannel) + Send>,
}

/// Called once the outcome of an order is known: whether it was carried out.
type Outcome = Box<dyn FnOnce(bool) + Send>;

/// Why an order was not confirmed.
#[derive(Debug, Error)]
pub(crate) enum OrderError {
    /// It was not sent, or the process refused it or ended: it will not be carried out.
    #[error("{0}")]
    Refused(String),
    /// The process did not answer in time, and may carry it out yet.
    #[error("{0}")]
    Late(String),
}

/// The line to one process, and the time limit of the order that is under way.
pub(crate) struct OrderChannel {
    line: Line,
    until: Instant,
    /// An order whose answer is overdue, until it comes.
    late: Option<(&'static str, Outcome)>,
}

/// Starts the thread of a process. It ends when every sender of jobs was dropped.
pub(crate) fn keep(orders: OrderChannel) -> io::Result<Sender<Job>> {
    let (sender, receiver): (Sender<Job>, Receiver<Job>) = channel();
    let run = move || {
        let mut orders = orders;
        while let Some(job) = next(&receiver, &mut orders) {
            orders.until = job.until;
            (job.run)(&mut orders);
        }
    };
    std::thread::Builder::new().name("keeper".to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(sender)
}

/// The next job. Overdue answers are read meanwhile.
fn next(receiver: &Receiver<Job>, orders: &mut OrderChannel) -> Option<Job> {
    while orders.settle_by(Instant::now()).is_err() {
        match receiver.recv_timeout(LOOK) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    receiver.recv().ok()
}

impl OrderChannel {
    /// The two ends of a line: the supervisor's, and what becomes a process's standard input.
    pub(crate) fn pair(until: Instant) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socket::pair()?;
        // A program expects of its standard input that it waits.
        socket::block(theirs.as_fd())?;
        Ok((Self { line: Line::new(ours), until, late: None }, theirs))
    }

    /// Sends an order and waits for its answer. `outcome` is called once: before this returns, or, if the
    /// answer is overdue, when it comes.
    fn ask(
        &mut self,
        order: &'static str,
        beside: Option<&OwnedFd>,
        outcome: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), OrderError> {
        match self.settle().and_then(|()| self.say(order, beside)).and_then(|()| self.answer(self.until)) {
            Ok(_) => {
                outcome(true);
                Ok(())
            }
            Err(OrderError::Refused(why)) => {
                outcome(false);
                Err(OrderError::Refused(format!("{order}: {why}")))
            }
            Err(OrderError::Late(why)) => {
                self.late = Some((order, Box::new(outcome)));
                Err(OrderError::Late(format!("{order}: {why}")))
            }
        }
    }

    fn say(&self, order: &str, beside: Option<&OwnedFd>) -> Result<(), OrderError> {
        if self.until <= Instant::now() {
            return Err(refused("its time was over before its turn came"));
        }
        self.line.say(order, beside.map(AsFd::as_fd)).map_err(refused)
    }

    /// Waits for an answer. Returns what follows `ok`, or the reason of a refusal.
    fn answer(&mut self, until: Instant) -> Result<String, OrderError> {
        let (words, _) = self.line.listen(until).map_err(unanswered)?;
        match words.split_once(' ').unwrap_or((&words, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            ("error", why) => Err(refused(why)),
            _ => Err(refused(format!("the process says {words:?}"))),
        }
    }

    /// Waits for the overdue answer, if there is one; an error if it does not come.
    pub(crate) fn settle(&mut self) -> Result<(), OrderError> {
        self.settle_by(self.until)
    }

    fn settle_by(&mut self, until: Instant) -> Result<(), OrderError> {
        let Some((order, outcome)) = self.late.take() else { return Ok(()) };
        match self.answer(until) {
            Err(OrderError::Late(_)) => {
                self.late = Some((order, outcome));
                Err(refused(format!("the process has not answered to {order:?} yet")))
            }
            answer => {
                outcome(answer.is_ok());
                Ok(())
            }
        }
    }

    /// From here on, waits for answers fail once this descriptor is readable.
    pub(crate) fn cancel_by(&mut self, descriptor: Option<OwnedFd>) {
        self.line.cancel_by(descriptor);
    }

    /// Whether that descriptor is readable.
    pub(crate) fn is_cancelled(&self) -> io::Result<bool> {
        self.line.is_cancelled()
    }

    /// Orders the process to listen at a socket.
    pub(crate) fn listen_at(
        &mut self,
        listener: &OwnedFd,
        outcome: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), OrderError> {
        self.ask("listen", Some(listener), outcome)
    }

    /// Orders the process to fork. Returns the line to the copy, and its process id.
    pub(crate) fn fork(&mut self) -> Result<(Self, u32), OrderError> {
        let (mut child, theirs) = Self::pair(self.until).map_err(refused)?;
        child.line.set_pass_credentials(true).map_err(refused)?;
        // A copy that appears after the time limit finds its line closed, and ends by itself.
        self.ask("fork", Some(&theirs), drop)?;
        drop(theirs);
        // From here on dropping the copy's line ends the copy.
        let process = child.line.sender(self.until).map_err(unanswered)?;
        let said = child.answer(self.until)?;
        child.line.set_pass_credentials(false).map_err(refused)?;
        if said.parse() != Ok(process) {
            return Err(refused(format!("what says that it is process {said:?} is process {process}")));
        }
        // It was orphaned, and adopted here, before its parent answered.
        if !fork::is_child(process).map_err(refused)? {
            return Err(refused(format!("process {process} is no child of the supervisor's, or has ended")));
        }
        // So that it can be ended by force with whatever it starts, and with no other server. One that may
        // not lead a group, such as one in another session, is ended by its number alone.
        fork::lead_group(process).map_err(|why| refused(format!("it gets no process group: {why}")))?;
        Ok((child, process))
    }

    /// The time limit of the job that runs.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    pub(crate) fn emancipate(
        &mut self,
        outcome: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), OrderError> {
        self.ask("emancipate", None, outcome)
    }

    /// Orders the process to end, and waits until it has closed its line.
    pub(crate) fn shutdown(&mut self) -> Result<(), OrderError> {
        self.ask("shutdown", None, drop)?;
        if self.line.await_end(self.until) { Ok(()) } else { Err(refused("it does not end")) }
    }
}

fn unanswered(error: io::Error) -> OrderError {
    match error.kind() {
        io::ErrorKind::TimedOut => OrderError::Late(error.to_string()),
        _ => refused(error),
    }
}

fn refused(why: impl std::fmt::Display) -> OrderError {
    OrderError::Refused(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LineEvent;
    use std::sync::mpsc::TryRecvError;

    fn within(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    /// What a process was told, and whether something came beside it.
    fn heard(process: &mut Line) -> Option<(String, bool)> {
        match process.hear().unwrap() {
            LineEvent::Line(words, beside) => Some((words, beside.is_some())),
            LineEvent::Nothing | LineEvent::End => None,
        }
    }

    #[test]
    fn a_late_answer_is_that_of_its_order_and_of_no_other() {
        let (mut orders, theirs) = OrderChannel::pair(within(10)).unwrap();
        let (listener, _other) = socket::pair().unwrap();
        let mut process = Line::new(theirs);
        let (sender, freed) = channel();
        let late = orders.emancipate(move |is_done| sender.send(is_done).unwrap());
        assert!(matches!(late, Err(OrderError::Late(_))), "{late:?}");
        assert_eq!(freed.try_recv(), Err(TryRecvError::Empty), "nobody knows yet");
        orders.until = within(10);
        // Nothing else is said meanwhile: a listener would lie beside the order before.
        let (sender, moved) = channel();
        let refused = orders.listen_at(&listener, move |is_done| sender.send(is_done).unwrap());
        assert!(matches!(refused, Err(OrderError::Refused(_))), "{refused:?}");
        assert_eq!(moved.try_recv(), Ok(false));
        assert_eq!(heard(&mut process), Some(("emancipate".to_owned(), false)));
        assert_eq!(heard(&mut process), None);
        process.say("ok", None).unwrap();
        orders.until = within(1_000);
        let (sender, moved) = channel();
        let late = orders.listen_at(&listener, move |is_done| sender.send(is_done).unwrap());
        assert!(matches!(late, Err(OrderError::Late(_))), "{late:?}: the answer to the order before");
        assert_eq!((freed.try_recv(), moved.try_recv()), (Ok(true), Err(TryRecvError::Empty)));
        assert_eq!(heard(&mut process), Some(("listen".to_owned(), true)));
        process.say("error not there", None).unwrap();
        orders.settle().unwrap();
        assert_eq!(moved.try_recv(), Ok(false));
    }

    /// One that hangs, as a keeper has it.
    #[test]
    fn what_waits_behind_an_order_that_hangs_is_over_with_it() {
        let (orders, theirs) = OrderChannel::pair(within(60_000)).unwrap();
        let mut process = Line::new(theirs);
        let (jobs, (sender, done)) = (keep(orders).unwrap(), channel());
        let until = within(300);
        for _ in 0..50 {
            let sender = sender.clone();
            let run =
                Box::new(move |orders: &mut OrderChannel| sender.send(orders.emancipate(drop)).unwrap());
            jobs.send(Job { until, run }).unwrap();
        }
        let outcomes: Vec<_> = done.iter().take(50).collect();
        assert!(until.elapsed() < Duration::from_millis(300 * 25), "each waited for itself");
        assert!(matches!(outcomes[0], Err(OrderError::Late(_))));
        assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Err(OrderError::Refused(_)))));
        assert_eq!((heard(&mut process).is_some(), heard(&mut process)), (true, None));
        // It answers at last, and what comes then is told, but for what has no time left.
        process.say("ok", None).unwrap();
        for (until, is_told) in [(until, false), (within(60_000), true)] {
            let sender = sender.clone();
            let run =
                Box::new(move |orders: &mut OrderChannel| sender.send(orders.emancipate(drop)).unwrap());
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
        let (mut orders, theirs) = OrderChannel::pair(within(60_000)).unwrap();
        let mut process = Line::new(theirs);
        let (order, line) = std::thread::scope(|scope| {
            let parent = scope.spawn(|| {
                let (order, line) = process.listen(within(60_000)).unwrap();
                Line::new(line.expect("the copy's line")).say(words, None).unwrap();
                process.say("ok", None).unwrap();
                order
            });
            let forked = orders.fork();
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
        let (mut orders, theirs) = OrderChannel::pair(within(10)).unwrap();
        let (sender, freed) = channel();
        orders.emancipate(move |is_done| sender.send(is_done).unwrap()).unwrap_err();
        drop(theirs);
        orders.settle().unwrap();
        assert_eq!(freed.try_recv(), Ok(false));
    }
}
