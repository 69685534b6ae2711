//! What a page of another origin reads of a refusal that the connection makes by itself.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Server, ask, says};
use std::io::{Read, Write};
use std::net::TcpStream;

const STREAM: &str = "/v1/stream/s?offset=now&live=sse";

/// Everything that is said to a head as it stands, until the connection ends.
fn said(server: &Server, head: &str) -> String {
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Heads that are refused, with the status, of a page of that origin.
fn refused(origin: &str) -> [(u16, String); 5] {
    let begin = |line: &str| format!("{line} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n");
    let many: String = (0..100).map(|number| format!("X-{number}: y\r\n")).collect();
    [
        (400, begin("GET /v1/stream/s") + "No Name: x\r\n\r\n"),
        // The rest of it never comes.
        (408, begin("GET /v1/stream/s")),
        (413, begin("PUT /v1/stream/t") + "Content-Length: 99999999999\r\n\r\n"),
        (431, begin("GET /v1/stream/s") + &many + "\r\n"),
        (503, begin(&format!("GET {STREAM}")) + "Connection: close\r\n\r\n"),
    ]
}

#[test]
fn a_page_that_is_allowed_reads_why_the_connection_refuses_and_no_other_does() {
    let directory = tempfile::tempdir().unwrap();
    let origins = "https://a.example,https://b.example";
    let bounds = ["--request-timeout-ms", "500", "--subscribers-max", "1", "--reactors", "1"];
    let flags = [&["--cors-origins", origins][..], &bounds].concat();
    let server = Server::start(directory.path(), "127.0.0.1:0", &flags);
    says(&server.url, &["create", "s"]);
    // One follower leaves no room for another.
    let mut follower = TcpStream::connect(server.address()).unwrap();
    write!(follower, "GET {STREAM} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(follower.read(&mut [0; 64]).unwrap() > 0);
    for (status, head) in refused("https://b.example") {
        let answer = said(&server, &head);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        assert!(answer.contains("Vary: Origin\r\n"), "{answer}");
        assert!(answer.contains("Access-Control-Allow-Origin: https://b.example\r\n"), "{answer}");
    }
    for (status, head) in refused("https://c.example") {
        let answer = said(&server, &head);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        assert!(answer.contains("Vary: Origin\r\n") && !answer.contains("Allow-Origin"), "{answer}");
    }
    assert!(ask(&server, "GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200 "));
    server.end();
}

#[test]
fn a_page_has_the_server_call_no_port_of_its_own_machine_unless_its_origin_is_listed() {
    let page = "https://a.example";
    let body =
        r#"{"type":"webhook","pattern":"*","webhook":{"url":"http://localhost:9/admin/shutdown?x=1"}}"#;
    let head = format!(
        "PUT /v1/stream/__ds/subscriptions/x HTTP/1.1\r\nHost: localhost\r\nOrigin: {page}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for (flags, wanted) in
        [(&[][..], 403), (&["--webhooks-loopback", "on"], 403), (&["--cors-origins", page], 201)]
    {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), "127.0.0.1:0", flags);
        let answer = said(&server, &head);
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted} ")), "{flags:?}: {answer}");
        assert!(answer.contains("Access-Control-Allow-Origin: "), "the page reads why: {answer}");
        server.end();
    }
}
