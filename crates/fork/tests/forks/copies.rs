//! Forks: copies that go their own way, take nothing of their parent with them, and are not left behind.

use crate::control::*;
use crate::hand::Hand;
use std::cell::Cell;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;
use thalweg_fork::generated::types::*;
use thalweg_fork::{ERROR_TAG, Session};
use thalweg_service::{Endpoint, Server, ServerOptions, SyncClient};
use thalweg_sys::epoll::wait_readable;

pub(crate) fn a_fork_is_a_copy_that_goes_its_own_way() {
    let control = Control::start();
    let mut forks = control.forks();
    let first = control.first();
    let (sum, process) = add(&first, 5);
    assert_eq!(sum, 5);
    let (server, address, copy) = fork(&mut forks, "1");
    assert_eq!(add(&address, 10), (15, copy));
    assert_eq!(add(&first, 1), (6, process));
    let (_, second, grandchild) = fork(&mut forks, &server);
    assert_eq!(add(&second, 100), (115, grandchild));
    forks.shutdown(&ForksShutdown { server: (&*server).into() }).unwrap();
    assert!(!runs(copy), "a shutdown answers when the process is gone");
    assert_eq!(add(&second, 0), (115, grandchild), "a copy outlives what it was forked from");
    let servers = forks.servers(&ForksServers {}).unwrap().into_owned().servers;
    let told: Vec<_> = servers.iter().map(|of| (&*of.server, of.process, of.parent.as_deref())).collect();
    assert_eq!(told, [("1", process, None), ("3", grandchild, Some("2"))]);
    control.end();
    assert!(!runs(process) && !runs(grandchild));
}

pub(crate) fn a_copy_holds_nothing_of_its_parents() {
    let control = Control::start();
    let mut forks = control.forks();
    let (sum, process) = add(&control.first(), 0);
    assert_eq!(sum, 0);
    let mut connected = TcpStream::connect(control.first()).unwrap();
    let (_, address, copy) = fork(&mut forks, "1");
    assert_eq!(add(&address, 1).0, 1);
    forks.shutdown(&ForksShutdown { server: "1".into() }).unwrap();
    assert!(!runs(process));
    connected.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Were it open in the copy, nobody would hear of its end.
    let heard = connected.read(&mut [0; 1]).map_err(|error| error.kind());
    assert!(matches!(heard, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{heard:?}");
    assert!(TcpStream::connect(control.supervisor.address("2").unwrap()).is_ok());
    assert!(runs(copy));
    control.end();
}

pub(crate) fn what_goes_wrong_stays_in_the_parent() {
    let control = Control::start();
    let mut forks = control.forks();
    let word = |refused: String| refused.split(": ").nth(1).unwrap().to_owned();
    let taken = control.first();
    for (server, address, why) in
        [("1", &*taken, "bad_address"), ("1", "nowhere", "bad_address"), ("9", "127.0.0.1:0", "no_server")]
    {
        let asked = ForksFork { server: server.into(), address: Some(address.into()) };
        assert_eq!(word(forks.fork(&asked).unwrap_err().to_string()), why);
    }
    for _ in 0..3 {
        fork(&mut forks, "1");
    }
    let asked = ForksFork { server: "1".into(), address: None };
    assert_eq!(word(forks.fork(&asked).unwrap_err().to_string()), "servers_full");
    assert_eq!(add(&taken, 1).0, 1);
    control.end();
}

pub(crate) fn no_more_are_forked_at_once_than_there_are_places() {
    let control = Control::start();
    let gate = std::sync::Barrier::new(8);
    let outcomes: Vec<Result<u32, String>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut forks = control.forks();
                    gate.wait();
                    let asked = ForksFork { server: "1".into(), address: None };
                    let answer = forks.fork(&asked).map(|forked| forked.process);
                    answer.map_err(|refused| refused.to_string())
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let forked = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(forked, 3, "{outcomes:?}");
    for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(refused.contains("servers_full"), "{refused}");
    }
    // The places of who was refused were given back, and one that is left is free again.
    let mut forks = control.forks();
    forks.shutdown(&ForksShutdown { server: "2".into() }).unwrap();
    fork(&mut forks, "1");
    control.end();
}

/// Where its parent is by then, which a late answer says, too.
pub(crate) fn a_copy_listens_beside_its_parent_wherever_that_moved() {
    let control = Control::start_with(SHORT);
    let mut forks = control.forks();
    let beside = |address: &str, parent: &str| {
        let (host, _) = parent.rsplit_once(':').unwrap();
        assert!(address.starts_with(&format!("{host}:")), "{address} is not beside {parent}");
    };
    let moved = rebind(&control, "127.0.0.2:0").unwrap();
    let (copy, address, _) = fork(&mut forks, "1");
    beside(&address, &moved);
    let (_, of_copy, _) = fork(&mut forks, &copy);
    beside(&of_copy, &address);
    control.while_busy(&moved, || {
        let late = rebind(&control, "127.0.0.3:0").unwrap_err();
        assert!(late.contains("not_yet: "), "{late}");
    });
    let (_, address, _) = fork(&mut forks, "1");
    beside(&address, "127.0.0.3:0");
    control.end();
}

pub(crate) fn nothing_is_used_up_by_many_forks() {
    let control = Control::start();
    let mut forks = control.forks();
    let (_, process) = add(&control.first(), 1);
    let count = || (descriptors(std::process::id()), descriptors(process));
    let once = |forks: &mut Forks| {
        let (server, address, copy) = fork(forks, "1");
        assert_eq!(add(&address, 1), (2, copy));
        forks.shutdown(&ForksShutdown { server: server.into() }).unwrap();
        assert!(!runs(copy));
    };
    once(&mut forks);
    // The connections of clients that were closed here are noticed there a moment later.
    let calm = std::cell::Cell::new((0, 0));
    until("calm", || calm.replace(count()) == count());
    let before = calm.get();
    for _ in 0..40 {
        once(&mut forks);
    }
    until("as few descriptors as before", || count() <= before);
    assert_eq!(forks.servers(&ForksServers {}).unwrap().servers.len(), 1);
    control.end();
}

/// What a process takes: descriptors, kilobytes of stack, and of what else it writes to.
fn used(process: u32) -> (usize, u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    };
    (descriptors(process), of("VmStk:"), of("VmData:"))
}

pub(crate) fn nothing_is_used_up_by_many_generations() {
    let control = Control::start();
    let mut session = Session::new(control.call(), "1", &control.first());
    let generations = |session: &mut Session<SyncClient>, count: u32| {
        for _ in 0..count {
            session.snapshot().unwrap();
            session.commit().unwrap();
        }
        let process = add(session.address(), 1).1;
        move || used(process)
    };
    // Copies of one that was called have what calls take, whether they need it yet or not.
    generations(&mut session, 1)();
    let before = generations(&mut session, 20)();
    let now = generations(&mut session, 300);
    // The connection that was closed here is noticed there a moment later.
    until("as little as before", || {
        let after = now();
        after.0 <= before.0 && after.1 <= before.1 && after.2 <= before.2
    });
    assert_eq!(add(session.address(), 0).0, 3);
    control.end();
}

pub(crate) fn what_was_not_written_is_not_written_twice() {
    let talker = std::process::Command::new(std::env::current_exe().unwrap()).arg("talker").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&talker.stdout), "once");
}

pub(crate) fn a_server_that_comes_is_waited_for() {
    let control = Control::start_program("hesitant", Duration::from_secs(60));
    let forked = control.while_it_comes(|_gate| {
        control.crash("1");
        assert!(!control.supervisor.is_over(), "a copy is there");
    });
    assert_eq!(forked.as_deref(), Ok("2"));
    assert!(!control.supervisor.is_over());
    control.end();
}

pub(crate) fn a_server_that_never_comes_is_given_up() {
    let control = Control::start_program("hesitant", SHORT);
    let forked = control.while_it_comes(|gate| {
        control.crash("1");
        // As a caller does that waits for its end: the descriptor tells it when to check again.
        while !control.supervisor.is_over() {
            assert!(wait_readable(control.supervisor.descriptor(), 60_000).unwrap(), "nobody rang");
            control.supervisor.heard();
        }
        until("no process", || children() == 0);
        drop(gate);
    });
    assert!(forked.as_ref().is_err_and(|why| why.contains("not_forked: ")), "{forked:?}");
    control.end();
}

pub(crate) fn a_server_that_comes_while_all_are_ended_is_none() {
    let control = Control::start_program("hesitant", Duration::from_secs(60));
    fork(&mut control.forks(), "1");
    std::thread::scope(|scope| {
        let forked = control.while_it_comes(|_gate| {
            scope.spawn(|| control.supervisor.end());
            // It was told to end together with the other servers.
            until("ended", || control.servers().iter().all(|of| of.server != "2"));
        });
        assert!(forked.as_ref().is_err_and(|why| why.contains("not_forked: ")), "{forked:?}");
    });
    until("no process", || children() == 0);
    control.end();
}

pub(crate) fn a_copy_that_hangs_on_its_way_is_ended_with_the_servers() {
    let control = Control::start_program("hesitant", Duration::from_secs(60));
    let forked = control.while_it_comes(|gate| {
        control.supervisor.end_by_force();
        until("no process", || children() == 0);
        drop(gate);
    });
    assert!(forked.as_ref().is_err_and(|why| why.contains("not_forked: ")), "{forked:?}");
    control.end();
}

pub(crate) fn a_copy_that_nobody_waits_for_is_none() {
    let control = Control::start();
    let (mood, first) = (Cell::new(Mood::Well), control.first());
    let call = Lossy { call: control.call(), mood: &mood, now: Mood::Well };
    let mut session = Session::new(call, "1", &first);
    control.while_busy(&first, || {
        mood.set(Mood::Impatient);
        session.snapshot().unwrap_err();
        mood.set(Mood::Well);
    });
    // Made after the one before, which may have come then: that ends, which takes a moment.
    session.snapshot().unwrap();
    until("two processes", || children() == 2);
    assert_eq!(control.servers().len(), 2);
    session.rollback().unwrap();
    // One that came while somebody waited is the supervisor's, and nothing that the session would end.
    mood.set(Mood::Deaf);
    session.snapshot().unwrap_err();
    mood.set(Mood::Well);
    assert_eq!((session.server(), add(&first, 1).0, control.servers().len()), ("1", 1, 2));
    control.end();
}

/// Its answer was written, and even another call sent since: the answer and the cancel passed each other.
pub(crate) fn a_copy_that_is_given_up_behind_its_answer_ends() {
    let control = Control::start();
    for has_gone_on in [false, true] {
        let hand = Hand::over(&control);
        let (server, ..) = fork(&mut hand.forks(), "1");
        let call = hand.last();
        if has_gone_on {
            let asked = ForksRebind { server: "9".into(), address: "127.0.0.1:0".into() };
            hand.forks().rebind(&asked).unwrap_err();
        }
        hand.cancel(call);
        // Nobody asks for all servers: that would be somebody who knows of it.
        until("gone", || control.supervisor.address(&server).is_none());
    }
    until("one process", || children() == 1);
    control.end();
}

/// Somebody named it, or has read of it: the number is another call's by now.
pub(crate) fn a_copy_that_is_known_is_not_given_up() {
    let control = Control::start();
    let hand = Hand::over(&control);
    let moves =
        |server: &str| ForksRebind { server: server.to_owned().into(), address: "127.0.0.1:0".into() };
    let (named, ..) = fork(&mut hand.forks(), "1");
    let call = hand.last();
    hand.forks().rebind(&moves(&named)).unwrap();
    hand.cancel(call);
    let (listed, ..) = fork(&mut hand.forks(), "1");
    let call = hand.last();
    control.servers();
    hand.cancel(call);
    let (read, ..) = fork(&mut hand.forks(), "1");
    let call = hand.last();
    hand.again(call).rebind(&moves("9")).unwrap_err();
    hand.cancel(call);
    for server in [named, listed, read] {
        // This order would come behind one to end.
        hand.forks().rebind(&moves(&server)).unwrap();
    }
    control.end();
}

/// Where another client has the same number, and another call.
pub(crate) fn a_copy_is_not_given_up_at_another_endpoint() {
    let control = Control::start();
    let endpoint = Endpoint::Socket(control.gate.with_file_name("other.sock"));
    let options = ServerOptions { error_tag: ERROR_TAG.into(), ..ServerOptions::default() };
    let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
    let (stopper, handler) = (server.stopper(), control.supervisor.control());
    let serving = std::thread::spawn(move || server.serve(handler).unwrap());
    // Each is the first client that its server has.
    let (hand, other) = (Hand::over(&control), Hand::at(endpoint.path().unwrap()));
    let (copy, ..) = fork(&mut hand.forks(), "1");
    other.cancel(hand.last());
    // This order would come behind one to end.
    let asked = ForksRebind { server: copy.into(), address: "127.0.0.1:0".into() };
    other.forks().rebind(&asked).unwrap();
    stopper.stop();
    drop(other);
    serving.join().unwrap();
    control.end();
}

#[allow(clippy::zombie_processes, reason = "the supervisor waits for every child")]
pub(crate) fn a_copy_that_nobody_heard_of_ends() {
    let control = Control::start();
    let is_there = |server: &str| control.supervisor.address(server).is_some();
    let endpoint = control.gate.with_file_name("forks.sock");
    for (server, lies_unread_for) in [("2", Duration::ZERO), ("3", Duration::from_millis(100))] {
        let this = std::env::current_exe().unwrap();
        let mut client = std::process::Command::new(this).arg("ask").arg(&endpoint).spawn().unwrap();
        until("a copy", || is_there(server));
        std::thread::sleep(lies_unread_for);
        client.kill().unwrap();
        until("gone", || !is_there(server));
    }
    until("one process", || children() == 1);
    // Who has read its answer may go.
    let (server, address, process) = fork(&mut control.forks(), "1");
    assert_eq!((&*server, control.servers().len(), add(&address, 1)), ("4", 2, (1, process)));
    control.end();
}

pub(crate) fn a_copy_that_comes_late_is_none() {
    let control = Control::start_with(SHORT);
    let first = control.first();
    control.while_busy(&first, || {
        let asked = ForksFork { server: "1".into(), address: None };
        let refused = control.forks().fork(&asked).unwrap_err().to_string();
        assert!(refused.contains("not_forked: "), "{refused}");
    });
    let (_, address, copy) = fork(&mut control.forks(), "1");
    assert_eq!(add(&address, 1), (1, copy));
    assert_eq!(control.servers().len(), 2);
    // The first was made when the server came to it, with nobody at the other end of its line.
    until("two processes", || children() == 2);
    control.end();
}

/// Nobody is taken for a copy of himself, and ended by force as one that does not answer.
pub(crate) fn who_speaks_for_a_copy_is_none() {
    let control = Control::start_program("pretender", Duration::from_secs(60));
    let process = control.servers()[0].process;
    for _ in 0..2 {
        let mut forks = control.forks();
        let refused = forks.fork(&ForksFork { server: "1".into(), address: None }).unwrap_err().to_string();
        assert!(refused.contains(&format!("not_forked: process {process} is a server already")), "{refused}");
    }
    assert!(runs(process) && control.servers().len() == 1);
    control.end();
}
