//! What connections keep of what came over them. Alone in its program: what the process has is looked at.

mod common;

use common::{Client, Server};
use thalweg_http::Config;
use thalweg_sys::usage::memory_bytes;

const CLIENTS: usize = 32;
const BODY_BYTES: usize = 4 << 20;

#[test]
fn a_byte_behind_a_body_does_not_keep_the_room_that_the_body_took() {
    let server = Server::start(Config::default());
    let text = format!(
        "POST /empty/200 HTTP/1.1\r\nHost: t\r\nContent-Length: {BODY_BYTES}\r\n\r\n{}G",
        "b".repeat(BODY_BYTES)
    );
    let anonymous = || memory_bytes(std::process::id()).unwrap().1;
    let before = anonymous();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(&text);
        assert_eq!(client.answer().status, 200);
    }
    let kept = anonymous().saturating_sub(before);
    assert!(kept < (CLIENTS * BODY_BYTES / 4) as u64, "{kept} bytes for {CLIENTS} bytes that are unread");
    // And each goes on with it.
    for client in &mut clients {
        client.send("ET /echo HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.answer().text(), "Get /echo -");
    }
    server.until("quiet", |counts| counts.quiet == CLIENTS);
}
