use super::*;
use crate::Sharing;
use crate::store::StoreError;

fn chunked(catch_up_bytes_max: usize) -> World {
    World::with(Options { catch_up_bytes_max, ..Options::default() })
}

#[test]
fn the_beginning_and_a_returned_offset() {
    let mut world = World::new();
    let first = world.put("s", "text/plain", "first");
    let offset = format!("?offset={}", first.next());
    world.post("s", "text/plain", "second");
    for query in ["", "?offset=-1", "?foo=bar&offset=-1&baz", "?"] {
        let reply = world.get("s", query);
        assert_eq!((reply.status, reply.body.as_str(), reply.is_up_to_date()), (200, "firstsecond", true));
        assert_eq!(reply.field("content-type"), "text/plain");
    }
    assert_eq!(world.get("s", &offset).body, "second");
    let tail = world.head("s").next().to_owned();
    let nothing = world.get("s", &format!("?offset={tail}"));
    assert_eq!((nothing.status, nothing.body.as_str(), nothing.next()), (200, "", tail.as_str()));
    assert!(nothing.is_up_to_date());
    assert_eq!(nothing.field("cache-control"), "no-cache", "an open tail moves");
}

#[test]
fn chunks_follow_each_other_to_the_end() {
    let mut world = chunked(4);
    world.put("s", "application/octet-stream", "");
    let mut expected = String::new();
    for body in ["ab", "c", "defghijklm", "n"] {
        world.post("s", "application/octet-stream", body);
        expected += body;
    }
    world.close("s");
    let (mut offset, mut read) = ("-1".to_owned(), String::new());
    loop {
        let reply = world.get("s", &format!("?offset={offset}"));
        assert!(reply.body.len() <= 4);
        read += &reply.body;
        // PROTOCOL 5.6: up-to-date and closed come with the last chunk and not before.
        assert_eq!((reply.is_up_to_date(), reply.is_closed()), (read == expected, read == expected));
        assert!(offset == "-1" || reply.next() >= offset.as_str());
        offset = reply.next().to_owned();
        if reply.is_up_to_date() {
            break;
        }
    }
    assert_eq!(read, expected);
    let eof = world.get("s", &format!("?offset={offset}"));
    assert!(eof.status == 200 && eof.body.is_empty() && eof.is_closed() && eof.is_up_to_date());
}

#[test]
fn json_chunks_are_arrays_of_whole_messages() {
    let mut world = chunked(8);
    world.put("j", "application/json", "");
    for body in ["[1,2]", "{\"long\":\"message\"}", "[\",\"]", "3"] {
        world.post("j", "application/json", body);
    }
    let (mut offset, mut bodies) = ("-1".to_owned(), Vec::new());
    loop {
        let reply = world.get("j", &format!("?offset={offset}"));
        offset = reply.next().to_owned();
        bodies.push(reply.body.clone());
        if reply.is_up_to_date() {
            break;
        }
    }
    assert_eq!(bodies, ["[1,2]", "[{\"long\":\"message\"}]", "[\",\",3]"]);
    assert_eq!(world.get("j", &format!("?offset={offset}")).body, "[]");
}

#[test]
fn now_is_the_tail_and_is_not_cached() {
    let mut world = World::new();
    for (name, media, data, empty) in [("t", "text/plain", "old", ""), ("j", "application/json", "[1]", "[]")]
    {
        world.put(name, media, data);
        let tail = world.head(name).next().to_owned();
        let now = world.get(name, "?offset=now");
        assert_eq!((now.status, now.body.as_str(), now.next()), (200, empty, tail.as_str()));
        assert_eq!((now.field("cache-control"), now.field("etag")), ("no-store", ""));
        assert!(now.is_up_to_date() && !now.is_closed());
        world.close(name);
        assert!(world.get(name, "?offset=now").is_closed());
    }
    assert_eq!(world.get("none", "?offset=now").status, 404);
}

#[test]
fn a_tag_saves_the_body_until_something_changes() {
    let mut world = World::new();
    world.put("s", "text/plain", "test data");
    let tag = world.get("s", "").field("etag").to_owned();
    let conditional = |world: &mut World, tag: &str| {
        world.call(Method::Get, &path("s"), &[("If-None-Match", "\"other\""), ("if-none-match", tag)], "")
    };
    for list in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
        let reply = conditional(&mut world, &list);
        assert_eq!((reply.status, reply.body.as_str(), reply.field("etag")), (304, "", tag.as_str()));
        assert_eq!(reply.next(), "0000000000000001_0000000000000009");
    }
    assert_eq!(conditional(&mut world, "\"wrong-etag\"").body, "test data");
    world.post("s", "text/plain", "!");
    let longer = conditional(&mut world, &tag);
    assert_eq!((longer.status, longer.body.as_str()), (200, "test data!"));
    world.close("s");
    let closed = conditional(&mut world, longer.field("etag"));
    assert!(closed.status == 200 && closed.is_closed(), "a 304 would hide the closure");
}

/// RFC 9111 3.2: a cache keeps the fields that a 304 does not have, and so that this was all there is.
#[test]
fn a_tag_changes_when_there_is_more_than_the_read_has() {
    let mut world = chunked(8);
    world.put("s", "text/plain", "12345678");
    let all = world.get("s", "");
    assert!(all.is_up_to_date());
    world.post("s", "text/plain", "9");
    let more = world.call(Method::Get, &path("s"), &[("If-None-Match", all.field("etag"))], "");
    assert_eq!((more.status, more.body.as_str(), more.is_up_to_date()), (200, "12345678", false));
}

#[test]
fn caches_keep_data_as_long_as_the_stream_allows() {
    let cache_control = |world: &mut World, fields: &[(&str, &str)]| {
        world.call(Method::Put, &path("s"), fields, "data");
        world.get("s", "").field("cache-control").to_owned()
    };
    let whole = "public, max-age=60, stale-while-revalidate=300";
    assert_eq!(cache_control(&mut World::new(), &[]), whole);
    assert_eq!(
        cache_control(&mut World::new(), &[("Stream-TTL", "10")]),
        "public, max-age=10, stale-while-revalidate=0"
    );
    let mut private = World::with(Options { sharing: Sharing::Private, ..Options::default() });
    assert_eq!(cache_control(&mut private, &[]), whole.replace("public", "private"));
}

#[test]
fn head_tells_the_metadata_and_is_never_cached() {
    let mut world = World::new();
    world.call(Method::Put, &path("s"), &[("Content-Type", "text/x; a=b"), ("Stream-TTL", "60")], "data");
    let head = world.head("s");
    assert_eq!((head.status, head.field("content-type"), head.body.as_str()), (200, "text/x; a=b", ""));
    assert_eq!((head.field("stream-ttl"), head.field("cache-control")), ("60", "no-store"));
    assert!(head.next().ends_with("4") && !head.is_closed());
    world.close("s");
    assert!(world.head("s").is_closed());
    assert_eq!(world.head("none").status, 404);
}

#[test]
fn the_preflight_allows_the_protocol() {
    let mut world = World::new();
    let reply = world.call(Method::Options, &path("s"), &[("Origin", "https://example.com")], "");
    assert_eq!(reply.status, 204);
    let allowed = reply.field("access-control-allow-headers").to_lowercase();
    for name in [
        "if-none-match",
        "content-type",
        "stream-seq",
        "stream-closed",
        "producer-id",
        "authorization",
        "last-event-id",
    ] {
        assert!(allowed.split(", ").any(|allowed| allowed == name), "{name} in {allowed}");
    }
    assert!(reply.field("access-control-allow-methods").contains("DELETE"));
    for page in ["/healthz", "/v1/stats", "/v1/streams"] {
        let reply = world.call(Method::Options, page, &[("Origin", "https://example.com")], "");
        let told = (reply.field("allow"), reply.field("access-control-allow-methods"));
        assert_eq!(told, ("GET, HEAD, OPTIONS", "GET, HEAD, OPTIONS"), "{page}");
    }
}

#[test]
fn health_is_small_json() {
    let mut world = World::new();
    let reply = world.call(Method::Get, "/healthz", &[], "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "{\"status\":\"ok\"}"));
    let refused = world.call(Method::Post, "/healthz", &[], "");
    assert_eq!((refused.status, refused.field("allow")), (405, "GET, HEAD, OPTIONS"));
}

#[test]
fn a_read_of_cold_bytes_names_the_work_and_succeeds_after_it() {
    let mut world = World::new();
    world.put("s", "text/plain", "bytes");
    world.model.cool();
    let Answer::Cold(work) = world.answer(Method::Get, &path("s"), &[], b"") else {
        panic!("cold bytes were read")
    };
    assert!(matches!(world.answer(Method::Get, &path("s"), &[], b""), Answer::Cold(_)));
    assert_eq!(world.call(Method::Head, &path("s"), &[], b"").status, 200, "needs no bytes");
    (work.0)();
    assert_eq!(world.get("s", "").body, "bytes");
    let mut tail = world.tail("s", "?offset=-1&live=sse");
    world.model.cool();
    let Advance::Cold(work) = world.advance(&tail) else { panic!("cold bytes were read") };
    (work.0)();
    assert!(world.events(&mut tail).unwrap().0.contains("bytes"));
}

#[test]
fn an_offset_inside_a_message_is_none() {
    let mut world = World::new();
    let first = world.put("j", "application/json", "[{\"a\":\"x,y\"},1]").next().to_owned();
    let tail = world.post("j", "application/json", "{\"b\":1}").next().to_owned();
    let incarnation = &first[..17];
    let end = u64::from_str_radix(&first[17..], 16).unwrap();
    for offset in 1..end {
        let offset = format!("{incarnation}{offset:016x}");
        for live in ["", "&live=sse", "&live=long-poll"] {
            let refused = world.get("j", &format!("?offset={offset}{live}"));
            assert_eq!(
                refused.refusal(),
                (400, "offset".into(), "offset-malformed".into()),
                "{offset}{live}"
            );
        }
        let from = path("j");
        let fields = [("Stream-Forked-From", from.as_str()), ("Stream-Fork-Offset", offset.as_str())];
        let refused = world.call(Method::Put, &path("f"), &fields, "");
        assert_eq!(refused.rule(), "fork-offset-malformed", "{offset}");
    }
    assert_eq!(world.get("j", &format!("?offset={first}")).body, "[{\"b\":1}]");
    assert_eq!(world.get("j", &format!("?offset={tail}")).body, "[]");
    assert_eq!(world.get("j", &format!("?offset={incarnation}{:016x}", 0)).status, 200);
    // Of bytes every offset is one.
    let next = world.put("t", "text/plain", "abc").next().to_owned();
    assert_eq!(world.get("t", &format!("?offset={}{:016x}", &next[..17], 1)).body, "bc");
}

#[test]
fn what_is_read_is_a_page_of_no_origin() {
    let mut world = World::new();
    world.put("s", "text/html", "<script></script>");
    let read = world.get("s", "");
    assert_eq!(read.field("content-security-policy"), "sandbox");
    let polled = world.get("s", "?offset=-1&live=long-poll");
    assert_eq!(polled.field("content-security-policy"), "sandbox");
}

#[test]
fn a_read_from_the_beginning_that_retention_overtakes_begins_with_what_is_left() {
    for query in ["", "?offset=-1", "?offset=-1&live=long-poll", "?since=0"] {
        let mut world = World::new();
        world.put("s", "text/plain", "hello");
        world.post("s", "text/plain", "world");
        world.model.trim_behind(5);
        let read = world.get("s", query);
        assert_eq!((read.status, &*read.body), (200, "world"), "{query}");
        let place = format!("?offset={:016x}_{:016x}", 1, 0);
        assert_eq!(world.get("s", &place).refusal().0, 410, "an offset is one");
    }
}

#[test]
fn a_read_that_retention_overtakes_each_time_says_so_of_retention() {
    let mut world = World::new();
    world.put("s", "text/plain", "hello");
    world.model.damage(StoreError::Purged);
    let overtaken = world.get("s", "");
    assert_eq!(overtaken.refusal(), (503, "path".into(), "stream-contended".into()));
    assert_eq!(overtaken.field("retry-after"), "1");
    let detail = overtaken.problem()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("retention") && !detail.contains("writers"), "{detail}");
}

#[test]
fn events_from_the_beginning_that_retention_overtakes_begin_with_what_is_left() {
    let mut world = World::new();
    world.put("s", "text/plain", "hello");
    world.post("s", "text/plain", "world");
    for query in ["?offset=-1&live=sse", "?since=0&live=sse"] {
        let mut tail = world.tail("s", query);
        world.model.trim_behind(5);
        let (events, _) = world.events(&mut tail).unwrap();
        assert!(events.contains("data:world\n") && !events.contains("hello"), "{query}: {events}");
    }
    let mut waits = World::new();
    waits.put("s", "text/plain", "");
    let poll = waits.tail("s", "?offset=-1&live=long-poll");
    waits.post("s", "text/plain", "hello");
    waits.post("s", "text/plain", "world");
    waits.model.trim_behind(5);
    let Advance::Respond(answer) = waits.advance(&poll) else { panic!("nothing is left") };
    assert_eq!(Reply::new(answer, 0).body, "world");
    // A reader that named an offset is told that it is gone.
    let named = world.tail("s", &format!("?offset={:016x}_{:016x}&live=sse", 1, 5));
    world.model.trim_behind(10);
    let Advance::Respond(gone) = world.advance(&named) else { panic!("no refusal") };
    assert_eq!(gone.status, 410);
}
