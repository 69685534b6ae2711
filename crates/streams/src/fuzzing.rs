//! What the fuzz targets (`fuzz/`) reach of this crate beside what everybody does. Built with `--cfg fuzzing`
//! alone.

use crate::model::Model;
use crate::subscriptions::Subscriptions;
use crate::{Loopback, Options, Streams};
use thalweg_wire::exchange::{Advance, Answer, Live, Method, Now, Request, Response, Service};
use thalweg_wire::field::Name;
use thalweg_wire::http1::{BodyLength, HeadParser, Limits, parse_response};

/// 2026-01-01T00:00:00Z.
const NOW: Now = Now { time_us: 1_767_225_600_000_000, entropy: 7 };

/// Requests as they come over a connection: each is answered by a response that can be sent as it is, and a
/// stream that was created is there for a second, equal request.
pub fn requests(mut data: &[u8]) {
    let model = Model::default();
    let subscriptions = Subscriptions::open(&model, || Some([5; 32]));
    let options = Options {
        webhooks_loopback: Loopback::OfPrograms,
        read_only: vec!["own/".to_owned()],
        ..Options::default()
    };
    let mut streams = Streams::new(model, options).with_subscriptions(subscriptions);
    let limits = Limits::default();
    while let Ok(Some(head)) = HeadParser::default().parse(data, &limits) {
        let BodyLength::Known(length) = head.body else { return };
        let Some(body) = data[head.bytes..].get(..usize::try_from(length).unwrap_or(usize::MAX)) else {
            return;
        };
        let (method, path, query) = (head.method, head.path, head.query);
        let request = Request { method, path, query, fields: &head.fields, body, secure: false };
        let status = answered(&mut streams, &request);
        let forks = request.field(Name::StreamForkedFrom).is_some();
        if method == Method::Put && status == Some(201) && !forks {
            // Created anew if its time was over at once.
            let again = answered(&mut streams, &request);
            assert!(matches!(again, Some(200 | 201)), "the same again is answered {again:?}");
        }
        data = &data[head.bytes + body.len()..];
    }
}

/// The status of a response that is there at once.
fn answered(streams: &mut Streams<Model>, request: &Request<'_>) -> Option<u16> {
    match streams.call(request, NOW) {
        Answer::Respond(response) | Answer::After(_, response) => {
            sendable(&response, request.method == Method::Head);
            Some(response.status)
        }
        Answer::Live { topic, live, head, .. } => {
            followed(streams, topic, live, &head);
            None
        }
        Answer::Cold(_) | Answer::Later(_) => None,
    }
}

/// What comes of a live read, for as long as something comes at once.
fn followed(streams: &mut Streams<Model>, topic: usize, mut live: Live, head: &Response) {
    if head.status > 0 {
        sendable(head, false);
    }
    for _ in 0..8 {
        match streams.advance(&topic, &live, NOW) {
            Advance::Events { bytes, next, end } => {
                assert!(next >= live.offset && bytes.ends_with(b"\n\n"));
                (live.offset, live.opened) = (next, true);
                if end {
                    return;
                }
            }
            Advance::Respond(response) => return sendable(&response, false),
            Advance::Wait | Advance::Cold(_) => break,
        }
    }
    sendable(&streams.deadline(&topic, &live, NOW), false);
}

/// No word of a request breaks out of a field of its response.
fn sendable(response: &Response, to_head: bool) {
    assert!((200..500).contains(&response.status) || response.status == 501, "status {}", response.status);
    let mut text = format!("HTTP/1.1 {} x\r\n", response.status).into_bytes();
    text.extend_from_slice(&response.fields);
    text.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    let head = parse_response(&text, to_head).expect("the fields are none").expect("the head does not end");
    assert_eq!(head.bytes, text.len(), "the head ends early");
    let lines = response.fields.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(head.fields.len(), lines + 1);
}
