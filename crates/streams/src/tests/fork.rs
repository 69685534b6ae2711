//! The rules of PROTOCOL 4.2, row by row.

use super::*;

const FROM: &str = "Stream-Forked-From";
const OFFSET: &str = "Stream-Fork-Offset";
const SUB_OFFSET: &str = "Stream-Fork-Sub-Offset";
const ZERO: &str = "0000000000000000_0000000000000000";

impl World {
    /// Forks with these headers beside the source's name.
    fn fork(&mut self, name: &str, source: &str, fields: &[(&str, &str)]) -> Reply {
        let from = path(source);
        let mut all = vec![(FROM, from.as_str()), ("Host", "h:1")];
        all.extend_from_slice(fields);
        self.call(Method::Put, &path(name), &all, "")
    }

    fn delete(&mut self, name: &str) -> Reply {
        self.call(Method::Delete, &path(name), &[], "")
    }
}

#[test]
fn a_fork_is_a_stream_like_any_other() {
    let mut world = World::new();
    let source = world.put("s", "text/plain", "hello");
    let fork = world.fork("f", "s", &[]);
    assert_eq!((fork.status, fork.field("location")), (201, "http://h:1/v1/stream/f"));
    assert_eq!((fork.field("content-type"), fork.next()), ("text/plain", source.next()));
    assert_eq!(world.model.writes(), 2, "a fork is one commit");
    for reply in [fork, world.head("f"), world.get("f", ""), world.fork("f", "s", &[])] {
        let told = reply.fields.iter().any(|(name, _)| name.contains("fork"));
        assert!(!told, "forks are transparent: {reply:?}");
    }
}

#[test]
fn a_fork_inherits_what_lies_before_its_offset_and_nothing_behind() {
    let mut world = World::new();
    let middle = world.put("s", "text/plain", "one").next().to_owned();
    world.post("s", "text/plain", "two");
    assert_eq!(world.fork("f", "s", &[(OFFSET, &middle)]).status, 201);
    assert_eq!(world.fork("whole", "s", &[]).status, 201);
    for (name, offset) in [("zero", ZERO), ("beginning", "-1")] {
        assert_eq!(world.fork(name, "s", &[(OFFSET, offset)]).status, 201);
        let read = world.get(name, "");
        assert!(read.body.is_empty() && read.is_up_to_date(), "{name}: {read:?}");
    }
    world.post("s", "text/plain", "later");
    let tail = world.post("f", "text/plain", "+own");
    assert_eq!(world.get("f", "").body, "one+own");
    assert_eq!(world.get("whole", "").body, "onetwo");
    assert_eq!(world.get("s", "").body, "onetwolater");
    assert_eq!(world.get("f", "").next(), tail.next());
    // PROTOCOL 4.2: an initial body comes behind what is inherited.
    let from = path("s");
    let fields = [(FROM, from.as_str()), (OFFSET, &middle), ("Content-Type", "text/plain")];
    assert_eq!(world.call(Method::Put, &path("body"), &fields, "+body").status, 201);
    assert_eq!(world.get("body", "").body, "one+body");
}

#[test]
fn offsets_below_the_divergence_are_the_sources_and_above_it_the_forks() {
    let mut world = World::new();
    let first = world.put("s", "text/plain", "one").next().to_owned();
    let second = world.post("s", "text/plain", "two").next().to_owned();
    world.fork("f", "s", &[(OFFSET, &second)]);
    let own = world.post("f", "text/plain", "own").next().to_owned();
    assert!(first < second && second < own, "tokens sort");
    assert_eq!(world.get("f", &format!("?offset={first}")).body, "twoown");
    assert_eq!(world.get("f", &format!("?offset={second}")).body, "own");
    assert_eq!(world.get("f", &format!("?offset={own}")).body, "");
    // A fork of a fork, below and above the first one's base.
    assert_eq!(world.fork("below", "f", &[(OFFSET, &first)]).next(), first);
    let above = world.fork("above", "f", &[]);
    assert_eq!((above.next(), world.get("above", "").body), (own.as_str(), "onetwoown".into()));
    let third = world.post("above", "text/plain", "!").next().to_owned();
    assert!(third > own);
    // What the source went on to is not the fork's, nor the other way round.
    let beyond = world.post("s", "text/plain", "three").next().to_owned();
    for (name, offset) in [("f", &beyond), ("s", &own), ("below", &second), ("f", &third)] {
        let reply = world.get(name, &format!("?offset={offset}"));
        assert_eq!(reply.refusal(), (410, "offset".into(), "offset-gone".into()), "{name}");
    }
    // A fork that is created anew honours no old offset of its own, and no old tag.
    let tag = world.get("f", "").field("etag").to_owned();
    world.delete("above");
    world.delete("below");
    world.delete("f");
    world.fork("f", "s", &[(OFFSET, &second)]);
    let again = world.post("f", "text/plain", "own");
    assert!(again.next() > own.as_str());
    assert_eq!(world.get("f", &format!("?offset={own}")).status, 410);
    assert_ne!(world.get("f", "").field("etag"), tag);
    assert_ne!(world.get("f", "").field("etag"), world.get("s", "").field("etag"));
}

#[test]
fn a_sub_offset_counts_bytes_within_one_append() {
    let mut world = World::new();
    let anchor = world.put("s", "text/plain", "hello").next().to_owned();
    world.post("s", "text/plain", "second");
    for (name, offset, count, expected) in [
        ("a", ZERO, "3", "hel"),
        ("b", ZERO, "5", "hello"),
        ("c", &anchor, "6", "hellosecond"),
        ("d", &anchor, "0", "hello"),
    ] {
        let reply = world.fork(name, "s", &[(OFFSET, offset), (SUB_OFFSET, count)]);
        assert_eq!(reply.status, 201, "{name}");
        let next = reply.next().to_owned();
        assert_eq!(world.get(name, "").body, expected);
        let rest = world.get(name, &format!("?offset={next}"));
        assert!(rest.status == 200 && rest.body.is_empty() && rest.is_up_to_date());
        assert_eq!(world.post(name, "text/plain", "+").status, 204);
        assert_eq!(world.get(name, "").body, format!("{expected}+"));
    }
    // A fork's own boundary is one too: what is left of the record it cut.
    let cut = world.fork("e", "a", &[(OFFSET, ZERO), (SUB_OFFSET, "4")]);
    assert_eq!(cut.refusal().2, "fork-sub-offset-past-end");
    assert_eq!(world.fork("e", "a", &[(OFFSET, ZERO), (SUB_OFFSET, "2")]).status, 201);
    assert_eq!(world.get("e", "").body, "he");
}

#[test]
fn a_sub_offset_of_a_json_stream_counts_messages() {
    let mut world = World::new();
    let anchor = world.put("s", "application/json", r#"[{"a":","},[1,2]]"#).next().to_owned();
    world.post("s", "application/json", r#"["x\",", 4]"#);
    for (name, offset, count, expected) in [
        ("a", ZERO, "1", r#"[{"a":","}]"#),
        ("b", ZERO, "2", r#"[{"a":","},[1,2]]"#),
        ("c", &anchor, "1", r#"[{"a":","},[1,2],"x\","]"#),
    ] {
        assert_eq!(world.fork(name, "s", &[(OFFSET, offset), (SUB_OFFSET, count)]).status, 201, "{name}");
        assert_eq!(world.get(name, "").body, expected);
        world.post(name, "application/json", "9");
        assert_eq!(world.get(name, "").body, format!("{},9]", expected.strip_suffix(']').unwrap()));
    }
    for count in ["3", "4"] {
        let reply = world.fork("n", "s", &[(OFFSET, ZERO), (SUB_OFFSET, count)]);
        assert_eq!(reply.refusal(), (400, SUB_OFFSET.into(), "fork-sub-offset-past-end".into()));
    }
}

#[test]
fn what_cannot_be_forked_is_refused_and_nothing_written() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let other = world.put("other", "text/plain", "data").next().to_owned();
    for (fields, expected) in [
        (vec![(FROM, "/v1/stream/none")], (404, FROM, "fork-source-missing")),
        (vec![(FROM, "/elsewhere/s")], (404, FROM, "fork-source-missing")),
        (vec![(FROM, "http://else.where/v1/stream/s")], (400, FROM, "fork-source-malformed")),
        (vec![(FROM, "/v1/stream/a%2Fb")], (400, FROM, "fork-source-malformed")),
        (vec![(FROM, "")], (400, FROM, "fork-source-malformed")),
        (vec![(FROM, "/v1/stream/s"), (FROM, "/v1/stream/s")], (400, FROM, "header-duplicate")),
        (vec![(OFFSET, ZERO)], (400, OFFSET, "fork-source-required")),
        (vec![(SUB_OFFSET, "0")], (400, SUB_OFFSET, "fork-source-required")),
    ] {
        let reply = world.call(Method::Put, &path("n"), &fields, "");
        assert_eq!(reply.refusal(), (expected.0, expected.1.into(), expected.2.into()), "{fields:?}");
    }
    let past = "0000000000000001_0000000000000005";
    for (fields, expected) in [
        (vec![(OFFSET, "9999999999999999_9999999999999999")], (400, OFFSET, "fork-offset-past-end")),
        (vec![(OFFSET, past)], (400, OFFSET, "fork-offset-past-end")),
        (vec![(OFFSET, "12")], (400, OFFSET, "fork-offset-malformed")),
        (vec![(OFFSET, "")], (400, OFFSET, "fork-offset-malformed")),
        (vec![(OFFSET, other.as_str())], (400, OFFSET, "fork-offset-foreign")),
        (vec![(SUB_OFFSET, "1")], (400, SUB_OFFSET, "fork-offset-required")),
        (vec![(OFFSET, ZERO), (SUB_OFFSET, "5")], (400, SUB_OFFSET, "fork-sub-offset-past-end")),
        (
            vec![(OFFSET, ZERO), (SUB_OFFSET, "9007199254740991")],
            (400, SUB_OFFSET, "fork-sub-offset-past-end"),
        ),
        (vec![("Content-Type", "application/json")], (409, "Content-Type", "content-type-mismatch")),
        (vec![("Stream-TTL", "x")], (400, "Stream-TTL", "ttl-malformed")),
    ] {
        let reply = world.fork("n", "s", &fields);
        assert_eq!(reply.refusal(), (expected.0, expected.1.into(), expected.2.into()), "{fields:?}");
    }
    for bad in ["-1", "abc", "1.5", "05", "+1", "", " 1", "9007199254740992"] {
        let reply = world.fork("n", "s", &[(OFFSET, ZERO), (SUB_OFFSET, bad)]);
        assert_eq!(reply.refusal(), (400, SUB_OFFSET.into(), "fork-sub-offset-malformed".into()), "{bad}");
    }
    assert_eq!(world.head("n").status, 404);
    // None of them left a reference behind: the source goes at once.
    assert_eq!((world.delete("s").status, world.head("s").status), (204, 404));
}

#[test]
fn the_same_fork_again_is_200_and_another_is_409() {
    let mut world = World::new();
    let middle = world.put("s", "text/plain", "hello").next().to_owned();
    world.put("t", "text/plain", "hello");
    assert_eq!(world.fork("tail", "s", &[]).status, 201);
    let at = [(OFFSET, ZERO), (SUB_OFFSET, "5")];
    assert_eq!(world.fork("sub", "s", &at).status, 201);
    let tail = world.post("s", "text/plain", "more").next().to_owned();
    let writes = world.model.writes();
    assert_eq!(world.fork("tail", "s", &[]).status, 200, "the tail moved on, the request is the same");
    assert_eq!(world.fork("tail", "s", &[(OFFSET, &middle)]).status, 200, "what the tail was");
    assert_eq!(world.fork("sub", "s", &at).status, 200);
    assert_eq!(world.fork("sub", "s", &[at[0], at[1], ("Content-Type", "text/plain")]).status, 200);
    for (name, source, fields, field) in [
        ("tail", "s", vec![(OFFSET, ZERO)], OFFSET),
        ("tail", "s", vec![(OFFSET, tail.as_str())], OFFSET),
        ("tail", "t", vec![], FROM),
        ("tail", "none", vec![], FROM),
        ("tail", "s", vec![("Content-Type", "application/json")], "Content-Type"),
        ("tail", "s", vec![("Stream-TTL", "60")], "Stream-TTL"),
        ("tail", "s", vec![("Stream-Closed", "true")], "Stream-Closed"),
        ("sub", "s", vec![], OFFSET),
        ("sub", "s", vec![(OFFSET, ZERO), (SUB_OFFSET, "4")], SUB_OFFSET),
        ("sub", "s", vec![(OFFSET, &middle)], OFFSET),
        ("s", "t", vec![], FROM),
    ] {
        let reply = world.fork(name, source, &fields);
        assert_eq!(reply.refusal(), (409, field.into(), "config-mismatch".into()), "{name} {fields:?}");
    }
    let plain = world.call(Method::Put, &path("tail"), &[("Content-Type", "text/plain")], "");
    assert_eq!(plain.refusal(), (409, FROM.into(), "config-mismatch".into()));
    assert_eq!(world.model.writes(), writes);
}

#[test]
fn lifetimes_are_asked_for_or_inherited() {
    const TTL: (&str, &str) = ("Stream-TTL", "60");
    const UNTIL: (&str, &str) = ("Stream-Expires-At", "2030-01-01T00:00:00Z");
    const OWN_TTL: (&str, &str) = ("Stream-TTL", "99999");
    const OWN_UNTIL: (&str, &str) = ("Stream-Expires-At", "2031-01-01T00:00:00Z");
    // PROTOCOL 4.2, the table: source, fork request, what the fork gets.
    let rows = [
        (None, None, None),
        (None, Some(OWN_TTL), Some(OWN_TTL)),
        (None, Some(OWN_UNTIL), Some(OWN_UNTIL)),
        (Some(TTL), None, Some(TTL)),
        (Some(TTL), Some(OWN_TTL), Some(OWN_TTL)),
        (Some(TTL), Some(OWN_UNTIL), Some(OWN_UNTIL)),
        (Some(UNTIL), None, Some(UNTIL)),
        (Some(UNTIL), Some(OWN_TTL), Some(OWN_TTL)),
        (Some(UNTIL), Some(OWN_UNTIL), Some(OWN_UNTIL)),
    ];
    let mut world = World::new();
    for (index, (source, request, expected)) in rows.into_iter().enumerate() {
        let (name, fork) = (format!("s{index}"), format!("f{index}"));
        let fields: Vec<_> = source.into_iter().collect();
        world.call(Method::Put, &path(&name), &fields, "");
        let fields: Vec<_> = request.into_iter().collect();
        for status in [201, 200] {
            assert_eq!(world.fork(&fork, &name, &fields).status, status, "row {index}");
        }
        let head = world.head(&fork);
        for field in ["Stream-TTL", "Stream-Expires-At"] {
            let value = expected.filter(|(name, _)| *name == field).map_or("", |(_, value)| value);
            assert_eq!(head.field(&field.to_lowercase()), value, "row {index}");
        }
    }
}

#[test]
fn a_closed_source_has_open_forks_that_know_no_writer() {
    let mut world = World::new();
    let fields = [
        ("Content-Type", "text/plain"),
        ("Stream-Seq", "9"),
        ("Producer-Id", "p"),
        ("Producer-Epoch", "3"),
        ("Producer-Seq", "0"),
    ];
    world.put("s", "text/plain", "");
    assert_eq!(world.call(Method::Post, &path("s"), &fields, "data").status, 200);
    world.close("s");
    let fork = world.fork("f", "s", &[]);
    assert!(fork.status == 201 && !fork.is_closed());
    let fields = [fields[0], ("Stream-Seq", "1"), fields[2], ("Producer-Epoch", "0"), fields[4]];
    assert_eq!(world.call(Method::Post, &path("f"), &fields, "+").status, 200);
    assert_eq!(world.get("f", "").body, "data+");
    assert!(world.get("s", "").is_closed());
    let closed = world.fork("closed", "s", &[("Stream-Closed", "true")]);
    assert!(closed.status == 201 && closed.is_closed() && world.get("closed", "").is_closed());
}

#[test]
fn a_source_with_forks_is_soft_deleted_and_goes_with_the_last() {
    let mut world = World::new();
    world.put("a", "text/plain", "A");
    world.fork("b", "a", &[]);
    world.post("b", "text/plain", "B");
    world.fork("c", "b", &[]);
    assert_eq!((world.delete("a").status, world.delete("b").status), (204, 204));
    for name in ["a", "b"] {
        for method in [Method::Get, Method::Head, Method::Delete] {
            let reply = world.call(method, &path(name), &[], "");
            assert_eq!(reply.refusal(), (410, "path".into(), "stream-deleted".into()), "{method:?}");
        }
        assert_eq!(world.post(name, "text/plain", "x").status, 410);
        assert_eq!(
            world.put(name, "text/plain", "").refusal(),
            (409, "path".into(), "stream-deleted".into())
        );
        let fork = world.fork("d", name, &[]);
        assert_eq!(fork.refusal(), (409, FROM.into(), "fork-source-deleted".into()));
    }
    assert_eq!(world.get("c", "").body, "AB");
    assert_eq!(world.fork("c", "b", &[]).status, 200, "its source is still what it was");
    assert_eq!(world.delete("c").status, 204);
    for name in ["a", "b", "c"] {
        assert_eq!(world.head(name).status, 404, "{name}");
        assert_eq!(world.put(name, "text/plain", "").status, 201, "{name}");
    }
}

#[test]
fn an_expired_source_lives_on_in_its_forks() {
    let mut world = World::new();
    let ttl = [("Content-Type", "text/plain"), ("Stream-TTL", "1")];
    world.call(Method::Put, &path("s"), &ttl, "data");
    world.fork("f", "s", &[("Stream-TTL", "10")]);
    world.sleep_ms(1_000);
    for (method, status) in [(Method::Get, 410), (Method::Put, 409), (Method::Post, 410)] {
        let fields = [("Content-Type", "text/plain")];
        assert_eq!(world.call(method, &path("s"), &fields, "x").status, status, "{method:?}");
    }
    assert_eq!(world.get("f", "").body, "data");
    world.sleep_ms(10_000);
    assert_eq!((world.head("f").status, world.head("s").status), (404, 404));
}

#[test]
fn answers_about_forks_wait_for_what_they_were_decided_on() {
    let mut world = World::new();
    world.put("s", "text/plain", "hello");
    world.model.lag();
    // Staged, not durable: a sub-offset reaches into it all the same.
    let anchor = world.post("s", "text/plain", "staged").next().to_owned();
    let anchor = anchor.replace("b", "5");
    let fork = world.fork("f", "s", &[(OFFSET, &anchor), (SUB_OFFSET, "3")]);
    assert!(fork.status == 201 && fork.ticket > 0);
    assert_eq!(world.head("f").status, 404, "not visible yet");
    let deleted = world.delete("s");
    assert!(deleted.status == 204 && deleted.ticket > fork.ticket);
    assert_eq!(world.get("s", "").body, "hello", "readers see what is durable");
    let gone = world.post("s", "text/plain", "x");
    assert_eq!((gone.status, gone.ticket), (410, deleted.ticket));
    assert_eq!(world.put("s", "text/plain", "").ticket, deleted.ticket);
    assert_eq!(world.fork("g", "s", &[]).ticket, deleted.ticket);
    world.model.settle();
    assert_eq!((world.head("s").status, world.get("f", "").body), (410, "hellosta".into()));
    let last = world.delete("f");
    assert_eq!(world.head("s").status, 410, "the last fork's deletion is not durable yet");
    assert_eq!(world.put("s", "text/plain", "").status, 409);
    assert_eq!(world.model.settle(), last.ticket);
    assert_eq!((world.head("s").status, world.head("f").status), (404, 404));
}

#[test]
fn live_readers_of_a_fork_get_what_it_inherited_and_never_what_the_source_goes_on_to() {
    let mut world = World::new();
    world.put("s", "text/plain", "old");
    let base = world.fork("f", "s", &[]).next().to_owned();
    let mut events = world.tail("f", "?offset=-1&live=sse");
    let (first, end) = world.events(&mut events).unwrap();
    assert!(first.contains("data: old") || first.contains("data:old"), "{first}");
    assert!(first.contains(&base) && !end, "{first}");
    let poll = world.tail("f", &format!("?offset={base}&live=long-poll"));
    world.post("s", "text/plain", "source");
    assert!(world.events(&mut events).is_none() && world.polled(&poll).is_none());
    let own = world.post("f", "text/plain", "own").next().to_owned();
    let (second, _) = world.events(&mut events).unwrap();
    assert!(second.contains("own") && second.contains(&own) && !second.contains("source"), "{second}");
    let polled = world.polled(&poll).unwrap();
    assert_eq!((polled.body.as_str(), polled.next()), ("own", own.as_str()));
    // A source that is soft-deleted ends its readers with 410, and leaves the fork's alone.
    let source = world.tail("s", "?offset=now&live=long-poll");
    world.delete("s");
    assert_eq!(world.polled(&source).unwrap().status, 410);
    assert!(world.events(&mut events).is_none());
}

#[test]
fn a_cold_sub_offset_is_brought_in_first() {
    let mut world = World::new();
    world.put("s", "text/plain", "hello");
    world.model.cool();
    let from = path("s");
    let fields = [(FROM, from.as_str()), (OFFSET, ZERO), (SUB_OFFSET, "2")];
    let Answer::Cold(work) = world.answer(Method::Put, &path("f"), &fields, b"") else {
        panic!("the record was read without being warm")
    };
    assert_eq!(world.model.writes(), 1);
    (work.0)();
    assert_eq!(world.fork("f", "s", &fields[1..]).status, 201);
    assert_eq!(world.get("f", "").body, "he");
}

#[test]
fn a_large_record_is_read_elsewhere_and_only_where_it_can_have_so_many_messages() {
    let mut world = World::new();
    let messages = 100_000;
    let body = format!("[{}0]", "1,".repeat(messages - 1));
    world.put("s", "application/json", &body);
    let from = path("s");
    let fields = |count| [(FROM, from.as_str()), (OFFSET, ZERO), (SUB_OFFSET, count)];
    for count in ["2", "100000"] {
        let Answer::Cold(work) = world.answer(Method::Put, &path(count), &fields(count), b"") else {
            panic!("200 kB were read where others wait")
        };
        (work.0)();
        assert_eq!(world.fork(count, "s", &fields(count)[1..]).status, 201);
    }
    assert_eq!((world.get("2", "").body.as_str(), world.get("100000", "").body), ("[1,1]", body));
    let beyond = world.fork("f", "s", &fields("100001")[1..]);
    assert_eq!(beyond.refusal(), (400, SUB_OFFSET.into(), "fork-sub-offset-past-end".into()));
    assert_eq!(world.model.writes(), 3);
}

#[test]
fn a_fork_that_retention_overtakes_is_made_by_what_is_left() {
    for (media, first, second, refined) in
        [("text/plain", "hello", "world", 1), ("application/json", "[1111]", "[2222]", 1)]
    {
        let mut world = World::new();
        world.put("s", media, first);
        let kept = world.post("s", media, second).next().to_owned();
        let middle = 5;
        world.model.trim_behind(middle);
        let fork = world.fork("f", "s", &[(OFFSET, "-1")]);
        assert_eq!((fork.status, fork.next()), (201, &*format!("{:016x}_{middle:016x}", 1)), "{media}");
        let sub_offset = [(OFFSET, "-1"), (SUB_OFFSET, &*refined.to_string())];
        world.model.trim_behind(middle);
        assert_eq!(world.fork("g", "s", &sub_offset).status, 201, "{media}");
        // An offset that was there a moment ago is one that is gone.
        let at = format!("{:016x}_{middle:016x}", 1);
        world.model.trim_behind(10);
        let gone = world.fork("h", "s", &[(OFFSET, &at)]).refusal();
        assert_eq!(gone, (410, OFFSET.to_owned(), "offset-gone".to_owned()), "{media}");
        assert_eq!(world.fork("h", "s", &[(OFFSET, &kept)]).status, 201, "{media}");
    }
}
