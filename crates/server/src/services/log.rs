//! The log as a service: commands in, answers out, tails in between, over the same rules that HTTP has.
//!
//! Owns what waits: answers for their ticket, tails for what is appended and for their readers' credit. What
//! waits for the disk is away meanwhile ([`Cold`]). A tail is a long-poll that is asked again and again
//! without the asking: it stands at an offset, and each movement of its stream brings one item. Runs on one
//! reactor's thread and never waits there.

use super::ask::{self, Ask, Kind};
use super::cold::{Cold, ColdWork};
use super::generated::types::LogRequest;
use super::looks::Looks;
use super::news::News;
use crate::engine::Service as Streams;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;
use thalweg_http::Limit;
use thalweg_queue::{Admission, ByTicket};
use thalweg_reactor::Pool;
use thalweg_service::{Handler, Reply, Request};
use thalweg_sys::clock;
use thalweg_wire::exchange::{Advance, Announced, Answer, Live, Mode, Now, Refusal, Response, Service, Work};
use thalweg_wire::fault::Fault;
use thalweg_wire::messagepack::{DecodeError, DecodeErrorKind};
use thalweg_wire::service::{self, Flow};
use thalweg_wire::token::Token;

/// What a stream is to those who follow it.
type Topic = <Streams as Service>::Topic;
/// Items that one tail sends before others have their turn.
const ITEMS_PER_TURN: usize = 16;
/// How many times in a row bytes that were brought in may be gone again before they were sent. Beyond that
/// memory is too scarce, or they cannot be brought in at all.
const BROUGHT_MAX: u8 = 8;

/// A call that waits for the disk.
pub(super) struct WaitingCall {
    frame: Vec<u8>,
    pub(super) reply: Reply,
    /// How often it waited, this time included.
    brought: u8,
}

/// A call that follows a stream.
pub(super) struct Tail {
    pub(super) reply: Reply,
    live: Live,
    /// How often it waited for the disk since it was last sent something.
    brought: u8,
}

/// Those who follow one stream.
struct Tails {
    topic: Topic,
    tails: Vec<Tail>,
    /// How many more of them wait for the disk.
    away: usize,
    /// When the stream is to be looked at, if at all.
    look: Option<Instant>,
}

/// What became of a tail that was asked to go on.
enum TailProgress {
    /// It waits for something that will be told.
    Waits,
    /// It has more to send than its share of this turn.
    HasMore,
    /// It waits for this work.
    Cold(Work),
    /// It ended.
    Ended,
}

/// The handler of one reactor.
pub(crate) struct LogService {
    streams: Streams,
    news: Arc<News>,
    cold: Cold,
    /// Answers, as the frames that they come to.
    waiting: ByTicket<(Reply, Vec<u8>)>,
    tails: HashMap<u64, Tails>,
    looks: Looks,
}

impl LogService {
    pub(crate) fn new(streams: Streams, news: Arc<News>, pool: Pool) -> Self {
        let cold = Cold::new(pool, news.clone());
        let (waiting, tails, looks) = (ByTicket::new(), HashMap::new(), Looks::default());
        Self { streams, news, cold, waiting, tails, looks }
    }

    /// Makes a call that waited for the disk so many times.
    fn call(&mut self, frame: &[u8], reply: Reply, brought: u8) {
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
                    Admission::Waits => {}
                    Admission::Complete((reply, frame)) => reply.end(&frame),
                    Admission::Failed((reply, _)) => {
                        reply.end(&ask::end(ask.kind, &self.streams.failed(now())));
                    }
                }
            }
            Answer::Cold(_) if brought == BROUGHT_MAX => {
                let refused = self.too_cold();
                reply.end(&ask::end(ask.kind, &refused));
            }
            Answer::Cold(work) => {
                let asked = WaitingCall { frame: frame.to_vec(), reply, brought: brought + 1 };
                self.cold.bring_in(work, ColdWork::Call(asked));
            }
            Answer::Live { topic_id, topic, live, .. } => {
                // It was asked as a read by events, which is never answered at once. What kind of events does
                // not matter, but whether it begins at a place that may move.
                let live = Live { mode: Mode::LongPoll, flavour: live.flavour & Live::UNOPENED, ..live };
                self.follow(topic_id, topic, Tail { reply, live, brought: 0 });
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

    /// Lets a tail begin.
    fn follow(&mut self, topic_id: u64, topic: Topic, tail: Tail) {
        let tails = self.tails.remove(&topic_id).unwrap_or_else(|| {
            self.streams.watch(&topic);
            let look = self.looks.plan(topic_id, self.streams.still_followed(&topic, now()));
            Tails { topic, tails: Vec::new(), away: 0, look }
        });
        self.join(topic_id, tails, tail);
    }

    /// Lets a tail go on that waited for the disk.
    fn come_back(&mut self, topic_id: u64, tail: Tail) {
        let Some(mut tails) = self.tails.remove(&topic_id) else { return };
        tails.away -= 1;
        self.join(topic_id, tails, tail);
    }

    /// Asks one more tail to go on. The others have stood already, and are not asked again.
    fn join(&mut self, topic_id: u64, mut tails: Tails, tail: Tail) {
        let waker = self.waker(topic_id);
        let more = self.place(topic_id, &mut tails, tail, &waker);
        self.keep(topic_id, tails, more);
    }

    /// Lets every tail of a stream go on.
    fn walk(&mut self, topic_id: u64) {
        let Some(mut tails) = self.tails.remove(&topic_id) else { return };
        let waker = self.waker(topic_id);
        let mut more = false;
        for tail in std::mem::take(&mut tails.tails) {
            more |= self.place(topic_id, &mut tails, tail, &waker);
        }
        self.keep(topic_id, tails, more);
    }

    /// Asks a tail to go on, and puts it where it waits; whether it has more to send.
    fn place(&mut self, topic_id: u64, tails: &mut Tails, mut tail: Tail, waker: &Waker) -> bool {
        let stood = self.stand(&tails.topic, &mut tail, waker);
        let more = matches!(stood, TailProgress::HasMore);
        match stood {
            TailProgress::Waits | TailProgress::HasMore => tails.tails.push(tail),
            TailProgress::Cold(work) => {
                tails.away += 1;
                self.cold.bring_in(work, ColdWork::Tail(topic_id, tail));
            }
            TailProgress::Ended => {}
        }
        more
    }

    /// Keeps those who follow a stream, and asks them again in the next turn if one of them has more to send.
    fn keep(&mut self, topic_id: u64, tails: Tails, more: bool) {
        if tails.tails.is_empty() && tails.away == 0 {
            self.looks.forget(topic_id, tails.look);
            return self.streams.unwatch(&tails.topic);
        }
        self.tails.insert(topic_id, tails);
        if more {
            self.news.resumed(topic_id);
        }
    }

    /// Sends what one tail is to be sent now.
    fn stand(&mut self, topic: &Topic, tail: &mut Tail, waker: &Waker) -> TailProgress {
        for _ in 0..ITEMS_PER_TURN {
            match tail.reply.flow() {
                Flow::Go => {}
                Flow::Wait => {
                    tail.reply.changed(waker);
                    return TailProgress::Waits;
                }
                Flow::Gone => return TailProgress::Ended,
            }
            let response = match self.streams.advance(topic, &tail.live, now()) {
                Advance::Wait | Advance::Events { .. } => {
                    tail.brought = 0;
                    tail.reply.when_cancelled(waker);
                    return TailProgress::Waits;
                }
                Advance::Cold(_) if tail.brought == BROUGHT_MAX => self.too_cold(),
                Advance::Cold(work) => {
                    tail.brought += 1;
                    return TailProgress::Cold(work);
                }
                Advance::Respond(response) => response,
            };
            tail.brought = 0;
            if !tail.send(&response) {
                return TailProgress::Ended;
            }
        }
        TailProgress::HasMore
    }

    /// What is said where nothing more is tried to bring bytes into memory.
    fn too_cold(&mut self) -> Response {
        self.streams.refuse(&TOO_COLD, Announced::default(), now())
    }

    fn waker(&self, topic_id: u64) -> Waker {
        Waker::from(Arc::new(Resume { news: self.news.clone(), topic_id }))
    }

    /// Lets the answers leave whose tickets are complete.
    fn complete(&mut self, up_to: u64) {
        self.waiting.complete(up_to).for_each(|(reply, frame)| reply.end(&frame));
    }

    /// The store failed: the outcome of every waiting call is unknown, and no call waits from now on.
    fn fail(&mut self) {
        let response = self.streams.failed(now());
        self.waiting.fail().for_each(|(reply, _)| reply.end(&ask::end(Kind::Head, &response)));
    }
}

impl Handler for LogService {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        self.call(request.frame, reply, 0);
    }

    fn due_at(&self) -> Option<Instant> {
        self.looks.next()
    }

    /// PROTOCOL 5.1: each request renews a sliding lifetime, and a tail is one request, however long it
    /// lasts.
    fn due(&mut self) {
        for topic_id in self.looks.take_due(Instant::now()) {
            if let Some(tails) = self.tails.get_mut(&topic_id) {
                tails.look = self.looks.plan(topic_id, self.streams.still_followed(&tails.topic, now()));
            }
        }
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
        self.cold.reported(batch.brought.len());
        for brought in batch.brought {
            match brought {
                ColdWork::Call(WaitingCall { frame, reply, brought }) => self.call(&frame, reply, brought),
                ColdWork::Tail(topic_id, tail) => self.come_back(topic_id, tail),
            }
        }
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
            self.live.flavour &= !Live::UNOPENED;
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

const TOO_COLD: Refusal = Refusal {
    status: 503,
    code: Limit::ColdReads.name(),
    field: "request",
    detail: "What is asked for cannot be kept in memory until it is sent; try again in a moment.",
};

fn fault_of(error: &DecodeError) -> Fault {
    if error.kind == DecodeErrorKind::UnknownMessage { Fault::UnknownCommand } else { Fault::BadRequest }
}

fn now() -> Now {
    Now { time_us: clock::wall_us(), entropy: clock::monotonic_ns() }
}

#[cfg(test)]
mod tests {
    use super::super::generated::types::{
        Lifetime, LogAppend, LogCreate, LogFork, LogHead, LogRead, LogRemove, LogTail,
    };
    use super::*;
    use crate::command_line::Durability;
    use crate::engine::{Engine, Retain};
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;
    use thalweg_log::Watch;
    use thalweg_reactor::Crew;
    use thalweg_service::{CallId, Local, LocalCallOptions};
    use thalweg_wire::exchange::{self, Method};
    use thalweg_wire::field::{Field, Name};
    use thalweg_wire::rfc3339;

    fn engine(directory: &tempfile::TempDir) -> Engine {
        let options = thalweg_state::Options::default();
        Engine::open(directory.path(), Durability::Sync, Retain::default(), options).unwrap()
    }

    /// A log's service, and who calls it.
    fn serve(engine: &Engine, pool: Pool) -> (LogService, Arc<News>, Local) {
        let local = Local::new(ask::ERROR_TAG, 8, || {});
        let news = Arc::new(News::new(local.notifier()));
        let streams = engine.service_for(news.clone()).unwrap();
        (LogService::new(streams, news.clone(), pool), news, local)
    }

    fn world(directory: &tempfile::TempDir) -> (LogService, Arc<News>, Local) {
        serve(&engine(directory), Pool::start(1).unwrap())
    }

    /// A store whose stream `a` begins with `old` and ends with `new`, and was not read since.
    fn cold_engine(directory: &tempfile::TempDir) -> Engine {
        let written = engine(directory);
        let (mut service, _, mut local) = serve(&written, Pool::start(1).unwrap());
        let mut run = |request: &[u8]| {
            local.call(&mut service, request, LocalCallOptions::default(), |_, _| {});
            while local.in_flight() > 0 {
                local.turn(&mut service, |_, _, _| {});
            }
        };
        let append = |name: &str, data: &[u8]| {
            frame(&LogRequest::Append(LogAppend {
                name: name.into(),
                data: data.into(),
                content_type: None,
                producer: None,
                close: false,
            }))
        };
        // The first segment has 4 MiB and the second 8; the newest is always taken to be in memory. The first
        // MiB of `a`, which is read at once, lies in the first segment, and its end in the second.
        let mib = |byte: u8| vec![byte; 1 << 20];
        run(&create("a"));
        run(&create("b"));
        run(&append("a", b"old"));
        run(&append("a", &mib(b'y')));
        (0..4).for_each(|_| run(&append("b", &mib(b'x'))));
        run(&append("a", b"new"));
        (0..9).for_each(|_| run(&append("b", &mib(b'x'))));
        written.close().unwrap();
        drop((service, written));
        engine(directory)
    }

    /// A pool of one thread, which waits until what is returned with it is dropped, and of this queue.
    fn held_up(queue_max: usize) -> (Pool, Sender<()>) {
        let (pool, _) = Pool::crew(Crew { name: "held", threads: 1, stack_bytes: None, queue_max });
        let ((held, released), (taken, takes)) = (channel::<()>(), channel());
        let waits = move || {
            taken.send(()).unwrap();
            _ = released.recv();
        };
        assert!(pool.submit(Box::new(waits)).is_ok());
        takes.recv().unwrap();
        (pool, held)
    }

    /// How many jobs a pool takes.
    fn room(pool: &Pool) -> usize {
        std::iter::repeat_with(|| pool.submit(Box::new(|| ()))).take_while(Result::is_ok).count()
    }

    /// Turns until this was said.
    fn until_said(service: &mut LogService, local: &mut Local, wanted: &str) {
        let (begun, mut said) = (Instant::now(), String::new());
        while !said.contains(wanted) {
            local.turn(service, |_, _, frame| said += &String::from_utf8_lossy(frame));
            assert!(begun.elapsed() < Duration::from_secs(60), "never said {wanted:?}: {said:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read(name: &str) -> Vec<u8> {
        frame(&LogRequest::Read(LogRead { name: name.into(), offset: None }))
    }

    fn tail(name: &str) -> Vec<u8> {
        frame(&LogRequest::Tail(LogTail { name: name.into(), offset: Some("-1".into()) }))
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
        calls.into_iter().for_each(|call| local.cancel(&mut service, call));
        let told = news.take().resumed;
        assert_eq!(told.len(), 1, "everybody who left was told of one by one");
        told.into_iter().for_each(|topic_id| service.walk(topic_id));
        assert!(service.tails.is_empty());
    }

    /// Creates stream `a` with such a lifetime, and follows it.
    fn follow(service: &mut LogService, local: &mut Local, lifetime: Lifetime<'_>) -> CallId {
        let made = frame(&LogRequest::Create(LogCreate {
            name: "a".into(),
            content_type: None,
            lifetime: Some(lifetime),
            data: None,
            closed: false,
        }));
        local.call(service, &made, LocalCallOptions::default(), |_, _| {});
        while local.in_flight() > 0 {
            local.turn(service, |_, _, _| {});
        }
        local.call(service, &tail("a"), LocalCallOptions::default(), |_, _| {}).unwrap()
    }

    #[test]
    fn a_stream_that_is_followed_is_renewed_until_nobody_follows_it() {
        let directory = tempfile::tempdir().unwrap();
        let (mut service, _, mut local) = world(&directory);
        let lifetime = Lifetime { idle_seconds: Some(1), expires_at: None };
        let call = follow(&mut service, &mut local, lifetime);
        let accessed =
            |service: &LogService| service.tails.values().next().map(|tails| tails.topic.accessed());
        for _ in 0..2 {
            let (begun, before) = (Instant::now(), accessed(&service));
            while accessed(&service) == before {
                local.turn(&mut service, |_, _, _| {});
                assert!(begun.elapsed() < Duration::from_secs(30), "it is not renewed");
            }
        }
        local.cancel(&mut service, call);
        while !service.tails.is_empty() {
            local.turn(&mut service, |_, _, _| {});
        }
        assert_eq!(service.due_at(), None, "it would be renewed for ever");
    }

    /// Housekeeping would end it, too, and nobody keeps house here.
    #[test]
    fn a_stream_that_is_followed_ends_at_its_instant() {
        let directory = tempfile::tempdir().unwrap();
        let (mut service, _, mut local) = world(&directory);
        let expires_at = rfc3339::format(now().time_us + 300_000).map(Into::into);
        let lifetime = Lifetime { idle_seconds: None, expires_at };
        follow(&mut service, &mut local, lifetime);
        until_said(&mut service, &mut local, "404 stream-missing: ");
        assert!(service.tails.is_empty());
        assert_eq!(service.due_at(), None);
    }

    /// The pool is every reactor's: a tail that has a job there takes no more of its room.
    #[test]
    fn a_tail_that_waits_for_the_disk_has_one_job_however_often_its_stream_moves() {
        let directory = tempfile::tempdir().unwrap();
        let engine = cold_engine(&directory);
        let (mut service, _, mut local) = serve(&engine, Pool::start(1).unwrap());
        local.call(&mut service, &read("a"), LocalCallOptions::default(), |_, _| {});
        until_said(&mut service, &mut local, "old");
        let (pool, held) = held_up(4);
        let (mut service, news, mut local) = serve(&engine, pool.clone());
        local.call(&mut service, &tail("a"), LocalCallOptions::default(), |_, _| {});
        let topics: Vec<u64> = service.tails.keys().copied().collect();
        assert_eq!(topics.len(), 1, "it does not follow yet");
        for _ in 0..10 {
            topics.iter().for_each(|topic_id| news.resumed(*topic_id));
            local.turn(&mut service, |_, _, _| panic!("it did not wait"));
        }
        assert_eq!(room(&pool), 3);
        drop(held);
        until_said(&mut service, &mut local, "new");
    }

    #[test]
    fn what_finds_the_pool_full_waits_for_room_and_is_answered() {
        for request in [tail("a"), read("a")] {
            let directory = tempfile::tempdir().unwrap();
            let engine = cold_engine(&directory);
            let (pool, held) = held_up(1);
            assert_eq!(room(&pool), 1);
            let (mut service, news, mut local) = serve(&engine, pool);
            let call = local.call(&mut service, &request, LocalCallOptions::default(), |_, _| {});
            assert!(call.is_some(), "it does not wait");
            for _ in 0..3 {
                local.turn(&mut service, |_, _, frame| panic!("{}", String::from_utf8_lossy(frame)));
            }
            assert!(news.take().resumed.is_empty(), "it asks again in each turn");
            drop(held);
            until_said(&mut service, &mut local, "old");
        }
    }

    /// Has a store keep next to nothing of its stream `a`, which a tail follows from its beginning and is not
    /// asked about meanwhile; what the tail is sent then. With `heard` it was sent a record before.
    fn overtaken(content_type: &str, heard: bool) -> String {
        let directory = tempfile::tempdir().unwrap();
        let options = thalweg_state::Options::default();
        let engine = Engine::open(directory.path(), Durability::Os, Retain::default(), options).unwrap();
        let pool = Pool::start(1).unwrap();
        let (mut service, _, mut local) = serve(&engine, pool.clone());
        let (mut others, _, mut calls) = serve(&engine, pool);
        let fields = [(Name::ContentType, content_type), (Name::StreamRetainBytes, "1")];
        let fields = fields.map(|(name, value)| Field { name, value: value.as_bytes() });
        let (method, path, fields) = (Method::Put, "/v1/stream/a", &fields[..]);
        let put = exchange::Request { method, path, query: None, fields, body: b"", secure: false };
        assert!(matches!(others.streams.call(&put, now()), Answer::Respond(made) if made.status == 201));
        let mut other = |request: &[u8]| {
            let mut said = String::new();
            let mut hear = |frame: &[u8]| said += &String::from_utf8_lossy(frame);
            calls.call(&mut others, request, LocalCallOptions::default(), |_, frame| hear(frame));
            while calls.in_flight() > 0 {
                calls.turn(&mut others, |_, _, frame| hear(frame));
            }
            said
        };
        let append = |text: &str| {
            frame(&LogRequest::Append(LogAppend {
                name: "a".into(),
                data: format!("\"{text}\"").into_bytes().into(),
                content_type: None,
                producer: None,
                close: false,
            }))
        };
        let (begun, mut said) = (Instant::now(), String::new());
        let call = local.call(&mut service, &tail("a"), LocalCallOptions::default(), |_, _| {});
        assert!(call.is_some(), "it does not follow");
        if heard {
            other(&append("heard"));
            while !said.contains("heard") {
                local.turn(&mut service, |_, _, frame| said += &String::from_utf8_lossy(frame));
                assert!(begun.elapsed() < Duration::from_secs(60), "nothing is said");
            }
        }
        [append("lost"), append(&"x".repeat(1 << 20)), append("kept")]
            .iter()
            .for_each(|append| drop(other(append)));
        while other(&read("a")).contains("lost") {
            engine.keep_house();
            assert!(begun.elapsed() < Duration::from_secs(60), "retention takes nothing");
        }
        while !(said.contains("kept") || said.contains("offset-gone")) {
            local.turn(&mut service, |_, _, frame| said += &String::from_utf8_lossy(frame));
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is said");
        }
        said
    }

    #[test]
    fn a_tail_is_told_of_what_retention_took_before_it_once_it_has_begun() {
        for content_type in ["application/octet-stream", "text/plain", "application/json"] {
            let said = overtaken(content_type, true);
            assert!(
                said.contains("heard") && said.contains("410 offset-gone: "),
                "{content_type}: {said:.200}"
            );
            // The beginning is where what is left begins.
            let said = overtaken(content_type, false);
            assert!(said.contains("kept") && !said.contains("lost"), "{content_type}: {said:.200}");
        }
    }

    /// A call as it comes back from the disk.
    fn asked(local: &mut Local, frame: Vec<u8>, brought: u8) -> WaitingCall {
        let mut taken = None;
        let mut keeps = |_: Request<'_>, reply: Reply| taken = Some(reply);
        local.call(&mut keeps, &[], LocalCallOptions::default(), |_, _| {});
        WaitingCall { frame, reply: taken.unwrap(), brought }
    }

    #[test]
    fn what_panics_while_it_is_brought_in_is_asked_for_again() {
        let directory = tempfile::tempdir().unwrap();
        let engine = cold_engine(&directory);
        let (mut service, _, mut local) = serve(&engine, Pool::start(1).unwrap());
        let asked = asked(&mut local, read("a"), 1);
        service.cold.bring_in(Work(Box::new(|| panic!("on purpose"))), ColdWork::Call(asked));
        until_said(&mut service, &mut local, "old");
    }

    #[test]
    fn what_is_gone_again_too_often_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let engine = cold_engine(&directory);
        let (mut service, _, mut local) = serve(&engine, Pool::start(1).unwrap());
        let asked = asked(&mut local, read("a"), BROUGHT_MAX);
        service.cold.bring_in(Work(Box::new(|| ())), ColdWork::Call(asked));
        until_said(&mut service, &mut local, "503 reads-overloaded: ");
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
