//! Pages whose name was made to lead to this machine once they were loaded.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, fails};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// What is answered to a head and nothing more.
fn answer(mut peer: impl Read + Write, head: &str) -> String {
    write!(peer, "{head}\r\n\r\n").unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    answer
}

fn get(peer: impl Read + Write, path: &str, host: &str) -> String {
    answer(peer, &format!("GET {path} HTTP/1.1\r\nConnection: close\r\nHost: {host}"))
}

#[test]
fn on_loopback_nothing_is_said_to_whoever_takes_it_for_somebody_else() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let listen = format!("127.0.0.1:0,unix:{}", socket.display());
    let names = ["--cors-origins", "https://app.example", "--hosts", "streams.example"];
    let flags = [&names[..], &["--long-poll-timeout-ms", "1"]].concat();
    let server = Server::start(&directory.path().join("data"), &listen, &flags);
    let connect = || TcpStream::connect(server.address()).unwrap();
    let port = server.address().rsplit(':').next().unwrap();
    for path in ["/v1/streams", "/v1/stats", "/metrics", "/healthz"] {
        for host in ["evil.example", "localhost.evil.example"] {
            let said = get(connect(), path, &format!("{host}:{port}"));
            assert!(
                said.starts_with("HTTP/1.1 421 Misdirected Request\r\n") && said.contains("host-unknown"),
                "{host}{path}: {said}"
            );
            assert!(!said.contains("Allow-Origin"), "{said}");
        }
        for host in ["127.0.0.1", "localhost", "[::1]", "streams.example"] {
            let said = get(connect(), path, &format!("{host}:{port}"));
            assert!(said.starts_with("HTTP/1.1 200 "), "{host}{path}: {said}");
        }
        // No page has a browser come this way.
        let said = get(UnixStream::connect(&socket).unwrap(), path, "evil.example");
        assert!(said.starts_with("HTTP/1.1 200 "), "{path}: {said}");
    }
    // A HEAD brings no words, so a verb that begins with one asks for them; and no token is to blame.
    let unknown = format!("http://127.1:{port}");
    for verb in [&["head", "a"][..], &["tail", "a"], &["append", "a", "x"], &["cp", "a", "b"]] {
        let (code, said) = fails(&unknown, verb);
        assert!(code == 1 && said.contains("--hosts") && !said.contains("token"), "{verb:?}: {said}");
    }
    let put = "PUT /v1/stream/a HTTP/1.1\r\nHost: evil.example";
    for length in [0, 16 << 20] {
        let said = answer(connect(), &format!("{put}\r\nConnection: close\r\nContent-Length: {length}"));
        assert!(
            said.starts_with("HTTP/1.1 421 Misdirected Request\r\n") && said.contains("host-unknown"),
            "{length}: {said}"
        );
    }
    // Nor once a connection has followed a stream.
    let poll = "GET /v1/stream/a?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost";
    let list = "GET /v1/streams HTTP/1.1\r\nConnection: close\r\nHost: evil.example";
    answer(connect(), "PUT /v1/stream/a HTTP/1.1\r\nConnection: close\r\nHost: localhost");
    let said = answer(connect(), &format!("{poll}\r\n\r\n{list}"));
    assert!(said.starts_with("HTTP/1.1 204 ") && said.contains("\r\n\r\nHTTP/1.1 421 "), "{said}");
    // RFC 9112 3.2.2: where the target is a URL, that says whom it is for.
    for (target, host, status) in [("localhost", "evil.example", "201"), ("evil.example", "localhost", "421")]
    {
        let put = format!("PUT http://{target}:{port}/v1/stream/b HTTP/1.1\r\nConnection: close");
        let said = answer(connect(), &format!("{put}\r\nContent-Length: 0\r\nHost: {host}"));
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {host}: {said}");
        let names_it = said.contains(&format!("Location: http://{target}:{port}/v1/stream/b\r\n"));
        assert_eq!(names_it, status == "201", "{said}");
    }
    // No browser leaves it out.
    assert!(answer(connect(), "GET /healthz HTTP/1.0").starts_with("HTTP/1.1 200 "));
    server.end();
}

#[test]
fn a_name_that_no_host_can_be_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for wrong in ["a.example:4437", "http://a.example", "a.example b.example", "*.example", ""] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--hosts", wrong, "--data"]).arg(&data);
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && complaint.contains("engine.example"),
            "{wrong}: {complaint}"
        );
        assert!(!data.exists(), "{wrong}");
    }
}

#[test]
fn with_tokens_or_where_others_come_in_it_goes_by_any_name() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.toml");
    std::fs::write(&tokens, "").unwrap();
    let with_tokens = ["--tokens", tokens.to_str().unwrap()];
    for (listen, flags) in [("127.0.0.1:0", &with_tokens[..]), ("0.0.0.0:0", &["--insecure-listen-anywhere"])]
    {
        let server = Server::start(&directory.path().join("data"), listen, flags);
        let port = server.address().rsplit(':').next().unwrap();
        let peer = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let said = get(peer, "/healthz", "streams.example");
        assert!(said.starts_with("HTTP/1.1 200 "), "{listen}: {said}");
        server.end();
    }
}
