//! Which pages of other origins may use the streams: the CORS lines of every response (Fetch Standard,
//! section 3.2).
//!
//! Purpose: [`Cors`] stands in front of whatever is served and adds the lines to what lies under `/v1/`;
//! nothing else is for other origins' pages. A request that says it comes from an origin that is not allowed,
//! and that would change something, is refused: a browser sends the simple ones of them without asking first,
//! and only hides the answer.
//!
//! Invariants, tested below: a response that names an origin names the one that asked, and says that it
//! depends on it. A refusal of what asked for something else than `/v1/` has no line, however little of it
//! came. Where one origin out of several was allowed, a subscription remembers which in the bits of its
//! flavour that the service behind leaves alone.

use crate::layers::pass_on;
use std::fmt;
use std::str::FromStr;
use thalweg_wire::exchange::{
    Advance, Announced, Answer, Live, Method, Now, Refusal, Request, Response, Service, Weight,
};
use thalweg_wire::field::Name;

/// What pages of other origins may use.
const SHARED: &str = "/v1/";
/// Bits of a flavour that say which origin asked.
const ORIGIN_BITS: u8 = 0b0111_1100;
const ORIGIN_SHIFT: u32 = 2;
/// Origins that those bits tell apart, beside none.
const ORIGINS_MAX: usize = (ORIGIN_BITS >> ORIGIN_SHIFT) as usize;

/// Origins as the command line names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Every origin.
    Any,
    /// No origin.
    None,
    /// This one.
    One(String),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "*" => return Ok(Self::Any),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let sound =
            |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        match text.split_once("://") {
            Some((scheme, rest))
                if sound(rest)
                    && !scheme.is_empty()
                    && scheme.bytes().all(|byte| byte.is_ascii_lowercase()) =>
            {
                let sent = as_sent(scheme, rest);
                if sent != text {
                    return Err(format!("a browser sends this origin as {sent}"));
                }
                Ok(Self::One(sent))
            }
            _ => Err("expected *, none, or an origin as a browser sends it: https://app.example".to_owned()),
        }
    }
}

/// An origin as a browser sends it (WHATWG URL 4.7): the host in lower case, and no port that is the scheme's
/// own.
fn as_sent(scheme: &str, rest: &str) -> String {
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let rest = rest.to_ascii_lowercase();
    format!("{scheme}://{}", rest.strip_suffix(own_port).unwrap_or(&rest))
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => out.write_str("*"),
            Self::None => out.write_str("none"),
            Self::One(origin) => out.write_str(origin),
        }
    }
}

/// Who may use the streams from a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Pages of every origin.
    Any,
    /// Pages of these.
    Only(Vec<String>),
}

impl Policy {
    /// The policy that a list of origins comes to.
    ///
    /// # Errors
    /// `*` or `none` beside others, or more origins than can be told apart.
    pub(crate) fn of(origins: &[Origin]) -> Result<Self, String> {
        match origins {
            [Origin::Any] => return Ok(Self::Any),
            [Origin::None] => return Ok(Self::Only(Vec::new())),
            _ => {}
        }
        let name = |origin: &Origin| match origin {
            Origin::One(name) => Ok(name.clone()),
            other => Err(format!("the origin {other} must stand alone, not beside others")),
        };
        let names = origins.iter().map(name).collect::<Result<Vec<_>, _>>()?;
        if names.len() > ORIGINS_MAX {
            return Err(format!("{} origins; at most {ORIGINS_MAX} are told apart", names.len()));
        }
        Ok(Self::Only(names))
    }
}

/// The origin that asked: none (0), or one of those allowed, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asker(u8);

/// A service behind the lines.
pub(crate) struct Cors<S> {
    inner: S,
    /// Who may use what lies under [`SHARED`]; `None` where nothing is for a page.
    policy: Option<Policy>,
}

impl<S> Cors<S> {
    /// Puts the lines in front of a service; without a policy there are none.
    pub(crate) fn new(inner: S, policy: Option<Policy>) -> Self {
        Self { inner, policy }
    }

    fn shares(&self, path: &str) -> bool {
        self.policy.is_some() && path.starts_with(SHARED)
    }

    /// Who asks; `None` for an origin that is not allowed.
    fn asker(&self, request: &Request<'_>) -> Option<Asker> {
        self.named(request.field(Name::Origin))
    }

    fn named(&self, origin: Option<&[u8]>) -> Option<Asker> {
        let (Some(Policy::Only(names)), Some(origin)) = (&self.policy, origin) else {
            return Some(Asker(0));
        };
        let index = names.iter().position(|name| name.as_bytes() == origin)?;
        // At most as many as the bits tell apart.
        Some(Asker(index as u8 + 1))
    }

    fn add(&self, response: &mut Response, asker: Asker) {
        match &self.policy {
            None => {}
            Some(Policy::Any) => response
                .fields
                .push(b"Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: *\r\n"),
            Some(Policy::Only(names)) => {
                response.fields.push(b"Vary: Origin\r\n");
                let Some(name) = usize::from(asker.0).checked_sub(1).and_then(|index| names.get(index))
                else {
                    return;
                };
                for piece in [
                    b"Access-Control-Allow-Origin: ",
                    name.as_bytes(),
                    b"\r\nAccess-Control-Expose-Headers: *\r\n",
                ] {
                    response.fields.push(piece);
                }
            }
        }
    }
}

impl<S: Service> Cors<S> {
    /// The answer to an origin that is not allowed to change anything.
    fn foreign(&mut self, request: &Request<'_>, now: Now) -> Option<Response> {
        let reads = matches!(request.method, Method::Get | Method::Head | Method::Options);
        if reads || self.asker(request).is_some() {
            return None;
        }
        let mut response = self.inner.refuse(&FOREIGN, Announced::of(request), now);
        self.add(&mut response, Asker(0));
        Some(response)
    }
}

/// A subscriber as the service behind knows it, and who it is.
fn behind(live: &Live) -> (Live, Asker) {
    let asker = Asker((live.flavour & ORIGIN_BITS) >> ORIGIN_SHIFT);
    (Live { flavour: live.flavour & !ORIGIN_BITS, ..*live }, asker)
}

impl<S: Service> Service for Cors<S> {
    type Topic = S::Topic;

    fn call(&mut self, request: &Request<'_>, now: Now) -> Answer<S::Topic> {
        if !self.shares(request.path) {
            return self.inner.call(request, now);
        }
        if let Some(response) = self.foreign(request, now) {
            return Answer::Respond(response);
        }
        let asker = self.asker(request).unwrap_or(Asker(0));
        let mut answer = self.inner.call(request, now);
        match &mut answer {
            Answer::Respond(response) | Answer::After(_, response) => self.add(response, asker),
            // What comes later is no stream's.
            Answer::Cold(_) | Answer::Later(_) => {}
            Answer::Live { live, head, .. } => {
                debug_assert_eq!(live.flavour & ORIGIN_BITS, 0, "the bits are the origin's");
                live.flavour |= asker.0 << ORIGIN_SHIFT;
                self.add(head, asker);
            }
        }
        answer
    }

    fn admit(&mut self, head: &Request<'_>, now: Now) -> Option<Response> {
        if !self.shares(head.path) {
            return self.inner.admit(head, now);
        }
        if let Some(response) = self.foreign(head, now) {
            return Some(response);
        }
        let asker = self.asker(head).unwrap_or(Asker(0));
        let mut response = self.inner.admit(head, now)?;
        self.add(&mut response, asker);
        Some(response)
    }

    fn failed(&mut self, now: Now) -> Response {
        let mut response = self.inner.failed(now);
        self.add(&mut response, Asker(0));
        response
    }

    fn failed_instead_of(&mut self, answer: &Response, now: Now) -> Response {
        let mut response = self.inner.failed_instead_of(answer, now);
        // Its request is gone; the page that could read the answer can read why there is none.
        let added = |line: &&[u8]| line.starts_with(b"Access-Control-") || **line == b"Vary: Origin\r\n"[..];
        let lines = answer.fields.split_inclusive(|byte| *byte == b'\n');
        lines.filter(added).for_each(|line| response.fields.push(line));
        response
    }

    fn advance(&mut self, topic: &S::Topic, live: &Live, now: Now) -> Advance {
        let (live, asker) = behind(live);
        let mut advance = self.inner.advance(topic, &live, now);
        if let Advance::Respond(response) = &mut advance {
            self.add(response, asker);
        }
        advance
    }

    fn deadline(&mut self, topic: &S::Topic, live: &Live, now: Now) -> Response {
        let (live, asker) = behind(live);
        let mut response = self.inner.deadline(topic, &live, now);
        self.add(&mut response, asker);
        response
    }

    fn refuse(&mut self, refusal: &Refusal, announced: Announced<'_>, now: Now) -> Response {
        let (live, asker) = match announced.live.as_ref().map(behind) {
            Some((live, asker)) => (Some(live), asker),
            None => (None, self.named(announced.origin).unwrap_or(Asker(0))),
        };
        let mut response = self.inner.refuse(refusal, Announced { live, ..announced }, now);
        // Before a path has come, the client may have been about to read a stream.
        if announced.path.is_none_or(|path| path.starts_with(SHARED)) {
            self.add(&mut response, asker);
        }
        response
    }

    pass_on! { weight appends alone look writes turn_ended gone watch unwatch acknowledge }
}

const FOREIGN: Refusal = Refusal {
    status: 403,
    code: "origin-not-allowed",
    field: "Origin",
    detail: "Pages of that origin may not change anything here; the operator allows origins with --cors-origins.",
};

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::exchange::Mode;
    use thalweg_wire::field::Field;

    /// Answers 200, and follows live what asks for it; says what flavour it was asked with.
    struct Plain;

    impl Service for Plain {
        type Topic = ();

        fn call(&mut self, request: &Request<'_>, _: Now) -> Answer<()> {
            let response = Response { status: 200, ..Response::default() };
            if request.query.is_none() {
                return Answer::Respond(response);
            }
            let live = Live { mode: Mode::LongPoll, flavour: 0x83, opened: false, offset: 0, cursor: 0 };
            Answer::Live { topic_id: 1, topic: (), live, head: response, lasts_ms: None }
        }

        fn failed(&mut self, _: Now) -> Response {
            Response::default()
        }

        fn watch(&mut self, (): &()) {}

        fn unwatch(&mut self, (): &()) {}

        fn acknowledge(&mut self, (): &()) {}

        fn advance(&mut self, (): &(), live: &Live, _: Now) -> Advance {
            assert_eq!(live.flavour, 0x83);
            Advance::Respond(Response::default())
        }

        fn deadline(&mut self, (): &(), live: &Live, _: Now) -> Response {
            assert_eq!(live.flavour, 0x83);
            Response::default()
        }

        fn refuse(&mut self, refusal: &Refusal, _: Announced<'_>, _: Now) -> Response {
            Response { status: refusal.status, ..Response::default() }
        }
    }

    const NOW: Now = Now { time_us: 0, entropy: 0 };

    fn cors(origins: &[&str]) -> Cors<Plain> {
        let origins: Vec<Origin> = origins.iter().map(|origin| origin.parse().unwrap()).collect();
        Cors::new(Plain, Some(Policy::of(&origins).unwrap()))
    }

    fn answer(cors: &mut Cors<Plain>, method: Method, target: &str, origin: Option<&str>) -> Answer<()> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let field = origin.map(|origin| Field { name: Name::Origin, value: origin.as_bytes() });
        let request = Request { method, path, query, fields: field.as_slice(), body: b"", secure: false };
        cors.call(&request, NOW)
    }

    fn lines(response: &Response) -> String {
        String::from_utf8(response.fields.to_vec()).unwrap()
    }

    fn said(cors: &mut Cors<Plain>, method: Method, target: &str, origin: Option<&str>) -> (u16, String) {
        match answer(cors, method, target, origin) {
            Answer::Respond(response) => (response.status, lines(&response)),
            other => panic!("{other:?}"),
        }
    }

    const ALL: &str = "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: *\r\n";

    #[test]
    fn every_origin_is_allowed_everything_unless_told_otherwise() {
        let mut cors = cors(&["*"]);
        for origin in [None, Some("https://a"), Some("null")] {
            assert_eq!(said(&mut cors, Method::Post, "/v1/stream/x", origin), (200, ALL.to_owned()));
        }
    }

    #[test]
    fn a_page_can_read_that_the_store_failed_where_it_could_have_read_the_answer() {
        for origins in [&["*"][..], &["https://a", "https://b:8443"]] {
            for (path, origin) in
                [("/v1/stream/x", Some("https://b:8443")), ("/v1/stream/x", None), ("/rpc", None)]
            {
                let mut cors = cors(origins);
                let Answer::Respond(response) = answer(&mut cors, Method::Post, path, origin) else {
                    panic!()
                };
                let failed = cors.failed_instead_of(&response, NOW);
                assert_eq!(lines(&failed), lines(&response), "{origins:?} {path} {origin:?}");
            }
        }
    }

    #[test]
    fn of_several_origins_the_one_that_asks_is_named() {
        let mut cors = cors(&["https://a", "https://b:8443"]);
        let (status, said_to_b) = said(&mut cors, Method::Post, "/v1/stream/x", Some("https://b:8443"));
        assert_eq!(status, 200);
        assert!(
            said_to_b.starts_with("Vary: Origin\r\nAccess-Control-Allow-Origin: https://b:8443\r\n"),
            "{said_to_b}"
        );
        assert_eq!(
            said(&mut cors, Method::Get, "/v1/stream/x", Some("https://c")),
            (200, "Vary: Origin\r\n".into())
        );
        assert_eq!(said(&mut cors, Method::Post, "/v1/stream/x", Some("https://c")).0, 403);
        assert_eq!(said(&mut cors, Method::Post, "/v1/stream/x", Some("null")).0, 403);
        // What is no page says no origin.
        assert_eq!(said(&mut cors, Method::Post, "/v1/stream/x", None), (200, "Vary: Origin\r\n".into()));
    }

    #[test]
    fn a_subscription_remembers_who_asked() {
        let mut cors = cors(&["https://a", "https://b"]);
        let Answer::Live { live, head, .. } =
            answer(&mut cors, Method::Get, "/v1/stream/x?live", Some("https://b"))
        else {
            panic!("not live")
        };
        assert!(lines(&head).contains("Allow-Origin: https://b\r\n"));
        let Advance::Respond(response) = cors.advance(&(), &live, NOW) else { panic!("no response") };
        assert!(lines(&response).contains("Allow-Origin: https://b\r\n"));
        assert!(lines(&cors.deadline(&(), &live, NOW)).contains("Allow-Origin: https://b\r\n"));
    }

    #[test]
    fn other_paths_are_for_no_page() {
        assert_eq!(
            said(&mut cors(&["*"]), Method::Post, "/rpc/log", Some("https://a")),
            (200, String::new())
        );
        let (status, lines) = said(&mut cors(&["none"]), Method::Put, "/v1/stream/x", Some("https://a"));
        assert_eq!((status, lines.as_str()), (403, "Vary: Origin\r\n"));
    }

    #[test]
    fn a_refusal_has_lines_only_where_a_stream_may_have_been_asked_for() {
        let refusal = Refusal { status: 431, code: "", field: "", detail: "" };
        let said = |cors: &mut Cors<Plain>, path| {
            lines(&cors.refuse(&refusal, Announced { path, ..Announced::default() }, NOW))
        };
        let mut shared = cors(&["*"]);
        assert_eq!([said(&mut shared, None), said(&mut shared, Some("/v1/stream/x"))], [ALL, ALL]);
        assert_eq!([said(&mut shared, Some("/rpc/log")), said(&mut shared, Some("/rp"))], ["", ""]);
        let mut nobodys = Cors::new(Plain, None);
        assert_eq!([said(&mut nobodys, None), said(&mut nobodys, Some("/v1/stream/x"))], ["", ""]);
    }

    #[test]
    fn a_refusal_names_the_origin_that_was_announced_or_that_follows_and_no_other() {
        let refusal = Refusal { status: 503, code: "", field: "", detail: "" };
        let mut cors = cors(&["https://a", "https://b"]);
        let mut said = |path, origin: Option<&str>, live| {
            let announced = Announced { path, origin: origin.map(str::as_bytes), live };
            lines(&cors.refuse(&refusal, announced, NOW))
        };
        let named = "Allow-Origin: https://b\r\n";
        assert!(said(None, Some("https://b"), None).contains(named));
        assert!(said(Some("/v1/stream/x"), Some("https://b"), None).contains(named));
        assert_eq!(said(Some("/rpc/log"), Some("https://b"), None), "");
        for origin in [None, Some("https://c")] {
            assert_eq!(said(Some("/v1/stream/x"), origin, None), "Vary: Origin\r\n");
        }
        let flavour = 0x83 | 2 << ORIGIN_SHIFT;
        let live = Live { mode: Mode::Sse, flavour, opened: false, offset: 0, cursor: 0 };
        assert!(said(None, None, Some(live)).contains(named));
    }

    #[test]
    fn a_listener_of_services_alone_is_for_no_page() {
        let mut nobodys = Cors::new(Plain, None);
        for path in ["/v1/stream/x", "/rpc/log"] {
            let lines = said(&mut nobodys, Method::Post, path, Some("https://a"));
            assert_eq!(lines, (200, String::new()), "{path}");
        }
        assert_eq!(lines(&nobodys.failed(NOW)), "");
    }

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        for wrong in ["", "a", "https://", "https://a/", "HTTPS://a", "https://a b", "://a"] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
        for (wrong, sent) in [
            ("https://App.Example", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://A:80", "http://a"),
        ] {
            assert!(wrong.parse::<Origin>().unwrap_err().ends_with(&format!(" as {sent}")), "{wrong}");
        }
        for right in ["https://app.example:80", "http://[::1]:443", "http://127.0.0.1:8080", "app://x:80"] {
            assert!(right.parse::<Origin>().is_ok(), "{right}");
        }
        let of = |origins: &[&str]| {
            Policy::of(&origins.iter().map(|origin| origin.parse().unwrap()).collect::<Vec<_>>())
        };
        assert!(of(&["*", "https://a"]).is_err() && of(&["none", "none"]).is_err());
        assert!(of(&["https://a"; ORIGINS_MAX]).is_ok() && of(&["https://a"; ORIGINS_MAX + 1]).is_err());
    }
}
