//! A client that the event loop drives: what a turn of the loop has to say goes over in one call, what a turn
//! of the reactor brought comes back in one.
//!
//! ```text
//! out     CALL slot, deadline in ms or 0, 0, request | STREAM slot, deadline in ms or 0, credit or 0, request
//!         | CANCEL slot | GRANT slot, items | LEAVE 0, number
//! in      ITEM slot, frame | END slot, number, frame | FAILED slot, fault, words
//! ```
//!
//! JavaScript names calls by slots that it hands out again once the last record of one was heard. Until then
//! it may give the call up, though the answer lies in the area: it drops that one, and the server is told.
//! Of the end of a stream, which it keeps until its reader takes it, it is told the call's number, the lower
//! half first, and says that when it drops it. A refusal has none, as nothing in it is to be given back.
//! *Checked by* `tests/service-calls.test.js` and `tests/service-streams.test.js`.

use super::area::{Record, Spill, read};
use super::options::{ConnectOptions, endpoint, fault};
use super::watch::Watch;
use crate::error::{Result, failure};
use napi::bindgen_prelude::{Env, Function, Uint8ArraySlice};
use napi_derive::napi;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;
use thalweg_reactor::Wait;
use thalweg_service::{CallId, CallOptions, Client, Error, EventKind};
use thalweg_wire::fault::Fault;

const CALL: u32 = 1;
const CANCEL: u32 = 2;
const GRANT: u32 = 3;
const STREAM: u32 = 4;
const LEAVE: u32 = 5;

const ITEM: u32 = 1;
const END: u32 = 2;
const FAILED: u32 = 3;

/// At this many bytes of frames that were not taken JavaScript has turns read nothing.
#[napi]
pub const BACKLOG_BYTES: u32 = thalweg_service::BACKLOG_BYTES as u32;

/// Begins to connect; calls may be made at once and leave when the connection is there.
#[napi]
pub fn connect_service(path: String, options: ConnectOptions) -> Result<Caller> {
    let client = Client::begin(&endpoint(&path)?, options.take()?).map_err(|error| fault(&error))?;
    Ok(Caller { line: RefCell::new(Some(Line::new(client))), watch: RefCell::default() })
}

/// What a slot names.
#[derive(Clone, Copy)]
struct Place {
    call: CallId,
    /// The answer is on its way to JavaScript, which may have heard it.
    is_answered: bool,
}

/// A client and the slots of its calls.
struct Line {
    client: Client,
    /// By slot. A call that was answered stays until the slot names another: JavaScript gives up none whose
    /// answer it has heard.
    calls: Vec<Option<Place>>,
    slots: HashMap<CallId, u32>,
    /// Calls that could not be made.
    refused: Vec<(u32, Error)>,
    spill: Spill,
}

impl Line {
    fn new(client: Client) -> Self {
        Self {
            client,
            calls: Vec::new(),
            slots: HashMap::new(),
            refused: Vec::new(),
            spill: Spill::default(),
        }
    }

    fn call(&mut self, record: Record, request: &[u8]) {
        let options = CallOptions {
            deadline: (record.first > 0).then(|| Duration::from_millis(u64::from(record.first))),
            credit: (record.second > 0).then_some(record.second),
            unary: record.what == CALL,
        };
        let slot = record.slot as usize;
        if self.calls.len() <= slot {
            self.calls.resize(slot + 1, None);
        }
        // Also where there is no call: whatever is said of it is not of the one before.
        self.calls[slot] = match self.client.call(request, options) {
            Ok(call) => {
                self.slots.insert(call, record.slot);
                Some(Place { call, is_answered: false })
            }
            Err(error) => {
                self.refused.push((record.slot, error));
                None
            }
        };
    }

    fn say(&mut self, record: Record, payload: &[u8]) {
        if matches!(record.what, CALL | STREAM) {
            return self.call(record, payload);
        }
        if record.what == LEAVE {
            let number = u64::from(record.first) | u64::from(record.second) << 32;
            return self.client.leave_unread(CallId::from_number(number));
        }
        let place = self.calls.get(record.slot as usize).copied().flatten();
        let Some(Place { call, is_answered }) = place else { return };
        match record.what {
            CANCEL if is_answered => self.client.leave_unread(call),
            CANCEL => self.client.cancel(call),
            GRANT => self.client.grant(call, record.first),
            _ => {}
        }
    }

    /// Fills the area with what came.
    fn hear(&mut self, area: &mut [u8], from: usize) -> (usize, bool) {
        let Some(mut filling) = self.spill.fill(area, from) else { return (from, false) };
        let mut is_all = true;
        while is_all && let Some((slot, error)) = self.refused.pop() {
            is_all = filling.put(failed(slot, &error), said(&error).as_bytes());
        }
        while is_all && let Some(event) = self.client.next() {
            let slot = self.slots.get(&event.call).copied();
            let is_last = !matches!(event.kind, EventKind::Item);
            if is_last {
                self.slots.remove(&event.call);
            }
            let Some(slot) = slot else { continue };
            if is_last && let Some(place) = self.calls.get_mut(slot as usize) {
                let is_answered = matches!(event.kind, EventKind::End);
                *place = is_answered.then_some(Place { call: event.call, is_answered });
            }
            is_all = match event.kind {
                EventKind::Item => filling.put(Record { what: ITEM, slot, ..Record::default() }, event.frame),
                EventKind::End => {
                    let number = event.call.number();
                    let (first, second) = (number as u32, (number >> 32) as u32);
                    filling.put(Record { what: END, slot, first, second }, event.frame)
                }
                // In the service's own words, which generated code reads.
                EventKind::Failed(error) if error.fault == Fault::Refused && !event.frame.is_empty() => {
                    filling.put(Record { what: END, slot, ..Record::default() }, event.frame)
                }
                EventKind::Failed(error) => filling.put(failed(slot, &error), said(&error).as_bytes()),
            };
        }
        (filling.end(), is_all)
    }
}

fn failed(slot: u32, error: &Error) -> Record {
    Record { what: FAILED, slot, first: u32::from(error.fault as u16), second: 0 }
}

fn said(error: &Error) -> String {
    error.to_string()
}

/// A connected client.
#[napi]
pub struct Caller {
    line: RefCell<Option<Line>>,
    watch: RefCell<Option<Watch>>,
}

fn closed() -> napi::Error {
    failure("CLOSED", "this client was closed")
}

#[napi]
impl Caller {
    /// Calls `ready` whenever a turn has something to do.
    #[napi]
    pub fn watch(&self, env: Env, ready: Function<'_, (), ()>) -> Result<()> {
        let mut line = self.line.borrow_mut();
        let line = line.as_mut().ok_or_else(closed)?;
        let descriptor = line.client.descriptor().map_err(|error| fault(&error))?;
        *self.watch.borrow_mut() = Some(Watch::start(&env, descriptor, ready)?);
        Ok(())
    }

    /// Says what is in the area; whether there is something to hear already. While it holds back it reads
    /// nothing, and no turn is due because something came.
    #[napi]
    pub fn flush(&self, area: Uint8ArraySlice<'_>, bytes: u32, holds_back: bool) -> Result<bool> {
        let mut line = self.line.borrow_mut();
        let line = line.as_mut().ok_or_else(closed)?;
        let area = area.get(..bytes as usize).unwrap_or(&[]);
        let mut at = 0;
        while let Some((record, payload, next)) = read(area, at) {
            line.say(record, area.get(payload).unwrap_or(&[]));
            at = next;
        }
        line.client.hold_back(holds_back);
        // A turn writes, and leaves everything to be watched.
        let came = line.client.turn(Wait::Poll).map_err(|error| fault(&error))?;
        Ok(came > 0 || !line.refused.is_empty())
    }

    /// Takes a turn and fills the area with what came, from a byte on. Answers where it is filled up to; the
    /// complement of that when there is more, for which a fresh area has to have room for `waitingBytes`.
    /// Holds back as `flush` does.
    #[napi]
    pub fn turn(&self, mut area: Uint8ArraySlice<'_>, from: u32, holds_back: bool) -> Result<i32> {
        let mut line = self.line.borrow_mut();
        let Some(line) = line.as_mut() else { return Ok(from as i32) };
        line.client.hold_back(holds_back);
        line.client.turn(Wait::Poll).map_err(|error| fault(&error))?;
        // SAFETY: JavaScript is in this call, and there is no view of what lies behind `from`.
        let (end, is_all) = line.hear(unsafe { area.as_mut() }, from as usize);
        Ok(if is_all { end as i32 } else { !(end as i32) })
    }

    /// Bytes of what did not fit.
    #[napi]
    pub fn waiting_bytes(&self) -> u32 {
        self.line.borrow().as_ref().map_or(0, |line| line.spill.bytes() as u32)
    }

    /// Keeps the process alive, or no longer.
    #[napi]
    pub fn hold(&self, held: bool) {
        if let Some(watch) = &*self.watch.borrow() {
            watch.hold(held);
        }
    }

    /// Whether there is a connection. Throws why none came about.
    #[napi]
    pub fn is_connected(&self) -> Result<bool> {
        let line = self.line.borrow();
        let client = &line.as_ref().ok_or_else(closed)?.client;
        match client.failure() {
            Some(error) => Err(fault(error)),
            None => Ok(client.is_connected()),
        }
    }

    /// Items that a new stream may send at first; 0 where streams know no credit, and while there is no
    /// connection.
    #[napi]
    pub fn credit(&self) -> u32 {
        self.line.borrow().as_ref().map_or(0, |line| line.client.credit())
    }

    /// Whether frames go through shared memory.
    #[napi]
    pub fn is_shared(&self) -> bool {
        self.line.borrow().as_ref().is_some_and(|line| line.client.is_shared())
    }

    /// Hangs up.
    #[napi]
    pub fn close(&self) {
        // The watch first: it lets go of a descriptor that the client owns.
        self.watch.borrow_mut().take();
        self.line.borrow_mut().take();
    }
}
