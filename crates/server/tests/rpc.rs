//! Services of the program, called by JSON-RPC.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, says};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use thalweg_rpc::client::Error;
use thalweg_rpc::{Client, ClientOptions};
use thalweg_wire::fault::Fault;

fn client(url: &str, name: &str) -> Client {
    Client::new(&format!("{url}/rpc/{name}"), ClientOptions::default()).unwrap()
}

fn call(client: &mut Client, method: &str, params: &Value) -> Value {
    serde_json::from_str(client.call(method, &params.to_string()).unwrap()).unwrap()
}

fn fault(error: &Error) -> Fault {
    match error {
        Error::Failed(failure) => failure.fault,
        Error::Remote(said) => said.fault().unwrap(),
    }
}

#[test]
fn it_is_off_unless_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let error = client(&server.url, "log").call("Head", r#"["a"]"#).map(str::to_owned).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains(
            "404: no services are served at this address: the operator turns them on with --rpc on"
        ) && !said.contains('{'),
        "{said}"
    );
}

#[test]
fn the_log_is_called_from_every_reactor_and_is_the_one_that_http_has() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--rpc", "on", "--reactors", "3", "--drain-grace-ms", "3600000"];
    let server = Server::start(directory.path(), "127.0.0.1:0", &flags);
    for number in 0..12 {
        let mut log = client(&server.url, "log");
        let name = format!("notes/{number}");
        let create = json!({ "name": name, "contentType": "text/plain", "closed": false }).to_string();
        let append = json!({ "name": name, "data": "aGVsbG8=", "contentType": "text/plain", "close": true })
            .to_string();
        // Durable each, and answered in order.
        let answers = log.batch(&[("Create", &create), ("Append", &append)]).unwrap();
        assert!(answers.iter().all(|answer| answer.is_ok()), "{answers:?}");
        assert_eq!(call(&mut log, "Read", &json!([name]))["data"], "aGVsbG8=");
        let tail = call(&mut log, "Tail", &json!({ "name": name }));
        assert_eq!(tail["items"][0]["data"], "aGVsbG8=", "a stream that is closed ends");
        assert_eq!(says(&server.url, &["read", &name]), "hello");
    }
    let error = client(&server.url, "log").call("Head", r#"["none"]"#).map(str::to_owned).unwrap_err();
    assert_eq!(fault(&error), Fault::Refused);
    assert!(
        error.to_string().contains("404 stream-missing: ") && error.to_string().contains("with Create"),
        "{error}"
    );
    server.end();
}

#[test]
fn the_state_is_called_too() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--rpc", "on"]);
    let mut state = client(&server.url, "state");
    let put = |key: &str| json!({ "place": "main", "key": key, "value": "AQI=" }).to_string();
    let (a, b) = (put("a"), put("b"));
    let answers = state.batch(&[("Put", &a), ("Put", &b), ("Get", r#"["main","b","pending"]"#)]).unwrap();
    assert_eq!(answers.at(2).unwrap().unwrap(), r#"{"value":"AQI="}"#);
    assert_eq!(call(&mut state, "Get", &json!(["main", "c"]))["value"], Value::Null);
    let document: Value = serde_json::from_str(state.call("rpc.discover", "").unwrap()).unwrap();
    assert_eq!(document["info"]["title"], "State");
}

#[test]
fn services_may_have_a_listener_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let more = ["--rpc", "on", "--rpc-listen", "127.0.0.1:0"];
    let server = Server::start(directory.path(), "127.0.0.1:0", &more);
    let line = server.greeting.lines().find(|line| line.contains("JSON-RPC")).unwrap();
    let url = line.split_whitespace().last().unwrap();
    let mut log = client(url, "log");
    let created = call(&mut log, "Create", &json!({ "name": "a", "closed": false }));
    assert_eq!(created["created"], true);
    assert!(client(&server.url, "log").call("Head", r#"["a"]"#).is_err(), "not where streams are");
    let elsewhere = Client::new(&format!("{url}/v1/stream/a"), ClientOptions::default())
        .unwrap()
        .call("x", "")
        .map(str::to_owned);
    assert!(elsewhere.unwrap_err().to_string().contains("404"), "and streams are not where services are");
    for (request, status) in [("GET /healthz", 200), ("HEAD /healthz", 200), ("POST /healthz", 405)] {
        let head = format!("{request} HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n");
        let said = refused(url.trim_start_matches("http://"), &head);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {said}");
    }
    server.end();
}

/// What a listener says to a request that no service sees.
fn refused(address: &str, request: &str) -> String {
    let mut peer = TcpStream::connect(address).unwrap();
    peer.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_contradicts_itself_or_listens_for_nothing_is_refused_before_anything_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for more in [&["--rpc", "on", "--rpc", "off"][..], &["--rpc", "off;on"], &["--rpc-listen", "127.0.0.1:0"]]
    {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).args(more);
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && complaint.contains("--rpc"), "{more:?}: {complaint}");
        assert!(!data.exists(), "{more:?}");
    }
}

#[test]
fn no_page_reads_a_refusal_of_what_was_for_a_service() {
    let directory = tempfile::tempdir().unwrap();
    let bound = ["--body-max-bytes", "1000", "--rpc", "on"];
    let shared = Server::start(&directory.path().join("a"), "127.0.0.1:0", &bound);
    let more = [&bound[..], &["--rpc-listen", "127.0.0.1:0"]].concat();
    let apart = Server::start(&directory.path().join("b"), "127.0.0.1:0", &more);
    let line = apart.greeting.lines().find(|line| line.contains("JSON-RPC")).unwrap();
    let own = line.split_whitespace().last().unwrap().trim_start_matches("http://");
    let sound = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let long = "x".repeat(32 << 10);
    for (status, query, rest) in [
        (413, "", format!("{sound}Content-Length: 1001\r\n\r\n")),
        (400, "", format!("{sound}Content-Length: x\r\n\r\n")),
        (400, "", format!("{sound}Transfer-Encoding: chunked\r\n\r\nx\r\n")),
        (414, &*format!("?{long}"), sound.to_owned()),
        (505, "", "HTTP/3.1\r\nHost: localhost\r\n\r\n".to_owned()),
        (431, "", format!("{sound}X: {long}\r\n\r\n")),
    ] {
        let said = |address: &str, path: &str| {
            let answer = refused(address, &format!("POST {path}{query} {rest}"));
            let is_refusal = answer.starts_with(&format!("HTTP/1.1 {status} "));
            assert!(is_refusal || path.starts_with("/v1/"), "{path}: {answer}");
            answer.contains("Access-Control-")
        };
        assert!(!said(shared.address(), "/rpc/log"), "{status}");
        assert!(!said(shared.address(), "http://localhost/rpc/log"), "{status}");
        assert!(said(shared.address(), "/v1/stream/a"), "{status}");
        assert!(!said(own, "/rpc/log") && !said(own, "/v1/stream/a"), "{status}");
    }
    assert!(!refused(own, "\u{1}\r\n\r\n").contains("Access-Control-"));
}

/// The program serves its state at a socket, and calls it there like any other's.
#[test]
fn a_service_that_another_program_serves_is_called_at_its_endpoint() {
    let directory = tempfile::tempdir().unwrap();
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/state.jsonc");
    let data = directory.path().join("data");
    for ending in ["sock", "shm"] {
        let wish = format!("other={schema},{}", data.join(format!("state.{ending}")).display());
        let server = Server::start(&data, "127.0.0.1:0", &["--rpc", &wish, "--reactors", "2"]);
        let mut other = client(&server.url, "other");
        call(&mut other, "Put", &json!(["main", ending, "AA=="]));
        assert_eq!(call(&mut other, "Get", &json!(["main", ending]))["value"], "AA==");
        assert!(client(&server.url, "state").call("rpc.version", "").is_err(), "only what was asked for");
        server.end();
    }
}

#[test]
fn what_is_wrong_with_a_wish_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("broken.jsonc");
    std::fs::write(&broken, "{ \"service\": 1 }").unwrap();
    let broken = broken.to_str().unwrap();
    for (wishes, says) in [
        (vec!["yes".to_owned()], "expected on, off, or NAME=SCHEMA,ENDPOINT"),
        (vec!["x=nowhere.jsonc,x.sock".to_owned()], "nowhere.jsonc"),
        (vec![format!("x={broken},x.sock")], "broken.jsonc:1"),
        (vec!["on".to_owned(), "on".to_owned()], "log is the name of two services"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(directory.path().join("data"));
        for wish in &wishes {
            command.args(["--rpc", wish]);
        }
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains(says), "{wishes:?}: {complaint}");
    }
}

#[test]
fn more_reactors_than_the_store_tells_of_commits_are_refused_before_anything_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for more in [
        &["--reactors", "15", "--rpc", "on"][..],
        &["--reactors", "28", "--rpc", "on", "--rpc-listen", "127.0.0.1:0"],
        &["--reactors", "30"],
    ] {
        let mut command = Command::new(PROGRAM);
        let output =
            command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).args(more).output();
        let output = output.unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains("--reactors"), "{more:?}: {complaint}");
        assert!(!data.exists(), "{more:?}");
    }
    for more in [
        &["--reactors", "14", "--rpc", "on"][..],
        &["--reactors", "27", "--rpc", "on", "--rpc-listen", "127.0.0.1:0"],
        &["--reactors", "29"],
    ] {
        Server::start(&data, "127.0.0.1:0", more).end();
    }
}
