//! Tokens, from the making of one to a server that asks for it.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, PROGRAM, Server, fails, run, says};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_rpc::client::Error;
use thalweg_rpc::{Bearer, Client, ClientOptions};
use thalweg_wire::fault::Fault;

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

/// What is answered to a request whose body may be shorter than it says.
fn ask(server: &Server, head: &str, length: usize, body: &str) -> (u16, String) {
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{head}Host: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    peer.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// The same in JSON, at one of the paths of subscriptions.
fn control(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} /v1/stream/{path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    );
    let (status, said) = ask(server, &head, body.len(), &body);
    (status, serde_json::from_str(&said).unwrap_or_default())
}

/// A shell is given what the server says to try, as it says it.
#[test]
fn what_a_server_says_to_try_works_with_tokens_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let token = mint(&file, &["me", "--scope", "append,read"]);
    for more in [&["--tokens", file.to_str().unwrap()][..], &[]] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--durability", "memory", "--log-level", "error"]);
        let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let tries: Vec<_> = lines.by_ref().skip_while(|line| !line.starts_with("try")).take(4).collect();
        let server = Server { child, url: String::new(), greeting: tries.join("\n") };
        for line in &tries[1..] {
            // A follower goes on until it has seen enough.
            let line = line.replace("live=sse", "live=long-poll");
            let mut shell = Command::new("bash");
            let output =
                shell.args(["-c", &format!("{line} -sSf")]).env("THALWEG_TOKEN", &token).output().unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(!line.contains("curl -N") || said == "hello, stream\n", "{said:?}");
        }
        assert_eq!(server.greeting.contains("thalweg token"), !more.is_empty(), "{}", server.greeting);
    }
}

#[test]
fn a_server_with_tokens_serves_whom_they_allow_and_takes_new_ones_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let admin = mint(&file, &["operator", "--scope", "admin"]);
    let writer = mint(&file, &["writer", "--scope", "append,read", "--prefix", "logs/"]);
    let ingest = mint(&file, &["ingest", "--scope", "append", "--prefix", "logs/"]);
    let path = file.to_str().unwrap();
    // With tokens, an address that others reach is no mistake.
    let server = Server::start(&directory.path().join("data"), "0.0.0.0:0", &["--tokens", path]);
    let url = server.url.replace("0.0.0.0", "127.0.0.1");

    let (code, said) = fails(&url, &["create", "logs/a"]);
    assert!(code == 1 && said.contains("(401)") && said.contains("Authorization"), "{said}");
    says(&url, &["create", "logs/a", "--token", &writer]);
    says(&url, &["append", "logs/a", "hello", "--token", &writer]);
    assert_eq!(says(&url, &["read", "logs/a", "--token", &writer]), "hello");
    says(&url, &["append", "logs/a", ", world", "--token", &ingest]);
    let (code, said) = fails(&url, &["read", "logs/a", "--token", &ingest]);
    assert!(code == 1 && said.contains("(403)") && said.contains("read"), "{said}");
    let (code, said) = fails(&url, &["append", "other", "x", "--token", &ingest]);
    assert!(code == 1 && said.contains("(403)"), "{said}");
    let (code, said) = fails(&url, &["rm", "logs/a", "--token", &writer]);
    assert!(code == 1 && said.contains("(403)") && said.contains("admin"), "{said}");
    let (code, said) = fails(&url, &["create", "other", "--token", &writer]);
    assert!(code == 1 && said.contains("prefix"), "{said}");
    let (code, _) = fails(&url, &["read", "logs/b", "--token", &writer]);
    assert_eq!(code, 4);
    for token in [&writer, &ingest, &admin] {
        let head = format!("PUT /v1/stream/logs//a HTTP/1.1\r\nAuthorization: Bearer {token}\r\n");
        let (status, said) = ask(&server, &head, 0, "");
        assert!(status == 400 && said.contains("name-segment"), "{said}");
    }
    assert_eq!(ask(&server, "PUT /v1/stream/logs//a HTTP/1.1\r\n", 0, "").0, 401);
    let head = says(&url, &["--output", "json", "head", "logs/a", "--token", &admin]);
    assert!(head.contains("logs/a"), "{head}");

    let late = mint(&file, &["late", "--scope", "read"]);
    assert_eq!(fails(&url, &["read", "logs/a", "--token", &late]).0, 1);
    server.signal("HUP");
    let start = Instant::now();
    while !run(&url, &["read", "logs/a", "--token", &late], "").status.success() {
        assert!(start.elapsed() < PATIENCE, "the new token is never taken");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.end();
}

#[test]
fn a_server_whose_tokens_came_through_a_pipe_does_not_wait_for_more_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let [file, pipe] = ["tokens.toml", "pipe"].map(|name| directory.path().join(name));
    let token = mint(&file, &["reader", "--scope", "read"]);
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
    let (tokens, to) = (std::fs::read(&file).unwrap(), pipe.clone());
    let writer = std::thread::spawn(move || std::fs::write(to, tokens).unwrap());
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &["--tokens", pipe.to_str().unwrap()]);
    writer.join().unwrap();
    server.signal("HUP");
    assert_eq!(fails(&server.url, &["read", "a", "--token", &token]).0, 4);
    server.end();
}

#[test]
fn a_token_is_withdrawn_while_the_configuration_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let [file, configuration] = ["tokens.toml", "thalweg.toml"].map(|name| directory.path().join(name));
    let token = mint(&file, &["reader", "--scope", "read"]);
    std::fs::write(&configuration, "log_level = 'error'\n").unwrap();
    let flags = ["--config", configuration.to_str().unwrap(), "--tokens", file.to_str().unwrap()];
    let server = Server::start(&directory.path().join("data"), "127.0.0.1:0", &flags);
    assert_eq!(fails(&server.url, &["read", "a", "--token", &token]).0, 4);
    std::fs::write(&configuration, "log_level = 'wrong'\n").unwrap();
    std::fs::write(&file, "").unwrap();
    server.signal("HUP");
    let start = Instant::now();
    while fails(&server.url, &["read", "a", "--token", &token]).0 != 1 {
        assert!(start.elapsed() < PATIENCE, "the token is still good");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.end();
}

#[test]
fn a_body_is_not_waited_for_unless_a_token_came_with_its_head() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    mint(&file, &["operator", "--scope", "admin"]);
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &["--tokens", file.to_str().unwrap()]);
    for line in
        ["OPTIONS /v1/stream/a", "OPTIONS /healthz", "GET /healthz", "POST /healthz", "PUT /v1/stream/a"]
    {
        let (status, said) = ask(&server, &format!("{line} HTTP/1.1\r\n"), 16 << 20, "");
        assert!(status == 401 && said.contains("token-required"), "{line}: {status} {said}");
    }
    for verb in ["ack", "release", "callback"] {
        let line = format!("POST /v1/stream/__ds/subscriptions/s/{verb} HTTP/1.1\r\n");
        for length in [100, 64 << 10, (64 << 10) + 1] {
            let (status, said) = ask(&server, &line, length, "");
            assert!(status == 401 && said.contains("token-required"), "{verb} {length}: {status} {said}");
        }
        let line = format!("{line}Authorization: Bearer theirs\r\n");
        let (status, said) = ask(&server, &line, (64 << 10) + 1, "");
        assert!(status == 413 && said.contains("acks-too-large"), "{verb}: {status} {said}");
    }
    assert_eq!(ask(&server, "GET /healthz HTTP/1.1\r\n", 0, "").0, 200);
    assert_eq!(ask(&server, "OPTIONS /v1/stream/a HTTP/1.1\r\n", 0, "").0, 204);
}

#[test]
fn who_claims_acks_and_releases_with_the_token_of_its_claim() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let admin = mint(&file, &["operator", "--scope", "admin"]);
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &["--tokens", file.to_str().unwrap()]);
    let admins = |method: &str, path: &str, body: &Value| control(&server, method, path, &admin, body);
    assert_eq!(admins("PUT", "wake", &json!([])).0, 201);
    let pull =
        json!({ "type": "pull-wake", "pattern": "events/*", "wake_stream": "wake", "lease_ttl_ms": 600_000 });
    assert_eq!(admins("PUT", "__ds/subscriptions/s", &pull).0, 201);
    assert_eq!(admins("PUT", "events/a", &json!({ "event": 1 })).0, 201);

    let claim = json!({ "worker": "one" });
    assert_eq!(control(&server, "POST", "__ds/subscriptions/s/claim", "nobody", &claim).0, 401);
    let start = Instant::now();
    // Until it is known that the stream belongs to the subscription, there is nothing to claim.
    let claimed = loop {
        let (status, claimed) = admins("POST", "__ds/subscriptions/s/claim", &claim);
        if status == 200 {
            break claimed;
        }
        assert!(status == 409 && start.elapsed() < PATIENCE, "{claimed}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let token = claimed["token"].as_str().unwrap();
    let acks = json!([{ "stream": "events/a", "offset": claimed["streams"][0]["tail_offset"] }]);
    let work = json!({ "wake_id": claimed["wake_id"], "generation": claimed["generation"], "acks": acks });
    let asked = |verb: &str, token: &str| {
        control(&server, "POST", &format!("__ds/subscriptions/s/{verb}"), token, &work)
    };
    for wrong in ["", "nobody", &admin] {
        for verb in ["ack", "release", "callback"] {
            let (status, said) = asked(verb, wrong);
            assert_eq!((status, &said["error"]["code"]), (401, &json!("TOKEN_INVALID")), "{verb} {wrong}");
        }
    }
    assert_eq!(asked("callback", token).0, 401, "a claim's token is for no callback");
    assert_eq!(asked("ack", token).0, 200);
    let (_, described) = admins("GET", "__ds/subscriptions/s", &Value::Null);
    assert_eq!(described["streams"][0]["acked_offset"], claimed["streams"][0]["tail_offset"]);
    assert_eq!(asked("release", token).0, 204);
    // And with it nothing else is done.
    for (method, path) in
        [("GET", "__ds/subscriptions/s"), ("DELETE", "__ds/subscriptions/s"), ("GET", "events/a")]
    {
        assert_eq!(control(&server, method, path, token, &Value::Null).0, 401, "{method} {path}");
    }
    // A webhook's receiver has no token of ours, and asks for the keys that it is signed with.
    let (status, said) = ask(&server, "GET /v1/stream/__ds/jwks.json HTTP/1.1\r\n", 0, "");
    assert!(status == 200 && said.contains("OKP"), "{status} {said}");
}

/// A server, and a token of it for everything.
fn guarded(directory: &Path, label: &str) -> (Server, String) {
    let file = directory.join(format!("{label}.toml"));
    let token = mint(&file, &[label, "--scope", "admin"]);
    let server = Server::start(&directory.join(label), "127.0.0.1:0", &["--tokens", file.to_str().unwrap()]);
    (server, token)
}

#[test]
fn a_copy_shows_each_server_its_own_token_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (from, ours) = guarded(directory.path(), "from");
    let (to, theirs) = guarded(directory.path(), "to");
    says(&from.url, &["create", "a", "--token", &ours]);
    says(&from.url, &["append", "a", "moved", "--token", &ours]);
    let there = format!("{}/v1/stream/b", to.url);
    let copy = |more: &[&str]| run(&from.url, &[&["cp", "a", "--token", &ours], more].concat(), "");
    assert_eq!(copy(&[&there]).status.code(), Some(1), "one server's token is not shown to another");
    for more in [&[&there[..], "--to-token", &theirs][..], &["c", "--to-url", &to.url, "--to-token", &theirs]]
    {
        let made = copy(more);
        assert!(made.status.success(), "{more:?}: {}", String::from_utf8_lossy(&made.stderr));
    }
    for name in ["b", "c"] {
        assert_eq!(says(&to.url, &["read", name, "--token", &theirs]), "moved");
    }
    // On one server with another token, as far as that goes; and never onto itself.
    assert!(copy(&["d", "--to-token", &ours]).status.success());
    assert_eq!(copy(&["e", "--to-token", "wrong"]).status.code(), Some(1));
    assert_eq!(copy(&["a", "--to-token", "wrong"]).status.code(), Some(6));
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
        "GET /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: bearer {token}\r\n\r\n"
    );
    peer.write_all(request.as_bytes()).unwrap();
    let answer = std::io::read_to_string(peer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Cache-Control: private"), "{answer}");
}

#[test]
fn a_server_does_not_start_where_everybody_could_do_everything_or_with_a_wrong_token_file() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let serve = ["serve", "--data", data, "--listen", "0.0.0.0:0"];
    let (code, said) = fails("", &serve);
    assert!(code == 2 && said.contains("--tokens"), "{said}");
    let (code, said) = fails("", &[&serve[..], &["--tokens", "/nowhere"]].concat());
    assert!(code == 2 && said.contains("cannot read the tokens in /nowhere"), "{said}");
    let file = directory.path().join("tokens.toml");
    let digest = "0123456789abcdef".repeat(4);
    let table = |label: &str| format!("[{label}]\nsha256 = \"{digest}\"\nscopes = [\"read\"]\n");
    std::fs::write(&file, table("one") + &table("two")).unwrap();
    let (code, said) = fails("", &[&serve[..], &["--tokens", file.to_str().unwrap()]].concat());
    assert!(code == 2 && said.contains("[one] and [two] have the same sha256"), "{said}");
}

#[test]
fn what_goes_to_the_token_file_holds_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let output = run("", &["token", "operator", "--scope", "admin"], "");
    assert!(output.status.success());
    std::fs::write(&file, &output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let token = said.split_whitespace().find(|word| word.starts_with("thalweg_")).unwrap();
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.starts_with("[operator]\n") && !written.contains("thalweg_"), "{written}");
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &["--tokens", file.to_str().unwrap()]);
    says(&server.url, &["create", "a", "--token", token]);
    server.end();
}

/// What a server with these flags logs until it has ended.
fn logged(directory: &Path, flags: &[&str]) -> String {
    let log = directory.join("log");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--durability", "memory", "--reactors", "1"]).args(flags);
    command.stderr(std::fs::File::create(&log).unwrap());
    Server::started(command).end();
    std::fs::read_to_string(log).unwrap()
}

#[test]
fn what_is_allowed_and_hardly_meant_is_warned_of_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    std::fs::write(&file, "# nobody yet\n").unwrap();
    let tokens = ["--tokens", file.to_str().unwrap()];
    let open = "everybody may do everything";
    let said = logged(directory.path(), &["--listen", "0.0.0.0:0", "--insecure-listen-anywhere"]);
    assert!(said.contains("WARN") && said.contains(open) && said.contains("http://0.0.0.0:0"), "{said}");
    // Nobody else reaches it, so the flag opens nothing.
    let said = logged(directory.path(), &["--listen", "127.0.0.1:0", "--insecure-listen-anywhere"]);
    assert!(!said.contains(open), "{said}");
    let said = logged(directory.path(), &[&["--listen", "0.0.0.0:0"], &tokens[..]].concat());
    assert!(!said.contains(open) && said.contains("the token file has no token"), "{said}");
    mint(&file, &["somebody"]);
    let said = logged(directory.path(), &[&["--listen", "127.0.0.1:0"], &tokens[..]].concat());
    assert!(!said.contains("the token file has no token"), "{said}");
}

#[test]
fn a_client_of_services_shows_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.toml");
    let token = mint(&file, &["operator", "--scope", "admin"]);
    let data = directory.path().join("data");
    let flags = ["--tokens", file.to_str().unwrap(), "--rpc", "on"];
    let server = Server::start(&data, "127.0.0.1:0", &flags);
    let url = format!("{}/rpc/state", server.url);
    let called = |token: Option<Bearer>| {
        let options = ClientOptions { token, ..ClientOptions::default() };
        Client::new(&url, options).unwrap().call("Get", r#"["main","a"]"#).map(str::to_owned)
    };
    assert_eq!(called(Some(Bearer::new(&token).unwrap())).unwrap(), r#"{"value":null}"#);
    for wrong in [None, Some(Bearer::new("another").unwrap())] {
        let error = called(wrong).unwrap_err();
        assert!(
            matches!(&error, Error::Failed(failure) if failure.fault == Fault::PermissionDenied),
            "{error}"
        );
    }
    server.end();
}
