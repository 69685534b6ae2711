use super::*;

fn put(world: &mut World, name: &str, more: &[(&str, &str)]) -> Reply {
    let mut fields = vec![("Content-Type", "text/plain")];
    fields.extend_from_slice(more);
    world.call(Method::Put, &path(name), &fields, "")
}

#[test]
fn bounds_are_kept_and_said_by_head() {
    let mut world = World::new();
    let bounds = [("Stream-Retain-Seconds", "3600"), ("Stream-Retain-Bytes", "1000000")];
    assert_eq!(put(&mut world, "s", &bounds).status, 201);
    let head = world.call(Method::Head, &path("s"), &[], "");
    assert_eq!(head.field("stream-retain-seconds"), "3600");
    assert_eq!(head.field("stream-retain-bytes"), "1000000");
    assert_eq!(put(&mut world, "s", &bounds).status, 200, "as it is");
    assert_eq!(put(&mut world, "free", &[]).status, 201);
    let head = world.call(Method::Head, &path("free"), &[], "");
    assert!(head.fields.iter().all(|(name, _)| !name.to_ascii_lowercase().starts_with("stream-retain")));
}

#[test]
fn other_bounds_are_a_conflict_and_what_is_none_is_refused() {
    let mut world = World::new();
    assert_eq!(put(&mut world, "s", &[("Stream-Retain-Bytes", "5")]).status, 201);
    for (field, value) in [("Stream-Retain-Bytes", "6"), ("Stream-Retain-Seconds", "5")] {
        let reply = put(&mut world, "s", &[(field, value)]);
        assert_eq!(reply.status, 409);
        assert!(reply.body.contains(field), "{}", reply.body);
    }
    assert_eq!(put(&mut world, "s", &[]).status, 409);
    for value in ["0", "-1", "1.5", "", "1e3", "01", "99999999999999999999"] {
        for field in ["Stream-Retain-Bytes", "Stream-Retain-Seconds"] {
            let reply = put(&mut world, "t", &[(field, value)]);
            assert_eq!((reply.status, world.get("t", "").status), (400, 404), "{field}: {value}");
        }
    }
}
