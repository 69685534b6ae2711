//! In which order answers leave, and to whom.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running, end};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use thalweg_service::{Reply, Request};

const REQUESTS: u8 = 16;
const WORKERS: usize = 8;

/// Workers that answer in the reverse order of the requests, 8 at a time: each waits until those that came after it
/// among its eight have answered.
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
