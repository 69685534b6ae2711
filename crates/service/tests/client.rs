//! The client against a peer that is written out by hand: every step of the protocol, and every way to break
//! it.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod peer;

use peer::{Peer, Serving, Way, echo, options, serve};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_service::{CallId, CallOptions, Client, Error, EventKind};
use thalweg_wire::fault::{Fault, Retry};
use thalweg_wire::frame::{FrameKind, Header};

const WAYS: [Way; 3] = [Way::Plain, Way::Multiplexed, Way::Shared];

fn call(client: &mut Client, request: &[u8]) -> CallId {
    client.call(request, CallOptions::default()).unwrap()
}

/// Takes turns until something came; what, as text.
fn next(client: &mut Client) -> (CallId, String) {
    loop {
        if let Some(event) = client.next() {
            let text = String::from_utf8_lossy(event.frame).into_owned();
            return match event.kind {
                EventKind::Item => (event.call, format!("item {text}")),
                EventKind::End => (event.call, format!("end {text}")),
                EventKind::Failed(error) => (event.call, error.fault.word().to_owned()),
            };
        }
        client.turn(Wait::Block).unwrap();
    }
}

fn fault(outcome: Result<&[u8], Error>) -> Fault {
    outcome.unwrap_err().fault
}

#[test]
fn calls_are_answered_by_each_way() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        assert_eq!(client.is_shared(), way == Way::Shared);
        for length in [0, 1, 100, 4_096, 70_000, 3_000_000] {
            let request = vec![length as u8; length];
            let id = call(&mut client, &request);
            assert!(client.wait(id).unwrap() == request, "{way:?}, {length} bytes");
        }
        assert_eq!(client.in_flight(), 0);
    }
}

#[test]
fn many_calls_in_flight_are_all_answered_and_told_apart() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let calls: Vec<_> = (0..500_u32).map(|n| call(&mut client, &n.to_le_bytes())).collect();
        // The last first: what comes of the others meanwhile is kept.
        assert_eq!(client.wait(calls[499]).unwrap(), 499_u32.to_le_bytes());
        for (n, id) in calls.iter().enumerate().take(499) {
            assert_eq!(client.wait(*id).unwrap(), (n as u32).to_le_bytes());
        }
        let error = client.wait(calls[7]).unwrap_err();
        assert_eq!(error.fault, Fault::BadArgument, "an answer is taken once");
    }
}

#[test]
fn what_came_of_another_call_ends_no_turn_for_one() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let kept = call(&mut client, b"kept");
        let other = call(&mut client, b"other");
        assert_eq!(client.wait(other).unwrap(), b"other");
        let wanted = call(&mut client, b"wanted");
        // Each turn waits for something to arrive, of which there is little.
        let came = (0..100).any(|_| {
            client.turn_for(wanted, Wait::Block).unwrap();
            client.take(wanted).is_some_and(|event| event.frame == b"wanted")
        });
        assert!(came, "{way:?}: the turns did not wait");
        assert_eq!(client.wait(kept).unwrap(), b"kept");
    }
}

#[test]
fn a_turn_reads_on_while_what_came_of_another_call_is_not_taken() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let kept = call(&mut client, b"kept");
        let other = call(&mut client, b"other");
        assert_eq!(client.wait(other).unwrap(), b"other");
        let wanted = call(&mut client, b"wanted");
        let late = Instant::now() + Duration::from_secs(20);
        while client.take(wanted).is_none() {
            client.turn(Wait::Block).unwrap();
            assert!(Instant::now() < late, "{way:?}: nothing was read");
        }
        assert_eq!(client.wait(kept).unwrap(), b"kept");
    }
}

#[test]
fn a_flush_tells_a_foreign_loop_again_of_what_was_not_taken() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, |peer| {
            let (first, second) = (peer.request(), peer.request());
            peer.end(&first.header, b"first");
            peer.end(&second.header, b"second");
            peer.request();
        });
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let is_told = |client: &mut Client, wait_ms| {
            thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), wait_ms).unwrap()
        };
        client.descriptor().unwrap();
        let calls = [call(&mut client, b"first"), call(&mut client, b"second")];
        client.turn(Wait::Poll).unwrap();
        // The second is taken, by name, and the first left.
        while client.take(calls[1]).is_none() {
            assert!(is_told(&mut client, 60_000), "{way:?}");
            client.turn(Wait::Poll).unwrap();
        }
        client.turn(Wait::Poll).unwrap();
        client.flush().unwrap();
        assert!(is_told(&mut client, 60_000), "{way:?}");
        assert_eq!(client.take(calls[0]).unwrap().frame, b"first");
    }
}

#[test]
fn what_a_flush_could_not_write_leaves_by_the_loop_once_there_is_room() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        client.descriptor().unwrap();
        client.turn(Wait::Poll).unwrap();
        let request = vec![7; 12 << 20];
        let id = call(&mut client, &request);
        client.flush().unwrap();
        let answer = loop {
            let ready = thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap();
            assert!(ready, "{way:?}: it was not told of room");
            client.turn(Wait::Poll).unwrap();
            if let Some(event) = client.take(id) {
                break event.frame.len();
            }
        };
        assert_eq!(answer, request.len());
    }
}

/// A plain client with a stream of a thousand items, 64 MiB in all, and a call behind it.
fn behind_a_long_stream() -> (Serving, Client, CallId, CallId) {
    let (endpoint, peer) = serve(Way::Plain, |peer| {
        let (stream, answered) = (peer.request(), peer.request());
        let item = [&b"\x92\xa8TestItem\xc5\xff\xf0"[..], &[7; 65_520]].concat();
        (0..1_000).for_each(|_| peer.end(&stream.header, &item));
        peer.end(&stream.header, b"end");
        peer.end(&answered.header, b"answer");
        peer.request();
    });
    let mut client = Client::connect(&endpoint, options(Way::Plain)).unwrap();
    let (stream, second) = (call(&mut client, b"stream"), call(&mut client, b"second"));
    (peer, client, stream, second)
}

#[test]
fn a_wait_behind_a_plain_stream_without_an_end_keeps_a_bounded_part_of_it() {
    let (_peer, mut client, stream, second) = behind_a_long_stream();
    let error = client.wait(second).unwrap_err();
    assert_eq!(error.fault, Fault::Overrun, "{error}");
    assert_eq!(error.fault.retry(), Retry::Unknown, "its request left long ago");
    let mut items = 0;
    while matches!(client.wait_event(stream).unwrap().kind, EventKind::Item) {
        items += 1;
    }
    assert_eq!(items, 1_000);
    assert_eq!(client.wait(second).unwrap(), b"answer");
}

#[test]
fn turns_for_a_call_behind_a_plain_stream_keep_a_bounded_part_of_it() {
    let (_peer, mut client, stream, second) = behind_a_long_stream();
    let error = loop {
        assert!(client.take(second).is_none(), "all of the stream was kept");
        if let Err(error) = client.turn_for(second, Wait::Block) {
            break error;
        }
    };
    assert_eq!(error.fault, Fault::Overrun, "{error}");
    // The half of a turn that only looks reads no more either.
    assert_eq!(client.listen(Some(second)).unwrap_err().fault, Fault::Overrun);
    client.forget(stream);
    while client.take(second).is_none() {
        client.turn_for(second, Wait::Block).unwrap();
    }
}

#[test]
fn more_than_both_sides_hold_flows_both_ways_at_once() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let request = vec![7; 1 << 20];
        let calls: Vec<_> = (0..24).map(|_| call(&mut client, &request)).collect();
        for id in calls {
            assert!(client.wait(id).unwrap() == request);
        }
    }
}

#[test]
fn a_foreign_loop_hears_of_everything_by_one_descriptor() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        client.descriptor().unwrap();
        let mut answers = 0;
        for round in 0..50_usize {
            let requests = round % 7 + 1;
            for _ in 0..requests {
                call(&mut client, &vec![1; round * 3_000]);
            }
            let wanted = answers + requests;
            client.turn(Wait::Poll).unwrap();
            loop {
                while let Some(event) = client.next() {
                    assert!(matches!(event.kind, EventKind::End) && event.frame.len() == round * 3_000);
                    answers += 1;
                }
                if answers == wanted {
                    break;
                }
                let ready = thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap();
                assert!(ready, "nothing was heard of answer {answers} of {wanted}, {way:?}");
                client.turn(Wait::Poll).unwrap();
            }
        }
    }
}

#[test]
fn a_quiet_client_leaves_its_loop_alone() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        client.descriptor().unwrap();
        client.turn(Wait::Poll).unwrap();
        assert!(!thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 20).unwrap());
        assert_eq!(client.turn(Wait::Until(Instant::now() + Duration::from_millis(2))).unwrap(), 0);
    }
}

#[test]
fn a_request_leaves_whole_while_nothing_is_read() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        client.descriptor().unwrap();
        client.hold_back(true);
        let large = call(&mut client, &vec![1; 1 << 20]);
        client.turn(Wait::Poll).unwrap();
        while client.unsent_bytes() > 0 {
            let ready = thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 10_000).unwrap();
            assert!(ready, "{} bytes were left behind, {way:?}", client.unsent_bytes());
            client.turn(Wait::Poll).unwrap();
        }
        assert!(!thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 20).unwrap(), "{way:?}");
        client.hold_back(false);
        assert_eq!(client.wait(large).unwrap().len(), 1 << 20);
    }
}

#[test]
fn a_client_that_reads_nothing_leaves_its_loop_alone_when_its_server_is_gone() {
    for way in WAYS {
        let (endpoint, peer) = serve(way, |_| {});
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        client.descriptor().unwrap();
        client.hold_back(true);
        call(&mut client, &vec![1; 1 << 20]);
        peer.join();
        for _ in 0..3 {
            client.turn(Wait::Poll).unwrap();
        }
        while client.next().is_some() {}
        assert!(!thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 20).unwrap(), "{way:?}");
    }
}

#[test]
fn what_came_beside_a_wait_is_heard_of_by_the_loop() {
    for way in WAYS {
        // Two answers at once, and one that comes after the wait.
        let (endpoint, _peer) = serve(way, |peer| {
            let requests = [peer.request(), peer.request(), peer.request()];
            for request in &requests {
                peer.end(&request.header, &request.payload);
            }
            echo(peer);
        });
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        client.descriptor().unwrap();
        let calls = [b"a", b"b", b"c"].map(|request| call(&mut client, request));
        assert_eq!(client.wait(calls[1]).unwrap(), b"b");
        for expected in [(calls[0], "end a".to_owned()), (calls[2], "end c".to_owned())] {
            let ready = thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap();
            assert!(ready, "nothing was heard of {expected:?}, {way:?}");
            client.turn(Wait::Poll).unwrap();
            assert_eq!(next(&mut client), expected);
            client.turn(Wait::Until(Instant::now())).unwrap();
        }
        let (waited, later) = (call(&mut client, b"d"), call(&mut client, b"e"));
        client.wait(waited).unwrap();
        assert!(thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap());
        assert_eq!(next(&mut client), (later, "end e".into()));
    }
}

#[test]
fn a_cancel_that_ends_a_call_here_is_something_that_a_turn_brought() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, |peer| while peer.request().header.kind != FrameKind::Goodbye {});
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        client.descriptor().unwrap();
        // Of a plain call that has left nothing more is told to the server, as of one that has not left.
        let left = call(&mut client, b"left");
        client.turn(Wait::Poll).unwrap();
        let mut cancelled = vec![call(&mut client, b"unsent")];
        if way == Way::Plain {
            cancelled.push(left);
        }
        for call in cancelled {
            client.cancel(call);
            assert!(client.turn(Wait::Poll).unwrap() > 0, "{way:?}");
            assert_eq!(next(&mut client), (call, "cancelled".into()));
        }
        assert_eq!(client.turn(Wait::Poll).unwrap(), 0, "{way:?}");
    }
}

#[test]
fn a_deadline_ends_a_call_and_tells_the_server() {
    for way in [Way::Plain, Way::Multiplexed, Way::Shared] {
        let (tell, told) = std::sync::mpsc::channel();
        let (endpoint, peer) = serve(way, move |peer| {
            let first = peer.request();
            assert_eq!(first.header.deadline_ms, if peer.way == Way::Plain { 0 } else { 20 });
            let is_told_of = |peer: &mut Peer, call: &Header| {
                let told = peer.request().header;
                assert_eq!((told.kind, told.id), (FrameKind::Cancel, call.id));
            };
            if peer.way != Way::Plain {
                // The client waits for this, and does nothing else.
                is_told_of(peer, &first.header);
                tell.send(()).unwrap();
            }
            let second = peer.request();
            peer.end(&first.header, b"late");
            peer.end(&second.header, b"in time");
            let third = peer.request();
            if peer.way != Way::Plain {
                is_told_of(peer, &third.header);
            }
            while peer.request().header.kind != FrameKind::Goodbye {}
        });
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let limit = CallOptions { deadline: Some(Duration::from_millis(20)), ..CallOptions::default() };
        let id = client.call(b"slow", limit).unwrap();
        let error = client.wait(id).unwrap_err();
        assert_eq!((error.fault, error.retry()), (Fault::DeadlineExceeded, Retry::Unknown));
        if way != Way::Plain {
            told.recv().unwrap();
        }
        let id = call(&mut client, b"other");
        assert_eq!(client.wait(id).unwrap(), b"in time", "the late answer is nobody's");

        let id = client.call(b"slow", limit).unwrap();
        client.turn(Wait::Poll).unwrap();
        client.descriptor().unwrap();
        let ready = thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap();
        assert!(ready, "a deadline wakes a foreign loop");
        assert_eq!(next(&mut client), (id, "deadline_exceeded".into()));
        drop(client);
        peer.join();
    }
}

#[test]
fn streams_carry_items_credit_and_cancellation() {
    for way in [Way::Multiplexed, Way::Shared] {
        let (endpoint, peer) = serve(way, |peer| {
            let request = peer.request();
            assert_eq!(request.header.credit, 2);
            for item in [b"1", b"2"] {
                peer.send(Header::new(FrameKind::Item, request.header.id, 0), item);
            }
            let credit = peer.request().header;
            assert_eq!((credit.kind, credit.id, credit.credit), (FrameKind::Credit, request.header.id, 5));
            peer.send(Header::new(FrameKind::Item, request.header.id, 0), b"3");
            let cancel = peer.request().header;
            assert_eq!((cancel.kind, cancel.id), (FrameKind::Cancel, request.header.id));
            peer.fail(&request.header, Fault::Cancelled, "as you wish");
        });
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        assert_eq!(client.credit(), 64);
        let id = client.call(b"count", CallOptions { credit: Some(2), ..CallOptions::default() }).unwrap();
        assert_eq!(client.wait(id).unwrap(), b"1");
        assert_eq!(next(&mut client), (id, "item 2".into()));
        client.grant(id, 5);
        assert_eq!(next(&mut client), (id, "item 3".into()));
        client.cancel(id);
        let error = client.wait(id).unwrap_err();
        assert_eq!((error.fault, &*error.detail), (Fault::Cancelled, "as you wish"));
        peer.join();
    }
}

#[test]
fn a_credit_of_nothing_is_refused_and_nothing_is_sent() {
    let (endpoint, peer) = serve(Way::Multiplexed, |peer| {
        let request = peer.request();
        peer.end(&request.header, &request.payload);
    });
    let mut client = Client::connect(&endpoint, options(Way::Multiplexed)).unwrap();
    let error = client.call(b"count", CallOptions { credit: Some(0), ..CallOptions::default() }).unwrap_err();
    assert_eq!(error.fault, Fault::BadArgument, "{error}");
    assert_eq!((client.in_flight(), client.has_unsent()), (0, false));
    let call = client.call(b"next", CallOptions::default()).unwrap();
    assert_eq!(client.wait(call).unwrap(), b"next");
    peer.join();
}

#[test]
fn what_ends_with_the_connection_says_whether_it_was_sent() {
    // A large request is written when it is made, and so the first to find out.
    let third = [vec![1], vec![1; 8_192]];
    for (way, third) in WAYS.into_iter().flat_map(|way| third.each_ref().map(|third| (way, third))) {
        let (endpoint, peer) = serve(way, |peer| {
            let first = peer.request();
            peer.end(&first.header, b"answered");
            peer.request();
        });
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let answered = call(&mut client, b"a");
        let lost = call(&mut client, b"b");
        client.flush().unwrap();
        peer.join();
        let never = call(&mut client, third);
        assert_eq!(client.wait(answered).unwrap(), b"answered", "{way:?}");
        let error = client.wait(lost).unwrap_err();
        assert_eq!((error.fault, error.retry()), (Fault::Disconnected, Retry::Unknown), "{way:?}");
        let lost_words = error.to_string();
        // Whether its bytes left a socket is the kernel's secret, and shows in the fault; of a ring it can be
        // seen that nobody read them.
        let error = client.wait(never).unwrap_err();
        let is_not_sent = error.fault == Fault::NotSent;
        assert!(is_not_sent || way != Way::Shared && error.fault == Fault::Disconnected, "{way:?}: {error}");
        assert!(error.detail.contains(&endpoint.to_string()));
        let words = [lost_words, error.to_string()];
        assert!(words.iter().all(|words| !words.contains(": :") && !words.ends_with(": ")), "{words:?}");
        let error = client.call(b"d", CallOptions::default()).unwrap_err();
        assert_eq!(
            (error.fault, error.retry()),
            (Fault::NotSent, Retry::Safe),
            "nothing is made anew unasked"
        );
        assert!(error.detail.contains(&endpoint.to_string()));
        assert!(client.turn(Wait::Block).is_err(), "nothing could come");
    }
}

#[test]
fn a_connection_that_is_given_up_is_read_from_up_to_a_bound() {
    // A file stands for a server that has taken its leave and goes on writing: however often it is read,
    // there is more.
    let mut file = tempfile::tempfile().unwrap();
    let large_bytes = 15_u32 << 20;
    file.write_all(b"\x03\0\0\0one").unwrap();
    for _ in 0..6 {
        file.write_all(&large_bytes.to_le_bytes()).unwrap();
        let end = file.seek(SeekFrom::Current(large_bytes.into())).unwrap();
        file.set_len(end).unwrap();
    }
    file.rewind().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut client = Client::over_pipes(&file.into(), &writer.into(), options(Way::Plain)).unwrap();
    drop(reader);
    let small = call(&mut client, b"small");
    let large = [(); 6].map(|()| call(&mut client, b"large"));
    client.flush().unwrap();
    assert!(!client.is_connected());
    assert_eq!(next(&mut client), (small, "end one".to_owned()), "what had come counts");
    assert_eq!(
        fault(client.wait(large[5])),
        Fault::NotSent,
        "what exceeds the bound is not read from a connection that is lost"
    );
}

#[test]
fn a_large_request_that_left_in_part_was_not_sent() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, |peer| assert_eq!(peer.request().payload, b"first"));
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        // More than the kernel or the ring holds: a part leaves at once, and the rest never.
        let first = call(&mut client, b"first");
        client.flush().unwrap();
        let large = call(&mut client, &vec![1; 8 << 20]);
        assert_eq!(fault(client.wait(large)), Fault::NotSent, "{way:?}");
        assert_eq!(fault(client.wait(first)), Fault::Disconnected, "{way:?}");
    }
}

#[test]
fn a_goodbye_lets_what_began_end_and_takes_nothing_new() {
    for way in [Way::Multiplexed, Way::Shared] {
        let (endpoint, peer) = serve(way, |peer| {
            let request = peer.request();
            peer.send(Header::new(FrameKind::Goodbye, 0, 0), b"");
            peer.end(&request.header, b"still");
        });
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let id = call(&mut client, b"a");
        assert_eq!(client.wait(id).unwrap(), b"still");
        let error = client.call(b"b", CallOptions::default()).unwrap_err();
        assert!(matches!(error.fault, Fault::Draining), "{error}");
        assert_eq!(error.retry(), Retry::Safe);
        peer.join();
    }
}

#[test]
fn nonsense_from_a_server_is_told_and_ends_the_connection() {
    let nonsense: [&[u8]; 3] = [&[0xff; 24], b"HTTP/1.1 400 Bad Request\r\n", &[0; 24]];
    for bytes in nonsense {
        for way in [Way::Multiplexed, Way::Shared] {
            let (endpoint, _peer) = serve(way, move |peer| {
                peer.request();
                peer.raw(bytes);
                peer.request();
            });
            let mut client = Client::connect(&endpoint, options(way)).unwrap();
            let id = call(&mut client, b"a");
            assert_eq!(fault(client.wait(id)), Fault::BadFrame);
            assert!(!client.is_connected());
        }
    }
}
