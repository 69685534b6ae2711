//! The line between a supervisor and a program: lines of text over a socket, each with at most one descriptor
//! attached.
//!
//! One order is under way at a time, so a descriptor that arrives with a line's bytes belongs to that line.
//! *Bound*: of a line longer than [`LINE_BYTES_MAX`] only the beginning is sent and received.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch, wait_readable};
use thalweg_sys::handover;
use thalweg_sys::socket::{self, PeekedSender};

/// The longest line, without its end.
pub(crate) const LINE_BYTES_MAX: usize = 4_096;
/// How many reads a peer that never stops writing is given before [`Line::hear`] returns.
const HEARD_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(crate) struct Line {
    socket: OwnedFd,
    input: Vec<u8>,
    beside: Option<OwnedFd>,
    /// Once it is readable, every wait fails.
    cancel: Option<OwnedFd>,
}

/// The outcome of reading from a line.
#[derive(Debug)]
pub(crate) enum LineEvent {
    /// A line of text, and the descriptor attached to it.
    Line(String, Option<OwnedFd>),
    /// No whole line yet.
    Nothing,
    /// The other end was closed.
    End,
}

impl Line {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, input: Vec::new(), beside: None, cancel: None }
    }

    /// From here on, every wait fails once this descriptor is readable.
    pub(crate) fn cancel_by(&mut self, descriptor: Option<OwnedFd>) {
        self.cancel = descriptor;
    }

    pub(crate) fn say(&self, words: &str, beside: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let words = &words[..words.floor_char_boundary(LINE_BYTES_MAX)];
        let text = format!("{}\n", words.replace('\n', " "));
        let sent = match beside {
            Some(descriptor) => handover::send(self.socket.as_fd(), text.as_bytes(), descriptor)?,
            None => socket::send(self.socket.as_fd(), text.as_bytes())?,
        };
        // A socket whose buffer is empty takes a whole line.
        if sent == Some(text.len()) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// The next line, if one has come. Never waits.
    pub(crate) fn hear(&mut self) -> io::Result<LineEvent> {
        for heard in 0..=HEARD_AT_ONCE {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                let words = String::from_utf8_lossy(&line[..end.min(LINE_BYTES_MAX)]).into_owned();
                return Ok(LineEvent::Line(words, self.beside.take()));
            }
            if heard == HEARD_AT_ONCE {
                break;
            }
            self.input.truncate(LINE_BYTES_MAX);
            self.input.reserve(LINE_BYTES_MAX);
            let (count, beside) = match handover::receive(self.socket.as_fd(), &mut self.input) {
                // The program was killed before it had read everything.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(LineEvent::End),
                outcome => outcome?,
            };
            self.beside = beside.or(self.beside.take());
            match count {
                None => return Ok(LineEvent::Nothing),
                Some(0) => return Ok(LineEvent::End),
                Some(_) => {}
            }
        }
        Ok(LineEvent::Nothing)
    }

    /// Waits for a line; an error if none comes in time or the other end is closed.
    pub(crate) fn listen(&mut self, until: Instant) -> io::Result<(String, Option<OwnedFd>)> {
        loop {
            match self.hear()? {
                LineEvent::Line(words, beside) => return Ok((words, beside)),
                LineEvent::End => return Err(ended()),
                LineEvent::Nothing => self.wait(until)?,
            }
        }
    }

    /// Has the kernel note the sender of each message, or stop doing so.
    pub(crate) fn set_pass_credentials(&self, passes: bool) -> io::Result<()> {
        socket::set_pass_credentials(self.socket.as_fd(), passes)
    }

    /// Waits for a message and returns the process id of its sender; the message itself is not read.
    pub(crate) fn sender(&self, until: Instant) -> io::Result<u32> {
        loop {
            match socket::peek_sender(self.socket.as_fd())? {
                PeekedSender::Process(process) => return Ok(process),
                PeekedSender::HungUp => return Err(ended()),
                PeekedSender::Empty => self.wait(until)?,
            }
        }
    }

    /// Waits until there may be something to read; an error if that takes too long, or is cancelled.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the process says nothing"));
        }
        let left_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
        let Some(cancel) = &self.cancel else {
            wait_readable(self.socket.as_fd(), left_ms)?;
            return Ok(());
        };
        let (epoll, mut events) = (Epoll::new()?, Events::with_capacity(2));
        epoll.add(self.socket.as_fd(), 0, Watch::READ)?;
        epoll.add(cancel.as_fd(), 1, Watch::READ)?;
        epoll.wait(&mut events, 2, Timeout::Milliseconds(left_ms))?;
        if self.is_cancelled()? {
            return Err(io::Error::other("the wait was cancelled"));
        }
        Ok(())
    }

    /// Whether waits fail by now: see [`Line::cancel_by`].
    pub(crate) fn is_cancelled(&self) -> io::Result<bool> {
        match &self.cancel {
            Some(cancel) => wait_readable(cancel.as_fd(), 0),
            None => Ok(false),
        }
    }

    /// Waits until the other end is closed; whether it was in time.
    pub(crate) fn await_end(&mut self, until: Instant) -> bool {
        loop {
            match self.listen(until) {
                // A process that goes on writing has not ended.
                Ok(_) if Instant::now() >= until => return false,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::TimedOut,
            }
        }
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the process ended")
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn within(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    #[test]
    fn of_a_line_that_is_too_long_the_beginning_is_heard_and_the_next_is_another() {
        let (ours, theirs) = socket::pair().unwrap();
        let (mut line, other) = (Line::new(ours), Line::new(theirs));
        let long = "é".repeat(50_000);
        other.say(&long, None).unwrap();
        // As one may say it that is not ours.
        let text = format!("{long}\nok\n");
        assert_eq!(socket::send(other.as_fd(), text.as_bytes()).unwrap(), Some(text.len()));
        for _ in 0..2 {
            let (words, _) = line.listen(within(60_000)).unwrap();
            assert_eq!(words, long[..LINE_BYTES_MAX]);
        }
        assert_eq!(line.listen(within(60_000)).unwrap().0, "ok");
    }

    #[test]
    fn a_line_that_ends_where_others_have_their_turn_is_heard_at_once() {
        let (ours, theirs) = socket::pair().unwrap();
        let (mut line, pieces) = (Line::new(ours), HEARD_AT_ONCE * LINE_BYTES_MAX);
        let over = std::thread::spawn(move || {
            let text = [&vec![b'x'; pieces - 1][..], b"\n"].concat();
            let mut sent = 0;
            while sent < text.len() {
                sent += socket::send(theirs.as_fd(), &text[sent..]).unwrap().unwrap_or(0);
            }
            theirs
        });
        let begun = Instant::now();
        assert_eq!(line.listen(within(240_000)).unwrap().0.len(), LINE_BYTES_MAX);
        assert!(begun.elapsed() < Duration::from_secs(60), "it was there, and was not looked at");
        drop(over.join().unwrap());
    }

    #[test]
    fn one_that_never_ends_its_line_is_not_waited_for() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut line = Line::new(ours);
        let over = std::thread::spawn(move || {
            while !matches!(socket::send(theirs.as_fd(), &[b'x'; 4_096]), Err(error) if error.kind() != io::ErrorKind::WouldBlock)
            {
            }
        });
        assert_eq!(line.listen(within(50)).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(line);
        over.join().unwrap();
    }

    #[test]
    fn one_that_never_stops_talking_is_not_waited_for() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut line = Line::new(ours);
        let over = std::thread::spawn(move || {
            let other = Line::new(theirs);
            // Ends with the other end.
            while !matches!(other.say("still here", None), Err(error) if error.kind() != io::ErrorKind::WouldBlock)
            {
            }
        });
        assert!(!line.await_end(within(50)));
        drop(line);
        over.join().unwrap();
    }
}
