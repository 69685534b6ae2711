//! What the engine let go of, as the rules see it: over the real engine, in memory.

use super::{START_US, path};
use crate::embedded::Embedded;
use crate::{Options, Streams};
use thalweg_log as log;
use thalweg_wire::exchange::{Advance, Answer, Field, Method, Now, Request, Response, Service};
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
        let store = log::Store::memory(log::Options::default()).unwrap();
        let streams = Streams::new(Embedded::new(store.clone(), None), Options::default());
        let mut world = World { streams, store };
        assert_eq!(world.call(Method::Put, "", &[("Stream-Retain-Bytes", "65536")], b"").status, 201);
        world.append();
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
            all.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
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

    fn get(&mut self, query: &str) -> Response {
        self.call(Method::Get, query, &[], b"")
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
    response.body.iter().map(|piece| piece.len()).sum()
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
