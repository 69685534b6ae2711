use super::*;

fn control(next: &str, rest: &str) -> String {
    format!("event: control\ndata:{{\"streamNextOffset\":\"{next}\"{rest}}}\n\n")
}

/// Intervals of 20 s from the protocol's epoch to the tests' start.
const CURSOR: u64 = (START_US - 1_728_432_000_000_000) / (20 * SECOND_US);

fn at(incarnation: u64, offset: u64) -> String {
    format!("{incarnation:016x}_{offset:016x}")
}

#[test]
fn a_long_poll_with_something_to_say_answers_at_once() {
    let mut world = World::new();
    world.put("s", "text/plain", "existing");
    let reply = world.get("s", "?offset=-1&live=long-poll");
    assert_eq!((reply.status, reply.body.as_str(), reply.is_up_to_date()), (200, "existing", true));
    assert_eq!(reply.field("stream-cursor"), CURSOR.to_string());
    assert!(!reply.field("etag").is_empty());
    assert_eq!(reply.field("cache-control"), "public, max-age=60, stale-while-revalidate=300");
}

#[test]
fn a_cursor_is_answered_with_a_greater_one() {
    let mut world = World::new();
    world.put("s", "text/plain", "x");
    let mut cursor = CURSOR;
    for _ in 0..5 {
        let reply = world.get("s", &format!("?offset=-1&live=long-poll&cursor={cursor}"));
        let next: u64 = reply.field("stream-cursor").parse().unwrap();
        assert!(next > cursor && next <= cursor + 180);
        cursor = next;
    }
    let old = world.get("s", &format!("?offset=-1&live=long-poll&cursor={}", CURSOR - 9));
    assert_eq!(old.field("stream-cursor"), CURSOR.to_string());
}

#[test]
fn a_long_poll_waits_for_data_and_only_for_durable_data() {
    let mut world = World::new();
    world.put("s", "application/json", "[1]");
    let poll = world.tail("s", "?offset=now&live=long-poll");
    assert!(world.polled(&poll).is_none());
    world.model.lag();
    world.post("s", "application/json", "[2,3]");
    assert!(world.polled(&poll).is_none());
    world.model.settle();
    let reply = world.polled(&poll).unwrap();
    assert_eq!((reply.status, reply.body.as_str(), reply.is_up_to_date()), (200, "[2,3]", true));
    assert_eq!(reply.next(), at(1, 6));
    assert_eq!(reply.field("cache-control"), "no-cache", "what `now` was is no business of a cache");
    assert!(!reply.field("stream-cursor").is_empty());
}

#[test]
fn a_long_poll_times_out_with_204_at_the_tail() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let poll = world.tail("s", &format!("?offset={}&live=long-poll", at(1, 4)));
    let ended = world.streams.deadline(&poll.topic, &poll.live, world.now);
    let reply = Reply::new(ended, 0);
    assert_eq!((reply.status, reply.next(), reply.is_up_to_date()), (204, at(1, 4).as_str(), true));
    assert_eq!((reply.field("stream-cursor"), reply.is_closed()), (CURSOR.to_string().as_str(), false));
    assert_eq!(reply.field("cache-control"), "no-store");
    world.post("s", "text/plain", "late");
    let ended = world.streams.deadline(&poll.topic, &poll.live, world.now);
    assert_eq!(Reply::new(ended, 0).body, "late", "data at the deadline is not skipped");
}

#[test]
fn a_long_poll_whose_time_is_up_reads_nothing_that_is_cold() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let poll = world.tail("s", "?offset=now&live=long-poll");
    world.post("s", "text/plain", "late");
    world.model.cool();
    let ended = Reply::new(world.streams.deadline(&poll.topic, &poll.live, world.now), 0);
    assert_eq!((ended.status, ended.next()), (204, at(1, 4).as_str()), "the next poll finds it");
    let Advance::Cold(work) = world.advance(&poll) else { panic!("cold bytes were read") };
    (work.0)();
    let ended = world.streams.deadline(&poll.topic, &poll.live, world.now);
    assert_eq!(Reply::new(ended, 0).body, "late");
}

#[test]
fn nobody_waits_at_the_tail_of_a_closed_stream() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let poll = world.tail("s", "?offset=now&live=long-poll");
    world.close("s");
    for reply in [
        world.polled(&poll).unwrap(),
        world.get("s", "?offset=now&live=long-poll"),
        world.get("s", &format!("?offset={}&live=long-poll", at(1, 4))),
    ] {
        assert_eq!((reply.status, reply.next(), reply.field("stream-cursor")), (204, at(1, 4).as_str(), ""));
        assert!(reply.is_closed() && reply.is_up_to_date());
    }
    let data = world.get("s", "?offset=-1&live=long-poll");
    assert_eq!((data.status, data.body.as_str(), data.is_closed()), (200, "data", true));
}

#[test]
fn a_deleted_stream_ends_its_live_readers() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let poll = world.tail("s", "?offset=now&live=long-poll");
    let mut events = world.tail("s", "?offset=now&live=sse");
    world.events(&mut events);
    world.call(Method::Delete, &path("s"), &[], "");
    world.put("s", "text/plain", "new stream, same name");
    assert_eq!(world.polled(&poll).unwrap().status, 404);
    assert_eq!(world.events(&mut events), Some((String::new(), true)));
    let ended = world.streams.deadline(&poll.topic, &poll.live, world.now);
    assert_eq!(Reply::new(ended, 0).status, 404);
}

#[test]
fn the_head_of_an_event_stream() {
    let mut world = World::new();
    for (name, media, encoding) in [
        ("t", "text/plain", ""),
        ("j", "application/json", ""),
        ("b", "application/x-protobuf", "base64"),
        ("i", "image/png", "base64"),
    ] {
        world.put(name, media, "");
        let head = Reply::new(world.tail(name, "?offset=-1&live=sse").head, 0);
        assert_eq!((head.status, head.field("content-type")), (200, "text/event-stream"));
        assert_eq!(
            (head.field("cache-control"), head.field("stream-sse-data-encoding")),
            ("no-cache", encoding)
        );
    }
}

#[test]
fn events_come_in_pairs_and_an_empty_stream_begins_with_a_control() {
    let mut world = World::new();
    world.put("s", "text/plain", "");
    let mut tail = world.tail("s", "?offset=-1&live=sse");
    let open = format!(",\"streamCursor\":\"{CURSOR}\",\"upToDate\":true");
    assert_eq!(world.events(&mut tail), Some((control(&at(1, 0), &open), false)));
    assert_eq!(world.events(&mut tail), None);
    world.post("s", "text/plain", "one");
    world.post("s", "text/plain", "two\nlines");
    let data = "event: data\ndata:onetwo\ndata:lines\n\n".to_owned();
    assert_eq!(world.events(&mut tail), Some((data + &control(&at(1, 12), &open), false)));
    assert_eq!(world.events(&mut tail), None);
    let fields = [("Content-Type", "text/plain"), ("Stream-Closed", "true")];
    world.call(Method::Post, &path("s"), &fields, "end");
    let data = "event: data\ndata:end\n\n".to_owned();
    let closed = ",\"upToDate\":true,\"streamClosed\":true";
    assert_eq!(world.events(&mut tail), Some((data + &control(&at(1, 15), closed), true)));
}

#[test]
fn a_close_alone_is_one_last_control() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let mut tail = world.tail("s", "?offset=now&live=sse");
    world.events(&mut tail);
    world.close("s");
    let closed = control(&at(1, 4), ",\"upToDate\":true,\"streamClosed\":true");
    assert_eq!(world.events(&mut tail), Some((closed.clone(), true)));
    let mut late = world.tail("s", "?offset=now&live=sse");
    assert_eq!(world.events(&mut late), Some((closed, true)));
}

#[test]
fn json_and_binary_events_stand_alone() {
    let mut world = World::new();
    world.put("j", "application/json", "[{\"n\":1}]");
    world.post("j", "application/json", "{\"n\":\n2}");
    let mut tail = world.tail("j", "?offset=-1&live=sse");
    let (events, _) = world.events(&mut tail).unwrap();
    assert!(
        events.starts_with("event: data\ndata:[{\"n\":1},{\"n\":\ndata:2}]\n\nevent: control\n"),
        "{events}"
    );
    world.put("b", "application/octet-stream", "Hel");
    world.post("b", "application/octet-stream", "lo");
    let mut tail = world.tail("b", "?offset=-1&live=sse");
    let (events, _) = world.events(&mut tail).unwrap();
    assert!(events.starts_with("event: data\ndata:SGVsbG8=\n\nevent: control\n"), "{events}");
}

#[test]
fn long_histories_come_in_several_pairs() {
    let mut world = World::with(Options { event_bytes_max: 4, ..Options::default() });
    world.put("s", "text/plain", "");
    // The limit falls into the euro sign and between CR and LF: neither may be torn.
    for body in ["ab€", "cde\r", "\nf"] {
        world.post("s", "text/plain", body);
    }
    let mut tail = world.tail("s", "?offset=-1&live=sse");
    let mut all = Vec::new();
    while let Some((events, end)) = world.events(&mut tail) {
        assert!(!end);
        let (data, control) = events.split_once("\n\nevent: control\n").unwrap();
        assert_eq!(control.contains("upToDate"), tail.live.offset == 11, "{control}");
        all.push(data.strip_prefix("event: data\n").unwrap().to_owned());
    }
    assert_eq!(all, ["data:ab", "data:€", "data:cde", "data:\ndata:f"]);
}

#[test]
fn subscribers_at_one_place_are_sent_the_same() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    let left = world.tail("s", "?offset=now&live=sse");
    world.now.entropy = 99;
    let right = world.tail("s", &format!("?offset=now&live=sse&cursor={}", CURSOR - 1));
    assert_eq!(left.live, right.live, "an old cursor does not split the fan-out");
    let ahead = world.tail("s", &format!("?offset=now&live=sse&cursor={CURSOR}"));
    assert!(ahead.live.cursor > CURSOR);
}

#[test]
fn cursors_of_one_event_stream_never_go_back() {
    let mut world = World::new();
    world.put("s", "text/plain", "");
    let mut tail = world.tail("s", &format!("?offset=now&live=sse&cursor={CURSOR}"));
    let mut last = CURSOR;
    for step in 0..40 {
        world.now.entropy = step * 7_919;
        world.sleep_ms(9_000);
        world.post("s", "text/plain", "x");
        let (events, _) = world.events(&mut tail).unwrap();
        let cursor =
            events.split("\"streamCursor\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let cursor: u64 = cursor.parse().unwrap();
        assert!(cursor >= last);
        last = cursor;
    }
}

#[test]
fn subscriptions_reach_the_store() {
    let mut world = World::new();
    world.put("s", "text/plain", "");
    let tail = world.tail("s", "?offset=now&live=sse");
    world.streams.watch(&tail.topic);
    world.streams.acknowledge(&tail.topic);
    world.streams.unwatch(&tail.topic);
    assert_eq!(world.model.announced(), [(0, "watch"), (0, "acknowledge"), (0, "unwatch")]);
}

#[test]
fn a_character_that_comes_in_two_appends_leaves_in_one_event() {
    let mut world = World::new();
    world.put("s", "text/plain", "x");
    let mut tail = world.tail("s", "?offset=-1&live=sse");
    assert!(world.events(&mut tail).unwrap().0.contains("data:x\n"));
    world.call(Method::Post, &path("s"), &[("Content-Type", "text/plain")], b"a\xc3");
    assert!(world.events(&mut tail).unwrap().0.contains("data:a\n"));
    assert!(world.events(&mut tail).is_none(), "half a character waits");
    world.call(Method::Post, &path("s"), &[("Content-Type", "text/plain")], b"\xa9b");
    assert!(world.events(&mut tail).unwrap().0.contains("data:\u{e9}b\n"));
    world.call(Method::Post, &path("s"), &[("Content-Type", "text/plain")], b"50%\r");
    assert!(world.events(&mut tail).unwrap().0.contains("data:50%\n"), "a line end at the tail does not");
    let close = [("Content-Type", "text/plain"), ("Stream-Closed", "true")];
    world.call(Method::Post, &path("s"), &close, b"\xe2\x82");
    let late = world.tail("s", "?offset=-1&live=sse");
    let reply = world.advance(&late);
    let Advance::Events { bytes, end, .. } = reply else { panic!("nothing to say") };
    assert!(end && bytes.windows(2).any(|pair| pair == b"\xe2\x82"), "at the end everything is said");
}

/// Appends each record, then follows from the beginning: what the data events say.
fn followed(options: Options, records: &[&[u8]]) -> Vec<String> {
    let mut world = World::with(options);
    world.put("s", "text/plain", "");
    for record in records {
        world.call(Method::Post, &path("s"), &[("Content-Type", "text/plain")], record);
    }
    let mut tail = world.tail("s", "?offset=-1&live=sse");
    let mut all = Vec::new();
    while let Some((events, _)) = world.events(&mut tail) {
        let (data, _) = events.split_once("\n\nevent: control\n").unwrap();
        all.push(data.strip_prefix("event: data\n").unwrap().to_owned());
    }
    all
}

#[test]
fn a_record_that_does_not_fit_beside_the_part_of_a_character_in_front_of_it_comes_with_it() {
    let four = || Options { event_bytes_max: 4, ..Options::default() };
    assert_eq!(followed(four(), &[b"ab\xe2", b"\x82\xaccdef"]), ["data:ab", "data:\u{20ac}cdef"]);
    assert_eq!(followed(four(), &[b"abc\r", b"\ndefgh"]), ["data:abc", "data:\ndata:defgh"]);
    let two = || Options { event_bytes_max: 2, ..Options::default() };
    assert_eq!(
        followed(two(), &["\u{1f600}\u{e9}x".as_bytes()]),
        ["data:\u{1f600}", "data:\u{e9}", "data:x"]
    );
}

#[test]
fn a_character_that_lies_in_several_records_is_not_torn() {
    let all = |records: &[&[u8]]| followed(Options::default(), records);
    assert_eq!(all(&[b"ab", b"\xe2"]), ["data:ab"]);
    assert_eq!(all(&[b"ab", b"\xe2", b"\x82"]), ["data:ab"]);
    assert_eq!(all(&[b"ab", b"\xe2", b"\x82", b"\xac"]), ["data:ab\u{20ac}"]);
}

#[test]
fn who_was_sent_all_but_part_of_a_character_is_up_to_date_in_front_of_it() {
    let mut world = World::new();
    let text = [("Content-Type", "text/plain")];
    // As somebody writes who means another encoding.
    world.call(Method::Put, &path("s"), &text, b"caf\xe9");
    let up_to_date = format!(",\"streamCursor\":\"{CURSOR}\",\"upToDate\":true");
    let sent = format!("event: data\ndata:caf\n\n{}", control(&at(1, 3), &up_to_date));
    let mut tail = world.tail("s", "?offset=-1&live=sse");
    assert_eq!(world.events(&mut tail), Some((sent, false)));
    assert_eq!(world.events(&mut tail), None);
    // A reader that goes on there is up to date at once, and the other ways to read have the bytes.
    let mut again = world.tail("s", &format!("?offset={}&live=sse", at(1, 3)));
    assert_eq!(world.events(&mut again), Some((control(&at(1, 3), &up_to_date), false)));
    for query in ["", "&live=long-poll"] {
        let target = format!("{}?offset={}{query}", path("s"), at(1, 3));
        let Answer::Respond(rest) = world.answer(Method::Get, &target, &[], b"") else { panic!("{query}") };
        assert_eq!((rest.status, &*rest.body.concat()), (200, &b"\xe9"[..]));
    }
    world.call(Method::Post, &path("s"), &text, b"\x82\xac.");
    for tail in [&mut tail, &mut again] {
        let sent = format!("event: data\ndata:\u{90ac}.\n\n{}", control(&at(1, 7), &up_to_date));
        assert_eq!(world.events(tail), Some((sent, false)));
    }
}

#[test]
fn who_connects_again_goes_on_behind_the_event_it_heard_last() {
    let mut world = World::new();
    world.put("s", "text/plain", "one");
    let heard = world.post("s", "text/plain", "two").next().to_owned();
    world.post("s", "text/plain", "three");
    let mut again = |query: &str, heard: &str| {
        let target = path("s") + query;
        match world.answer(Method::Get, &target, &[("last-event-id", heard)], b"") {
            Answer::Live { topic, live, head, .. } => {
                world.events(&mut Tail { topic, live, head }).unwrap().0
            }
            Answer::Respond(response) => format!("{}", response.status),
            other => panic!("{target}: {other:?}"),
        }
    };
    let rest = format!(
        "event: data\ndata:three\n\n{}",
        control(&at(1, 11), &format!(",\"streamCursor\":\"{CURSOR}\",\"upToDate\":true"))
    );
    for query in ["?offset=-1&live=sse", "?offset=now&live=sse", "?since=0&live=sse"] {
        assert_eq!(again(query, &heard), rest, "{query}");
    }
    assert!(
        again("?offset=-1&live=sse", "").starts_with("event: data\ndata:onetwothree\n"),
        "nothing heard yet"
    );
    assert_eq!(again("?offset=-1&live=sse", "7"), "400");
    assert_eq!(again("?offset=-1&live=sse", &at(9, 3)), "410", "another stream's event");
    assert_eq!(again("?offset=-1&live=long-poll", &heard), "200", "only event streams are gone on with so");
    world.close("s");
    let target = path("s") + "?offset=-1&live=sse";
    let all = world.call(Method::Get, &target, &[("Last-Event-ID", &at(1, 11))], "");
    assert_eq!(
        (all.status, all.next(), all.is_closed()),
        (204, at(1, 11).as_str(), true),
        "and not for ever"
    );
    let Answer::Live { topic, live, head, .. } =
        world.answer(Method::Get, &target, &[("Last-Event-ID", &heard)], b"")
    else {
        panic!("something is left to be heard")
    };
    let (events, end) = world.events(&mut Tail { topic, live, head }).unwrap();
    assert!(events.starts_with("event: data\ndata:three\n") && end);
}

#[test]
fn what_cannot_be_read_is_refused_unless_events_are_under_way() {
    let mut world = World::new();
    world.put("s", "text/plain", "existing");
    let mut following = world.tail("s", "?offset=-1&live=sse");
    assert!(world.events(&mut following).is_some());
    let poll = world.tail("s", "?offset=now&live=long-poll");
    world.model.damage(crate::store::StoreError::Damaged("segment-0000000001 is damaged".into()));
    let begun = world.tail("s", "?offset=-1&live=sse");
    for tail in [&begun, &poll] {
        let Advance::Respond(response) = world.advance(tail) else { panic!("it goes on") };
        let reply = Reply::new(response, 0);
        assert_eq!((reply.status, &*reply.rule()), (500, "store-damaged"));
    }
    assert_eq!(world.events(&mut following), Some((String::new(), true)), "its end is all that can be told");
    let reply = world.get("s", "?offset=now&live=long-poll");
    assert_eq!((reply.status, &*reply.rule()), (500, "store-damaged"));
}

#[test]
fn a_stream_that_is_damaged_says_so_wherever_it_is_looked_at() {
    let mut world = World::new();
    world.put("s", "text/plain", "existing");
    let listed = |world: &mut World| {
        let reply = world.call(Method::Get, "/v1/streams", &[], "");
        let listing: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        listing["streams"][0]["damaged"].clone()
    };
    assert_eq!((world.head("s").field("stream-damaged"), listed(&mut world)), ("", serde_json::Value::Null));
    world.model.damage(crate::store::StoreError::Damaged("segment-0000000001 is damaged".into()));
    let head = world.head("s");
    assert_eq!((head.status, head.field("stream-damaged")), (200, "true"));
    assert_eq!(listed(&mut world), true);
}

#[test]
fn a_line_end_that_came_in_two_appends_is_one() {
    let mut world = World::new();
    world.put("s", "text/plain", "a\r");
    let mut tail = world.tail("s", "?offset=-1&live=sse");
    let data = |events: Option<(String, bool)>| {
        let (text, _) = events.unwrap();
        text.split_once("event: control").unwrap().0.to_owned()
    };
    assert_eq!(data(world.events(&mut tail)), "event: data\ndata:a\ndata:\n\n");
    world.post("s", "text/plain", "\nb");
    assert_eq!(data(world.events(&mut tail)), "event: data\ndata:b\n\n");
    world.post("s", "text/plain", "\r");
    assert_eq!(data(world.events(&mut tail)), "event: data\ndata:\ndata:\n\n");
    world.post("s", "text/plain", "\n");
    assert_eq!(data(world.events(&mut tail)), "", "nothing is left of it but the place behind it");
    world.post("s", "text/plain", "\n");
    assert_eq!(data(world.events(&mut tail)), "event: data\ndata:\ndata:\n\n", "a line end of its own");
    // A later reader is told the same.
    let mut whole = world.tail("s", "?offset=-1&live=sse");
    assert_eq!(data(world.events(&mut whole)), "event: data\ndata:a\ndata:b\ndata:\ndata:\n\n");
    // A byte that is not in memory is brought in first.
    world.post("s", "text/plain", "\r");
    world.events(&mut tail);
    world.post("s", "text/plain", "\nc");
    world.model.cool();
    let Advance::Cold(work) = world.advance(&tail) else { panic!("it was read without being warm") };
    (work.0)();
    assert_eq!(data(world.events(&mut tail)), "event: data\ndata:c\n\n");
}
