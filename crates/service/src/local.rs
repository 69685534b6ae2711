//! A handler that is called in its own process: by a thread with a loop of its own, without a socket.
//!
//! *Ownership*: a [`Local`] belongs to the thread that makes its calls; replies go anywhere, as those of a
//! server do, and come back through the same queue. A handler cannot tell the two apart.
//!
//! *Invariants*: every call ends exactly once, there and then or in a later [`Local::turn`]; one that was
//! cancelled is never reported again. Checked by `tests/local.rs`.

use crate::call::CallId;
use crate::server::{
    Answers, Batch, Call, Calls, ClientId, Framing, Handler, Notifier, Place, Reply, Request, Taker,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use thalweg_reactor::Key;
use thalweg_sync::contain::contain;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, Header, LENGTH_MAX};

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalEvent {
    /// An item of a stream; more will come.
    Item,
    /// The end: 0, or the code of a fault.
    End(u16),
}

/// How one call is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalCallOptions {
    /// From when on the answer is not wanted any more. The caller keeps to it, by [`Local::cancel`].
    pub deadline: Option<Instant>,
    /// As [`Request::alone`] is to be.
    pub alone: bool,
}

/// Calls handlers in place.
///
/// ```
/// use thalweg_service::{Local, LocalCallOptions, LocalEvent, Reply, Request};
/// let mut local = Local::new("EchoErrorResponse", 64, || {});
/// let mut echo = |request: Request<'_>, reply: Reply| reply.end(request.frame);
/// let mut heard = Vec::new();
/// let keep = |came, frame: &[u8]| heard.push((came, frame.to_vec()));
/// let call = local.call(&mut echo, b"hi", LocalCallOptions::default(), keep);
/// assert_eq!((call, heard), (None, vec![(LocalEvent::End(0), b"hi".to_vec())]));
/// ```
pub struct Local {
    answers: Arc<Answers>,
    batch: Batch,
    calls: Calls,
    in_flight: HashMap<u64, Arc<Call>>,
    /// Calls that were cancelled, while their handlers go on.
    abandoned: usize,
    serial: u64,
    output: Vec<u8>,
}

impl Local {
    /// A way to call handlers of a service whose error has this tag. `credit` is how many items a stream may
    /// send: further items wait, and the stream's end with them, until [`Local::cancel`]. So a caller that
    /// has taken `credit` items cancels the call. `wake` is called, on any thread, when there is something
    /// for a [`Local::turn`]: answers, and notifications, once each before the turn.
    pub fn new(error_tag: &str, credit: u32, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let answers = Arc::new(Answers::new(Taker::Local(Box::new(wake)), error_tag));
        Self {
            batch: Batch::default(),
            calls: Calls::new(Arc::clone(&answers), credit),
            answers,
            in_flight: HashMap::new(),
            abandoned: 0,
            serial: 0,
            output: Vec::new(),
        }
    }

    /// Has the handler notified, from other threads.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.answers))
    }

    /// Has one request handled. `each` gets what is answered there and then. A call that has not ended by
    /// then has a name, under which the rest comes in later turns.
    #[inline]
    pub fn call<H: Handler + ?Sized>(
        &mut self,
        handler: &mut H,
        frame: &[u8],
        asked: LocalCallOptions,
        mut each: impl FnMut(LocalEvent, &[u8]),
    ) -> Option<CallId> {
        self.serial += 1;
        let serial = self.serial;
        let call = self.calls.take();
        let place = Place { key: nobody(), id: serial, serial };
        let reply = Reply::new(call.clone(), place);
        let request = Request {
            frame,
            client: ClientId::of(nobody()),
            call: serial,
            deadline: asked.deadline,
            alone: asked.alone,
        };
        let mut output = std::mem::take(&mut self.output);
        let framing = Framing::Multiplexed(serial);
        let handle = || handler.request(request, reply);
        let ended = crate::server::handle(&call, framing, &mut output, usize::MAX, handle);
        let mut rest = &output[..];
        while let Ok(Some(header)) = Header::decode(rest, LENGTH_MAX) {
            let end = HEADER_BYTES + header.length as usize;
            let Some(payload) = rest.get(HEADER_BYTES..end) else { break };
            each(came(header.kind, header.fault), payload);
            rest = &rest[end..];
        }
        output.clear();
        if output.capacity() <= KEPT_BYTES_MAX {
            self.output = output;
        }
        if ended {
            self.calls.give(call);
            return None;
        }
        self.in_flight.insert(serial, call);
        Some(CallId::from_number(serial))
    }

    /// Tells the handler if it is to be notified or something of its own is due, and `each` what was answered
    /// since the last turn.
    pub fn turn<H: Handler + ?Sized>(
        &mut self,
        handler: &mut H,
        mut each: impl FnMut(CallId, LocalEvent, &[u8]),
    ) {
        let mut batch = std::mem::take(&mut self.batch);
        if self.answers.take_notified() {
            contain(|| handler.notified());
        }
        crate::server::due(handler);
        self.answers.take(&mut batch);
        for piece in &batch.pieces {
            let came = came(piece.kind, piece.fault);
            let serial = piece.place.serial;
            let known = match came {
                LocalEvent::Item => self.in_flight.contains_key(&serial),
                LocalEvent::End(_) => match self.in_flight.remove(&serial) {
                    Some(call) => {
                        self.calls.give(call);
                        true
                    }
                    None => {
                        self.abandoned = self.abandoned.saturating_sub(1);
                        false
                    }
                },
            };
            if known {
                each(CallId::from_number(serial), came, batch.payload(piece));
            }
        }
        batch.clear();
        self.batch = batch;
    }

    /// Cancels a call: its handler is told ([`Handler::given_up`]), and the caller hears no more of it. What
    /// ended in an earlier turn has no call to cancel any more.
    pub fn cancel<H: Handler + ?Sized>(&mut self, handler: &mut H, call: CallId) {
        let serial = call.number();
        if let Some(call) = self.in_flight.remove(&serial) {
            // An end that was held back is gone with it.
            self.abandoned += usize::from(!call.cancel());
            contain(|| handler.given_up(ClientId::of(nobody()), serial));
        }
    }

    /// Calls whose handlers have not ended.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len() + self.abandoned
    }
}

/// Larger buffers are freed.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// The key that stands for a caller without a connection: no slab grows that far.
fn nobody() -> Key {
    Key::from_token(u64::MAX)
}

fn came(kind: FrameKind, fault: u16) -> LocalEvent {
    if kind == FrameKind::Item { LocalEvent::Item } else { LocalEvent::End(fault) }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.answers.close();
        for call in self.in_flight.values() {
            call.cancel();
        }
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Local").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
