//! Frames that take too long to read where they are found: kept as they came, and read where that keeps
//! no process waiting.
//!
//! A look happens in the middle of a process's turn, under the connection's lock. So of what one look
//! finds no more than [`INLINE_BYTES_MAX`] is read there. What is short, and beyond that, is left to the
//! next look; what is long is put aside, and so is whatever comes behind it for the same waiter, a failure
//! included: each waiter is told everything in the order in which it came. The router has a process read what
//! was put aside on a scheduler apart, one after the other, with the lock free meanwhile. One whose waiter is
//! gone by then is dropped. Where one makes its reader panic, its waiter is told so ([`waiter::tell`]), and
//! the next one is read. Where one is not read at all, its waiter is told that, as the last of its call. The
//! same process joins the answers of a group of which some were put aside, unless it is cancelled meanwhile.
//!
//! *Checked by* `test/thalweg_client_SUITE.erl`, and by `tests.rs` beside this file for readers that end in
//! the middle.

use super::groups::Group;
use super::{Connection, State};
use crate::atoms::atoms;
use crate::encode::INLINE_BYTES_MAX;
use crate::enif::{Pid, RawTerm};
use crate::term::{Env, Letter};
use crate::waiter::{self, Expect, Waiter};
use std::cell::Cell;
use std::collections::VecDeque;
use thalweg_service::{CallId, Error, EventKind};
use thalweg_wire::fault::Fault;

#[cfg(test)]
mod tests;

/// What is as short is not put aside for its length: the look that finds it reads it, or, once that read
/// enough, the next one.
const SHORT_BYTES: usize = 1 << 10;
/// Why a waiter is told nothing else of a frame.
const NO_MEMORY: &str = "there was no memory to read what came";
const PANICKED: &str = "what came made its reader panic";

/// What is put aside.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    frames: VecDeque<HeldFrame>,
    /// Groups that are complete and to be joined.
    groups: VecDeque<u64>,
    /// The one that is being joined, unless it was cancelled.
    joins: Option<u64>,
    /// The router was told.
    is_told: bool,
    /// A process is reading.
    is_read: bool,
}

#[derive(Debug)]
struct HeldFrame {
    number: u64,
    expect: Expect,
    kind: EventKind,
    frame: Vec<u8>,
}

/// What is next for the process that reads.
enum Held {
    /// A frame that is waited for, and its waiter's process.
    Frame(HeldFrame, Pid),
    /// A group to be joined.
    Group(Group),
}

/// What a frame was read to be.
struct ReadFrame {
    letter: Letter,
    term: RawTerm,
    is_last: bool,
    /// The receiver, where that is not its waiter.
    to: Option<Pid>,
    /// The bytes of a line of a log.
    line: Option<usize>,
}

impl Shelf {
    /// Whether a frame belongs here, where so many bytes were read by the same look.
    pub(super) fn takes(waiter: &Waiter, kind: &EventKind, frame: &[u8], read_bytes: usize) -> bool {
        let is_read = !matches!(waiter.expect, Expect::Nothing | Expect::Notice);
        let is_long = frame.len() > SHORT_BYTES && read_bytes + frame.len() > INLINE_BYTES_MAX;
        is_read && (waiter.held > 0 || is_long && !matches!(kind, EventKind::Failed(_)))
    }

    pub(super) fn put(&mut self, number: u64, expect: Expect, kind: EventKind, frame: &[u8]) {
        self.frames.push_back(HeldFrame { number, expect, kind, frame: frame.to_vec() });
    }

    pub(super) fn put_group(&mut self, group: u64) {
        self.groups.push_back(group);
    }

    /// Whether a group is being joined and still waited for.
    pub(super) fn joins(&self, group: u64) -> bool {
        self.joins == Some(group)
    }

    /// Nobody waits for a group any more.
    pub(super) fn leave_group(&mut self, group: u64) {
        self.joins = self.joins.filter(|joins| *joins != group);
    }

    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.groups.is_empty()
    }
}

impl State {
    /// Has the router see to what was put aside.
    pub(super) fn have_held_read(&mut self, env: Env) {
        if !self.shelf.is_empty() && !std::mem::replace(&mut self.shelf.is_told, true) {
            self.tell_router(env, "large");
        }
    }

    /// The connection ends, and nothing is read any more: of so many frames the waiters are told so. Whether
    /// there are more.
    pub(super) fn abandon_held(&mut self, env: Env, most: usize) -> bool {
        let closed = EventKind::Failed(Error::new(Fault::Closed, ""));
        let count = self.shelf.frames.len().min(most);
        for held in self.shelf.frames.drain(..count).collect::<Vec<_>>() {
            self.tell_end(env, held.number, &closed);
            self.retire(held.number);
        }
        !self.shelf.frames.is_empty()
    }

    /// Whether groups are complete and to be joined: no end of the connection changes what they came to.
    pub(crate) fn has_groups(&self) -> bool {
        !self.shelf.groups.is_empty()
    }

    /// A frame was not read: its waiter is told so, and nothing else of its call.
    fn lose_held(&mut self, env: Env, number: u64, why: &str) {
        self.tell_end(env, number, &EventKind::Failed(Error::new(Fault::System, why)));
        self.forget(CallId::from_number(number));
        if let Some(client) = &mut self.client {
            // The peer may wait for credit. What goes wrong here shows at the descriptor.
            let _ = client.flush();
        }
    }

    /// The next group or frame that is waited for.
    fn next_held(&mut self) -> Option<Held> {
        while let Some(number) = self.shelf.groups.pop_front() {
            if let Some(group) = self.groups.remove(&number) {
                self.shelf.joins = Some(number);
                return Some(Held::Group(group));
            }
        }
        loop {
            let held = self.shelf.frames.pop_front()?;
            if let Some(waiter) = self.waiters.get(&held.number) {
                return Some(Held::Frame(held, waiter.pid));
            }
        }
    }

    /// A group was joined.
    fn tell_group(&mut self, env: Env, group: Group) {
        if self.shelf.joins.take().is_some() {
            group.tell(env);
        }
    }

    fn deliver(&mut self, env: Env, number: u64, mut read: ReadFrame) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        waiter.held -= 1;
        let (pid, expect) = (read.to.unwrap_or(waiter.pid), waiter.expect);
        if let Expect::Part(group, at) = expect {
            self.fill_apart(env, group, at, (read.letter, read.term));
        } else if expect == Expect::Events {
            if read.line.is_none_or(|bytes| self.lines.admit(bytes)) {
                read.letter.send(env, &pid, read.term);
            }
            self.grant(CallId::from_number(number), 1);
        } else {
            let reference = read.letter.copy(waiter.reference);
            let message = read.letter.env().make_tuple(&[atoms(env).thalweg, reference, read.term]);
            read.letter.send(env, &pid, message);
        }
        if read.is_last {
            // Of a stream whose value is none here more may come, which would have no receiver.
            self.forget(CallId::from_number(number));
        }
    }
}

impl Connection {
    /// Reads what was put aside, and answers `true`, unless another process does. It may take long.
    pub(crate) fn unpack(&self, env: Env) -> bool {
        self.unpack_by(env, read)
    }

    fn unpack_by(&self, env: Env, read: impl Fn(&HeldFrame, Pid) -> Option<ReadFrame>) -> bool {
        let Some(reader) = Reader::begin(self, env) else { return false };
        while let Some(next) = reader.next() {
            match next {
                Held::Frame(held, pid) => match read(&held, pid) {
                    Some(read) => reader.deliver(read),
                    None => reader.lose(NO_MEMORY),
                },
                Held::Group(mut group) => {
                    group.join();
                    self.lock().tell_group(env, group);
                }
            }
        }
        drop(reader);
        // The router may sleep by now, and the peer wait for what was said here.
        self.lock().leave(env);
        true
    }
}

/// The process that reads what was put aside: one at a time, until this is dropped. However it ends, the
/// router is told of what is left by then, be it that it came just now, or that the reading panicked beyond
/// what [`waiter::tell`] catches: then the waiter for the frame that it was amid is told so.
struct Reader<'c> {
    connection: &'c Connection,
    env: Env,
    /// The call whose frame was taken, until it is told of.
    amid: Cell<Option<u64>>,
}

impl<'c> Reader<'c> {
    fn begin(connection: &'c Connection, env: Env) -> Option<Self> {
        let was_read = std::mem::replace(&mut connection.lock().shelf.is_read, true);
        // Made only then: what is made is dropped again.
        (!was_read).then(|| Self { connection, env, amid: Cell::default() })
    }

    fn next(&self) -> Option<Held> {
        let next = self.connection.lock().next_held();
        if let Some(Held::Frame(held, _)) = &next {
            self.amid.set(Some(held.number));
        }
        next
    }

    fn deliver(&self, read: ReadFrame) {
        if let Some(number) = self.amid.take() {
            self.connection.lock().deliver(self.env, number, read);
        }
    }

    fn lose(&self, why: &str) {
        if let Some(number) = self.amid.take() {
            self.connection.lock().lose_held(self.env, number, why);
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.lose(PANICKED);
        let mut state = self.connection.lock();
        state.shelf.is_read = false;
        state.shelf.is_told = false;
        state.have_held_read(self.env);
    }
}

/// `None`: there is no memory.
fn read(held: &HeldFrame, keeper: Pid) -> Option<ReadFrame> {
    let mut letter = Letter::new()?;
    let env = letter.env();
    if held.expect == Expect::Events {
        let Some(item) = waiter::attended(&held.kind, &held.frame) else {
            let down = waiter::down(env, atoms(env).undefined);
            return Some(ReadFrame { letter, term: down, is_last: true, to: None, line: None });
        };
        let (to, message) = waiter::message_of(env, &item, keeper);
        let line = waiter::line_of(&item);
        return Some(ReadFrame { letter, term: message, is_last: false, to: Some(to), line });
    }
    let expect = if matches!(held.expect, Expect::Part(..)) { Expect::Outcome } else { held.expect };
    let told = waiter::tell(env, expect, &held.kind, &held.frame);
    Some(ReadFrame { letter, term: told.term, is_last: told.is_last, to: None, line: None })
}
