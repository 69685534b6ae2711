//! A clock that went back.

use super::{HOOK, SECOND_US, START_US, World, acks, pull, told, webhook};
use crate::subscriptions::subscription::Outcome;

/// A clock that goes back by an hour, while the server runs or while it does not.
fn back(mut world: World, restarts: bool) -> World {
    world.now.time_us -= 3_600 * SECOND_US;
    if restarts { world.restart() } else { world }
}

#[test]
fn a_clock_that_went_back_puts_a_retry_off_by_nothing() {
    for restarts in [false, true] {
        let mut world = World::new();
        world.put("s", &webhook(HOOK));
        world.create("events/a");
        world.append("events/a", 1);
        let call = world.webhook();
        let wake = told(&call);
        assert!(world.finished(&call, Outcome::Failed).is_none());
        world.turn();
        let mut world = back(world, restarts);
        assert_eq!(told(&world.webhook())["wake_id"], wake["wake_id"], "{restarts}");
    }
}

#[test]
fn a_clock_that_went_back_makes_a_lease_no_longer_than_it_is() {
    for restarts in [false, true] {
        let mut world = World::new();
        world.create("wake/pool");
        world.put("s", &pull());
        world.create("events/a");
        world.append("events/a", 1);
        world.turn();
        let claimed = world.claim("s", "w1").body;
        world.turn();
        // So little is no step: threads read the clock at different moments.
        world.now.time_us -= SECOND_US / 2;
        world.turn();
        assert_eq!(world.driver.next_due_us(), Some(START_US + SECOND_US));
        let mut world = back(world, restarts);
        world.turn();
        assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + SECOND_US), "{restarts}");
        // Who holds it has it for that long, and then another may.
        world.sleep_ms(999);
        let token = claimed["token"].as_str().unwrap();
        assert_eq!(world.claim("s", "w2").code(), (409, "ALREADY_CLAIMED"));
        world.sleep_ms(1);
        world.turn();
        assert_eq!(world.verb("s", "ack", token, &acks(&claimed, true)).code(), (409, "FENCED"));
        assert_eq!(world.claim("s", "w2").status, 200);
    }
}

#[test]
fn a_clock_that_went_back_has_an_unclaimed_event_written_again_in_time() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    let mut world = back(world, false);
    world.turn();
    assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + SECOND_US));
    world.sleep_ms(1_000);
    world.turn();
    assert_eq!(world.events("wake/pool").len(), 2);
}
