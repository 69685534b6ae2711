//! Tokens, from the making of one to a server that asks for it.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Server, fails, run, says};
use serde_json::Value;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes a token, writes its table behind those there are, and says the token.
fn mint(file: &Path, arguments: &[&str]) -> String {
    let made = says("", &[&["--output", "json", "token"], arguments].concat());
    let made: Value = serde_json::from_str(&made).unwrap();
    let known = std::fs::read_to_string(file).unwrap_or_default();
    let table = format!(
        "[{}]\nsha256 = {}\nscopes = {}\nprefix = {}\n",
        made["label"].as_str().unwrap(),
        made["sha256"],
        made["scopes"],
        made["prefix"]
    );
    std::fs::write(file, known + &table).unwrap();
    made["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_with_tokens_serves_whom_they_allow_and_takes_new_ones_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let admin = mint(&file, &["operator", "--scope", "admin"]);
    let writer = mint(&file, &["writer", "--scope", "append,read", "--prefix", "logs/"]);
    let path = file.to_str().unwrap();
    // With tokens, an address that others reach is no mistake.
    let server = Server::start(&directory.path().join("data"), "0.0.0.0:0", &["--tokens", path]);
    let url = server.url.replace("0.0.0.0", "127.0.0.1");

    let (code, said) = fails(&url, &["create", "logs/a"]);
    assert!(code == 1 && said.contains("(401)") && said.contains("Authorization"), "{said}");
    says(&url, &["create", "logs/a", "--token", &writer]);
    says(&url, &["append", "logs/a", "hello", "--token", &writer]);
    assert_eq!(says(&url, &["read", "logs/a", "--token", &writer]), "hello");
    let (code, said) = fails(&url, &["rm", "logs/a", "--token", &writer]);
    assert!(code == 1 && said.contains("(403)") && said.contains("admin"), "{said}");
    let (code, said) = fails(&url, &["create", "other", "--token", &writer]);
    assert!(code == 1 && said.contains("prefix"), "{said}");
    let (code, _) = fails(&url, &["read", "logs/b", "--token", &writer]);
    assert_eq!(code, 4);
    let head = says(&url, &["--output", "json", "head", "logs/a", "--token", &admin]);
    assert!(head.contains("logs/a"), "{head}");

    let late = mint(&file, &["late", "--scope", "read"]);
    assert_eq!(fails(&url, &["read", "logs/a", "--token", &late]).0, 1);
    server.signal("HUP");
    let start = Instant::now();
    while !run(&url, &["read", "logs/a", "--token", &late], "").status.success() {
        assert!(start.elapsed() < Duration::from_secs(10), "the new token is never taken");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.end();
}

#[test]
fn what_a_token_guards_is_for_no_shared_cache() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let token = mint(&file, &["all", "--scope", "admin"]);
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &["--tokens", file.to_str().unwrap()]);
    says(&server.url, &["create", "a", "--token", &token]);
    says(&server.url, &["append", "a", "x", "--token", &token]);
    let mut peer = TcpStream::connect(server.address()).unwrap();
    let request = format!(
        "GET /v1/stream/a HTTP/1.1\r\nHost: t\r\nConnection: close\r\nAuthorization: bearer {token}\r\n\r\n"
    );
    std::io::Write::write_all(&mut peer, request.as_bytes()).unwrap();
    let answer = std::io::read_to_string(peer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Cache-Control: private"), "{answer}");
}

#[test]
fn a_server_does_not_start_where_everybody_could_do_everything_or_with_a_wrong_token_file() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let serve = ["serve", "--data", data, "--listen", "0.0.0.0:0"];
    let (code, said) = fails("", &serve);
    assert!(code == 1 && said.contains("--tokens"), "{said}");
    let (code, said) = fails("", &[&serve[..], &["--tokens", "/nowhere"]].concat());
    assert!(code == 1 && said.contains("cannot read the tokens in /nowhere"), "{said}");
}
