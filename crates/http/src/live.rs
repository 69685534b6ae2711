//! Live requests: subscribed, parked, fanned out to, ended.
//!
//! A subscriber's position lives in the reactor's slab, its few other facts in its entry. Subscribers at the
//! same position in one walk over a topic are sent the same bytes, encoded once ([`Memo`]).

use crate::at::At;
use crate::connection::{Flags, LiveRequest, Manner, Role};
use crate::patience::{deadline_left_ms, note_deadline};
use crate::reactor::{ConnectionEnd, Http, HttpCore, Message};
use bytes::Bytes;
use std::sync::Arc;
use thalweg_reactor::Key;
use thalweg_sys::clock::monotonic_ns;
use thalweg_wire::exchange::{Advance, Live, Mode, Response, Service, Work};
use thalweg_wire::http1::{CHUNK_END, Framing, LAST_CHUNK, chunk_head};

/// Keeps a proxy from taking a silent stream for a dead one. Clients ignore comments.
const COMMENT: &[u8] = b": keep-alive\n\n";
/// When a subscriber is looked at again whose time ended while its bytes were brought in.
const LATE_MS: u32 = 100;
/// Events of one subscriber per turn; a long history is sent over several, so that others come between.
const ROUNDS_MAX: usize = 8;
/// Subscribers of one topic that are served in one turn.
const SLICE: usize = 512;
/// Distinct positions remembered in one walk.
const MEMO_MAX: usize = 16;

/// What became of a live request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveProgress {
    /// It waits: for a movement, for the socket, for the next turn.
    Parked,
    /// Its response is complete; the connection is between requests again.
    Ended,
}

/// What a position is sent, ready for the wire.
#[derive(Clone, Debug)]
enum Step {
    Wait,
    Events {
        /// The events, plain.
        plain: Bytes,
        /// The same as one chunk; empty when there are no bytes.
        chunk: Bytes,
        next: u64,
        end: bool,
    },
    Respond(Arc<Response>),
}

/// Subscribers of a topic that moved, those already served taken out.
#[derive(Debug)]
struct Walk {
    topic_id: u64,
    keys: Vec<Key>,
    memo: Memo,
    /// The topic moved since.
    again: bool,
}

/// The steps of one walk, by position. It may outlive a movement of the topic that is announced: a subscriber
/// that is then told to wait too early is served by the walk that the movement starts. It outlives no time in
/// which the topic was not watched, for then nothing starts that walk ([`FanOut::forget`]).
#[derive(Debug, Default)]
struct Memo {
    topic_id: Option<u64>,
    steps: Vec<(Live, Step)>,
}

/// The walks over the subscribers of topics that moved.
#[derive(Debug, Default)]
pub(crate) struct FanOut {
    /// What the walk that is served now remembers.
    memo: Memo,
    /// Those that take more than one turn.
    walks: Vec<Walk>,
}

impl FanOut {
    /// Forgets what walks over a topic remember: nobody watched it a moment ago, so that it may have moved
    /// without an announcement.
    fn forget(&mut self, topic_id: u64) {
        let walks = self.walks.iter_mut().map(|walk| &mut walk.memo);
        let memos = walks.chain([&mut self.memo]).filter(|memo| memo.topic_id == Some(topic_id));
        memos.for_each(|memo| memo.steps.clear());
    }
}

impl<S: Service> Http<S> {
    /// Subscribes the connection and serves it for the first time. The watch comes before the look, so
    /// that no movement falls between them.
    pub(crate) fn begin_live(
        &mut self,
        at: &mut At<'_, S>,
        starting: LiveRequest<S::Topic>,
    ) -> Result<LiveProgress, ConnectionEnd> {
        if self.load.subscribers() >= self.config.subscribers_max {
            return self.refuse_subscriber(at, &starting);
        }
        let LiveRequest { topic_id, topic, live, head, lasts_ms, mut manner } = starting;
        let sse = live.mode == Mode::Sse;
        manner.close |= self.draining || (sse && manner.legacy);
        let lifetime_ms = match live.mode {
            Mode::Sse => self.config.sse_lifetime_ms(at.core.entropy()),
            Mode::LongPoll => self.config.long_poll_timeout_ms,
        };
        let lifetime_ms = lasts_ms.map_or(lifetime_ms, |lasts_ms| lifetime_ms.min(lasts_ms));
        self.load.follow();
        let entry = at.entry()?;
        entry.role = if sse { Role::Sse } else { Role::LongPoll };
        entry.flavour = live.flavour;
        entry.cursor = live.cursor;
        entry.flags.forget();
        entry.flags.set(Flags::OPENED, live.opened);
        entry.flags.set(Flags::CHUNKED, sse && !manner.legacy);
        entry.flags.set(Flags::LEGACY, manner.legacy);
        entry.flags.set(Flags::CLOSE, manner.close);
        note_deadline(at.core, at.key, lifetime_ms);
        if at.core.subscribe(at.key, topic_id, live.offset, || topic.clone()) {
            self.fan_out.forget(topic_id);
            self.service.watch(&topic);
        }
        if sse {
            let framing = if manner.legacy { Framing::UntilClose } else { Framing::Chunked };
            self.date.refresh(at.core.wall_us());
            self.stage_opening(&head, framing, manner);
            at.core.set_timer(at.key, lifetime_ms.min(self.config.sse_keep_alive_ms));
        } else {
            at.core.set_timer(at.key, lifetime_ms);
        }
        self.pump(at)
    }

    /// Sends the subscriber what there is, until it has all, its socket is full, or others want a turn.
    pub(crate) fn pump(&mut self, at: &mut At<'_, S>) -> Result<LiveProgress, ConnectionEnd> {
        for _ in 0..ROUNDS_MAX {
            if at.active.warming || at.active.put_off {
                // The head of what just began may leave.
                self.send_staged(at)?;
                return Ok(LiveProgress::Parked);
            }
            let (topic_id, live) = position(at.core, at.key).ok_or(ConnectionEnd::Close)?;
            // A walk is put off as a whole, so that what it encodes is encoded once.
            if self.load.reads_wait() && self.fan_out.memo.topic_id.is_none() {
                self.send_staged(at)?;
                break;
            }
            if live.mode == Mode::Sse && deadline_left_ms(at.core, at.key) == 0 {
                return self.end_sse(at);
            }
            let step = match self.step(at.core, topic_id, &live) {
                Ok(step) => step,
                Err(work) => {
                    self.send_staged(at)?;
                    match self.warm_live(at, live, work)? {
                        Some(pumped) => return Ok(pumped),
                        None => continue,
                    }
                }
            };
            at.active.warmings = 0;
            match step {
                Step::Wait => return self.park(at, topic_id, &live),
                Step::Respond(response) => return self.respond_live(at, &response),
                Step::Events { plain, chunk, next, end } => {
                    let chunked = self.move_on(at.core, at.key, next)?;
                    let bytes = if chunked { chunk } else { plain };
                    if !bytes.is_empty() && !self.join_batch(at, &bytes) {
                        self.stage_piece(&bytes.into());
                    }
                    if end {
                        return self.end_sse(at);
                    }
                    self.send_staged(at)?;
                }
            }
            if !at.active.output.is_empty() {
                return Ok(LiveProgress::Parked);
            }
        }
        self.put_off(at);
        Ok(LiveProgress::Parked)
    }

    /// Nothing to send: the head at most. Draining, or of a peer that will say nothing more and may well wait
    /// for the rest of what it asked for, that is the end of it.
    fn park(
        &mut self,
        at: &mut At<'_, S>,
        topic_id: u64,
        live: &Live,
    ) -> Result<LiveProgress, ConnectionEnd> {
        if !self.draining && !at.active.ended {
            self.send_staged(at)?;
            return Ok(LiveProgress::Parked);
        }
        match live.mode {
            Mode::Sse => self.end_sse(at),
            Mode::LongPoll => self.answer_deadline(at, topic_id, live),
        }
    }

    /// Notes that the subscriber stands at `next` now; whether its body is chunked.
    fn move_on(&mut self, core: &mut HttpCore<S>, key: Key, next: u64) -> Result<bool, ConnectionEnd> {
        core.set_offset(key, next);
        let entry = core.entry(key).ok_or(ConnectionEnd::Close)?;
        entry.flags.set(Flags::OPENED, true);
        entry.flavour &= !Live::UNOPENED;
        Ok(entry.flags.has(Flags::CHUNKED))
    }

    /// Ends the response with its last chunk, or with the connection.
    pub(crate) fn end_sse(&mut self, at: &mut At<'_, S>) -> Result<LiveProgress, ConnectionEnd> {
        let manner = self.end_live(at)?;
        let _ = self.leave_batch(at.core, at.key);
        if !manner.legacy {
            self.stage_bytes(LAST_CHUNK);
        }
        self.send_staged(at)?;
        Ok(LiveProgress::Ended)
    }

    /// Ends the subscription with a whole response.
    pub(crate) fn respond_live(
        &mut self,
        at: &mut At<'_, S>,
        response: &Response,
    ) -> Result<LiveProgress, ConnectionEnd> {
        let events_begun = at.role()? == Role::Sse && self.staged.segments.is_empty();
        let manner = self.end_live(at)?;
        if events_begun {
            let _ = self.leave_batch(at.core, at.key);
            self.send_staged(at)?;
            // The head of another response has left: the only word left to say is the connection's end.
            at.active.closing = true;
            return Ok(LiveProgress::Ended);
        }
        // An SSE head that was staged but not sent gives way.
        self.unstage();
        self.date.refresh(at.core.wall_us());
        self.stage_response(response, manner);
        self.send_staged(at)?;
        Ok(LiveProgress::Ended)
    }

    fn answer_deadline(
        &mut self,
        at: &mut At<'_, S>,
        topic_id: u64,
        live: &Live,
    ) -> Result<LiveProgress, ConnectionEnd> {
        let now = Self::now(at.core);
        let topic = at.core.topic(topic_id).ok_or(ConnectionEnd::Close)?;
        let response = self.service.deadline(topic, live, now);
        self.respond_live(at, &response)
    }

    /// Ends the connection's subscription, if it has one; from now on it has this role.
    pub(crate) fn unsubscribe(&mut self, core: &mut HttpCore<S>, key: Key, role: Role) {
        if let Some(topic) = core.unsubscribe(key).and_then(|left| left.last) {
            self.service.unwatch(&topic);
        }
        if let Some(entry) = core.entry(key) {
            self.load.leave(entry.role);
            entry.role = role;
        }
    }

    /// Unsubscribes; the connection is between requests again, or closing. How its response is to end.
    fn end_live(&mut self, at: &mut At<'_, S>) -> Result<Manner, ConnectionEnd> {
        self.unsubscribe(at.core, at.key, Role::Request);
        let draining = self.draining;
        let entry = at.entry()?;
        let close = entry.flags.has(Flags::CLOSE) || draining;
        let legacy = entry.flags.has(Flags::LEGACY);
        at.active.closing |= close;
        note_deadline(at.core, at.key, self.config.idle_timeout_ms);
        at.core.set_timer(at.key, self.config.idle_timeout_ms);
        Ok(Manner { close, legacy, ..Manner::default() })
    }

    /// What a position is sent, from the memo during a walk; or what has to be brought into memory first.
    fn step(&mut self, core: &mut HttpCore<S>, topic_id: u64, live: &Live) -> Result<Step, Work> {
        let remembers = self.fan_out.memo.topic_id == Some(topic_id);
        if remembers
            && let Some((_, step)) = self.fan_out.memo.steps.iter().rev().find(|(known, _)| known == live)
        {
            return Ok(step.clone());
        }
        let now = Self::now(core);
        let Some(topic) = core.topic(topic_id) else { return Ok(Step::Wait) };
        let step = ready_for_the_wire(self.service.advance(topic, live, now))?;
        if remembers {
            if self.fan_out.memo.steps.len() == MEMO_MAX {
                self.fan_out.memo.steps.remove(0);
            }
            self.fan_out.memo.steps.push((*live, step.clone()));
        }
        Ok(step)
    }

    /// A topic moved: takes the announcement up first, so that the next movement is announced anew, then
    /// walks its subscribers. A movement during a long walk starts another one when that is over.
    pub(crate) fn fan_out(&mut self, core: &mut HttpCore<S>, topic_id: u64) {
        if let Some(walk) = self.fan_out.walks.iter_mut().find(|walk| walk.topic_id == topic_id) {
            walk.again = true;
            return;
        }
        let Some(topic) = core.topic(topic_id) else { return };
        self.service.acknowledge(topic);
        let mut keys = std::mem::take(&mut self.keys);
        core.subscribers(topic_id, &mut keys);
        let mut memo = Memo { topic_id: Some(topic_id), steps: std::mem::take(&mut self.fan_out.memo.steps) };
        self.serve_each(core, topic_id, &mut keys, &mut memo);
        if keys.is_empty() {
            memo.steps.clear();
            (self.keys, self.fan_out.memo.steps) = (keys, memo.steps);
        } else {
            self.fan_out.walks.push(Walk { topic_id, keys, memo, again: false });
            core.ready_later(Message::Walk { topic_id });
        }
    }

    /// Goes on with a walk that is longer than one turn's share.
    pub(crate) fn walk_on(&mut self, core: &mut HttpCore<S>, topic_id: u64) {
        let Some(place) = self.fan_out.walks.iter().position(|walk| walk.topic_id == topic_id) else {
            return;
        };
        let mut walk = self.fan_out.walks.swap_remove(place);
        self.serve_each(core, topic_id, &mut walk.keys, &mut walk.memo);
        if !walk.keys.is_empty() {
            self.fan_out.walks.push(walk);
            core.ready_later(Message::Walk { topic_id });
        } else if walk.again {
            self.fan_out(core, topic_id);
        }
    }

    /// Serves those of the subscribers that are still there and not busy with what they were sent before: one
    /// turn's share of them, the last ones, which are taken out.
    fn serve_each(&mut self, core: &mut HttpCore<S>, topic_id: u64, keys: &mut Vec<Key>, memo: &mut Memo) {
        let span =
            tracing::debug_span!("fan_out", topic = topic_id, served = tracing::field::Empty).entered();
        std::mem::swap(&mut self.fan_out.memo, memo);
        let (begun_ns, mut served) = (monotonic_ns(), 0);
        self.batch.begin(keys.len());
        for _ in 0..SLICE {
            let Some(key) = keys.pop() else { break };
            let active = core.entry(key).and_then(|entry| entry.active.as_ref());
            let busy = active.is_some_and(|active| active.warming || !active.output.is_empty());
            if !busy && core.topic_of(key) == Some(topic_id) {
                self.with_active(core, key, Self::drive);
                served += 1;
            }
            if self.load.is_spent() {
                break;
            }
        }
        self.end_batch(core);
        span.record("served", served);
        self.meters.fan_out(served, (monotonic_ns() - begun_ns) / 1_000);
        std::mem::swap(&mut self.fan_out.memo, memo);
    }

    /// The moment of a long-poll's deadline, an SSE comment, or an SSE response's end.
    pub(crate) fn live_timer(&mut self, core: &mut HttpCore<S>, key: Key) {
        if self.stalled(core, key) {
            return;
        }
        let left_ms = deadline_left_ms(core, key);
        let Some((topic_id, live)) = position(core, key) else { return };
        let active = core.entry(key).and_then(|entry| entry.active.as_ref());
        if left_ms == 0 && active.is_some_and(|active| active.warming || active.put_off) {
            // What it waits for is not read meanwhile. It sees by itself that its time is over, if it then
            // has nothing to send.
            return core.set_timer(key, LATE_MS);
        }
        match live.mode {
            Mode::LongPoll if left_ms > 0 => core.set_timer(key, left_ms),
            Mode::LongPoll => self.with_active(core, key, |http, at| {
                http.answer_deadline(at, topic_id, &live)?;
                http.drive(at)
            }),
            Mode::Sse => {
                core.set_timer(key, left_ms.min(self.config.sse_keep_alive_ms).max(1));
                self.with_active(core, key, |http, at| {
                    if left_ms > 0 && at.active.output.is_empty() {
                        http.stage_comment(at.core, at.key);
                        http.send_staged(at)?;
                    }
                    http.drive(at)
                });
            }
        }
    }

    fn stage_comment(&mut self, core: &mut HttpCore<S>, key: Key) {
        if core.entry(key).is_some_and(|entry| entry.flags.has(Flags::CHUNKED)) {
            self.stage_bytes(&chunk(COMMENT));
        } else {
            self.stage_bytes(COMMENT);
        }
    }
}

/// Where a subscriber stands.
fn position<S: Service>(core: &mut HttpCore<S>, key: Key) -> Option<(u64, Live)> {
    let topic_id = core.topic_of(key)?;
    let offset = core.offset(key)?;
    Some((topic_id, core.entry(key)?.live(offset)))
}

fn ready_for_the_wire(advance: Advance) -> Result<Step, Work> {
    Ok(match advance {
        Advance::Cold(work) => return Err(work),
        Advance::Wait => Step::Wait,
        Advance::Respond(response) => Step::Respond(Arc::new(response)),
        Advance::Events { bytes, next, end } => Step::Events {
            chunk: if bytes.is_empty() { Bytes::new() } else { chunk(&bytes) },
            plain: bytes,
            next,
            end,
        },
    })
}

fn chunk(bytes: &[u8]) -> Bytes {
    let head = chunk_head(bytes.len());
    let mut chunk = Vec::with_capacity(head.as_bytes().len() + bytes.len() + CHUNK_END.len());
    chunk.extend_from_slice(head.as_bytes());
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(CHUNK_END);
    Bytes::from(chunk)
}
