//! A client that waits on its thread: a stretch at a time, and in between it goes back to JavaScript, because
//! a thread that is to end does so only there.
//!
//! A request may lie in the very area that its answer goes into: JavaScript is handed views of it. So nothing
//! here has both: a request is read and let go of in [`BlockingCaller::ask`], and an area is a slice only
//! while a frame is written to it, in [`BlockingCaller::hear`]. *Checked by* `tests/service-sync.test.js`.

use super::options::{ConnectOptions, endpoint, fault};
use crate::error::{Result, failure};
use napi::bindgen_prelude::Uint8ArraySlice;
use napi_derive::napi;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_service::{CallId, CallOptions, Client, Error, EventKind};
use thalweg_wire::fault::Fault;

/// How long one native call waits.
const STRETCH: Duration = Duration::from_millis(50);

/// In place of a length: nothing came in a stretch, and the caller goes on waiting.
#[napi]
pub const WAITS: i32 = i32::MIN;

/// A client whose calls wait.
#[napi]
pub struct BlockingCaller {
    client: RefCell<Option<Client>>,
    /// The call that is waited for.
    awaited: Cell<Option<CallId>>,
    /// The call that streams are named by here, and the next name.
    streams: RefCell<(Vec<(u32, CallId)>, u32)>,
    /// A frame that did not fit where it was to go.
    kept: RefCell<Vec<u8>>,
}

fn closed() -> napi::Error {
    failure("CLOSED", "this client was closed")
}

/// Begins to connect.
#[napi]
pub fn connect_blocking(path: String, options: ConnectOptions) -> Result<BlockingCaller> {
    let client = Client::begin(&endpoint(&path)?, options.take()?).map_err(|error| fault(&error))?;
    Ok(BlockingCaller {
        client: RefCell::new(Some(client)),
        awaited: Cell::default(),
        streams: RefCell::default(),
        kept: RefCell::default(),
    })
}

#[napi]
impl BlockingCaller {
    fn with<T>(&self, act: impl FnOnce(&mut Client) -> std::result::Result<T, Error>) -> Result<T> {
        let mut client = self.client.borrow_mut();
        act(client.as_mut().ok_or_else(closed)?).map_err(|error| fault(&error))
    }

    fn stream(&self, name: u32) -> Result<CallId> {
        let streams = self.streams.borrow();
        let found = streams.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, call)| *call).ok_or_else(|| failure("BAD_ARGUMENT", "no such stream is under way"))
    }

    /// Sends a request.
    fn ask(&self, request: Uint8ArraySlice<'_>, options: CallOptions) -> Result<CallId> {
        self.with(|client| client.call(&request, options))
    }

    /// Waits for a stretch for the next frame of a call, which goes into the area.
    fn hear(&self, call: CallId, area: Uint8ArraySlice<'_>, from: u32) -> Result<i32> {
        self.with(|client| answer(client, call, |frame| self.deliver(frame, area, from)))
    }

    /// Writes a frame into the area from a byte on and answers its length; where it does not fit, keeps it
    /// and answers the complement of that.
    fn deliver(&self, frame: &[u8], mut area: Uint8ArraySlice<'_>, from: u32) -> i32 {
        let from = from as usize;
        // SAFETY: JavaScript is in this call, the frame is the client's own, and no other slice of what
        // JavaScript owns is there, as is said above.
        let area = unsafe { area.as_mut() };
        if let Some(place) = area.get_mut(from..from + frame.len()) {
            place.copy_from_slice(frame);
            return frame.len() as i32;
        }
        self.kept.replace(frame.to_vec());
        !(frame.len() as i32)
    }

    /// Waits for a stretch until the server said welcome; whether it did.
    #[napi]
    pub fn connected(&self) -> Result<bool> {
        self.with(|client| {
            if !client.is_connected() {
                client.turn(Wait::Until(Instant::now() + STRETCH))?;
            }
            client.failure().map_or_else(|| Ok(client.is_connected()), |error| Err(error.clone()))
        })
    }

    /// Calls, and waits for a stretch for the answer, which goes into the area.
    #[napi]
    pub fn call(
        &self,
        request: Uint8ArraySlice<'_>,
        deadline_ms: u32,
        area: Uint8ArraySlice<'_>,
        from: u32,
    ) -> Result<i32> {
        let call = self.ask(request, CallOptions { unary: true, ..options(deadline_ms, 0) })?;
        self.awaited.set(Some(call));
        self.hear(call, area, from)
    }

    /// Goes on waiting for the answer of the last call.
    #[napi]
    pub fn go_on(&self, area: Uint8ArraySlice<'_>, from: u32) -> Result<i32> {
        let call = self.awaited.get().ok_or_else(|| failure("BAD_ARGUMENT", "no call is under way"))?;
        self.hear(call, area, from)
    }

    /// Writes what was kept into an area that is large enough.
    #[napi]
    pub fn take_kept(&self, area: Uint8ArraySlice<'_>) {
        let kept = self.kept.take();
        self.deliver(&kept, area, 0);
    }

    /// Begins a call that a stream answers.
    #[napi]
    pub fn begin(&self, request: Uint8ArraySlice<'_>, deadline_ms: u32, credit: u32) -> Result<u32> {
        let call = self.ask(request, options(deadline_ms, credit))?;
        let mut streams = self.streams.borrow_mut();
        streams.1 = streams.1.wrapping_add(1);
        let name = streams.1;
        streams.0.push((name, call));
        Ok(name)
    }

    /// Waits for a stretch for the next frame of a stream, which goes into the area.
    #[napi]
    pub fn next(&self, stream: u32, area: Uint8ArraySlice<'_>, from: u32) -> Result<i32> {
        let call = self.stream(stream)?;
        let frame = self.hear(call, area, from);
        if !self.with(|client| Ok(client.knows(call))).unwrap_or(false) {
            self.streams.borrow_mut().0.retain(|(_, known)| *known != call);
        }
        frame
    }

    /// Whether more of a stream will come.
    #[napi]
    pub fn knows(&self, stream: u32) -> bool {
        self.stream(stream).is_ok()
    }

    /// Lets a stream send so many items more.
    #[napi]
    pub fn grant(&self, stream: u32, items: u32) -> Result<()> {
        let call = self.stream(stream)?;
        self.with(|client| {
            client.grant(call, items);
            client.flush()
        })
    }

    /// Cancels a stream.
    #[napi]
    pub fn forget(&self, stream: u32) -> Result<()> {
        let call = self.stream(stream)?;
        self.streams.borrow_mut().0.retain(|(_, known)| *known != call);
        self.with(|client| {
            client.forget(call);
            client.flush()
        })
    }

    /// Items that a new stream may send at first; 0 where streams know no credit.
    #[napi]
    pub fn credit(&self) -> u32 {
        self.client.borrow().as_ref().map_or(0, Client::credit)
    }

    /// Whether frames go through shared memory.
    #[napi]
    pub fn is_shared(&self) -> bool {
        self.client.borrow().as_ref().is_some_and(Client::is_shared)
    }

    /// Hangs up.
    #[napi]
    pub fn close(&self) {
        self.client.borrow_mut().take();
    }
}

/// What the next frame of a call is delivered as, if it comes in a stretch; a refusal is one, in the
/// service's own words, which generated code reads.
fn answer(
    client: &mut Client,
    call: CallId,
    mut deliver: impl FnMut(&[u8]) -> i32,
) -> std::result::Result<i32, Error> {
    let until = Instant::now() + STRETCH;
    loop {
        // One read may bring many frames: as long as there are some, none is made.
        if let Some(event) = client.take(call) {
            return match event.kind {
                EventKind::Failed(error) if error.fault != Fault::Refused || event.frame.is_empty() => {
                    Err(error)
                }
                _ => Ok(deliver(event.frame)),
            };
        }
        if !client.knows(call) {
            return Err(Error::new(Fault::BadArgument, "no such call is in flight"));
        }
        if Instant::now() >= until {
            return Ok(WAITS);
        }
        client.turn_for(call, Wait::Until(until))?;
    }
}

fn options(deadline_ms: u32, credit: u32) -> CallOptions {
    CallOptions {
        deadline: (deadline_ms > 0).then(|| Duration::from_millis(u64::from(deadline_ms))),
        credit: (credit > 0).then_some(credit),
        unary: false,
    }
}
