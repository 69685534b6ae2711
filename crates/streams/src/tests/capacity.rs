//! As many streams as there may be.

use super::*;

fn full() -> World {
    let mut world = World::with(Options { streams_max: 2, ..Options::default() });
    world.put("a", "text/plain", "one");
    world.put("b", "text/plain", "");
    world
}

/// What the head of a create is answered whose body is still to come.
fn admitted(world: &mut World, method: Method, name: &str) -> Option<u16> {
    let path = path(name);
    let head = Request { method, path: &path, query: None, fields: &[], body: &[], secure: false };
    world.streams.admit(&head, world.now).map(|response| response.status)
}

#[test]
fn a_stream_too_many_is_429_and_nothing_is_done() {
    let mut world = full();
    let writes = world.model.writes();
    let fork = [("Stream-Forked-From", "/v1/stream/a"), ("Content-Type", "text/plain")];
    for reply in [
        world.put("c", "text/plain", "three"),
        world.call(Method::Put, &path("c"), &fork, ""),
        // Nor is looked at whether it could be forked.
        world.call(Method::Put, &path("c"), &[("Stream-Forked-From", "/v1/stream/nope")], ""),
    ] {
        assert_eq!((reply.status, reply.field("retry-after")), (429, "60"));
        assert_eq!(reply.field("content-type"), "application/problem+json");
        assert!(reply.body.contains("\"too-many-streams\""), "{}", reply.body);
    }
    assert_eq!((world.model.writes(), world.get("c", "").status), (writes, 404));
}

#[test]
fn while_there_are_as_many_as_there_may_be_everything_else_goes_on() {
    let mut world = full();
    assert_eq!(world.put("a", "text/plain", "").status, 200, "it exists as asked");
    assert_eq!(world.put("a", "text/html", "").status, 409, "it exists otherwise");
    assert_eq!(world.post("a", "text/plain", "two").status, 204);
    assert_eq!(world.get("a", "").body, "onetwo");
    assert_eq!(world.call(Method::Put, &path("c"), &[("Stream-TTL", "x")], "").status, 400);
    assert_eq!(world.call(Method::Delete, &path("b"), &[], "").status, 204);
    assert_eq!(world.put("c", "text/plain", "").status, 201, "there is room again");
    assert_eq!(world.put("b", "text/plain", "").status, 429);
}

#[test]
fn a_create_too_many_is_refused_before_its_body_has_come() {
    let mut world = full();
    assert_eq!(admitted(&mut world, Method::Put, "c"), Some(429));
    for (method, name) in [
        (Method::Put, "a"),
        (Method::Put, "a//b"),
        (Method::Put, "__ds/subscriptions/s"),
        (Method::Post, "c"),
        (Method::Delete, "c"),
    ] {
        assert_eq!(admitted(&mut world, method, name), None, "{method:?} {name}");
    }
    let mut roomy = World::new();
    assert_eq!(admitted(&mut roomy, Method::Put, "c"), None);
}

#[test]
fn what_a_request_weighs_is_said_by_its_head() {
    use thalweg_wire::exchange::Weight::{Read, Small, Write};
    let world = World::new();
    let weigh = |method, path: &str| {
        let head = Request { method, path, query: None, fields: &[], body: &[], secure: false };
        world.streams.weight(&head)
    };
    for (method, path, weight) in [
        (Method::Get, "/v1/stream/a", Read),
        (Method::Get, "/v1/streams", Read),
        (Method::Get, "/v1/stream/__ds/subscriptions/s", Read),
        (Method::Put, "/v1/stream/a", Write),
        (Method::Post, "/v1/stream/a", Write),
        (Method::Post, "/v1/stream/__ds/subscriptions/s/ack", Write),
        (Method::Delete, "/v1/stream/a", Write),
        (Method::Head, "/v1/stream/a", Small),
        (Method::Options, "/v1/stream/a", Small),
        (Method::Get, "/v1/stream/__ds/jwks.json", Small),
        (Method::Get, "/healthz", Small),
        (Method::Get, "/v1/stats", Small),
        (Method::Post, "/nowhere", Small),
    ] {
        assert_eq!(weigh(method, path), weight, "{method:?} {path}");
    }
}
