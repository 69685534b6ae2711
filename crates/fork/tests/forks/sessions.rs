//! Sessions whose snapshots are forks.

use crate::control::*;
use std::cell::Cell;
use thalweg_fork::generated::types::*;
use thalweg_fork::{Cleanup, Session, SessionError};

pub(crate) fn what_may_have_been_committed_is_not_taken_back() {
    let control = Control::start();
    let mood = Cell::new(Mood::Well);
    let begin = |server: &str, address: &str| {
        let mut session =
            Session::new(Lossy { call: control.call(), mood: &mood, now: Mood::Well }, server, address);
        session.snapshot().unwrap();
        let copy = (session.server().to_owned(), session.address().to_owned());
        (session, copy)
    };
    // Committed, though nobody heard of it.
    let (mut session, (copy, address)) = begin("1", &control.first());
    mood.set(Mood::Deaf);
    session.commit().unwrap_err();
    mood.set(Mood::Well);
    drop(session);
    assert_eq!(control.servers().iter().map(|of| &*of.server).collect::<Vec<_>>(), [&*copy]);
    // Not committed yet, and nobody knows when.
    let (mut session, (again, second)) = begin(&copy, &address);
    control.while_busy(&address, || {
        mood.set(Mood::Impatient);
        session.commit().unwrap_err();
        mood.set(Mood::Well);
        let refused = session.rollback();
        assert!(matches!(&refused, Err(SessionError::Ending(server)) if *server == copy), "{refused:?}");
    });
    session.commit().unwrap();
    assert_eq!((session.server(), add(&second, 3).0, control.servers().len()), (&*again, 3, 1));
    // The other way round.
    session.snapshot().unwrap();
    mood.set(Mood::Deaf);
    session.rollback().unwrap_err();
    mood.set(Mood::Well);
    let refused = session.commit();
    assert!(matches!(refused, Err(SessionError::Ending(_))), "{refused:?}");
    session.rollback().unwrap();
    assert_eq!((session.server(), add(&second, 0).0, control.servers().len()), (&*again, 3, 1));
    control.end();
}

pub(crate) fn the_only_one_left_is_not_ended() {
    let control = Control::start();
    let mut session = Session::new(control.call(), "1", &control.first());
    session.snapshot().unwrap();
    let (copy, address) = (session.server().to_owned(), session.address().to_owned());
    add(&address, 5);
    control.crash("1");
    let refused = session.rollback();
    assert!(matches!(&refused, Err(SessionError::Gone(server)) if server == "1"), "{refused:?}");
    assert!(matches!(session.close(), Err(SessionError::Gone(_))));
    assert_eq!(add(&address, 0).0, 5);
    let mut session = Session::new(control.call(), &copy, &address);
    session.snapshot().unwrap();
    let second = session.server().to_owned();
    control.crash(&second);
    let refused = session.commit();
    assert!(matches!(&refused, Err(SessionError::Gone(server)) if *server == second), "{refused:?}");
    session.rollback().unwrap();
    assert_eq!((session.server(), add(&address, 0).0), (&*copy, 5));
    control.end();
}

pub(crate) fn a_session_keeps_or_takes_back() {
    let control = Control::start();
    let mut session = Session::new(control.call(), "1", &control.first());
    assert!(matches!(session.rollback(), Err(SessionError::NoSnapshot)));
    session.commit().unwrap();
    assert_eq!(add(session.address(), 1).0, 1);
    session.snapshot().unwrap();
    assert_eq!(add(session.address(), 10).0, 11);
    session.rollback().unwrap();
    assert_eq!((add(session.address(), 0).0, session.server()), (1, "1"));
    session.snapshot().unwrap();
    assert_eq!(add(session.address(), 100).0, 101);
    // One that is pending is committed first.
    session.snapshot().unwrap();
    assert_eq!(add(session.address(), 1000).0, 1101);
    session.rollback().unwrap();
    assert_eq!(add(session.address(), 0).0, 101);
    assert!(matches!(session.rollback(), Err(SessionError::NoSnapshot)));
    let servers = control.forks().servers(&ForksServers {}).unwrap().into_owned().servers;
    assert_eq!(servers.len(), 1, "{servers:?}");
    control.end();
}

pub(crate) fn a_session_that_is_let_go_of_leaves_what_its_cleanup_says() {
    let control = Control::start();
    let count = || control.servers().len();
    let begin = |cleanup| {
        let mut session = Session::new(control.call(), "1", &control.first()).with_cleanup(cleanup);
        session.snapshot().unwrap();
        add(session.address(), 5);
        session
    };
    // Taken back, however it is let go of, and told when it could not be.
    drop(begin(Cleanup::default()));
    assert_eq!((count(), add(&control.first(), 0).0), (1, 0));
    let died = std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let _session = begin(Cleanup::Rollback);
            // A panic that prints nothing, so that a report shows only the panics that were not meant.
            std::panic::resume_unwind(Box::new("its owner dies on purpose"));
        });
        owner.join().is_err()
    });
    assert_eq!((died, count(), add(&control.first(), 0).0), (true, 1, 0));
    begin(Cleanup::Rollback).close().unwrap();
    assert_eq!((count(), add(&control.first(), 0).0), (1, 0));
    // Nothing pending, nothing to be done.
    Session::new(control.call(), "1", &control.first()).close().unwrap();
    assert_eq!(count(), 1);
    // Left alone, and ended by another client.
    let session = begin(Cleanup::Nothing);
    let (copy, address) = (session.server().to_owned(), session.address().to_owned());
    drop(session);
    assert_eq!((count(), add(&address, 0).0, add(&control.first(), 0).0), (2, 5, 0));
    control.forks().shutdown(&ForksShutdown { server: copy.into() }).unwrap();
    // What was committed is what is left.
    let mut session = begin(Cleanup::Rollback);
    session.commit().unwrap();
    let (kept, address) = (session.server().to_owned(), session.address().to_owned());
    drop(session);
    assert_eq!((count(), add(&address, 0).0), (1, 5));
    // Both end: then there is nobody left.
    let mut session = Session::new(control.call(), &kept, &address).with_cleanup(Cleanup::Shutdown);
    session.snapshot().unwrap();
    let processes = [add(&address, 0).1, add(session.address(), 0).1];
    drop(session);
    until("both gone", || processes.iter().all(|process| !runs(*process)));
    control.end();
}
