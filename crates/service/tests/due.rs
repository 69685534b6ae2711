//! Handlers that have something to do that nobody asks for.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use thalweg_service::{Handler, Local, LocalCallOptions, LocalEvent, Reply, Request};

/// Answers each request when as many milliseconds are over as its first byte says.
#[derive(Default)]
struct Later {
    waiting: Vec<(Instant, Reply)>,
}

impl Handler for Later {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        let after = Duration::from_millis(request.frame[0].into());
        self.waiting.push((Instant::now() + after, reply));
    }

    fn due_at(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    fn due(&mut self) {
        let now = Instant::now();
        self.waiting.extract_if(.., |(at, _)| *at <= now).for_each(|(_, reply)| reply.end(b"due"));
    }
}

#[test]
fn what_is_due_is_done_though_nothing_else_wakes_the_server() {
    let server = Running::new(Later::default());
    let (mut one, mut other) = (Peer::plain(&server.path), Peer::plain(&server.path));
    for after_ms in [0, 1, 20] {
        one.send_plain(&[200]);
        // This one is due before what was asked for first.
        other.send_plain(&[after_ms]);
        assert_eq!(other.receive_plain(), b"due");
        assert_eq!(one.receive_plain(), b"due");
    }
}

#[test]
fn a_handler_that_panics_whenever_something_is_due_lets_the_server_sleep() {
    const TOO_OFTEN: u32 = 1_000;
    struct Panicking {
        asked: u32,
        spins: Sender<()>,
    }
    impl Handler for Panicking {
        fn request(&mut self, request: Request<'_>, reply: Reply) {
            reply.end(request.frame);
        }

        fn due_at(&self) -> Option<Instant> {
            Some(Instant::now())
        }

        fn due(&mut self) {
            self.asked += 1;
            if self.asked == TOO_OFTEN {
                self.spins.send(()).unwrap();
            }
            // As a panic, without its report.
            std::panic::resume_unwind(Box::new("on purpose"))
        }
    }
    let (spins, told) = channel();
    let server = Running::new(Panicking { asked: 0, spins });
    let mut peer = Peer::plain(&server.path);
    peer.send_plain(b"a");
    assert_eq!(peer.receive_plain(), b"a");
    assert_eq!(told.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
    peer.send_plain(b"b");
    assert_eq!(peer.receive_plain(), b"b", "and nothing else became of it");
}

#[test]
fn who_has_a_handler_in_place_has_it_do_what_is_due_in_turns() {
    let (mut local, mut later, mut heard) = (Local::new("error", 1, || {}), Later::default(), Vec::new());
    let call = local.call(&mut later, &[1], LocalCallOptions::default(), |_, _| {}).unwrap();
    while heard.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
        local.turn(&mut later, |name, came, frame| heard.push((name, came, frame.to_vec())));
    }
    assert_eq!(heard, [(call, LocalEvent::End(0), b"due".to_vec())]);
}
