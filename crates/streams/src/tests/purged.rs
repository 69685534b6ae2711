//! What the engine let go of, as the rules see it: over the real engine, in memory.

use super::{SECOND_US, START_US, path};
use crate::embedded::Embedded;
use crate::{Options, Streams};
use thalweg_log as log;
use thalweg_wire::exchange::{Advance, Answer, Method, Now, Request, Response, Service};
use thalweg_wire::field::{Field, Name};
use thalweg_wire::token::Token;

const NOW: Now = Now { time_us: START_US, entropy: 7 };
const RECORD_BYTES: usize = 50_000;

struct World {
    streams: Streams<Embedded>,
    store: log::Store,
}

impl World {
    /// A stream that keeps 64 KiB, and has one record.
    fn new() -> World {
        let mut world = World::empty();
        world.append();
        world
    }

    /// A stream that keeps 64 KiB, and has no record.
    fn empty() -> World {
        let store = log::Store::memory(log::Options::default()).unwrap();
        let streams = Streams::new(Embedded::new(store.clone(), None), Options::default());
        let mut world = World { streams, store };
        assert_eq!(world.call(Method::Put, "", &[("Stream-Retain-Bytes", "65536")], b"").status, 201);
        world
    }

    fn answer(
        &mut self,
        method: Method,
        query: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer<std::sync::Arc<log::Log>> {
        let mut all = vec![("Content-Type", "text/plain")];
        all.extend_from_slice(fields);
        let fields: Vec<Field<'_>> =
            all.iter().filter_map(|(name, value)| Field::of(name, value.as_bytes())).collect();
        let query = (!query.is_empty()).then_some(query);
        let request = Request { method, path: &path("s"), query, fields: &fields, body, secure: false };
        self.streams.call(&request, NOW)
    }

    /// The answer, with whatever has to be done elsewhere for it done.
    fn call(&mut self, method: Method, query: &str, fields: &[(&str, &str)], body: &[u8]) -> Response {
        for _ in 0..3 {
            match self.answer(method, query, fields, body) {
                Answer::Respond(response) | Answer::After(_, response) => return response,
                Answer::Cold(work) => (work.0)(),
                other => panic!("{query}: {other:?}"),
            }
        }
        panic!("{query} is found nowhere");
    }

    /// A fork of the stream, and the bytes that it begins with.
    fn fork(&mut self, name: &str, at: &str) -> (Response, usize) {
        let (path, source) = (path(name), path("s"));
        let fields = [
            (Name::ContentType, "text/plain"),
            (Name::StreamForkedFrom, &source),
            (Name::StreamForkOffset, at),
        ];
        let fields = fields.map(|(name, value)| Field { name, value: value.as_bytes() });
        let request =
            |method, query, fields| Request { method, path: &path, query, fields, body: b"", secure: false };
        let made = match self.streams.call(&request(Method::Put, None, &fields), NOW) {
            Answer::Respond(response) | Answer::After(_, response) => response,
            other => panic!("{other:?}"),
        };
        match self.streams.call(&request(Method::Get, Some("offset=-1"), &[]), NOW) {
            Answer::Respond(read) => (made, bytes(&read)),
            other => panic!("{other:?}"),
        }
    }

    fn get(&mut self, query: &str) -> Response {
        self.call(Method::Get, query, &[], b"")
    }

    /// A record of that many seconds after the world's beginning.
    fn append_at(&self, seconds: u64, record: &[u8]) {
        let log = self.store.find(b"s").unwrap();
        self.store.append(&log, record, START_US + seconds * SECOND_US).unwrap();
    }

    /// A search is begun by somebody who does not wait for what it comes to.
    fn search(&mut self, query: &str) {
        let Answer::Cold(work) = self.answer(Method::Get, query, &[], b"") else {
            panic!("{query} is known")
        };
        (work.0)();
    }

    fn append(&mut self) {
        assert_eq!(self.call(Method::Post, "", &[], &[b'r'; RECORD_BYTES]).status, 204);
    }

    /// Records come until the first ones go; what is left, bytes.
    fn trim(&mut self) -> usize {
        (0..8).for_each(|_| self.append());
        self.store.maintain(START_US).unwrap();
        let left = bytes(&self.get("offset=-1"));
        assert!(left < 9 * RECORD_BYTES, "nothing was let go of");
        left
    }
}

fn bytes(response: &Response) -> usize {
    response.body_bytes()
}

fn rule(response: &Response) -> (u16, String) {
    let problem: serde_json::Value = serde_json::from_slice(&response.body.concat()).unwrap();
    (response.status, problem["rule"].as_str().unwrap().to_owned())
}

#[test]
fn a_place_in_time_that_was_let_go_of_is_searched_for_anew() {
    let mut world = World::new();
    assert_eq!(bytes(&world.get("since=0")), RECORD_BYTES);
    let left = world.trim();
    for _ in 0..2 {
        let again = world.get("since=0");
        assert_eq!((again.status, bytes(&again)), (200, left));
    }
    assert_eq!(bytes(&world.get("since=0&until=1")), 0);
}

/// Milliseconds since 1970, that many seconds after the world's beginning.
fn at(seconds: u64) -> u64 {
    (START_US + seconds * SECOND_US) / 1_000
}

#[test]
fn a_search_that_found_nothing_says_nothing_about_what_came_since() {
    let mut world = World::new();
    let (since, until) = (format!("since={}", at(10)), format!("offset=now&until={}", at(10)));
    let reached = |response: &Response| response.fields.windows(7).any(|field| field == b"Reached");
    world.search(&since);
    world.search(&format!("since={}", at(20)));
    world.append_at(5, b"older");
    assert_eq!(bytes(&world.get(&since)), 0, "what came since may be older");
    assert!(!reached(&world.get(&until)), "one may come yet that is older");
    world.append_at(10, b"ten");
    for _ in 0..2 {
        assert_eq!(world.get(&since).body.concat(), b"ten");
    }
    assert!(reached(&world.get(&until)));
    // More than is looked through on the spot.
    world.append();
    world.append();
    world.append_at(20, b"twenty");
    assert_eq!(world.get(&format!("since={}", at(20))).body.concat(), b"twenty");
}

/// As many as may wait at once, after as many that were told.
#[test]
fn searches_that_are_done_at_once_are_each_told_of() {
    let mut world = World::new();
    for begin in [0, 2_000, 4_000] {
        let all: Vec<String> = (begin..begin + 512).map(|time| format!("since={time}")).collect();
        for work in all.iter().map(|since| world.answer(Method::Get, since, &[], b"")).collect::<Vec<_>>() {
            let Answer::Cold(work) = work else { panic!("{work:?}") };
            (work.0)();
        }
        for since in &all {
            let answer = world.answer(Method::Get, since, &[], b"");
            assert!(matches!(answer, Answer::Respond(_)), "{since}: {answer:?}");
        }
    }
}

#[test]
fn a_stream_that_grows_all_the_time_is_searched_once() {
    let mut world = World::new();
    let since = format!("since={}", at(10));
    world.search(&since);
    for seconds in 0..10 {
        world.append_at(seconds, b"older");
        let Answer::Respond(response) = world.answer(Method::Get, &since, &[], b"") else { panic!("again") };
        assert_eq!(bytes(&response), 0);
    }
    world.append_at(10, b"ten");
    assert_eq!(world.get(&since).body.concat(), b"ten");
}

#[test]
fn a_fork_branches_off_where_what_is_left_begins_and_nowhere_before() {
    let mut world = World::new();
    let Answer::Live { topic, .. } = world.answer(Method::Get, "offset=now&live=long-poll", &[], b"") else {
        panic!()
    };
    let left = world.trim();
    let (made, inherited) = world.fork("nothing yet", "-1");
    assert_eq!((made.status, inherited), (201, 0));
    let second = Token { incarnation: topic.id(), offset: (9 * RECORD_BYTES - left + RECORD_BYTES) as u64 };
    let (made, inherited) = world.fork("one", std::str::from_utf8(&second.encode()).unwrap());
    assert_eq!((made.status, inherited), (201, RECORD_BYTES));
    let gone = Token { incarnation: topic.id(), offset: 0 }.encode();
    let (refused, _) = world.fork("gone", std::str::from_utf8(&gone).unwrap());
    assert_eq!(rule(&refused), (410, "offset-gone".to_owned()));
}

#[test]
fn a_fork_of_what_is_left_that_is_asked_for_again_is_there() {
    let mut world = World::new();
    world.trim();
    let log = world.store.find(b"s").unwrap();
    let first = Token { incarnation: log.id(), offset: log.visible().unwrap().first }.encode();
    for (at, status) in [("-1", 201), ("-1", 200), (std::str::from_utf8(&first).unwrap(), 200)] {
        assert_eq!(world.fork("fork", at).0.status, status, "{at}");
    }
    world.trim();
    assert_eq!(world.fork("fork", "-1").0.status, 200, "though less is left");
}

#[test]
fn who_follows_from_what_was_let_go_of_is_told_so_like_who_asks_for_it() {
    let mut world = World::new();
    let live = "offset=now&live=long-poll";
    let Answer::Live { topic, live, .. } = world.answer(Method::Get, live, &[], b"") else { panic!() };
    let stood = Token { incarnation: topic.id(), offset: live.offset }.encode();
    world.trim();
    let gone = (410, "offset-gone".to_owned());
    let query = format!("offset={}", std::str::from_utf8(&stood).unwrap());
    assert_eq!(rule(&world.get(&query)), gone);
    let Advance::Respond(late) = world.streams.advance(&topic, &live, NOW) else { panic!() };
    assert_eq!(rule(&late), gone);
}

#[test]
fn a_poll_of_what_is_left_is_answered_with_it_at_its_deadline_too() {
    let mut world = World::empty();
    let query = "offset=-1&live=long-poll";
    let Answer::Live { topic, live, .. } = world.answer(Method::Get, query, &[], b"") else { panic!() };
    let left = world.trim();
    // The movement is announced, and the deadline comes first.
    let answered = world.streams.deadline(&topic, &live, NOW);
    assert_eq!((answered.status, bytes(&answered)), (200, left));
}
