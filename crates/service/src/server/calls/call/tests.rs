use super::*;
use crate::server::calls::answers::Place;
use crate::server::calls::answers::Taker;
use crate::server::calls::reply::Reply;
use crate::server::collector::Collector;
use std::io;
use std::task::Wake;
use thalweg_reactor::{Config, Key, Reactor};
use thalweg_wire::fault::Fault;

fn call(credit: u32) -> Call {
    let reactor = Reactor::new(Config::default(), |_| Ok::<_, io::Error>(Collector::default())).unwrap();
    Call::new(Arc::new(Answers::new(Taker::Server(reactor.handle()), "Error")), credit)
}

#[derive(Default)]
struct Counted(Mutex<usize>);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        *self.0.lock() += 1;
    }
}

fn released(call: &Call) -> Vec<u8> {
    let mut bytes = Vec::new();
    call.release(|held| match held {
        Held::Item(frame) => bytes.extend(frame),
        Held::End(_, frame) => {
            bytes.push(b'|');
            bytes.extend(frame);
        }
    });
    bytes
}

#[test]
fn items_cost_credit_and_wait_without_it_the_end_behind_them() {
    let call = call(2);
    assert!(matches!(call.admit(b"a"), Admission::Leaves(Flow::Go)));
    assert!(matches!(call.admit(b"b"), Admission::Leaves(Flow::Wait)));
    assert!(matches!(call.admit(b"c"), Admission::Held));
    assert!(matches!(call.admit(b"d"), Admission::Held));
    assert!(call.hold_end(0, b"e"));
    assert!(released(&call).is_empty(), "there is no credit");
    assert!(!call.grant(Grant::Items(1), false), "what was pushed before comes first");
    assert_eq!(released(&call), b"c");
    assert!(!call.grant(Grant::UpTo(5), false));
    assert_eq!(released(&call), b"d|e", "an end costs nothing");
    assert!(call.grant(Grant::Items(1), false), "nothing is held any more");
}

#[test]
fn who_waits_for_room_is_woken_once_there_is_some_whatever_the_credit_or_nobody_waits_any_more() {
    let counted = Arc::<Counted>::default();
    let waker = Waker::from(Arc::clone(&counted));
    let times = || *counted.0.lock();
    let call = call(0);
    assert!(call.has_room() && !call.await_room(&waker));
    call.congest();
    assert!(!call.has_room() && call.await_room(&waker));
    call.grant(Grant::Items(0), true);
    assert_eq!(times(), 0, "there is none yet");
    call.grant(Grant::Items(0), false);
    assert_eq!((times(), call.has_room()), (1, true));
    call.congest();
    assert!(call.await_room(&waker));
    call.cancel();
    assert_eq!((times(), call.has_room()), (2, true));
    assert!(!call.await_room(&waker));
    drop(call);
    drop(waker);
    assert_eq!(Arc::strong_count(&counted), 1, "each wake had the waker, and nobody has it now");
}

#[test]
fn a_producer_that_does_not_wait_is_stopped() {
    let call = call(1);
    assert!(matches!(call.admit(b"a"), Admission::Leaves(Flow::Wait)));
    for _ in 0..HELD_ITEMS_MAX {
        assert!(matches!(call.admit(b"b"), Admission::Held));
    }
    assert!(matches!(call.admit(b"c"), Admission::Overrun));
    assert!(matches!(call.admit(b"d"), Admission::Unwanted));
    assert!(!call.hold_end(0, b""), "nothing is held back behind which it could wait");
}

#[test]
fn held_bytes_have_a_bound_but_one_item_always_fits() {
    let call = call(1);
    assert!(matches!(call.admit(b"a"), Admission::Leaves(Flow::Wait)));
    assert!(matches!(call.admit(&vec![0; HELD_BYTES_MAX + 1]), Admission::Held));
    assert!(matches!(call.admit(b"b"), Admission::Overrun));
}

#[test]
fn a_waiter_is_woken_once_for_credit_and_for_a_cancel_and_at_once_if_it_was_so_already() {
    let call = call(1);
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(Arc::clone(&counted));
    let times = || *counted.0.lock();
    call.changed(&waker);
    assert_eq!(times(), 1, "there is credit already");
    assert!(matches!(call.admit(b"a"), Admission::Leaves(Flow::Wait)));
    call.changed(&waker);
    assert_eq!(times(), 1);
    assert!(call.grant(Grant::Items(1), false));
    assert!(call.grant(Grant::Items(1), false));
    assert_eq!(times(), 2, "once");
    call.congest();
    call.changed(&waker);
    assert!(call.grant(Grant::Items(1), true));
    assert_eq!(times(), 2, "credit helps nothing while the connection is congested");
    assert!(!call.cancel());
    assert_eq!(times(), 3);
    call.changed(&waker);
    assert_eq!(times(), 4, "it is cancelled already");
}

#[test]
fn a_cancel_waker_is_woken_by_a_cancel_and_by_nothing_else() {
    let mut call = call(1);
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(Arc::clone(&counted));
    let times = || *counted.0.lock();
    call.when_cancelled(&waker);
    assert!(matches!(call.admit(b"a"), Admission::Leaves(Flow::Wait)));
    assert!(call.grant(Grant::Items(1), false));
    assert_eq!(times(), 0, "credit is nothing to mourn");
    call.forget_wakers();
    let _ = call.cancel();
    assert_eq!(times(), 0, "who asked has answered");
    call.renew(1);
    call.when_cancelled(&waker);
    let _ = call.cancel();
    assert_eq!(times(), 1);
    call.when_cancelled(&waker);
    assert_eq!(times(), 2, "it is cancelled already");
}

/// Asks its call for something when it is dropped, as a foreign language's waker may.
struct Asks(Arc<Call>, std::sync::mpsc::Sender<Flow>);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.1.send(self.0.flow()).unwrap();
    }
}

#[test]
fn a_waker_that_makes_way_for_another_may_use_the_call() {
    let call = Arc::new(call(1));
    assert!(matches!(call.admit(b"a"), Admission::Leaves(Flow::Wait)));
    let (asked, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..2 {
            call.changed(&Waker::from(Arc::new(Asks(Arc::clone(&call), asked.clone()))));
            call.when_cancelled(&Waker::from(Arc::new(Asks(Arc::clone(&call), asked.clone()))));
        }
    });
    // A call that is locked meanwhile never answers.
    for _ in 0..2 {
        let patience = std::time::Duration::from_secs(60);
        assert_eq!(answers.recv_timeout(patience), Ok(Flow::Wait));
    }
}

#[test]
fn cancelling_says_whether_the_end_was_held_back() {
    let call = call(1);
    let _ = call.admit(b"a");
    let _ = call.admit(b"b");
    assert!(call.hold_end(0, b"e"));
    assert!(call.cancel());
    assert!(!call.cancel(), "it was told once");
    assert!(released(&call).is_empty());
}

#[test]
fn a_call_is_used_again_only_when_nobody_else_knows_it_and_is_as_good_as_new() {
    let mut calls = Calls::new(Arc::clone(&call(1).answers), 3);
    let first = calls.take();
    let elsewhere = Arc::clone(&first);
    let address = Arc::as_ptr(&first);
    first.cancel();
    calls.give(first);
    let second = calls.take();
    assert_ne!(Arc::as_ptr(&second), address);
    drop(elsewhere);
    let address = Arc::as_ptr(&second);
    let _ = second.admit(b"a");
    second.cancel();
    calls.give(second);
    let third = calls.take();
    assert_eq!(Arc::as_ptr(&third), address);
    assert!(!third.is_cancelled());
    assert!(matches!(third.admit(b"a"), Admission::Leaves(Flow::Go)), "its credit is whole again");
}

#[test]
fn an_answer_drops_the_wakers_before_it_returns_and_nothing_wakes_them_any_more() {
    type Way = (&'static str, fn(Reply));
    let ways: [Way; 5] = [
        ("the end", |reply| reply.end(b"end")),
        ("an end that is written in place", |reply| reply.end_with(|frame| frame.push(b'e'))),
        ("a fault", |reply| reply.fail(Fault::Overloaded, "later")),
        ("no answer", drop),
        ("an end behind an item that is held back", |mut reply| {
            assert_eq!(reply.item(b"held"), Flow::Wait);
            reply.end(b"end");
        }),
    ];
    for (way, answer) in ways {
        let call = Arc::new(call(1));
        let mut reply = Reply::new(Arc::clone(&call), Place { key: Key::from_token(1), id: 1, serial: 1 });
        assert_eq!(reply.item(b"item"), Flow::Wait);
        let counted = Arc::new(Counted::default());
        reply.changed(&Waker::from(Arc::clone(&counted)));
        reply.when_cancelled(&Waker::from(Arc::clone(&counted)));
        assert_eq!(Arc::strong_count(&counted), 3);
        answer(reply);
        assert_eq!(Arc::strong_count(&counted), 1, "{way} keeps a waker");
        let _ = call.grant(Grant::Items(1), false);
        let _ = released(&call);
        let _ = call.cancel();
        assert_eq!(*counted.0.lock(), 0, "{way} wakes who has answered");
    }
}
