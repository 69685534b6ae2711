//! A source that no descriptor announces, as the test wants it to be, beside those that the kernel announces.

use crate::*;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::socket;

struct Source {
    /// What a look finds, by the number of looks since the turn began.
    finds: fn(usize) -> BusyPoll,
    /// Whether it can go to sleep.
    sleeps: bool,
    /// How long going to sleep takes it.
    dozes: Duration,
    /// Who was glanced at.
    glances: Vec<Key>,
    looks: usize,
    declared: usize,
    ready: usize,
    messages: usize,
    timers: usize,
}

impl Handler for Source {
    type Entry = ();
    type Topic = ();
    type Message = ();

    fn ready(&mut self, _: &mut Core<Self>, _: Key, _: Readiness) {
        self.ready += 1;
    }

    fn glance(&mut self, _: &mut Core<Self>, key: Key) -> bool {
        self.glances.push(key);
        self.glances.len().is_multiple_of(3)
    }

    fn message(&mut self, _: &mut Core<Self>, (): ()) {
        self.messages += 1;
    }

    fn timer(&mut self, _: &mut Core<Self>, _: Key) {
        self.timers += 1;
    }

    fn busy_poll(&mut self, _: &mut Core<Self>) -> BusyPoll {
        self.looks += 1;
        (self.finds)(self.looks)
    }

    fn prepare_to_sleep(&mut self, _: &mut Core<Self>) -> bool {
        self.declared += 1;
        std::thread::sleep(self.dozes);
        self.sleeps
    }
}

fn reactor(finds: fn(usize) -> BusyPoll, sleeps: bool) -> Reactor<Source> {
    let source = Source {
        finds,
        sleeps,
        dozes: Duration::ZERO,
        glances: Vec::new(),
        looks: 0,
        declared: 0,
        ready: 0,
        messages: 0,
        timers: 0,
    };
    let config = Config { spin_on_one: true, ..Config::default() };
    Reactor::new(config, |_| Ok::<_, io::Error>(source)).unwrap()
}

#[test]
fn who_was_ready_alone_is_glanced_at_before_the_kernel_is_asked_again() {
    for connections in 1..=2 {
        let mut reactor = reactor(|_| BusyPoll::Asleep, true);
        let (mut keys, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            let (ours, theirs) = socket::pair().unwrap();
            socket::send(theirs.as_fd(), b"x").unwrap();
            keys.push(reactor.core().insert(ours, (), Interest::READ).unwrap());
            peers.push(theirs);
        }
        // Nobody reads, so that work comes fast until the reactor looks for it.
        while !reactor.is_spinning() {
            reactor.turn(10, Wait::Block).unwrap();
        }
        assert!(reactor.handler().glances.is_empty(), "the kernel had something to say each time");
        for key in &keys {
            socket::receive(reactor.core().descriptor(*key).unwrap(), &mut Vec::with_capacity(8), 8).unwrap();
        }
        let (waits, ready) = (reactor.waits(), reactor.handler().ready);
        reactor.turn(10, Wait::Until(Instant::now() + Duration::from_secs(1))).unwrap();
        assert_eq!(reactor.handler().ready, ready);
        if connections == 1 {
            assert_eq!(reactor.handler().glances, [keys[0]; 3]);
            assert_eq!(reactor.waits(), waits + 1);
            reactor.core().remove(keys[0]);
            reactor.turn(10, Wait::Until(Instant::now() + Duration::from_millis(1))).unwrap();
            assert_eq!(reactor.handler().glances.len(), 3, "it is gone");
        } else {
            assert!(reactor.handler().glances.is_empty(), "either may be next");
        }
    }
}

#[test]
fn a_turn_that_finds_work_does_not_ask_the_kernel_every_time() {
    let mut reactor = reactor(|_| BusyPoll::Ready, true);
    for _ in 0..5_000 {
        reactor.turn(10, Wait::Block).unwrap();
    }
    assert!(reactor.waits() < 5_000, "{} questions", reactor.waits());
    assert_eq!(reactor.handler().declared, 0, "it never slept");
}

#[test]
fn a_turn_that_finds_messages_does_not_ask_every_time_either_while_a_source_is_up() {
    let mut reactor = reactor(|_| BusyPoll::Quiet, false);
    let handle = reactor.handle();
    for count in 1..=5_000 {
        handle.post(()).unwrap();
        reactor.turn(10, Wait::Block).unwrap();
        assert_eq!(reactor.handler().messages, count, "each is handed over in its turn");
    }
    assert!(reactor.waits() < 5_000, "{} questions", reactor.waits());
}

#[test]
fn a_busy_source_starves_neither_descriptors_nor_messages_nor_timers() {
    let mut reactor = reactor(|_| BusyPoll::Ready, true);
    let (ours, theirs) = socket::pair().unwrap();
    let key = reactor.core().insert(ours, (), Interest::READ).unwrap();
    reactor.core().set_timer(key, 1);
    socket::send(theirs.as_fd(), b"x").unwrap();
    reactor.handle().post(()).unwrap();
    while reactor.handler().ready == 0 || reactor.handler().messages == 0 || reactor.handler().timers == 0 {
        reactor.turn(10, Wait::Block).unwrap();
    }
}

#[test]
fn a_source_that_brings_something_late_ends_the_wait() {
    let mut reactor = reactor(|looks| if looks < 4 { BusyPoll::Quiet } else { BusyPoll::Ready }, false);
    // The reactor spins once work has come fast; before that it asks the source to sleep, which this one
    // refuses.
    for _ in 0..50 {
        reactor.handler().looks = 0;
        reactor.turn(10, Wait::Block).unwrap();
    }
    reactor.handler().looks = 0;
    reactor.turn(10, Wait::Block).unwrap();
    assert!(reactor.handler().looks <= 4);
}

#[test]
fn before_it_sleeps_a_reactor_has_its_sources_declare_themselves() {
    let quiet: fn(usize) -> BusyPoll = |_| BusyPoll::Quiet;
    for (finds, makes_way) in [(quiet, false), (|_| BusyPoll::Sharing, true)] {
        let mut reactor = reactor(finds, true);
        // A turn that begins when its time is over does not wait at all, and this thread may be kept that
        // long.
        while reactor.handler().declared == 0 {
            reactor.handler().looks = 0;
            let until = Instant::now() + Duration::from_millis(3);
            reactor.turn(10, Wait::Until(until)).unwrap();
            assert!(Instant::now() >= until, "it slept");
        }
        assert_eq!(reactor.handler().declared, 1);
        if makes_way {
            assert_eq!(reactor.handler().looks, 3, "it makes way twice and then sleeps");
        }
    }
}

#[test]
fn what_other_threads_are_at_is_looked_for_while_that_has_been_quick() {
    // Each wait is a long one, and ends because something came while the source went to sleep.
    let mut reactor = reactor(|_| BusyPoll::Working, false);
    reactor.handler().dozes = Duration::from_millis(1);
    let turn = |reactor: &mut Reactor<Source>| {
        reactor.handler().looks = 0;
        reactor.turn(10, Wait::Block).unwrap();
        (reactor.handler().declared, reactor.handler().looks)
    };
    let (declared, looks) = turn(&mut reactor);
    assert!(declared == 1 && looks > 1, "it looks, making way, and then sleeps: {looks}");
    // It waited for long each time, which others' work is not worth looking for.
    for _ in 0..8 {
        turn(&mut reactor);
    }
    assert_eq!(turn(&mut reactor), (10, 1));
}

#[test]
fn a_source_that_cannot_sleep_keeps_the_reactor_up() {
    let mut reactor = reactor(|_| BusyPoll::Sharing, false);
    // Were it to sleep, nothing would ever end that.
    reactor.turn(10, Wait::Block).unwrap();
    assert_eq!(reactor.handler().declared, 1);
}

#[test]
fn a_foreign_loop_is_told_of_a_source_that_cannot_sleep() {
    for sleeps in [true, false] {
        let mut reactor = reactor(|_| BusyPoll::Quiet, sleeps);
        reactor.turn(10, Wait::Poll).unwrap();
        reactor.turn(10, Wait::Poll).unwrap();
        assert_eq!(reactor.handler().declared, 2);
        assert_eq!(wait_readable(reactor.descriptor(), 0).unwrap(), !sleeps);
    }
}

#[test]
fn an_owner_may_act_between_gathering_and_leaving() {
    let mut reactor = reactor(|_| BusyPoll::Asleep, true);
    let (ours, theirs) = socket::pair().unwrap();
    reactor.gather(10, Wait::Poll).unwrap();
    let (core, source) = reactor.parts();
    let key = core.insert(ours, (), Interest::READ).unwrap();
    assert_eq!(source.ready, 0);
    core.set_timer(key, 1);
    reactor.leave().unwrap();
    assert!(wait_readable(reactor.descriptor(), 10_000).unwrap(), "the timer set meanwhile is told of");
    while reactor.handler().timers == 0 {
        reactor.turn(10, Wait::Poll).unwrap();
    }
    reactor.handle().post(()).unwrap();
    assert_eq!(reactor.hear(), 1);
    assert_eq!(reactor.handler().messages, 1);
    drop(theirs);
}

#[test]
fn a_turn_after_one_whose_wait_failed_reads_the_clocks() {
    let mut reactor = reactor(|_| BusyPoll::Asleep, true);
    reactor.turn(10, Wait::Poll).unwrap();
    // As a wait leaves it that failed after it had read them.
    reactor.has_clocks = true;
    reactor.core.now_ns = 0;
    reactor.turn(10, Wait::Poll).unwrap();
    assert!(reactor.core.now_ns > 0);
}
