//! The table of bad input: status, field and rule, and (checked for every call) nothing written.

use super::*;
use thalweg_wire::exchange::{Announced, Refusal};

type Case<'a> = (Method, &'a str, &'a [(&'a str, &'a str)], &'a str, (u16, &'a str, &'a str));

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

fn check(world: &mut World, cases: &[Case<'_>]) {
    for (method, target, fields, body, (status, field, rule)) in cases {
        let reply = world.call(*method, target, fields, body);
        assert_eq!(
            reply.refusal(),
            (*status, (*field).into(), (*rule).into()),
            "{method:?} {target} {fields:?}"
        );
    }
}

fn world() -> World {
    let mut world = World::new();
    world.put("s", "text/plain", "test");
    world.put("j", "application/json", "");
    world
}

#[test]
fn what_comes_packed_is_not_taken_as_it_is() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let packed = |coding| [("Content-Type", "text/plain"), ("Content-Encoding", coding)];
    for method in [Method::Put, Method::Post] {
        for (target, coding) in [
            ("s", "gzip"),
            ("new", "BR"),
            ("s", "identity, gzip"),
            ("s", "x"),
            ("__ds/subscriptions/s", "gzip"),
        ] {
            let reply = world.call(method, &path(target), &packed(coding), "packed");
            assert_eq!(
                reply.refusal(),
                (415, "Content-Encoding".into(), "content-encoding".into()),
                "{coding}"
            );
            assert_eq!(reply.field("accept-encoding"), "identity", "RFC 9110 15.5.16");
        }
    }
    assert_eq!(world.call(Method::Post, &path("s"), &packed("Identity"), "+").status, 204);
    assert_eq!(world.call(Method::Put, &path("t"), &packed(""), "").status, 201);
    assert_eq!(world.call(Method::Get, &path("s"), &packed("gzip"), "").body, "data+", "a read has no body");
    assert_eq!(world.head("new").status, 404);
    // Whose body is still to come is spared sending it.
    let fields: Vec<Field<'_>> =
        packed("gzip").iter().filter_map(|(name, value)| Field::of(name, value.as_bytes())).collect();
    let head = Request {
        method: Method::Post,
        path: &path("s"),
        query: None,
        fields: &fields,
        body: b"",
        secure: false,
    };
    assert_eq!(world.streams.admit(&head, world.now).unwrap().status, 415);
}

#[test]
fn paths() {
    let long = path(&"x".repeat(1_025));
    let mut cases: Vec<Case<'_>> = vec![
        (Method::Get, "/", &[], "", (404, "path", "path-unknown")),
        (Method::Get, "/v1/stream", &[], "", (404, "path", "path-unknown")),
        (Method::Other, "/v1/stream/s", &[], "", (405, "method", "method-not-allowed")),
        (Method::Get, "/v1/stream/none", &[], "", (404, "path", "stream-missing")),
        (Method::Put, "/v1/stream/__ds", &[], "", (404, "path", "name-reserved")),
        (Method::Put, "/v1/stream/%5F_ds/x", &[], "", (404, "path", "name-reserved")),
    ];
    for (target, rule) in [
        ("/v1/stream/", "name-segment"),
        ("/v1/stream/a//b", "name-segment"),
        ("/v1/stream/../etc/passwd", "name-segment"),
        ("/v1/stream/a/%2e%2e/b", "name-segment"),
        ("/v1/stream/a%2Fb", "name-escaped-slash"),
        ("/v1/stream/a%00b", "name-control-character"),
        ("/v1/stream/a%0Db", "name-control-character"),
        ("/v1/stream/a%zz", "name-percent-encoding"),
        ("/v1/stream/a%", "name-percent-encoding"),
        ("/v1/stream/%ff", "name-not-utf8"),
        (&long, "name-too-long"),
    ] {
        for method in [Method::Get, Method::Put, Method::Post, Method::Delete] {
            cases.push((method, target, &[TEXT], "x", (400, "path", rule)));
        }
    }
    check(&mut world(), &cases);
    let reply = world().call(Method::Put, "/v1/stream/__dsx", &[], "");
    assert_eq!(reply.status, 201, "only the whole segment is reserved");
}

#[test]
fn queries() {
    let mut cases = Vec::new();
    let past = "/v1/stream/s?offset=0000000000000001_0000000000000005";
    for (target, status, field, rule) in [
        ("/v1/stream/s?offset=", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=0,1", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=0%201", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=-2", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=NOW", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=../x", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=-1%00", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=0000000000000001_0000000000000004%0A", 400, "offset", "offset-malformed"),
        ("/v1/stream/s?offset=%zz", 400, "offset", "query-encoding"),
        ("/v1/stream/s?offset=a&offset=b", 400, "offset", "query-key-duplicate"),
        ("/v1/stream/s?live=sse&live=sse&offset=-1", 400, "live", "query-key-duplicate"),
        ("/v1/stream/s?offset=-1&live=long-poll&cursor=1&cursor=2", 400, "cursor", "query-key-duplicate"),
        ("/v1/stream/s?live=long-poll", 400, "offset", "offset-required"),
        ("/v1/stream/s?live=sse", 400, "offset", "offset-required"),
        ("/v1/stream/s?offset=-1&live=", 400, "live", "live-mode"),
        ("/v1/stream/s?offset=-1&live=websocket", 400, "live", "live-mode"),
        (past, 400, "offset", "offset-past-end"),
        ("/v1/stream/s?offset=0000000000000001_ffffffffffffffff&live=sse", 400, "offset", "offset-past-end"),
        ("/v1/stream/s?offset=0000000000000009_0000000000000000", 410, "offset", "offset-gone"),
        ("/v1/stream/none?offset=now&live=sse", 404, "path", "stream-missing"),
        ("/v1/stream/none?offset=now&live=long-poll", 404, "path", "stream-missing"),
    ] {
        cases.push((Method::Get, target, &[] as &[_], "", (status, field, rule)));
    }
    check(&mut world(), &cases);
}

#[test]
fn creates() {
    let mut world = world();
    let mut refused = |fields: &[(&str, &str)], body, expected| {
        check(&mut world, &[(Method::Put, "/v1/stream/n", fields, body, expected)]);
    };
    for ttl in ["abc", "-1", "00060", "+60", "60.5", "1e3", "", " 1", "9007199254740992"] {
        refused(&[("stream-ttl", ttl)], "", (400, "Stream-TTL", "ttl-malformed"));
    }
    let (ttl, expires) = ("Stream-TTL", "Stream-Expires-At");
    refused(&[(expires, "not-a-timestamp")], "", (400, expires, "expires-at-malformed"));
    refused(&[(ttl, "60"), (expires, "2030-01-01T00:00:00Z")], "", (400, expires, "lifetime-conflict"));
    refused(&[(ttl, "1"), (ttl, "1")], "", (400, ttl, "header-duplicate"));
    refused(&[("Content-Type", "nonsense")], "", (400, "Content-Type", "content-type-malformed"));
    refused(&[("Content-Type", "application/json")], "[1,]", (400, "body", "json-malformed"));
    assert_eq!(world.head("n").status, 404);
}

#[test]
fn appends() {
    let mut world = world();
    let mut refused = |fields: &[(&str, &str)], body, expected| {
        check(&mut world, &[(Method::Post, "/v1/stream/s", fields, body, expected)]);
    };
    let long = "x".repeat(1_025);
    refused(&[TEXT], "", (400, "body", "body-empty"));
    refused(&[TEXT, ("Stream-Closed", "false")], "", (400, "body", "body-empty"));
    refused(&[], "x", (400, "Content-Type", "content-type-missing"));
    refused(&[("Content-Type", "")], "x", (400, "Content-Type", "content-type-missing"));
    refused(&[("Content-Type", "text")], "x", (400, "Content-Type", "content-type-malformed"));
    refused(&[TEXT, TEXT], "x", (400, "Content-Type", "header-duplicate"));
    refused(&[("Content-Type", "application/json")], "{}", (409, "Content-Type", "content-type-mismatch"));
    refused(&[TEXT, ("Stream-Seq", "")], "x", (400, "Stream-Seq", "writer-seq"));
    refused(&[TEXT, ("Stream-Seq", &long)], "x", (400, "Stream-Seq", "writer-seq"));
    let with = |id, epoch, seq| [TEXT, ("Producer-Id", id), ("Producer-Epoch", epoch), ("Producer-Seq", seq)];
    refused(&with("", "0", "0"), "x", (400, "Producer-Id", "producer-id"));
    refused(&with(&long, "0", "0"), "x", (400, "Producer-Id", "producer-id"));
    for bad in ["1abc", "-1", "1.5", "1e3", "", "01", "9007199254740992"] {
        refused(&with("p", bad, "0"), "x", (400, "Producer-Epoch", "producer-integer"));
        refused(&with("p", "0", bad), "x", (400, "Producer-Seq", "producer-integer"));
    }
    let whole = with("p", "0", "0");
    for missing in 1..4 {
        let some: Vec<_> = whole.iter().filter(|field| field.0 != whole[missing].0).copied().collect();
        refused(&some, "x", (400, whole[missing].0, "producer-headers-incomplete"));
    }
    assert_eq!(world.get("s", "").body, "test");
}

#[test]
fn appends_of_json() {
    let mut world = world();
    let json: &[_] = &[("Content-Type", "application/json")];
    for (body, rule) in [
        ("{ invalid json }", "json-malformed"),
        (" ", "json-malformed"),
        ("{} {}", "json-malformed"),
        ("[]", "json-empty-array"),
    ] {
        check(&mut world, &[(Method::Post, "/v1/stream/j", json, body, (400, "body", rule))]);
    }
    let close: &[_] = &[("Stream-Closed", "true")];
    check(&mut world, &[(Method::Post, "/v1/stream/none", close, "", (404, "path", "stream-missing"))]);
}

#[test]
fn refusals_of_the_connection_have_the_same_shape() {
    let mut world = World::new();
    let refusal = Refusal {
        status: 431,
        code: "header-block-too-large",
        field: "headers",
        detail: "the header block may have 16 KiB",
    };
    let reply = Reply::new(world.streams.refuse(&refusal, Announced::default(), world.now), 0);
    assert_eq!(reply.refusal(), (431, "headers".into(), "header-block-too-large".into()));
    let busy =
        Refusal { status: 503, code: "connections", field: "connection", detail: "too many connections" };
    assert_eq!(
        Reply::new(world.streams.refuse(&busy, Announced::default(), world.now), 0).field("retry-after"),
        "1"
    );
    let failed = Reply::new(world.streams.failed(world.now), 0);
    assert_eq!(failed.refusal(), (500, "store".into(), "outcome-unknown".into()));
}
