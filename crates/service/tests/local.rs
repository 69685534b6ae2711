//! A handler that is called without a socket.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::sync::mpsc::{Receiver, Sender, channel};
use thalweg_service::{CallId, ClientId, Handler, Local, LocalCallOptions, LocalEvent, Reply, Request};
use thalweg_wire::fault::Fault;

type Heard = Vec<(Option<CallId>, LocalEvent, Vec<u8>)>;

/// Keeps replies until they are asked for.
#[derive(Default)]
struct Keeps {
    replies: Vec<Reply>,
    /// Who asked, and the number of the call.
    asked: Vec<(ClientId, u64)>,
    given_up: Vec<(ClientId, u64)>,
}

impl Handler for Keeps {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        self.asked.push((request.client, request.call));
        self.replies.push(reply);
    }

    fn given_up(&mut self, client: ClientId, call: u64) {
        self.given_up.push((client, call));
    }

    fn notified(&mut self) {
        self.replies.drain(..).for_each(|reply| reply.end(b"notified"));
    }
}

fn local() -> (Local, Receiver<()>) {
    let (tell, told): (Sender<()>, _) = channel();
    (Local::new("EchoErrorResponse", 3, move || tell.send(()).unwrap_or_default()), told)
}

fn call(local: &mut Local, handler: &mut impl Handler, heard: &mut Heard) -> Option<CallId> {
    local.call(handler, b"?", LocalCallOptions::default(), |came, frame| {
        heard.push((None, came, frame.to_vec()))
    })
}

fn turn(local: &mut Local, handler: &mut impl Handler, heard: &mut Heard) {
    local.turn(handler, |call, came, frame| heard.push((Some(call), came, frame.to_vec())));
}

#[test]
fn answers_of_other_threads_come_in_a_turn_that_is_asked_for_once() {
    let ((mut local, told), mut keeps, mut heard) = (local(), Keeps::default(), Heard::new());
    let calls: Vec<_> = (0..3).map(|_| call(&mut local, &mut keeps, &mut heard).unwrap()).collect();
    assert!(heard.is_empty() && local.in_flight() == 3);
    let replies: Vec<Reply> = keeps.replies.drain(..).rev().collect();
    let answer =
        move || replies.into_iter().zip([b"c", b"b", b"a"]).for_each(|(reply, says)| reply.end(says));
    std::thread::spawn(answer).join().unwrap();
    told.recv().unwrap();
    assert!(told.try_recv().is_err(), "told once per burst");
    turn(&mut local, &mut keeps, &mut heard);
    let expected = [(2, b"c"), (1, b"b"), (0, b"a")];
    assert_eq!(heard, expected.map(|(call, says)| (Some(calls[call]), LocalEvent::End(0), says.to_vec())));
    assert_eq!(local.in_flight(), 0);
}

#[test]
fn a_stream_comes_in_order_wherever_its_parts_were_made() {
    let ((mut local, _told), mut heard) = (local(), Heard::new());
    let mut kept = None;
    let mut streams = |_: Request<'_>, mut reply: Reply| {
        reply.item(b"1");
        kept = Some(reply);
    };
    let name = call(&mut local, &mut streams, &mut heard);
    let mut reply = kept.unwrap();
    let more = move || {
        reply.item(b"2");
        reply.end(b"3");
    };
    std::thread::spawn(more).join().unwrap();
    turn(&mut local, &mut Keeps::default(), &mut heard);
    let expected =
        [(None, LocalEvent::Item, b"1"), (name, LocalEvent::Item, b"2"), (name, LocalEvent::End(0), b"3")];
    assert_eq!(heard, expected.map(|(call, came, says)| (call, came, says.to_vec())));
}

#[test]
fn a_handler_that_panics_or_forgets_has_abandoned_its_call() {
    let ((mut local, _told), mut heard) = (local(), Heard::new());
    let mut panics = |_: Request<'_>, _: Reply| panic!("on purpose");
    assert_eq!(call(&mut local, &mut panics, &mut heard), None);
    let mut keeps = Keeps::default();
    assert!(call(&mut local, &mut keeps, &mut heard).is_some());
    keeps.replies.clear();
    turn(&mut local, &mut keeps, &mut heard);
    assert!(
        heard.len() == 2
            && heard.iter().all(|(_, came, _)| *came == LocalEvent::End(Fault::Abandoned as u16))
    );
}

#[test]
fn nobody_hears_of_a_call_that_was_cancelled_but_its_handler() {
    let ((mut local, told), mut keeps, mut heard) = (local(), Keeps::default(), Heard::new());
    let name = call(&mut local, &mut keeps, &mut heard).unwrap();
    local.cancel(&mut keeps, name);
    assert!(keeps.replies[0].is_cancelled() && local.in_flight() == 1);
    keeps.replies.clear();
    told.recv().unwrap();
    turn(&mut local, &mut keeps, &mut heard);
    assert!(heard.is_empty() && local.in_flight() == 0);
}

/// As over a socket: what the answer names may have to be taken back, whether or not it is on its way.
#[test]
fn a_handler_is_told_which_call_is_given_up_unless_its_end_was_heard() {
    let ((mut local, _told), mut keeps, mut heard) = (local(), Keeps::default(), Heard::new());
    let names: Vec<_> = (0..3).map(|_| call(&mut local, &mut keeps, &mut heard).unwrap()).collect();
    keeps.replies.remove(0).end(b"heard");
    turn(&mut local, &mut keeps, &mut heard);
    keeps.replies.remove(0).end(b"on its way");
    names.iter().for_each(|name| local.cancel(&mut keeps, *name));
    names.iter().for_each(|name| local.cancel(&mut keeps, *name));
    assert_eq!(keeps.given_up, keeps.asked[1..], "each that had not ended, and once");
    keeps.replies.clear();
    turn(&mut local, &mut keeps, &mut heard);
    assert_eq!((heard.len(), local.in_flight()), (1, 0));
}

/// Four items lie beyond the credit of three; the end that waits behind them goes with the call.
#[test]
fn what_is_held_back_is_gone_with_a_call_that_is_cancelled() {
    let ((mut local, _told), mut heard) = (local(), Heard::new());
    let mut streams = |_: Request<'_>, mut reply: Reply| {
        for _ in 0..7 {
            reply.item(b"x");
        }
        reply.end(b"y");
    };
    let name = call(&mut local, &mut streams, &mut heard).unwrap();
    assert_eq!(heard.len(), 3);
    local.cancel(&mut streams, name);
    assert_eq!(local.in_flight(), 0);
}

#[test]
fn a_ring_reaches_the_handler_once() {
    let ((mut local, told), mut keeps, mut heard) = (local(), Keeps::default(), Heard::new());
    let notifier = local.notifier();
    assert!(call(&mut local, &mut keeps, &mut heard).is_some());
    (0..3).for_each(|_| notifier.notify());
    told.recv().unwrap();
    assert!(told.try_recv().is_err());
    turn(&mut local, &mut keeps, &mut heard);
    turn(&mut local, &mut keeps, &mut heard);
    assert!(matches!(&heard[..], [(Some(_), LocalEvent::End(0), says)] if says == b"notified"));
}

#[test]
fn an_answer_after_the_caller_is_gone_is_dropped() {
    let ((mut local, told), mut keeps, mut heard) = (local(), Keeps::default(), Heard::new());
    assert!(call(&mut local, &mut keeps, &mut heard).is_some());
    drop(local);
    assert!(keeps.replies[0].is_cancelled());
    keeps.replies.clear();
    assert!(told.try_recv().is_err());
}
