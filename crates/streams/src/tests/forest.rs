//! Random trees of forks against a plain model: every stream a list of bytes of its own.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NAMES: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Create { name: usize, json: bool, count: u8 },
    Fork { name: usize, source: usize, at: prop::sample::Index, sub: Option<u8>, count: u8 },
    Append { name: usize, count: u8 },
    Delete { name: usize },
}

#[derive(Clone, Debug)]
struct Message {
    text: String,
    /// The offset it ends at, if that was ever told.
    end: Option<String>,
    /// The last of one append, or the last before a fork's base.
    boundary: bool,
}

/// What a client knows of one name.
#[derive(Clone, Debug)]
struct Known {
    json: bool,
    messages: Vec<Message>,
    source: Option<usize>,
    deleted: bool,
}

type Forest = BTreeMap<usize, Known>;

fn step() -> impl Strategy<Value = Step> {
    let (name, count) = (0..NAMES, 0..4_u8);
    prop_oneof![
        2 => (name.clone(), any::<bool>(), count.clone())
            .prop_map(|(name, json, count)| Step::Create { name, json, count }),
        6 => (name.clone(), name.clone(), any::<prop::sample::Index>(), proptest::option::of(0..5_u8), count)
            .prop_map(|(name, source, at, sub, count)| Step::Fork { name, source, at, sub, count }),
        5 => (name.clone(), 1..4_u8).prop_map(|(name, count)| Step::Append { name, count }),
        3 => name.prop_map(|name| Step::Delete { name }),
    ]
}

fn name_of(name: usize) -> String {
    format!("n{name}")
}

/// A body of so many messages, and the messages. Bytes have one message per byte.
fn body(json: bool, count: u8, serial: &mut u32) -> (String, Vec<String>) {
    let messages: Vec<String> = (0..count)
        .map(|_| {
            *serial += 1;
            if json {
                format!("[\",{serial}\",{{}}]")
            } else {
                char::from(b'a' + (*serial % 26) as u8).into()
            }
        })
        .collect();
    let body = if json { format!("[{}]", messages.join(", ")) } else { messages.concat() };
    (body, messages)
}

/// Takes note of messages appended by one request that ended at `next`.
fn extend(known: &mut Known, messages: Vec<String>, next: &str) {
    let message = |text| Message { text, end: None, boundary: false };
    known.messages.extend(messages.into_iter().map(message));
    if let Some(last) = known.messages.last_mut() {
        // An offset, once told, is told again.
        assert!(last.end.as_ref().is_none_or(|end| end == next));
        (last.end, last.boundary) = (Some(next.to_owned()), true);
    }
}

fn has_forks(forest: &Forest, name: usize) -> bool {
    forest.values().any(|known| known.source == Some(name))
}

/// Removes what is deleted and has no forks, up the chain.
fn collect(forest: &mut Forest, name: usize) {
    let mut next = Some(name);
    while let Some(name) = next.filter(|name| forest.get(name).is_some_and(|known| known.deleted)) {
        if has_forks(forest, name) {
            return;
        }
        next = forest.remove(&name).and_then(|known| known.source);
    }
}

fn media(json: bool) -> &'static str {
    if json { "application/json" } else { "text/plain" }
}

fn fork(world: &mut World, forest: &mut Forest, step: &Step, serial: &mut u32) {
    let Step::Fork { name, source, at, sub, count } = step else { return };
    let Some(parent) = forest.get(source).cloned() else { return };
    if parent.deleted || forest.contains_key(name) {
        return;
    }
    // Where to: an offset that was told, or the tail; then some way into what one append put there.
    let told: Vec<usize> =
        (0..parent.messages.len()).filter(|index| parent.messages[*index].end.is_some()).collect();
    let place = at.index(told.len() + 2);
    let (mut kept, offset) = match place.checked_sub(2) {
        None if place == 0 => (parent.messages.len(), None),
        None => (0, Some("-1".to_owned())),
        Some(place) => (told[place] + 1, parent.messages[told[place]].end.clone()),
    };
    let from = path(&name_of(*source));
    let mut fields = vec![("Stream-Forked-From", from.as_str())];
    fields.extend(offset.as_deref().map(|offset| ("Stream-Fork-Offset", offset)));
    let sub = sub.filter(|_| offset.is_some()).unwrap_or(0);
    let sub_text = sub.to_string();
    fields.extend((sub > 0).then_some(("Stream-Fork-Sub-Offset", sub_text.as_str())));
    let behind = parent.messages[kept..].iter().position(|message| message.boundary);
    let boundary = behind.map_or(kept, |behind| kept + behind + 1);
    let (body, messages) = body(parent.json, *count, serial);
    let body = if *count == 0 { String::new() } else { body };
    fields.extend((*count > 0).then_some(("Content-Type", media(parent.json))));
    let reply = world.call(Method::Put, &path(&name_of(*name)), &fields, &body);
    if kept + usize::from(sub) > boundary {
        assert_eq!(reply.rule(), "fork-sub-offset-past-end", "{step:?} {parent:?}");
        return;
    }
    kept += usize::from(sub);
    assert_eq!(reply.status, 201, "{step:?} {parent:?} {reply:?}");
    let mut known = Known { source: Some(*source), messages: parent.messages, ..parent };
    known.messages.truncate(kept);
    known.messages.last_mut().into_iter().for_each(|last| last.boundary = true);
    extend(&mut known, messages, reply.next());
    forest.insert(*name, known);
    let status = world.call(Method::Put, &path(&name_of(*name)), &fields, &body).status;
    assert_eq!(status, 200, "the same fork again");
}

fn run(world: &mut World, forest: &mut Forest, step: &Step, serial: &mut u32) {
    match step {
        Step::Create { name, json, count } => {
            let (body, messages) = body(*json, *count, serial);
            let reply = world.put(&name_of(*name), media(*json), &body);
            match forest.get(name) {
                Some(known) if known.deleted || known.source.is_some() => assert_eq!(reply.status, 409),
                Some(known) => assert_eq!(reply.status, if known.json == *json { 200 } else { 409 }),
                None => {
                    let mut known = Known { json: *json, messages: Vec::new(), source: None, deleted: false };
                    assert_eq!(reply.status, 201);
                    extend(&mut known, messages, reply.next());
                    forest.insert(*name, known);
                }
            }
        }
        Step::Fork { .. } => fork(world, forest, step, serial),
        Step::Append { name, count } => {
            let json = forest.get(name).is_some_and(|known| known.json);
            let (body, messages) = body(json, *count, serial);
            let reply = world.post(&name_of(*name), media(json), &body);
            match forest.get_mut(name) {
                Some(known) if !known.deleted => extend(known, messages, reply.next()),
                other => assert_eq!(reply.status, if other.is_some() { 410 } else { 404 }),
            }
        }
        Step::Delete { name } => {
            let status = world.call(Method::Delete, &path(&name_of(*name)), &[], "").status;
            match forest.get_mut(name) {
                Some(known) if !known.deleted => {
                    assert_eq!(status, 204);
                    known.deleted = true;
                    collect(forest, *name);
                }
                other => assert_eq!(status, if other.is_some() { 410 } else { 404 }),
            }
        }
    }
}

/// Every stream reads as its own list of messages, from every offset that was ever told for it.
fn check(world: &mut World, forest: &Forest) {
    for name in 0..NAMES {
        let Some(known) = forest.get(&name).filter(|known| !known.deleted) else {
            let status = if forest.contains_key(&name) { 410 } else { 404 };
            assert_eq!(world.get(&name_of(name), "").status, status);
            continue;
        };
        let mut starts = vec![(0, "-1")];
        for (index, message) in known.messages.iter().enumerate() {
            starts.extend(message.end.as_deref().map(|end| (index + 1, end)));
        }
        assert!(starts.windows(2).all(|pair| pair[0].1 < pair[1].1), "offsets sort: {starts:?}");
        for (index, offset) in starts {
            let reply = world.get(&name_of(name), &format!("?offset={offset}"));
            let rest: Vec<&str> =
                known.messages[index..].iter().map(|message| message.text.as_str()).collect();
            let expected = if known.json { format!("[{}]", rest.join(",")) } else { rest.concat() };
            assert_eq!((reply.status, &reply.body), (200, &expected), "{name} from {offset}");
        }
    }
}

proptest! {
    #[test]
    fn every_tree_of_forks_reads_as_if_each_were_a_copy(steps in proptest::collection::vec(step(), 1..50)) {
        let mut world = World::new();
        let (mut forest, mut serial) = (Forest::new(), 0);
        for step in &steps {
            run(&mut world, &mut forest, step, &mut serial);
        }
        check(&mut world, &forest);
    }
}
