//! Preconditions (RFC 9110 13): `If-Match` and `If-None-Match`, on reads and on writes.

use super::*;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

/// A stream of four bytes, and the tag of all of it.
fn world() -> (World, String) {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let tag = world.get("s", "").field("etag").to_owned();
    (world, tag)
}

fn send(world: &mut World, method: Method, fields: &[(&str, &str)]) -> Reply {
    let body = if matches!(method, Method::Post | Method::Put) { "+" } else { "" };
    let fields: Vec<(&str, &str)> = [TEXT].iter().chain(fields).copied().collect();
    world.call(method, &path("s"), &fields, body)
}

const WRITES: [Method; 3] = [Method::Post, Method::Put, Method::Delete];

/// RFC 9110 13.1.1: where no tag matches by strong comparison, the method is not performed.
#[test]
fn nothing_is_done_to_a_stream_that_is_not_as_if_match_has_it() {
    let (mut world, tag) = world();
    let weak = format!("W/{tag}");
    let (mut other, mut behind) = (tag.clone(), tag.clone());
    other.replace_range(1..2, "9");
    behind.insert(tag.rfind(':').unwrap(), '0');
    for none in
        ["\"other\"", "", "\"1:0:3:t\"", "\"1:0:4\"", "\"1:0:4:c\"", "\"1:5:4:t\"", &weak, &other, &behind]
    {
        for method in WRITES.into_iter().chain([Method::Get, Method::Head]) {
            let reply = send(&mut world, method, &[("If-Match", none)]);
            assert_eq!(reply.status, 412, "{method:?} {none}");
            assert_eq!(reply.refusal(), (412, "If-Match".into(), "precondition-failed".into()), "{none}");
        }
    }
    assert_eq!(world.get("s", "").body, "data");
}

#[test]
fn a_stream_that_is_as_if_match_has_it_is_written() {
    let (mut world, tag) = world();
    let list = format!("\"other\", {tag}");
    assert_eq!(send(&mut world, Method::Get, &[("If-Match", &list)]).status, 200);
    assert_eq!(send(&mut world, Method::Head, &[("If-Match", &tag)]).status, 200);
    assert_eq!(send(&mut world, Method::Put, &[("If-Match", &tag)]).status, 200);
    assert_eq!(send(&mut world, Method::Post, &[("If-Match", "*")]).status, 204);
    assert_eq!(send(&mut world, Method::Post, &[("If-Match", &list)]).status, 412, "it has grown since");
    // The tag of any read to the end says what the stream is.
    let end = world.head("s").next().to_owned();
    let tail = world.get("s", &format!("?offset={end}")).field("etag").to_owned();
    assert_eq!(send(&mut world, Method::Post, &[("If-Match", "\"x\""), ("If-Match", &tail)]).status, 204);
    world.close("s");
    let closed = world.get("s", "").field("etag").to_owned();
    assert_eq!(send(&mut world, Method::Delete, &[("If-Match", &tail)]).status, 412);
    assert_eq!(send(&mut world, Method::Delete, &[("If-Match", &closed)]).status, 204);
}

/// RFC 9110 13.1.2: `*` asks that there is none; of a write that is refused, 412 says so.
#[test]
fn if_none_match_creates_a_stream_and_leaves_one_that_is_there_alone() {
    let mut world = World::new();
    let mut put = |match_none| send(&mut world, Method::Put, &[("If-None-Match", match_none)]).status;
    assert_eq!((put("*"), put("*"), put("\"other\"")), (201, 412, 200));
    let tag = world.get("s", "").field("etag").to_owned();
    for list in ["*", &tag, &format!("W/{tag}")] {
        for method in WRITES {
            let reply = send(&mut world, method, &[("If-None-Match", list)]);
            assert_eq!(
                reply.refusal(),
                (412, "If-None-Match".into(), "precondition-failed".into()),
                "{list}"
            );
        }
        assert_eq!(send(&mut world, Method::Get, &[("If-None-Match", list)]).status, 304);
        let head = send(&mut world, Method::Head, &[("If-None-Match", list)]);
        assert_eq!((head.status, head.next()), (304, world.head("s").next()));
    }
    // RFC 9110 13.2.2: the one is looked at before the other.
    let both = [("If-None-Match", "*"), ("If-Match", "\"other\"")];
    assert_eq!(send(&mut world, Method::Get, &both).status, 412);
    assert_eq!(send(&mut world, Method::Post, &[("If-None-Match", "\"other\"")]).status, 204);
}

/// RFC 9110 13.2.1: whatever would be refused anyway is refused for that.
#[test]
fn what_is_refused_anyway_is_refused_as_ever() {
    let (mut world, _) = world();
    let other = ("If-Match", "\"other\"");
    let fields = [("Content-Type", "text/html"), other];
    assert_eq!(world.call(Method::Post, &path("s"), &fields, "+").status, 409);
    assert_eq!(world.call(Method::Put, &path("s"), &fields, "").rule(), "config-mismatch");
    for method in [Method::Post, Method::Delete, Method::Get, Method::Head] {
        assert_eq!(world.call(method, &path("none"), &[TEXT, other], "+").status, 404, "{method:?}");
    }
    // What comes with the request is judged before what it asks for of the stream.
    world.put("json", "application/json", "[1]");
    let broken = [("Content-Type", "application/json"), other];
    assert_eq!(world.call(Method::Post, &path("json"), &broken, "[").status, 400);
    assert_eq!(world.call(Method::Put, &path("none"), &broken, "[").status, 400);
    // But there is nothing that `*` could stand for.
    assert_eq!(world.call(Method::Put, &path("none"), &[TEXT, ("If-Match", "*")], "").status, 412);
    assert_eq!(world.head("none").status, 404);
    world.close("s");
    assert_eq!(send(&mut world, Method::Post, &[other]).rule(), "stream-closed");
}

/// RFC 9110 13.1.1: what was carried out already may be said to be.
#[test]
fn a_producer_that_repeats_a_conditional_append_is_told_that_it_was_taken() {
    let (mut world, tag) = world();
    let fields = [("If-Match", &*tag), ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
    assert_eq!(send(&mut world, Method::Post, &fields).status, 200);
    assert_eq!(send(&mut world, Method::Post, &fields).status, 204);
    assert_eq!(world.get("s", "").body, "data+");
}

#[test]
fn a_rival_that_appends_first_makes_the_tag_an_old_one() {
    let (mut world, tag) = world();
    world.model.rivals(1);
    let reply = world.call(Method::Post, &path("s"), &[TEXT, ("If-Match", &tag)], "+");
    assert_eq!((reply.status, world.get("s", "").body), (412, "dataR".to_owned()));
}

#[test]
fn a_long_poll_that_is_answered_at_once_says_so_when_the_client_has_the_bytes() {
    let (mut world, tag) = world();
    let live = path("s") + "?live=long-poll&offset=-1";
    let had = world.call(Method::Get, &live, &[("If-None-Match", &tag)], "");
    assert_eq!((had.status, &*had.body), (304, ""));
    assert_eq!(world.call(Method::Get, &live, &[("If-Match", "\"other\"")], "").status, 412);
    assert_eq!(world.call(Method::Get, &live, &[("If-None-Match", "\"other\"")], "").body, "data");
}
