//! What a client keeps that nobody takes.

use super::*;
use crate::client::BACKLOG_BYTES;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_sys::epoll::wait_readable;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, HELLO_BYTES, Header, VERSION, Welcome};

const ITEMS: u32 = 200;
const ITEM_BYTES: usize = 64 << 10;

/// A client, and a server of one stream that sends all of its items at once, and then answers calls.
fn flooded() -> (AsyncClient, Frames, JoinHandle<()>) {
    flooded_beside(0, |_| ()).1
}

/// The same after `before`, which makes `others` calls that the server does not answer.
fn flooded_beside<B>(
    others: usize,
    before: impl FnOnce(&AsyncClient) -> B,
) -> (B, (AsyncClient, Frames, JoinHandle<()>)) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let serving = std::thread::spawn(move || {
        theirs.read_exact(&mut [0; HELLO_BYTES]).unwrap();
        let welcome = Welcome { version: VERSION, fault: 0, ring_bytes: 0, credit: ITEMS, schema: [0; 32] };
        theirs.write_all(&welcome.encode()).unwrap();
        let mut head = [0; HEADER_BYTES];
        (0..=others).for_each(|_| theirs.read_exact(&mut head).unwrap());
        let stream = Header::decode(&head, 0).unwrap().unwrap();
        for number in 0..ITEMS {
            let item = Header::new(FrameKind::Item, stream.id, ITEM_BYTES as u32);
            // Fails once the client has its answer and is gone.
            let _ = theirs.write_all(&item.encode());
            let _ = theirs.write_all(&[number as u8; ITEM_BYTES]);
        }
        while theirs.read_exact(&mut head).is_ok() {
            let header = Header::decode(&head, 0).unwrap().unwrap();
            if header.kind == FrameKind::Request {
                let _ = theirs.write_all(&Header::new(FrameKind::End, header.id, 0).encode());
            }
        }
    });
    let client = Client::over(ours.into(), ClientOptions::default()).unwrap();
    let client = AsyncClient::new(client).unwrap();
    let before = before(&client);
    let stream = client.begin(b"", CallOptions::default()).unwrap();
    while !client.shared.state.lock().sated {
        client.drive(Wait::Until(Instant::now() + Duration::from_secs(60))).unwrap();
        assert!(client.shared.state.lock().kept_bytes < 2 * BACKLOG_BYTES, "all of it is kept");
    }
    client.drive(Wait::Poll).unwrap();
    assert!(!wait_readable(client.descriptor(), 50).unwrap(), "nothing is to be done until it is taken");
    (before, (client, stream, serving))
}

#[test]
fn what_nobody_takes_stops_the_server_and_comes_whole_once_it_is_taken() {
    let (client, mut stream, serving) = flooded();
    client
        .run_until(async {
            for number in 0..ITEMS {
                assert_eq!(stream.next().await.unwrap(), [number as u8; ITEM_BYTES]);
            }
        })
        .unwrap();
    assert_eq!(client.shared.state.lock().kept_bytes, 0);
    drop((stream, client));
    serving.join().unwrap();
}

/// As a wait with a time limit does.
#[test]
fn a_future_that_was_dropped_has_nothing_read_for_it() {
    let given_up = |client: &AsyncClient| {
        let mut other = client.begin(b"", CallOptions::default()).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut next = Box::pin(other.next());
        // Twice: only then is it sure that nothing is there yet.
        (0..2).for_each(|_| assert!(next.as_mut().poll(&mut context).is_pending()));
        drop(next);
        other
    };
    let (other, (client, stream, serving)) = flooded_beside(1, given_up);
    drop((other, stream));
    assert_eq!(client.shared.state.lock().kept_bytes, 0);
    drop(client);
    serving.join().unwrap();
}

#[test]
fn a_call_behind_what_nobody_takes_is_answered() {
    let (client, mut stream, serving) = flooded();
    let answer = client.run_until(async {
        assert_eq!(client.call(vec![]).await.unwrap(), b"");
        stream.next().await.unwrap()
    });
    assert_eq!(answer.unwrap(), [0; ITEM_BYTES]);
    drop(stream);
    assert_eq!(client.shared.state.lock().kept_bytes, 0);
    drop(client);
    serving.join().unwrap();
}

#[test]
fn a_stream_that_is_dropped_lets_the_others_go_on() {
    let (client, stream, serving) = flooded();
    drop(stream);
    assert!(!client.shared.state.lock().sated);
    assert_eq!(client.run_until(client.call(vec![])).unwrap().unwrap(), b"");
    drop(client);
    serving.join().unwrap();
}
