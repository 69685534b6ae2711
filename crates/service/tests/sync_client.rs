//! The client for generated code that waits, against the hand-written peer.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod peer;

use peer::{Way, echo, options, serve};
use thalweg_service::{CallOptions, SyncClient};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, Header};
use thalweg_wire::service::Call;

#[test]
fn a_call_is_sent_and_its_answer_received() {
    for way in [Way::Plain, Way::Multiplexed, Way::Shared] {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = SyncClient::connect(&endpoint, options(way)).unwrap();
        for round in 0..100_u32 {
            client.send(&round.to_le_bytes()).unwrap();
            assert_eq!(client.receive().unwrap(), round.to_le_bytes());
        }
        assert_eq!(client.receive().unwrap_err().fault, Fault::BadArgument, "nothing was asked");
    }
}

#[test]
fn a_stream_is_read_under_credit_and_one_that_is_left_is_cancelled() {
    for way in [Way::Multiplexed, Way::Shared] {
        let (endpoint, peer) = serve(way, |peer| {
            let request = peer.request().header;
            let mut credit = request.credit;
            for item in 0..100_u32 {
                while credit == 0 {
                    let granted = peer.request().header;
                    assert_eq!((granted.kind, granted.id), (FrameKind::Credit, request.id));
                    credit += granted.credit;
                }
                credit -= 1;
                peer.send(Header::new(FrameKind::Item, request.id, 0), &item.to_le_bytes());
            }
            let cancel = loop {
                let told = peer.request().header;
                if told.kind != FrameKind::Credit {
                    break told;
                }
            };
            assert_eq!((cancel.kind, cancel.id), (FrameKind::Cancel, request.id));
            let next = peer.request();
            peer.fail(&request, Fault::Cancelled, "");
            peer.end(&next.header, b"next");
        });
        let mut client = SyncClient::connect(&endpoint, options(way)).unwrap();
        client.set_options(CallOptions { credit: Some(4), ..CallOptions::default() });
        client.send(b"count").unwrap();
        for item in 0..99_u32 {
            assert_eq!(client.receive().unwrap(), item.to_le_bytes());
        }
        client.send(b"other").unwrap();
        assert_eq!(client.receive().unwrap(), b"next");
        peer.join();
    }
}

#[test]
fn a_stream_that_is_left_is_cancelled_without_another_call() {
    for way in [Way::Multiplexed, Way::Shared] {
        let (endpoint, peer) = serve(way, |peer| {
            let request = peer.request().header;
            peer.send(Header::new(FrameKind::Item, request.id, 0), b"item");
            let told = peer.request().header;
            assert_eq!((told.kind, told.id), (FrameKind::Cancel, request.id));
        });
        let mut client = SyncClient::connect(&endpoint, options(way)).unwrap();
        client.send(b"count").unwrap();
        assert_eq!(client.receive().unwrap(), b"item");
        client.leave();
        peer.join();
        assert_eq!(client.receive().unwrap_err().fault, Fault::BadArgument, "nothing was asked");
    }
}

#[test]
fn a_stream_gives_credit_by_what_it_was_given_itself_whatever_further_calls_are_given() {
    const ITEMS: u32 = 20;
    let (endpoint, peer) = serve(Way::Multiplexed, |peer| {
        let request = peer.request().header;
        let mut credit = request.credit;
        for item in 0..ITEMS {
            while credit == 0 {
                let told = peer.request().header;
                assert_eq!(told.kind, FrameKind::Credit, "it waits for items, and gives nothing for them");
                credit += told.credit;
            }
            credit -= 1;
            peer.send(Header::new(FrameKind::Item, request.id, 0), &item.to_le_bytes());
        }
    });
    let mut client = SyncClient::connect(&endpoint, options(Way::Multiplexed)).unwrap();
    let call = |credit| CallOptions {
        credit: Some(credit),
        deadline: Some(std::time::Duration::from_secs(60)),
        ..CallOptions::default()
    };
    client.set_options(call(2));
    client.send(b"count").unwrap();
    client.set_options(call(1_000));
    for item in 0..ITEMS {
        assert_eq!(client.receive().unwrap(), item.to_le_bytes());
    }
    peer.join();
}
