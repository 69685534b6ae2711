//! `GET`: where to read from, and catch-up (PROTOCOL 5.6, 8).

use crate::access::FoundStream;
use crate::cache::{entity_tag, freshness};
use crate::condition::{Conditions, Verdict, changed};
use crate::expiry::remaining_s;
use crate::headers::{Headers, single};
use crate::live::{FROM_NOW, LiveStart, nothing_new};
use crate::problem::Problem;
use crate::span::{End, ReadHalt, Span};
use crate::store::{Read, Store, StoreError};
use crate::{ATTEMPTS_MAX, Streams, cursor};
use bytes::Bytes;
use std::borrow::Cow;
use thalweg_wire::exchange::{Answer, Live, Mode, Now, Pieces, Request, Response};
use thalweg_wire::field::Name;
use thalweg_wire::media::Kind;
use thalweg_wire::token::Token;
use thalweg_wire::{media, query};

/// What an `EventSource` that connects again says of the last event that it heard.
const LAST_HEARD: Name = Name::LastEventId;
/// Writers decide what is in a stream, so a stream that is opened as a page gets no origin: its scripts
/// cannot act in the name of this server, which answers more than streams.
const PAGE_OF_NO_ORIGIN: &[u8] = b"Content-Security-Policy: sandbox\r\n";
/// There is nothing more in front of `until`.
const UNTIL_REACHED: &[u8] = b"Stream-Until-Reached: true\r\n";

/// Where a reader wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Beginning,
    Now,
    At(Token),
}

/// What a query asks for.
struct ReadQuery {
    start: Start,
    span: Span,
    live: Option<Mode>,
    cursor_floor: u64,
    /// It goes on from the event that it heard last.
    again: bool,
}

impl<S: Store> Streams<S> {
    /// Catch-up, long-poll or events, as the query says.
    pub(crate) fn read(&self, name: &str, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        let query =
            ReadQuery::parse(request.query.unwrap_or(""), now).and_then(|query| query.or_again(request));
        let query = match query {
            Ok(query) => query,
            Err(problem) => return Answer::Respond(problem.respond()),
        };
        for _ in 0..ATTEMPTS_MAX {
            match self.read_as_found(name, &query, request, now) {
                Ok(answer) => return answer,
                // PROTOCOL 8: the beginning is where what is left begins, wherever retention has moved that
                // meanwhile.
                Err(StoreError::Purged) if query.is_relative() => {}
                Err(error) => return Answer::Respond(Problem::from(&error).respond()),
            }
        }
        Answer::Respond(Problem::overtaken().respond())
    }

    /// One look at where the stream stands, and the answer by it.
    fn read_as_found(
        &self,
        name: &str,
        query: &ReadQuery,
        request: &Request<'_>,
        now: Now,
    ) -> Result<Answer<S::Stream>, StoreError> {
        let found = match self.find_visible(name, now) {
            Ok(found) => found,
            Err(missing) => return Ok(Self::answer_missing(missing)),
        };
        let (offset, end) = match self.bounds(&found, query, now) {
            Ok(bounds) => bounds,
            Err(ReadHalt::Cold(work)) => return Ok(Answer::Cold(work)),
            Err(ReadHalt::Refused(problem)) => return Ok(Answer::Respond(problem.respond())),
        };
        // PROTOCOL 5.1: a read renews, `offset=now` included, when the server begins with it.
        self.renew(&found.stream, found.config.lifetime, now);
        // Bytes that would have to be waited for are brought in elsewhere; then this request comes again.
        if let Some(work) = self.store.cold(&found.stream, offset, self.options.catch_up_bytes_max) {
            return Ok(Answer::Cold(work));
        }
        if !query.is_relative() && self.splits_message(&found, offset) {
            return Ok(Answer::Respond(malformed().respond()));
        }
        // A time ahead of all records is the end there is now, as `now` is.
        let from_now =
            query.start == Start::Now || query.span.since_us.is_some() && offset >= found.state.tail;
        // A reader that began at the tail is told when retention took entries behind it, and not moved on.
        let begins = LiveStart { now: from_now, relative: query.is_relative() && !from_now };
        match query.live {
            // A reader that does not know the end would ask for ever; 204 is what stops an `EventSource`.
            Some(_) if query.again && found.state.closed && offset == found.state.tail => {
                Ok(Answer::Respond(nothing_new(self.tail(&found), None)))
            }
            Some(Mode::LongPoll) => self.await_news(found, offset, begins, query.cursor_floor, request, now),
            Some(Mode::Sse) => Ok(Self::await_events(found, offset, begins, query.cursor_floor, now)),
            None if query.start == Start::Now => Ok(Answer::Respond(self.nothing_yet(&found, end))),
            None => self.catch_up(&found, (offset, from_now), end, request, now).map(Answer::Respond),
        }
    }

    /// Where a read begins and ends.
    fn bounds(
        &self,
        found: &FoundStream<S>,
        query: &ReadQuery,
        now: Now,
    ) -> Result<(u64, Option<End>), ReadHalt> {
        let offset = match query.span.since_us {
            Some(since_us) => self.place(found, since_us)?,
            None => self.start_offset(found, query.start).map_err(ReadHalt::Refused)?,
        };
        let Some(until_us) = query.span.until_us else { return Ok((offset, None)) };
        let end = self.end(self.place(found, until_us)?, until_us, found, now);
        Ok((offset, Some(end)))
    }

    fn catch_up(
        &self,
        found: &FoundStream<S>,
        (offset, from_now): (u64, bool),
        end: Option<End>,
        request: &Request<'_>,
        now: Now,
    ) -> Result<Response, StoreError> {
        let mut read = self.store.read(&found.stream, offset, self.options.catch_up_bytes_max)?;
        let ended = end.is_some_and(|end| end.cut(offset, &mut read));
        let tag = entity_tag(found.mark(offset), &read);
        let mut headers = Headers::new();
        let moving = from_now || offset == read.next && !read.closed;
        self.read_lines(&mut headers, found, &read, &tag, moving, now);
        if ended {
            headers.constant(UNTIL_REACHED);
        }
        Ok(bytes_or_less(headers, found, read, &tag, Conditions::of(request)))
    }

    /// The answer of a long-poll that has something: a catch-up with a cursor.
    pub(crate) fn caught_up_live(
        &self,
        found: &FoundStream<S>,
        live: &Live,
        read: Read,
        conditions: Conditions<'_>,
        now: Now,
    ) -> Response {
        let (tag, from_now) = (entity_tag(found.mark(live.offset), &read), live.flavour & FROM_NOW != 0);
        let mut headers = Headers::new();
        // PROTOCOL 8: what `now` was is no business of a cache.
        self.read_lines(&mut headers, found, &read, &tag, from_now, now);
        // PROTOCOL 5.7: required in live modes, and left out where no further poll follows.
        if !(read.closed && read.at_tail) {
            headers.integer("Stream-Cursor", cursor::current(live.cursor, now));
        }
        bytes_or_less(headers, found, read, &tag, conditions)
    }

    /// The lines of PROTOCOL 5.6. A `moving` response describes a tail that will not stay: no cache keeps it.
    fn read_lines(
        &self,
        headers: &mut Headers,
        found: &FoundStream<S>,
        read: &Read,
        tag: &[u8],
        moving: bool,
        now: Now,
    ) {
        headers.line(Name::ContentType, found.config.content_type.as_bytes());
        headers.constant(PAGE_OF_NO_ORIGIN);
        headers.next_offset(self.token(found, read.next));
        // PROTOCOL 5.6: both only when everything there is has been read.
        headers.up_to_date(read.at_tail).closed(read.at_tail && read.closed);
        headers.line("ETag", tag);
        if moving {
            headers.constant(b"Cache-Control: no-cache\r\n");
        } else {
            let accessed_us = self.store.accessed(&found.stream);
            let remaining_s = remaining_s(found.config.lifetime, accessed_us, now.time_us);
            freshness(headers, self.options.sharing, remaining_s);
        }
    }

    /// The start as an offset in the stream as it is visible.
    fn start_offset(&self, found: &FoundStream<S>, start: Start) -> Result<u64, Problem> {
        match start {
            Start::Beginning => Ok(found.state.first),
            Start::Now => Ok(found.state.tail),
            // PROTOCOL 5.6: what an offset of a stream that was deleted stood for is gone.
            Start::At(token) if token != self.token(found, token.offset) => {
                let detail = "the offset belongs to another stream, or to one of this name that was deleted; \
                              read from -1";
                Err(Problem::new(410, "offset-gone", "offset", detail))
            }
            Start::At(token) if token.offset < found.state.first => Err(Problem::purged()),
            Start::At(token) if token.offset > found.state.tail => {
                let detail =
                    "the offset lies past the end of the stream; use a Stream-Next-Offset that it returned";
                Err(Problem::new(400, "offset-past-end", "offset", detail))
            }
            Start::At(token) => Ok(token.offset),
        }
    }

    /// Whether an offset lies inside what was appended as one, of a stream of messages: the server gave out
    /// no such offset, and what is read from it would be no JSON.
    fn splits_message(&self, found: &FoundStream<S>, offset: u64) -> bool {
        media::kind(&found.config.content_type) == Kind::Json
            && offset < found.state.tail
            && self.store.read(&found.stream, offset, 1).is_ok_and(|read| read.inside)
    }

    /// PROTOCOL 8, `offset=now` without live mode: an empty body at the tail, no tag, and no cache keeps it.
    fn nothing_yet(&self, found: &FoundStream<S>, end: Option<End>) -> Response {
        let mut headers = Headers::new();
        headers.line(Name::ContentType, found.config.content_type.as_bytes());
        headers.next_offset(self.tail(found)).up_to_date(true).closed(found.state.closed);
        headers.constant(b"Cache-Control: no-store\r\n");
        if end.is_some_and(End::is_final) {
            headers.constant(UNTIL_REACHED);
        }
        headers.respond(200, body(media::kind(&found.config.content_type), Pieces::new()))
    }
}

impl ReadQuery {
    /// It begins at a place that is found anew with each look, not at an offset.
    fn is_relative(&self) -> bool {
        !matches!(self.start, Start::At(_))
    }

    fn parse(text: &str, now: Now) -> Result<Self, Problem> {
        let known = query::values(text, ["offset", "live", "cursor", "since", "until"]);
        let [offset, live, client_cursor, since, until] =
            known.map_err(|error| Problem::new(400, error.code(), error.key(), error.to_string()))?;
        let live = match live.as_deref() {
            None => None,
            Some("long-poll") => Some(Mode::LongPoll),
            Some("sse") => Some(Mode::Sse),
            Some(_) => {
                return Err(Problem::new(400, "live-mode", "live", "live has to be `long-poll` or `sse`"));
            }
        };
        // PROTOCOL 5.7, 5.8: a live read says where it begins.
        if live.is_some() && offset.is_none() && since.is_none() {
            let detail = "a live read needs an offset: -1 (the beginning), now (what comes next), or a Stream-Next-Offset";
            return Err(Problem::new(400, "offset-required", "offset", detail));
        }
        if offset.is_some() && since.is_some() {
            let detail =
                "a read begins at an offset or at a time, not at both: to continue, send the offset alone";
            return Err(Problem::new(400, "start-named-twice", "since", detail));
        }
        if live.is_some() && until.is_some() {
            let detail =
                "a live read has no end: leave out live to read until a time, or until to follow the stream";
            return Err(Problem::new(400, "until-live", "until", detail));
        }
        let span = Span::parse(since.as_deref(), until.as_deref())?;
        Ok(Self {
            start: start(offset)?,
            span,
            live,
            cursor_floor: cursor::floor(client_cursor.as_deref(), now),
            again: false,
        })
    }

    /// The same from the event that an `EventSource` heard last: it asks for what it was opened with,
    /// whatever came since. An extension of ours.
    fn or_again(self, request: &Request<'_>) -> Result<Self, Problem> {
        let heard = if self.live == Some(Mode::Sse) { single(request, LAST_HEARD)? } else { None };
        let Some(heard) = heard.filter(|heard| !heard.is_empty()) else { return Ok(self) };
        let detail = "it has to be the id of an event, exactly as the server sent it";
        let token =
            Token::parse(heard).ok_or_else(|| Problem::new(400, "offset-malformed", LAST_HEARD, detail))?;
        Ok(Self { start: Start::At(token), span: Span::default(), again: true, ..self })
    }
}

/// What was read, by what the client has of it. PROTOCOL 10.1: 304 instead of what it has all of.
fn bytes_or_less<S: Store>(
    headers: Headers,
    found: &FoundStream<S>,
    read: Read,
    tag: &[u8],
    conditions: Conditions<'_>,
) -> Response {
    match conditions.judge(|current| current == tag) {
        Verdict::Proceed => headers.respond(200, body(media::kind(&found.config.content_type), read.pieces)),
        Verdict::Has => headers.respond_empty(304),
        Verdict::Failed => changed().respond(),
    }
}

/// PROTOCOL 8: the sentinels, or a token as the server wrote it.
fn start(offset: Option<Cow<'_, str>>) -> Result<Start, Problem> {
    match offset.as_deref() {
        None | Some("-1") => Ok(Start::Beginning),
        Some("now") => Ok(Start::Now),
        Some(text) => Token::parse(text.as_bytes()).map(Start::At).ok_or_else(malformed),
    }
}

fn malformed() -> Problem {
    let detail = "an offset is -1, now, or a Stream-Next-Offset exactly as the server sent it";
    Problem::new(400, "offset-malformed", "offset", detail)
}

/// The body of a read. PROTOCOL 9.1.5: JSON messages come as one array; they are stored with a comma
/// behind each, so the last one goes and brackets come around, without a copy.
pub(crate) fn body(kind: Kind, mut pieces: Pieces) -> Pieces {
    if kind != Kind::Json {
        return pieces;
    }
    pieces.reserve_exact(2);
    if let Some(last) = pieces.last_mut()
        && last.last() == Some(&b',')
    {
        last.truncate(last.len() - 1);
    }
    pieces.insert(0, Bytes::from_static(b"[").into());
    pieces.push(Bytes::from_static(b"]").into());
    pieces
}
