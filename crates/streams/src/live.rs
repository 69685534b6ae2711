//! Live reads (PROTOCOL 5.7, 5.8): long-polls and events, as steps that a subscription is asked for.
//!
//! A step depends on the stream and on the subscriber's few words only, so that a reactor can encode it
//! once for everybody who stands at the same place. What is sent is visible, hence durable.

use crate::access::FoundStream;
use crate::condition::Conditions;
use crate::expiry::is_expired;
use crate::headers::Headers;
use crate::problem::Problem;
use crate::read::body;
use crate::span::ReadHalt;
use crate::store::{Lifetime, Read, Store, StoreError};
use crate::{Streams, cursor};
use bytes::Bytes;
use smallvec::SmallVec;
use thalweg_wire::exchange::{Advance, Answer, Live, Mode, Now, Request, Response};
use thalweg_wire::media::{self, Kind};
use thalweg_wire::piece::Piece;
use thalweg_wire::sse;
use thalweg_wire::token::Token;

// Flavours of a live read by events: what its payload is.
const JSON: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
/// Flavour of a long-poll that began at `offset=now`: its answer depends on when it was asked.
pub(crate) const FROM_NOW: u8 = 1;
/// Beside the flavour: it begins at the first record that is kept, not at an offset that was named.
const FROM_FIRST: u8 = Live::UNOPENED;

/// Bytes that frame a data and a control event, roughly.
const FRAME_BYTES: usize = 240;

impl<S: Store> Streams<S> {
    /// The answer to a long-poll: at once if there is something to say, else a subscription. `begins`: from
    /// now on, and where what is left does, should retention come between.
    ///
    /// # Errors
    /// What stands at the offset cannot be read.
    pub(crate) fn await_news(
        &self,
        found: FoundStream<S>,
        offset: u64,
        begins: LiveStart,
        cursor: u64,
        request: &Request<'_>,
        now: Now,
    ) -> Result<Answer<S::Stream>, StoreError> {
        let flavour = begins.of_poll();
        let live = Live { mode: Mode::LongPoll, flavour, opened: false, offset, cursor };
        Ok(match self.poll(&found, &live, Conditions::of(request), now)? {
            Some(response) => Answer::Respond(response),
            None => Answer::Live {
                topic_id: found.incarnation,
                topic: found.stream,
                live,
                head: Response::default(),
                lasts_ms: lasts_ms(found.config.lifetime, now),
            },
        })
    }

    /// The answer to a live read by events: a subscription, whose first events come with it.
    pub(crate) fn await_events(
        found: FoundStream<S>,
        offset: u64,
        begins: LiveStart,
        cursor: u64,
        now: Now,
    ) -> Answer<S::Stream> {
        let head = event_stream(media::kind(&found.config.content_type));
        let flavour = flavour(&found) | begins.of_events();
        let live = Live { mode: Mode::Sse, flavour, opened: false, offset, cursor };
        let lasts_ms = lasts_ms(found.config.lifetime, now);
        Answer::Live { topic_id: found.incarnation, topic: found.stream, live, head, lasts_ms }
    }

    /// What a subscriber is to be sent now. One that begins where what is left begins, and was sent nothing
    /// yet, is not refused for what retention took since.
    pub(crate) fn step(&self, stream: &S::Stream, live: &Live, now: Now) -> Advance {
        let moves = live.flavour & FROM_FIRST != 0 && !live.opened;
        let mut from = Live { flavour: live.flavour & !FROM_FIRST, ..*live };
        loop {
            if let Some(work) = self.store.cold(stream, from.offset, self.bytes_max(live.mode)) {
                return Advance::Cold(work);
            }
            let advance = match live.mode {
                Mode::Sse => self.events(stream, &from, now),
                Mode::LongPoll => {
                    self.poll_stream(stream, &from, now).map_or(Advance::Wait, Advance::Respond)
                }
            };
            let is_overtaken = matches!(&advance, Advance::Respond(refused) if refused.status == 410);
            if !(moves && is_overtaken) {
                return advance;
            }
            match self.store.visible(stream) {
                Some(state) if state.first > from.offset => from.offset = state.first,
                _ => return advance,
            }
        }
    }

    /// Counts as one more request of those who follow a stream and ask only once: renews it, or ends it if
    /// its time is over. After how many milliseconds to say so again, if at all.
    pub fn still_followed(&self, stream: &S::Stream, now: Now) -> Option<u32> {
        let lifetime = self.store.config(stream).lifetime;
        self.renew(stream, lifetime, now);
        // The delete that this stages ends those who follow once it is there.
        if self.expire(stream, now).is_some() { None } else { lasts_ms(lifetime, now) }
    }

    /// The answer of a long-poll whose time is up.
    pub(crate) fn poll_ended(&self, stream: &S::Stream, live: &Live, now: Now) -> Response {
        let lifetime = self.store.config(stream).lifetime;
        if is_expired(lifetime, self.store.accessed(stream), now.time_us)
            && let Some(expired) = self.expire(stream, now)
        {
            // The delete that this stages is not waited for: the answer says only that the time is over.
            return expired.problem().respond();
        }
        let nothing = || {
            let next = self.token_of(stream, live.offset);
            nothing_new(next, Some(cursor::current(live.cursor, now)))
        };
        match self.step(stream, live, now) {
            Advance::Respond(response) => response,
            // What would have to be waited for is for the next poll, which waits elsewhere.
            Advance::Cold(_) | Advance::Wait | Advance::Events { .. } => nothing(),
        }
    }

    /// How much one answer, or one event, has at most.
    fn bytes_max(&self, mode: Mode) -> usize {
        match mode {
            Mode::Sse => self.options.event_bytes_max,
            Mode::LongPoll => self.options.catch_up_bytes_max,
        }
    }

    /// The token of an offset in a stream of which no more is known.
    pub(crate) fn token_of(&self, stream: &S::Stream, offset: u64) -> Token {
        Token { incarnation: self.store.owner(stream, offset), offset }
    }

    fn poll_stream(&self, stream: &S::Stream, live: &Live, now: Now) -> Option<Response> {
        // PROTOCOL 5.4: a read in flight ends with 404 after deletion.
        let Some(state) = self.store.visible(stream) else {
            return Some(self.missing(stream).problem().respond());
        };
        let config = self.store.config(stream);
        let incarnation = self.store.incarnation(stream);
        let found = FoundStream { stream: stream.clone(), state, config, incarnation };
        // Conditions are judged for an answer at once: what has come since, the client cannot have.
        let polled = self.poll(&found, live, Conditions::default(), now);
        polled.unwrap_or_else(|error| Some(Problem::from(&error).respond()))
    }

    /// The answer of a long-poll, if there is something to say.
    fn poll(
        &self,
        found: &FoundStream<S>,
        live: &Live,
        conditions: Conditions<'_>,
        now: Now,
    ) -> Result<Option<Response>, StoreError> {
        let read = self.store.read(&found.stream, live.offset, self.options.catch_up_bytes_max)?;
        if read.next > live.offset {
            return Ok(Some(self.caught_up_live(found, live, read, conditions, now)));
        }
        // PROTOCOL 5.7: at the tail of a closed stream no poll waits.
        Ok(read.closed.then(|| nothing_new(self.token(found, read.next), None)))
    }

    fn events(&self, stream: &S::Stream, live: &Live, now: Now) -> Advance {
        let read =
            self.event(stream, live).and_then(|read| Ok((self.splits_line_end(stream, live, &read)?, read)));
        let (splits, mut read) = match read {
            Ok(read) => read,
            Err(ReadHalt::Cold(work)) => return Advance::Cold(work),
            // Nothing was sent yet, so that the reader can be told why nothing will be.
            Err(ReadHalt::Refused(problem)) if !live.opened => return Advance::Respond(problem.respond()),
            // The response is under way, so its end is all that can be told (PROTOCOL 5.4).
            Err(ReadHalt::Refused(_)) => {
                return Advance::Events { bytes: Bytes::new(), next: live.offset, end: true };
            }
        };
        // PROTOCOL 5.8: closed, everything sent: a last control event, then the end.
        let (end, at_tail) = (read.at_tail && read.closed, read.at_tail);
        // Part of a character at the tail may be all there ever is. A subscriber that was sent what lies in
        // front of it has all that an event can say, and knows where the rest begins: other reads return it
        // as bytes.
        if live.flavour == TEXT && !end {
            read.shorten(unfinished(&read));
        }
        let empty = read.next == live.offset;
        if empty && live.opened && !end {
            return Advance::Wait;
        }
        let mut unsaid_bytes = read.next - live.offset;
        if splits && unsaid_bytes > 0 {
            read.pieces[0].advance(1);
            unsaid_bytes -= 1;
        }
        let mut out = Vec::with_capacity(events_bytes(live.flavour, &read));
        let next = self.token_of(stream, read.next);
        sse::place(&mut out, next);
        if unsaid_bytes > 0 {
            data_event(&mut out, live.flavour, &read);
        }
        // PROTOCOL 5.8: a control event after every data event; alone when there is no data yet.
        let control = sse::Control {
            next,
            cursor: (!end).then(|| cursor::current(live.cursor, now)),
            up_to_date: at_tail,
            closed: end,
        };
        sse::control_event(&mut out, &control);
        Advance::Events { bytes: out.into(), next: read.next, end }
    }

    /// What the next event is made of: of text, more than part of a character, unless there is no more yet.
    /// Or else what has to be brought into memory first, if anything can be read at all.
    fn event(&self, stream: &S::Stream, live: &Live) -> Result<Read, ReadHalt> {
        let mut limit = self.options.event_bytes_max;
        loop {
            let read = self.store.read(stream, live.offset, limit);
            let read = read.map_err(|error| ReadHalt::Refused(self.unread(stream, &error)))?;
            let held = live.flavour == TEXT && read.next - unfinished(&read) == live.offset;
            let Some(twice) = limit.max(1).checked_mul(2).filter(|_| held && !read.at_tail) else {
                return Ok(read);
            };
            // The rest of the character begins a record that had no room beside its first bytes.
            limit = twice;
            if let Some(work) = self.store.cold(stream, live.offset, limit) {
                return Err(ReadHalt::Cold(work));
            }
        }
    }

    /// Whether text begins with the second half of a line end whose first half, a CR, was sent before: as a
    /// line end, for it may have been all there ever was.
    fn splits_line_end(&self, stream: &S::Stream, live: &Live, read: &Read) -> Result<bool, ReadHalt> {
        let first = read.pieces.first().and_then(|piece| piece.first());
        let Some(before) =
            live.offset.checked_sub(1).filter(|_| live.flavour == TEXT && first == Some(&b'\n'))
        else {
            return Ok(false);
        };
        if let Some(work) = self.store.cold(stream, before, 1) {
            return Err(ReadHalt::Cold(work));
        }
        // What is no longer kept says nothing.
        let before = self.store.read(stream, before, 1);
        Ok(before.is_ok_and(|read| read.pieces.first().and_then(|piece| piece.first()) == Some(&b'\r')))
    }

    /// Why a stream that was found is not read.
    fn unread(&self, stream: &S::Stream, error: &StoreError) -> Problem {
        match error {
            StoreError::Gone => self.missing(stream).problem(),
            error => Problem::from(error),
        }
    }
}

/// Where a live read begins, beside its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveStart {
    /// At what was the end when it was asked.
    pub(crate) now: bool,
    /// Where what is left does, should retention take what lies at its offset.
    pub(crate) relative: bool,
}

impl LiveStart {
    fn of_poll(self) -> u8 {
        self.of_events() | if self.now { FROM_NOW } else { 0 }
    }

    fn of_events(self) -> u8 {
        if self.relative { FROM_FIRST } else { 0 }
    }
}

fn flavour<S: Store>(found: &FoundStream<S>) -> u8 {
    match media::kind(&found.config.content_type) {
        Kind::Json => JSON,
        Kind::Text => TEXT,
        Kind::Binary => BINARY,
    }
}

/// PROTOCOL 5.1: each request renews a sliding lifetime. A live read lasts half of that, and the follower's
/// next request renews it, so that no stream ends while it is followed. At its instant a stream ends whoever
/// follows it, and so does the read.
fn lasts_ms(lifetime: Lifetime, now: Now) -> Option<u32> {
    let ms = match lifetime {
        Lifetime::Sliding { ttl_s } => ttl_s.saturating_mul(500),
        Lifetime::Until { expires_us } => expires_us.saturating_sub(now.time_us).div_ceil(1_000),
        Lifetime::Unlimited => return None,
    };
    Some(u32::try_from(ms).unwrap_or(u32::MAX))
}

/// The head of an event stream.
fn event_stream(kind: Kind) -> Response {
    let mut headers = Headers::new();
    headers.constant(b"Content-Type: text/event-stream\r\n");
    headers.constant(b"Cache-Control: no-cache\r\n");
    // PROTOCOL 5.8: what is neither text nor JSON travels as base64, and the head says so.
    if kind == Kind::Binary {
        headers.constant(b"Stream-SSE-Data-Encoding: base64\r\n");
    }
    headers.respond_empty(200)
}

/// PROTOCOL 5.7: 204 with the tail; a cursor while the stream is open, the closure once it is not.
pub(crate) fn nothing_new(next: Token, cursor: Option<u64>) -> Response {
    let mut headers = Headers::new();
    headers.next_offset(next).up_to_date(true).closed(cursor.is_none());
    if let Some(cursor) = cursor {
        headers.integer("Stream-Cursor", cursor);
    }
    headers.constant(b"Cache-Control: no-store\r\n");
    headers.respond_empty(204)
}

/// Appends the data event of a read.
fn data_event(out: &mut Vec<u8>, flavour: u8, read: &Read) {
    match flavour {
        JSON => {
            let pieces = body(Kind::Json, read.pieces.clone());
            sse::text_event(out, pieces.iter().map(Piece::as_ref));
        }
        TEXT => sse::text_event(out, read.pieces.iter().map(Piece::as_ref)),
        _ => sse::base64_event(out, read.pieces.iter().map(Piece::as_ref)),
    }
}

/// Bytes at the end of a text read that go with what follows: part of a character (PROTOCOL 5.8: text events
/// are UTF-8), or, where something does follow, a CR that its LF may follow. At the tail a CR is not held
/// back: it may be all there ever is.
fn unfinished(read: &Read) -> u64 {
    // A character's bytes may have come in as many records.
    let bytes = read.pieces.iter().rev().flat_map(|piece| piece.iter().rev());
    let mut last: SmallVec<[u8; 3]> = bytes.take(3).copied().collect();
    last.reverse();
    let waits = !(read.at_tail && last.last() == Some(&b'\r'));
    if waits { sse::unfinished_bytes(&last) as u64 } else { 0 }
}

/// Room for the events, so that encoding allocates once unless the payload has many lines.
fn events_bytes(flavour: u8, read: &Read) -> usize {
    let payload: usize = read.pieces.iter().map(|piece| piece.len()).sum();
    FRAME_BYTES + if flavour == BINARY { payload.div_ceil(3) * 4 } else { payload + payload / 16 }
}
