//! One connection to a server, one request at a time.

use super::channel::{ANSWER_TIMEOUT, Channel, Endpoint};
use super::partly::Partly;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thalweg_http::tls::Trust;
use thalweg_wire::fault::Fault;
use thalweg_wire::host::is_port;
use thalweg_wire::http1::{BodyDecoder, ResponseError, parse_response};

/// Bytes of a refusal's body that are shown.
const REFUSAL_BYTES_MAX: usize = 4_096;

/// Why a verb did not do what it should.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The URL is none.
    Url(String),
    /// Nobody answers there.
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        error: io::Error,
    },
    /// The connection broke in the middle of an exchange.
    Broken(io::Error),
    /// The same, where the exchange was to change something.
    Unsure(io::Error),
    /// The server does not speak HTTP/1.1.
    Protocol(ResponseError),
    /// The server said no.
    Refused {
        /// Its status.
        status: u16,
        /// Its response head.
        head: Box<Head>,
        /// What it said.
        why: String,
    },
    /// The server's service said no.
    Said {
        /// The status that HTTP would give it.
        status: u16,
        /// The rule, and what to do.
        why: String,
    },
    /// The server's service was not reached, or its connection broke.
    Service(thalweg_service::Error),
    /// A name that no stream can have.
    Name {
        /// The name.
        name: String,
        /// The rule it breaks.
        why: String,
    },
    /// A message that is not JSON.
    Message {
        /// Where it stands: `line` or `argument`.
        what: &'static str,
        /// Which one, counted from 1.
        number: usize,
        /// Why.
        why: String,
    },
    /// One of several arguments was not taken.
    Argument {
        /// Which one, counted from 1.
        number: usize,
        /// Why.
        failure: Box<Failure>,
    },
    /// Some of what was to be appended is there, and more is not.
    Partly(Box<Partly>),
    /// A header value that would break the request.
    Header(String),
    /// A file cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Whoever is to be trusted cannot be read.
    Trust(io::Error),
    /// The stream ends before the offset asked for.
    PastEnd {
        /// The offset asked for.
        until: String,
        /// Where it ends.
        end: String,
    },
    /// An offset at which nothing that was appended ends.
    Until(String),
    /// There is no manual page of that verb.
    Verb {
        /// What was asked for.
        verb: String,
        /// What there is.
        known: String,
    },
    /// A copy cannot be made or gone on with.
    Copy(String),
    /// The command line asks for what there is not.
    Asked(&'static str),
    /// Some of several streams, each with its name.
    Several(Vec<(String, Failure)>),
    /// The system gives no random bytes.
    Random(io::Error),
    /// The system does not say when it is time to end.
    Signals(io::Error),
    /// Standard input cannot be read.
    Input(io::Error),
    /// Standard output cannot be written.
    Output(io::Error),
    /// An event that makes no sense.
    Event(String),
    /// What cannot be done, and why.
    Undone(String),
}

impl Failure {
    /// Which of several arguments it is about.
    pub(crate) fn of_argument(self, number: usize) -> Self {
        Self::Argument { number, failure: Box::new(self) }
    }

    /// Where what was sent was to change something.
    pub(crate) fn of_change(self) -> Self {
        if let Self::Broken(error) = self { Self::Unsure(error) } else { self }
    }

    /// What it comes down to, whatever is said around it.
    pub(crate) fn cause(&self) -> &Self {
        match self {
            Self::Argument { failure, .. } => failure.cause(),
            Self::Partly(partly) => partly.failure.cause(),
            _ => self,
        }
    }

    /// Whether what was sent last may have been applied nevertheless.
    pub(crate) fn leaves_open(&self) -> bool {
        matches!(self.cause(), Self::Broken(_) | Self::Unsure(_) | Self::Protocol(_))
    }
}

/// What a server says to do, in the words of this program.
fn in_verbs(why: &str) -> String {
    let advice = ["create it with PUT", "make it with Create"];
    advice.iter().fold(why.to_owned(), |why, advice| why.replace(advice, "`thalweg create` makes one"))
}

/// What to do about a server that did not prove itself, for what rustls says of it.
fn advice_on_tls(error: &str) -> &'static str {
    if error.contains("corrupt message") {
        "does it speak TLS? if not, it is http://"
    } else if error.contains("CaUsedAsEndEntity") {
        "it shows an authority's certificate, which no server may: make it one with CA:FALSE among its basicConstraints"
    } else {
        "name the certificates to trust with --tls-ca"
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                write!(out, "{url} is no server: expected http://host:port, https://host:port or unix:/path")
            }
            Self::Unreachable { url, error } => {
                write!(out, "cannot reach {url}: {error}")?;
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) {
                    write!(out, "; is the server running? start it with `thalweg serve`")?;
                } else if url.starts_with("https:") && error.kind() == io::ErrorKind::InvalidData {
                    write!(out, "; {}", advice_on_tls(&error.to_string()))?;
                }
                Ok(())
            }
            Self::Broken(error) => {
                write!(out, "the connection broke: {error}")
            }
            Self::Unsure(error) => {
                write!(out, "the connection broke: {error}; what was sent may have been applied")
            }
            Self::Protocol(error) => write!(out, "{error}"),
            Self::Refused { status, why, .. } => {
                write!(out, "the server refused ({status}): {}", in_verbs(why))?;
                if *status == 401 { write!(out, " Name one with --token or THALWEG_TOKEN.") } else { Ok(()) }
            }
            Self::Said { status, why } => write!(out, "the server refused ({status}): {}", in_verbs(why)),
            Self::Service(error) => {
                write!(out, "{error}")?;
                if error.fault == Fault::NoServer {
                    write!(out, "; `thalweg serve` is one, and --data names its store's directory")?;
                }
                Ok(())
            }
            Self::Name { name, why } => write!(out, "{name:?} cannot be a stream: {why}"),
            Self::Message { what, number, why } => write!(
                out,
                "{what} {number} is not a JSON message ({why}); everything before it is appended, nothing after it"
            ),
            Self::Argument { number, failure } => write!(out, "argument {number}: {failure}"),
            Self::Partly(partly) => write!(out, "{partly}"),
            Self::Header(name) => write!(out, "{name} holds a control character"),
            Self::File { path, error } => write!(out, "cannot read {}: {error}", path.display()),
            Self::PastEnd { until, end } => {
                write!(out, "the stream ends at {end}, before {until}; use --until tail for what there is")
            }
            Self::Random(error) => write!(out, "the system gives no random bytes: {error}"),
            Self::Until(until) => write!(
                out,
                "{until} is no offset at which this stream can be cut; give one that append, read or head printed"
            ),
            Self::Verb { verb, known } => write!(out, "there is no verb {verb}: there are {known}"),
            Self::Copy(why) | Self::Undone(why) => write!(out, "{why}"),
            Self::Trust(error) => write!(out, "{error}; --tls-ca takes a file of certificates (PEM)"),
            Self::Asked(why) => write!(out, "{why}"),
            Self::Several(failures) => {
                let each = |(name, failure): &(String, Self)| format!("{name}: {failure}");
                write!(out, "{}", failures.iter().map(each).collect::<Vec<_>>().join("\n"))
            }
            Self::Signals(error) => write!(out, "cannot watch for signals: {error}"),
            Self::Input(error) => write!(out, "cannot read standard input: {error}"),
            Self::Output(error) => write!(out, "cannot write standard output: {error}"),
            Self::Event(why) => write!(out, "the server sent an event that makes no sense: {why}"),
        }
    }
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    endpoint: Endpoint,
    /// What the Host field says.
    pub(super) host: String,
    /// Path in front of every target.
    pub(super) prefix: String,
    /// What the server asks for, if it does.
    token: Option<String>,
    /// Whom to trust, if not whom the system does.
    ca: Option<PathBuf>,
}

impl Url {
    /// # Errors
    /// [`Failure::Url`].
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let bad = || Failure::Url(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let endpoint = Endpoint::Unix(path.into());
            return Ok(Self {
                text: text.to_owned(),
                endpoint,
                host: "localhost".into(),
                prefix: String::new(),
                token: None,
                ca: None,
            });
        }
        // RFC 3986 3.1: a scheme may be written in capitals.
        let (scheme, rest) = text.split_once("://").ok_or_else(bad)?;
        let sealed = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(bad()),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // Both go into the head of every request.
        let sound = |part: &str, but: &[u8]| part.bytes().all(|b| b.is_ascii_graphic() && !but.contains(&b));
        if authority.is_empty() || !sound(authority, b"@") || !sound(path, b"?#") {
            return Err(bad());
        }
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        let port_given = port.is_some_and(is_port);
        // A number that is no port is no part of a name, either.
        if !port_given && port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(bad());
        }
        let port = if sealed { 443 } else { 80 };
        let address = if port_given { authority.to_owned() } else { format!("{authority}:{port}") };
        let name = address.rsplit_once(':').map_or_else(String::new, |(name, _)| name.to_owned());
        let endpoint = if sealed { Endpoint::Tls { address, name } } else { Endpoint::Tcp(address) };
        Ok(Self {
            text: text.to_owned(),
            endpoint,
            host: authority.to_owned(),
            prefix: path.trim_end_matches('/').to_owned(),
            token: None,
            ca: None,
        })
    }
}

impl Url {
    /// With what the server asks for.
    pub(crate) fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Behind https://, trusting whom this file names, if there is one.
    pub(crate) fn trusting(mut self, ca: Option<PathBuf>) -> Self {
        self.ca = ca;
        self
    }

    /// Whom to trust there, read before anybody is spoken to.
    fn trust(&self) -> Result<Option<Trust>, Failure> {
        match (&self.endpoint, &self.ca) {
            (Endpoint::Tls { .. }, Some(path)) => {
                let read = Trust::in_file(path).map(Some);
                read.map_err(Failure::Trust)
            }
            _ => Ok(None),
        }
    }

    /// Whether both lead to the same server.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint
    }

    /// As it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// A response head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    /// The connection can be used again once the body was read.
    pub(crate) keep_alive: bool,
}

impl Head {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Whether a field that is true or absent is true.
    pub(crate) fn says(&self, name: &str) -> bool {
        self.field(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Channel,
    host: String,
    prefix: String,
    token: Option<String>,
    received: Vec<u8>,
    /// What is left of the body being read.
    rest: Option<BodyDecoder>,
}

impl Connection {
    /// # Errors
    /// [`Failure::Unreachable`].
    pub(crate) fn open(url: &Url) -> Result<Self, Failure> {
        let stream = Channel::open(&url.endpoint, &url.trust()?)
            .map_err(|error| Failure::Unreachable { url: url.text.clone(), error })?;
        let (host, prefix, token) = (url.host.clone(), url.prefix.clone(), url.token.clone());
        Ok(Self { stream, host, prefix, token, received: Vec::new(), rest: None })
    }

    /// Sends a request and reads the head of its response; the body is then read by
    /// [`Connection::read_some`].
    ///
    /// # Errors
    /// [`Failure::Refused`] for a status of 400 and above, with what the server said.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Head, Failure> {
        let mut request = format!("{method} {}{target} HTTP/1.1\r\nHost: {}\r\n", self.prefix, self.host);
        let authorization = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let authorization = authorization.iter().map(|value| ("Authorization", value.as_str()));
        for (name, value) in fields.iter().copied().chain(authorization) {
            if value.bytes().any(|byte| byte.is_ascii_control()) {
                return Err(Failure::Header(name.to_owned()));
            }
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT") {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        // A server may refuse early and close: what it said is worth more than the broken pipe.
        let sent = self.stream.write_all(&bytes);
        if let Err(error) = &sent
            && error.kind() == io::ErrorKind::WouldBlock
        {
            return Err(Failure::Broken(late("the server took nothing")));
        }
        let head = match (self.head(method == "HEAD"), sent) {
            (Err(Failure::Broken(_)), Err(error)) => return Err(Failure::Broken(error)),
            (outcome, _) => outcome?,
        };
        if head.status >= 400 {
            // That it refused is known, whatever becomes of the rest of what it says.
            let mut said = Vec::new();
            while said.len() < REFUSAL_BYTES_MAX && matches!(self.read_some(&mut said), Ok(true)) {}
            let why = if said.is_empty() { unsaid(head.status).to_owned() } else { refusal(&said) };
            return Err(Failure::Refused { status: head.status, why, head: Box::new(head) });
        }
        Ok(head)
    }

    /// The body of the last response was read to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.rest.is_none() && self.received.is_empty()
    }

    fn head(&mut self, to_head: bool) -> Result<Head, Failure> {
        loop {
            let received = std::mem::take(&mut self.received);
            if let Some(head) = parse_response(&received, to_head).map_err(Failure::Protocol)? {
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                let fields = head.fields.iter().map(|f| (f.name.to_owned(), text(f.value))).collect();
                let owned = Head { status: head.status, fields, keep_alive: head.keep_alive };
                let is_between = head.is_between();
                // What has no byte to come is at its end.
                self.rest =
                    Some(BodyDecoder::of(head.body)).filter(|rest| !matches!(rest, BodyDecoder::Known(0)));
                self.received = received[head.bytes..].to_vec();
                if is_between {
                    continue;
                }
                return Ok(owned);
            }
            self.received = received;
            self.fill()?;
        }
    }

    /// Appends some of the body; `false` at its end.
    ///
    /// # Errors
    /// [`Failure::Broken`] when the connection ends in the middle of it.
    pub(crate) fn read_some(&mut self, into: &mut Vec<u8>) -> Result<bool, Failure> {
        loop {
            let Some(rest) = &mut self.rest else { return Ok(false) };
            let chunk = rest.decode(&self.received).map_err(|_| Failure::Protocol(ResponseError::Framing))?;
            into.extend_from_slice(chunk.data);
            let (some, consumed, done) = (!chunk.data.is_empty(), chunk.consumed, chunk.done);
            self.received.drain(..consumed);
            let ends_with_connection = rest.needs_end();
            if done {
                self.rest = None;
            }
            if some || done {
                return Ok(some);
            }
            match self.fill() {
                Err(Failure::Broken(error))
                    if error.kind() == io::ErrorKind::UnexpectedEof && ends_with_connection =>
                {
                    self.rest = None;
                }
                outcome => outcome?,
            }
        }
    }

    fn fill(&mut self) -> Result<(), Failure> {
        let mut piece = [0_u8; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(Failure::Broken(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed it before its answer was whole",
            ))),
            Ok(count) => {
                self.received.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(Failure::Broken(late("the server said nothing")))
            }
            Err(error) => Err(Failure::Broken(error)),
        }
    }
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} for {} s", ANSWER_TIMEOUT.as_secs()))
}

/// What a refusal without a body means, as every one of a HEAD is.
fn unsaid(status: u16) -> &'static str {
    match status {
        401 => "The server asks for a token that it knows.",
        403 => "The token does not allow it.",
        404 => "there is no such stream; `thalweg ls` lists those there are, `thalweg create` makes one",
        410 => "the stream, or what stood there, is gone",
        _ => "it did not say why",
    }
}

/// What a refusal says: the detail of a problem document (RFC 9457), or its text.
fn refusal(said: &[u8]) -> String {
    if let Ok(problem) = serde_json::from_slice::<serde_json::Value>(said)
        && let Some(detail) = problem.get("detail").or_else(|| problem.get("title")).and_then(|v| v.as_str())
    {
        return detail.to_owned();
    }
    let text = String::from_utf8_lossy(said).trim().to_owned();
    if text.starts_with('<') {
        return "a page for people came back, so this is no server of streams: is the URL right?".to_owned();
    }
    if text.is_empty() { "it did not say why".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::{scripted, session::passes};
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    #[test]
    fn urls() {
        let url = Url::parse("http://localhost:4437/base/").unwrap();
        assert_eq!((url.host.as_str(), url.prefix.as_str()), ("localhost:4437", "/base"));
        assert_eq!(url.endpoint, Endpoint::Tcp("localhost:4437".into()));
        assert_eq!(Url::parse("http://h").unwrap().endpoint, Endpoint::Tcp("h:80".into()));
        let tls = |address: &str, name: &str| Endpoint::Tls { address: address.into(), name: name.into() };
        assert_eq!(Url::parse("https://h").unwrap().endpoint, tls("h:443", "h"));
        assert_eq!(Url::parse("https://[::1]:1/x").unwrap().endpoint, tls("[::1]:1", "[::1]"));
        assert_eq!(Url::parse("unix:/run/t.sock").unwrap().endpoint, Endpoint::Unix("/run/t.sock".into()));
        for bad in [
            "",
            "ftp://h",
            "h:80",
            "http://",
            "http://u@h",
            "http://h/?q",
            "unix:",
            "http://h /",
            "http://h:99999",
            "https://[::1]:65536",
            "http://h/a b",
            "http://h/\u{f}",
        ] {
            assert!(matches!(Url::parse(bad), Err(Failure::Url(_))), "{bad}");
        }
    }

    #[test]
    fn nobody_there_says_what_to_do() {
        let Err(failure) = Connection::open(&Url::parse("unix:/nowhere/at/all.sock").unwrap()) else {
            panic!("somebody there")
        };
        assert!(failure.to_string().contains("start it with `thalweg serve`"), "{failure}");
    }

    #[test]
    fn a_server_that_takes_nothing_is_waited_for_no_longer_than_one_that_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let (tcp, unix) =
            (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let tcp_url = format!("http://{}", tcp.local_addr().unwrap());
        let body = vec![0; 64 << 20];
        for url in [tcp_url, format!("unix:{}", path.display())] {
            let mut connection = Connection::open(&Url::parse(&url).unwrap()).unwrap();
            // As long as a test may wait.
            let (before, set) = match &connection.stream {
                Channel::Tcp(stream) => {
                    (stream.write_timeout(), stream.set_write_timeout(Some(Duration::from_millis(20))))
                }
                Channel::Unix(stream) => {
                    (stream.write_timeout(), stream.set_write_timeout(Some(Duration::from_millis(20))))
                }
                Channel::Tls(_) => panic!("nothing is sealed here"),
            };
            set.unwrap();
            assert_eq!(before.unwrap(), Some(ANSWER_TIMEOUT));
            let failure = connection.ask("POST", "/v1/stream/a", &[], &body).unwrap_err();
            assert!(failure.to_string().contains("took nothing") && passes(&failure), "{failure}");
        }
        drop(unix);
    }

    #[test]
    fn a_refusal_that_is_cut_short_is_one_all_the_same() {
        let url = scripted::serve(|_| {
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 100\r\n\r\nit is too".to_owned()
        });
        let mut connection = Connection::open(&Url::parse(&url).unwrap()).unwrap();
        let failure = connection.ask("POST", "/v1/stream/a", &[], b"x").unwrap_err();
        let Failure::Refused { status: 413, why, .. } = &failure else { panic!("{failure}") };
        assert_eq!(why, "it is too");
        assert!(!passes(&failure), "it would be sent again");
    }

    #[test]
    fn refusals_are_told_in_their_own_words() {
        assert_eq!(
            refusal(br#"{"title":"Bad","detail":"The offset is malformed."}"#),
            "The offset is malformed."
        );
        assert_eq!(refusal(br#"{"title":"Bad"}"#), "Bad");
        assert_eq!(refusal(b" plain words\n"), "plain words");
        assert_eq!(refusal(b""), "it did not say why");
        assert!(refusal(b"<!DOCTYPE html><title>Not found</title>").contains("is the URL right?"));
        assert!(unsaid(404).contains("thalweg ls") && unsaid(401).contains("token"));
        assert_eq!(unsaid(418), "it did not say why");
    }
}
