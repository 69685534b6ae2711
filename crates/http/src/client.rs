//! One request of our own and its answer, over a socket that never blocks: what webhooks are called with.
//!
//! An [`Exchange`] owns bytes, not sockets: the owner of the connected socket calls [`Exchange::drive`] when
//! it is ready, and is told what to wait for next. With TLS the peer must prove its name; HTTP is the same.
//! Bounded: the answer's head by the parser, its body by [`BODY_BYTES_MAX`]. Redirects are not followed.

use crate::tls::Peer;
pub use crate::tls::Trust;
use std::io;
use std::os::fd::BorrowedFd;
use thalweg_reactor::Interest;
use thalweg_sys::socket;
use thalweg_wire::http1::{Arrival, ArrivalError, CompleteResponse};

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

/// A request on its way, and as much of its answer as has come.
pub struct Exchange {
    /// What seals the connection, if it is.
    peer: Option<Box<Peer>>,
    /// What is to be sent, sealed if the connection is, and how much of it the socket took.
    outgoing: Vec<u8>,
    sent: usize,
    /// As it came, before it is opened.
    sealed: Vec<u8>,
    answer: Vec<u8>,
    arrival: Arrival,
}

/// Whether a peer sends more.
enum End {
    /// It may.
    None,
    /// It said that it does not.
    Said,
    /// The connection ended without a word: an answer that only the end delimits does not count as whole.
    /// This is why the exchange failed, if its answer is not there.
    Cut(io::Error),
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
        Self::over(None, request)
    }

    /// Over TLS, with a peer that proves to be `host`, a name or an address.
    ///
    /// # Errors
    /// `host` is neither.
    pub fn tls(request: Vec<u8>, host: &str, trust: &Trust) -> io::Result<Exchange> {
        let mut peer = Peer::new(trust, host)?;
        peer.seal(&request)?;
        Ok(Self::over(Some(Box::new(peer)), Vec::new()))
    }

    fn over(peer: Option<Box<Peer>>, outgoing: Vec<u8>) -> Exchange {
        let (sealed, answer) = (Vec::new(), Vec::new());
        Exchange { peer, outgoing, sent: 0, sealed, answer, arrival: Arrival::default() }
    }

    /// Sends and receives what the socket takes and has. To be called when it is ready, and once connected.
    ///
    /// # Errors
    /// The connection broke, the peer is not who it should be, or its answer is not HTTP or too large.
    pub fn drive(&mut self, socket: BorrowedFd<'_>) -> io::Result<Progress> {
        let end = self.exchange(socket)?;
        let whole = self.arrival.look(&mut self.answer, BODY_BYTES_MAX).map_err(unread)?;
        let whole = whole.or_else(|| if matches!(end, End::Said) { self.arrival.end() } else { None });
        if let Some(CompleteResponse { status, body, .. }) = whole {
            self.answer.truncate(body.end);
            return Ok(Progress::Done(Reply { status, body: self.answer.split_off(body.start) }));
        }
        match end {
            End::None => {}
            End::Said => return Err(io::ErrorKind::UnexpectedEof.into()),
            End::Cut(error) => return Err(error),
        }
        if self.answer.len() > ANSWER_BYTES_MAX {
            return Err(too_large());
        }
        Ok(Progress::Wait(if self.sent < self.outgoing.len() { Interest::BOTH } else { Interest::READ }))
    }

    /// Both ways as far as the socket goes. A peer may answer early, close, and take no more of the request:
    /// what it said is worth more than the broken pipe, which a peer behind TLS that said its last word makes
    /// up for, and no other.
    fn exchange(&mut self, socket: BorrowedFd<'_>) -> io::Result<End> {
        let mut sent = self.send(socket);
        let mut end = End::None;
        while matches!(end, End::None) && self.answer.len() <= ANSWER_BYTES_MAX {
            end = match self.receive(socket) {
                Ok(Some(end)) => end,
                Ok(None) => break,
                Err(Unreceived::Socket(error)) => End::Cut(error),
                Err(Unreceived::Peer(error)) => {
                    // What is wrong with it is its to know: TLS says so in an alert.
                    let _ = self.send(socket);
                    return Err(error);
                }
            };
            // What came may ask for something, as a handshake does.
            sent = sent.and(self.send(socket));
        }
        Ok(match (sent, end) {
            (Ok(()), end) => end,
            (Err(_), End::Said) if self.peer.is_some() => End::Said,
            (Err(error), _) => End::Cut(error),
        })
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(peer) = &mut self.peer {
            peer.outgoing(&mut self.outgoing)?;
        }
        while self.sent < self.outgoing.len() {
            match socket::send(socket, &self.outgoing[self.sent..])? {
                Some(count) => self.sent += count,
                None => break,
            }
        }
        Ok(())
    }

    /// One read: whether the peer sends more, or `None` where the socket has nothing now.
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Option<End>, Unreceived> {
        let Some(peer) = &mut self.peer else {
            self.answer.reserve(READ_BYTES);
            let count = socket::receive(socket, &mut self.answer, READ_BYTES).map_err(Unreceived::Socket)?;
            return Ok(count.map(|count| if count == 0 { End::Said } else { End::None }));
        };
        self.sealed.clear();
        self.sealed.reserve(READ_BYTES);
        match socket::receive(socket, &mut self.sealed, READ_BYTES).map_err(Unreceived::Socket)? {
            None => Ok(None),
            Some(0) => Ok(Some(End::Cut(io::ErrorKind::UnexpectedEof.into()))),
            Some(_) => {
                let has_ended = peer.take(&self.sealed, &mut self.answer).map_err(Unreceived::Peer)?;
                Ok(Some(if has_ended { End::Said } else { End::None }))
            }
        }
    }
}

/// Why nothing was received.
enum Unreceived {
    /// The connection broke.
    Socket(io::Error),
    /// The peer is not who it should be, or its bytes were changed on the way.
    Peer(io::Error),
}

fn unread(error: ArrivalError) -> io::Error {
    match error {
        ArrivalError::TooLong(_) => too_large(),
        ArrivalError::Head(_) | ArrivalError::Chunks | ArrivalError::Between => io::Error::other(error),
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is larger than is read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    /// What becomes of an exchange whose peer sends this, and then its end if it `ends`.
    fn answered(text: &str, ends: bool) -> io::Result<Progress> {
        let (ours, theirs) = socket::pair().unwrap();
        socket::send(theirs.as_fd(), text.as_bytes()).unwrap();
        if ends {
            socket::shutdown_write(theirs.as_fd()).unwrap();
        }
        Exchange::plain(post("/", "h", &[], b"")).drive(ours.as_fd())
    }

    #[test]
    fn answers_are_whole_when_their_framing_says_so() {
        let whole = |text: &str| answered(text, false).unwrap();
        let reply_of = |status, body: &str| Progress::Done(Reply { status, body: body.as_bytes().to_vec() });
        let waits = || Progress::Wait(Interest::READ);
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), reply_of(200, "ok"));
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!"), reply_of(200, "ok"));
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), waits());
        assert_eq!(whole("HTTP/1.1 204 No Content\r\n\r\n"), reply_of(204, ""));
        assert_eq!(whole("HTTP/1.1 200 OK\r\n\r\nok"), waits());
        assert_eq!(answered("HTTP/1.1 200 OK\r\n\r\nok", true).unwrap(), reply_of(200, "ok"));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
        assert_eq!(whole(chunked), reply_of(200, "abc"));
        (0..chunked.len()).for_each(|cut| assert_eq!(whole(&chunked[..cut]), waits(), "cut at {cut}"));
        let hints = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(whole(hints), reply_of(500, ""));
    }

    #[test]
    fn answers_that_are_too_large_or_none_are_errors() {
        let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY_BYTES_MAX + 1);
        assert!(answered(&large, false).is_err());
        let flood = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(BODY_BYTES_MAX + 1));
        assert!(answered(&flood, true).is_err());
        assert!(answered("SSH-2.0-x\r\n", false).is_err());
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

    /// A socket as the standard library's traits, for the TLS library.
    fn stream(socket: BorrowedFd<'_>) -> UnixStream {
        UnixStream::from(socket.try_clone_to_owned().unwrap())
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
            peer.connection.write_tls(&mut stream(theirs.as_fd())).unwrap();
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
            let mut socket = stream(socket);
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
