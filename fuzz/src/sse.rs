//! Server-sent events: what the server writes, as both readers read it.

use thalweg_wire::sse::{Control, base64_event, control_event, text_event, unfinished_bytes};
use thalweg_wire::token::Token;

/// A payload comes back with its line ends as line feeds, whichever pieces it was written in. The first bytes
/// say where it is cut, and how the stream stands.
pub fn written(data: &[u8]) {
    let Some(([cut, flags], payload)) = data.split_first_chunk() else { return };
    let (front, back) = payload.split_at(usize::from(*cut).min(payload.len()));
    let next = Token { incarnation: u64::from(*cut) << 40, offset: payload.len() as u64 };
    let (up_to_date, closed) = (flags & 1 != 0, flags & 2 != 0);
    let cursor = (flags & 4 != 0).then_some(u64::from(*flags) << 33);
    let control = Control { next, cursor, up_to_date, closed };
    let token = String::from_utf8(next.encode().to_vec()).expect("a token is text");
    let mut stream = Vec::new();
    text_event(&mut stream, [front, back]);
    control_event(&mut stream, &control);
    let plain = plain(payload);
    thalweg_server::fuzzing::written(&plain, &token, cursor, closed, &stream);
    thalweg_load::fuzzing::written(&plain, &stream);
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    base64_event(&mut whole, [payload]);
    base64_event(&mut pieces, [front, back]);
    assert_eq!(whole, pieces);
    assert!(unfinished_bytes(payload) <= payload.len().min(3));
}

/// With line feeds where lines end in any way.
fn plain(payload: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(payload.len());
    let mut bytes = payload.iter().peekable();
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'\r' { b'\n' } else { *byte });
        if *byte == b'\r' {
            bytes.next_if_eq(&&b'\n');
        }
    }
    plain
}
