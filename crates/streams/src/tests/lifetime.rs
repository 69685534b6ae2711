use super::*;
use crate::store::StoreError;

fn sliding(seconds: &str) -> World {
    let mut world = World::new();
    let fields = [("Content-Type", "text/plain"), ("Stream-TTL", seconds)];
    assert_eq!(world.call(Method::Put, &path("s"), &fields, "data").status, 201);
    world
}

#[test]
fn an_idle_stream_is_gone_and_its_name_free() {
    for (method, body) in [(Method::Head, ""), (Method::Get, ""), (Method::Delete, ""), (Method::Post, "x")] {
        let mut world = sliding("1");
        world.sleep_ms(999);
        assert_eq!(world.head("s").status, 200, "never early");
        world.sleep_ms(1);
        let fields = [("Content-Type", "text/plain")];
        assert_eq!(world.call(method, &path("s"), &fields, body).status, 404, "{method:?}");
        assert_eq!(world.model.writes(), 2, "the first to find it expired deletes it");
        assert_eq!(world.put("s", "application/json", "[\"new\"]").status, 201);
        assert_eq!(world.get("s", "").body, "[\"new\"]");
    }
}

#[test]
fn creating_over_an_expired_stream_is_a_new_stream() {
    let mut world = sliding("1");
    world.sleep_ms(1_000);
    let reply = world.put("s", "application/json", "[1]");
    assert_eq!((reply.status, reply.next()), (201, "0000000000000002_0000000000000002"));
}

#[test]
fn reads_and_writes_renew_and_head_does_not() {
    let live = "?offset=now&live=sse";
    type Access = fn(&mut World);
    let renewing: [(&str, Access); 8] = [
        ("append", |world| assert_eq!(world.post("s", "text/plain", "x").status, 204)),
        ("read", |world| assert_eq!(world.get("s", "").status, 200)),
        ("now", |world| assert_eq!(world.get("s", "?offset=now").status, 200)),
        ("close", |world| assert_eq!(world.close("s").status, 204)),
        ("producer close", |world| {
            let fields = [
                ("Stream-Closed", "true"),
                ("Producer-Id", "p"),
                ("Producer-Epoch", "0"),
                ("Producer-Seq", "0"),
            ];
            assert_eq!(world.call(Method::Post, &path("s"), &fields, "").status, 204);
        }),
        ("not modified", |world| {
            assert_eq!(world.call(Method::Get, &path("s"), &[("If-None-Match", "*")], "").status, 304);
        }),
        ("long-poll", |world| {
            world.tail("s", "?offset=now&live=long-poll");
        }),
        ("put again", |world| {
            let fields = [("Content-Type", "text/plain"), ("Stream-TTL", "2")];
            assert_eq!(world.call(Method::Put, &path("s"), &fields, "").status, 200);
        }),
    ];
    for (what, access) in renewing {
        let mut world = sliding("2");
        world.sleep_ms(1_500);
        access(&mut world);
        world.sleep_ms(1_500);
        assert_eq!(world.head("s").status, 200, "{what} renews");
        world.sleep_ms(500);
        assert_eq!(world.head("s").status, 404, "HEAD does not");
    }
    let mut world = sliding("2");
    world.sleep_ms(1_500);
    world.tail("s", live);
    world.sleep_ms(1_500);
    assert_eq!(world.head("s").status, 200, "events renew when they begin");
}

#[test]
fn whoever_follows_asks_again_before_the_stream_is_over() {
    let lasts_ms =
        |world: &mut World, live: &str| match world.answer(Method::Get, &(path("s") + live), &[], b"") {
            Answer::Live { lasts_ms, .. } => lasts_ms,
            other => panic!("{other:?}"),
        };
    for live in ["?offset=now&live=sse", "?offset=now&live=long-poll"] {
        // PROTOCOL 5.1: each time that it asks renews.
        assert_eq!(lasts_ms(&mut sliding("1"), live), Some(500));
        assert_eq!(lasts_ms(&mut sliding("60"), live), Some(30_000));
        assert_eq!(lasts_ms(&mut sliding("9007199254740991"), live), Some(u32::MAX));
        let mut world = World::new();
        world.put("s", "text/plain", "data");
        assert_eq!(lasts_ms(&mut world, live), None);
        world.call(Method::Delete, &path("s"), &[], "");
        let fields = [("Content-Type", "text/plain"), ("Stream-Expires-At", "2026-01-01T00:00:02Z")];
        assert_eq!(world.call(Method::Put, &path("s"), &fields, "data").status, 201);
        // At its instant it ends, whoever follows it; and so does the read, not before.
        assert_eq!(lasts_ms(&mut world, live), Some(2_000));
        world.now.time_us += 1_500_001;
        assert_eq!(lasts_ms(&mut world, live), Some(500));
    }
}

#[test]
fn a_stream_that_is_appended_to_while_it_is_judged_is_not_deleted() {
    let mut world = sliding("1");
    world.sleep_ms(1_000);
    world.model.renew_behind(world.now.time_us);
    assert_eq!(world.get("s", "").body, "dataR");
    let poll = world.tail("s", "?offset=now&live=long-poll");
    world.sleep_ms(1_000);
    world.model.renew_behind(world.now.time_us);
    let ended = world.streams.deadline(&poll.topic, &poll.live, world.now);
    assert_eq!(Reply::new(ended, 0).body, "R");
}

#[test]
fn refused_requests_do_not_renew() {
    let mut world = sliding("2");
    world.sleep_ms(1_500);
    assert_eq!(world.post("s", "text/html", "x").status, 409);
    assert_eq!(world.get("s", "?offset=nonsense").status, 400);
    world.sleep_ms(500);
    assert_eq!(world.head("s").status, 404);
}

#[test]
fn an_instant_is_not_moved_by_anything() {
    let mut world = World::new();
    let fields = [("Content-Type", "text/plain"), ("Stream-Expires-At", "2026-01-01T00:00:04Z")];
    assert_eq!(world.call(Method::Put, &path("s"), &fields, "data").status, 201);
    world.sleep_ms(2_000);
    assert_eq!((world.get("s", "").status, world.post("s", "text/plain", "x").status), (200, 204));
    world.sleep_ms(2_000);
    assert_eq!((world.get("s", "").status, world.post("s", "text/plain", "x").status), (404, 404));
}

#[test]
fn an_expiry_is_told_when_its_delete_is_durable() {
    let mut world = sliding("1");
    world.model.lag();
    world.sleep_ms(1_000);
    let first = world.get("s", "");
    assert!(first.status == 404 && first.ticket > 0);
    assert_eq!(world.head("s").ticket, first.ticket);
    world.model.settle();
    assert_eq!(world.get("s", "").ticket, 0);
}

#[test]
fn a_store_that_cannot_write_still_lets_streams_expire() {
    let mut world = sliding("1");
    world.sleep_ms(1_000);
    world.model.fail(Some(StoreError::Full("full".into())));
    assert_eq!((world.get("s", "").status, world.post("s", "text/plain", "x").status), (404, 404));
}

#[test]
fn a_name_that_an_expired_stream_keeps_in_a_store_that_cannot_write_is_refused_as_the_write_is() {
    for (fault, refusal) in [
        (StoreError::Full("full".into()), (507, "body", "store-full")),
        (StoreError::Poisoned("the disk failed".into()), (503, "store", "store-poisoned")),
    ] {
        let mut world = sliding("1");
        world.sleep_ms(1_000);
        world.model.fail(Some(fault));
        let looks = world.model.writes();
        let (status, field, rule) = world.put("s", "text/plain", "new").refusal();
        assert_eq!((status, &*field, &*rule), refusal);
        assert_eq!(world.model.writes(), looks);
        world.model.fail(None);
        assert_eq!(world.put("s", "text/plain", "new").status, 201);
    }
}

#[test]
fn an_expired_stream_ends_its_live_readers() {
    let mut world = sliding("1");
    let poll = world.tail("s", "?offset=now&live=long-poll");
    let mut events = world.tail("s", "?offset=now&live=sse");
    assert!(world.events(&mut events).is_some());
    world.sleep_ms(1_000);
    let ended = world.streams.deadline(&poll.topic, &poll.live, world.now);
    assert_eq!(Reply::new(ended, 0).status, 404);
    assert_eq!(world.events(&mut events), Some((String::new(), true)));
    assert_eq!(world.polled(&poll).map(|reply| reply.status), Some(404));
}
