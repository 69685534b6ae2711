//! Handlers that have something to do that nobody asks for.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running};
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
fn who_has_a_handler_in_place_has_it_do_what_is_due_in_turns() {
    let (mut local, mut later, mut heard) = (Local::new("error", 1, || {}), Later::default(), Vec::new());
    let call = local.call(&mut later, &[1], LocalCallOptions::default(), |_, _| {}).unwrap();
    while heard.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
        local.turn(&mut later, |name, came, frame| heard.push((name, came, frame.to_vec())));
    }
    assert_eq!(heard, [(call, LocalEvent::End(0), b"due".to_vec())]);
}
