//! A client that waits on its thread.

use super::options::{ConnectOptions, endpoint, fault};
use crate::error::{Result, failure};
use napi::bindgen_prelude::Uint8ArraySlice;
use napi_derive::napi;
use std::cell::RefCell;
use std::time::Duration;
use thalweg_service::{CallId, CallOptions, Client, Error, EventKind};
use thalweg_wire::fault::Fault;

/// A connected client whose calls wait.
#[napi]
pub struct BlockingCaller {
    client: RefCell<Option<Client>>,
    /// The call that streams are named by here, and the next name.
    streams: RefCell<(Vec<(u32, CallId)>, u32)>,
    /// A frame that did not fit where it was to go.
    kept: RefCell<Vec<u8>>,
}

fn closed() -> napi::Error {
    failure("CLOSED", "this client was closed")
}

/// Connects, and waits until the server said welcome.
#[napi]
pub fn connect_blocking(path: String, options: ConnectOptions) -> Result<BlockingCaller> {
    let client = Client::connect(&endpoint(&path)?, options.take()?).map_err(|error| fault(&error))?;
    Ok(BlockingCaller {
        client: RefCell::new(Some(client)),
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

    /// Writes a frame into the area from a byte on and answers its length; where it does not fit, keeps it
    /// and answers the complement of that.
    fn deliver(&self, frame: &[u8], area: &mut [u8], from: u32) -> i32 {
        let from = from as usize;
        if let Some(place) = area.get_mut(from..from + frame.len()) {
            place.copy_from_slice(frame);
            return frame.len() as i32;
        }
        self.kept.replace(frame.to_vec());
        !(frame.len() as i32)
    }

    /// Calls, and waits for the answer, which goes into the area.
    #[napi]
    pub fn call(
        &self,
        request: Uint8ArraySlice<'_>,
        deadline_ms: u32,
        mut area: Uint8ArraySlice<'_>,
        from: u32,
    ) -> Result<i32> {
        // SAFETY: JavaScript is in this call, and there is no view of what lies behind `from`.
        let area = unsafe { area.as_mut() };
        self.with(|client| {
            let call = client.call(&request, CallOptions { unary: true, ..options(deadline_ms, 0) })?;
            answer(client, call).map(|frame| self.deliver(frame, area, from))
        })
    }

    /// Writes what was kept into an area that is large enough.
    #[napi]
    pub fn take_kept(&self, mut area: Uint8ArraySlice<'_>) {
        let kept = self.kept.take();
        // SAFETY: JavaScript is in this call, and the area is new.
        self.deliver(&kept, unsafe { area.as_mut() }, 0);
    }

    /// Begins a call that a stream answers.
    #[napi]
    pub fn begin(&self, request: Uint8ArraySlice<'_>, deadline_ms: u32, credit: u32) -> Result<u32> {
        let call = self.with(|client| client.call(&request, options(deadline_ms, credit)))?;
        let mut streams = self.streams.borrow_mut();
        streams.1 = streams.1.wrapping_add(1);
        let name = streams.1;
        streams.0.push((name, call));
        Ok(name)
    }

    /// Waits for the next frame of a stream, which goes into the area.
    #[napi]
    pub fn next(&self, stream: u32, mut area: Uint8ArraySlice<'_>, from: u32) -> Result<i32> {
        let call = self.stream(stream)?;
        // SAFETY: JavaScript is in this call, and there is no view of what lies behind `from`.
        let area = unsafe { area.as_mut() };
        let frame = self.with(|client| answer(client, call).map(|frame| self.deliver(frame, area, from)));
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

/// The next frame of a call; a refusal is one, in the service's own words, which generated code reads.
fn answer(client: &mut Client, call: CallId) -> std::result::Result<&[u8], Error> {
    let event = client.wait_event(call)?;
    match event.kind {
        EventKind::Failed(error) if error.fault != Fault::Refused || event.frame.is_empty() => Err(error),
        _ => Ok(event.frame),
    }
}

fn options(deadline_ms: u32, credit: u32) -> CallOptions {
    CallOptions {
        deadline: (deadline_ms > 0).then(|| Duration::from_millis(u64::from(deadline_ms))),
        credit: (credit > 0).then_some(credit),
        unary: false,
    }
}
