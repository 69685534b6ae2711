//! One request of our own and its answer, over a socket that never blocks: what webhooks are called with.
//!
//! An [`Exchange`] owns bytes, not sockets: whoever has the connected socket calls [`Exchange::drive`] when it
//! is ready, and is told what to wait for next. With TLS the peer must prove its name; HTTP is the same.
//! Bounded: the answer's head by the parser, its body by [`BODY_BYTES_MAX`]. Redirects are not followed.

pub use crate::tls::Trust;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use thalweg_reactor::Interest;
use thalweg_sys::socket;
use thalweg_wire::http1::{BodyLength, ChunkedDecoder, parse_response};

/// Bytes of an answer's body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an answer with its head and framing.
const ANSWER_BYTES_MAX: usize = 192 * 1024;
const READ_BYTES: usize = 16 * 1024;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// The body, transfer coding removed.
    pub body: Vec<u8>,
}

/// How far an exchange has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Drive again once the socket is ready for this.
    Wait(Interest),
    /// The answer is whole.
    Done(Reply),
}

enum Channel {
    Plain,
    Tls(Box<ClientConnection>),
}

/// A request on its way, and as much of its answer as has come.
pub struct Exchange {
    channel: Channel,
    request: Vec<u8>,
    sent: usize,
    answer: Vec<u8>,
}

/// Whether a peer sends more.
enum End {
    /// It may.
    None,
    /// It said that it does not.
    Said,
    /// The connection ended without a word: an answer that only the end delimits does not count as whole. This is why the
    /// exchange failed, if its answer is not there.
    Cut(io::Error),
}

/// A socket as the standard library's traits, for the TLS library.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut bytes = Vec::with_capacity(into.len());
        match socket::receive(self.0, &mut bytes, into.len())? {
            Some(count) => {
                into[..count].copy_from_slice(&bytes);
                Ok(count)
            }
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.0, bytes)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A POST, ready to be sent. Values must be free of CR and LF; those of URLs that were parsed are.
pub fn post(path: &str, authority: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut request = format!("POST {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n");
    for (name, value) in fields {
        debug_assert!(!value.contains(['\r', '\n']), "a value is one line");
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("Content-Length: {}\r\n\r\n", body.len());
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    request
}

impl Exchange {
    /// Over a plain connection.
    pub fn plain(request: Vec<u8>) -> Exchange {
        Exchange { channel: Channel::Plain, request, sent: 0, answer: Vec::new() }
    }

    /// Over TLS, with a peer that proves to be `host`, a name or an address.
    ///
    /// # Errors
    /// `host` is neither.
    pub fn tls(request: Vec<u8>, host: &str, trust: &Trust) -> io::Result<Exchange> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(trust.0.clone(), name).map_err(io::Error::other)?;
        let channel = Channel::Tls(Box::new(connection));
        Ok(Exchange { channel, request, sent: 0, answer: Vec::new() })
    }

    /// Sends and receives what the socket takes and has. To be called when it is ready, and once connected.
    ///
    /// # Errors
    /// The connection broke, the peer is not who it should be, or its answer is not HTTP or too large.
    pub fn drive(&mut self, socket: BorrowedFd<'_>) -> io::Result<Progress> {
        let (writing, end) = match &mut self.channel {
            Channel::Plain => self.drive_plain(socket),
            Channel::Tls(connection) => {
                drive_tls(connection, socket, &self.request, &mut self.sent, &mut self.answer)?
            }
        };
        if let Some(reply) = reply(&self.answer, matches!(end, End::Said))? {
            return Ok(Progress::Done(reply));
        }
        match end {
            End::None => {}
            End::Said => return Err(io::ErrorKind::UnexpectedEof.into()),
            End::Cut(error) => return Err(error),
        }
        if self.answer.len() > ANSWER_BYTES_MAX {
            return Err(too_large());
        }
        Ok(Progress::Wait(if writing { Interest::BOTH } else { Interest::READ }))
    }

    /// Whether there is more to send, and whether the peer sends no more. A peer may answer early, close, and take no more of
    /// the request: what it said is worth more than the broken pipe.
    fn drive_plain(&mut self, socket: BorrowedFd<'_>) -> (bool, End) {
        let sent = self.send(socket);
        let end = match (self.receive(socket), sent) {
            (_, Err(error)) => End::Cut(error),
            (end, Ok(())) => end,
        };
        (self.sent < self.request.len(), end)
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.sent < self.request.len() {
            match socket::send(socket, &self.request[self.sent..])? {
                Some(count) => self.sent += count,
                None => break,
            }
        }
        Ok(())
    }

    fn receive(&mut self, socket: BorrowedFd<'_>) -> End {
        while self.answer.len() <= ANSWER_BYTES_MAX {
            self.answer.reserve(READ_BYTES);
            match socket::receive(socket, &mut self.answer, READ_BYTES) {
                Ok(Some(0)) => return End::Said,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return End::Cut(error),
            }
        }
        End::None
    }
}

/// Whether there is more to send, and whether the peer sends no more. As with a plain connection, what a peer said that takes
/// no more is read before it is given up.
fn drive_tls(
    connection: &mut ClientConnection,
    socket: BorrowedFd<'_>,
    request: &[u8],
    sent: &mut usize,
    answer: &mut Vec<u8>,
) -> io::Result<(bool, End)> {
    let mut socket = Socket(socket);
    let (mut end, mut refused) = (End::None, None);
    while matches!(end, End::None) && answer.len() <= ANSWER_BYTES_MAX {
        if let Err(error) = send_tls(connection, &mut socket, request, sent) {
            refused = Some(error);
        }
        let came = match connection.read_tls(&mut socket) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => {
                end = End::Cut(error);
                break;
            }
        };
        let state = connection.process_new_packets().map_err(io::Error::other)?;
        let start = answer.len();
        answer.resize(start + state.plaintext_bytes_to_read(), 0);
        connection.reader().read_exact(&mut answer[start..])?;
        if state.peer_has_closed() {
            end = End::Said;
        } else if came == 0 {
            end = End::Cut(io::ErrorKind::UnexpectedEof.into());
        }
    }
    // A peer that said its last word has, whatever became of ours.
    if let (Some(error), End::None | End::Cut(_)) = (refused, &end) {
        end = End::Cut(error);
    }
    Ok((connection.wants_write() || *sent < request.len(), end))
}

fn send_tls(
    connection: &mut ClientConnection,
    socket: &mut Socket<'_>,
    request: &[u8],
    sent: &mut usize,
) -> io::Result<()> {
    while *sent < request.len() {
        // The library takes what its own bound on unsent bytes lets it.
        match connection.writer().write(&request[*sent..])? {
            0 => break,
            count => *sent += count,
        }
    }
    while connection.wants_write() {
        match connection.write_tls(socket) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The answer in `bytes` if it is whole, informational ones passed over.
fn reply(bytes: &[u8], ended: bool) -> io::Result<Option<Reply>> {
    let mut rest = bytes;
    loop {
        let Some(head) = parse_response(rest, false).map_err(io::Error::other)? else { return Ok(None) };
        let body = &rest[head.bytes..];
        if (100..200).contains(&head.status) && head.status != 101 {
            rest = body;
            continue;
        }
        let body = match head.body {
            Some(BodyLength::Known(length)) => {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                if length > BODY_BYTES_MAX {
                    return Err(too_large());
                }
                body.get(..length).map(<[u8]>::to_vec)
            }
            Some(BodyLength::Chunked) => dechunked(body)?,
            None => ended.then(|| body.to_vec()),
        };
        if body.as_ref().is_some_and(|body| body.len() > BODY_BYTES_MAX) {
            return Err(too_large());
        }
        return Ok(body.map(|body| Reply { status: head.status, body }));
    }
}

fn dechunked(mut bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut decoder = ChunkedDecoder::default();
    let mut body = Vec::new();
    loop {
        let chunk = decoder.decode(bytes).map_err(|refusal| io::Error::other(refusal.detail))?;
        body.extend_from_slice(chunk.data);
        if chunk.done {
            return Ok(Some(body));
        }
        if chunk.consumed == 0 {
            return Ok(None);
        }
        bytes = &bytes[chunk.consumed..];
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is larger than is read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    fn whole(text: &str) -> Option<Reply> {
        reply(text.as_bytes(), false).unwrap()
    }

    #[test]
    fn answers_are_whole_when_their_framing_says_so() {
        let reply_of = |status, body: &str| Some(Reply { status, body: body.as_bytes().to_vec() });
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), reply_of(200, "ok"));
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), None);
        assert_eq!(whole("HTTP/1.1 204 No Content\r\n\r\n"), reply_of(204, ""));
        assert_eq!(whole("HTTP/1.1 200 OK\r\n\r\nok"), None);
        assert_eq!(reply(b"HTTP/1.1 200 OK\r\n\r\nok", true).unwrap(), reply_of(200, "ok"));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
        assert_eq!(whole(chunked), reply_of(200, "abc"));
        (0..chunked.len()).for_each(|cut| assert_eq!(whole(&chunked[..cut]), None, "cut at {cut}"));
        let hints = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(whole(hints), reply_of(500, ""));
    }

    #[test]
    fn answers_that_are_too_large_or_none_are_errors() {
        let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY_BYTES_MAX + 1);
        assert!(reply(large.as_bytes(), false).is_err());
        assert!(reply(b"SSH-2.0-x\r\n", false).is_err());
    }

    #[test]
    fn a_request_goes_out_and_an_answer_comes_in_however_it_is_cut() {
        let (ours, theirs) = socket::pair().unwrap();
        let request = post("/hook", "h:1", &[("X", "y")], b"{}");
        let mut exchange = Exchange::plain(request.clone());
        assert_eq!(exchange.drive(ours.as_fd()).unwrap(), Progress::Wait(Interest::READ));
        let mut received = Vec::with_capacity(4096);
        assert_eq!(socket::receive(theirs.as_fd(), &mut received, 4096).unwrap(), Some(request.len()));
        let text = String::from_utf8(received).unwrap();
        assert!(
            text.starts_with("POST /hook HTTP/1.1\r\nHost: h:1\r\n") && text.ends_with("\r\n\r\n{}"),
            "{text}"
        );
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"done\":true}";
        for byte in &answer[..answer.len() - 1] {
            socket::send(theirs.as_fd(), &[*byte]).unwrap();
            assert_eq!(exchange.drive(ours.as_fd()).unwrap(), Progress::Wait(Interest::READ));
        }
        socket::send(theirs.as_fd(), b"}").unwrap();
        let reply = Reply { status: 200, body: b"{\"done\":true}".to_vec() };
        assert_eq!(exchange.drive(ours.as_fd()).unwrap(), Progress::Done(reply));
    }

    #[test]
    fn a_connection_that_ends_early_is_an_error() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut exchange = Exchange::plain(post("/", "h", &[], b""));
        assert!(exchange.drive(ours.as_fd()).is_ok());
        socket::send(theirs.as_fd(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok").unwrap();
        drop(theirs);
        let error = loop {
            match exchange.drive(ours.as_fd()) {
                Ok(progress) => assert_eq!(progress, Progress::Wait(Interest::READ)),
                Err(error) => break error,
            }
        };
        assert!(matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset));
    }

    /// A request of which no socket takes all at once.
    fn long_request(host: &str) -> Vec<u8> {
        post("/hook", host, &[], &vec![b'x'; 8 << 20])
    }

    const EARLY: &[u8] = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!";

    #[test]
    fn an_answer_counts_though_its_peer_took_no_more_of_the_request() {
        for request in [long_request("h"), post("/", "h", &[], b"")] {
            let (ours, theirs) = socket::pair().unwrap();
            let mut exchange = Exchange::plain(request);
            assert!(matches!(exchange.drive(ours.as_fd()).unwrap(), Progress::Wait(_)));
            socket::send(theirs.as_fd(), EARLY).unwrap();
            drop(theirs);
            let reply = Reply { status: 413, body: b"no!".to_vec() };
            assert_eq!(exchange.drive(ours.as_fd()).unwrap(), Progress::Done(reply));
        }
        // Where only the end says that all is there, this end says nothing.
        let (ours, theirs) = socket::pair().unwrap();
        let mut exchange = Exchange::plain(long_request("h"));
        assert_eq!(exchange.drive(ours.as_fd()).unwrap(), Progress::Wait(Interest::BOTH));
        socket::send(theirs.as_fd(), b"HTTP/1.1 200 OK\r\n\r\nhalf").unwrap();
        drop(theirs);
        assert!(exchange.drive(ours.as_fd()).is_err());
    }

    #[test]
    fn an_encrypted_answer_counts_though_its_peer_took_no_more_of_the_request() {
        let (mut peer, trust) = Peer::new("worker.example");
        let (ours, theirs) = socket::pair().unwrap();
        let mut exchange = Exchange::tls(long_request("worker.example"), "worker.example", &trust).unwrap();
        while peer.heard.is_empty() {
            assert!(matches!(exchange.drive(ours.as_fd()).unwrap(), Progress::Wait(_)));
            peer.turn(theirs.as_fd());
        }
        assert!(matches!(exchange.drive(ours.as_fd()).unwrap(), Progress::Wait(_)));
        peer.connection.writer().write_all(EARLY).unwrap();
        while peer.connection.wants_write() {
            peer.connection.write_tls(&mut Socket(theirs.as_fd())).unwrap();
        }
        drop(theirs);
        let reply = Reply { status: 413, body: b"no!".to_vec() };
        assert_eq!(exchange.drive(ours.as_fd()).unwrap(), Progress::Done(reply));
    }

    /// What a server with a certificate of its own making makes of the bytes a client sends, step by step.
    struct Peer {
        connection: rustls::ServerConnection,
        heard: Vec<u8>,
    }

    impl Peer {
        /// A peer called `name`, and the trust that takes it for that.
        fn new(name: &str) -> (Peer, Trust) {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(made.cert.der().clone()).unwrap();
            let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key)
                .unwrap();
            let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            (Peer { connection, heard: Vec::new() }, Trust::in_roots(roots).unwrap())
        }

        fn turn(&mut self, socket: BorrowedFd<'_>) {
            let mut socket = Socket(socket);
            while self.connection.read_tls(&mut socket).is_ok_and(|count| count > 0) {
                if self.connection.process_new_packets().is_err() {
                    break;
                }
            }
            let _ = self.connection.reader().read_to_end(&mut self.heard);
            while self.connection.wants_write() && self.connection.write_tls(&mut socket).is_ok() {}
        }
    }

    /// Lets both sides go on until the client has its answer, or gives up.
    fn talk(mut exchange: Exchange, mut peer: Peer, answer: &[u8], say_goodbye: bool) -> io::Result<Reply> {
        let (ours, theirs) = socket::pair().unwrap();
        let mut answered = false;
        for _ in 0..1_000 {
            if let Progress::Done(reply) = exchange.drive(ours.as_fd())? {
                return Ok(reply);
            }
            peer.turn(theirs.as_fd());
            if !answered && peer.heard.ends_with(b"secret") {
                answered = true;
                peer.connection.writer().write_all(answer).unwrap();
                if say_goodbye {
                    peer.connection.send_close_notify();
                }
                peer.turn(theirs.as_fd());
                socket::shutdown_write(theirs.as_fd()).unwrap();
            }
        }
        panic!("they never came to an end");
    }

    #[test]
    fn an_encrypted_exchange_ends_with_the_answer_of_whoever_proved_its_name() {
        let request = || post("/hook", "worker.example", &[], b"secret");
        let known_length = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"done\":true}";
        for say_goodbye in [true, false] {
            let (peer, trust) = Peer::new("worker.example");
            let exchange = Exchange::tls(request(), "worker.example", &trust).unwrap();
            let reply = talk(exchange, peer, known_length, say_goodbye).unwrap();
            assert_eq!((reply.status, reply.body.as_slice()), (200, &b"{\"done\":true}"[..]));
        }
        // Where only the end says that all is there, the end has to be the peer's word.
        let until_the_end = b"HTTP/1.1 200 OK\r\n\r\n{\"done\":true}";
        let (peer, trust) = Peer::new("worker.example");
        let exchange = Exchange::tls(request(), "worker.example", &trust).unwrap();
        assert_eq!(talk(exchange, peer, until_the_end, true).unwrap().body, b"{\"done\":true}");
        let (peer, trust) = Peer::new("worker.example");
        let exchange = Exchange::tls(request(), "worker.example", &trust).unwrap();
        assert!(talk(exchange, peer, until_the_end, false).is_err());
        // The right root, and another name.
        let (peer, trust) = Peer::new("other.example");
        let exchange = Exchange::tls(request(), "worker.example", &trust).unwrap();
        assert!(talk(exchange, peer, known_length, true).is_err());
    }

    #[test]
    fn a_peer_that_proves_nothing_is_refused() {
        let (ours, theirs) = socket::pair().unwrap();
        let trust = Trust::in_roots(RootCertStore::empty()).unwrap();
        let mut exchange = Exchange::tls(post("/", "h", &[], b"secret"), "worker.example", &trust).unwrap();
        assert!(exchange.drive(ours.as_fd()).is_ok());
        let mut hello = Vec::with_capacity(4096);
        socket::receive(theirs.as_fd(), &mut hello, 4096).unwrap();
        assert_eq!(hello[0], 22, "a TLS handshake, not the request");
        assert!(!hello.windows(6).any(|bytes| bytes == b"secret"));
        socket::send(theirs.as_fd(), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert!(exchange.drive(ours.as_fd()).is_err());
        assert!(Exchange::tls(Vec::new(), "not a name", &trust).is_err());
    }
}
