use super::*;
use crate::store::StoreError;
use thalweg_wire::exchange::Answer;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

fn producer<'a>(id: &'a str, epoch: &'a str, seq: &'a str) -> [(&'static str, &'a str); 3] {
    [("Producer-Id", id), ("Producer-Epoch", epoch), ("Producer-Seq", seq)]
}

impl World {
    fn produce(&mut self, epoch: &str, seq: &str, more: &[(&str, &str)], body: &str) -> Reply {
        let fields = [&producer("p", epoch, seq)[..], more].concat();
        self.call(Method::Post, &path("s"), &fields, body)
    }

    fn open(&mut self) {
        assert_eq!(self.put("s", "text/plain", "").status, 201);
    }
}

#[test]
fn an_append_is_204_and_moves_the_tail() {
    let mut world = World::new();
    world.open();
    let mut last = String::new();
    for body in ["a", "bc", "def"] {
        let reply = world.post("s", "Text/PLAIN; charset=x", body);
        assert_eq!(reply.status, 204);
        assert!(reply.next() > last.as_str());
        last = reply.next().to_owned();
    }
    assert_eq!((world.get("s", "").body, world.head("s").next()), ("abcdef".into(), last.as_str()));
}

#[test]
fn the_answer_to_an_append_is_built_in_one_buffer() {
    let mut world = World::new();
    world.open();
    let fields = [&producer("p", "9007199254740991", "0")[..], &[TEXT, ("Stream-Closed", "true")]].concat();
    let Answer::Respond(response) = world.answer(Method::Post, &path("s"), &fields, b"x") else { panic!() };
    assert_eq!((response.status, response.fields.capacity()), (200, thalweg_wire::lines::BYTES));
}

#[test]
fn writer_sequences_strictly_increase_byte_by_byte() {
    let mut world = World::new();
    world.open();
    let mut status = |seq| world.call(Method::Post, &path("s"), &[TEXT, ("Stream-Seq", seq)], "x").status;
    assert_eq!(
        [status("09"), status("10"), status("10"), status("2"), status("10")],
        [204, 204, 409, 204, 409]
    );
    assert_eq!([status("a"), status("B"), status("aa")], [204, 409, 204]);
    assert_eq!(world.post("s", "text/plain", "x").status, 204, "without a sequence none is compared");
    assert_eq!(world.get("s", "").body, "xxxxxx");
}

#[test]
fn closing_is_idempotent_and_final() {
    let mut world = World::new();
    world.open();
    world.post("s", "text/plain", "data");
    let fields = [("Content-Type", "application/json"), ("Stream-Closed", "true")];
    let closed = world.call(Method::Post, &path("s"), &fields, "");
    assert!(closed.status == 204 && closed.is_closed(), "the content type of no body does not matter");
    let again = world.close("s");
    assert_eq!((again.status, again.is_closed(), again.next()), (204, true, closed.next()));
    let close_with_body = [TEXT, ("Stream-Closed", "true")];
    for refused in [
        world.post("s", "text/plain", "more"),
        world.post("s", "text/html", "closure comes before the type"),
        world.call(Method::Post, &path("s"), &close_with_body, "more"),
        world.call(Method::Post, &path("s"), &[TEXT, ("Stream-Seq", "1")], "more"),
    ] {
        assert_eq!(refused.refusal(), (409, "Stream-Closed".into(), "stream-closed".into()));
        assert!(refused.is_closed());
        assert_eq!(refused.next(), closed.next());
    }
}

#[test]
fn the_last_append_and_the_close_are_one_commit() {
    let mut world = World::new();
    world.open();
    let reply = world.call(Method::Post, &path("s"), &[TEXT, ("Stream-Closed", "true")], "final");
    assert!(reply.status == 204 && reply.is_closed());
    assert_eq!((world.model.writes(), world.get("s", "").body), (2, "final".into()));
}

#[test]
fn producers_get_200_204_400_403_and_409() {
    let mut world = World::new();
    world.open();
    let first = world.produce("0", "0", &[TEXT], "a");
    assert_eq!((first.status, first.field("producer-epoch"), first.field("producer-seq")), (200, "0", "0"));
    assert_eq!(world.produce("0", "1", &[TEXT], "b").field("producer-seq"), "1");
    let duplicate = world.produce("0", "0", &[TEXT], "a");
    assert_eq!((duplicate.status, duplicate.field("producer-seq")), (204, "1"), "the highest accepted");
    let gap = world.produce("0", "3", &[TEXT], "d");
    assert_eq!(gap.refusal(), (409, "Producer-Seq".into(), "producer-sequence-gap".into()));
    assert_eq!((gap.field("producer-expected-seq"), gap.field("producer-received-seq")), ("2", "3"));
    let refusal = world.produce("1", "1", &[TEXT], "x").refusal();
    assert_eq!(refusal, (400, "Producer-Seq".into(), "producer-epoch-start".into()));
    assert_eq!(world.produce("1", "0", &[TEXT], "c").field("producer-epoch"), "1");
    let stale = world.produce("0", "2", &[TEXT], "zombie");
    assert_eq!(stale.refusal(), (403, "Producer-Epoch".into(), "producer-epoch-stale".into()));
    assert_eq!(stale.field("producer-epoch"), "1");
    let other = [&producer("q", "0", "0")[..], &[TEXT]].concat();
    assert_eq!(world.call(Method::Post, &path("s"), &other, "Q").status, 200, "producers are independent");
    let unknown = [&producer("r", "7", "1")[..], &[TEXT]].concat();
    assert_eq!(world.call(Method::Post, &path("s"), &unknown, "R").field("producer-expected-seq"), "0");
    assert_eq!(world.get("s", "").body, "abcQ");
}

#[test]
fn a_duplicate_succeeds_whatever_else_it_carries() {
    let mut world = World::new();
    world.open();
    let seq = ("Stream-Seq", "5");
    assert_eq!(world.produce("0", "0", &[TEXT, seq], "a").status, 200);
    assert_eq!(world.produce("0", "0", &[TEXT, seq], "a").status, 204);
    assert_eq!(world.produce("0", "1", &[TEXT, seq], "b").status, 409);
    assert_eq!(world.produce("0", "1", &[TEXT], "b").status, 200, "the refused request took no place");
}

#[test]
fn producers_close_and_repeat_it() {
    let mut world = World::new();
    world.open();
    let close = ("Stream-Closed", "true");
    let closed = world.produce("0", "0", &[TEXT, close], "body-A");
    assert_eq!((closed.status, closed.is_closed(), closed.field("producer-seq")), (200, true, "0"));
    let again = world.produce("0", "0", &[TEXT, close], "body-B");
    assert_eq!((again.status, again.is_closed(), again.field("producer-seq")), (204, true, "0"));
    for (epoch, seq, body) in [("0", "1", "more"), ("1", "0", "more"), ("0", "1", "")] {
        let refused = world.produce(epoch, seq, &[TEXT, close], body);
        assert_eq!((refused.status, refused.is_closed()), (409, true));
    }
    let other = [&producer("q", "0", "0")[..], &[TEXT, close]].concat();
    assert_eq!(world.call(Method::Post, &path("s"), &other, "more").status, 409);
    assert_eq!(world.get("s", "").body, "body-A");
}

#[test]
fn closing_without_data_takes_a_place_in_the_sequence() {
    let mut world = World::new();
    world.open();
    world.produce("1", "0", &[TEXT], "a");
    let closed = world.produce("1", "1", &[("Stream-Closed", "true")], "");
    assert_eq!(
        (closed.status, closed.field("producer-epoch"), closed.field("producer-seq")),
        (204, "1", "1")
    );
    assert_eq!(world.produce("1", "1", &[("Stream-Closed", "true")], "").status, 204);
    let stale = world.produce("0", "1", &[TEXT, ("Stream-Closed", "true")], "x");
    assert_eq!(
        stale.refusal(),
        (409, "Stream-Closed".into(), "stream-closed".into()),
        "PROTOCOL 5.2.1: of any epoch"
    );
    assert_eq!((stale.is_closed(), stale.next()), (true, closed.next()));
}

#[test]
fn json_is_stored_with_a_comma_behind_each_message() {
    let mut world = World::new();
    world.put("j", "application/json", "");
    for body in ["{\"a\":1}", " [ 1, \"x\" ] ", "[[1,2],[3,4]]", "[[[5]]]", "null"] {
        assert_eq!(world.post("j", "application/json;charset=utf-8", body).status, 204, "{body}");
    }
    assert_eq!(world.model.stored("j"), b"{\"a\":1},1,\"x\",[1,2],[3,4],[[5]],null,");
    assert_eq!(world.get("j", "").body, "[{\"a\":1},1,\"x\",[1,2],[3,4],[[5]],null]");
    assert_eq!(world.post("j", "application/json", "[]").refusal().2, "json-empty-array");
    let closed = world.close("j");
    assert_eq!(closed.next(), world.get("j", "").next(), "a close adds no separator");
}

#[test]
fn who_loses_a_race_decides_again() {
    let mut world = World::new();
    world.open();
    world.model.rivals(5);
    assert_eq!(world.produce("0", "0", &[TEXT], "mine").status, 200);
    assert_eq!(world.get("s", "").body, "RRRRRmine");
    world.put("j", "application/json", "");
    world.model.rivals(5);
    assert_eq!(world.post("j", "application/json", "[1, 2]").status, 204);
    assert_eq!(world.model.stored("j"), b"RRRRR1,2,");
    world.model.rivals(u32::MAX);
    let contended = world.post("s", "text/plain", "x");
    assert_eq!(contended.refusal(), (503, "path".into(), "stream-contended".into()));
    assert_eq!(contended.field("retry-after"), "1");
}

#[test]
fn a_store_that_cannot_write_says_so_and_reads_on() {
    let mut world = World::new();
    world.open();
    world.post("s", "text/plain", "kept");
    for (fault, status, rule) in [
        (StoreError::Full("no space left on device".into()), 507, "store-full"),
        (StoreError::Io("too many open files".into()), 503, "store-refused"),
        (StoreError::TooLarge { size: 9, limit: 8 }, 413, "commit-too-large"),
        (StoreError::Poisoned("fsync failed".into()), 503, "store-poisoned"),
    ] {
        let has_failed = matches!(fault, StoreError::Poisoned(_));
        world.model.fail(Some(fault));
        let health = world.call(Method::Get, "/healthz", &[], "");
        if has_failed {
            assert_eq!((health.status, health.rule().as_str()), (503, "store-poisoned"));
        } else {
            assert_eq!((health.status, &health.body[..]), (200, r#"{"status":"ok"}"#));
        }
        for reply in [
            world.post("s", "text/plain", "x"),
            world.put("new", "text/plain", ""),
            world.call(Method::Delete, &path("s"), &[], ""),
        ] {
            assert_eq!((reply.status, reply.rule().as_str()), (status, rule));
        }
        assert_eq!(world.get("s", "").body, "kept");
    }
    world.model.fail(None);
    assert_eq!(world.post("s", "text/plain", "!").status, 204, "it recovers when space returns");
}

#[test]
fn every_answer_waits_for_the_state_it_was_decided_on() {
    let mut world = World::new();
    world.open();
    world.model.lag();
    let first = world.produce("0", "0", &[TEXT], "a");
    assert!(first.ticket > 0);
    for reply in [
        world.produce("0", "0", &[TEXT], "a"),
        world.produce("0", "5", &[TEXT], "gap"),
        world.post("s", "text/html", "x"),
    ] {
        assert_eq!(reply.ticket, first.ticket, "{reply:?}");
    }
    assert_eq!(world.get("s", "").body, "", "readers see what is durable");
    let closed = world.close("s");
    assert!(closed.ticket > first.ticket);
    assert_eq!(world.post("s", "text/plain", "x").ticket, closed.ticket);
    assert!(!world.head("s").is_closed());
    assert_eq!(world.model.settle(), closed.ticket);
    assert_eq!(world.get("s", "").body, "a");
    assert!(world.head("s").is_closed());
}
