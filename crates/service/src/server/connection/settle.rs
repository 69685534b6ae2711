//! Takes in answers that handlers gave later, or on other threads.
//!
//! On a multiplexed connection a frame goes straight to the output. On a plain one it does so when its call
//! is the oldest; otherwise it is kept with the call, and an end in the order's own stash.
//!
//! *Credit is given last* ([`Engine::grant_all`]): items that were held back for want of it may leave only
//! behind those that were pushed before them, so when there are any, what was pushed is taken once more.

use crate::server::calls::answers::{Piece, Place};
use crate::server::calls::call::{Grant, Held};
use crate::server::collector::{ServerCore, client};
use crate::server::connection::busy::Busy;
use crate::server::engine::Engine;
use thalweg_reactor::Key;
use thalweg_wire::frame::FrameKind;

impl Engine {
    /// Takes everything that was answered so far.
    pub(crate) fn take_answers(&mut self, core: &mut ServerCore) {
        let mut batch = std::mem::take(&mut self.batch);
        self.answers.take(&mut batch);
        for piece in &batch.pieces {
            self.settle(core, piece, batch.payload(piece));
        }
        batch.clear();
        self.batch = batch;
    }

    fn settle(&mut self, core: &mut ServerCore, piece: &Piece, payload: &[u8]) {
        let end = (piece.kind == FrameKind::End).then_some(piece.fault);
        let place = piece.place;
        if end.is_some() {
            self.statistics.in_flight -= 1;
        }
        // Without a box nothing is in flight: the client is gone, or its slot belongs to another.
        let Some(mut busy) = client(core, place.key).and_then(|client| client.busy.take()) else { return };
        self.spare.equip(&mut busy);
        match (busy.in_flight.find_exact(place.id, place.serial), end) {
            (Some(_), Some(fault)) => self.end_call(&mut busy, place, fault, payload),
            (Some(_), None) => self.write_item(&mut busy, place, payload),
            // The call had ended for its client before its handler ended it.
            (None, Some(_)) => {
                self.statistics.in_flight_bytes -= busy.in_flight.forget(place.serial);
            }
            (None, None) => {}
        }
        self.mark_dirty(place.key, &mut busy);
        if let Some(client) = client(core, place.key) {
            client.busy = Some(busy);
        }
    }

    /// An item of a call in flight goes out, or waits for its turn.
    fn write_item(&mut self, busy: &mut Busy, place: Place, payload: &[u8]) {
        let Busy { in_flight, order, output, waiting_bytes, .. } = busy;
        let Some(begun) = in_flight.find(place.id) else { return };
        let framing = begun.framing();
        if let Some(turn) = begun.turn.as_mut().filter(|turn| !order.is_first(turn.sequence)) {
            *waiting_bytes += turn.answer(|answered| framing.write(answered, payload, None));
            if *waiting_bytes > self.options.unsent_bytes_max {
                // Until its turn comes, when it is granted credit.
                begun.call.congest();
            }
            return;
        }
        if begun.turn.is_some() {
            // What leaves is granted again; what stays is stopped by congestion.
            self.grants.push((place, Grant::Items(1)));
        }
        begun.is_stream = true;
        framing.write(output.buffer(), payload, None);
        self.congest(busy);
    }

    /// The end of a call in flight goes out, or waits for its turn.
    pub(crate) fn end_call(&mut self, busy: &mut Busy, place: Place, fault: u16, payload: &[u8]) {
        let Some(begun) = busy.in_flight.remove(place.id) else { return };
        self.statistics.answers += 1;
        self.statistics.in_flight_bytes -= u64::from(begun.bytes);
        let framing = begun.framing();
        self.calls.give(begun.call);
        let Some(mut turn) = begun.turn else {
            framing.write(busy.output.buffer(), payload, Some(fault));
            return self.congest(busy);
        };
        if busy.order.is_first(turn.sequence) {
            framing.write(busy.output.buffer(), payload, Some(fault));
        } else {
            busy.waiting_bytes += turn.answer(|answered| framing.write(answered, payload, Some(fault)));
        }
        busy.order.complete(turn.sequence, turn.answered);
        self.advance(busy, place.key);
    }

    /// Sends the answers of complete calls in order, up to the first incomplete one, and what that one has
    /// so far.
    fn advance(&mut self, busy: &mut Busy, key: Key) {
        while let Some(answer) = busy.order.pop() {
            busy.waiting_bytes -= answer.len();
            busy.output.buffer().extend_from_slice(&answer);
            busy.turns.pop_front();
        }
        self.congest(busy);
        let Some(first) = busy.turns.front().copied() else { return };
        if let Some(begun) = busy.in_flight.find(first)
            && let Some(turn) = &mut begun.turn
        {
            busy.waiting_bytes -= turn.answered.len();
            busy.output.buffer().append(&mut turn.answered);
            let place = Place { key, id: begun.id, serial: begun.serial };
            self.grants.push((place, Grant::UpTo(self.options.stream_credit)));
        }
    }

    /// Gives calls the credit they are owed; what was held back for want of it leaves.
    pub(crate) fn grant_all(&mut self, core: &mut ServerCore) {
        while let Some((place, grant)) = self.grants.pop() {
            let Some(busy) = client(core, place.key).and_then(|client| client.busy.as_mut()) else {
                continue;
            };
            let Busy { in_flight, order, waiting_bytes, congested, .. } = &mut **busy;
            let Some(begun) = in_flight.find_exact(place.id, place.serial) else { continue };
            let waits = begun.turn.as_ref().is_some_and(|turn| !order.is_first(turn.sequence));
            // A call behind as much as may wait for its turn has room once its own turn comes.
            let congested = *congested || waits && *waiting_bytes > self.options.unsent_bytes_max;
            if begun.call.grant(grant, congested) {
                continue;
            }
            // Items that it pushed before it began to hold any back leave first.
            self.take_answers(core);
            let Some(client) = client(core, place.key) else { continue };
            let Some(mut busy) = client.busy.take() else { continue };
            self.release(&mut busy, place);
            self.mark_dirty(place.key, &mut busy);
            client.busy = Some(busy);
        }
    }

    fn release(&mut self, busy: &mut Busy, place: Place) {
        let Busy { in_flight, order, output, waiting_bytes, .. } = busy;
        let Some(begun) = in_flight.find_exact(place.id, place.serial) else { return };
        let framing = begun.framing();
        let (mut items, mut end) = (0, None);
        let call = &begun.call;
        let mut leave = |output: &mut Vec<u8>| {
            call.release(|held| match held {
                Held::Item(frame) => {
                    framing.write(output, &frame, None);
                    items += 1;
                }
                Held::End(fault, frame) => end = Some((fault, frame)),
            });
        };
        let is_granted_again = match &mut begun.turn {
            Some(turn) if !order.is_first(turn.sequence) => {
                *waiting_bytes += turn.answer(leave);
                false
            }
            turn => {
                leave(output.buffer());
                turn.is_some()
            }
        };
        begun.is_stream |= items > 0;
        self.congest(busy);
        if let Some((fault, frame)) = end {
            self.statistics.in_flight -= 1;
            self.end_call(busy, place, fault, &frame);
        } else if is_granted_again && items > 0 {
            self.grants.push((place, Grant::Items(items)));
        }
    }
}
