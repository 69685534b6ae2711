//! Reads bounded in time.

use super::*;
use thalweg_wire::exchange::Work;

/// A stream of three records, a second apart, the first at the world's beginning.
fn three() -> World {
    let mut world = World::new();
    world.put("s", "text/plain", "one ");
    for body in ["two ", "three"] {
        world.sleep_ms(1_000);
        world.post("s", "text/plain", body);
    }
    world
}

/// So many milliseconds after the world's beginning.
fn at(ms: u64) -> String {
    (START_US / 1_000 + ms).to_string()
}

fn is_reached(reply: &Reply) -> bool {
    reply.fields.iter().any(|(name, value)| name == "stream-until-reached" && value == "true")
}

#[test]
fn since_begins_at_the_first_record_of_that_time_or_later() {
    let mut world = three();
    for (ms, expected) in
        [(0, "one two three"), (1, "two three"), (1_000, "two three"), (2_000, "three"), (2_001, "")]
    {
        let reply = world.get("s", &format!("?since={}", at(ms)));
        assert_eq!((reply.status, reply.body.as_str(), reply.is_up_to_date()), (200, expected, true), "{ms}");
    }
    assert_eq!(world.get("s", "?since=0").body, "one two three");
    let text = thalweg_wire::rfc3339::format(START_US + 1_000_000).unwrap();
    assert_eq!(world.get("s", &format!("?since={}", text.replace('+', "%2B"))).body, "two three");
}

#[test]
fn until_ends_in_front_of_the_first_record_of_that_time_and_says_so_once_nothing_older_can_come() {
    let mut world = three();
    for (ms, expected, up_to_date) in [(0, "", false), (1_000, "one ", false), (2_000, "one two ", false)] {
        let reply = world.get("s", &format!("?until={}", at(ms)));
        assert_eq!((reply.body.as_str(), reply.is_up_to_date()), (expected, up_to_date), "{ms}");
        assert!(is_reached(&reply), "{ms}");
        // Going on from there leads to the same end.
        let again = world.get("s", &format!("?offset={}&until={}", reply.next(), at(ms)));
        assert_eq!((again.body.as_str(), again.next(), is_reached(&again)), ("", reply.next(), true));
    }
    let later = format!("?until={}", at(5_000));
    let reply = world.get("s", &later);
    assert_eq!(
        (reply.body.as_str(), reply.is_up_to_date(), is_reached(&reply)),
        ("one two three", true, false)
    );
    let now = |until: &str| format!("{until}&offset=now");
    assert!(!is_reached(&world.get("s", &now(&later))), "one may come that is older");
    assert!(is_reached(&world.get("s", &now(&format!("?until={}", at(1_000))))));
    world.sleep_ms(3_999);
    assert!(!is_reached(&world.get("s", &later)), "a turn that began before may still append");
    world.sleep_ms(1);
    assert!(is_reached(&world.get("s", &later)), "no record can be older any more");
    assert!(is_reached(&world.get("s", &now(&later))));
    let both = world.get("s", &format!("?since={}&until={}", at(1_000), at(2_000)));
    assert_eq!((both.body.as_str(), is_reached(&both)), ("two ", true));
    // An offset behind the end stays where it is.
    let tail = world.head("s").next().to_owned();
    let behind = world.get("s", &format!("?offset={tail}&until={}", at(1_000)));
    assert_eq!((behind.body.as_str(), behind.next(), is_reached(&behind)), ("", tail.as_str(), true));
}

#[test]
fn an_end_is_not_reached_while_older_records_are_on_their_way_to_the_disk() {
    let mut world = World::new();
    world.put("s", "text/plain", "");
    world.model.lag();
    world.post("s", "text/plain", "late");
    let until = format!("?until={}", at(1));
    for ms in [1, 5_000] {
        world.sleep_ms(ms);
        for start in ["", "&offset=now"] {
            let reply = world.get("s", &format!("{until}{start}"));
            assert_eq!((reply.body.as_str(), is_reached(&reply)), ("", false), "{ms}");
        }
    }
    world.model.settle();
    let reply = world.get("s", &until);
    assert_eq!((reply.body.as_str(), is_reached(&reply)), ("late", true));
}

#[test]
fn chunks_up_to_a_time_and_messages_stay_whole() {
    let mut world = World::with(Options { catch_up_bytes_max: 4, ..Options::default() });
    world.put("j", "application/json", "");
    for body in ["[1,2]", "[3]", "[4]"] {
        world.post("j", "application/json", body);
        world.sleep_ms(1_000);
    }
    let (mut offset, mut read) = ("-1".to_owned(), Vec::new());
    loop {
        let reply = world.get("j", &format!("?offset={offset}&until={}", at(2_000)));
        read.push(reply.body.clone());
        offset = reply.next().to_owned();
        if is_reached(&reply) {
            break;
        }
        assert!(read.len() < 10);
    }
    assert_eq!(read, ["[1,2]", "[3]"]);
    assert_eq!(world.get("j", &format!("?offset={offset}")).body, "[4]");
}

#[test]
fn a_live_read_begins_at_a_time_and_has_no_end() {
    let mut world = three();
    let mut tail = world.tail("s", &format!("?since={}&live=sse", at(2_000)));
    assert!(world.events(&mut tail).unwrap().0.contains("data:three"));
    let poll = world.get("s", &format!("?since={}&live=long-poll", at(1_000)));
    assert_eq!(poll.body, "two three");
    assert_eq!(world.get("s", &format!("?since=0&until={}&live=sse", at(1))).rule(), "until-live");
}

#[test]
fn a_time_ahead_of_all_records_is_the_end_there_is_now_which_no_cache_keeps() {
    let mut world = three();
    let query = format!("?since={}&live=long-poll", at(9_000));
    let tail = world.tail("s", &query);
    world.post("s", "text/plain", " four");
    let first = world.polled(&tail).unwrap();
    assert_eq!((first.body.as_str(), first.field("cache-control")), (" four", "no-cache"));
    // What was there when it came may be kept.
    let poll = world.get("s", &format!("?since={}&live=long-poll", at(1_000)));
    assert!(poll.field("cache-control").starts_with("public"));
}

#[test]
fn a_search_that_would_wait_is_done_elsewhere() {
    let mut world = three();
    world.model.cool();
    let query = format!("{}?since={}", path("s"), at(1_000));
    let Answer::Cold(Work(work)) = world.answer(Method::Get, &query, &[], b"") else { panic!("not cold") };
    work();
    assert_eq!(world.get("s", &format!("?since={}", at(1_000))).body, "two three");
}

#[test]
fn a_time_before_1970_is_its_beginning_however_it_is_written() {
    let mut world = three();
    for before in ["-1", "-99999999999999999999", "1969-12-31T23:59:59Z", "0"] {
        assert_eq!(world.get("s", &format!("?since={before}")).body, "one two three", "{before}");
        assert_eq!(world.get("s", &format!("?since=0&until={before}")).body, "", "{before}");
    }
    assert_eq!(world.get("s", "?since=18446744073709551").body, "");
}

#[test]
fn bounds_that_are_no_times_or_contradict_are_refused() {
    let mut world = three();
    for (query, rule) in [
        ("?since=", "time-malformed"),
        ("?since=yesterday", "time-malformed"),
        ("?since=007", "time-malformed"),
        ("?since=--1", "time-malformed"),
        ("?since=-", "time-malformed"),
        ("?until=18446744073709552", "time-out-of-range"),
        ("?since=9223372036854775807", "time-out-of-range"),
        ("?until=99999999999999999999", "time-out-of-range"),
        ("?since=1&since=2", "query-key-duplicate"),
        ("?since=1&offset=-1", "start-named-twice"),
    ] {
        let reply = world.get("s", query);
        assert_eq!((reply.status, reply.rule().as_str()), (400, rule), "{query}");
    }
    assert_eq!(world.get("missing", "?since=1").status, 404);
    let zone = |plus| format!("?since=2020-01-01T00:00:00{plus}00:00");
    assert!(world.get("s", &zone("+")).problem()["detail"].as_str().unwrap().contains("write it %2B"));
    assert_eq!(world.get("s", &zone("%2B")).status, 200);
}
