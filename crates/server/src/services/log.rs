//! The log as a service: commands in, answers out, tails in between, over the same rules that HTTP has.
//!
//! Owns what waits: answers for their ticket, calls for a disk, tails for what is appended and for their
//! readers' credit. A tail is a long-poll that is asked again and again without the asking: it stands at an
//! offset, and each movement of its stream brings one item. Runs on one reactor's thread and never waits
//! there.

use super::ask::{self, Ask, Kind};
use super::generated::types::LogRequest;
use super::news::News;
use crate::engine::Service as Streams;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Wake, Waker};
use thalweg_queue::{ByTicket, Stands};
use thalweg_reactor::Pool;
use thalweg_service::{Handler, Reply, Request};
use thalweg_sys::clock;
use thalweg_wire::exchange::{Advance, Answer, Live, Mode, Now, Response, Service};
use thalweg_wire::fault::Fault;
use thalweg_wire::messagepack::{DecodeError, Wrong};
use thalweg_wire::service::{self, Flow};
use thalweg_wire::token::Token;

/// What a stream is to those who follow it.
type Topic = <Streams as Service>::Topic;
/// Items that one tail sends before others have their turn.
const ITEMS_PER_TURN: usize = 16;

/// A call that follows a stream.
struct Tail {
    reply: Reply,
    live: Live,
}

/// Those who follow one stream.
struct Tails {
    topic: Topic,
    tails: Vec<Tail>,
}

/// What became of a tail that was asked to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stood {
    /// It waits for something that will be told.
    Waits,
    /// It has more to send than its share of this turn.
    HasMore,
    /// It ended.
    Ended,
}

/// The handler of one reactor.
pub(crate) struct LogService {
    streams: Streams,
    news: Arc<News>,
    pool: Pool,
    /// Answers, as the frames that they come to.
    waiting: ByTicket<(Reply, Vec<u8>)>,
    tails: HashMap<u64, Tails>,
}

impl LogService {
    pub(crate) fn new(streams: Streams, news: Arc<News>, pool: Pool) -> Self {
        Self { streams, news, pool, waiting: ByTicket::new(), tails: HashMap::new() }
    }

    fn call(&mut self, frame: &[u8], reply: Reply) {
        let request = match LogRequest::decode(frame) {
            Ok(request) => request,
            Err(error) => return reply.fail(fault_of(&error), &error.to_string()),
        };
        let mut ask = Ask::of(&request);
        if ask.lacks_content_type() {
            match self.content_type(&ask) {
                Ok(content_type) => ask.name_content_type(content_type),
                Err(refusal) => return reply.end(&ask::end(Kind::Head, &refusal)),
            }
        }
        match ask.request(|request| self.streams.call(request, now())) {
            Answer::Respond(response) => reply.end(&ask::end(ask.kind, &response)),
            Answer::After(ticket, response) => {
                match self.waiting.wait(ticket, (reply, ask::end(ask.kind, &response))) {
                    Stands::Waits => {}
                    Stands::Complete((reply, frame)) => reply.end(&frame),
                    Stands::Failed((reply, _)) => {
                        reply.end(&ask::end(ask.kind, &self.streams.failed(now())));
                    }
                }
            }
            Answer::Cold(work) => {
                let (news, frame) = (self.news.clone(), frame.to_vec());
                let done = move || {
                    work.0();
                    news.warmed(frame, reply);
                };
                // A queue that is full drops the job and with it the reply, which then says so.
                drop(self.pool.submit(Box::new(done)));
            }
            Answer::Live { topic_id, topic, live, .. } => {
                let live = Live { mode: Mode::LongPoll, ..live };
                self.follow(topic_id, topic, Tail { reply, live });
            }
            // The rules of streams bring nothing later; a reply that is dropped says so.
            Answer::Later(_) => {}
        }
    }

    /// The content type of the stream that is appended to.
    fn content_type(&mut self, ask: &Ask<'_>) -> Result<String, Box<Response>> {
        let head = match ask.head().request(|request| self.streams.call(request, now())) {
            Answer::Respond(head) | Answer::After(_, head) => head,
            Answer::Cold(_) | Answer::Live { .. } | Answer::Later(_) => {
                return Err(Box::new(self.streams.failed(now())));
            }
        };
        let content_type = ask::line(&head, "Content-Type").map(str::to_owned);
        content_type.filter(|_| head.status < 400).ok_or_else(|| Box::new(head))
    }

    /// Lets a tail begin. Those before it have stood already, and are not asked again.
    fn follow(&mut self, topic_id: u64, topic: Topic, mut tail: Tail) {
        let mut tails = self.tails.remove(&topic_id).unwrap_or_else(|| {
            self.streams.watch(&topic);
            Tails { topic, tails: Vec::new() }
        });
        let waker = self.waker(topic_id);
        let stood = self.stand(topic_id, &tails.topic, &mut tail, &waker);
        if stood != Stood::Ended {
            tails.tails.push(tail);
        }
        self.keep(topic_id, tails, stood == Stood::HasMore);
    }

    /// Lets everybody who follows a stream go on.
    fn walk(&mut self, topic_id: u64) {
        let Some(mut tails) = self.tails.remove(&topic_id) else { return };
        let waker = self.waker(topic_id);
        let mut more = false;
        tails.tails.retain_mut(|tail| {
            let stood = self.stand(topic_id, &tails.topic, tail, &waker);
            more |= stood == Stood::HasMore;
            stood != Stood::Ended
        });
        self.keep(topic_id, tails, more);
    }

    /// Keeps those who follow a stream, and asks them again in the next turn if one of them has more to send.
    fn keep(&mut self, topic_id: u64, tails: Tails, more: bool) {
        if tails.tails.is_empty() {
            return self.streams.unwatch(&tails.topic);
        }
        self.tails.insert(topic_id, tails);
        if more {
            self.news.resumed(topic_id);
        }
    }

    /// Sends what one tail is to be sent now.
    fn stand(&mut self, topic_id: u64, topic: &Topic, tail: &mut Tail, waker: &Waker) -> Stood {
        for _ in 0..ITEMS_PER_TURN {
            match tail.reply.flow() {
                Flow::Go => {}
                Flow::Wait => {
                    tail.reply.changed(waker);
                    return Stood::Waits;
                }
                Flow::Gone => return Stood::Ended,
            }
            let response = match self.streams.advance(topic, &tail.live, now()) {
                Advance::Wait | Advance::Events { .. } => {
                    tail.reply.when_cancelled(waker);
                    return Stood::Waits;
                }
                Advance::Cold(work) => {
                    let news = self.news.clone();
                    let done = move || {
                        work.0();
                        news.resumed(topic_id);
                    };
                    // With the queue full there is a next turn to try in.
                    return if self.pool.submit(Box::new(done)).is_ok() {
                        Stood::Waits
                    } else {
                        Stood::HasMore
                    };
                }
                Advance::Respond(response) => response,
            };
            if !tail.send(&response) {
                return Stood::Ended;
            }
        }
        Stood::HasMore
    }

    fn waker(&self, topic_id: u64) -> Waker {
        Waker::from(Arc::new(Resume { news: self.news.clone(), topic_id }))
    }

    /// Lets the answers leave whose tickets are complete.
    fn complete(&mut self, up_to: u64) {
        self.waiting.complete(up_to).for_each(|(reply, frame)| reply.end(&frame));
    }

    /// The store failed: nobody knows what became of what waits for it, and from now on nothing does.
    fn fail(&mut self) {
        let response = self.streams.failed(now());
        self.waiting.fail().for_each(|(reply, _)| reply.end(&ask::end(Kind::Head, &response)));
    }
}

impl Handler for LogService {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        self.call(request.frame, reply);
    }

    fn notified(&mut self) {
        let batch = self.news.take();
        self.complete(batch.complete);
        if batch.failed {
            self.fail();
        }
        let mut resumed = batch.resumed;
        for topic_id in batch.advanced {
            if let Some(tails) = self.tails.get(&topic_id) {
                self.streams.acknowledge(&tails.topic);
                resumed.insert(topic_id);
            }
        }
        resumed.into_iter().for_each(|topic_id| self.walk(topic_id));
        batch.warmed.into_iter().for_each(|(frame, reply)| self.call(&frame, reply));
    }
}

impl Tail {
    /// Sends an answer as an item, or as the end; whether the tail goes on.
    fn send(&mut self, response: &Response) -> bool {
        if response.status >= 400 {
            service::Reply::end(&mut self.reply, &ask::end(Kind::Tail, response));
            return false;
        }
        let next =
            Token::parse(ask::next(response).as_bytes()).map_or(self.live.offset, |token| token.offset);
        if next > self.live.offset {
            self.reply.item(&ask::item(response));
            self.live.offset = next;
        }
        let closed = ask::is_closed(response);
        if closed {
            service::Reply::end(&mut self.reply, &ask::end(Kind::Tail, response));
        }
        !closed
    }
}

/// Lets the tails of a stream go on.
struct Resume {
    news: Arc<News>,
    topic_id: u64,
}

impl Wake for Resume {
    fn wake(self: Arc<Self>) {
        self.news.resumed(self.topic_id);
    }
}

fn fault_of(error: &DecodeError) -> Fault {
    if error.wrong == Wrong::UnknownMessage { Fault::UnknownCommand } else { Fault::BadRequest }
}

fn now() -> Now {
    Now { time_us: clock::wall_us(), entropy: clock::monotonic_ns() }
}

#[cfg(test)]
mod tests {
    use super::super::generated::types::{
        LogAppend, LogCreate, LogFork, LogHead, LogRead, LogRemove, LogTail,
    };
    use super::*;
    use crate::arguments::Durability;
    use crate::engine::{Engine, Retain};
    use thalweg_log::Watch;
    use thalweg_service::{Local, LocalCallOptions};

    /// The log's service, and who calls it.
    fn world(directory: &tempfile::TempDir) -> (LogService, Arc<News>, Local) {
        let options = thalweg_state::Options::default();
        let engine = Engine::open(directory.path(), Durability::Sync, Retain::default(), options).unwrap();
        let local = Local::new(ask::ERROR_TAG, 8, || {});
        let news = Arc::new(News::new(local.notifier()));
        let streams = engine.service_for(news.clone()).unwrap();
        (LogService::new(streams, news.clone(), Pool::start(1).unwrap()), news, local)
    }

    fn frame(request: &LogRequest<'_>) -> Vec<u8> {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        frame
    }

    fn create(name: &str) -> Vec<u8> {
        let (content_type, lifetime, data) = (None, None, None);
        frame(&LogRequest::Create(LogCreate {
            name: name.into(),
            content_type,
            lifetime,
            data,
            closed: false,
        }))
    }

    #[test]
    fn whoever_asks_a_store_that_failed_is_answered_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (mut service, news, mut local) = world(&directory);
        news.failed();
        local.turn(&mut service, |_, _, _| {});
        let mut said = String::new();
        let call = local.call(&mut service, &create("a"), LocalCallOptions::default(), |_, answer| {
            said += &String::from_utf8_lossy(answer);
        });
        assert_eq!(call, None, "nobody would end it any more");
        assert!(said.contains("outcome-unknown"), "{said}");
    }

    #[test]
    fn tails_that_may_go_on_at_once_are_asked_in_one_walk() {
        let directory = tempfile::tempdir().unwrap();
        let (mut service, news, mut local) = world(&directory);
        let call = local.call(&mut service, &create("a"), LocalCallOptions::default(), |_, _| {}).unwrap();
        while local.in_flight() > 0 {
            local.turn(&mut service, |ended, _, _| assert_eq!(ended, call));
        }
        let tail = frame(&LogRequest::Tail(LogTail { name: "a".into(), offset: None }));
        let follow = |_| local.call(&mut service, &tail, LocalCallOptions::default(), |_, _| {}).unwrap();
        let calls: Vec<_> = (0..100).map(follow).collect();
        calls.into_iter().for_each(|call| local.cancel(call));
        let told = news.take().resumed;
        assert_eq!(told.len(), 1, "everybody who left was told of one by one");
        told.into_iter().for_each(|topic_id| service.walk(topic_id));
        assert!(service.tails.is_empty());
    }

    #[test]
    fn a_name_leads_to_streams_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (mut service, _, mut local) = world(&directory);
        let name = "__ds/subscriptions/x";
        let wish = br#"{"type":"pull-wake","pattern":"*","wake_stream":"wake"}"#;
        let (lifetime, content_type) = (None, Some("application/json".into()));
        let data = Some(wish.into());
        let create = LogCreate { name: name.into(), content_type, lifetime, data, closed: false };
        let append = |content_type| LogAppend {
            name: name.into(),
            data: b"{}".into(),
            content_type,
            producer: None,
            close: false,
        };
        let fork = LogFork { name: name.into(), source: "a".into(), at: None, past: 0, lifetime: None };
        for request in [
            LogRequest::Create(create),
            LogRequest::Append(append(None)),
            LogRequest::Append(append(Some("application/json".into()))),
            LogRequest::Read(LogRead { name: name.into(), offset: None }),
            LogRequest::Tail(LogTail { name: name.into(), offset: None }),
            LogRequest::Head(LogHead { name: name.into() }),
            LogRequest::Fork(fork),
            LogRequest::Remove(LogRemove { name: name.into() }),
        ] {
            let mut said = String::new();
            let call =
                local.call(&mut service, &frame(&request), LocalCallOptions::default(), |_, answer| {
                    said += &String::from_utf8_lossy(answer);
                });
            assert_eq!(call, None, "{request:?} waits");
            assert!(said.contains("404 name-reserved: "), "{request:?}: {said}");
        }
    }
}
