//! Listings and counts: our own extensions.

use super::World;
use thalweg_wire::exchange::{Answer, Method};

fn names(world: &mut World, query: &str) -> (Vec<String>, Option<String>) {
    let reply = world.call(Method::Get, &format!("/v1/streams{query}"), &[], "");
    assert_eq!((reply.status, reply.field("cache-control")), (200, "no-store"), "{reply:?}");
    let listing: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    let streams = listing["streams"].as_array().unwrap();
    let names = streams.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect();
    (names, listing["next"].as_str().map(str::to_owned))
}

#[test]
fn pages_follow_one_another_in_order_and_keep_to_their_prefix() {
    let mut world = World::new();
    for name in ["b", "a/2", "a/1", "a/3", "%C3%A4", "a"] {
        world.put(name, "text/plain", "");
    }
    assert_eq!(names(&mut world, "").0, ["a", "a/1", "a/2", "a/3", "b", "ä"]);
    assert_eq!(
        names(&mut world, "?prefix=a/&limit=2"),
        (vec!["a/1".into(), "a/2".into()], Some("a/2".into()))
    );
    assert_eq!(names(&mut world, "?prefix=a/&limit=2&after=a/2"), (vec!["a/3".into()], None));
    assert_eq!(names(&mut world, "?after=a%2F3").0, ["b", "ä"]);
    assert_eq!(names(&mut world, "?prefix=zz"), (vec![], None));
}

#[test]
fn an_entry_says_what_head_says() {
    let mut world = World::new();
    world.put("x", "text/plain", "12345");
    world.close("x");
    let lived = [("Content-Type", "application/json"), ("Stream-TTL", "60")];
    world.call(Method::Put, "/v1/stream/y", &lived, "[1]");
    let at = [("Content-Type", "a/b"), ("Stream-Expires-At", "2030-01-01T00:00:00Z")];
    world.call(Method::Put, "/v1/stream/z", &at, "");
    let reply = world.call(Method::Get, "/v1/streams", &[], "");
    let mut listing: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    let entries = listing["streams"].as_array_mut().unwrap();
    let mut incarnations: Vec<_> = entries
        .iter_mut()
        .map(|entry| entry.as_object_mut().unwrap().remove("incarnation").unwrap())
        .collect();
    incarnations.dedup();
    assert_eq!(incarnations.len(), 3, "each is another");
    let wanted = serde_json::json!([
        { "name": "x", "contentType": "text/plain", "nextOffset": world.head("x").next(), "bytes": 5, "keptBytes": 5,
          "closed": true },
        { "name": "y", "contentType": "application/json", "nextOffset": world.head("y").next(), "bytes": 2,
          "keptBytes": 2, "closed": false, "ttlS": 60 },
        { "name": "z", "contentType": "a/b", "nextOffset": world.head("z").next(), "bytes": 0,
          "keptBytes": 0, "closed": false,
          "expiresAt": "2030-01-01T00:00:00Z" },
    ]);
    assert_eq!(listing["streams"], wanted);
}

#[test]
fn a_stream_that_was_made_again_is_another() {
    let mut world = World::new();
    let incarnation = |world: &mut World| {
        let reply = world.call(Method::Get, "/v1/streams", &[], "");
        let listing: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        listing["streams"][0]["incarnation"].as_str().unwrap().to_owned()
    };
    world.put("x", "text/plain", "1");
    let first = incarnation(&mut world);
    world.post("x", "text/plain", "2");
    assert_eq!(incarnation(&mut world), first);
    assert_eq!(world.call(Method::Delete, "/v1/stream/x", &[], "").status, 204);
    world.put("x", "text/plain", "123");
    assert_ne!(incarnation(&mut world), first);
}

#[test]
fn what_is_over_or_not_visible_yet_or_the_servers_own_is_not_shown() {
    let mut world = World::new();
    world.call(Method::Put, "/v1/stream/short", &[("Stream-TTL", "1")], "");
    world.put("kept", "text/plain", "");
    world.model.own("\0inner");
    assert_eq!(names(&mut world, "").0, ["kept", "short"]);
    world.sleep_ms(1_000);
    let writes = world.model.writes();
    assert_eq!(names(&mut world, "").0, ["kept"]);
    assert_eq!(world.model.writes(), writes, "a listing deletes nothing");
    assert_eq!(names(&mut world, "?prefix=%00").0, Vec::<String>::new());
    assert_eq!(names(&mut world, "?after=%00").0, ["kept"]);
    world.model.lag();
    world.put("later", "text/plain", "");
    assert_eq!(names(&mut world, "").0, ["kept"]);
    world.model.settle();
    assert_eq!(names(&mut world, "").0, ["kept", "later"]);
}

#[test]
fn a_page_of_nothing_visible_still_leads_on() {
    let mut world = World::new();
    world.call(Method::Put, "/v1/stream/a", &[("Stream-TTL", "1")], "");
    world.put("b", "text/plain", "");
    world.sleep_ms(2_000);
    assert_eq!(names(&mut world, "?limit=1"), (vec![], Some("a".into())));
    assert_eq!(names(&mut world, "?limit=1&after=a").0, ["b"]);
}

#[test]
fn bad_listings_say_what_is_wrong_and_other_methods_are_not_known() {
    let mut world = World::new();
    for (query, field) in
        [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("after=%ff", "after")]
    {
        let reply = world.call(Method::Get, &format!("/v1/streams?{query}"), &[], "");
        assert_eq!((reply.status, reply.refusal().1.as_str()), (400, field), "{query}");
    }
    for path in ["/v1/streams", "/v1/stats"] {
        assert_eq!(world.call(Method::Delete, path, &[], "").status, 405);
    }
}

#[test]
fn an_order_that_is_not_made_yet_is_made_elsewhere() {
    let mut world = World::new();
    world.put("a", "text/plain", "");
    world.model.cool();
    let Answer::Cold(work) = world.answer(Method::Get, "/v1/streams", &[], b"") else { panic!("not cold") };
    (work.0)();
    assert_eq!(names(&mut world, "").0, ["a"]);
}

#[test]
fn counts() {
    let mut world = World::new();
    world.put("a", "text/plain", "123");
    world.put("b", "text/plain", "4");
    let reply = world.call(Method::Get, "/v1/stats", &[], "");
    let stats: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!((stats["streams"].as_u64(), stats["storedBytes"].as_u64()), (Some(2), Some(4)));
    assert_eq!(stats["durability"], "memory");
}
