//! The client for futures against the hand-written peer, driven by one thread, by several, and by a loop of
//! somebody else's.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod peer;

use peer::{Peer, Way, echo, options, serve};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_service::{AsyncClient, CallOptions, Client, ClientOptions, Frames, Reconnect};
use thalweg_wire::fault::{Fault, Retry};
use thalweg_wire::frame::{FrameKind, Header};
use thalweg_wire::service::{AsyncCall, AsyncFrames};

const WAYS: [Way; 3] = [Way::Plain, Way::Multiplexed, Way::Shared];

/// Runs futures side by side; their outputs in order.
async fn together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[test]
fn one_thread_carries_many_calls_at_once() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let client = AsyncClient::connect(&endpoint, options(way)).unwrap();
        let calls = (0..200_u32).map(|n| client.call(n.to_le_bytes().to_vec())).collect();
        let answers = client.run_until(together(calls)).unwrap();
        for (n, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), (n as u32).to_le_bytes());
        }
        assert_eq!(client.in_flight(), 0);
    }
}

#[test]
fn several_threads_drive_one_client_and_each_gets_its_own() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let client = AsyncClient::connect(&endpoint, options(way)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let client = client.clone();
                scope.spawn(move || {
                    for round in 0..300_u32 {
                        let request = [thread.to_le_bytes(), round.to_le_bytes()].concat();
                        let answer = client.run_until(client.call(request.clone())).unwrap().unwrap();
                        assert_eq!(answer, request);
                    }
                });
            }
        });
    }
}

#[test]
fn a_foreign_loop_drives_futures_by_the_descriptor() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let client = AsyncClient::connect(&endpoint, options(way)).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        for round in 0..20_usize {
            let mut call = pin!(client.call(vec![1; round * 5_000]));
            // The first poll asks for a second, at which the request leaves.
            let mut left = false;
            let answer = loop {
                if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
                    break answer.unwrap();
                }
                if std::mem::replace(&mut left, true) {
                    let ready = thalweg_sys::epoll::wait_readable(client.descriptor(), 30_000);
                    assert!(ready.unwrap(), "nothing was heard, {way:?}, round {round}");
                    client.drive(Wait::Poll).unwrap();
                }
            };
            assert_eq!(answer.len(), round * 5_000);
        }
    }
}

#[test]
fn a_stream_gives_credit_as_it_is_read() {
    let credits = [Some(8), None];
    for (way, credit) in [Way::Multiplexed, Way::Shared].into_iter().flat_map(|way| credits.map(|c| (way, c)))
    {
        let (endpoint, peer) = serve(way, |peer| {
            let request = peer.request().header;
            // Without any it is what the welcome said.
            let mut credit = if request.credit > 0 { request.credit } else { 64 };
            for item in 0..1_000_u32 {
                while credit == 0 {
                    let granted = peer.request().header;
                    assert_eq!((granted.kind, granted.id), (FrameKind::Credit, request.id));
                    credit += granted.credit;
                }
                credit -= 1;
                peer.send(Header::new(FrameKind::Item, request.id, 0), &item.to_le_bytes());
            }
            peer.end(&request, b"end");
        });
        // The call is made before there is a welcome.
        let client = AsyncClient::new(Client::begin(&endpoint, options(way)).unwrap()).unwrap();
        let client = client.with(CallOptions {
            deadline: Some(Duration::from_secs(60)),
            credit,
            ..CallOptions::default()
        });
        let read = async {
            let mut frames = client.stream(b"count".to_vec()).await.unwrap();
            for item in 0..1_000_u32 {
                assert_eq!(frames.next().await.unwrap(), item.to_le_bytes());
            }
            assert_eq!(frames.next().await.unwrap(), b"end");
            assert_eq!(frames.next().await.unwrap_err().fault, Fault::BadArgument, "it has ended");
        };
        client.run_until(read).unwrap();
        peer.join();
    }
}

#[test]
fn a_future_that_is_dropped_cancels_its_call() {
    let (endpoint, peer) = serve(Way::Multiplexed, |peer| {
        let request = peer.request().header;
        let cancel = peer.request().header;
        assert_eq!((cancel.kind, cancel.id), (FrameKind::Cancel, request.id));
        peer.fail(&request, Fault::Cancelled, "");
        let request = peer.request();
        peer.end(&request.header, b"next");
    });
    let client = AsyncClient::connect(&endpoint, options(Way::Multiplexed)).unwrap();
    {
        let mut call = pin!(client.call(b"given up".to_vec()));
        let mut context = Context::from_waker(Waker::noop());
        // The first poll asks for a second, at which the request leaves; one that is dropped before never
        // does.
        (0..2).for_each(|_| assert!(call.as_mut().poll(&mut context).is_pending()));
    }
    assert_eq!(client.in_flight(), 0);
    assert_eq!(client.run_until(client.call(b"?".to_vec())).unwrap().unwrap(), b"next");
    peer.join();
}

#[test]
fn a_future_that_is_dropped_after_the_server_died_leaves_no_other_waiting() {
    for way in [Way::Multiplexed, Way::Shared] {
        let (stays, ends) = channel::<()>();
        let (endpoint, peer) = serve(way, move |peer| {
            peer.request();
            peer.request();
            let _ = ends.recv();
        });
        let client = AsyncClient::connect(&endpoint, options(way)).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut given_up = Box::pin(client.call(b"given up".to_vec()));
        let mut waiting = pin!(client.call(b"waiting".to_vec()));
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        client.drive(Wait::Poll).unwrap();
        // Nobody looks at the connection any more when it ends.
        drop(stays);
        peer.join();
        // The cancellation is what finds out that nobody is there.
        drop(given_up);
        let woken = client.drive(Wait::Until(Instant::now() + Duration::from_secs(60))).unwrap();
        assert_eq!(woken, 1, "{way:?}");
        let Poll::Ready(Err(error)) = waiting.as_mut().poll(&mut context) else { panic!("{way:?}") };
        assert_eq!(error.fault, Fault::Disconnected);
    }
}

#[test]
fn deadlines_and_lost_connections_reach_the_future() {
    let (endpoint, peer) = serve(Way::Multiplexed, |peer| {
        let kinds = [0; 3].map(|_| peer.request().header.kind);
        assert_eq!(kinds, [FrameKind::Request, FrameKind::Cancel, FrameKind::Request]);
    });
    let client = AsyncClient::connect(&endpoint, options(Way::Multiplexed)).unwrap();
    let soon =
        client.with(CallOptions { deadline: Some(Duration::from_millis(5)), ..CallOptions::default() });
    let error = soon.run_until(soon.call(b"a".to_vec())).unwrap().unwrap_err();
    assert_eq!(error.fault, Fault::DeadlineExceeded);
    let error = client.run_until(client.call(b"b".to_vec())).unwrap().unwrap_err();
    assert_eq!(error.fault, Fault::Disconnected);
    peer.join();
    let error = client.run_until(client.call(b"c".to_vec())).unwrap().unwrap_err();
    assert_eq!((error.fault, error.retry()), (Fault::NotSent, Retry::Safe), "nothing of it can have left");
}

#[test]
fn a_future_made_after_a_lost_connection_gets_a_new_one() {
    for way in WAYS {
        let (endpoint, _peer) = peer::serve_times(20, way, |peer| {
            let request = peer.request();
            peer.end(&request.header, &request.payload);
        });
        let reconnect =
            Reconnect::Backoff { first: Duration::from_millis(1), most: Duration::from_millis(5) };
        let client = AsyncClient::connect(&endpoint, ClientOptions { reconnect, ..options(way) }).unwrap();
        let (mut answers, mut losses) = (0, 0);
        while answers < 10 {
            match client.run_until(client.call(b"again".to_vec())).unwrap() {
                Ok(answer) => {
                    assert_eq!(answer, b"again");
                    answers += 1;
                }
                // It was made before anybody knew that the connection had ended.
                Err(error) => {
                    assert!(matches!(error.fault, Fault::Disconnected | Fault::NotSent), "{error}");
                    losses += 1;
                }
            }
            assert!(losses <= answers, "each connection answers once");
        }
    }
}

/// Wakes a thread that is parked.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread and drives nothing.
fn park_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn threads_that_drive_nothing_are_served_by_one_that_does() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let client = AsyncClient::connect(&endpoint, options(way)).unwrap();
        // Ready once both other threads are through; each wakes the waiter.
        let through: Mutex<(u32, Option<Waker>)> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..2_u32 {
                let (client, through) = (client.clone(), &through);
                scope.spawn(move || {
                    for round in 0..1_000_u32 {
                        let request = [thread.to_le_bytes(), round.to_le_bytes()].concat();
                        assert_eq!(park_on(client.call(request.clone())).unwrap(), request);
                    }
                    let mut through = through.lock().unwrap();
                    through.0 += 1;
                    if let Some(waker) = through.1.take() {
                        waker.wake();
                    }
                });
            }
            let both = poll_fn(|context| {
                let mut through = through.lock().unwrap();
                through.1 = Some(context.waker().clone());
                if through.0 == 2 { Poll::Ready(()) } else { Poll::Pending }
            });
            client.run_until(both).unwrap();
        });
    }
}

/// A thread in `run_until` whose future has had an answer, so that it has taken a turn, and then computes
/// until it is let go.
fn compute_in_a_future(client: &AsyncClient, begun: &Sender<()>, until: Receiver<()>) {
    let answered = client.run_until(async {
        client.call(b"own".to_vec()).await.unwrap();
        begun.send(()).unwrap();
        until.recv_timeout(Duration::from_secs(60))
    });
    // An error: the others waited for this thread.
    answered.unwrap().unwrap();
}

#[test]
fn a_request_leaves_while_a_thread_that_drives_computes() {
    for way in WAYS {
        let (heard, hears) = channel();
        let (endpoint, _peer) = serve(way, move |peer| {
            for _ in 0..2 {
                let request = peer.request();
                peer.end(&request.header, b"");
                if request.payload == b"other" {
                    heard.send(()).unwrap();
                }
            }
            peer.request();
        });
        let client = AsyncClient::connect(&endpoint, options(way)).unwrap();
        let (begun, begins) = channel();
        // Kept beyond the end: one that is dropped leaves with what it cancels.
        let mut call = pin!(client.call(b"other".to_vec()));
        std::thread::scope(|scope| {
            let own = client.clone();
            scope.spawn(move || compute_in_a_future(&own, &begun, hears));
            begins.recv().unwrap();
            // Polled twice, as it asks for, and driven by nobody here.
            let mut context = Context::from_waker(Waker::noop());
            assert!(call.as_mut().poll(&mut context).is_pending());
            let _ = call.as_mut().poll(&mut context);
        });
    }
}

#[test]
fn a_thread_that_sleeps_is_woken_while_another_that_drives_computes() {
    // One that falls asleep only later hears by itself, so there are several.
    for _ in 0..20 {
        let (asked, is_asked) = channel();
        let (go, goes) = channel();
        let (endpoint, _peer) = serve(Way::Shared, move |peer| {
            let held = peer.request();
            asked.send(()).unwrap();
            let own = peer.request();
            peer.end(&own.header, b"");
            goes.recv().unwrap();
            peer.end(&held.header, b"");
            peer.request();
        });
        let client = AsyncClient::connect(&endpoint, options(Way::Shared)).unwrap();
        let ((begun, begins), (answered, is_answered)) = (channel(), channel());
        std::thread::scope(|scope| {
            let own = client.clone();
            scope.spawn(move || {
                own.run_until(own.call(b"held".to_vec())).unwrap().unwrap();
                answered.send(()).unwrap();
            });
            is_asked.recv().unwrap();
            let own = client.clone();
            scope.spawn(move || compute_in_a_future(&own, &begun, is_answered));
            begins.recv().unwrap();
            go.send(()).unwrap();
        });
    }
}

/// A task that is gone with its last waker, and what it held with it.
struct Task {
    _frames: Mutex<Frames>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_is_let_go_of_may_be_the_last_of_a_task_with_calls_of_its_own() {
    let silent = |peer: &mut Peer| while peer.request().header.kind != FrameKind::Goodbye {};
    let (endpoint, _peer) = serve(Way::Multiplexed, silent);
    let client = AsyncClient::connect(&endpoint, options(Way::Multiplexed)).unwrap();
    let (told, hears) = std::sync::mpsc::channel();
    let caller = std::thread::spawn(move || {
        let begin = || park_on(client.stream(b"?".to_vec())).unwrap();
        let abandon_to_a_task = |frames: &mut Frames| {
            let waker = Waker::from(Arc::new(Task { _frames: Mutex::new(begin()) }));
            assert!(frames.poll_next(&mut Context::from_waker(&waker)).is_pending());
        };
        let mut frames = begin();
        abandon_to_a_task(&mut frames);
        assert_eq!(client.in_flight(), 2);
        assert!(frames.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(client.in_flight(), 1, "another task waits now");
        abandon_to_a_task(&mut frames);
        drop(frames);
        assert_eq!(client.in_flight(), 0, "nobody waits");
        told.send(()).unwrap();
    });
    hears.recv_timeout(Duration::from_secs(60)).expect("it waits for its own lock");
    caller.join().unwrap();
}

/// Panics when it is woken.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("as the test wants it");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_future_asleep() {
    let (ask, asked) = channel();
    let answers_together = move |peer: &mut Peer| {
        let requests = [peer.request(), peer.request()];
        asked.recv().unwrap();
        let ends = requests.iter().map(|request| Header::new(FrameKind::End, request.header.id, 0).encode());
        peer.raw(&ends.collect::<Vec<_>>().concat());
        while peer.request().header.kind != FrameKind::Goodbye {}
    };
    let (endpoint, _peer) = serve(Way::Multiplexed, answers_together);
    let client = AsyncClient::connect(&endpoint, options(Way::Multiplexed)).unwrap();
    let begin = || client.run_until(client.stream(b"?".to_vec())).unwrap().unwrap();
    let (mut broken, mut whole) = (begin(), begin());
    let waker = Waker::from(Arc::new(Broken));
    assert!(broken.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(broken.poll_next(&mut Context::from_waker(&waker)).is_pending());
    let (woken, wakes) = channel();
    let waker = Waker::from(Arc::new(Tells(Mutex::new(woken))));
    assert!(whole.poll_next(&mut Context::from_waker(&waker)).is_pending());
    ask.send(()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.drive(Wait::Until(deadline)).unwrap() == 0 {
        assert!(Instant::now() < deadline, "nothing was told");
    }
    wakes.try_recv().unwrap();
    for frames in [&mut broken, &mut whole] {
        assert!(frames.poll_next(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}

struct Tells(Mutex<Sender<()>>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}
