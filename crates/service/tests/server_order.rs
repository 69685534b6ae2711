//! In which order answers leave, and to whom.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running, end};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use thalweg_service::{Handler, Reply, Request};
use thalweg_wire::frame::{FrameKind, Header};

const REQUESTS: u8 = 16;
const WORKERS: usize = 8;

/// Workers that answer in the reverse order of the requests, 8 at a time: each waits until those that came
/// after it among its eight have answered.
struct Reversing {
    jobs: Sender<(u8, Reply)>,
}

#[derive(Default)]
struct Answered {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Reversing {
    fn start() -> Self {
        let (jobs, taken) = channel::<(u8, Reply)>();
        let taken = Arc::new(Mutex::new(taken));
        let answered = Arc::new(Answered::default());
        for _ in 0..WORKERS {
            let (taken, answered) = (Arc::clone(&taken), Arc::clone(&answered));
            std::thread::spawn(move || work(&taken, &answered));
        }
        Self { jobs }
    }
}

fn work(jobs: &Mutex<Receiver<(u8, Reply)>>, answered: &Answered) {
    loop {
        let Ok((number, reply)) = jobs.lock().unwrap().recv() else { return };
        let (number, eight) = (usize::from(number), usize::from(number) / WORKERS * WORKERS);
        let turn = eight + (WORKERS - 1 - number % WORKERS);
        let mut count = answered.count.lock().unwrap();
        while *count != turn {
            count = answered.changed.wait(count).unwrap();
        }
        reply.end(&[number as u8]);
        *count += 1;
        answered.changed.notify_all();
    }
}

fn reversing() -> Running {
    let workers = Reversing::start();
    Running::new(move |request: Request<'_>, reply: Reply| {
        workers.jobs.send((request.frame[0], reply)).unwrap();
    })
}

#[test]
fn plain_answers_leave_in_the_order_of_the_requests() {
    let server = reversing();
    let mut peer = Peer::plain(&server.path);
    (0..REQUESTS).for_each(|number| peer.send_plain(&[number]));
    let answers: Vec<u8> = (0..REQUESTS).map(|_| peer.receive_plain()[0]).collect();
    assert_eq!(answers, (0..REQUESTS).collect::<Vec<u8>>());
    assert_eq!(server.stop().answers, u64::from(REQUESTS));
}

#[test]
fn multiplexed_answers_leave_in_the_order_of_completion() {
    let server = reversing();
    let mut peer = Peer::multiplexed(&server.path);
    (0..REQUESTS).for_each(|number| peer.call(100 + u64::from(number), &[number]));
    let answers: Vec<u8> = (0..REQUESTS)
        .map(|_| {
            let came = peer.receive();
            assert_eq!(came, end(100 + u64::from(came.payload[0]), &came.payload));
            came.payload[0]
        })
        .collect();
    assert_eq!(answers, [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]);
}

#[test]
fn four_clients_of_128_requests_each_get_their_own_answers() {
    let (jobs, taken) = channel::<(Vec<u8>, Reply)>();
    let taken = Arc::new(Mutex::new(taken));
    for _ in 0..2 {
        let taken = Arc::clone(&taken);
        std::thread::spawn(move || {
            loop {
                let Ok((frame, reply)) = taken.lock().unwrap().recv() else { return };
                reply.end(&frame);
            }
        });
    }
    let mut inline = false;
    let server = Running::new(move |request: Request<'_>, reply: Reply| {
        // Every other request at once, so that both ways of answering mix on each connection.
        inline = !inline;
        if inline {
            reply.end(request.frame);
        } else {
            jobs.send((request.frame.to_vec(), reply)).unwrap();
        }
    });
    let clients = (0..4_u64).map(|client| {
        let path = server.path.clone();
        std::thread::spawn(move || {
            let payload = |n: u64| [client.to_le_bytes(), n.to_le_bytes()].concat();
            if client.is_multiple_of(2) {
                let mut peer = Peer::plain(&path);
                (0..128).for_each(|n| peer.send_plain(&payload(n)));
                (0..128).for_each(|n| assert_eq!(peer.receive_plain(), payload(n)));
            } else {
                let mut peer = Peer::multiplexed(&path);
                (0..128).for_each(|n| peer.call(n, &payload(n)));
                let mut seen: Vec<u64> = (0..128)
                    .map(|_| {
                        let came = peer.receive();
                        assert_eq!(came, end(came.id, &payload(came.id)));
                        came.id
                    })
                    .collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..128).collect::<Vec<u64>>());
            }
        })
    });
    clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(server.stop().answers, 4 * 128);
}

/// Frames of requests that each say what to do, and what is to come back.
fn histories() -> impl Strategy<Value = Vec<(bool, Vec<u8>)>> {
    let request = (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..200));
    proptest::collection::vec(request, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// However the bytes are cut on their way, and whether a call is answered at once or later, each request
    /// gets its own answer, in order on a plain connection.
    #[test]
    fn any_split_of_the_bytes_gives_the_same_answers(
        history in histories(),
        cuts in proptest::collection::vec(1_usize..500, 1..20),
        is_plain in any::<bool>(),
    ) {
        let (server, answers) = split_server();
        let mut peer = if is_plain { Peer::plain(&server.path) } else { Peer::multiplexed(&server.path) };
        let mut bytes = Vec::new();
        for (n, (later, payload)) in history.iter().enumerate() {
            let length = payload.len() as u32 + 1;
            if is_plain {
                bytes.extend_from_slice(&length.to_le_bytes());
            } else {
                bytes.extend_from_slice(&Header::new(FrameKind::Request, n as u64, length).encode());
            }
            bytes.push(u8::from(*later));
            bytes.extend_from_slice(payload);
        }
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (now, then) = rest.split_at(rest.len().min(*cut));
            peer.stream.write_all(now).unwrap();
            rest = then;
            if rest.is_empty() {
                break;
            }
        }
        let mut seen = vec![false; history.len()];
        for n in 0..history.len() {
            let (id, payload) = if is_plain {
                (n, peer.receive_plain())
            } else {
                let came = peer.receive();
                prop_assert_eq!((came.kind, came.fault), (FrameKind::End, None));
                (came.id as usize, came.payload)
            };
            prop_assert!(!std::mem::replace(&mut seen[id], true));
            prop_assert_eq!(&payload, &history[id].1);
        }
        drop(server);
        answers.join().unwrap();
    }
}

/// Answers at once or, when it is told to, on another thread.
fn split_server() -> (Running, std::thread::JoinHandle<()>) {
    let (jobs, taken) = channel::<(Vec<u8>, Reply)>();
    let answers = std::thread::spawn(move || taken.iter().for_each(|(frame, reply)| reply.end(&frame)));
    let server = Running::new(move |request: Request<'_>, reply: Reply| match request.frame {
        [0, frame @ ..] => reply.end(frame),
        frame => jobs.send((frame[1..].to_vec(), reply)).unwrap(),
    });
    (server, answers)
}

#[test]
fn a_request_is_alone_when_nothing_waits_behind_it_and_nothing_is_in_flight() {
    let (keeper, kept) = channel::<Reply>();
    let server = Running::new(move |request: Request<'_>, reply: Reply| {
        let alone = [u8::from(request.alone)];
        if request.frame == b"keep" {
            keeper.send(reply).unwrap();
        } else {
            reply.end(&alone);
        }
    });
    let mut peer = Peer::plain(&server.path);
    peer.send_plain(b"a");
    assert_eq!(peer.receive_plain(), [1]);
    // Two in one write: the first has another behind it.
    peer.stream.write_all(&[1, 0, 0, 0, b'a', 1, 0, 0, 0, b'b']).unwrap();
    assert_eq!((peer.receive_plain(), peer.receive_plain()), (vec![0], vec![1]));
    let mut other = Peer::multiplexed(&server.path);
    other.call(1, b"keep");
    let reply = kept.recv().unwrap();
    peer.send_plain(b"a");
    assert_eq!(peer.receive_plain(), [0], "another client's call is in flight");
    reply.end(b"");
    assert_eq!(other.receive(), end(1, b""));
    peer.send_plain(b"a");
    assert_eq!(peer.receive_plain(), [1]);
}

/// Answers nothing but what it is asked to help with, one at a time.
#[derive(Default)]
struct Helping {
    waiting: VecDeque<(u8, Reply)>,
    helped: u8,
}

impl Handler for Helping {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        self.waiting.push_back((request.frame[0], reply));
    }

    fn help(&mut self) -> bool {
        let Some((number, reply)) = self.waiting.pop_front() else { return false };
        assert_ne!(number, u8::MAX, "this panics on purpose");
        reply.end(&[number, self.helped]);
        self.helped += 1;
        true
    }
}

#[test]
fn a_handler_is_asked_to_help_until_it_has_nothing_more_to_do() {
    let server = Running::new(Helping::default());
    let (mut one, mut other) = (Peer::plain(&server.path), Peer::plain(&server.path));
    // One after the other, since nothing else would wake a reactor that sleeps.
    for number in 0..3 {
        one.send_plain(&[number]);
        assert_eq!(one.receive_plain(), [number, number]);
    }
    // Three in one write: what they wait for is done in three steps, with nothing that wakes the reactor.
    one.stream.write_all(&[1, 0, 0, 0, 3, 1, 0, 0, 0, 4, 1, 0, 0, 0, 5]).unwrap();
    for number in 3..6 {
        assert_eq!(one.receive_plain(), [number, number]);
    }
    other.send_plain(&[6]);
    assert_eq!(other.receive_plain(), [6, 6]);
    // Two: behind one in which the handler panics comes the next.
    other.stream.write_all(&[1, 0, 0, 0, u8::MAX, 1, 0, 0, 0, 7]).unwrap();
    assert!(other.receive_plain().len() > 2, "an error says that the call was abandoned");
    assert_eq!(other.receive_plain(), [7, 7]);
}

/// Panics whenever it is to do something that nobody asked for, until it tells that this was too often.
struct Panicking {
    /// Something is due at any time, rather than to be helped with.
    is_due: bool,
    acted: u32,
    spins: Sender<()>,
}

impl Panicking {
    const TOO_OFTEN: u32 = 1_000;

    fn act(&mut self) -> ! {
        self.acted += 1;
        if self.acted == Self::TOO_OFTEN {
            self.spins.send(()).unwrap();
        }
        // As a panic, without its report.
        std::panic::resume_unwind(Box::new("on purpose"))
    }
}

impl Handler for Panicking {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        reply.end(request.frame);
    }

    fn help(&mut self) -> bool {
        !self.is_due && self.act()
    }

    fn due_at(&self) -> Option<Instant> {
        self.is_due.then(Instant::now)
    }

    fn due(&mut self) {
        self.act()
    }
}

#[test]
fn a_handler_that_panics_whenever_it_is_to_do_something_lets_the_reactor_sleep() {
    for is_due in [false, true] {
        let (spins, told) = channel();
        let server = Running::new(Panicking { is_due, acted: 0, spins });
        let mut peer = Peer::plain(&server.path);
        peer.send_plain(b"a");
        assert_eq!(peer.receive_plain(), b"a");
        assert_eq!(told.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
        peer.send_plain(b"b");
        assert_eq!(peer.receive_plain(), b"b", "and nothing else became of it");
    }
}

#[test]
fn frames_that_come_together_cost_one_read_and_one_write() {
    let server = Running::new(|request: Request<'_>, reply: Reply| reply.end(request.frame));
    let mut peer = Peer::plain(&server.path);
    let frames = [1, 0, 0, 0, b'a'].repeat(500);
    for _ in 0..20 {
        peer.stream.write_all(&frames).unwrap();
        (0..500).for_each(|_| assert_eq!(peer.receive_plain(), b"a"));
    }
    let statistics = server.stop();
    assert_eq!(statistics.requests, 20 * 500);
    assert_eq!(statistics.writes, 20);
    // One to accept, one each, one or two to find out that the server ends.
    assert!(statistics.reads <= 20 + 3, "{} reads", statistics.reads);
}
