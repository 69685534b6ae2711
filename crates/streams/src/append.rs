//! `POST`: append, close, or both at once (PROTOCOL 5.2, 5.2.1, 5.3); and what the server appends itself.
//!
//! The decision is a pure function of the staged state, the producer's place and the request; it is taken
//! again whenever another commit comes first.

use crate::access::FoundStream;
use crate::condition::Conditions;
use crate::create::{malformed_media, suffix};
use crate::headers::{Headers, asks_to_close, single};
use crate::problem::Problem;
use crate::producer::{self, Claim, Judgement, KEY_BYTES_MAX};
use crate::store::{Commit, Config, ProducerState, State, Store, StoreError};
use crate::{ATTEMPTS_MAX, Streams};
use std::borrow::Cow;
use thalweg_wire::exchange::{Answer, Now, Request, Response};
use thalweg_wire::field::Name;
use thalweg_wire::token::Token;
use thalweg_wire::{json, media};

/// A request whose form is right.
struct Input<'a> {
    body: &'a [u8],
    close: bool,
    /// `None` without a body: then the content type does not matter.
    media: Option<&'a str>,
    writer_seq: Option<&'a [u8]>,
    claim: Option<Claim<'a>>,
    conditions: Conditions<'a>,
}

impl<S: Store> Streams<S> {
    /// 204, or 200 for a producer's new data, once the commit is durable.
    pub(crate) fn append(&self, name: &str, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        match Input::parse(request) {
            Ok(input) => self.append_input(name, &input, now),
            Err(problem) => Answer::Respond(problem.respond()),
        }
    }

    /// One record that the server itself has to say, by the rules of a POST that brings it. Whether the
    /// stream took it.
    pub(crate) fn append_record(&self, name: &str, record: &[u8], media: &str, now: Now) -> bool {
        if self.options.is_read_only(name) {
            return false;
        }
        let input = Input {
            body: record,
            close: false,
            media: Some(media),
            writer_seq: None,
            claim: None,
            conditions: Conditions::default(),
        };
        match self.append_input(name, &input, now) {
            Answer::Respond(response) | Answer::After(_, response) => response.status < 300,
            Answer::Cold(_) | Answer::Live { .. } | Answer::Later(_) => false,
        }
    }

    fn append_input(&self, name: &str, input: &Input<'_>, now: Now) -> Answer<S::Stream> {
        let mut content = None;
        for _ in 0..ATTEMPTS_MAX {
            let found = match self.find_staged(name, now) {
                Ok(found) => found,
                Err(missing) => return Self::answer_missing(missing),
            };
            if let Some(answer) = self.append_to(&found, input, &mut content, now) {
                return answer;
            }
        }
        Answer::Respond(Problem::contended().respond())
    }

    /// Decides and commits; `None` if the stream moved on meanwhile. What there is to append is made once,
    /// since a body of JSON may take longer than others leave the stream alone: it follows from the body and
    /// its content type, which is the stream's whenever it is asked for.
    fn append_to<'a>(
        &self,
        found: &FoundStream<S>,
        input: &Input<'a>,
        content: &mut Option<Cow<'a, [u8]>>,
        now: Now,
    ) -> Option<Answer<S::Stream>> {
        let FoundStream { stream, state, config, .. } = found;
        let known = input.claim.and_then(|claim| self.store.producer(stream, claim.id));
        let place = match decide(state, config, known, input, self.tail(found)) {
            Decision::Commit(place) => place,
            // What the producer came to may be newer than the state that was read before it.
            Decision::Answer(_) if known.is_some() && self.has_moved(stream, state) => return None,
            Decision::Answer(response) => {
                if response.status < 400 {
                    self.renew(stream, config.lifetime, now);
                }
                return Some(self.answer_settled(stream, response));
            }
        };
        if content.is_none() {
            match input.content(config) {
                Ok(made) => *content = Some(made),
                Err(problem) => return Some(self.answer_settled(stream, problem.respond())),
            }
        }
        if let Some(problem) = input.conditions.refuse_write(found) {
            return Some(self.answer_settled(stream, problem.respond()));
        }
        let payload = content.as_deref().unwrap_or_default();
        let commit = Commit {
            payload,
            suffix: if payload.is_empty() { b"" } else { suffix(config) },
            // PROTOCOL 5.2.1: producer state is committed atomically with the data.
            producer: input.claim.zip(place).map(|(claim, place)| (claim.id, place)),
            writer_seq: input.writer_seq,
            notes: &[],
            close: input.close,
            time_us: now.time_us,
        };
        match self.store.commit(stream, state.version, &commit) {
            Ok(receipt) => {
                self.renew(stream, config.lifetime, now);
                // PROTOCOL 5.2.1: 200 for a producer's new data; 204 for everything else that succeeds.
                let status = if place.is_some() && !input.body.is_empty() { 200 } else { 204 };
                let response = success(status, self.token(found, receipt.next), input.close, place);
                Some(Self::answer_after(receipt.ticket, response))
            }
            Err(StoreError::Conflict | StoreError::Gone) => None,
            Err(error) => Some(self.answer_settled(stream, Problem::from(&error).respond())),
        }
    }

    /// Whether something was staged since a state.
    fn has_moved(&self, stream: &S::Stream, state: &State) -> bool {
        self.store.staged(stream).is_none_or(|staged| staged.version != state.version)
    }
}

impl<'a> Input<'a> {
    fn parse(request: &Request<'a>) -> Result<Self, Problem> {
        let close = asks_to_close(request);
        let body = request.body;
        // PROTOCOL 5.2: an empty body is valid only to close.
        if body.is_empty() && !close {
            let detail =
                "the body is empty: send the bytes to append, or Stream-Closed: true to close the stream";
            return Err(Problem::new(400, "body-empty", "body", detail));
        }
        // PROTOCOL 5.2: with an empty body the content type is ignored, with any other it is needed.
        let media = match single(request, Name::ContentType)? {
            _ if body.is_empty() => None,
            None | Some(b"") => {
                let detail = "a body needs a Content-Type, the same as the stream's";
                return Err(Problem::new(400, "content-type-missing", Name::ContentType, detail));
            }
            Some(value) => Some(media::parse(value).ok_or_else(malformed_media)?),
        };
        let writer_seq = single(request, Name::StreamSeq)?;
        if writer_seq.is_some_and(|seq| seq.is_empty() || seq.len() > KEY_BYTES_MAX) {
            return Err(Problem::new(400, "writer-seq", Name::StreamSeq, "it has to have 1 to 1024 bytes"));
        }
        let (claim, conditions) = (producer::claim(request)?, Conditions::of(request));
        Ok(Self { body, close, media, writer_seq, claim, conditions })
    }

    /// The bytes to append.
    fn content(&self, config: &Config) -> Result<Cow<'a, [u8]>, Problem> {
        if self.body.is_empty() {
            return Ok(Cow::Borrowed(self.body));
        }
        match payload(config, self.body)? {
            // PROTOCOL 9.1.3: appending an empty array is refused.
            (0, _) => Err(Problem::new(
                400,
                "json-empty-array",
                "body",
                "an empty array would append nothing; send at least one message",
            )),
            (_, content) => Ok(content),
        }
    }
}

/// How many messages a non-empty body holds, and the bytes that store them (all but the last separator).
pub(crate) fn payload<'a>(config: &Config, body: &'a [u8]) -> Result<(u64, Cow<'a, [u8]>), Problem> {
    if media::kind(&config.content_type) != media::Kind::Json {
        return Ok((1, Cow::Borrowed(body)));
    }
    // PROTOCOL 9.1.4: what is appended is valid JSON. PROTOCOL 9.1.2: one level of array is flattened.
    let messages = json::messages(body)
        .map_err(|error| Problem::new(400, "json-malformed", "body", error.to_string()))?;
    Ok((messages.count, messages.joined))
}

/// What a request comes to, given the staged state.
enum Decision {
    /// Commit, with this place of the producer (`Some` exactly if the request claims one).
    Commit(Option<ProducerState>),
    /// Commit nothing; this is the answer.
    Answer(Response),
}

fn decide(
    state: &State,
    config: &Config,
    known: Option<ProducerState>,
    input: &Input<'_>,
    tail: Token,
) -> Decision {
    // PROTOCOL 5.2, error precedence: closed, then content type, then sequence.
    if state.closed {
        return Decision::Answer(on_closed(state, input, tail));
    }
    if let Some(media) = input.media
        && !media::same(media, &config.content_type)
    {
        // PROTOCOL 5.2, 12.4: valid but not the stream's.
        let detail =
            format!("the stream's content type is {}: send the body with that one", config.content_type);
        let problem = Problem::new(409, "content-type-mismatch", Name::ContentType, detail);
        return Decision::Answer(problem.respond());
    }
    let mut place = None;
    if let Some(claim) = input.claim {
        match producer::judge(known, claim.place) {
            Judgement::Accept(accepted) => place = Some(accepted),
            // PROTOCOL 5.2.1: a duplicate succeeds without a write and tells the highest sequence accepted.
            Judgement::Duplicate(known) => return Decision::Answer(success(204, tail, false, Some(known))),
            Judgement::Stale { epoch } => return Decision::Answer(producer::stale(epoch)),
            Judgement::NewEpochNotAtZero => return Decision::Answer(producer::new_epoch_not_at_zero()),
            Judgement::Gap { expected } => return Decision::Answer(producer::gap(expected, claim.place.seq)),
        }
    }
    // PROTOCOL 5.2, 12.6: strictly increasing, compared byte by byte.
    if let (Some(seq), Some(last)) = (input.writer_seq, state.writer_seq.as_deref())
        && seq <= last
    {
        let detail = "a Stream-Seq that is equal or greater was accepted before; each has to be greater than the last, compared byte by byte";
        return Decision::Answer(
            Problem::new(409, "writer-seq-regression", Name::StreamSeq, detail).respond(),
        );
    }
    Decision::Commit(place)
}

/// The answer to any POST once the stream is closed.
fn on_closed(state: &State, input: &Input<'_>, tail: Token) -> Response {
    match input.claim {
        // PROTOCOL 5.2.1: the very request that closed the stream is a duplicate and succeeds.
        Some(claim)
            if state.closed_by.as_ref().is_some_and(|by| *by.id == *claim.id && by.state == claim.place) =>
        {
            return success(204, tail, true, Some(claim.place));
        }
        // PROTOCOL 5.2.1: any other is told that it is closed, of whatever epoch it is.
        Some(_) => {}
        // PROTOCOL 5.2, 5.3: closing a closed stream without data succeeds.
        None if input.close && input.body.is_empty() => return success(204, tail, true, None),
        None => {}
    }
    // PROTOCOL 5.2: 409 says that the stream is closed, and where it ends.
    Problem::new(409, "stream-closed", Name::StreamClosed, "the stream is closed and takes no more data")
        .respond_with(|headers| {
            headers.next_offset(tail).closed(true);
        })
}

fn success(status: u16, next: Token, closed: bool, place: Option<ProducerState>) -> Response {
    let mut headers = Headers::new();
    headers.next_offset(next).closed(closed);
    if let Some(place) = place {
        producer::place_lines(&mut headers, place);
    }
    headers.respond_empty(status)
}
