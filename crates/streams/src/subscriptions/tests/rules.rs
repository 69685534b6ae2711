//! The rules against a plain model.

use super::{SECOND_US, START_US};
use crate::subscriptions::encoding;
use crate::subscriptions::links::Links;
use crate::subscriptions::subscription::{
    Ack, Change, Config as Wanted, Delivery, Fence, Outcome, Phase, Position, Refused, StreamPosition,
    Subscription,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn subscription() -> Subscription {
    Subscription {
        id: "s".into(),
        config: Wanted {
            delivery: Delivery::PullWake { wake_stream: "w".into() },
            pattern: crate::subscriptions::pattern::Pattern::parse("events/*"),
            streams: BTreeSet::from(["named".into()]),
            lease_ttl_ms: 1_000,
            description: Some("test".into()),
        },
        origin: "https://h".into(),
        created_us: 7,
        generation: 0,
        phase: Phase::Idle,
        links: Links::default(),
    }
}

/// What a worker may do, and what happens around it.
#[derive(Clone, Debug)]
enum Step {
    Append { stream: u64, bytes: u64 },
    Drive,
    Claim { worker: u8 },
    Ack { age: u64, stream: u64, offset: u64, done: bool },
    Release { age: u64 },
    Sleep { ms: u64 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_u64, 1..4_u64).prop_map(|(stream, bytes)| Step::Append { stream, bytes }),
        Just(Step::Drive),
        (0..3_u8).prop_map(|worker| Step::Claim { worker }),
        (0..3_u64, 0..3_u64, 0..12_u64, any::<bool>()).prop_map(|(age, stream, offset, done)| Step::Ack {
            age,
            stream,
            offset,
            done
        }),
        (0..2_u64).prop_map(|age| Step::Release { age }),
        (0..1_500_u64).prop_map(|ms| Step::Sleep { ms }),
        Just(Step::Restart),
    ]
}

/// The plain model: tails and cursors in arrays, the present wake and who holds it until when.
#[derive(Debug, Default)]
struct Plain {
    tails: [u64; 3],
    acked: [u64; 3],
    generation: u64,
    /// A wake is under way: not yet told, told, or held by somebody until an instant.
    wake: Option<Option<(u8, u64)>>,
}

impl Plain {
    fn pending(&self) -> bool {
        (0..3).any(|n| self.tails[n] > self.acked[n])
    }

    fn holds(&self, generation: u64, now: u64) -> bool {
        generation == self.generation && matches!(self.wake, Some(Some((_, until))) if until > now)
    }
}

fn name(stream: u64) -> Arc<str> {
    format!("events/{stream}").into()
}

fn keep(subscription: &mut Subscription, notes: &mut BTreeMap<Box<[u8]>, Arc<[u8]>>, change: Change) {
    for (key, value) in encoding::notes(subscription, &change) {
        match value.as_slice() {
            [] => notes.remove(key.as_slice()),
            value => notes.insert(key.into(), value.into()),
        };
    }
    subscription.apply(change);
}

fn observe(
    subscription: &mut Subscription,
    notes: &mut BTreeMap<Box<[u8]>, Arc<[u8]>>,
    stream: u64,
    tail: u64,
) {
    let incarnation = stream + 10;
    let seen =
        StreamPosition { incarnation, base: 0, base_owner: incarnation, tail, tail_owner: incarnation };
    let link = subscription.observe(&name(stream), Some(seen));
    keep(subscription, notes, Change { links: BTreeMap::from([(name(stream), link)]), ..Change::default() });
}

proptest! {
    #[test]
    fn the_rules_are_those_of_a_plain_model(steps in proptest::collection::vec(step(), 1..80)) {
        let mut rules = subscription();
        let named = encoding::named(&rules, usize::MAX).into_iter().flatten();
        let mut notes: BTreeMap<Box<[u8]>, Arc<[u8]>> =
            named.map(|(key, value)| (key.into(), value.into())).collect();
        let start = Change { generation: Some(0), ..Change::default() };
        keep(&mut rules, &mut notes, start);
        let (mut plain, mut now) = (Plain::default(), START_US);
        for step in steps {
            let before = (rules.clone(), plain.acked);
            match step {
                Step::Append { stream, bytes } => {
                    plain.tails[stream as usize] += bytes;
                    observe(&mut rules, &mut notes, stream, plain.tails[stream as usize]);
                }
                Step::Drive => {
                    if matches!(plain.wake, Some(Some((_, until))) if until <= now) {
                        plain.wake = None;
                    }
                    if plain.wake.is_none() && plain.pending() {
                        plain.generation += 1;
                        plain.wake = Some(None);
                    }
                    while let Some(change) = rules.expire(now).or_else(|| rules.wake(now)) {
                        keep(&mut rules, &mut notes, change);
                    }
                    let told = rules.delivered(rules.generation, Outcome::Accepted, &[], now, now, 0);
                    if let Some(change) = told {
                        keep(&mut rules, &mut notes, change);
                    }
                }
                Step::Claim { worker } => {
                    let held = matches!(plain.wake, Some(Some((_, until))) if until > now);
                    let result = rules.claim(&worker.to_string(), now);
                    if held {
                        let busy = matches!(result, Err(Refused::AlreadyClaimed { .. }));
                        prop_assert!(busy);
                    } else if plain.wake != Some(None) && !plain.pending() {
                        prop_assert_eq!(result, Err(Refused::NothingPending));
                    } else {
                        plain.generation += u64::from(plain.wake != Some(None));
                        plain.wake = Some(Some((worker, now + SECOND_US)));
                        keep(&mut rules, &mut notes, result.unwrap());
                    }
                }
                Step::Ack { age, stream, offset, done } => {
                    let generation = plain.generation.saturating_sub(age);
                    let fence = Fence { token: generation, generation, same_wake: age == 0 };
                    let incarnation = stream + 10;
                    let position = Position::At { incarnation, offset, owner: incarnation };
                    let result = rules.ack(fence, &[Ack { stream: name(stream), position }], done, now);
                    let at = stream as usize;
                    let linked = rules.links.contains_key(&name(stream));
                    if !(age == 0 && plain.holds(generation, now)) {
                        prop_assert_eq!(result, Err(Refused::Fenced));
                    } else if linked && offset > plain.tails[at] {
                        prop_assert_eq!(result, Err(Refused::PastEnd { stream: name(stream) }));
                    } else {
                        plain.acked[at] = if linked { plain.acked[at].max(offset) } else { plain.acked[at] };
                        let holder = plain.wake.flatten().unwrap().0;
                        plain.wake = (!done).then_some(Some((holder, now + SECOND_US)));
                        let change = result.unwrap();
                        prop_assert_eq!(rules.is_pending_after(&change), plain.pending());
                        keep(&mut rules, &mut notes, change);
                    }
                }
                Step::Release { age } => {
                    let generation = plain.generation.saturating_sub(age);
                    let fence = Fence { token: generation, generation, same_wake: age == 0 };
                    let result = rules.release(fence, now);
                    if age == 0 && plain.holds(generation, now) {
                        plain.wake = None;
                        keep(&mut rules, &mut notes, result.unwrap());
                    } else {
                        prop_assert_eq!(result, Err(Refused::Fenced));
                    }
                }
                Step::Sleep { ms } => now += ms * 1_000,
                Step::Restart => {
                    let kept: Vec<_> = notes.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                    rules = encoding::decode("s", &kept).unwrap().unwrap().subscription;
                    for stream in 0..3 {
                        if plain.tails[stream as usize] > 0 {
                            observe(&mut rules, &mut notes, stream, plain.tails[stream as usize]);
                        }
                    }
                    prop_assert_eq!(&rules, &before.0, "what is kept is what there was");
                }
            }
            prop_assert_eq!(rules.generation, plain.generation);
            prop_assert_eq!(rules.is_pending(), plain.pending());
            for stream in 0..3 {
                let acked = rules.links.get(&name(stream)).map_or(0, |link| link.acked);
                prop_assert_eq!(acked, plain.acked[stream as usize]);
                prop_assert!(acked >= before.1[stream as usize], "a cursor never moves back");
            }
        }
    }
}
