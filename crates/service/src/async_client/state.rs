//! What the lock of an [`AsyncClient`](super::AsyncClient) guards: the client, what came of its calls, and
//! the futures that wait for more.
//!
//! *Ownership*: whoever holds the lock. Wakers are taken out here and woken by the caller, without it.
//!
//! *Invariants*: `kept_bytes` are those of all queues, and `futures` the calls that have a waker. Debug
//! builds count both again at the end of each turn.

use crate::call::{CallId, CallOptions, EventKind};
use crate::client::{BACKLOG_BYTES, Client};
use crate::error::Error;
use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use thalweg_reactor::Wait;
use thalweg_wire::fault::Fault;

/// How a turn is taken.
pub(super) type TakeTurn = fn(&mut Client) -> Result<usize, Error>;

/// A turn that never waits and leaves everything to be watched.
pub(super) fn glance(client: &mut Client) -> Result<usize, Error> {
    client.turn(Wait::Poll)
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) client: Client,
    calls: HashMap<CallId, Waiting>,
    /// Threads asleep in [`AsyncClient::run_until`](super::AsyncClient::run_until).
    pub(super) sleepers: usize,
    /// A foreign loop was given the descriptor, or drives: it may be watching.
    pub(super) watched: bool,
    /// Something was queued that no turn has seen.
    pub(super) stale: bool,
    /// Bytes of frames that came and were not taken.
    pub(super) kept_bytes: usize,
    /// The last turn left what came with the client, because enough was kept.
    pub(super) sated: bool,
    /// Calls that a future waits for.
    futures: usize,
}

/// What came of one call, and the future that waits for more.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    frames: VecDeque<Result<Frame, Error>>,
    /// Only while there are no frames.
    waker: Option<Waker>,
    /// Items taken since credit was last given.
    taken: u32,
}

impl Waiting {
    /// Whether the answer came, and was not taken.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.frames.back(), Some(Ok(Frame::End(_))))
    }
}

#[derive(Debug)]
enum Frame {
    Item(Vec<u8>),
    End(Vec<u8>),
}

fn bytes_of(frame: &Result<Frame, Error>) -> usize {
    match frame {
        Ok(Frame::Item(frame) | Frame::End(frame)) => frame.len(),
        Err(_) => 0,
    }
}

impl State {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            calls: HashMap::new(),
            sleepers: 0,
            watched: false,
            stale: false,
            kept_bytes: 0,
            sated: false,
            futures: 0,
        }
    }

    /// Makes a call. Its request leaves with a turn.
    pub(super) fn begin(&mut self, request: &[u8], options: CallOptions) -> Result<CallId, Error> {
        let call = self.client.call(request, options)?;
        self.calls.insert(call, Waiting::default());
        self.stale = true;
        Ok(call)
    }

    /// A turn; `wakers` gets those of the futures that something came for.
    pub(super) fn turn(&mut self, how: TakeTurn, wakers: &mut Vec<Waker>) -> Result<(), Error> {
        self.stale = false;
        self.client.hold_back(self.keeps_enough());
        how(&mut self.client)?;
        self.sated = loop {
            if self.keeps_enough() {
                break true;
            }
            let Some(event) = self.client.next() else { break false };
            let Some(waiting) = self.calls.get_mut(&event.call) else { continue };
            let is_refusal = event.is_refusal();
            let frame = match event.kind {
                EventKind::Item => Ok(Frame::Item(event.frame.to_vec())),
                EventKind::End => Ok(Frame::End(event.frame.to_vec())),
                EventKind::Failed(_) if is_refusal => Ok(Frame::End(event.frame.to_vec())),
                EventKind::Failed(error) => Err(error),
            };
            self.kept_bytes += bytes_of(&frame);
            waiting.frames.push_back(frame);
            if let Some(waker) = waiting.waker.take() {
                self.futures -= 1;
                wakers.push(waker);
            }
        };
        debug_assert_eq!(self.counted(), (self.kept_bytes, self.futures), "bytes kept, futures that wait");
        Ok(())
    }

    fn counted(&self) -> (usize, usize) {
        let frames = self.calls.values().flat_map(|waiting| &waiting.frames);
        let futures = self.calls.values().filter(|waiting| waiting.waker.is_some());
        (frames.map(bytes_of).sum(), futures.count())
    }

    /// Whether reading stops: [`BACKLOG_BYTES`] of frames were not taken, and no future waits for another.
    const fn keeps_enough(&self) -> bool {
        self.kept_bytes >= BACKLOG_BYTES && self.futures == 0
    }

    /// Goes on reading, if that was held up and need not be any more; whether it did.
    pub(super) fn resume(&mut self, wakers: &mut Vec<Waker>) -> bool {
        let resumes = self.sated && !self.keeps_enough();
        if resumes {
            // A failure here is one of the operating system, and the next drive reports it again.
            let _ = self.turn(glance, wakers);
        }
        resumes
    }

    /// Whether the call is there and nothing came of it.
    pub(super) fn is_empty(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|waiting| waiting.frames.is_empty())
    }

    /// A future waits for the call, of which nothing came; the waker that did before.
    pub(super) fn wait(&mut self, call: CallId, waker: Waker) -> Option<Waker> {
        let Some(waiting) = self.calls.get_mut(&call) else { return Some(waker) };
        let former = waiting.waker.replace(waker);
        self.futures += usize::from(former.is_none());
        former
    }

    /// The future that waited for the call does so no more; its waker.
    pub(super) fn leave(&mut self, call: CallId) -> Option<Waker> {
        let waker = self.calls.get_mut(&call)?.waker.take();
        self.futures -= usize::from(waker.is_some());
        waker
    }

    /// Takes what came next of a call; `None`: nothing yet.
    pub(super) fn take(&mut self, call: CallId, options: CallOptions) -> Option<Result<Vec<u8>, Error>> {
        let Some(waiting) = self.calls.get_mut(&call) else {
            return Some(Err(Error::new(Fault::BadArgument, "this stream has ended")));
        };
        let frame = waiting.frames.pop_front()?;
        self.kept_bytes -= bytes_of(&frame);
        Some(match frame {
            Ok(Frame::Item(frame)) => {
                waiting.taken += 1;
                let window = self.client.window(options);
                if window > 0 && waiting.taken >= window.div_ceil(2) {
                    self.client.grant(call, std::mem::take(&mut waiting.taken));
                    self.stale = true;
                }
                Ok(frame)
            }
            Ok(Frame::End(frame)) => {
                self.forget(call);
                Ok(frame)
            }
            Err(error) => {
                self.forget(call);
                Err(error)
            }
        })
    }

    /// Nobody asks for the call any more. What is returned may hold a waker, to be dropped without the lock;
    /// `None`: it had ended.
    pub(super) fn forget(&mut self, call: CallId) -> Option<Waiting> {
        let waiting = self.calls.remove(&call)?;
        self.kept_bytes -= waiting.frames.iter().map(bytes_of).sum::<usize>();
        self.futures -= usize::from(waiting.waker.is_some());
        Some(waiting)
    }
}
