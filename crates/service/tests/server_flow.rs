//! Streams with credit, and what is said behind requests that wait.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Bell, Peer, Received, Running, end, eventually, keeping, options};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::Waker;
use std::time::{Duration, Instant};
use thalweg_service::{CallOptions, Client, ClientOptions, EventKind, Reply, Request, ServerOptions, Wait};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, Header};
use thalweg_wire::service::Flow;

/// Sends numbers as long as it may, waiting when it is told to; how many there were room for.
fn count(reply: &mut Reply, total: u32) -> u32 {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    for number in 0..total {
        match reply.item(&number.to_le_bytes()) {
            Flow::Go => {}
            Flow::Wait => {
                reply.changed(&waker);
                bell.wait();
                if reply.is_cancelled() {
                    return number + 1;
                }
            }
            Flow::Gone => return number,
        }
    }
    total
}

/// A server whose every call is a stream of as many numbers as it asks for, made on a thread of its own or
/// here.
fn counting(options: ServerOptions) -> Running {
    Running::with(options, "test.sock", |request: Request<'_>, mut reply: Reply| {
        let total = u32::from_le_bytes(request.frame[1..5].try_into().unwrap());
        match request.frame[0] {
            b't' => {
                std::thread::spawn(move || {
                    let sent = count(&mut reply, total);
                    reply.end(&sent.to_le_bytes());
                });
            }
            // The items that credit allows while the handler is called, and the rest from another thread.
            _ => {
                let mut number = 0_u32;
                while number < total && reply.item(&number.to_le_bytes()) == Flow::Go {
                    number += 1;
                }
                std::thread::spawn(move || {
                    let waker = Waker::from(Arc::new(Bell::default()));
                    reply.changed(&waker);
                    reply.end(&number.to_le_bytes());
                });
            }
        }
    })
}

fn ask(how: u8, total: u32) -> Vec<u8> {
    [&[how][..], &total.to_le_bytes()].concat()
}

fn item(id: u64, number: u32) -> Received {
    Received { kind: FrameKind::Item, id, fault: None, payload: number.to_le_bytes().to_vec() }
}

/// Nothing has come: asked by a call that is answered behind whatever would have.
fn quiet(peer: &mut Peer, id: u64) {
    peer.call(id, &ask(b't', 0));
    assert_eq!(peer.receive(), end(id, &0_u32.to_le_bytes()), "something came without credit");
}

#[test]
fn a_stream_sends_what_it_has_credit_for_and_goes_on_when_there_is_more() {
    let server = counting(ServerOptions { stream_credit: 4, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(1, &ask(b't', 10));
    (0..4).for_each(|number| assert_eq!(peer.receive(), item(1, number)));
    quiet(&mut peer, 2);
    peer.grant(1, 3);
    (4..7).for_each(|number| assert_eq!(peer.receive(), item(1, number)));
    quiet(&mut peer, 3);
    peer.grant(1, 100);
    (7..10).for_each(|number| assert_eq!(peer.receive(), item(1, number)));
    assert_eq!(peer.receive(), end(1, &10_u32.to_le_bytes()));
    peer.grant(1, 1);
    quiet(&mut peer, 4);
}

#[test]
fn items_sent_while_the_handler_is_called_cost_credit_too() {
    let server = counting(ServerOptions { stream_credit: 4, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(1, &ask(b'h', 10));
    (0..4).for_each(|number| assert_eq!(peer.receive(), item(1, number)));
    assert_eq!(peer.receive(), end(1, &3_u32.to_le_bytes()));
}

#[test]
fn items_keep_their_order_however_credit_comes() {
    let server = counting(ServerOptions { stream_credit: 4, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    const TOTAL: u32 = 20_000;
    for id in 0..3 {
        peer.call(id, &ask(b't', TOTAL));
    }
    let mut next = [0_u32; 3];
    let mut ended = 0;
    while ended < 3 {
        let came = peer.receive();
        let at = &mut next[came.id as usize];
        if came.kind == FrameKind::End {
            assert_eq!(came, end(came.id, &TOTAL.to_le_bytes()));
            assert_eq!(*at, TOTAL);
            ended += 1;
        } else {
            assert_eq!(came, item(came.id, *at));
            *at += 1;
            // Now one, now several, so that some meet a producer that waits and some do not.
            if at.is_multiple_of(3) {
                peer.grant(came.id, 3);
            }
        }
    }
}

#[test]
fn a_producer_that_ignores_its_credit_is_ended() {
    let server = Running::with(
        ServerOptions { stream_credit: 2, ..options() },
        "test.sock",
        |_: Request<'_>, mut reply: Reply| {
            while reply.item(b"more") != Flow::Gone {}
            reply.end(b"never sent");
        },
    );
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(1, b"");
    for _ in 0..2 {
        assert_eq!(peer.receive().payload, b"more");
    }
    let came = peer.receive();
    assert_eq!((came.kind, came.fault), (FrameKind::End, Some(Fault::Overrun)));
    assert_eq!(server.stop().in_flight, 0);
}

#[test]
fn what_is_held_back_for_want_of_credit_leaves_before_the_end() {
    let server = Running::with(
        ServerOptions { stream_credit: 1, ..options() },
        "test.sock",
        |request: Request<'_>, mut reply: Reply| {
            for number in 0..5_u32 {
                let _ = reply.item(&number.to_le_bytes());
            }
            match request.frame {
                b"in place" => reply.end_with(|response| response.extend_from_slice(b"done")),
                _ => reply.end(b"done"),
            }
        },
    );
    let mut peer = Peer::multiplexed(&server.path);
    for how in [&b"by copy"[..], b"in place"] {
        peer.call(1, how);
        assert_eq!(peer.receive(), item(1, 0));
        peer.grant(1, 2);
        assert_eq!(peer.receive(), item(1, 1));
        assert_eq!(peer.receive(), item(1, 2));
        peer.grant(1, 9);
        assert_eq!(peer.receive(), item(1, 3));
        assert_eq!(peer.receive(), item(1, 4));
        assert_eq!(peer.receive(), end(1, b"done"));
    }
    assert_eq!(server.stop().in_flight, 0);
}

#[test]
fn nothing_overtakes_what_another_thread_sent_of_the_same_call() {
    let server = Running::new(|_: Request<'_>, mut reply: Reply| {
        let _ = reply.item(&0_u32.to_le_bytes());
        let lent = &mut reply;
        std::thread::scope(|scope| {
            scope.spawn(move || lent.item(&1_u32.to_le_bytes()));
        });
        let _ = reply.item(&2_u32.to_le_bytes());
        reply.end(b"done");
    });
    let mut peer = Peer::multiplexed(&server.path);
    for id in 0..20 {
        peer.call(id, b"");
        (0..3).for_each(|number| assert_eq!(peer.receive(), item(id, number)));
        assert_eq!(peer.receive(), end(id, b"done"));
    }
}

#[test]
fn a_plain_stream_flows_as_its_socket_takes_it_each_in_its_turn() {
    let server = counting(ServerOptions { stream_credit: 2, unsent_bytes_max: 4_096, ..options() });
    let mut peer = Peer::plain(&server.path);
    const TOTAL: u32 = 50_000;
    for _ in 0..3 {
        peer.send_plain(&ask(b't', TOTAL));
    }
    for _ in 0..3 {
        for number in 0..TOTAL {
            assert_eq!(peer.receive_plain(), number.to_le_bytes());
        }
        assert_eq!(peer.receive_plain(), TOTAL.to_le_bytes());
    }
}

#[test]
fn what_a_plain_stream_held_back_waits_for_its_turn() {
    let (server, kept) = keeping(ServerOptions { unsent_bytes_max: 64 << 10, ..options() });
    let mut peer = Peer::plain(&server.path);
    (0..2).for_each(|_| peer.send_plain(b"keep"));
    let [mut first, mut second] = [kept.recv().unwrap(), kept.recv().unwrap()];
    let large = vec![7; 4 << 20];
    assert_eq!(first.item(&large), Flow::Go);
    eventually(|| second.flow() == Flow::Wait);
    assert_eq!(second.item(b"early"), Flow::Wait);
    assert_eq!(peer.receive_plain(), large);
    eventually(|| [first.flow(), second.flow()] == [Flow::Go, Flow::Go]);
    assert_eq!(first.item(b"another"), Flow::Go);
    first.end(b"first");
    second.end(b"second");
    for expected in [&b"another"[..], b"first", b"early", b"second"] {
        assert_eq!(peer.receive_plain(), expected);
    }
}

#[test]
fn streams_that_wait_for_their_turn_hold_no_more_than_they_may() {
    let (server, kept) = keeping(ServerOptions { unsent_bytes_max: 64 << 10, ..options() });
    let mut peer = Peer::plain(&server.path);
    (0..2).for_each(|_| peer.send_plain(b"keep"));
    let [mut first, mut second] = [kept.recv().unwrap(), kept.recv().unwrap()];
    let piece = vec![7; 40 << 10];
    assert_eq!([second.item(&piece), second.item(&piece)], [Flow::Go; 2]);
    eventually(|| second.flow() == Flow::Wait);
    // The one before them goes on, however much that is.
    assert_eq!(first.item(b"first"), Flow::Go);
    assert_eq!(peer.receive_plain(), b"first");
    assert_eq!(first.flow(), Flow::Go);
    first.end(b"end");
    assert_eq!(peer.receive_plain(), b"end");
    (0..2).for_each(|_| assert_eq!(peer.receive_plain(), piece));
    eventually(|| second.flow() == Flow::Go);
    second.end(b"second");
    assert_eq!(peer.receive_plain(), b"second");
}

#[test]
fn streams_that_wait_for_their_turn_hold_no_more_each_time_their_client_takes_something() {
    let (server, kept) = keeping(ServerOptions { unsent_bytes_max: 64 << 10, ..options() });
    let mut peer = Peer::plain(&server.path);
    (0..2).for_each(|_| peer.send_plain(b"keep"));
    let [mut first, mut second] = [kept.recv().unwrap(), kept.recv().unwrap()];
    let (large, piece) = (vec![7; 4 << 20], vec![7; 40 << 10]);
    assert_eq!([second.item(&piece), second.item(&piece)], [Flow::Go; 2]);
    eventually(|| second.flow() == Flow::Wait);
    for _ in 0..3 {
        assert_eq!(first.item(&large), Flow::Go);
        assert_eq!(peer.receive_plain(), large);
        eventually(|| first.flow() == Flow::Go);
        assert_eq!(first.item(b"small"), Flow::Go);
        assert_eq!(peer.receive_plain(), b"small");
        assert_eq!(second.flow(), Flow::Wait, "as much as may waits there already");
    }
    first.end(b"first");
    for expected in [b"first", &piece[..], &piece] {
        assert_eq!(peer.receive_plain(), expected);
    }
    eventually(|| second.flow() == Flow::Go);
    second.end(b"second");
    assert_eq!(peer.receive_plain(), b"second");
}

#[test]
fn a_stream_that_begins_while_too_much_is_unsent_waits_like_the_others() {
    let (server, kept) = keeping(ServerOptions { unsent_bytes_max: 4 << 20, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    peer.send(Header { credit: 1_000, ..Header::new(FrameKind::Request, 1, 0) }, b"keep");
    let mut first = kept.recv().unwrap();
    let piece = vec![7; 64 << 10];
    // More than the bound, and what the socket takes beside it.
    let pushed = (0..80).take_while(|_| first.item(&piece) == Flow::Go).count();
    assert!(pushed > 60, "{pushed}");
    eventually(|| first.flow() == Flow::Wait);
    // Then less than the bound, and more than half of it.
    (0..24).for_each(|_| assert_eq!(peer.receive().payload, piece));
    peer.call(2, b"keep");
    let second = kept.recv().unwrap();
    assert_eq!([first.flow(), second.flow()], [Flow::Wait; 2]);
    first.end(b"first");
    let came = std::iter::repeat_with(|| peer.receive()).find(|came| came.kind == FrameKind::End).unwrap();
    assert_eq!(came, end(1, b"first"));
    eventually(|| second.flow() == Flow::Go);
    second.end(b"second");
    assert_eq!(peer.receive(), end(2, b"second"));
}

#[test]
fn a_stream_made_while_its_handler_is_called_stops_where_others_do() {
    const TOTAL: u32 = 30_000;
    const UNSENT_BYTES: usize = 64 << 10;
    let (told, tells) = channel();
    let server = Running::with(
        ServerOptions { unsent_bytes_max: UNSENT_BYTES, stream_credit: u32::MAX, ..options() },
        "test.sock",
        move |_: Request<'_>, mut reply: Reply| {
            let mut number = 0_u32;
            while number < TOTAL && reply.item(&number.to_le_bytes()) == Flow::Go {
                number += 1;
            }
            told.send(number).unwrap();
            std::thread::spawn(move || {
                let bell = Arc::new(Bell::default());
                let waker = Waker::from(Arc::clone(&bell));
                for number in number + 1..TOTAL {
                    while reply.flow() == Flow::Wait {
                        reply.changed(&waker);
                        bell.wait();
                    }
                    let _ = reply.item(&number.to_le_bytes());
                }
                reply.end(b"done");
            });
        },
    );
    let mut peer = Peer::multiplexed(&server.path);
    peer.send(Header { credit: u32::MAX, ..Header::new(FrameKind::Request, 1, 0) }, b"");
    let here = tells.recv().unwrap() as usize;
    assert!(here <= UNSENT_BYTES / 28 + 1, "{here} items in one go");
    (0..TOTAL).for_each(|number| assert_eq!(peer.receive(), item(1, number)));
    assert_eq!(peer.receive(), end(1, b"done"));
    // In their turn, behind one another.
    let mut plain = Peer::plain(&server.path);
    (0..2).for_each(|_| plain.send_plain(b""));
    for _ in 0..2 {
        (0..TOTAL).for_each(|number| assert_eq!(plain.receive_plain(), number.to_le_bytes()));
        assert_eq!(plain.receive_plain(), b"done");
        let here = tells.recv().unwrap() as usize;
        assert!(here <= UNSENT_BYTES / 8 + 1, "{here} items in one go");
    }
}

#[test]
fn a_plain_reader_that_stops_stops_its_stream_and_nothing_else() {
    let (ended, endings) = channel::<u32>();
    let server = Running::with(
        ServerOptions { unsent_bytes_max: 65_536, ..options() },
        "test.sock",
        move |request: Request<'_>, mut reply: Reply| {
            if request.frame.is_empty() {
                return reply.end(b"");
            }
            let ended = ended.clone();
            std::thread::spawn(move || {
                let sent = count(&mut reply, u32::MAX);
                ended.send(sent).unwrap();
            });
        },
    );
    let mut reader = Peer::plain(&server.path);
    reader.send_plain(b"everything");
    assert_eq!(reader.receive_plain(), 0_u32.to_le_bytes());
    let mut other = Peer::plain(&server.path);
    for _ in 0..50 {
        other.send_plain(b"");
        assert_eq!(other.receive_plain(), b"");
    }
    assert!(endings.try_recv().is_err(), "four thousand million numbers found room");
    drop(reader);
    endings.recv().unwrap();
}

#[test]
fn credit_is_heard_at_the_bound_of_calls() {
    let server = counting(ServerOptions { stream_credit: 1, in_flight_max: 2, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    (0..2).for_each(|id| peer.call(id, &ask(b't', 50)));
    let (mut items, mut ends) = (0, 0);
    while ends < 2 {
        let came = peer.receive();
        match came.kind {
            FrameKind::Item => {
                items += 1;
                peer.grant(came.id, 1);
            }
            _ => ends += 1,
        }
    }
    assert_eq!(items, 100);
}

#[test]
fn credit_and_cancels_are_heard_behind_requests_that_wait() {
    let server = counting(ServerOptions { stream_credit: 1, in_flight_max: 2, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    (0..2).for_each(|id| peer.call(id, &ask(b't', 50)));
    // These wait until one of the streams ends, and the streams for what is said behind them.
    (2..30).for_each(|id| peer.call(id, &ask(b't', 0)));
    assert_eq!([peer.receive().kind, peer.receive().kind], [FrameKind::Item, FrameKind::Item]);
    peer.cancel(1);
    let cancelled = peer.receive();
    assert_eq!((cancelled.id, cancelled.fault), (1, Some(Fault::Cancelled)));
    // About a call that has not begun: heard when it has.
    peer.cancel(29);
    peer.grant(0, 100);
    let mut ends = vec![];
    while ends.len() < 29 {
        let came = peer.receive();
        match came.kind {
            FrameKind::Item => assert_eq!(came.id, 0),
            _ => ends.push(came.id),
        }
    }
    ends.sort_unstable();
    assert!(ends.into_iter().eq((0..30).filter(|id| *id != 1)));
    assert_eq!(server.stop().in_flight, 0);
}

#[test]
fn streams_end_however_many_requests_wait_before_their_credit() {
    const STREAMS: usize = 4;
    const ITEMS: u32 = 500;
    let server = counting(ServerOptions { in_flight_max: STREAMS as u32, ..options() });
    let endpoint = server.path.to_str().unwrap().parse().unwrap();
    let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
    let call = |client: &mut Client, items: u32| {
        let mut request = ask(b't', items);
        request.resize(4 << 10, 0);
        client.call(&request, CallOptions::default()).unwrap()
    };
    let streams: Vec<_> = (0..STREAMS).map(|_| call(&mut client, ITEMS)).collect();
    let others = ClientOptions::default().in_flight_max as usize - STREAMS;
    for _ in 0..others {
        call(&mut client, 0);
    }
    let mut items = 0;
    let mut ended = vec![];
    let late = Instant::now() + Duration::from_secs(60);
    let (mut answered, mut refused) = (0, 0);
    while ended.len() + answered + refused < STREAMS + others {
        client.turn(Wait::Until(late)).unwrap();
        assert!(Instant::now() < late, "only {items} items, {answered} answers, {refused} refusals came");
        while let Some(event) = client.next() {
            let call = event.call;
            match event.kind {
                EventKind::Item => {
                    items += 1;
                    client.grant(call, 1);
                }
                EventKind::End if streams.contains(&call) => ended.push(call),
                EventKind::End => answered += 1,
                EventKind::Failed(error) => {
                    assert_eq!(error.fault, Fault::Overloaded);
                    assert!(!streams.contains(&call), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((items, ended.len()), (STREAMS as u32 * ITEMS, STREAMS));
    assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
    drop(client);
    let statistics = server.stop();
    assert_eq!(statistics.requests, statistics.answers);
}

#[test]
fn a_call_that_turns_out_to_be_a_stream_is_heard_behind_what_waits_already() {
    let (server, kept) = keeping(ServerOptions { stream_credit: 1, in_flight_max: 1, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(0, b"keep");
    let mut stream = kept.recv().unwrap();
    // More than may be read behind one that waits, and all of it waits while this may be a call that ends.
    (1..=20).for_each(|id| peer.call(id, &[7; 8 << 10]));
    peer.grant(0, 1);
    let mut other = Peer::multiplexed(&server.path);
    other.call(0, b"echo");
    assert_eq!(other.receive(), end(0, b"echo"));
    assert_eq!(stream.item(b"first"), Flow::Wait);
    assert_eq!(peer.receive().payload, b"first");
    eventually(|| stream.flow() == Flow::Go);
    assert_eq!(stream.item(b"second"), Flow::Wait);
    stream.end(b"end");
    let came = std::iter::repeat_with(|| peer.receive());
    let (refused, of_stream): (Vec<_>, Vec<_>) =
        came.take_while(|came| *came != end(0, b"end")).partition(|came| came.id > 0);
    assert_eq!(of_stream.into_iter().map(|came| came.payload).collect::<Vec<_>>(), [b"second"]);
    assert!(refused.iter().all(|came| came.fault == Some(Fault::Overloaded)), "{refused:?}");
    assert!((1..20).contains(&refused.len()), "{} refused", refused.len());
    assert!(refused.iter().map(|came| came.id).eq(1..=refused.len() as u64), "the oldest go first");
    drop(kept);
    server.stop();
}

#[test]
fn a_large_request_that_waits_hides_nothing_that_is_said_behind_it() {
    // One that waits, one behind another, and one that is too long to wait.
    for lengths in [&[300_000][..], &[10, 300_000], &[20_000_000]] {
        let (server, kept) = keeping(ServerOptions { in_flight_max: 1, ..options() });
        let mut peer = Peer::multiplexed(&server.path);
        peer.call(0, b"keep");
        let first = kept.recv().unwrap();
        for (id, length) in (1..).zip(lengths) {
            peer.call(id, &vec![7; *length]);
        }
        // Each answer is of another turn, and each turn reads on: what comes now comes behind all of it.
        let mut other = Peer::multiplexed(&server.path);
        for id in 0..20 {
            other.call(id, b"echo");
            assert_eq!(other.receive(), end(id, b"echo"));
        }
        peer.cancel(0);
        let mut came = peer.receive();
        if came.fault == Some(Fault::FrameTooLarge) {
            came = peer.receive();
        }
        assert_eq!((came.id, came.fault), (0, Some(Fault::Cancelled)), "{lengths:?}");
        drop(first);
        for (id, _) in (1..).zip(lengths.iter().filter(|length| **length <= 300_000)) {
            kept.recv().unwrap().end(b"later");
            assert_eq!(peer.receive(), end(id, b"later"));
        }
    }
}

#[test]
fn a_connection_that_waits_is_read_from_no_further_than_it_may() {
    let (server, kept) = keeping(ServerOptions { in_flight_max: 1, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(0, b"keep");
    let first = kept.recv().unwrap();
    peer.stream.set_nonblocking(true).unwrap();
    let frame =
        [&Header { length: 1_000, ..Header::new(FrameKind::Request, 1, 0) }.encode()[..], &[7; 1_000]]
            .concat();
    let (mut sent, mut refusals) = (0, 0);
    while refusals < 20 {
        match std::io::Write::write(&mut peer.stream, &frame[sent % frame.len()..]) {
            Ok(count) => (sent, refusals) = (sent + count, 0),
            Err(_) => {
                refusals += 1;
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        assert!(sent < 16 << 20, "somebody holds what nobody handles");
    }
    peer.stream.set_nonblocking(false).unwrap();
    first.end(b"");
    assert_eq!(peer.receive(), end(0, b""));
    kept.recv().unwrap().end(b"second");
    assert_eq!(peer.receive(), end(1, b"second"));
}
