use super::*;
use proptest::prelude::*;

fn parse(bytes: &[u8]) -> Result<Option<Head<'_>>, Refusal> {
    HeadParser::default().parse(bytes, &Limits::default())
}

/// The outcome of feeding ever longer prefixes that end at `cuts`.
fn parse_cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Result<Option<Head<'a>>, Refusal> {
    let mut parser = HeadParser::default();
    let mut ends: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    for end in ends {
        match parser.parse(&bytes[..end], &Limits::default()) {
            Ok(None) => {}
            outcome => return outcome,
        }
    }
    Ok(None)
}

fn whole(text: &str) -> Head<'_> {
    parse(text.as_bytes()).unwrap().unwrap()
}

#[test]
fn a_request_is_taken_apart() {
    let text = "\r\nPOST /v1/stream/a%20b?offset=-1&live=sse HTTP/1.1\r\nHost: x:1\r\nContent-Type:  text/plain \t\r\n\
                content-length: 12\r\nExpect: 100-Continue\r\n\r\nbody";
    let head = whole(text);
    assert_eq!(
        (head.method, head.path, head.query),
        (Method::Post, "/v1/stream/a%20b", Some("offset=-1&live=sse"))
    );
    assert_eq!(head.bytes, text.len() - 4);
    assert_eq!((head.body, head.keep_alive, head.expects_continue), (BodyLength::Known(12), true, true));
    assert_eq!(head.fields[1], Field { name: Name::ContentType, value: b"text/plain" });
    assert_eq!(head.fields.len(), 4);
}

#[test]
fn targets() {
    let target = |t: &str| {
        let text = format!("OPTIONS {t} HTTP/1.1\r\nHost: a\r\n\r\n");
        parse(text.as_bytes())
            .map(|h| h.map(|h| (h.path.to_owned(), h.query.map(str::to_owned))))
            .map_err(|r| r.code)
    };
    let is = |path: &str, query: Option<&str>| Ok(Some((path.to_owned(), query.map(str::to_owned))));
    assert_eq!(target("/a?b?c"), is("/a", Some("b?c")));
    assert_eq!(target("/?"), is("/", Some("")));
    assert_eq!(target("*"), is("/", None));
    assert_eq!(target("HTTP://h:80/p?q"), is("/p", Some("q")));
    assert_eq!(target("https://h/p?q"), is("/p", Some("q")));
    assert_eq!(target("http://h"), is("/", None));
    assert_eq!(target("http://h?q"), is("/", Some("q")));
    // What browsers leave as it is.
    assert_eq!(target("/\"<>\\^`{|}?\"<>\\^`{|}"), is("/\"<>\\^`{|}", Some("\"<>\\^`{|}")));
    let bad = ["http:///p", "https://", "httpss://h/", "h:80", "/a#b", "ftp://h/", "/\u{e9}", "a"];
    for bad in
        bad.into_iter().chain(["http://u@h/", "http://u:p@h/", "http://h\\p/", "http://h,i/", "http://:80/"])
    {
        assert_eq!(target(bad), Err("target-malformed"), "{bad}");
    }
    assert_eq!(parse(b"GET * HTTP/1.1\r\nHost: a\r\n\r\n").map_err(|r| r.code), Err("target-malformed"));
    // A target ends at a space, and a line with control characters is none.
    assert_eq!(target("/a b"), Err("http-version-unsupported"));
    for control in ["/a\u{1}", "/a\tb", "/\u{7f}"] {
        assert_eq!(target(control), Err("request-line-malformed"), "{control:?}");
    }
}

/// RFC 9112 3.2.2: the received `Host` is ignored where the target names one. It has to be there all the
/// same.
#[test]
fn an_absolute_target_says_whom_it_is_for() {
    let hosts = |text: &str| {
        let head = whole(text);
        let hosts = head.fields.iter().filter(|field| field.name == Name::Host);
        hosts.map(|field| String::from_utf8(field.value.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    for (target, version, received, host) in [
        ("/p", "1.1", "Host: a\r\n", "a"),
        ("http://b:80/p", "1.1", "Host: a\r\n", "b:80"),
        ("HTTPS://[::1]?q", "1.1", "A: b\r\nhost:\r\n", "[::1]"),
        ("http://b", "1.0", "", "b"),
    ] {
        let text = format!("GET {target} HTTP/{version}\r\n{received}\r\n");
        assert_eq!(hosts(&text), [host], "{text}");
    }
    for (received, code) in
        [("", "host-count"), ("Host: a\r\nHost: a\r\n", "host-count"), ("Host: u@b\r\n", "host-malformed")]
    {
        let text = format!("GET http://b/p HTTP/1.1\r\n{received}\r\n");
        assert_eq!(parse(text.as_bytes()).map_err(|r| r.code), Err(code), "{text}");
    }
}

#[test]
fn keeping_the_connection_alive() {
    for (version, connection, keeps) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Upgrade, CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        assert_eq!(whole(&text).keep_alive, keeps, "{text}");
    }
    assert!(!whole("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n").expects_continue);
    assert!(!whole("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n").expects_continue);
}

#[test]
fn what_could_be_read_two_ways_is_refused() {
    let table: &[(&str, u16, &str)] = &[
        ("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400, "body-framed-twice"),
        ("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n", 400, "body-framed-twice"),
        ("Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n", 400, "content-length-repeated"),
        ("Host: a\r\nContent-Length: 1, 1\r\n", 400, "content-length-malformed"),
        ("Host: a\r\nContent-Length: +1\r\n", 400, "content-length-malformed"),
        ("Host: a\r\nContent-Length: -1\r\n", 400, "content-length-malformed"),
        ("Host: a\r\nContent-Length: 0x1\r\n", 400, "content-length-malformed"),
        ("Host: a\r\nContent-Length:\r\n", 400, "content-length-malformed"),
        ("Host: a\r\nContent-Length: 18446744073709551616\r\n", 400, "content-length-malformed"),
        ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501, "transfer-coding-unsupported"),
        ("Host: a\r\nTransfer-Encoding: identity\r\n", 501, "transfer-coding-unsupported"),
        (
            "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            400,
            "transfer-coding-repeated",
        ),
        ("Host: a\r\nTransfer-Encoding : chunked\r\n", 400, "header-name-malformed"),
        ("Host: a\r\nA: b\r\n folded\r\n", 400, "header-name-malformed"),
        ("Host: a\r\nA: b\0c\r\n", 400, "header-value-malformed"),
        ("Host: a\r\nA: b\nB: c\r\n", 400, "bare-line-feed"),
        ("Host: a\r\nno colon\r\n", 400, "header-name-malformed"),
        ("Host: a\r\nExpect: 200-ok\r\n", 417, "expectation-unknown"),
        ("", 400, "host-count"),
        ("Host: a\r\nHost: a\r\n", 400, "host-count"),
        ("Host: a/b\r\n", 400, "host-malformed"),
        ("Host: a, b\r\n", 400, "host-malformed"),
    ];
    for (fields, status, code) in table {
        let text = format!("POST /v1/stream/a HTTP/1.1\r\n{fields}\r\n");
        let refusal = parse(text.as_bytes()).unwrap_err();
        assert_eq!((refusal.status, refusal.code), (*status, *code), "{fields}");
        assert!(!refusal.field.is_empty() && refusal.detail.ends_with('.'));
    }
    let legacy = parse(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(legacy.map_err(|r| r.code), Err("transfer-coding-in-http-1.0"));
}

#[test]
fn request_lines_that_are_none() {
    for (line, status, code) in [
        ("GET / HTTP/2.0", 505, "http-version-unsupported"),
        ("GET / HTTP/0.9", 505, "http-version-unsupported"),
        ("GET / HTTP/1.x", 505, "http-version-unsupported"),
        ("GET /  HTTP/1.2", 505, "http-version-unsupported"),
        ("GET / HTTP/1.12", 400, "request-line-malformed"),
        ("GET / HTTP/1.21", 400, "request-line-malformed"),
        ("G(T / HTTP/1.2", 400, "request-line-malformed"),
        ("GET /  HTTP/1.1", 400, "request-line-malformed"),
        ("GET", 400, "request-line-malformed"),
        ("G(T / HTTP/1.1", 400, "request-line-malformed"),
        ("\u{16}\u{3}\u{1}", 400, "request-line-malformed"),
    ] {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        let refusal = parse(text.as_bytes()).unwrap_err();
        assert!(
            (refusal.status, refusal.code) == (status, code) || refusal.status == 505,
            "{line:?}: {refusal:?}"
        );
    }
}

/// RFC 9110 2.5: a recipient of a higher minor version than it knows processes the message as of the highest
/// that it knows.
#[test]
fn a_newer_minor_version_is_read_as_ours() {
    for minor in 2..=9 {
        let text =
            format!("\r\nPOST http://b/a?q HTTP/1.{minor}\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1");
        let head = whole(&text);
        assert_eq!((head.method, head.path, head.query), (Method::Post, "/a", Some("q")));
        assert_eq!((head.minor_version, head.keep_alive, head.body), (1, true, BodyLength::Chunked));
        assert_eq!((head.bytes, head.fields[0].value), (text.len() - 1, &b"b"[..]));
    }
    assert_eq!(parse(b"GET / HTTP/1.2\r\n\r\n").map_err(|r| r.code), Err("host-count"));
    let limits = Limits { fields_max: 2, ..Limits::default() };
    let text = "GET / HTTP/1.2\r\nHost: a\r\nA: b\r\nA: b\r\n\r\n";
    let refusal = HeadParser::default().parse(text.as_bytes(), &limits).unwrap_err();
    assert_eq!(refusal.code, "too-many-header-fields");
}

#[test]
fn limits_are_exact() {
    let limits = Limits { head_bytes_max: 200, line_bytes_max: 60, fields_max: 4 };
    let judged = |text: &str| HeadParser::default().parse(text.as_bytes(), &limits).map(|h| h.is_some());
    let head = |padding: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(padding));
    let room = 200 - head(0).len();
    assert_eq!(judged(&head(room)), Ok(true));
    assert_eq!(judged(&head(room + 1)).map_err(|r| r.status), Err(431));
    // Over the limit is over the limit before the head has ended, too.
    assert_eq!(judged(&head(500)[..201]).map_err(|r| r.status), Err(431));
    let line = |padding: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(padding));
    let room = 60 - "GET / HTTP/1.1".len();
    assert_eq!(judged(&line(room)), Ok(true));
    assert_eq!(judged(&line(room + 1)).map_err(|r| r.status), Err(414));
    // What ends the line is no part of it, however little of the end has come.
    for (cut, outcome) in [(60, Ok(false)), (61, Ok(false)), (62, Ok(false))] {
        assert_eq!(judged(&line(room)[..cut]).map_err(|r| r.status), outcome, "{cut}");
        assert_eq!(judged(&line(room + 1)[..cut]).is_err(), cut > 60, "{cut}");
    }
    assert_eq!(judged(&line(300)[..61]).map_err(|r| r.status), Err(414));
    let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    assert_eq!(judged(&fields(4)), Ok(true));
    assert_eq!(judged(&fields(5)).map_err(|r| r.code), Err("too-many-header-fields"));
}

#[test]
fn a_parser_starts_over_after_each_head() {
    let text = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut parser = HeadParser::default();
    let limits = Limits::default();
    assert_eq!(parser.parse(&text[..20], &limits), Ok(None));
    let first = parser.parse(text, &limits).unwrap().unwrap();
    assert_eq!(first.path, "/a");
    assert_eq!(parser.parse(&text[first.bytes..], &limits).unwrap().unwrap().path, "/b");
}

fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("GET / HTTP/1.1\r\n".to_owned()),
        Just("POST /v1/stream/x?offset=-1 HTTP/1.1\r\n".to_owned()),
        Just("\r\nPUT /a HTTP/1.0\r\n".to_owned()),
        Just("PUT /a HTTP/1.2\r\n".to_owned()),
        "[ -~]{0,20}\r\n",
    ];
    let field = prop_oneof![
        4 => Just("Host: example.org\r\n".to_owned()),
        2 => (0u32..5).prop_map(|n| format!("Content-Length: {n}\r\n")),
        1 => Just("Transfer-Encoding: chunked\r\n".to_owned()),
        1 => Just("Connection: close\r\n".to_owned()),
        1 => Just("Expect: 100-continue\r\n".to_owned()),
        3 => "[a-zA-Z-]{1,8}: [ -~]{0,12}\r\n",
        1 => "[ -~\r\n]{0,10}",
    ];
    (line, proptest::collection::vec(field, 0..5), any::<bool>(), "[ -~]{0,6}").prop_map(
        |(line, fields, ends, rest)| {
            let end = if ends { "\r\n" } else { "" };
            format!("{line}{}{end}{rest}", fields.concat()).into_bytes()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_cut_parses_to_the_same(bytes in plausible(), cuts in proptest::collection::vec(any::<usize>(), 0..8)) {
        let at_once = parse(&bytes);
        let cut = parse_cut(&bytes, &cuts);
        match (&at_once, &cut) {
            // A refusal may come earlier in pieces, and then of the first thing that is wrong in them.
            (Err(_), Err(_)) => {}
            _ => prop_assert_eq!(at_once, cut),
        }
    }

    #[test]
    fn a_minor_version_above_ours_changes_nothing(bytes in plausible(), minor in 2..=9u8) {
        let ours = String::from_utf8(bytes).unwrap();
        let newer = ours.replacen("HTTP/1.1", &format!("HTTP/1.{minor}"), 1);
        prop_assert_eq!(parse(newer.as_bytes()), parse(ours.as_bytes()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        for bytes in [bytes.clone(), [b"GET / HTTP/1.1\r\n".to_vec(), bytes].concat()] {
            prop_assert_eq!(parse_cut(&bytes, &cuts).is_err(), parse(&bytes).is_err());
        }
    }

    #[test]
    fn a_head_never_reaches_past_its_blank_line(bytes in plausible()) {
        if let Ok(Some(head)) = parse(&bytes) {
            prop_assert!(bytes[..head.bytes].ends_with(b"\r\n\r\n"));
            prop_assert!(head.path.starts_with('/'));
        }
    }
}
