//! What a subscription may be: its configuration, and where its webhook may go.

use super::{HOOK, World, webhook};
use crate::store::StoreError;
use crate::{Loopback, Options};
use serde_json::{Value, json};
use thalweg_wire::exchange::{Answer, Method};

#[test]
fn a_subscription_is_a_stream_of_which_there_may_be_so_many() {
    let mut world = World::new();
    world.create("events/old");
    assert_eq!(world.put("s", &webhook(HOOK)).status, 201);
    let mut world = world.restart_by(Options { streams_max: 1, ..Options::default() });
    assert_eq!(world.put("t", &webhook(HOOK)).code(), (429, "TOO_MANY_STREAMS"));
    assert_eq!(world.call(Method::Get, "__ds/subscriptions/t", &[], &Value::Null).status, 404);
    assert_eq!(world.put("s", &webhook(HOOK)).status, 200, "it is there");
    world.append("events/old", 1);
    assert_eq!(world.turn().len(), 1, "it is served");
}

#[test]
fn a_subscription_is_created_confirmed_read_and_deleted() {
    let mut world = World::new();
    world.create("events/old");
    world.append("events/old", 1);
    let created = world.put("s", &webhook(HOOK));
    assert_eq!(created.status, 201);
    assert_eq!(created.body["webhook"]["signing"]["jwks_url"], "http://h:1/v1/stream/__ds/jwks.json");
    assert_eq!(created.body["created_at"], "2026-01-01T00:00:00Z");
    // PROTOCOL 6.2: linked at its end, so nothing is replayed.
    assert_eq!(created.body["streams"][0]["path"], "events/old");
    assert_ne!(created.body["streams"][0]["acked_offset"], "-1");
    assert!(world.turn().is_empty());
    assert_eq!(world.put("s", &webhook(HOOK)).status, 200);
    let mut other = webhook(HOOK);
    other["description"] = json!("another");
    assert_eq!(world.put("s", &other).code(), (409, "SUBSCRIPTION_EXISTS"));
    assert_eq!(world.get("s")["status"], "active");
    assert_eq!(world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null).status, 204);
    assert_eq!(world.call(Method::Get, "__ds/subscriptions/s", &[], &Value::Null).status, 404);
    assert_eq!(world.put("s", &other).status, 201);
}

#[test]
fn bad_configurations_are_refused_by_name() {
    let mut world = World::new();
    let with = |key: &str, value: Value| {
        let mut body = webhook(HOOK);
        body[key] = value;
        body
    };
    for (body, code, field) in [
        (with("type", json!("push")), "INVALID_REQUEST", "type"),
        (with("pattern", json!("a//b")), "INVALID_REQUEST", "pattern"),
        (with("pattern", Value::Null), "INVALID_REQUEST", "pattern"),
        (with("pattern", json!("__ds/*")), "INVALID_REQUEST", "pattern"),
        (with("streams", json!(["a/../b"])), "INVALID_REQUEST", "streams"),
        (with("streams", json!(["__ds/x"])), "INVALID_REQUEST", "streams"),
        (with("lease_ttl_ms", json!(999)), "INVALID_REQUEST", "lease_ttl_ms"),
        (with("lease_ttl_ms", json!(600_001)), "INVALID_REQUEST", "lease_ttl_ms"),
        (with("lease_ttl_ms", json!("soon")), "INVALID_REQUEST", "body"),
        (with("webhook", Value::Null), "INVALID_REQUEST", "webhook.url"),
        (webhook("http://10.0.0.1/hook"), "WEBHOOK_URL_REJECTED", "webhook.url"),
        (webhook("https://169.254.169.254/"), "WEBHOOK_URL_REJECTED", "webhook.url"),
        (webhook("https://[fe80::1]/"), "WEBHOOK_URL_REJECTED", "webhook.url"),
        (json!({ "type": "pull-wake", "pattern": "**" }), "INVALID_REQUEST", "wake_stream"),
        (
            json!({ "type": "pull-wake", "streams": ["w"], "wake_stream": "w" }),
            "INVALID_REQUEST",
            "wake_stream",
        ),
        (json!([]), "INVALID_REQUEST", "body"),
    ] {
        let reply = world.put("s", &body);
        assert_eq!((reply.code(), &reply.body["field"]), ((400, code), &json!(field)), "{body}");
    }
    assert_eq!(world.model.writes(), 0, "nothing was kept");
    assert_eq!(world.put("a%00b", &webhook(HOOK)).status, 400);
    assert_eq!(world.call(Method::Get, "__ds/nothing", &[], &Value::Null).status, 404);
    // RFC 9110 15.5.6: Allow lists every method that the resource knows, HEAD and OPTIONS included.
    for (path, allow) in [
        ("subscriptions/s", "PUT, GET, HEAD, DELETE, OPTIONS"),
        ("subscriptions/s/claim", "POST, OPTIONS"),
        ("subscriptions/s/streams", "POST, OPTIONS"),
        ("subscriptions/s/streams/a", "DELETE, OPTIONS"),
        ("jwks.json", "GET, HEAD, OPTIONS"),
    ] {
        let refused = world.call(Method::Other, &format!("__ds/{path}"), &[], &Value::Null);
        let allows = refused.head.contains(&format!("Allow: {allow}\r\n"));
        assert!(refused.status == 405 && allows, "{path}: {}", refused.head);
        let told = world.call(Method::Options, &format!("__ds/{path}"), &[], &Value::Null);
        for name in ["Allow", "Access-Control-Allow-Methods"] {
            assert!(told.head.contains(&format!("{name}: {allow}\r\n")), "{path}: {}", told.head);
        }
    }
    assert_eq!(world.call(Method::Put, "%5F%5Fds/x", &[], &Value::Null).status, 404);
}

/// PROTOCOL 6.2: its example of a request has both members, and that of the description only the type's own.
#[test]
fn what_the_other_type_is_delivered_by_changes_nothing() {
    let mut world = World::new();
    let both = |kind: &str| json!({ "type": kind, "pattern": "events/*", "webhook": { "url": HOOK }, "wake_stream": "wake/pool" });
    let own = |kind: &str, member: &str| {
        let mut body = both(kind);
        body.as_object_mut().unwrap().remove(member);
        body
    };
    for (kind, others, its) in
        [("webhook", "wake_stream", "webhook"), ("pull-wake", "webhook", "wake_stream")]
    {
        let created = world.put(kind, &both(kind));
        assert_eq!(created.status, 201, "{kind}: {}", created.body);
        assert!(created.body[others].is_null() && !created.body[its].is_null(), "{kind}: {}", created.body);
        assert_eq!(world.put(kind, &own(kind, others)).status, 200, "{kind}: the same without it");
    }
}

#[test]
fn a_body_is_an_object_and_so_is_what_it_holds() {
    let mut world = World::new();
    world.create("w");
    world.put("s", &json!({ "type": "pull-wake", "pattern": "orders/*", "wake_stream": "w" }));
    world.create("orders/1");
    world.append("orders/1", 1);
    world.turn();
    let claimed = world.claim("s", "worker");
    let bearer = format!("Bearer {}", claimed.body["token"].as_str().unwrap());
    let no_object =
        "the body is not as expected: invalid type: sequence, expected a JSON object at line 1 column ";
    let empty = "the body is empty; it has to be a JSON object";
    for (verb, body, detail) in [
        ("", r#"["pull-wake","orders/*",null,null,"w",null,null]"#, no_object),
        ("", "[]", no_object),
        ("", r#"{"type":"webhook","pattern":"a","webhook":["https://example.com/"]}"#, no_object),
        ("/streams", r#"[["a"]]"#, no_object),
        ("/claim", r#"["worker"]"#, no_object),
        ("/ack", r#"["w",1,[],true]"#, no_object),
        ("/ack", r#"{"wake_id":"w","generation":1,"acks":[["a","-1"]]}"#, no_object),
        ("/release", r#"["w",1,[],true]"#, no_object),
        (
            "",
            "7",
            "the body is not as expected: invalid type: integer `7`, expected a JSON object at line 1 column 1",
        ),
        ("", "", empty),
        ("/claim", " \r\n\t", empty),
        ("/claim", "{}", "the body is not as expected: missing field `worker` at line 1 column 2"),
    ] {
        let method = if verb.is_empty() { Method::Put } else { Method::Post };
        let target = format!("__ds/subscriptions/s{verb}");
        let response = match world.answer_to_text(method, &target, &[("Authorization", &bearer)], body) {
            Answer::Respond(response) | Answer::After(_, response) => response,
            other => panic!("{verb} {body}: {other:?}"),
        };
        let said: Value = serde_json::from_slice(&response.body.concat()).unwrap();
        assert_eq!((response.status, &said["field"]), (400, &json!("body")), "{verb} {body}: {said}");
        assert!(said["detail"].as_str().unwrap().starts_with(detail), "{verb} {body}: {said}");
    }
}

#[test]
fn a_store_that_takes_nothing_leaves_no_subscription() {
    let mut world = World::new();
    world.call(Method::Get, "__ds/jwks.json", &[], &Value::Null);
    world.model.fail(Some(StoreError::Full("test".into())));
    assert_eq!(world.put("s", &webhook(HOOK)).code(), (507, "STORE_FULL"));
    world.model.fail(None);
    assert_eq!(world.call(Method::Get, "__ds/subscriptions/s", &[], &Value::Null).status, 404);
    assert_eq!(world.put("s", &webhook(HOOK)).status, 201);
}

#[test]
fn the_signing_key_is_published_and_outlives_a_restart() {
    let mut world = World::new();
    let first = world.call(Method::Get, "__ds/jwks.json", &[], &Value::Null);
    assert!(first.head.contains("Content-Type: application/jwk-set+json\r\n"));
    assert!(first.head.contains("Cache-Control: public, max-age=300\r\n"));
    let mut world = world.restart();
    let second = world.call(Method::Get, "__ds/jwks.json", &[], &Value::Null);
    assert_eq!(first.body, second.body);
}

#[test]
fn webhooks_to_this_machine_are_for_servers_that_allow_them() {
    const NEAR: &str = "http://127.0.0.1:9/hook";
    let mut world = World::new();
    let reply = world.put("s", &webhook(NEAR));
    assert_eq!((reply.code(), &reply.body["field"]), ((400, "WEBHOOK_URL_REJECTED"), &json!("webhook.url")));
    assert!(reply.body["detail"].as_str().unwrap().contains("webhooks_loopback"), "{}", reply.body);
    let mut world =
        world.restart_by(Options { webhooks_loopback: Loopback::OfPrograms, ..Options::default() });
    assert_eq!(world.put("s", &webhook(NEAR)).status, 201);
    world.create("events/a");
    world.append("events/a", 1);
    assert_eq!(world.webhook().target.host, "127.0.0.1");
    // One that is kept from when they were allowed calls nobody.
    let mut world = world.restart_by(Options::default());
    let [(id, why)] = &world.driver.barred()[..] else { panic!("one is barred") };
    assert!(&**id == "s" && why.contains("webhooks_loopback"), "{why}");
    assert!(world.turn().is_empty());
    assert_eq!(world.get("s")["status"], "failed");
}

#[test]
fn a_page_has_the_server_call_its_own_machine_only_where_its_origin_is_listed() {
    let put = |world: &mut World, url: &str| {
        let page = [("Origin", "https://page.example")];
        world.call(Method::Put, "__ds/subscriptions/s", &page, &webhook(url))
    };
    let allowing = |webhooks_loopback| Options { webhooks_loopback, ..Options::default() };
    for near in ["http://127.0.0.1:9/admin/shutdown?x=1", "http://localhost:9/", "http://127.0.0.77/"] {
        let mut world = World::new().restart_by(allowing(Loopback::OfPrograms));
        let reply = put(&mut world, near);
        assert_eq!(
            (reply.code(), &reply.body["field"]),
            ((403, "ORIGIN_NOT_ALLOWED"), &json!("Origin")),
            "{near}"
        );
        assert_eq!(
            put(&mut world, "https://hooks.example/").status,
            201,
            "elsewhere, pages reach it themselves"
        );
        let mut world = World::new().restart_by(allowing(Loopback::OfPagesToo));
        assert_eq!(put(&mut world, near).status, 201, "{near}");
    }
}
