//! What a server says: cuts what came in into frames, and finds the call that each is of.
//!
//! A multiplexed frame names its call, and its kind says whether more comes. A plain one answers the oldest
//! question, and its tag says whether more comes; so of a plain frame that is too long to be taken the tag is
//! read all the same.

use super::{Found, Place, Session};
use crate::call::{CallId, EventKind};
use crate::error::Error;
use std::ops::Range;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameError, FrameKind, HEADER_BYTES, Header, LENGTH_BYTES};
use thalweg_wire::messagepack::Reader;

impl Session {
    /// The next frame of a call in flight.
    #[inline]
    pub(super) fn arrive(&mut self) -> Option<Found> {
        if self.broken.is_some() {
            return None;
        }
        let arrived = if self.bounds.plain { self.arrive_plain() } else { self.arrive_multiplexed() };
        arrived.unwrap_or_else(|error| {
            self.broken = Some(error);
            None
        })
    }

    fn arrive_multiplexed(&mut self) -> Result<Option<Found>, Error> {
        while let Some(header) = self.incoming.header().map_err(nonsense)? {
            let (call, length) = (CallId(header.id), header.length as usize);
            if header.length > self.bounds.frame_bytes_max {
                self.incoming.pass_over(HEADER_BYTES + length);
                if matches!(header.kind, FrameKind::Item | FrameKind::End) && self.calls.is_current(call) {
                    self.tell(Header::new(FrameKind::Cancel, call.0, 0));
                }
                if let Some(found) = self.too_long(call, length) {
                    return Ok(Some(found));
                }
                continue;
            }
            let Some(range) = self.incoming.take(HEADER_BYTES, length) else { return Ok(None) };
            match header.kind {
                FrameKind::Item if self.calls.is_current(call) => {
                    if let Some(why) = self.no_item(call, &range) {
                        self.tell(Header::new(FrameKind::Cancel, call.0, 0));
                        self.end(call);
                        return Ok(Some(bad_answer(call, why)));
                    }
                    if !self.calls.spend(call) {
                        return Err(Error::new(Fault::BadFrame, "the server sent an item beyond its credit"));
                    }
                    return Ok(Some(Found { call, kind: EventKind::Item, place: Place::Received(range) }));
                }
                FrameKind::End if self.calls.is_current(call) && self.end(call) => {
                    let kind = match header.fault {
                        0 if names_item(self.incoming.frame(range.clone())) == Some(true) => {
                            return Ok(Some(bad_answer(call, "the last frame is an item")));
                        }
                        0 => EventKind::End,
                        code => EventKind::Failed(refusal(code, self.incoming.frame(range.clone()))),
                    };
                    return Ok(Some(Found { call, kind, place: Place::Received(range) }));
                }
                FrameKind::Item | FrameKind::End => {}
                FrameKind::Goodbye => self.draining = true,
                kind => return Err(nonsense(FrameError::UnknownKind(kind as u8))),
            }
        }
        Ok(None)
    }

    fn arrive_plain(&mut self) -> Result<Option<Found>, Error> {
        while let Some(length) = self.incoming.plain_length().map_err(nonsense)? {
            let Some(call) = self.order.first() else {
                return Err(Error::new(Fault::BadFrame, "the server sent an answer to no question"));
            };
            if length > self.bounds.frame_bytes_max {
                // Once: while its tag is awaited the call has ended.
                let found = self.too_long(call, length as usize);
                let Some(beginning) = self.incoming.beginning(length as usize) else { return Ok(found) };
                let is_item = names_item(beginning) == Some(true);
                self.incoming.pass_over(LENGTH_BYTES + length as usize);
                if !is_item {
                    self.order.pop();
                }
                if found.is_some() {
                    return Ok(found);
                }
                continue;
            }
            let Some(range) = self.incoming.take(LENGTH_BYTES, length as usize) else { return Ok(None) };
            if names_item(self.incoming.frame(range.clone())) == Some(true) {
                if self.calls.has(call) {
                    if let Some(why) = self.no_item(call, &range) {
                        self.end(call);
                        return Ok(Some(bad_answer(call, why)));
                    }
                    return Ok(Some(Found { call, kind: EventKind::Item, place: Place::Received(range) }));
                }
                continue;
            }
            self.order.pop();
            if self.end(call) {
                return Ok(Some(Found { call, kind: EventKind::End, place: Place::Received(range) }));
            }
        }
        Ok(None)
    }

    /// Why what came as an item of a call is none.
    fn no_item(&self, call: CallId, range: &Range<usize>) -> Option<&'static str> {
        if self.calls.is_unary(call) {
            return Some("an item of a stream, where one frame was to answer");
        }
        let names_another = names_item(self.incoming.frame(range.clone())) == Some(false);
        names_another.then_some("what came as an item is none")
    }

    fn too_long(&mut self, call: CallId, length: usize) -> Option<Found> {
        let allowed = self.bounds.frame_bytes_max;
        (self.calls.is_current(call) && self.end(call)).then(|| {
            let detail = format!("an answer of {length} bytes, {allowed} are allowed");
            let error = Error::new(Fault::FrameTooLarge, detail);
            Found { call, kind: EventKind::Failed(error), place: Place::Nowhere }
        })
    }
}

/// Whether a frame's tag is an item's, which alone ends in `Item` by the rules of the schema; `None` for a
/// frame without a tag, which its reader reports. A plain connection has no frame kinds and goes by this;
/// elsewhere the tag has to fit the kind.
fn names_item(frame: &[u8]) -> Option<bool> {
    Reader::new(frame).response().ok().map(|tag| tag.ends_with(b"Item"))
}

fn bad_answer(call: CallId, why: &str) -> Found {
    Found { call, kind: EventKind::Failed(Error::new(Fault::BadAnswer, why)), place: Place::Nowhere }
}

#[cold]
fn nonsense(error: FrameError) -> Error {
    Error::new(error.fault(), format!("the server sent {error}"))
}

/// What the server said when it ended a call with a fault.
#[cold]
fn refusal(code: u16, frame: &[u8]) -> Error {
    let detail = message_of(frame).unwrap_or_default();
    match Fault::of(code) {
        Some(fault) => Error::new(fault, detail),
        None => Error::new(Fault::BadAnswer, format!("a fault with the unknown code {code}: {detail}")),
    }
}

/// The message in an error's frame.
fn message_of(frame: &[u8]) -> Option<String> {
    let mut reader = Reader::new(frame);
    reader.response().ok()?;
    if reader.fields("error").ok()? != 1 || reader.key().ok()? != b"message" {
        return None;
    }
    reader.string().ok().map(std::borrow::Cow::into_owned)
}
