//! A server that the event loop drives: what a turn of the loop answered goes over in one call, what a turn
//! of the reactor brought comes back in one.
//!
//! ```text
//! out     ITEM slot, frame | END slot, frame | FAIL slot, fault, words | WATCH slot
//! in      REQUEST slot, client's low and high half, frame | CHANGED slot, 1 when it is not awaited
//! ```
//!
//! This side names calls by slots that it hands out again once the last word about one was said. Where an
//! item's first word stood its flow is written: 0 go on, 1 wait until it CHANGED, 2 it is not awaited any
//! more. A call that is watched has CHANGED when it is not awaited any more, at once if it is so already.

use super::area::{AreaWriter, Record, Spill, note, read};
use super::options::{ListenOptions, endpoint, fault};
use super::watch::Watch;
use crate::error::{Result, failure};
use napi::bindgen_prelude::{Env, Function, Uint8ArraySlice};
use napi_derive::napi;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use thalweg_reactor::Wait;
use thalweg_service::{Incoming, Reply, Server};
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Flow;

const ITEM: u32 = 1;
const END: u32 = 2;
const FAIL: u32 = 3;
const WATCH: u32 = 4;

const REQUEST: u32 = 1;
const CHANGED: u32 = 2;

const GO: u32 = 0;
const WAIT: u32 = 1;
const GONE: u32 = 2;

/// Calls of which something changed, by slot and generation: the wake of an earlier call in the same slot is
/// dropped.
type Changes = Arc<Mutex<Vec<(u32, u32)>>>;

struct Change {
    changes: Changes,
    slot: u32,
    generation: u32,
}

impl Wake for Change {
    fn wake(self: Arc<Self>) {
        self.changes.lock().push((self.slot, self.generation));
    }
}

/// A call that JavaScript has not answered.
struct Open {
    reply: Reply,
    generation: u32,
}

/// A server and the calls it waits to be answered.
struct Desk {
    server: Server,
    open: Vec<Option<Open>>,
    free: Vec<u32>,
    generation: u32,
    changes: Changes,
    /// It ends: calls that are not awaited any more are abandoned.
    is_stopping: bool,
    spill: Spill,
}

impl Desk {
    fn admit(&mut self, reply: Reply) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        let open = Some(Open { reply, generation: self.generation });
        match self.free.pop() {
            Some(slot) => {
                self.open[slot as usize] = open;
                slot
            }
            None => {
                self.open.push(open);
                (self.open.len() - 1) as u32
            }
        }
    }

    fn open(&mut self, slot: u32) -> Option<&mut Open> {
        self.open.get_mut(slot as usize)?.as_mut()
    }

    fn leave(&mut self, slot: u32) -> Option<Reply> {
        let open = self.open.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(open.reply)
    }

    /// Does what a record says, and answers what is to be noted in it.
    fn say(&mut self, record: Record, payload: &[u8]) -> Option<u32> {
        let Record { what, slot, first, .. } = record;
        match what {
            ITEM => return Some(self.item(slot, payload)),
            END => self.leave(slot)?.end(payload),
            FAIL => {
                let fault = Fault::of(first as u16).unwrap_or(Fault::Abandoned);
                self.leave(slot)?.fail(fault, &String::from_utf8_lossy(payload));
            }
            WATCH => {
                let changes = self.changes.clone();
                let open = self.open(slot)?;
                let change = Change { changes, slot, generation: open.generation };
                open.reply.when_cancelled(&Waker::from(Arc::new(change)));
            }
            _ => {}
        }
        None
    }

    fn item(&mut self, slot: u32, frame: &[u8]) -> u32 {
        let changes = self.changes.clone();
        let Some(open) = self.open(slot) else { return GONE };
        match open.reply.item(frame) {
            Flow::Go => GO,
            Flow::Gone => GONE,
            Flow::Wait => {
                let generation = open.generation;
                open.reply.changed(&Waker::from(Arc::new(Change { changes, slot, generation })));
                WAIT
            }
        }
    }

    /// Slots of calls of which something changed, and whether each is still awaited.
    fn changed(&mut self) -> Vec<(u32, bool)> {
        let woken = std::mem::take(&mut *self.changes.lock());
        let mut changed = Vec::new();
        for (slot, generation) in woken {
            if let Some(open) = self.open(slot).filter(|open| open.generation == generation) {
                changed.push((slot, open.reply.is_cancelled()));
            }
        }
        if self.is_stopping {
            self.abandon(&mut changed);
        }
        changed
    }

    /// A server that ends waits for no handler whose answer is not awaited. The handler may answer all the
    /// same, and requests may come that were sent before the server began to end: so the slot is not handed
    /// out again, and what is said of it later is said of nothing.
    fn abandon(&mut self, changed: &mut Vec<(u32, bool)>) {
        for (slot, place) in self.open.iter_mut().enumerate() {
            if place.take_if(|open| open.reply.is_cancelled()).is_some() {
                changed.push((slot as u32, true));
            }
        }
    }

    /// Puts in what changed; `false` when it was the last that may come now.
    fn put_changes(&mut self, filling: &mut AreaWriter<'_>) -> bool {
        let mut has_room = true;
        for (slot, is_gone) in self.changed() {
            let record = Record { what: CHANGED, slot, first: u32::from(is_gone), second: 0 };
            has_room &= filling.put(record, &[]);
        }
        has_room
    }

    /// Fills the area with what came.
    fn hear(&mut self, area: &mut [u8], from: usize) -> (usize, bool) {
        let mut spill = std::mem::take(&mut self.spill);
        let Some(mut filling) = spill.fill(area, from) else {
            self.spill = spill;
            return (from, false);
        };
        // Only now: changes that are taken and not told would be lost.
        let mut is_all = self.put_changes(&mut filling);
        while is_all && let Some(Incoming { request, reply, client, .. }) = self.server.next() {
            let number = client.number();
            let slot = self.admit(reply);
            let record = Record { what: REQUEST, slot, first: number as u32, second: (number >> 32) as u32 };
            is_all = filling.put(record, &request);
        }
        if is_all {
            // The server was asked for more until it had none, and did what it found on the way: what that
            // changed no descriptor tells of.
            is_all = self.put_changes(&mut filling);
        }
        let end = filling.end();
        self.spill = spill;
        (end, is_all)
    }
}

/// A server that listens.
#[napi]
pub struct Listener {
    desk: RefCell<Option<Desk>>,
    watch: RefCell<Option<Watch>>,
}

fn closed() -> napi::Error {
    failure("CLOSED", "this server was closed")
}

/// Counters of a server.
#[napi(object)]
pub struct ServerStats {
    pub clients: f64,
    pub shared_clients: f64,
    pub in_flight: f64,
    pub in_flight_bytes: f64,
    pub requests: f64,
    pub answers: f64,
}

/// Listens at every one of the endpoints.
#[napi]
pub fn listen_service(paths: Vec<String>, options: ListenOptions) -> Result<Listener> {
    let endpoints = paths.iter().map(|path| endpoint(path)).collect::<Result<Vec<_>>>()?;
    let server = Server::bind(&endpoints, options.take()?).map_err(|error| fault(&error))?;
    let desk = Desk {
        server,
        open: Vec::new(),
        free: Vec::new(),
        generation: 0,
        changes: Changes::default(),
        is_stopping: false,
        spill: Spill::default(),
    };
    Ok(Listener { desk: RefCell::new(Some(desk)), watch: RefCell::default() })
}

#[napi]
impl Listener {
    /// Calls `ready` whenever a turn has something to do.
    #[napi]
    pub fn watch(&self, env: Env, ready: Function<'_, (), ()>) -> Result<()> {
        let desk = self.desk.borrow();
        let desk = desk.as_ref().ok_or_else(closed)?;
        *self.watch.borrow_mut() = Some(Watch::start(&env, desk.server.descriptor(), ready)?);
        Ok(())
    }

    /// Says what is in the area; whether there is something to hear already.
    #[napi]
    pub fn flush(&self, mut area: Uint8ArraySlice<'_>, bytes: u32) -> Result<bool> {
        let mut desk = self.desk.borrow_mut();
        let desk = desk.as_mut().ok_or_else(closed)?;
        // SAFETY: JavaScript is in this call and touches the area only after it.
        let area = unsafe { area.as_mut() };
        let area = area.get_mut(..bytes as usize).unwrap_or(&mut []);
        let mut at = 0;
        while let Some((record, payload, next)) = read(area, at) {
            if let Some(value) = desk.say(record, area.get(payload).unwrap_or(&[])) {
                note(area, at, value);
            }
            at = next;
        }
        let came = desk.server.turn(Wait::Poll).map_err(|error| fault(&error))?;
        Ok(came > 0 || !desk.changes.lock().is_empty())
    }

    /// Takes a turn and fills the area with what came, from a byte on. Answers where it is filled up to; the
    /// complement of that when there is more, for which a fresh area has to have room for `waitingBytes`.
    #[napi]
    pub fn turn(&self, mut area: Uint8ArraySlice<'_>, from: u32) -> Result<i32> {
        let mut desk = self.desk.borrow_mut();
        let Some(desk) = desk.as_mut() else { return Ok(from as i32) };
        desk.server.turn(Wait::Poll).map_err(|error| fault(&error))?;
        // SAFETY: JavaScript is in this call, and there is no view of what lies behind `from`.
        let (end, is_all) = desk.hear(unsafe { area.as_mut() }, from as usize);
        Ok(if is_all { end as i32 } else { !(end as i32) })
    }

    /// Bytes of what did not fit.
    #[napi]
    pub fn waiting_bytes(&self) -> u32 {
        self.desk.borrow().as_ref().map_or(0, |desk| desk.spill.bytes() as u32)
    }

    /// Keeps the process alive, or no longer.
    #[napi]
    pub fn hold(&self, held: bool) {
        if let Some(watch) = &*self.watch.borrow() {
            watch.hold(held);
        }
    }

    /// Takes nothing new, and ends when what is under way was answered.
    #[napi]
    pub fn stop(&self) {
        if let Some(desk) = &mut *self.desk.borrow_mut() {
            desk.is_stopping = true;
            desk.server.stopper().stop();
        }
    }

    /// Whether it has ended.
    #[napi]
    pub fn is_over(&self) -> bool {
        self.desk.borrow().as_ref().is_none_or(|desk| desk.server.is_stopped())
    }

    /// What it did so far.
    #[napi]
    pub fn stats(&self) -> Result<ServerStats> {
        let desk = self.desk.borrow();
        let stats = desk.as_ref().ok_or_else(closed)?.server.statistics();
        Ok(ServerStats {
            clients: stats.clients as f64,
            shared_clients: stats.shared_clients as f64,
            in_flight: stats.in_flight as f64,
            in_flight_bytes: stats.in_flight_bytes as f64,
            requests: stats.requests as f64,
            answers: stats.answers as f64,
        })
    }

    /// Ends it there and then.
    #[napi]
    pub fn close(&self) {
        // The watch first: it lets go of a descriptor that the server owns.
        self.watch.borrow_mut().take();
        self.desk.borrow_mut().take();
    }
}
