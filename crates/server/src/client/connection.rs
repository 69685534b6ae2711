//! One connection to a server, one request at a time.

use super::channel::{ANSWER_TIMEOUT, Channel};
use super::failure::{Failure, Reason, UNSAID, refusal, unsaid};
use super::url::Url;
use std::io;
use thalweg_wire::http1::{BodyDecoder, ResponseError, parse_response};

/// Bytes of a refusal's body that are shown.
const REFUSAL_BYTES_MAX: usize = 4_096;

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
    url: Url,
    received: Vec<u8>,
    /// What is left of the body being read.
    rest: Option<BodyDecoder>,
}

impl Connection {
    /// # Errors
    /// [`Failure::Unreachable`].
    pub(crate) fn open(url: &Url) -> Result<Self, Failure> {
        let stream = Channel::open(&url.endpoint, &url.trust()?)
            .map_err(|error| Failure::Unreachable { url: url.text().to_owned(), error })?;
        Ok(Self { stream, url: url.clone(), received: Vec::new(), rest: None })
    }

    /// Sends a request and reads the head of its response; the body is then read by
    /// [`Connection::read_some`].
    ///
    /// # Errors
    /// [`Failure::Refused`] for a status of 400 and above, with what the server said; where a HEAD's head
    /// does not tell, with what it says to a GET.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Head, Failure> {
        let mut request =
            format!("{method} {}{target} HTTP/1.1\r\nHost: {}\r\n", self.url.prefix, self.url.host);
        let authorization = self.url.token.as_ref().map(|token| format!("Bearer {token}"));
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
            let Reason { why, rule } = match unsaid(&head) {
                _ if !said.is_empty() => refusal(&said),
                Some(known) => Reason::said(known),
                None if method == "HEAD" => self.said_to_get(target, head.status),
                None => Reason::said(UNSAID),
            };
            return Err(Failure::Refused { status: head.status, why, rule, head: Box::new(head) });
        }
        Ok(head)
    }

    /// Why a HEAD was refused, as the answer to a GET says. On a connection of its own, since a server that
    /// refuses may close this one.
    fn said_to_get(&self, target: &str, status: u16) -> Reason {
        let asked = Self::open(&self.url).and_then(|mut other| other.ask("GET", target, &[], b""));
        match asked {
            Err(Failure::Refused { status: again, why, rule, .. }) if again == status => Reason { why, rule },
            _ => Reason::said(UNSAID),
        }
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

#[cfg(test)]
mod tests {
    use super::super::failure::passes;
    use super::super::scripted;
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

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
    fn why_a_head_was_refused_is_what_a_get_is_told() {
        let why = |answers: fn(&str) -> String| {
            let url = scripted::serve(answers);
            let mut connection = Connection::open(&Url::parse(&url).unwrap()).unwrap();
            let failure = connection.ask("HEAD", "/v1/stream/a", &[], b"").unwrap_err();
            let Failure::Refused { why, .. } = failure else { panic!("{failure}") };
            why
        };
        let said = why(|asked| {
            scripted::answer(
                403,
                &[],
                if asked.starts_with("GET ") { r#"{"detail":"Not from here."}"# } else { "" },
            )
        });
        assert_eq!(said, "Not from here.");
        let said = why(|asked| match asked {
            "HEAD /v1/stream/a" => scripted::answer(403, &[("WWW-Authenticate", "Bearer")], ""),
            asked => panic!("{asked}, though the head tells"),
        });
        assert!(said.contains("token"), "{said}");
        // Meanwhile it changed its mind.
        let said = why(|asked| scripted::answer(if asked.starts_with("GET ") { 200 } else { 400 }, &[], ""));
        assert_eq!(said, UNSAID);
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
}
