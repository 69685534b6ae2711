//! Forks (PROTOCOL 4.2): what a creator may ask for, where that branches off, and whether an existing fork is
//! what is asked for again.
//!
//! The source is judged by its staged view, like everything a commit depends on: the fork's own commit comes
//! behind, so it is never durable before what it inherits.

use crate::Streams;
use crate::access::FoundStream;
use crate::headers::single;
use crate::message_ends::MessageSearch;
use crate::problem::Problem;
use crate::store::{Fork, Read, Store, StoreError};
use thalweg_wire::decimal::{self, SAFE_INTEGER_MAX};
use thalweg_wire::exchange::{Now, Request, Work};
use thalweg_wire::field::Name;
use thalweg_wire::media;
use thalweg_wire::path::{self, STREAMS};
use thalweg_wire::token::Token;

const FORKED_FROM: Name = Name::StreamForkedFrom;
const OFFSET: Name = Name::StreamForkOffset;
const SUB_OFFSET: Name = Name::StreamForkSubOffset;

/// The least token of all. No stream has incarnation 0, so it stands for the beginning of any.
const BEGINNING: Token = Token { incarnation: 0, offset: 0 };

/// Where a creator wants to branch off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    /// PROTOCOL 4.2: the source's tail, when no offset is named.
    Tail,
    At(Token),
}

/// The fork that a creator asks for.
#[derive(Debug)]
pub(crate) struct ForkRequest {
    source: String,
    anchor: Anchor,
    sub_offset: u64,
}

/// Why there is no fork, or not yet.
pub(crate) enum ForkHalt {
    /// Refused, on grounds that are durable once the ticket is complete, if the store can say which.
    Refused(Result<u64, StoreError>, Problem),
    /// Retention was faster: what the source keeps has to be looked at again.
    Moved,
    /// What decides it has to be brought into memory first.
    Cold(Work),
}

impl ForkRequest {
    /// What the request's headers ask for; `None` without any of the three.
    pub(crate) fn parse(request: &Request<'_>) -> Result<Option<Self>, Problem> {
        let anchor = single(request, OFFSET)?.map(anchor).transpose()?;
        let sub_offset = single(request, SUB_OFFSET)?.map(sub_offset).transpose()?;
        let Some(source) = single(request, FORKED_FROM)? else {
            // PROTOCOL 5.1: both require Stream-Forked-From.
            let sent = |name: &Name| request.field(*name).is_some();
            let lone = [OFFSET, SUB_OFFSET].into_iter().find(sent);
            return lone.map_or(Ok(None), |name| {
                let detail = "this header needs Stream-Forked-From, which names the source of the fork";
                Err(Problem::new(400, "fork-source-required", name, detail))
            });
        };
        let (source, sub_offset) = (source_name(source)?, sub_offset.unwrap_or(0));
        // PROTOCOL 4.2: a sub-offset counts from an offset; behind the tail there is nothing to count.
        if sub_offset > 0 && anchor.is_none() {
            let detail = "this header counts from Stream-Fork-Offset, which the request lacks";
            return Err(Problem::new(400, "fork-offset-required", SUB_OFFSET, detail));
        }
        Ok(Some(Self { source, anchor: anchor.unwrap_or(Anchor::Tail), sub_offset }))
    }
}

/// PROTOCOL 4.2: the path component of the source's URL, on this server.
fn source_name(value: &[u8]) -> Result<String, Problem> {
    let malformed = |detail: String| Problem::new(400, "fork-source-malformed", FORKED_FROM, detail);
    let path = std::str::from_utf8(value).ok().filter(|path| path.starts_with('/')).ok_or_else(|| {
        malformed("name the source by its path on this server, for example /v1/stream/source".to_owned())
    })?;
    // A path that no stream has names one that does not exist.
    let encoded = path.strip_prefix(STREAMS).ok_or_else(source_missing)?;
    path::stream_name(encoded).map(|name| name.into_owned()).map_err(|error| malformed(error.to_string()))
}

/// PROTOCOL 4.2: a malformed offset is 400. PROTOCOL 8: the sentinels are offsets too.
fn anchor(value: &[u8]) -> Result<Anchor, Problem> {
    match value {
        b"-1" => Ok(Anchor::At(BEGINNING)),
        b"now" => Ok(Anchor::Tail),
        token => Token::parse(token).map(Anchor::At).ok_or_else(offset_malformed),
    }
}

fn offset_malformed() -> Problem {
    let detail = "a fork offset is -1, now, or a Stream-Next-Offset exactly as the server sent it";
    Problem::new(400, "fork-offset-malformed", OFFSET, detail)
}

/// PROTOCOL 4.2: a non-negative integer.
fn sub_offset(value: &[u8]) -> Result<u64, Problem> {
    decimal::parse(value, SAFE_INTEGER_MAX).ok_or_else(|| {
        let detail =
            "it has to be a plain decimal integer of at most 2^53-1: bytes, or messages of a JSON stream";
        Problem::new(400, "fork-sub-offset-malformed", SUB_OFFSET, detail)
    })
}

fn source_missing() -> Problem {
    let detail = "no stream exists at that path; a fork needs a source on this server";
    Problem::new(404, "fork-source-missing", FORKED_FROM, detail)
}

impl<S: Store> Streams<S> {
    /// The source, and the place in it that a request comes to.
    pub(crate) fn branch(
        &self,
        asked: &ForkRequest,
        now: Now,
    ) -> Result<(FoundStream<S>, Fork<S::Stream>), ForkHalt> {
        let source = self.find_staged(&asked.source, now).map_err(|missing| {
            let problem = if missing.retained {
                // PROTOCOL 4.2: a soft-deleted source is 409.
                let detail = "the source is deleted and kept for its forks only; fork one of those";
                Problem::new(409, "fork-source-deleted", FORKED_FROM, detail)
            } else {
                // PROTOCOL 4.2: a source that does not exist is 404.
                source_missing()
            };
            ForkHalt::Refused(missing.settled, problem)
        })?;
        let refused = |problem| ForkHalt::Refused(self.store.ticket(&source.stream), problem);
        let from = match asked.anchor {
            Anchor::Tail => source.state.tail,
            // As for a read: where what is left begins.
            Anchor::At(BEGINNING) => source.state.first,
            Anchor::At(token) => {
                let from = self.known_offset(&source, token).map_err(refused)?;
                self.between_messages(&source, from)?;
                from
            }
        };
        let base = match asked.sub_offset {
            // PROTOCOL 4.2: 0 is as absent.
            0 => from,
            count => self.refine(&source, from, count)?,
        };
        let anchor = match asked.anchor {
            Anchor::Tail => None,
            // As it was asked for, wherever that was: what is left may begin later when it is asked for
            // again.
            Anchor::At(BEGINNING) => Some(0),
            Anchor::At(_) => Some(from),
        };
        let fork = Fork { source: source.stream.clone(), base, anchor, sub_offset: asked.sub_offset };
        Ok((source, fork))
    }

    /// The offset that a token stands for in the source.
    fn known_offset(&self, source: &FoundStream<S>, token: Token) -> Result<u64, Problem> {
        if token.offset > source.state.tail {
            // PROTOCOL 4.2: an offset past the source's tail is 400.
            let detail = "the offset lies past the source's end; use a Stream-Next-Offset of the source";
            return Err(Problem::new(400, "fork-offset-past-end", OFFSET, detail));
        }
        // PROTOCOL 8: an offset is one that the server returned for this stream.
        if token != self.token(source, token.offset) {
            let detail = "the offset was issued for another stream, or for an earlier one of that name; use a Stream-Next-Offset of the source";
            return Err(Problem::new(400, "fork-offset-foreign", OFFSET, detail));
        }
        if token.offset < source.state.first {
            let detail = "the records at that offset are no longer kept: fork at -1, where the oldest that are kept begin, or later";
            return Err(Problem::new(410, "offset-gone", OFFSET, detail));
        }
        Ok(token.offset)
    }

    /// Of a stream of messages, an offset inside what was appended as one is none that the server gave out.
    fn between_messages(&self, source: &FoundStream<S>, from: u64) -> Result<(), ForkHalt> {
        if media::kind(&source.config.content_type) == media::Kind::Json
            && from < source.state.tail
            && self.record(&source.stream, from)?.inside
        {
            return Err(ForkHalt::Refused(self.store.ticket(&source.stream), offset_malformed()));
        }
        Ok(())
    }

    /// What is left of the record at an offset, once it is in memory.
    fn record(&self, stream: &S::Stream, from: u64) -> Result<Read, ForkHalt> {
        if let Some(work) = self.store.cold(stream, from, 1) {
            return Err(ForkHalt::Cold(work));
        }
        self.store.record(stream, from).map_err(|error| match error {
            StoreError::Purged => ForkHalt::Moved,
            error => ForkHalt::Refused(Ok(0), Problem::from(&error)),
        })
    }

    /// The place `count` bytes or messages behind `from`, within the record there.
    fn refine(&self, source: &FoundStream<S>, from: u64, count: u64) -> Result<u64, ForkHalt> {
        let stream = &source.stream;
        let record = self.record(stream, from)?;
        let place = match media::kind(&source.config.content_type) {
            // PROTOCOL 4.2: of a JSON stream, flattened messages.
            media::Kind::Json => self.behind_messages(stream, from, &record, count)?,
            // PROTOCOL 4.2: of any other, bytes of the body.
            media::Kind::Text | media::Kind::Binary => Some(count),
        };
        let end = place.and_then(|bytes| from.checked_add(bytes)).filter(|end| *end <= record.next);
        end.ok_or_else(|| {
            // PROTOCOL 4.2: past the next data boundary is 400.
            let detail = "the sub-offset is larger than what is left of the append at Stream-Fork-Offset";
            let problem = Problem::new(400, "fork-sub-offset-past-end", SUB_OFFSET, detail);
            ForkHalt::Refused(self.store.ticket(stream), problem)
        })
    }

    /// Bytes up to behind the separator of the `count`-th of a record's messages; `None` if it has fewer.
    fn behind_messages(
        &self,
        stream: &S::Stream,
        from: u64,
        record: &Read,
        count: u64,
    ) -> Result<Option<u64>, ForkHalt> {
        let sought =
            MessageSearch { incarnation: self.store.incarnation(stream), from, to: record.next, count };
        self.message_ends.behind(sought, &record.pieces).map_err(ForkHalt::Cold)
    }

    /// The header in which an existing stream differs from the fork asked for, if it does.
    /// PROTOCOL 4.2: a match includes Stream-Forked-From and Stream-Fork-Offset.
    pub(crate) fn branch_mismatch(
        &self,
        have: Option<&Fork<S::Stream>>,
        asked: Option<&ForkRequest>,
    ) -> Option<Name> {
        let (have, asked) = match (have, asked) {
            (None, None) => return None,
            (Some(have), Some(asked)) => (have, asked),
            _ => return Some(FORKED_FROM),
        };
        // A source keeps its name as long as it has forks, so the name decides.
        let source = self.store.find(asked.source.as_bytes());
        let identity = |stream: &S::Stream| self.store.incarnation(stream);
        if source.is_none_or(|source| identity(&source) != identity(&have.source)) {
            return Some(FORKED_FROM);
        }
        let anchor = have.anchor.unwrap_or(have.base);
        let same = match asked.anchor {
            // A client that asks for the tail again is not refused because the tail has moved.
            Anchor::Tail => {
                let tail = self.store.staged(&have.source).map(|source| source.tail);
                have.anchor.is_none() || tail == Some(anchor)
            }
            Anchor::At(BEGINNING) => anchor == 0,
            Anchor::At(token) => {
                let at = if have.sub_offset == 0 { have.base } else { anchor };
                token.offset == at && token.incarnation == self.store.owner(&have.source, at)
            }
        };
        if !same {
            return Some(OFFSET);
        }
        (asked.sub_offset != have.sub_offset).then_some(SUB_OFFSET)
    }
}
