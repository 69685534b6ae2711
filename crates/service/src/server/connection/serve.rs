//! Begins calls: cuts a connection's input into frames and hands requests to the handler.

use crate::server::calls::answers::Place;
use crate::server::calls::call::Grant;
use crate::server::calls::framing::Framing;
use crate::server::calls::inline;
use crate::server::calls::reply::Reply;
use crate::server::collector::{ServerCore, client};
use crate::server::connection::busy::{Busy, NEVER_MS, Stage};
use crate::server::connection::in_flight::{Begun, Turn};
use crate::server::connection::next_frame::{self, NextFrame, RequestHead};
use crate::server::connection::slot::Phase;
use crate::server::engine::Engine;
use crate::server::handler::{ClientId, Handler, Request};
use crate::server::turn::ServerTurn;
use std::time::{Duration, Instant};
use thalweg_reactor::Key;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{HEADER_BYTES, LENGTH_BYTES};
use thalweg_wire::service::error_frame;

impl<H: Handler> ServerTurn<'_, H> {
    /// Deals with what came, as far as it is whole and the connection may begin calls.
    pub(crate) fn serve(&mut self, key: Key, busy: &mut Busy, alone: bool) {
        let Some(mut phase) = client(self.core, key).map(|client| client.phase) else { return };
        while busy.stage != Stage::Closing {
            let unread = busy.input.unread();
            if phase == Phase::Fresh {
                if unread.is_empty() {
                    return;
                }
                match self.engine.open(self.core, self.collector, key, busy) {
                    Some(opened) => phase = opened,
                    None => return,
                }
                continue;
            }
            let length_max = self.engine.options.frame_bytes_max;
            let frame = match phase {
                Phase::Multiplexed => next_frame::multiplexed(unread, length_max),
                _ => next_frame::plain(unread, length_max),
            };
            match frame {
                NextFrame::More => {
                    let head = if phase == Phase::Multiplexed { HEADER_BYTES } else { LENGTH_BYTES };
                    let first_bytes = next_frame::first_bytes(unread, head);
                    return busy.input.announce(first_bytes);
                }
                // One that is too long counts against no bound, and is refused as soon as its header came.
                NextFrame::Request(head) if self.engine.is_overfull(busy, head.length) => {
                    busy.next_bytes = head.length;
                    busy.input.wait(self.core.now_ms());
                    self.engine.pause((key, phase), busy);
                    if !busy.hides_credit() || busy.answered_bytes() > self.engine.options.unsent_bytes_max {
                        return;
                    }
                    self.engine.shed(busy, head);
                }
                // A refusal may be longer than what it refuses, so unsent refusals are bounded too.
                NextFrame::TooLong { .. } if busy.answered_bytes() > self.engine.options.unsent_bytes_max => {
                    busy.next_bytes = 0;
                    return self.engine.pause((key, phase), busy);
                }
                NextFrame::Request(head) => {
                    self.tell_given_up();
                    let last = unread.len() == head.total();
                    self.request((key, phase), busy, head, alone && last);
                }
                other => self.engine.control((key, phase), busy, other),
            }
        }
    }

    /// Begins one call and hands it to the handler.
    #[inline]
    fn request(&mut self, (key, phase): (Key, Phase), busy: &mut Busy, head: RequestHead, alone: bool) {
        let Self { engine, core, handler, .. } = self;
        engine.statistics.requests += 1;
        engine.serial += 1;
        let serial = engine.serial;
        let id = if phase == Phase::Plain { serial } else { head.id };
        let framing = Engine::framing(phase, id);
        let total = head.total();
        if let Some((fault, message)) = engine.objection(busy, phase, id) {
            busy.input.consume(total);
            return engine.refuse(busy, framing, fault, message);
        }
        let since_ms = busy.input.since_ms(total, core.now_ms());
        let Some((deadline, deadline_ms)) = due(core, since_ms, head.deadline_ms) else {
            busy.input.consume(total);
            return engine.refuse(busy, framing, Fault::DeadlineExceeded, "before its handler began");
        };
        let call = engine.calls.take();
        if head.credit > 0 {
            call.begin_with(head.credit);
        }
        if busy.congested {
            call.congest();
        }
        let place = Place { key, id, serial };
        let reply = Reply::new(call.clone(), place);
        let start = busy.output.buffer().len();
        let Busy { input, output, .. } = busy;
        let request = Request {
            frame: &input.unread()[head.head..total],
            client: ClientId::of(key),
            call: id,
            deadline,
            alone,
        };
        let full_at = output.length_at(engine.options.unsent_bytes_max);
        let handle = || handler.request(request, reply);
        let ended = inline::handle(&call, framing, output.buffer(), full_at, handle);
        busy.input.consume(total);
        if ended {
            engine.statistics.answers += 1;
            engine.calls.give(call);
            if phase == Phase::Plain && busy.order.pending() > 0 {
                wait_behind_others(busy, serial, start);
            }
            return;
        }
        // A frame's length has 32 bits.
        let bytes = head.length as u32;
        engine.statistics.in_flight += 1;
        engine.statistics.in_flight_bytes += u64::from(bytes);
        // What was answered without an end is items.
        let is_stream = busy.output.buffer().len() > start;
        let turn = (phase == Phase::Plain).then(|| take_turn(busy, serial, start));
        if turn.as_ref().is_some_and(|turn| turn.answered.is_empty()) {
            // What a plain connection's stream sends is granted again as it leaves.
            engine.grants.push((place, Grant::UpTo(engine.options.stream_credit)));
        }
        busy.in_flight.insert(Begun { id, serial, call, turn, is_stream, deadline_ms, bytes });
        engine.congest(busy);
        engine.watch_deadline(core, key, busy, deadline_ms);
    }
}

impl Engine {
    /// Why a call cannot begin.
    #[inline]
    pub(crate) fn objection(&self, busy: &mut Busy, phase: Phase, id: u64) -> Option<(Fault, &'static str)> {
        if self.draining {
            return Some((Fault::Draining, "the server is ending"));
        }
        if phase == Phase::Multiplexed && busy.in_flight.find(id).is_some() {
            return Some((Fault::DuplicateId, "a call with this id has not ended yet"));
        }
        None
    }

    /// Frames that are no request.
    fn control(&mut self, (key, phase): (Key, Phase), busy: &mut Busy, frame: NextFrame) {
        match frame {
            NextFrame::Cancel(id) => {
                busy.input.consume(HEADER_BYTES);
                self.end_early(busy, key, id, Fault::Cancelled, "the client cancelled it");
            }
            NextFrame::Credit(id, items) => {
                busy.input.consume(HEADER_BYTES);
                if let Some(begun) = busy.in_flight.find(id) {
                    let place = Place { key, id, serial: begun.serial };
                    self.grants.push((place, Grant::Items(items)));
                }
            }
            NextFrame::TooLong { id, bytes } => {
                busy.input.skip(bytes);
                let message = format!("{} bytes are allowed", self.options.frame_bytes_max);
                self.tell(busy, Self::framing(phase, id), Fault::FrameTooLarge, &message);
            }
            NextFrame::ProtocolError { id, fault } => {
                self.tell(busy, Self::framing(phase, id), fault, "the connection ends");
                busy.stage = Stage::Closing;
            }
            NextFrame::More | NextFrame::Request(_) => {}
        }
    }

    /// Answers a call that does not begin.
    pub(crate) fn refuse(&mut self, busy: &mut Busy, framing: Framing, fault: Fault, message: &str) {
        self.statistics.answers += 1;
        self.tell(busy, framing, fault, message);
    }

    /// Writes a fault in place of an answer, whether or not a call began.
    pub(crate) fn tell(&mut self, busy: &mut Busy, framing: Framing, fault: Fault, message: &str) {
        let says = if fault.says() == message { message.to_owned() } else { format!("{fault}: {message}") };
        let frame = error_frame(&self.options.error_tag, &says);
        let start = busy.output.buffer().len();
        framing.write(busy.output.buffer(), &frame, Some(fault as u16));
        if framing == Framing::Plain && busy.order.pending() > 0 {
            self.serial += 1;
            wait_behind_others(busy, self.serial, start);
        }
    }
}

/// The deadline, also in the reactor's milliseconds; `None` when it has passed already.
fn due(core: &ServerCore, since_ms: u64, deadline_ms: u32) -> Option<(Option<Instant>, u64)> {
    if deadline_ms == 0 {
        return Some((None, NEVER_MS));
    }
    // One more than asked: the millisecond it came in has partly passed.
    let due_ms = since_ms + u64::from(deadline_ms) + 1;
    let left_ms = due_ms.saturating_sub(core.fresh_now_ms());
    (left_ms > 0).then(|| (Some(Instant::now() + Duration::from_millis(left_ms)), due_ms))
}

/// A plain connection's call was answered at once, but others are before it.
fn wait_behind_others(busy: &mut Busy, serial: u64, start: usize) {
    let answer = busy.output.buffer().split_off(start);
    busy.waiting_bytes += answer.len();
    let sequence = busy.order.expect();
    busy.turns.push_back(serial);
    busy.order.complete(sequence, answer);
}

/// A plain connection's call begins: it takes its place, and what it answered so far waits for its turn.
fn take_turn(busy: &mut Busy, serial: u64, start: usize) -> Turn {
    let sequence = busy.order.expect();
    busy.turns.push_back(serial);
    let answered =
        if busy.order.is_first(sequence) { Vec::new() } else { busy.output.buffer().split_off(start) };
    busy.waiting_bytes += answered.len();
    Turn { sequence, answered }
}
