//! Bad input from outside: every refusal must be the right status, a problem+json body that names the field
//! and the rule, and nothing written. Requests are sent as raw bytes, because most of them no client would
//! send.

use crate::harness::client::{Connection, Reply};
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server};
use crate::{Outcome, Tally};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Requests that are held open when one more is refused.
const CONNECTIONS_MAX: usize = 8;
/// So long after they are gone there is room again at the latest.
const ROOM_WITHIN: Duration = Duration::from_secs(60);

/// A request, what it must be answered with, and what is wrong with it.
struct Case {
    wrong: &'static str,
    request: String,
    status: u16,
}

fn case(wrong: &'static str, status: u16, request: impl Into<String>) -> Case {
    Case { wrong, request: request.into(), status }
}

/// A request with a whole head and a body.
fn request(line: &str, fields: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

const TEXT: &str = "Content-Type: text/plain\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

/// What no HTTP/1.1 server may take for a request.
fn malformed() -> Vec<Case> {
    let post = "POST /v1/stream/text HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
    let large = format!("X-Large: {}\r\n", "x".repeat(17 * 1024));
    vec![
        case("request line without a version", 400, "GARBAGE\r\n\r\n"),
        case("field without a colon", 400, "GET /healthz HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n"),
        case("no Host", 400, "GET /v1/stream/text HTTP/1.1\r\n\r\n"),
        case("folded field", 400, "GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"),
        case("two lengths", 400, format!("{post}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
        case("length that is no number", 400, format!("{post}Content-Length: +1\r\n\r\na")),
        case(
            "length and chunks",
            400,
            format!("{post}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        case(
            "chunk length that is no number",
            400,
            format!("{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        ),
        case("unknown transfer coding", 501, format!("{post}Transfer-Encoding: gzip\r\n\r\n")),
        case("header block over 16 KiB", 431, request("GET /v1/stream/text", &large, "")),
        case("body over the limit", 413, format!("{post}Content-Length: 99999999\r\n\r\n")),
    ]
}

/// What the protocol refuses. `past` is an offset behind the end of the stream `text`.
fn against_the_rules(past: &str) -> Vec<Case> {
    let get = |query: &str| request(&format!("GET /v1/stream/text?{query}"), "", "");
    let put = |fields: &str| request("PUT /v1/stream/new", &format!("{TEXT}{fields}"), "");
    let append = |fields: &str| request("POST /v1/stream/text", &format!("{TEXT}{fields}"), "more");
    let subscription = |body: &str| request("PUT /v1/stream/__ds/subscriptions/s", JSON, body);
    let webhook = |url: &str| format!(r#"{{"type":"webhook","pattern":"a","webhook":{{"url":"{url}"}}}}"#);
    let name = |name: &str| request(&format!("PUT /v1/stream/{name}"), TEXT, "");
    vec![
        case("no such stream", 404, request("POST /v1/stream/none", TEXT, "more")),
        case("no such path", 404, request("GET /elsewhere", "", "")),
        case("missing Content-Type", 400, request("POST /v1/stream/text", "", "more")),
        case("another Content-Type", 409, request("POST /v1/stream/text", JSON, "{}")),
        case("empty body", 400, request("POST /v1/stream/text", TEXT, "")),
        case("bad JSON", 400, request("POST /v1/stream/json", JSON, "{\"a\":")),
        case("empty JSON array", 400, request("POST /v1/stream/json", JSON, "[]")),
        case("append to a closed stream", 409, request("POST /v1/stream/closed", TEXT, "more")),
        case("offset that is no token", 400, get("offset=not..a,token")),
        case("offset past the end", 400, get(&format!("offset={past}"))),
        case("offset given twice", 400, get("offset=-1&offset=-1")),
        case("live without an offset", 400, get("live=long-poll")),
        case("unknown live mode", 400, get("offset=-1&live=telepathy")),
        case("name with ..", 400, name("a/../b")),
        case("name with an encoded ..", 400, name("a/%2e%2e/b")),
        case("name with NUL", 400, name("a%00b")),
        case("bad percent-encoding", 400, name("a%zzb")),
        case("name over 1,024 bytes", 400, name(&"n".repeat(1025))),
        case("conflicting configuration", 409, request("PUT /v1/stream/text", JSON, "")),
        case("TTL with a leading zero", 400, put("Stream-TTL: 060\r\n")),
        case("TTL and expiry", 400, put("Stream-TTL: 60\r\nStream-Expires-At: 2099-01-01T00:00:00Z\r\n")),
        case("expiry that is no time", 400, put("Stream-Expires-At: tomorrow\r\n")),
        case("producer without its sequence", 400, append("Producer-Id: p\r\nProducer-Epoch: 0\r\n")),
        case(
            "producer with a gap",
            409,
            append("Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 7\r\n"),
        ),
        case(
            "producer without a name",
            400,
            append("Producer-Id: \r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n"),
        ),
        case("fork of what is not there", 404, put("Stream-Forked-From: /v1/stream/none\r\n")),
        case("reserved name", 404, name("__ds/a")),
        case("no such subscription", 404, request("GET /v1/stream/__ds/subscriptions/none", "", "")),
        case("subscription that is not JSON", 400, subscription("{")),
        case("webhook into a private network", 400, subscription(&webhook("https://10.0.0.1/"))),
        case("webhook to a link-local address", 400, subscription(&webhook("https://169.254.169.254/"))),
        case("webhook in plain text", 400, subscription(&webhook("http://example.com/"))),
        case(
            "lease that is too long",
            400,
            subscription(r#"{"type":"pull-wake","pattern":"a","wake_stream":"w","lease_ttl_ms":600001}"#),
        ),
    ]
}

/// `cargo xtask refusals`.
///
/// # Errors
/// The server cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    let launch = Launch::new(Program::of(options), options.text("durability", "memory"))?
        .with("--connections-max", CONNECTIONS_MAX);
    let scratch = Scratch::new("refusals")?;
    let server = launch.start(&scratch.path().join("data"))?;
    let mut connection = server.connect()?;
    let text = [("Content-Type", "text/plain")];
    let json = [("Content-Type", "application/json")];
    let closed = [("Content-Type", "text/plain"), ("Stream-Closed", "true")];
    let created = connection.request("PUT", "/v1/stream/text", &text, b"once")?;
    let past = one_further(created.field("Stream-Next-Offset").ok_or("no Stream-Next-Offset")?);
    connection.request("PUT", "/v1/stream/json", &json, b"{}")?;
    connection.request("PUT", "/v1/stream/closed", &closed, b"once")?;
    let before = everything(&mut connection)?;

    let mut tally = Tally::default();
    for case in malformed().iter().chain(&against_the_rules(&past)) {
        refused(&server, case, &mut tally);
    }
    let other =
        Case { wrong: "unknown method", request: request("BREW /v1/stream/text", "", ""), status: 405 };
    refused(&server, &other, &mut tally);
    tally.check(everything(&mut connection)? == before, || "a refused request changed something".to_owned());
    drop(connection);
    too_many(&server, &mut tally);
    Ok(tally)
}

/// All that the refused requests might have changed: three streams, and the name some tried to create.
fn everything(connection: &mut Connection) -> Result<Vec<(u16, Vec<u8>)>, String> {
    let read = |name: &&str| {
        let reply = connection.request("GET", &format!("/v1/stream/{name}?offset=-1"), &[], b"")?;
        // A refusal's text is no content; its status is what must not change.
        Ok((reply.status, if reply.status == 200 { reply.body } else { Vec::new() }))
    };
    ["text", "json", "closed", "new"].iter().map(read).collect()
}

fn refused(server: &Server, case: &Case, tally: &mut Tally) {
    let reply = server.connect().and_then(|mut connection| {
        connection.send_raw(case.request.as_bytes())?;
        connection.read_reply()
    });
    let Case { wrong, status, .. } = case;
    match reply {
        Err(problem) => tally.check(false, || format!("{wrong}: {problem}")),
        Ok(reply) => {
            tally.check(reply.status == *status, || format!("{wrong}: {} instead of {status}", reply.status));
            let names = names_the_rule(&reply);
            tally.check(names.is_ok(), || format!("{wrong}: {names:?}"));
        }
    }
}

/// Whether a refusal's body says which field broke which rule.
fn names_the_rule(reply: &Reply) -> Result<(), String> {
    let media = reply.field("Content-Type").unwrap_or("none");
    if !media.starts_with("application/problem+json") {
        return Err(format!("Content-Type {media}"));
    }
    let body: serde_json::Value = serde_json::from_slice(&reply.body).map_err(|e| e.to_string())?;
    if body["status"].as_u64() != Some(u64::from(reply.status)) {
        return Err(format!("the body's status is not the reply's: {body}"));
    }
    for member in ["title", "detail", "field", "rule"] {
        if body[member].as_str().is_none_or(str::is_empty) {
            return Err(format!("no {member} in {body}"));
        }
    }
    Ok(())
}

/// One connection more than allowed is told to come back later, unless all that it asks is how the server
/// does.
fn too_many(server: &Server, tally: &mut Tally) {
    let held: Vec<_> = (0..CONNECTIONS_MAX).map_while(|_| settled(server).ok()).collect();
    let ask = |path: &str| server.connect().and_then(|mut c| c.request("GET", path, &[], b""));
    let mut status = None;
    for _ in 0..CONNECTIONS_MAX {
        if let Ok(reply) = ask("/v1/stream/any")
            && reply.status == 503
        {
            status = reply.field("Retry-After").map(|_| reply.status);
            break;
        }
    }
    tally.check(status == Some(503), || format!("{} connections held, no 503 with Retry-After", held.len()));
    let health = ask("/healthz").map(|reply| reply.status);
    tally.check(health == Ok(200), || format!("{} connections held, /healthz: {health:?}", held.len()));
    drop(held);
    // Once there is room again, service resumes, for what was refused.
    let until = Instant::now() + ROOM_WITHIN;
    let resumed = loop {
        let status = ask("/v1/stream/text?offset=-1").map(|reply| reply.status);
        if status == Ok(200) || Instant::now() > until {
            break status;
        }
        sleep(Duration::from_millis(10));
    };
    tally.check(resumed == Ok(200), || format!("no room {ROOM_WITHIN:?} afterwards: {resumed:?}"));
}

fn settled(server: &Server) -> Result<Connection, String> {
    let mut connection = server.connect()?;
    let reply = connection.request("GET", "/healthz", &[], b"")?;
    if reply.status == 200 { Ok(connection) } else { Err(format!("status {}", reply.status)) }
}

/// A token of the same shape that sorts behind `token`.
fn one_further(token: &str) -> String {
    let mut bytes = token.as_bytes().to_vec();
    for byte in bytes.iter_mut().rev() {
        match byte {
            b'0'..=b'8' | b'a'..=b'e' => {
                *byte += 1;
                break;
            }
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_token_has_the_same_shape() {
        assert_eq!(one_further("0000_0004"), "0000_0005");
        assert_eq!(one_further("0000_0009"), "0000_0019");
        assert!(one_further("00_0a").as_str() > "00_0a");
    }

    #[test]
    fn a_body_that_does_not_name_its_rule_is_seen() {
        let media = [("Content-Type", "application/problem+json")];
        let with = |fields: &[(&str, &str)], body: &str| {
            let mut reply = Reply::for_test(400, fields);
            reply.body = body.as_bytes().to_vec();
            names_the_rule(&reply)
        };
        let good = r#"{"status":400,"title":"Bad Request","detail":"d","field":"f","rule":"r"}"#;
        assert_eq!(with(&media, good), Ok(()));
        assert!(with(&[], good).is_err());
        assert!(with(&media, &good.replace("400", "404")).is_err());
        assert!(with(&media, &good.replace("\"f\"", "\"\"")).is_err());
        assert!(with(&media, "{}").is_err());
    }
}
