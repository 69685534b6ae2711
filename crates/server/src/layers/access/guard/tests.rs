//! The guard before a service that only counts.

use super::*;
use crate::layers::access::tokens::hash;
use std::io::Write;
use thalweg_wire::field::Field;
use thalweg_wire::hex::Hex;

/// Counts what reaches it, and answers 200.
#[derive(Default)]
struct Counter(usize);

impl Service for Counter {
    type Topic = ();

    fn call(&mut self, _: &Request<'_>, _: Now) -> Answer<()> {
        self.0 += 1;
        Answer::Respond(Response { status: 200, ..Response::default() })
    }

    fn failed(&mut self, _: Now) -> Response {
        Response::default()
    }

    fn watch(&mut self, (): &()) {}

    fn unwatch(&mut self, (): &()) {}

    fn acknowledge(&mut self, (): &()) {}

    fn advance(&mut self, (): &(), _: &Live, _: Now) -> Advance {
        Advance::Wait
    }

    fn deadline(&mut self, (): &(), _: &Live, _: Now) -> Response {
        Response::default()
    }

    fn refuse(&mut self, refusal: &Refusal, _: Announced<'_>, _: Now) -> Response {
        Response {
            status: refusal.status,
            fields: thalweg_wire::lines::Lines::default(),
            body: [refusal.code.into()].into_iter().collect(),
        }
    }
}

const NOW: Now = Now { time_us: 0, entropy: 0 };

/// Tokens named as what they may, some under a prefix.
const TOKENS: [(&str, &str, &str); 5] = [
    ("reads", "read", ""),
    ("writes", "append", ""),
    ("rules", "admin", ""),
    ("reads-a", "read", "a/"),
    ("rules-a", "admin", "a/"),
];

fn write(file: &mut std::fs::File, tokens: &[(&str, &str, &str)]) {
    for (token, scope, prefix) in tokens {
        let digest = hash(token.as_bytes());
        let hex = Hex(&digest);
        writeln!(file, "[{token}]\nsha256 = \"{hex}\"\nscopes = [\"{scope}\"]\nprefix = \"{prefix}\"")
            .unwrap();
    }
}

fn guard() -> Guard<Counter> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write(file.as_file_mut(), &TOKENS);
    Guard::new(Counter::default(), Some(Keys::load(file.path()).unwrap()))
}

/// What becomes of a request with these fields, and what is said with it.
fn ask(guard: &mut Guard<Counter>, method: Method, target: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let fields: Vec<_> =
        fields.iter().filter_map(|(name, value)| Field::of(name, value.as_bytes())).collect();
    let request = Request { method, path, query, fields: &fields, body: b"", secure: false };
    let admitted = guard.admit(&request, NOW);
    let Answer::Respond(response) = guard.call(&request, NOW) else { panic!("no response") };
    // A body is spared the way exactly when the request is refused, or its sender is not named.
    assert_eq!(admitted.is_some(), response.status != 200 || bearer(&request).is_none());
    let body = response.body.iter().flat_map(|piece| piece.iter().copied()).collect();
    (response.status, String::from_utf8(body).unwrap() + std::str::from_utf8(&response.fields).unwrap())
}

fn status(token: &str, method: Method, target: &str) -> u16 {
    ask(&mut guard(), method, target, &[("authorization", &format!("Bearer {token}"))]).0
}

#[test]
fn without_a_token_nothing_but_the_health_and_a_preflight_is_served() {
    let mut guard = guard();
    let (code, said) = ask(&mut guard, Method::Get, "/v1/stream/a", &[]);
    assert_eq!(code, 401);
    assert!(said.starts_with("token-required") && said.contains("WWW-Authenticate: Bearer"), "{said}");
    for wrong in ["Bearer nobody", "Bearer", "Basic reads", "bearerreads", "Bearer reads2", ""] {
        let (code, said) = ask(&mut guard, Method::Get, "/v1/stream/a", &[("Authorization", wrong)]);
        assert_eq!(code, 401, "{wrong}");
        assert!(said.starts_with("token-unknown"), "{wrong}: {said}");
    }
    assert_eq!(guard.inner.0, 0, "what was refused reached the service");
    assert_eq!(ask(&mut guard, Method::Get, "/healthz", &[]).0, 200);
    assert_eq!(ask(&mut guard, Method::Head, "/healthz", &[]).0, 200);
    assert_eq!(ask(&mut guard, Method::Options, "/v1/stream/a", &[]).0, 200);
    assert_eq!(ask(&mut guard, Method::Get, "/v1/stream/__ds/jwks.json", &[]).0, 200);
    for method in [Method::Put, Method::Post, Method::Delete, Method::Other] {
        assert_eq!(ask(&mut guard, method, "/healthz", &[]).0, 401, "{method:?}");
    }
    assert_eq!(ask(&mut guard, Method::Post, "/v1/stream/__ds/jwks.json", &[]).0, 401);
}

#[test]
fn no_body_is_waited_for_before_a_token_came_with_its_head() {
    let mut guard = guard();
    let mut admitted = |method, path, fields: &[(&str, &str)]| {
        let fields: Vec<_> =
            fields.iter().filter_map(|(name, value)| Field::of(name, value.as_bytes())).collect();
        let request = Request { method, path, query: None, fields: &fields, body: b"", secure: false };
        guard.admit(&request, NOW).map_or(200, |response| response.status)
    };
    let length = ("Content-Length", "16000000");
    for path in ["/healthz", "/v1/stream/__ds/jwks.json"] {
        assert_eq!(admitted(Method::Get, path, &[length]), 401, "{path}");
    }
    for path in ["/v1/stream/a", "/healthz", "/rpc/log"] {
        assert_eq!(admitted(Method::Options, path, &[length]), 401, "{path}");
        assert_eq!(admitted(Method::Options, path, &[length, ("Authorization", "Bearer nobody")]), 401);
        assert_eq!(admitted(Method::Options, path, &[length, ("Authorization", "Bearer reads")]), 200);
    }
    // A client with a subscription's token sends little; the service checks the token.
    let theirs = ("Authorization", "Bearer theirs");
    let ack = "/v1/stream/__ds/subscriptions/s/ack";
    assert_eq!(admitted(Method::Post, ack, &[theirs, ("Content-Length", "65536")]), 200);
    assert_eq!(admitted(Method::Post, ack, &[theirs, ("Content-Length", "65537")]), 413);
    assert_eq!(admitted(Method::Post, ack, &[theirs, ("Transfer-Encoding", "chunked")]), 413);
    // Without a token no body is waited for.
    for framing in [("Content-Length", "100"), ("Content-Length", "65537"), ("Transfer-Encoding", "chunked")]
    {
        assert_eq!(admitted(Method::Post, ack, &[framing]), 401, "{framing:?}");
        assert_eq!(admitted(Method::Post, ack, &[framing, ("Authorization", "Basic theirs")]), 401);
    }
}

#[test]
fn who_was_woken_proves_it_to_the_service_itself() {
    let mut guard = guard();
    let fields = [("Authorization", "Bearer theirs"), ("Content-Length", "100")];
    let mut posted = |path: &str| ask(&mut guard, Method::Post, path, &fields).0;
    for verb in ["ack", "release", "callback"] {
        assert_eq!(posted(&format!("/v1/stream/__ds/subscriptions/s%2F1/{verb}")), 200, "{verb}");
    }
    for path in ["s", "s/claim", "s/streams", "s/ack/", "s/x/ack", "ack", ""] {
        assert_eq!(posted(&format!("/v1/stream/__ds/subscriptions/{path}")), 401, "{path}");
    }
    assert_eq!(posted("/v1/stream/%5F_ds/subscriptions/s/ack"), 401);
    assert_eq!(posted("/v1/stream/s/ack"), 401);
    assert_eq!(ask(&mut guard, Method::Delete, "/v1/stream/__ds/subscriptions/s/ack", &fields).0, 401);
}

#[test]
fn each_method_needs_its_scope() {
    use Method::{Delete, Get, Head, Post, Put};
    let expected = [
        ("reads", [200, 200, 403, 403, 403]),
        // Who appends may ask for a head, of streams.
        ("writes", [403, 200, 200, 200, 403]),
        ("rules", [200, 200, 200, 200, 200]),
    ];
    for (token, statuses) in expected {
        let found = [Get, Head, Put, Post, Delete].map(|method| status(token, method, "/v1/stream/x"));
        assert_eq!(found, statuses, "{token}");
    }
    assert_eq!(status("writes", Head, "/v1/stream/__ds/subscriptions/s"), 403);
    assert_eq!(status("writes", Head, "/v1/stats"), 403);
}

#[test]
fn a_prefix_bounds_names_as_the_service_reads_them() {
    assert_eq!(status("reads-a", Method::Get, "/v1/stream/a/b"), 200);
    assert_eq!(status("reads-a", Method::Get, "/v1/stream/%61/b"), 200);
    assert_eq!(status("reads-a", Method::Get, "/v1/stream/ab"), 403);
    assert_eq!(status("rules-a", Method::Delete, "/v1/stream/b"), 403);
    assert_eq!(status("reads-a", Method::Get, "/v1/streams?prefix=a/x"), 200);
    assert_eq!(status("reads-a", Method::Get, "/v1/streams?prefix=b"), 403);
    assert_eq!(status("reads-a", Method::Get, "/v1/streams"), 403);
    assert_eq!(status("reads-a", Method::Get, "/v1/streams?prefix=a/&prefix=b"), 403);
}

#[test]
fn a_fork_needs_a_token_that_reads_its_source() {
    let put = |token: &str, source: &str| {
        let token = format!("Bearer {token}");
        let fields = [("Authorization", token.as_str()), ("stream-forked-from", source)];
        ask(&mut guard(), Method::Put, "/v1/stream/a/fork", &fields).0
    };
    assert_eq!(put("rules", "/v1/stream/b"), 200);
    assert_eq!(put("rules-a", "/v1/stream/a/b"), 200);
    assert_eq!(put("rules-a", "/v1/stream/b"), 403);
    assert_eq!(put("rules-a", " /v1/stream/%62"), 403);
    assert_eq!(put("writes", "/v1/stream/b"), 403);
}

#[test]
fn everything_else_is_for_tokens_without_a_prefix() {
    for path in ["/v1/stream/__ds/subscriptions/1", "/v1/stream/%5F_ds/x", "/v1/stream/__ds/%00"] {
        assert_eq!(status("reads", Method::Get, path), 403, "{path}");
        assert_eq!(status("rules-a", Method::Get, path), 403, "{path}");
        assert_eq!(status("rules", Method::Get, path), 200, "{path}");
    }
    assert_eq!(status("reads", Method::Get, "/v1/stats"), 200);
    assert_eq!(status("reads-a", Method::Get, "/v1/stats"), 403);
    assert_eq!(status("reads", Method::Post, "/rpc/log"), 403);
    assert_eq!(status("rules", Method::Post, "/rpc/log"), 200);
}

#[test]
fn what_can_be_no_name_takes_any_token_and_is_judged_by_the_service() {
    for path in ["/v1/stream/", "/v1/stream/a//b", "/v1/stream/a%2Fb", "/v1/stream/%ff", "/v1/stream/b/../a"]
    {
        for method in [Method::Get, Method::Head, Method::Put, Method::Post, Method::Delete, Method::Other] {
            for (token, ..) in TOKENS {
                assert_eq!(status(token, method, path), 200, "{token} {method:?} {path}");
            }
            assert_eq!(status("nobody", method, path), 401, "{path}");
            assert_eq!(ask(&mut guard(), method, path, &[]).0, 401, "{path}");
        }
    }
}

#[test]
fn a_reload_exchanges_all_tokens_and_a_wrong_file_none() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write(file.as_file_mut(), &TOKENS[..1]);
    let keys = Keys::load(file.path()).unwrap();
    let mut guard = Guard::new(Counter::default(), Some(keys.clone()));
    let mut works = |token: &str| {
        let token = format!("Bearer {token}");
        ask(&mut guard, Method::Get, "/v1/stream/x", &[("Authorization", &token)]).0 == 200
    };
    assert!(works("reads") && !works("rules"));
    std::fs::write(file.path(), "[wrong").unwrap();
    assert!(keys.reload(file.path()).is_err() && works("reads"));
    write(&mut std::fs::File::create(file.path()).unwrap(), &TOKENS[2..3]);
    assert_eq!(keys.reload(file.path()).unwrap(), 1);
    assert!(!works("reads") && works("rules"));
}
