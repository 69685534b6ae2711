//! A server whose files may not grow: what needs room is refused, and everything else goes on.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, ask};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

const RECORD_BYTES: usize = 100_000;
/// Far more records than may be kept.
const RECORDS_MAX: usize = 100;

/// `serve`, where no file may have more than so many blocks of 512 bytes.
fn within(blocks: usize, data: &Path) -> Command {
    let script = format!("ulimit -f {blocks} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    let flags = ["--log-level", "error", "--durability", "os"];
    command
        .args(["-c", &script, PROGRAM, "serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .args(flags);
    command.stdin(Stdio::null());
    command
}

fn append(server: &Server) -> String {
    let head =
        "POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nConnection: close";
    let request = format!("{head}\r\nContent-Length: {RECORD_BYTES}\r\n\r\n{}", "x".repeat(RECORD_BYTES));
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    answer
}

/// Bytes of the stream, as far as they can be read.
fn kept(server: &Server) -> usize {
    let (mut offset, mut bytes) = ("-1".to_owned(), 0);
    loop {
        let answer = ask(server, &format!("GET /v1/stream/s?offset={offset} HTTP/1.1"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        bytes += body.len();
        if head.contains("Stream-Up-To-Date: true") {
            return bytes;
        }
        let next = head.lines().find_map(|line| line.strip_prefix("Stream-Next-Offset: "));
        next.unwrap().clone_into(&mut offset);
    }
}

#[test]
fn a_limit_of_file_sizes_is_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::started(within(12_000, directory.path()));
    let created = ask(&server, "PUT /v1/stream/s HTTP/1.1\r\nContent-Type: text/plain");
    assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
    let answers: Vec<String> = (0..RECORDS_MAX).map(|_| append(&server)).collect();
    let taken = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 204 ")).count();
    let refused = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 507 ")).count();
    assert!(taken > 0 && refused > 0 && taken + refused == RECORDS_MAX, "{taken} taken, {refused} refused");
    assert_eq!(kept(&server), taken * RECORD_BYTES);
    server.end();
    let server = Server::started(within(12_000, directory.path()));
    assert_eq!(kept(&server), taken * RECORD_BYTES, "and after a restart");
    server.end();
}
