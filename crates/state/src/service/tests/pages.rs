//! Pages of entries, differences, past states and forks: where they end, and what they are taken from.

use super::*;
use crate::generated::client::StateClient;
use thalweg_service::{ClientOptions, Endpoint, Server, ServerOptions, SyncClient};

#[test]
fn a_page_has_an_entry_at_least() {
    let service = served();
    let core = &service.core;
    for key in ["a", "b"] {
        end(core, begin(core, put("main", key), BUSY)).unwrap();
    }
    let scan = StateScan { place: "main".into(), start: None, limit: Some(0), view: None };
    let page = end(core, begin(core, StateRequest::Scan(scan), BUSY)).unwrap();
    let Answer::Entries { entries, next, .. } = page else { panic!("no page") };
    assert_eq!((entries.len(), next.as_deref()), (1, Some("b")));
}

#[test]
fn a_page_ends_before_an_entry_that_is_too_long_for_it() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let empty = state.fork(state.main(), now()).unwrap().0.to_string();
    let value = |bytes: usize| crate::Value::from(vec![b'x'; bytes]);
    let held = [("a", value(1_000)), ("b", value(15 << 20)), ("c", value(1_000)), ("d", value(1_000))];
    let changes = held.map(|(key, value)| crate::Change::Put(key.into(), value));
    let offset = state.write(state.main(), &changes.into_iter().collect(), now()).unwrap().next;
    let main = || "main".into();
    for (start, wanted, goes_on) in
        [(None, vec!["a"], Some("b")), (Some("b"), vec!["b"], Some("c")), (Some("c"), vec!["c", "d"], None)]
    {
        let start = || start.map(Into::into);
        let scan = StateScan { place: main(), start: start(), limit: None, view: None };
        let history = StateHistory { fork: main(), offset, start: start(), limit: None };
        for request in [StateRequest::Scan(scan), StateRequest::History(history)] {
            let page = end(core, begin(core, request, BUSY)).unwrap();
            let Answer::Entries { entries, next, .. } = page else { panic!("no page") };
            let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!((keys, next.as_deref()), (wanted.clone(), goes_on));
        }
        let diff = StateDiff {
            before: empty.clone().into(),
            now: main(),
            start: start(),
            limit: None,
            view: Some(View::Pending),
        };
        let (changes, next) = page_of(core, begin(core, StateRequest::Diff(diff), BUSY)).unwrap();
        let keys: Vec<_> = changes.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!((keys, next.as_deref()), (wanted, goes_on));
    }
}

#[test]
fn pages_of_long_ago_are_taken_from_what_the_first_was() {
    let service = served();
    let core = &service.core;
    for key in ["a", "b", "c"] {
        end(core, begin(core, put("main", key), BUSY)).unwrap();
    }
    let state = core.state().unwrap();
    let main = state.main();
    let offset = state.fork_infos(main, 1)[0].offset;
    let page = |start: Option<&str>| {
        let start = start.map(|start| start.to_owned().into());
        let history = StateHistory { fork: "main".into(), offset, start, limit: Some(1) };
        match end(core, begin(core, StateRequest::History(history), BUSY)).unwrap() {
            Answer::Entries { entries, next, .. } => (entries[0].0.clone(), next),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(page(None), ("a".into(), Some("b".into())));
    // In its place something that is told apart.
    let mut other = core.page_cache.recall(main, offset).expect("it is kept");
    other.apply(&[crate::Change::Put("bb".into(), b"1"[..].into())].into_iter().collect());
    core.page_cache.keep_recalled(main, offset, other);
    assert_eq!(page(Some("b")), ("b".into(), Some("bb".into())));
    assert_eq!(page(Some("c")), ("c".into(), None));
    assert!(core.page_cache.recall(main, offset).is_none(), "the last page was taken");
    // What is kept is nobody's to see once the fork is gone.
    let fork = state.fork(main, now()).unwrap().0;
    core.page_cache.keep_recalled(fork, offset, crate::Map::default());
    state.drop_fork(fork, now()).unwrap();
    let history = StateHistory { fork: fork.to_string().into(), offset, start: None, limit: None };
    assert_eq!(
        end(core, begin(core, StateRequest::History(history), BUSY)).unwrap_err(),
        RefusalCode::NoFork
    );
}

#[test]
fn pages_of_what_differs_are_taken_from_what_one_was() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0.to_string();
    for key in ["a", "b", "c", "d", "e"] {
        end(core, begin(core, put(&fork, key), BUSY)).unwrap();
    }
    let page = |start| differ(core, "main", &fork, start, None).unwrap();
    let keys = |page: (Vec<(String, bool)>, Option<String>)| {
        (page.0.into_iter().map(|(key, _)| key).collect::<String>(), page.1)
    };
    assert_eq!(keys(page(None)), ("ab".to_owned(), Some("c".to_owned())));
    assert_eq!(
        core.page_cache.counts(),
        (0, 0),
        "nothing is kept for a client that reads the first page alone"
    );
    assert_eq!(keys(page(Some("b"))), ("bc".to_owned(), Some("d".to_owned())));
    assert_eq!(core.page_cache.counts(), (1, 0));
    // What lies before what is kept is come to anew, and so is what has changed since.
    assert_eq!(keys(page(Some("a"))), ("ab".to_owned(), Some("c".to_owned())));
    end(core, begin(core, put(&fork, "cc"), BUSY)).unwrap();
    assert_eq!(keys(page(Some("c"))), ("ccc".to_owned(), Some("d".to_owned())));
    assert_eq!(keys(page(Some("d"))), ("de".to_owned(), None));
    assert_eq!(core.page_cache.counts(), (1, 0), "of what was there before the last change");
}

#[test]
fn a_session_is_compared_with_a_pending_fork() {
    let service = served();
    let core = &service.core;
    end(core, begin(core, put("main", "a"), BUSY)).unwrap();
    let (session, _) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    end(core, begin(core, put(&session, "b"), BUSY)).unwrap();
    end(core, begin(core, put("main", "c"), BUSY)).unwrap();
    let pending = Some(View::Pending);
    let changes = |before, now, view| differ(core, before, now, None, view).map(|page| page.0);
    let (b, c) = ("b".to_owned(), "c".to_owned());
    assert_eq!(changes("main", &session, pending), Ok(vec![(b.clone(), true), (c.clone(), false)]));
    assert_eq!(changes(&session, "main", pending), Ok(vec![(b, false), (c, true)]));
    assert_eq!(changes(&session, &session, None), Ok(Vec::new()));
    assert_eq!(changes(&session, &session, pending), Err(RefusalCode::BadView), "there is no fork to view");
}

#[test]
fn what_differs_is_as_of_when_it_was_asked_for() {
    let service = served();
    let core = &service.core;
    let (session, token) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    end(core, begin(core, put(&session, "a"), BUSY)).unwrap();
    let ask = || begin(core, diff(&session, "main", None, None), BUSY);
    let first = arrive(core, ask());
    end(core, begin(core, put(&session, "b"), BUSY)).unwrap();
    let second = arrive(core, ask());
    // While the session has something else to do it is in line.
    let held = core.turn(Key::Session(token.name), Access::Write).unwrap();
    let third = arrive(core, ask());
    end(core, begin(core, put("main", "c"), BUSY)).unwrap();
    drop(held);
    let third = arrive(core, third);
    end(core, begin(core, close(&session), BUSY)).unwrap();
    let keys = |outcome| page_of(core, outcome).unwrap().0;
    assert_eq!(keys(first), [("a".to_owned(), false)]);
    for outcome in [second, third] {
        assert_eq!(keys(outcome), [("a".to_owned(), false), ("b".to_owned(), false)]);
    }
}

/// As clients ask for it, with threads that go on with what waits.
#[test]
fn what_differs_waits_for_both_places() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Socket(directory.path().join("state.sock"));
    let options =
        ServerOptions { schema: crate::SCHEMA_HASH, error_tag: ERROR_TAG.into(), ..Default::default() };
    let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
    let (stopper, service) = (server.stopper(), served());
    let handler = service.clone();
    let serving = std::thread::spawn(move || server.serve(handler).unwrap());
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0;
    let ask = |before: &str, now: &str| {
        let options = ClientOptions { schema: crate::SCHEMA_HASH, ..ClientOptions::default() };
        let mut client = StateClient::new(SyncClient::connect(&endpoint, options).unwrap());
        let diff = StateDiff {
            before: before.into(),
            now: now.into(),
            start: None,
            limit: None,
            view: Some(View::Pending),
        };
        client.diff(&diff).map(|page| page.changes.len()).map_err(|refused| refused.to_string())
    };
    let of_fork = fork.to_string();
    let changes = std::iter::once(crate::Change::Put("a".into(), b"1"[..].into())).collect();
    state.write(fork, &changes, now()).unwrap();
    for kept in [vec![state.main()], vec![fork], vec![fork, state.main()]] {
        let held: Vec<_> =
            kept.iter().map(|fork| core.turn(Key::Fork(*fork), Access::Write).unwrap()).collect();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask("main", &of_fork));
            let waits = || core.turns.in_flight() == kept.len() + 2;
            until(waits, || "it is not in line for both".to_owned());
            drop(held);
            assert_eq!(asked.join().unwrap(), Ok(1));
        });
    }
    assert!(ask("main", "77").unwrap_err().contains("no_fork"));
    stopper.stop();
    serving.join().unwrap();
}

#[test]
fn a_long_list_of_forks_is_made_elsewhere() {
    let service = served();
    let core = &service.core;
    let list = |limit| begin(core, StateRequest::Forks(StateForks { start: None, limit }), BUSY);
    assert!(matches!(list(None), Outcome::Done(..)));
    for _ in 0..BUSY {
        let fork = StateFork { parent: "main".into(), offset: None };
        end(core, begin(core, StateRequest::Fork(fork), BUSY)).unwrap();
    }
    let outcome = list(None);
    assert!(matches!(outcome, Outcome::Elsewhere { .. }));
    assert!(matches!(end(core, outcome).unwrap(), Answer::Frame(_)));
    assert!(matches!(list(Some(10)), Outcome::Done(..)), "a short page of it is not");
}

/// A page of the list of forks: their names, and where it goes on.
fn fork_page(
    core: &Arc<Core>,
    start: Option<&str>,
    limit: Option<u32>,
) -> Result<(Vec<String>, Option<String>), RefusalCode> {
    let start = start.map(|start| start.to_owned().into());
    let answer = end(core, begin(core, StateRequest::Forks(StateForks { start, limit }), BUSY))?;
    let Answer::Frame(frame) = answer else { panic!("{answer:?}") };
    let StateResponse::ForksResponse(page) = StateResponse::decode(&frame).unwrap() else {
        panic!("no page")
    };
    let names = page.forks.iter().map(|info| info.fork.to_string()).collect();
    Ok((names, page.next.map(|next| next.into_owned())))
}

#[test]
fn a_list_of_forks_comes_in_pages() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let made: Vec<_> = (0..1_000).map(|_| state.fork(state.main(), now()).unwrap().0).collect();
    let names: Vec<_> = made.iter().map(ToString::to_string).collect();
    let (first, next) = fork_page(core, None, None).unwrap();
    assert_eq!((first.len(), &*first[0], next.as_ref()), (1_000, "main", names.last()), "1,000 at most");
    assert_eq!(fork_page(core, None, Some(10_000)).unwrap().0.len(), 1_001);
    let (mut listed, mut start) = (Vec::new(), None);
    loop {
        let (page, next) = fork_page(core, start.as_deref(), Some(7)).unwrap();
        assert!(page.len() == 7 || next.is_none());
        listed.extend(page);
        start = next;
        if start.is_none() {
            break;
        }
    }
    assert!(listed.iter().eq(std::iter::once(&"main".to_owned()).chain(&names)));
    // What was dropped meanwhile is passed over; a page has one fork at least.
    state.drop_fork(made[2], now()).unwrap();
    let page = fork_page(core, Some(&names[2]), Some(0)).unwrap();
    assert_eq!(page, (vec![names[3].clone()], Some(names[4].clone())));
    assert_eq!(fork_page(core, Some("1000000"), None).unwrap(), (Vec::new(), None));
    let (session, _) = session(core, 30_000);
    for start in [&*session, "first", ""] {
        assert_eq!(fork_page(core, Some(start), None).unwrap_err(), RefusalCode::BadPlace, "{start}");
    }
}
