use super::*;

#[test]
fn a_new_stream_is_201_with_location_type_and_tail() {
    let mut world = World::new();
    let reply = world.put("a/b", "text/plain", "hello");
    assert_eq!((reply.status, reply.field("location")), (201, "http://h:1/v1/stream/a/b"));
    assert_eq!(reply.field("content-type"), "text/plain");
    assert_eq!(reply.next(), "0000000000000001_0000000000000005");
    assert!(!reply.is_closed());
    assert_eq!(world.get("a/b", "").body, "hello");
}

#[test]
fn location_is_absolute_only_with_a_usable_host() {
    let mut world = World::new();
    for (index, (fields, expected)) in [
        (vec![], "/v1/stream/s0"),
        (vec![("Host", "bad host/<x>")], "/v1/stream/s1"),
        (vec![("Host", "[::1]:4437")], "http://[::1]:4437/v1/stream/s2"),
        (vec![("host", "x.example"), ("X-Forwarded-Proto", "https")], "https://x.example/v1/stream/s3"),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = world.call(Method::Put, &path(&format!("s{index}")), &fields, "");
        assert_eq!((reply.status, reply.field("location")), (201, expected));
    }
}

#[test]
fn location_escapes_what_a_url_may_not_hold_raw() {
    let mut world = World::new();
    let raw = path("a\"<>[\\]^`{|}!$&'()*+,;=:@%25");
    let escaped = path("a%22%3C%3E%5B%5C%5D%5E%60%7B%7C%7D!$&'()*+,;=:@%25");
    for (fields, begins) in [(&[][..], ""), (&[("Host", "h:1")], "http://h:1")] {
        let reply = world.call(Method::Put, &raw, fields, "");
        assert_eq!((reply.status, reply.field("location")), (201, format!("{begins}{escaped}").as_str()));
        assert_eq!(world.call(Method::Get, &escaped, &[], "").status, 200);
        world.call(Method::Delete, &escaped, &[], "");
    }
}

#[test]
fn without_a_content_type_bytes_are_bytes() {
    let mut world = World::new();
    let reply = world.call(Method::Put, &path("s"), &[], "");
    assert_eq!((reply.status, reply.field("content-type")), (201, "application/octet-stream"));
}

#[test]
fn the_same_request_again_is_200_and_writes_nothing() {
    let mut world = World::new();
    world.put("s", "application/json", "[1]");
    let writes = world.model.writes();
    let reply = world.put("s", "APPLICATION/JSON; charset=utf-8", "{ not looked at");
    assert_eq!((reply.status, reply.field("content-type")), (200, "application/json"));
    assert_eq!((reply.next(), reply.field("location")), ("0000000000000001_0000000000000002", ""));
    assert_eq!((world.model.writes(), world.get("s", "").body), (writes, "[1]".into()));
}

#[test]
fn another_request_is_409_and_names_what_differs() {
    let mut world = World::new();
    let ttl = ("Stream-TTL", "3600");
    world.call(Method::Put, &path("s"), &[("Content-Type", "text/plain"), ttl], "");
    for (fields, field) in [
        (vec![("Content-Type", "text/html"), ttl], "Content-Type"),
        (vec![ttl], "Content-Type"),
        (vec![("Content-Type", "text/plain"), ("Stream-TTL", "7200")], "Stream-TTL"),
        (vec![("Content-Type", "text/plain")], "Stream-TTL"),
        (
            vec![("Content-Type", "text/plain"), ("Stream-Expires-At", "2030-01-01T00:00:00Z")],
            "Stream-Expires-At",
        ),
        (vec![("Content-Type", "text/plain"), ttl, ("Stream-Closed", "true")], "Stream-Closed"),
    ] {
        let reply = world.call(Method::Put, &path("s"), &fields, "");
        assert_eq!(reply.refusal(), (409, field.into(), "config-mismatch".into()));
    }
    world.close("s");
    let open = [("Content-Type", "text/plain"), ttl];
    assert_eq!(world.call(Method::Put, &path("s"), &open, "").refusal().1, "Stream-Closed");
    let closed = [open[0], open[1], ("Stream-Closed", "True")];
    let reply = world.call(Method::Put, &path("s"), &closed, "");
    assert!(reply.status == 200 && reply.is_closed());
}

#[test]
fn an_instant_matches_however_it_is_written() {
    let mut world = World::new();
    for (expires_at, status) in
        [("2030-01-01T00:00:00.000Z", 201), ("2030-01-01T01:00:00+01:00", 200), ("2030-01-01T00:00:01Z", 409)]
    {
        let reply = world.call(Method::Put, &path("s"), &[("Stream-Expires-At", expires_at)], "");
        assert_eq!(reply.status, status, "{expires_at}");
    }
    assert_eq!(world.head("s").field("stream-expires-at"), "2030-01-01T00:00:00Z");
}

#[test]
fn created_closed_the_body_is_all_there_is() {
    let mut world = World::new();
    let fields = [("Content-Type", "text/plain"), ("Stream-Closed", "true")];
    let reply = world.call(Method::Put, &path("s"), &fields, "all");
    assert!(reply.status == 201 && reply.is_closed());
    let read = world.get("s", "");
    assert!(read.body == "all" && read.is_closed() && read.is_up_to_date());
    assert_eq!(world.model.writes(), 1, "create and close are one commit");
    let reply = world.call(Method::Put, &path("t"), &[("Stream-Closed", "yes")], "");
    assert!(reply.status == 201 && !reply.is_closed(), "anything but `true` is as absent");
}

#[test]
fn json_bodies_are_messages() {
    let mut world = World::new();
    assert_eq!(world.put("empty", "application/json", "[]").status, 201);
    assert_eq!(world.get("empty", "").body, "[]");
    assert_eq!(world.put("two", "application/json", "[ {\"a\": 1} , [2] ]").status, 201);
    assert_eq!(world.model.stored("two"), b"{\"a\": 1},[2],");
    assert_eq!(world.get("two", "").body, "[{\"a\": 1},[2]]");
    assert_eq!(
        world.put("bad", "application/json", "{").refusal(),
        (400, "body".into(), "json-malformed".into())
    );
    assert_eq!(world.head("bad").status, 404);
}

#[test]
fn an_answer_waits_for_what_it_was_decided_on() {
    let mut world = World::new();
    world.model.lag();
    let first = world.put("s", "text/plain", "");
    assert!(first.status == 201 && first.ticket > 0);
    let again = world.put("s", "text/plain", "");
    assert_eq!((again.status, again.ticket), (200, first.ticket));
    let conflict = world.put("s", "text/html", "");
    assert_eq!((conflict.status, conflict.ticket), (409, first.ticket));
    assert_eq!(world.head("s").status, 404, "not visible before it is durable");
    world.model.settle();
    assert_eq!(world.head("s").status, 200);
    assert_eq!(world.put("s", "text/plain", "").ticket, 0);
}

#[test]
fn a_deleted_name_is_free_and_its_offsets_are_gone() {
    let mut world = World::new();
    world.put("s", "text/plain", "old data");
    let old = world.head("s").next().to_owned();
    assert_eq!(world.call(Method::Delete, &path("s"), &[], "").status, 204);
    for method in [Method::Get, Method::Head, Method::Delete] {
        assert_eq!(world.call(method, &path("s"), &[], "").status, 404, "{method:?}");
    }
    assert_eq!(world.post("s", "text/plain", "x").status, 404);
    assert_eq!(world.put("s", "application/json", "[1]").status, 201);
    assert_eq!(world.get("s", "").body, "[1]");
    let refusal = world.get("s", &format!("?offset={old}")).refusal();
    assert_eq!(refusal, (410, "offset".into(), "offset-gone".into()));
}

#[test]
fn a_delete_answers_when_it_is_durable() {
    let mut world = World::new();
    world.put("s", "text/plain", "data");
    world.model.lag();
    let deleted = world.call(Method::Delete, &path("s"), &[], "");
    assert!(deleted.status == 204 && deleted.ticket > 0);
    let again = world.call(Method::Delete, &path("s"), &[], "");
    assert_eq!((again.status, again.ticket), (404, deleted.ticket));
    assert_eq!(world.post("s", "text/plain", "x").ticket, deleted.ticket);
    assert_eq!(world.get("s", "").body, "data", "readers see what is durable");
    world.model.settle();
    assert_eq!(world.get("s", "").status, 404);
}
