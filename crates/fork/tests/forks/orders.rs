//! Orders that move servers, that come late, or that cannot be carried out.

use crate::control::*;
use crate::programs::{HELD, reached};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use thalweg_fork::First;
use thalweg_fork::generated::types::*;
use thalweg_rpc::{Client, ClientOptions};

pub(crate) fn a_server_moves() {
    let handed_over = TcpListener::bind("127.0.0.1:0").unwrap();
    for first in [anywhere(), First::On(handed_over.into())] {
        let control = Control::start_at(first, "sum", Duration::from_secs(60));
        let mut forks = control.forks();
        let before = control.first();
        let (_, process) = add(&before, 7);
        let moved = forks.rebind(&ForksRebind { server: "1".into(), address: "127.0.0.1:0".into() }).unwrap();
        assert_eq!(add(&moved.address, 1), (8, process));
        assert_eq!(control.first(), moved.address);
        assert!(TcpStream::connect(&*before).is_err(), "it still listens where it did");
        // What it left is free for it to come back to.
        let back =
            forks.rebind(&ForksRebind { server: "1".into(), address: before.as_str().into() }).unwrap();
        assert_eq!(back.address, before);
        forks.shutdown(&ForksShutdown { server: "1".into() }).unwrap();
        assert!(TcpStream::connect(&*before).is_err(), "nobody is there");
        control.end();
    }
}

pub(crate) fn a_call_to_a_servers_former_address_is_answered() {
    let control = Control::start();
    let before = control.first();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| add(&before, HELD));
        until("held", || reached(&control.gate).exists());
        let moved = rebind(&control, "127.0.0.1:0").unwrap();
        assert!(TcpStream::connect(&*before).is_err(), "it still listens where it did");
        let (sum, process) = add(&moved, 7);
        assert_eq!((sum, held.join().unwrap()), (7, (7, process)));
        // Nothing is left of where it was.
        let count = descriptors(process);
        rebind(&control, "127.0.0.1:0").unwrap();
        until("as few descriptors as before", || descriptors(process) <= count);
    });
    control.end();
}

pub(crate) fn an_answer_that_comes_late_is_the_answer_to_no_other_order() {
    let control = Control::start_with(SHORT);
    let first = control.first();
    control.while_busy(&first, || {
        let late = rebind(&control, "127.0.0.2:0").unwrap_err();
        assert!(late.contains("not_yet: "), "{late}");
        assert_eq!(control.first(), first, "it has not moved");
        let refused = rebind(&control, "127.0.0.3:0").unwrap_err();
        assert!(refused.contains("not_moved: "), "{refused}");
    });
    // Nobody asks, and yet it is known.
    until("moved", || control.first().starts_with("127.0.0.2:"));
    let moved = control.first();
    assert_eq!(add(&moved, 1).0, 1);
    assert!(TcpStream::connect(&*first).is_err(), "it still listens where it did");
    control.while_busy(&moved, || {
        let late = rebind(&control, "127.0.0.4:0");
        assert!(late.is_err(), "{late:?}: the answer to the first order");
    });
    // This one waits for the late answer, and then for its own.
    let moved = rebind(&control, "127.0.0.5:0").unwrap();
    assert_eq!((add(&moved, 1).0, control.first()), (2, moved));
    control.end();
}

/// It answers nothing, whatever it is told.
pub(crate) fn a_server_that_hangs_is_ended_in_the_time_of_one_order() {
    let control = Control::start_with(SHORT);
    let mut busy =
        Client::new(&format!("http://{}/rpc/sum", control.first()), ClientOptions::default()).unwrap();
    std::fs::write(&control.gate, "").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || busy.call("Add", "[0]").unwrap_err().to_string());
        let _gate = Gate(&control.gate);
        until("busy", || reached(&control.gate).exists());
        let begun = Instant::now();
        for _ in 0..8 {
            scope.spawn(|| rebind(&control, "127.0.0.2:0").unwrap_err());
        }
        control.forks().shutdown(&ForksShutdown { server: "1".into() }).unwrap();
        assert!(begun.elapsed() < SHORT * 3, "it waited for every order before it");
    });
    control.end();
}

pub(crate) fn a_server_that_is_out_of_descriptors_refuses_and_goes_on() {
    for (program, has_room) in [("crowded", false), ("crowded but for one", true)] {
        let control = Control::start_program(program, Duration::from_secs(60));
        let process = control.servers()[0].process;
        let why = if has_room { "not_forked: fork: " } else { "not_forked: fork: out of descriptors" };
        for _ in 0..2 {
            let mut forks = control.forks();
            let refused =
                forks.fork(&ForksFork { server: "1".into(), address: None }).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        if !has_room {
            let refused = rebind(&control, "127.0.0.2:0").unwrap_err();
            assert!(refused.contains("not_moved: listen: out of descriptors"), "{refused}");
        }
        assert!(runs(process) && control.servers().len() == 1);
        control.end();
    }
}
