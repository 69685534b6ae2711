//! The loop's half that waits: a reactor, and what watches which descriptor.
//!
//! Purpose: what happened is collected here without the interpreter's lock and handed to the loop as a batch.
//! The descriptors belong to Python's own socket and file objects: the reactor borrows their numbers and
//! gives every one back, closing none. Invariants: a descriptor has at most one watch; its key is alive in
//! the reactor while the watch exists, unless the descriptor was found closed: the next watch of
//! that number then gets a new key; what happened to a watch that is gone since is not delivered, because
//! keys are never reused; nor is what was found before a target was set: it hears of what is found from then
//! on, so that one that may block is called only when there is something.

use super::accepting::Acceptor;
use super::datagram::DatagramTransport;
use super::endpoint::Endpoint;
use super::handle::Handle;
use super::listening::{LISTEN_NS, WaitHistory};
use super::operation::Operation;
use super::stream::StreamTransport;
use crate::error;
use crate::forks::Process;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use thalweg_events::{CallbackId, Kind};
use thalweg_reactor::{
    Config, Core, Handler, Interest, Key, Reactor, Readiness, RejectReason, Released, Wait,
};
use thalweg_sys::clock;

/// A descriptor is ready.
#[derive(Clone, Copy)]
pub(crate) struct ReadyDescriptor {
    pub(crate) descriptor: RawFd,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    key: Key,
    /// In which poll it was found.
    poll: u64,
}

/// What other threads say without the interpreter's lock: an event without a payload.
pub(crate) struct PostedEvent(pub(crate) CallbackId, pub(crate) Kind);

/// What a turn found.
pub(crate) enum PolledItem {
    ReadyDescriptor(ReadyDescriptor),
    Event(CallbackId, Kind),
}

/// Collects what is ready; what to do about it needs the interpreter.
#[derive(Default)]
struct Collector {
    found: Vec<PolledItem>,
    /// Which poll this is.
    poll: u64,
    woken: bool,
}

impl Handler for Collector {
    type Entry = RawFd;
    type Topic = ();
    type Message = PostedEvent;

    fn ready(&mut self, core: &mut Core<Self>, key: Key, readiness: Readiness) {
        let Some(descriptor) = core.entry(key).copied() else { return };
        // A broken descriptor is reported to every watcher, whether it reads or writes.
        let broken = readiness.hangup() || readiness.error();
        let (readable, writable) = (readiness.readable() || broken, readiness.writable() || broken);
        let poll = self.poll;
        let seen = ReadyDescriptor { descriptor, readable, writable, key, poll };
        self.found.push(PolledItem::ReadyDescriptor(seen));
    }

    fn message(&mut self, _: &mut Core<Self>, PostedEvent(callback, kind): PostedEvent) {
        self.found.push(PolledItem::Event(callback, kind));
    }

    /// Something is queued already, by a thread that has the interpreter's lock.
    fn nudged(&mut self, _: &mut Core<Self>) {
        self.woken = true;
    }

    fn timer(&mut self, _: &mut Core<Self>, _: Key) {}
}

/// What is told that a descriptor is ready.
pub(crate) enum Target {
    /// A handle, and the object that was to be watched if it was no number: who closes it first still takes
    /// it off by it.
    Call(Py<Handle>, Option<Py<PyAny>>),
    Stream(Py<StreamTransport>),
    Datagrams(Py<DatagramTransport>),
    /// A server's listener.
    Listener(Py<Acceptor>),
    /// An operation that is awaited of a bare socket.
    Operation(Py<Operation>),
    /// A callback that is told of readiness.
    Events(CallbackId),
    /// A callback that is told what comes.
    Socket(CallbackId),
}

impl Target {
    /// Lets go of the target: it is told nothing more.
    pub(crate) fn let_go(&self, py: Python<'_>) {
        match self {
            Self::Call(handle, _) => drop(handle.get().cancel_once(py)),
            Self::Operation(operation) => operation.get().let_go(py),
            _ => {}
        }
    }

    /// Another target takes its place.
    pub(crate) fn replaced(self, py: Python<'_>, side: Side) -> PyResult<()> {
        match self {
            Self::Stream(stream) => StreamTransport::replaced(stream.bind(py), side),
            Self::Datagrams(endpoint) => DatagramTransport::replaced(endpoint.bind(py), side),
            other => {
                other.let_go(py);
                Ok(())
            }
        }
    }

    /// Whether it is a callback by number, which cannot be told that it is told no more.
    fn is_by_number(&self) -> bool {
        matches!(self, Self::Events(_) | Self::Socket(_))
    }

    /// The transport that is told, if one is.
    fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Stream(stream) => Some(stream.get()),
            Self::Datagrams(endpoint) => Some(endpoint.get()),
            _ => None,
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Call(handle, object) => {
                visit.call(object)?;
                Handle::traverse_waiting(handle, visit)
            }
            Self::Stream(stream) => visit.call(stream),
            Self::Datagrams(endpoint) => visit.call(endpoint),
            Self::Listener(listener) => visit.call(listener),
            Self::Operation(operation) => visit.call(operation),
            Self::Events(_) | Self::Socket(_) => Ok(()),
        }
    }

    fn share(&self, py: Python<'_>) -> Self {
        match self {
            Self::Call(handle, _) => Self::Call(handle.clone_ref(py), None),
            Self::Stream(stream) => Self::Stream(stream.clone_ref(py)),
            Self::Datagrams(endpoint) => Self::Datagrams(endpoint.clone_ref(py)),
            Self::Listener(listener) => Self::Listener(listener.clone_ref(py)),
            Self::Operation(operation) => Self::Operation(operation.clone_ref(py)),
            Self::Events(callback) => Self::Events(*callback),
            Self::Socket(callback) => Self::Socket(*callback),
        }
    }
}

/// The two directions of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Read = 0,
    Write = 1,
}

struct Watch {
    key: Key,
    targets: [Option<Target>; 2],
    /// The last poll before each was set.
    since: [u64; 2],
}

impl Watch {
    fn interest(&self) -> Interest {
        match (&self.targets[0], &self.targets[1]) {
            (None, None) => Interest::NONE,
            (Some(_), None) => Interest::READ,
            (None, Some(_)) => Interest::WRITE,
            (Some(_), Some(_)) => Interest::BOTH,
        }
    }
}

/// Reactor and watches. What its methods return is to be dropped by the caller, outside.
pub(crate) struct Io {
    reactor: Option<Reactor<Collector>>,
    /// By descriptor.
    watches: Vec<Option<Watch>>,
    listening: WaitHistory,
    /// How often the kernel was asked.
    polls: u64,
    /// The process that made it: a child after a fork must not touch what it shares with its parent.
    process: Process,
}

impl Io {
    /// A new one, and what wakes it.
    pub(crate) fn new() -> PyResult<(Self, thalweg_reactor::Handle<PostedEvent>)> {
        let config = Config { entries_max: u32::MAX, spin: false, ..Config::default() };
        let reactor = Reactor::new(config, |_| Ok::<_, std::io::Error>(Collector::default()))
            .map_err(|error| error::io("make an event loop", &error))?;
        let waker = reactor.handle();
        let watches = Vec::new();
        let (listening, process) = (WaitHistory::new(), Process::this());
        Ok((Self { reactor: Some(reactor), watches, listening, polls: 0, process }, waker))
    }

    /// Whether this process made it: after a fork the kernel's list is still the parent's.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_surely_this()
    }

    /// Whether this process may change what is watched, as far as Python knows: it is asked often.
    #[inline]
    pub(crate) fn may_watch(&self) -> bool {
        self.process.is_this()
    }

    /// Takes what is ready now and puts it behind what `found` holds. Never touches Python.
    pub(crate) fn look(&mut self, found: &mut Vec<PolledItem>) -> std::io::Result<()> {
        self.collect(found, |reactor, _| reactor.gather(usize::MAX, Wait::Poll).map(drop))
    }

    /// Whether it is worth while to [`listen`](Self::listen) before a sleep.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.listening.is_worth_it()
    }

    /// Looks for a moment, and yields its processor to other threads. Whether something came, or a thread
    /// woke us: otherwise a [`sleep`](Self::sleep) is to follow.
    pub(crate) fn listen(&mut self, found: &mut Vec<PolledItem>) -> std::io::Result<bool> {
        self.collect(found, |reactor, listening| {
            let began_ns = clock::monotonic_ns();
            listening.begin(began_ns);
            reactor.handler().woken = false;
            while reactor.gather(usize::MAX, Wait::Poll)? == 0 && clock::monotonic_ns() < began_ns + LISTEN_NS
            {
                std::thread::yield_now();
            }
            let came = reactor.handler().woken || !reactor.handler().found.is_empty();
            if came {
                listening.end(clock::monotonic_ns());
            }
            Ok(came)
        })
    }

    /// Sleeps until something comes or another thread wakes it, at most as long as it may.
    pub(crate) fn sleep(&mut self, wait: Wait, found: &mut Vec<PolledItem>) -> std::io::Result<()> {
        self.collect(found, |reactor, listening| {
            listening.sleep(clock::monotonic_ns());
            let slept = reactor.gather(usize::MAX, wait);
            listening.end(clock::monotonic_ns());
            slept.map(drop)
        })
    }

    fn collect<R: Default>(
        &mut self,
        found: &mut Vec<PolledItem>,
        work: impl FnOnce(&mut Reactor<Collector>, &mut WaitHistory) -> std::io::Result<R>,
    ) -> std::io::Result<R> {
        let Some(reactor) = &mut self.reactor else { return Ok(R::default()) };
        self.polls += 1;
        reactor.handler().poll = self.polls;
        std::mem::swap(&mut reactor.handler().found, found);
        let outcome = work(reactor, &mut self.listening);
        std::mem::swap(&mut reactor.handler().found, found);
        outcome
    }

    /// Sets the target of one side of a descriptor, and returns the one before.
    pub(crate) fn watch(
        &mut self,
        descriptor: RawFd,
        side: Side,
        target: Target,
    ) -> std::io::Result<Option<Target>> {
        let place = usize::try_from(descriptor).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        let Some(reactor) = &mut self.reactor else { return Err(std::io::ErrorKind::NotConnected.into()) };
        let core = reactor.core();
        if let Some(Some(watch)) = self.watches.get_mut(place) {
            let before = watch.targets[side as usize].replace(target);
            // The target before may have closed the descriptor, and its number be another's since: then the
            // kernel forgot the watch, and says so only when it is changed.
            let mut kept = match &before {
                None if core.entry(watch.key).is_some() => core.set_interest(watch.key, watch.interest()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            };
            if kept.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
                give_back(core.release(watch.key));
                kept = lend(core, descriptor, watch.interest()).map(|key| watch.key = key);
            }
            if kept.is_err() {
                // Every target stays: to drop one here would call its finalizers.
                watch.targets[side as usize] = before;
                return kept.map(|()| None);
            }
            watch.since[side as usize] = self.polls;
            return Ok(before);
        }
        let interest = if side == Side::Read { Interest::READ } else { Interest::WRITE };
        // The kernel says first whether there is such a descriptor: a place is made for no other number.
        let key = lend(core, descriptor, interest)?;
        let missing = (place + 1).saturating_sub(self.watches.len());
        if self.watches.try_reserve(missing).is_err() {
            give_back(core.release(key));
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        if missing > 0 {
            self.watches.resize_with(place + 1, || None);
        }
        let mut targets = [None, None];
        targets[side as usize] = Some(target);
        self.watches[place] = Some(Watch { key, targets, since: [self.polls; 2] });
        Ok(None)
    }

    /// Takes the target of one side of a descriptor away, and returns it.
    pub(crate) fn unwatch(&mut self, descriptor: RawFd, side: Side) -> Option<Target> {
        let is_ours = self.is_ours();
        let slot = self.watches.get_mut(usize::try_from(descriptor).ok()?)?;
        let watch = slot.as_mut()?;
        let before = watch.targets[side as usize].take();
        // In a child after a fork what is closed, or collected, is the parent's, and so is the kernel's list.
        if let Some(reactor) = self.reactor.as_mut().filter(|_| is_ours) {
            let interest = watch.interest();
            if interest == Interest::NONE {
                give_back(reactor.core().release(watch.key));
                *slot = None;
            } else {
                let core = reactor.core();
                if core.set_interest(watch.key, interest).is_err() {
                    // Closed meanwhile: it has no more events, and the next descriptor of that number
                    // begins anew.
                    give_back(core.release(watch.key));
                }
            }
        }
        before
    }

    /// The target of one side of something seen; `None` when that changed, or another was set, since.
    #[inline]
    pub(crate) fn target(&self, py: Python<'_>, seen: ReadyDescriptor, side: Side) -> Option<Target> {
        let watch = self.watches.get(usize::try_from(seen.descriptor).ok()?)?.as_ref()?;
        if watch.key != seen.key || watch.since[side as usize] >= seen.poll {
            return None;
        }
        watch.targets[side as usize].as_ref().map(|target| target.share(py))
    }

    /// Whether a callback is told of one side of a descriptor.
    pub(crate) fn tells(&self, descriptor: RawFd, side: Side, callback: CallbackId) -> bool {
        self.told(descriptor, side).is_some_and(
            |target| matches!(target, Target::Events(told) | Target::Socket(told) if *told == callback),
        )
    }

    /// Whether one side of a descriptor belongs to a target alone: a target that is told by number takes the
    /// place of no other, and no other takes its place. A number that another descriptor had since is free.
    pub(crate) fn is_taken(&mut self, descriptor: RawFd, side: Side, target: &Target) -> bool {
        let told = self.told(descriptor, side);
        told.is_some_and(|told| told.is_by_number() || target.is_by_number())
            && self.is_still_there(descriptor)
    }

    /// Whether a descriptor that is watched is still what it was: then the kernel refuses to take it once
    /// more.
    fn is_still_there(&mut self, descriptor: RawFd) -> bool {
        let Some(reactor) = &mut self.reactor else { return false };
        match lend(reactor.core(), descriptor, Interest::NONE) {
            Ok(key) => {
                give_back(reactor.core().release(key));
                false
            }
            Err(error) => error.kind() == std::io::ErrorKind::AlreadyExists,
        }
    }

    /// Whether a callback by number is told of a descriptor that is still what it was.
    pub(crate) fn is_numbers(&mut self, descriptor: RawFd) -> bool {
        let told = self.tells_number(descriptor, Side::Read) || self.tells_number(descriptor, Side::Write);
        told && self.is_still_there(descriptor)
    }

    /// Whether it is a callback by number that is told of one side of a descriptor.
    pub(crate) fn tells_number(&self, descriptor: RawFd, side: Side) -> bool {
        self.told(descriptor, side).is_some_and(Target::is_by_number)
    }

    /// Whether it is this very transport that is told of one side of its descriptor.
    #[inline]
    pub(crate) fn tells_endpoint(&self, endpoint: &Endpoint, side: Side) -> bool {
        let told = self.told(endpoint.descriptor, side).and_then(Target::endpoint);
        told.is_some_and(|told| std::ptr::eq(told, endpoint))
    }

    #[inline]
    fn told(&self, descriptor: RawFd, side: Side) -> Option<&Target> {
        self.watches.get(usize::try_from(descriptor).ok()?)?.as_ref()?.targets[side as usize].as_ref()
    }

    /// Which sides of a descriptor are watched.
    pub(crate) fn sides(&self, descriptor: RawFd) -> Option<(bool, bool)> {
        let watch = self.watches.get(usize::try_from(descriptor).ok()?)?.as_ref()?;
        Some((watch.targets[0].is_some(), watch.targets[1].is_some()))
    }

    /// The descriptor that an object had when it was to be watched.
    pub(crate) fn descriptor_of(&self, object: &Bound<'_, PyAny>) -> Option<RawFd> {
        let is_for = |target: &Target| matches!(target, Target::Call(_, Some(watched)) if watched.is(object));
        let mut watches = self.watches.iter().enumerate();
        let (place, _) = watches
            .find(|(_, watch)| watch.iter().any(|watch| watch.targets.iter().flatten().any(is_for)))?;
        RawFd::try_from(place).ok()
    }

    /// Every descriptor that is watched.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let watched = self.watches.iter().enumerate().filter(|(_, watch)| watch.is_some());
        watched.filter_map(|(place, _)| RawFd::try_from(place).ok()).collect()
    }

    /// Shows the garbage collector the targets.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let targets = self.watches.iter().flatten().flat_map(|watch| watch.targets.iter().flatten());
        targets.into_iter().try_for_each(|target| target.traverse(visit))
    }

    /// Lets go of everything.
    pub(crate) fn close(&mut self) -> Vec<Target> {
        let Some(mut reactor) = self.reactor.take() else { return Vec::new() };
        let watches = std::mem::take(&mut self.watches).into_iter().flatten();
        let targets = watches.flat_map(|watch| watch.targets).flatten().collect();
        if self.is_ours() {
            let keys: Vec<Key> = reactor.core().keys().collect();
            keys.into_iter().for_each(|key| give_back(reactor.core().release(key)));
        } else {
            // The kernel's list is one for parent and child: what is taken off it here, the parent misses
            // too.
            std::mem::forget(reactor);
        }
        targets
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        drop(self.close());
    }
}

fn lend(core: &mut Core<Collector>, descriptor: RawFd, interest: Interest) -> std::io::Result<Key> {
    // SAFETY: the number is not negative, as `watch` has seen; its owner keeps it, because `give_back`
    // takes it out of every `OwnedFd` that is made here before that could close it.
    let lent = unsafe { OwnedFd::from_raw_fd(descriptor) };
    core.insert(lent, descriptor, interest).map_err(|rejected| {
        let _ = rejected.descriptor.into_raw_fd();
        match rejected.reason {
            RejectReason::Full => std::io::Error::other("as many descriptors are watched as may be"),
            RejectReason::Kernel(error) => error,
        }
    })
}

fn give_back<E, T>(released: Option<Released<E, T>>) {
    if let Some(released) = released {
        let _ = released.descriptor.into_raw_fd();
    }
}
