//! The invariants, by their numbers, on real descriptors.

use crate::*;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thalweg_sys::epoll::{Epoll, wait_readable};
use thalweg_sys::{clock, process, socket};

type OnReady = Box<dyn FnMut(&mut Core<Probe>, Key, Readiness)>;
type OnMessage = Box<dyn FnMut(&mut Core<Probe>, Message)>;
type OnNudge = Box<dyn FnMut(&mut Core<Probe>)>;
type OnTimer = Box<dyn FnMut(&mut Core<Probe>, Key)>;

/// A handler that notes what it is called with and does what the test says.
struct Probe {
    ready: Vec<(Key, Readiness)>,
    messages: Vec<u32>,
    nudges: usize,
    timers: Vec<(Key, u64)>,
    turns: usize,
    on_ready: OnReady,
    on_message: OnMessage,
    on_nudge: OnNudge,
    on_timer: OnTimer,
}

enum Message {
    Number(u32),
    Answer(Key, Sequence, u32),
}

/// What a connection owns in these tests.
#[derive(Debug, Default)]
struct Entry {
    ordered: Ordered<u32>,
}

impl Handler for Probe {
    type Entry = Entry;
    type Topic = &'static str;
    type Message = Message;

    fn ready(&mut self, core: &mut Core<Self>, key: Key, readiness: Readiness) {
        self.ready.push((key, readiness));
        (self.on_ready)(core, key, readiness);
    }

    fn message(&mut self, core: &mut Core<Self>, message: Message) {
        if let Message::Number(number) = message {
            self.messages.push(number);
        }
        (self.on_message)(core, message);
    }

    fn nudged(&mut self, core: &mut Core<Self>) {
        self.nudges += 1;
        (self.on_nudge)(core);
    }

    fn timer(&mut self, core: &mut Core<Self>, key: Key) {
        self.timers.push((key, clock::monotonic_ns()));
        (self.on_timer)(core, key);
    }

    fn turn_ended(&mut self, _: &mut Core<Self>) {
        self.turns += 1;
    }
}

fn reactor_with(config: Config) -> Reactor<Probe> {
    Reactor::new(config, |_| {
        Ok::<_, io::Error>(Probe {
            ready: Vec::new(),
            messages: Vec::new(),
            nudges: 0,
            timers: Vec::new(),
            turns: 0,
            on_ready: Box::new(|_, _, _| {}),
            on_message: Box::new(|_, _| {}),
            on_nudge: Box::new(|_| {}),
            on_timer: Box::new(|_, _| {}),
        })
    })
    .unwrap()
}

fn reactor() -> Reactor<Probe> {
    reactor_with(Config { spin: false, ..Config::default() })
}

/// A connection on the reactor, and its peer.
fn connect(reactor: &mut Reactor<Probe>, interest: Interest) -> (Key, OwnedFd) {
    let (ours, theirs) = socket::pair().unwrap();
    (reactor.core().insert(ours, Entry::default(), interest).unwrap(), theirs)
}

fn say(peer: &OwnedFd, bytes: &[u8]) {
    assert_eq!(socket::send(peer.as_fd(), bytes).unwrap(), Some(bytes.len()));
}

fn poll(reactor: &mut Reactor<Probe>) -> usize {
    reactor.turn(1_000, Wait::Poll).unwrap()
}

/// How long what is about to happen may take, on however slow a machine, before it is taken to happen never.
const PATIENCE: Duration = Duration::from_secs(60);

fn due_soon() -> Wait {
    Wait::Until(Instant::now() + PATIENCE)
}

mod invariant_1_a_connection_is_its_key {
    use super::*;

    #[test]
    fn an_event_for_a_connection_removed_in_the_same_batch_is_dropped() {
        let mut reactor = reactor();
        let (first, first_peer) = connect(&mut reactor, Interest::READ);
        let (second, second_peer) = connect(&mut reactor, Interest::READ);
        say(&first_peer, b"x");
        say(&second_peer, b"x");
        reactor.handler().on_ready = Box::new(move |core, key, _| {
            let other = if key == first { second } else { first };
            core.remove(other).unwrap();
            // The slot lives again at once, under another generation.
            let (ours, _) = socket::pair().unwrap();
            let heir = core.insert(ours, Entry::default(), Interest::NONE).unwrap();
            assert_eq!(heir.slot, other.slot);
            assert_ne!(heir.generation, other.generation);
        });
        assert_eq!(poll(&mut reactor), 1);
    }

    #[test]
    fn every_call_with_a_dead_key_finds_nobody() {
        let mut reactor = reactor();
        let (dead, _peer) = connect(&mut reactor, Interest::READ);
        let core = reactor.core();
        assert!(core.remove(dead).is_some());
        let (ours, _other_peer) = socket::pair().unwrap();
        let heir = core.insert(ours, Entry::default(), Interest::READ).unwrap();
        assert_eq!(heir.slot, dead.slot);
        assert!(core.remove(dead).is_none());
        assert!(core.entry(dead).is_none() && core.descriptor(dead).is_none());
        assert!(core.entry_and_descriptor(dead).is_none() && core.interest(dead).is_none());
        core.set_interest(dead, Interest::NONE).unwrap();
        assert_eq!(core.interest(heir), Some(Interest::READ));
        core.set_timer(dead, 0);
        assert!(!core.subscribe(dead, 1, 0, || "topic"));
        core.set_offset(dead, 9);
        assert!(core.unsubscribe(dead).is_none() && core.offset(dead).is_none());
        assert_eq!((core.topics_len(), core.len()), (0, 1));
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(poll(&mut reactor), 0, "the heir got neither the timer nor anything else");
    }

    #[test]
    fn a_timer_that_belongs_to_no_connection_has_a_key_all_the_same() {
        let mut reactor = reactor_with(Config { entries_max: 1, spin: false, ..Config::default() });
        let key = reactor.core().insert_timer(Entry::default()).unwrap();
        let refused = reactor.core().insert_timer(Entry::default()).unwrap_err();
        assert_eq!(refused.to_string(), "the reactor takes no more entries");
        reactor.core().set_timer(key, 1);
        while reactor.handler().timers.is_empty() {
            reactor.turn(100, due_soon()).unwrap();
        }
        assert_eq!(reactor.handler().timers[0].0, key);
        assert!(reactor.handler().ready.is_empty());
    }

    #[test]
    fn a_removed_descriptor_is_closed_and_silent_even_while_a_duplicate_lives() {
        let mut reactor = reactor();
        let (ours, theirs) = socket::pair().unwrap();
        let duplicate = socket::duplicate(ours.as_fd()).unwrap();
        let key = reactor.core().insert(ours, Entry::default(), Interest::READ).unwrap();
        say(&theirs, b"x");
        assert_eq!(poll(&mut reactor), 1);
        reactor.core().remove(key).unwrap();
        assert_eq!(poll(&mut reactor), 0);
        assert!(!wait_readable(reactor.descriptor(), 0).unwrap(), "nothing is watched any more");
        drop(duplicate);
        assert_eq!(socket::send(theirs.as_fd(), b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_full_reactor_and_an_unwatchable_descriptor_give_everything_back() {
        let mut reactor = reactor_with(Config { entries_max: 1, ..Config::default() });
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        let rejected = reactor.core().insert(file, Entry::default(), Interest::READ).unwrap_err();
        assert!(matches!(rejected.reason, RejectReason::Kernel(_)), "a regular file is never ready");
        let (key, _peer) = connect(&mut reactor, Interest::READ);
        let (ours, theirs) = socket::pair().unwrap();
        let rejected = reactor.core().insert(ours, Entry::default(), Interest::READ).unwrap_err();
        assert!(matches!(rejected.reason, RejectReason::Full));
        say(&rejected.descriptor, b"sorry");
        assert!(wait_readable(theirs.as_fd(), 0).unwrap(), "the descriptor is still open");
        reactor.core().remove(key).unwrap();
        assert!(reactor.core().insert(rejected.descriptor, rejected.entry, Interest::READ).is_ok());
    }

    #[test]
    fn interest_decides_what_is_told_and_an_unchanged_one_costs_no_system_call() {
        let mut reactor = reactor();
        let (key, peer) = connect(&mut reactor, Interest::WRITE);
        say(&peer, b"x");
        assert_eq!(poll(&mut reactor), 1);
        assert!(reactor.handler().ready[0].1.writable() && !reactor.handler().ready[0].1.readable());
        reactor.core().set_interest(key, Interest::NONE).unwrap();
        assert_eq!(poll(&mut reactor), 0);
        reactor.core().set_interest(key, Interest::SHARED_LISTENER).unwrap();
        assert_eq!(poll(&mut reactor), 1);
        reactor.core().set_interest(key, Interest::BOTH).unwrap();
        assert_eq!(poll(&mut reactor), 1);
        assert!(reactor.handler().ready[2].1.readable() && reactor.handler().ready[2].1.writable());
        // Behind the reactor's back: any system call about this watch now fails.
        let core = reactor.core();
        core.epoll.delete(core.descriptor(key).unwrap()).unwrap();
        assert!(core.set_interest(key, Interest::BOTH).is_ok());
        assert!(core.set_interest(key, Interest::READ).is_err());
    }

    /// The kernel shares no watch of an epoll instance.
    #[test]
    fn a_shared_watch_that_the_kernel_does_not_take_is_none_and_may_be_tried_again() {
        let mut reactor = reactor();
        let other = Epoll::new().unwrap().as_fd().try_clone_to_owned().unwrap();
        let core = reactor.core();
        let key = core.insert(other, Entry::default(), Interest::READ).unwrap();
        for _ in 0..2 {
            let refused = core.set_interest(key, Interest::SHARED_LISTENER).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(core.interest(key), Some(Interest::NONE));
        }
    }

    #[test]
    fn a_released_descriptor_is_silent_and_still_open() {
        let mut reactor = reactor();
        let (key, peer) = connect(&mut reactor, Interest::READ);
        say(&peer, b"x");
        let ours = reactor.core().release(key).unwrap().descriptor;
        assert_eq!(poll(&mut reactor), 0);
        assert!(reactor.core().release(key).is_none() && reactor.core().is_empty());
        let mut heard = Vec::with_capacity(4);
        assert_eq!(socket::receive(ours.as_fd(), &mut heard, 4).unwrap(), Some(1));
    }

    #[test]
    fn a_hangup_is_told_without_any_interest() {
        let mut reactor = reactor();
        let (key, peer) = connect(&mut reactor, Interest::NONE);
        assert_eq!(poll(&mut reactor), 0);
        drop(peer);
        assert_eq!(poll(&mut reactor), 1);
        let (told, readiness) = reactor.handler().ready[0];
        assert!(told == key && readiness.hangup());
    }
}

mod invariant_2_one_wake_per_burst {
    use super::*;

    #[test]
    fn a_parked_reactor_is_woken_once_and_an_awake_one_never() {
        let mut reactor = reactor();
        let handle = reactor.handle();
        let wakes = |handle: &Handle<Message>| handle.mailbox.waker().wakes();
        assert_eq!(poll(&mut reactor), 0);
        assert_eq!(wakes(&handle), 0);
        (0..100).for_each(|number| handle.post(Message::Number(number)).unwrap());
        handle.reserve().unwrap().post(Message::Number(100));
        assert_eq!(wakes(&handle), 1, "one wake for 101 messages");
        let awake = handle.clone();
        reactor.handler().on_message = Box::new(move |_, message| {
            if matches!(message, Message::Number(0)) {
                (1_000..1_010).for_each(|number| awake.post(Message::Number(number)).unwrap());
                assert_eq!(awake.mailbox.waker().wakes(), 0, "posted while the reactor was up");
            }
        });
        assert_eq!(reactor.turn(1_000, due_soon()).unwrap(), 101);
        assert_eq!(reactor.turn(1_000, due_soon()).unwrap(), 10, "found without a wake");
        assert_eq!(wakes(&handle), 0);
        let expected: Vec<u32> = (0..=100).chain(1_000..1_010).collect();
        assert_eq!(reactor.handler().messages, expected);
    }

    #[test]
    fn a_sleeping_reactor_hears_every_message_of_every_thread() {
        const THREADS: u32 = 3;
        const EACH: u32 = 2_000;
        let mut reactor = reactor();
        let handle = reactor.handle();
        let mut got = 0;
        reactor.handler().on_message = Box::new(move |core, _| {
            got += 1;
            if got == THREADS * EACH {
                core.stop();
            }
        });
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let handle = handle.clone();
                scope.spawn(move || {
                    for count in 0..EACH {
                        handle.post(Message::Number(thread << 16 | count)).unwrap();
                        if count % 64 == 0 {
                            // Lets the reactor fall asleep now and then.
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                });
            }
            reactor.run().unwrap();
        });
        let mut next = HashMap::new();
        for message in &reactor.handler().messages {
            let expected = next.entry(message >> 16).or_insert(0);
            assert_eq!(message & 0xffff, *expected, "each thread's messages come in its order");
            *expected += 1;
        }
    }

    #[test]
    fn a_nudge_ends_a_sleep_though_the_mailbox_is_full() {
        let mut reactor = reactor_with(Config { mailbox_max: 1, ..Config::default() });
        let handle = reactor.handle();
        let _permit = handle.reserve().unwrap();
        let nudger = std::thread::spawn(move || {
            handle.nudge();
            handle.nudge();
        });
        // Either both are found at once, or the second is what the second turn waits for.
        assert_eq!(reactor.turn(usize::MAX, Wait::Block).unwrap(), 1);
        nudger.join().unwrap();
        let after = poll(&mut reactor);
        assert_eq!((reactor.handler().nudges, reactor.handler().messages.len()), (1 + after, 0));
        let activity = reactor.handle().activity();
        assert_eq!(activity.messages, 1 + after as u64, "it counts as what it is in place of");
        assert!(activity.wakes <= activity.messages, "{activity:?}");
        assert!(after < 2);
    }

    #[test]
    fn a_stop_from_elsewhere_ends_a_sleep_and_run_can_be_called_again() {
        let mut reactor = reactor();
        for _ in 0..2 {
            let handle = reactor.handle();
            let stopper = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                handle.stop();
            });
            reactor.run().unwrap();
            stopper.join().unwrap();
        }
        assert!(reactor.handler().turns >= 2);
    }
}

mod invariant_3_responses_leave_in_request_order {
    use super::*;

    /// A hundred questions of one connection, answered by threads in whatever order they get to it: the
    /// peer reads the answers in the order of the questions.
    #[test]
    fn whatever_order_they_are_answered_in() {
        const QUESTIONS: u32 = 100;
        let mut reactor = reactor();
        let (key, peer) = connect(&mut reactor, Interest::NONE);
        let handle = reactor.handle();
        let mut by_thread: Vec<Vec<(Permit<Message>, Message)>> = (0..4).map(|_| Vec::new()).collect();
        for question in 0..QUESTIONS {
            let sequence = reactor.core().entry(key).unwrap().ordered.expect();
            let answer = Message::Answer(key, sequence, question);
            by_thread[question as usize % 4].push((handle.reserve().unwrap(), answer));
        }
        reactor.handler().on_message = Box::new(|core, message| {
            let Message::Answer(key, sequence, answer) = message else {
                panic!("nothing else is posted");
            };
            let (entry, socket) = core.entry_and_descriptor(key).unwrap();
            assert!(entry.ordered.complete(sequence, answer));
            while let Some(answer) = entry.ordered.pop() {
                assert_eq!(socket::send(socket, &[answer as u8]).unwrap(), Some(1));
            }
            if entry.ordered.pending() == 0 {
                core.stop();
            }
        });
        std::thread::scope(|scope| {
            for mut questions in by_thread {
                scope.spawn(move || {
                    // The last first: the worst order for a stash.
                    questions.reverse();
                    questions.into_iter().for_each(|(permit, answer)| permit.post(answer));
                });
            }
            reactor.run().unwrap();
        });
        let mut received = Vec::with_capacity(QUESTIONS as usize);
        socket::receive(peer.as_fd(), &mut received, usize::MAX).unwrap();
        assert_eq!(received, (0..QUESTIONS as u8).collect::<Vec<_>>());
    }
}

mod invariant_4_who_was_promised_room_is_never_refused {
    use super::*;

    #[test]
    fn a_permit_posts_into_a_full_mailbox_from_any_thread() {
        let mut reactor = reactor_with(Config { mailbox_max: 2, ..Config::default() });
        let handle = reactor.handle();
        let permit = handle.reserve().unwrap();
        handle.post(Message::Number(1)).unwrap();
        assert!(matches!(handle.post(Message::Number(2)), Err(Full(Message::Number(2)))));
        assert!(handle.reserve().is_none(), "the room is kept for the answer");
        std::thread::spawn(move || permit.post(Message::Number(3))).join().unwrap();
        assert!(handle.reserve().is_none(), "the answer itself lies there now");
        assert_eq!(poll(&mut reactor), 2);
        assert_eq!(reactor.handler().messages, [1, 3]);
        assert!(handle.reserve().is_some());
    }

    #[test]
    fn room_that_is_given_back_unused_is_there_for_others() {
        let reactor = reactor_with(Config { mailbox_max: 1, ..Config::default() });
        let handle = reactor.handle();
        let permit = handle.reserve().unwrap();
        let doomed = std::thread::spawn(move || {
            let _permit = permit;
            panic!("a handler's own fault");
        });
        assert!(doomed.join().is_err());
        assert!(handle.reserve().is_some());
    }
}

mod invariant_5_inline_only_when_nothing_else_waits {
    use super::*;

    #[test]
    fn alone_counts_descriptors_and_messages() {
        let mut reactor = reactor();
        let (_, first_peer) = connect(&mut reactor, Interest::READ);
        let (_, second_peer) = connect(&mut reactor, Interest::READ);
        let alone = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let noted = alone.clone();
        reactor.handler().on_ready = Box::new(move |core, _, _| noted.borrow_mut().push(core.alone()));
        let noted = alone.clone();
        reactor.handler().on_message = Box::new(move |core, _| noted.borrow_mut().push(core.alone()));
        let turn = |reactor: &mut Reactor<Probe>| {
            alone.borrow_mut().clear();
            reactor.turn(100, due_soon()).unwrap();
            alone.borrow().clone()
        };
        say(&first_peer, b"x");
        assert_eq!(turn(&mut reactor), [true]);
        say(&second_peer, b"x");
        assert_eq!(turn(&mut reactor), [false, true], "another ready descriptor remains");
        reactor.handle().post(Message::Number(1)).unwrap();
        assert_eq!(turn(&mut reactor), [false, false, true], "a message waits");
        reactor.core().ready_later(Message::Number(2));
        reactor.core().ready_later(Message::Number(3));
        assert_eq!(turn(&mut reactor), [false, false, false, true], "so does the ready queue");
        let readers: Vec<Key> = reactor.core().keys().collect();
        for key in readers {
            reactor.core().set_interest(key, Interest::NONE).unwrap();
        }
        reactor.handle().post(Message::Number(4)).unwrap();
        reactor.handle().post(Message::Number(5)).unwrap();
        assert_eq!(turn(&mut reactor), [false, true], "of two messages the last is alone");
        let noted = alone.clone();
        reactor.handler().on_nudge = Box::new(move |core| noted.borrow_mut().push(core.alone()));
        reactor.handle().nudge();
        assert_eq!(turn(&mut reactor), [true]);
        reactor.handle().nudge();
        reactor.handle().post(Message::Number(6)).unwrap();
        assert_eq!(turn(&mut reactor), [false, true], "a message waits behind a nudge");
    }

    #[test]
    fn messages_that_wait_for_the_next_turn_wait() {
        let mut reactor = reactor();
        let (_, peer) = connect(&mut reactor, Interest::READ);
        let alone = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let noted = alone.clone();
        reactor.handler().on_ready = Box::new(move |core, _, _| noted.borrow_mut().push(core.alone()));
        say(&peer, b"x");
        (0..300).for_each(|number| drop(reactor.handle().post(Message::Number(number))));
        // 256 of them have their turn, and the descriptor is ready in each.
        for heard in [256, 300, 300] {
            reactor.turn(256, due_soon()).unwrap();
            assert_eq!(reactor.handler().messages.len(), heard);
        }
        assert_eq!(*alone.borrow(), [false, false, true], "the rest of them comes after it");
    }

    #[test]
    fn an_entry_shares_the_reactor_with_what_was_served_lately() {
        let mut reactor = reactor();
        let (first, first_peer) = connect(&mut reactor, Interest::READ);
        let (second, _second_peer) = connect(&mut reactor, Interest::READ);
        let alone = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let noted = alone.clone();
        reactor.handler().on_ready = Box::new(move |core, key, _| {
            assert_eq!(key, first);
            let mut alone = noted.borrow_mut();
            alone.clear();
            // As of one moment, the beginning of the turn.
            alone.extend([first, first, second, second, first].map(|key| core.has_to_itself(key)));
        });
        for _ in 0..2 {
            // Longer than what was served counts as recent.
            std::thread::sleep(Duration::from_millis(2));
            say(&first_peer, b"x");
            reactor.turn(100, due_soon()).unwrap();
            assert_eq!(*alone.borrow(), [true, true, false, true, false]);
        }
    }

    #[test]
    fn an_entry_does_not_have_a_reactor_to_itself_behind_one_that_took_long() {
        let mut reactor = reactor();
        let (first, first_peer) = connect(&mut reactor, Interest::READ);
        let (_second, second_peer) = connect(&mut reactor, Interest::READ);
        let alone = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let noted = alone.clone();
        reactor.handler().on_ready = Box::new(move |core, key, _| {
            noted.borrow_mut().push(core.has_to_itself(key));
            core.set_interest(key, Interest::NONE).unwrap();
            if key == first {
                // Meanwhile the other comes, which waits for longer than what counts as recent.
                say(&second_peer, b"x");
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        say(&first_peer, b"x");
        reactor.turn(100, Wait::Block).unwrap();
        reactor.turn(100, Wait::Block).unwrap();
        assert_eq!(*alone.borrow(), [true, false]);
    }
}

mod invariant_6_an_idle_connection_owns_nothing_but_its_slot {
    use super::*;

    #[test]
    fn a_slot_is_48_bytes_beside_its_entry() {
        assert_eq!(slot_bytes::<()>(), 48);
        assert_eq!(slot_bytes::<[u64; 3]>(), 48 + 24);
        // As an HTTP connection's entry may be: a box that is there only while bytes are in flight.
        assert_eq!(slot_bytes::<(Option<Box<u8>>, u64, u32, u8, bool)>(), 48 + 24);
    }

    #[test]
    fn ten_thousand_idle_connections_cost_their_slots() {
        const CONNECTIONS: usize = 10_000;
        let (_, limit) = process::descriptors_max();
        process::raise_descriptors_max(limit).unwrap();
        let mut reactor = reactor_with(Config { spin: false, ..Config::default() });
        let (idle, _peer) = socket::pair().unwrap();
        let mut keys = Vec::new();
        for connection in 0..CONNECTIONS {
            let duplicate = socket::duplicate(idle.as_fd()).unwrap();
            let core = reactor.core();
            let key = core.insert(duplicate, Entry::default(), Interest::READ).unwrap();
            core.set_timer(key, 60_000 + connection as u32);
            core.subscribe(key, 1, connection as u64, || "topic");
            keys.push(key);
        }
        assert_eq!(reactor.core().subscribers_len(1), CONNECTIONS);
        let core = reactor.core();
        let bound = (CONNECTIONS + crate::chunks::CHUNK) * slot_bytes::<Entry>();
        assert!(core.slab_bytes() <= bound, "{} bytes of slab", core.slab_bytes());
        assert_eq!(core.buffers_idle(), 0);
        assert_eq!(poll(&mut reactor), 0);
        assert_eq!(reactor.core().keys().collect::<Vec<_>>(), keys);
        // Whatever the order.
        keys.iter().step_by(2).chain(keys.iter().skip(1).step_by(2)).for_each(|key| {
            reactor.core().remove(*key).unwrap();
        });
        assert_eq!((reactor.core().len(), reactor.core().topics_len()), (0, 0));
        assert!(reactor.core().slab_bytes() <= bound, "slots are used again");
    }

    #[test]
    fn buffers_go_back_to_the_pool() {
        let mut reactor = reactor();
        let core = reactor.core();
        let buffer = core.take_buffer();
        assert_eq!((buffer.len(), buffer.capacity()), (0, BufferConfig::default().buffer_bytes));
        core.give_buffer(buffer);
        assert_eq!(core.buffers_idle(), 1);
    }
}

mod invariant_7_a_short_adaptive_spin {
    use super::*;

    /// Work without a pause: never read, so it is ready whenever the reactor looks. Until it spins, where it
    /// will: a machine that has something else to do meanwhile makes pauses.
    fn keep_busy(reactor: &mut Reactor<Probe>, spins: bool) {
        let (_, peer) = connect(reactor, Interest::READ);
        say(&peer, b"x");
        (0..50).for_each(|_| assert_eq!(reactor.turn(10, due_soon()).unwrap(), 1));
        let began = Instant::now();
        while spins && !reactor.is_spinning() {
            assert!(began.elapsed() < PATIENCE, "it does not come");
            assert_eq!(reactor.turn(10, due_soon()).unwrap(), 1);
        }
        assert_eq!(reactor.is_spinning(), spins);
    }

    fn spins() -> bool {
        process::parallelism() > 1
    }

    #[test]
    fn it_comes_with_fast_work_and_goes_with_rest() {
        let mut reactor = reactor_with(Config::default());
        assert!(!reactor.is_spinning());
        keep_busy(&mut reactor, spins());
        let busy: Vec<Key> = reactor.core().keys().collect();
        busy.into_iter().for_each(|key| drop(reactor.core().remove(key)));
        for _ in 0..3 {
            let before = Instant::now();
            let until = before + Duration::from_millis(3);
            assert_eq!(reactor.turn(10, Wait::Until(until)).unwrap(), 0);
            assert!(Instant::now() >= until);
        }
        assert!(!reactor.is_spinning(), "nothing came for a while");
    }

    #[test]
    fn it_can_be_switched_off() {
        let mut reactor = reactor_with(Config { spin: false, ..Config::default() });
        keep_busy(&mut reactor, false);
    }

    #[test]
    fn messages_and_timers_end_it() {
        let mut reactor = reactor_with(Config::default());
        keep_busy(&mut reactor, spins());
        let busy: Vec<Key> = reactor.core().keys().collect();
        busy.into_iter().for_each(|key| drop(reactor.core().remove(key)));
        let (key, _peer) = connect(&mut reactor, Interest::NONE);
        let handle = reactor.handle();
        let thread = std::thread::spawn(move || {
            (0..500).for_each(|number| {
                handle.post(Message::Number(number)).unwrap();
                std::thread::sleep(Duration::from_micros(20));
            })
        });
        while reactor.handler().messages.len() < 500 {
            reactor.turn(100, due_soon()).unwrap();
        }
        thread.join().unwrap();
        reactor.core().set_timer(key, 1);
        while reactor.handler().timers.is_empty() {
            reactor.turn(100, due_soon()).unwrap();
        }
        assert_eq!(reactor.handler().messages, (0..500).collect::<Vec<_>>());
    }
}

mod invariant_8_nothing_holds_the_others_up {
    use super::*;

    #[test]
    fn a_flood_of_one_source_starves_no_other() {
        let mut reactor = reactor();
        let (flood, flood_peer) = connect(&mut reactor, Interest::READ);
        let (timed, _peer) = connect(&mut reactor, Interest::NONE);
        say(&flood_peer, b"x");
        // Each message makes another, each timer sets itself anew, the descriptor stays ready, and
        // another thread's messages come on top.
        reactor.handler().on_message = Box::new(|core, message| {
            if matches!(message, Message::Number(0)) {
                core.ready_later(Message::Number(0));
            }
        });
        reactor.handler().on_timer = Box::new(|core, key| core.set_timer(key, 0));
        reactor.core().ready_later(Message::Number(0));
        reactor.core().set_timer(timed, 0);
        let handle = reactor.handle();
        let began = Instant::now();
        let mut turns = 0;
        while reactor.handler().timers.len() < 5 {
            handle.post(Message::Number(1)).unwrap();
            let calls = reactor.turn(1, due_soon()).unwrap();
            assert!(calls <= 4, "a budget of one call per source, and {calls} calls");
            turns += 1;
            assert!(began.elapsed() < PATIENCE);
        }
        let handler = reactor.handler();
        let own = handler.messages.iter().filter(|number| **number == 0).count();
        assert_eq!((handler.turns, own, handler.messages.len()), (turns, turns, 2 * turns));
        // The first message woke the reactor, and that wake took the one place among the ready.
        let ready = handler.ready.iter().filter(|(key, _)| *key == flood).count();
        assert!(ready + 1 >= turns, "{ready} of {turns} turns");
    }

    #[test]
    fn a_stalled_reader_holds_only_itself_back() {
        let mut reactor = reactor();
        let (stalled, _stalled_peer) = connect(&mut reactor, Interest::BOTH);
        let (fluent, fluent_peer) = connect(&mut reactor, Interest::BOTH);
        reactor.handler().on_ready = Box::new(|core, key, readiness| {
            if readiness.writable() {
                // Until the kernel takes no more, then only on its word.
                while socket::send(core.descriptor(key).unwrap(), &[0; 4096]).unwrap().is_some() {}
            }
        });
        poll(&mut reactor);
        reactor.handler().ready.clear();
        let mut received = Vec::with_capacity(1 << 16);
        for _ in 0..200 {
            received.clear();
            socket::receive(fluent_peer.as_fd(), &mut received, usize::MAX).unwrap();
            poll(&mut reactor);
        }
        let (stalled, fluent) = (times_told(&mut reactor, stalled), times_told(&mut reactor, fluent));
        assert_eq!(stalled, 0, "a full socket is not reported");
        assert!(fluent > 5, "the other one went on, {fluent} times");
    }

    fn times_told(reactor: &mut Reactor<Probe>, key: Key) -> usize {
        reactor.handler().ready.iter().filter(|(told, _)| *told == key).count()
    }
}

mod invariant_9_it_can_be_embedded {
    use super::*;

    /// A foreign loop: turns only when poll(2) says that the descriptor is readable.
    fn drive(reactor: &mut Reactor<Probe>, mut done: impl FnMut(&mut Probe) -> bool) {
        let began = Instant::now();
        while !done(reactor.handler()) {
            assert!(began.elapsed() < PATIENCE, "the descriptor never became readable");
            if wait_readable(reactor.descriptor(), 1_000).unwrap() {
                reactor.turn(2, Wait::Poll).unwrap();
            }
        }
    }

    fn assert_quiet(reactor: &Reactor<Probe>) {
        assert!(!wait_readable(reactor.descriptor(), 0).unwrap(), "nothing to do, but readable");
    }

    #[test]
    fn messages_of_other_threads_make_it_readable() {
        let mut reactor = reactor();
        assert_quiet(&reactor);
        reactor.handle().post(Message::Number(0)).unwrap();
        assert!(wait_readable(reactor.descriptor(), 0).unwrap(), "even before the first turn");
        let handle = reactor.handle();
        let thread = std::thread::spawn(move || {
            for number in 1..1_000 {
                handle.post(Message::Number(number)).unwrap();
                if number % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        drive(&mut reactor, |handler| handler.messages.len() == 1_000);
        thread.join().unwrap();
        assert_eq!(reactor.handler().messages, (0..1_000).collect::<Vec<_>>());
        poll(&mut reactor);
        assert_quiet(&reactor);
    }

    #[test]
    fn descriptors_and_what_the_budget_left_over_make_it_readable() {
        let mut reactor = reactor();
        let peers: Vec<(Key, OwnedFd)> = (0..7).map(|_| connect(&mut reactor, Interest::READ)).collect();
        reactor.handler().on_ready = Box::new(|core, key, _| {
            let mut buffer = core.take_buffer();
            socket::receive(core.descriptor(key).unwrap(), &mut buffer, usize::MAX).unwrap();
            core.give_buffer(buffer);
            core.ready_later(Message::Number(key.slot));
        });
        assert_quiet(&reactor);
        peers.iter().for_each(|(_, peer)| say(peer, b"x"));
        drive(&mut reactor, |handler| handler.messages.len() == 7);
        poll(&mut reactor);
        assert_quiet(&reactor);
    }

    #[test]
    fn what_the_reactor_made_for_itself_and_a_stop_make_it_readable() {
        let mut reactor = reactor();
        reactor.handler().on_message = Box::new(|core, message| {
            if matches!(message, Message::Number(0)) {
                (1..10).for_each(|number| core.ready_later(Message::Number(number)));
            }
        });
        reactor.handle().post(Message::Number(0)).unwrap();
        drive(&mut reactor, |handler| handler.messages.len() == 10);
        poll(&mut reactor);
        assert_quiet(&reactor);
        reactor.handle().stop();
        assert!(wait_readable(reactor.descriptor(), 0).unwrap());
        poll(&mut reactor);
        assert!(reactor.core().is_stopping(), "the foreign loop learns of it");
    }

    #[test]
    fn timers_make_it_readable_never_early() {
        let mut reactor = reactor();
        let keys: Vec<(Key, OwnedFd)> = (0..20).map(|_| connect(&mut reactor, Interest::NONE)).collect();
        let mut set = HashMap::new();
        for ((key, _), after_ms) in keys.iter().zip((0_u32..20).map(|step| step * step % 61)) {
            reactor.core().set_timer(*key, after_ms);
            set.insert(*key, clock::monotonic_ns() - 50_000 + u64::from(after_ms) * 1_000_000);
        }
        poll(&mut reactor);
        drive(&mut reactor, |handler| handler.timers.len() == 20);
        for (key, came_ns) in &reactor.handler().timers {
            assert!(*came_ns >= set[key], "{} ns early", set[key] - came_ns);
        }
        poll(&mut reactor);
        assert_quiet(&reactor);
        // A timer that is cleared, or moved farther, leaves the loop alone.
        reactor.core().set_timer(keys[0].0, 5);
        reactor.core().set_timer(keys[1].0, 5);
        poll(&mut reactor);
        reactor.core().clear_timer(keys[0].0);
        reactor.core().set_timer(keys[1].0, 60_000);
        poll(&mut reactor);
        std::thread::sleep(Duration::from_millis(10));
        poll(&mut reactor);
        assert_quiet(&reactor);
        assert_eq!(reactor.handler().timers.len(), 20);
    }
}

mod timers {
    use super::*;

    #[test]
    fn a_timer_is_measured_from_the_call_that_sets_it() {
        let mut reactor = reactor();
        let (key, _peer) = connect(&mut reactor, Interest::NONE);
        let set_ns = std::rc::Rc::new(std::cell::Cell::new(0));
        let noted = set_ns.clone();
        reactor.handler().on_message = Box::new(move |core, _| {
            // The turn is old by now; its clock must not be what the timer is measured from.
            std::thread::sleep(Duration::from_millis(8));
            noted.set(clock::monotonic_ns());
            core.set_timer(key, 5);
        });
        reactor.core().ready_later(Message::Number(0));
        while reactor.handler().timers.is_empty() {
            reactor.turn(10, due_soon()).unwrap();
        }
        let elapsed_ns = reactor.handler().timers[0].1 - set_ns.get();
        assert!(elapsed_ns >= 5_000_000, "{elapsed_ns} ns");
    }

    #[test]
    fn a_connection_has_one_timer_and_it_dies_with_it() {
        let mut reactor = reactor();
        let (twice, _first) = connect(&mut reactor, Interest::NONE);
        let (removed, _second) = connect(&mut reactor, Interest::NONE);
        reactor.core().set_timer(twice, 1);
        reactor.core().set_timer(twice, 2);
        reactor.core().set_timer(removed, 1);
        reactor.core().remove(removed).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(poll(&mut reactor), 1);
        assert_eq!(reactor.handler().timers[0].0, twice);
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(poll(&mut reactor), 0);
    }

    #[test]
    fn timers_due_together_may_remove_each_others_connections() {
        let mut reactor = reactor();
        let keys: Vec<(Key, OwnedFd)> = (0..10).map(|_| connect(&mut reactor, Interest::NONE)).collect();
        keys.iter().for_each(|(key, _)| reactor.core().set_timer(*key, 1));
        let all: Vec<Key> = keys.iter().map(|(key, _)| *key).collect();
        reactor.handler().on_timer = Box::new(move |core, key| {
            all.iter().filter(|other| **other != key).for_each(|other| drop(core.remove(*other)));
        });
        std::thread::sleep(Duration::from_millis(4));
        assert_eq!(poll(&mut reactor), 1);
        assert_eq!(reactor.core().len(), 1);
    }
}

mod subscriptions {
    use super::*;

    #[test]
    fn the_first_and_the_last_of_a_topic_are_told() {
        let mut reactor = reactor();
        let (first, _first_peer) = connect(&mut reactor, Interest::NONE);
        let (second, _second_peer) = connect(&mut reactor, Interest::NONE);
        let core = reactor.core();
        assert!(core.subscribe(first, 7, 100, || "seven"));
        assert!(!core.subscribe(second, 7, 200, || unreachable!("the topic is known")));
        assert_eq!((core.topic(7), core.topic(8), core.topics_len()), (Some(&"seven"), None, 1));
        assert_eq!((core.offset(first), core.offset(second)), (Some(100), Some(200)));
        core.set_offset(first, 150);
        assert_eq!((core.offset(first), core.topic_of(first)), (Some(150), Some(7)));
        let mut walk = Vec::new();
        core.subscribers(7, &mut walk);
        assert_eq!(walk, [second, first]);
        assert_eq!(core.unsubscribe(first), Some(Unsubscribed { topic_id: 7, last: None }));
        assert_eq!((core.unsubscribe(first), core.offset(first), core.topic_of(first)), (None, None, None));
        let removed = core.remove(second).unwrap();
        assert_eq!(removed.last_topic, Some("seven"));
        assert_eq!((core.topics_len(), core.subscribers_len(7)), (0, 0));
        assert!(core.subscribe(first, 7, 0, || "again"));
        assert!(core.subscribe(first, 8, 0, || "eight"), "a new subscription ends the one before");
        assert_eq!((core.topic(7), core.topic_of(first)), (None, Some(8)));
    }

    #[test]
    fn a_walk_outlives_whatever_happens_on_the_way() {
        let mut reactor = reactor();
        let keys: Vec<(Key, OwnedFd)> = (0..6).map(|_| connect(&mut reactor, Interest::NONE)).collect();
        let core = reactor.core();
        for (key, _) in &keys {
            core.subscribe(*key, 1, 0, || "one");
        }
        let mut walk = Vec::new();
        core.subscribers(1, &mut walk);
        let mut served = Vec::new();
        for key in walk {
            if core.topic_of(key) != Some(1) {
                continue;
            }
            served.push(key);
            match served.len() {
                1 => {
                    // The next two go: one dies and its slot is taken by a stranger, one changes topics.
                    core.remove(keys[4].0).unwrap();
                    let (ours, _) = socket::pair().unwrap();
                    let stranger = core.insert(ours, Entry::default(), Interest::NONE).unwrap();
                    core.subscribe(stranger, 1, 0, || "one");
                    core.subscribe(keys[3].0, 2, 0, || "two");
                }
                2 => drop(core.remove(key)),
                _ => {}
            }
        }
        assert_eq!(served, [keys[5].0, keys[2].0, keys[1].0, keys[0].0]);
        assert_eq!(core.subscribers_len(1), 4);
    }
}

#[test]
fn random_words_and_clocks_are_of_use() {
    let mut reactor = reactor();
    let core = reactor.core();
    let words: std::collections::HashSet<u64> = (0..1_000).map(|_| core.entropy()).collect();
    assert_eq!(words.len(), 1_000);
    let before = (core.now_ms(), core.wall_us());
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!((reactor.core().now_ms(), reactor.core().wall_us()), before, "the turn's time stands still");
    poll(&mut reactor);
    assert!(reactor.core().now_ms() >= before.0 + 3);
    assert!(reactor.core().wall_us() >= before.1 + 3_000);
}
