//! What `/metrics` says, read as a scraper reads it.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Server, ask, says};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Every sample of the page by its name and labels. A line that breaks the format ends the test.
fn scrape(server: &Server) -> BTreeMap<String, f64> {
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(!head.contains("Access-Control"), "{head}");
    let (mut samples, mut family) = (BTreeMap::new(), String::new());
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(
                ["counter", "gauge", "histogram"].contains(&kind) && name.starts_with("thalweg_"),
                "{line}"
            );
            family = name.to_owned();
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&family), "{line} stands outside its family");
            let bound = name.split_once("le=\"").map_or("", |(_, bound)| bound.trim_end_matches("\"}"));
            let decimals = bound.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 6, "{line}: a bound is a number of microseconds");
            assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} twice");
        }
    }
    samples
}

/// The sum over every reactor.
fn sum(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    samples.iter().filter(|(known, _)| known.split('{').next() == Some(name)).map(|(_, value)| value).sum()
}

#[test]
fn counters_count_what_was_done() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--reactors", "2"]);
    let url = &server.url;
    let before = scrape(&server);
    says(url, &["create", "a"]);
    for _ in 0..10 {
        says(url, &["append", "a", "record"]);
    }
    says(url, &["close", "a"]);
    // A live reader that is served what there is.
    assert_eq!(says(url, &["tail", "a"]), "record".repeat(10));
    let after = scrape(&server);
    let grown = |name: &str| sum(&after, name) - sum(&before, name);
    assert_eq!(grown("thalweg_records_total"), 10.0);
    assert!(grown("thalweg_commits_total") >= 12.0 && grown("thalweg_commit_bytes_total") > 600.0);
    assert!(grown("thalweg_connections_accepted_total") >= 13.0);
    assert!(grown("thalweg_responses_total") >= 13.0);
    assert!(grown("thalweg_messages_total") >= 1.0, "the committer says what is durable");
    assert!(grown("thalweg_sync_seconds_count") >= 12.0);
    // Ten appends and what closed the stream; each took a while, and less than the test may.
    assert_eq!(grown("thalweg_append_seconds_count"), 11.0);
    let took_s = grown("thalweg_append_seconds_sum");
    assert!(took_s > 11e-6 && took_s < 60.0, "{took_s}");
    // Records both ways, and what is said around them.
    assert!(grown("thalweg_received_bytes_total") > 1_000.0 && grown("thalweg_sent_bytes_total") > 1_000.0);
    assert_eq!(grown("thalweg_group_commits_sum"), grown("thalweg_commits_total"));
    assert!(sum(&after, "thalweg_streams") >= 1.0 && sum(&after, "thalweg_memory_bytes") > 1e6);
    // The client that asks is connected.
    assert!(sum(&after, "thalweg_connections") >= 1.0);
    let buckets: Vec<f64> = after
        .iter()
        .filter(|(name, _)| name.starts_with("thalweg_sync_seconds_bucket"))
        .map(|(_, value)| *value)
        .collect();
    assert!(
        buckets.len() > 20
            && after["thalweg_sync_seconds_bucket{le=\"+Inf\"}"] == after["thalweg_sync_seconds_count"]
    );
    server.end();
}

/// Calls answered at once and later, and what is asked of subscriptions, keep nothing of a stream.
#[test]
fn only_appends_are_counted_as_appends() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--rpc", "on", "--reactors", "1"]);
    let url = &server.url;
    let body = r#"{"type":"pull-wake","pattern":"a","wake_stream":"wakes"}"#;
    let subscription = "/v1/stream/__ds/subscriptions/s";
    let json = "Content-Type: application/json";
    let send = |method: &str, path: &str, body: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{json}\r\nConnection: close");
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    };
    says(url, &["create", "wakes"]);
    send("PUT", subscription, body);
    says(url, &["create", "a"]);
    says(url, &["append", "a", "record"]);
    send("POST", &format!("{subscription}/claim"), r#"{"worker":"w"}"#);
    for (service, method, params) in
        [("log", "rpc.discover", "[]"), ("log", "Read", r#"["a"]"#), ("state", "Get", r#"["main","a"]"#)]
    {
        let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        send("POST", &format!("/rpc/{service}"), &call);
    }
    assert_eq!(sum(&scrape(&server), "thalweg_append_seconds_count"), 1.0);
    server.end();
}

/// Names in the code marks of a table's first column, without their labels.
fn documented() -> BTreeSet<String> {
    let document = include_str!("../../../docs/extensions.md");
    let (_, section) = document.split_once("\n## `GET /metrics`\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let columns =
        section.lines().filter(|line| line.starts_with("| `")).map(|line| line.split(" | ").next().unwrap());
    let marked = columns.flat_map(|column| column.split('`').skip(1).step_by(2));
    marked.map(|name| format!("thalweg_{}", name.split('{').next().unwrap())).collect()
}

#[test]
fn the_page_has_every_metric_that_is_documented_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let samples = scrape(&server);
    let family = |sample: &String| {
        let name = sample.split('{').next().unwrap();
        let part = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| name.strip_suffix(part));
        part.unwrap_or(name).to_owned()
    };
    let there: BTreeSet<String> = samples.keys().map(family).collect();
    assert_eq!(there, documented());
    // What operators are promised: appends, how many commits share a sync and what it takes, the walks over
    // subscribers, the depth of mailboxes, wakes saved, memory by kind.
    for promised in [
        "records_total",
        "append_seconds",
        "group_commits",
        "sync_seconds",
        "fan_out_seconds",
        "mailbox_depth_max",
        "wakes_saved_total",
    ] {
        assert!(there.contains(&format!("thalweg_{promised}")), "{promised}");
    }
    for kind in ["resident", "time_indexes", "unsent", "bodies"] {
        assert!(samples.contains_key(&format!("thalweg_memory_bytes{{kind=\"{kind}\"}}")), "{kind}");
    }
    for kind in ["files", "streams", "connections", "subscribers", "tls", "sessions"] {
        assert!(samples.contains_key(&format!("thalweg_memory_bytes{{kind=\"{kind}\"}}")), "{kind}");
    }
    server.end();
}

#[test]
fn the_page_takes_the_methods_that_read() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    for path in ["/metrics", "/healthz", "/v1/stats", "/v1/streams"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let said = ask(&server, &format!("{method} {path} HTTP/1.1\r\nContent-Length: 0"));
            assert!(said.starts_with("HTTP/1.1 405 ") && said.contains("method-not-allowed"), "{said}");
            assert!(said.contains("Allow: GET, HEAD, OPTIONS\r\n"), "{said}");
        }
        let said = ask(&server, &format!("HEAD {path} HTTP/1.1"));
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        assert!(said.contains("X-Content-Type-Options: nosniff\r\n"), "{said}");
        let said = ask(&server, &format!("OPTIONS {path} HTTP/1.1"));
        assert!(
            said.starts_with("HTTP/1.1 204 ") && said.contains("Allow: GET, HEAD, OPTIONS\r\n"),
            "{said}"
        );
    }
    server.end();
}

#[test]
fn memory_is_counted_for_what_it_goes_into() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--reactors", "1"]);
    let kind = |samples: &BTreeMap<String, f64>, kind: &str| {
        samples[&format!("thalweg_memory_bytes{{kind=\"{kind}\"}}")]
    };
    let before = scrape(&server);
    assert_eq!(kind(&before, "connections"), 128.0, "the client that asks is connected");
    assert_eq!(kind(&before, "subscribers") + kind(&before, "tls") + kind(&before, "sessions"), 0.0);
    assert!(kind(&before, "files") > 0.0 && kind(&before, "files") < kind(&before, "resident"));
    for name in ["a", "b", "c"] {
        says(&server.url, &["create", name]);
    }
    let _idle = TcpStream::connect(server.address()).unwrap();
    let mut tail = TcpStream::connect(server.address()).unwrap();
    tail.write_all(b"GET /v1/stream/a?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(tail.read(&mut [0; 4_096]).unwrap() > 0);
    // What a reactor carries is written down at the end of its turn.
    let start = std::time::Instant::now();
    let after = loop {
        let samples = scrape(&server);
        if kind(&samples, "subscribers") > 0.0 && kind(&samples, "connections") == 256.0 {
            break samples;
        }
        assert!(start.elapsed().as_secs() < 60, "{samples:?}");
    };
    assert_eq!(kind(&after, "subscribers"), 128.0);
    assert_eq!(kind(&after, "streams"), 400.0 * sum(&after, "thalweg_streams"));
    assert!(kind(&after, "streams") - kind(&before, "streams") >= 1_200.0);
    server.end();
}
