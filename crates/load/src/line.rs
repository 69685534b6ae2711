//! One connection: what its role sent and is owed. Answers are read where they were received; a head that
//! came in pieces is put together first.

use crate::driver::Shared;
use crate::roles::Role;
use std::io;
use std::os::fd::BorrowedFd;
use thalweg_http::tls::Peer;
use thalweg_sys::socket;
use thalweg_wire::http1::{BodyDecoder, parse_response};

/// What comes next on a connection.
#[derive(Clone, Copy, Debug)]
enum Incoming {
    Head,
    Body(BodyDecoder),
}

/// A connection and its role.
pub(crate) struct Line {
    pub(crate) role: Box<dyn Role>,
    incoming: Incoming,
    /// The beginning of a head whose end has not come.
    partial: Vec<u8>,
    /// The request under way.
    pub(crate) request: Vec<u8>,
    /// Bytes of it that were taken.
    pub(crate) sent: usize,
    /// What seals the connection, and sealed bytes that were not taken.
    pub(crate) sealed: Option<(Box<Peer>, Vec<u8>)>,
    /// Tries in a row to connect that were in vain before this one.
    pub(crate) tries: u32,
    /// The server took the connection.
    pub(crate) is_open: bool,
    /// An answer is owed.
    pub(crate) owed: bool,
    /// The server said that it will not use this connection any further.
    pub(crate) last: bool,
}

impl Line {
    pub(crate) fn new(role: Box<dyn Role>) -> Self {
        Self {
            role,
            incoming: Incoming::Head,
            partial: Vec::new(),
            request: Vec::new(),
            sent: 0,
            sealed: None,
            tries: 0,
            is_open: false,
            owed: false,
            last: false,
        }
    }

    /// Sends what is left of the request, sealed if the connection is; whether all of it was taken.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn send(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<bool> {
        let Some((peer, sealed)) = &mut self.sealed else {
            self.sent += socket::send(descriptor, &self.request[self.sent..])?.unwrap_or(0);
            return Ok(self.sent == self.request.len());
        };
        peer.seal(&self.request[self.sent..])?;
        self.sent = self.request.len();
        peer.outgoing(sealed)?;
        if !sealed.is_empty() {
            let taken = socket::send(descriptor, sealed)?.unwrap_or(0);
            sealed.drain(..taken);
        }
        Ok(sealed.is_empty())
    }

    /// Opens what came, if it is sealed, and answers what belongs to that; whether all of the answer was
    /// taken.
    ///
    /// # Errors
    /// The server is not who it should be, or the connection is gone.
    pub(crate) fn open(
        &mut self,
        descriptor: BorrowedFd<'_>,
        received: &[u8],
        opened: &mut Vec<u8>,
    ) -> io::Result<bool> {
        opened.clear();
        let Some((peer, _)) = &mut self.sealed else { return Ok(true) };
        peer.take(received, opened)?;
        self.send(descriptor)
    }

    /// Takes bytes in; whether they end an answer.
    ///
    /// # Errors
    /// They are no answer, or more than one.
    pub(crate) fn take(&mut self, bytes: &[u8], shared: &mut Shared) -> Result<bool, String> {
        if self.partial.is_empty() {
            return self.read(bytes, shared);
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(bytes);
        self.read(&whole, shared)
    }

    /// The connection ended; whether that ends an answer.
    ///
    /// # Errors
    /// It ends in the middle of one.
    pub(crate) fn end(&mut self, shared: &mut Shared) -> Result<bool, String> {
        self.last = true;
        match self.incoming {
            Incoming::Body(body) if body.needs_end() => Ok(self.finish(shared)),
            Incoming::Head if !self.owed && self.partial.is_empty() => Ok(false),
            _ => Err(format!("{}: the connection ended in the middle of an answer", self.role.name())),
        }
    }

    fn read(&mut self, mut bytes: &[u8], shared: &mut Shared) -> Result<bool, String> {
        loop {
            match &mut self.incoming {
                Incoming::Head => {
                    let parsed = parse_response(bytes, self.role.asks_for_head());
                    let Some(head) = parsed.map_err(|e| format!("{}: {e}", self.role.name()))? else {
                        self.partial.extend_from_slice(bytes);
                        return Ok(false);
                    };
                    bytes = &bytes[head.bytes..];
                    if head.is_between() {
                        continue;
                    }
                    self.last = !head.keep_alive;
                    self.role.head(shared, &head);
                    self.incoming = Incoming::Body(BodyDecoder::of(head.body));
                }
                Incoming::Body(body) => {
                    let chunk = body.decode(bytes).map_err(|e| format!("{}: {e:?}", self.role.name()))?;
                    bytes = &bytes[chunk.consumed..];
                    if !chunk.data.is_empty() {
                        shared.counts.came(chunk.data.len());
                        self.role.body(shared, chunk.data);
                    }
                    if chunk.done {
                        return self.finish_before(bytes, shared);
                    }
                    if bytes.is_empty() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn finish_before(&mut self, rest: &[u8], shared: &mut Shared) -> Result<bool, String> {
        if rest.is_empty() {
            Ok(self.finish(shared))
        } else {
            Err(format!("{}: {} bytes behind the answer", self.role.name(), rest.len()))
        }
    }

    fn finish(&mut self, shared: &mut Shared) -> bool {
        self.incoming = Incoming::Head;
        self.owed = false;
        self.role.answered(shared);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::Next;
    use crate::target::tests::target;
    use std::sync::{Arc, Mutex};
    use thalweg_wire::http1::ResponseHead;

    /// Writes down what it is told.
    struct Listener(Arc<Mutex<String>>);

    impl Role for Listener {
        fn name(&self) -> &'static str {
            "listener"
        }
        fn stream(&self) -> u64 {
            0
        }
        fn next(&mut self, _: &mut Shared, _: &mut Vec<u8>) -> Next {
            Next::Rest
        }
        fn head(&mut self, _: &mut Shared, head: &ResponseHead<'_>) {
            *self.0.lock().unwrap() += &format!("{}:", head.status);
        }
        fn body(&mut self, _: &mut Shared, bytes: &[u8]) {
            *self.0.lock().unwrap() += std::str::from_utf8(bytes).unwrap();
        }
        fn answered(&mut self, _: &mut Shared) {
            self.0.lock().unwrap().push('.');
        }
    }

    fn heard(pieces: &[&[u8]], ends: bool) -> (String, Result<bool, String>) {
        let said = Arc::new(Mutex::new(String::new()));
        let mut line = Line::new(Box::new(Listener(said.clone())));
        line.owed = true;
        let mut shared = Shared::new(target());
        let mut last = Ok(false);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            last = line.take(piece, &mut shared);
        }
        if ends {
            last = line.end(&mut shared);
        }
        let said = said.lock().unwrap().clone();
        (said, last)
    }

    #[test]
    fn an_answer_is_the_same_wherever_it_is_cut() {
        for text in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ] {
            for cut in 0..text.len() {
                let (said, last) = heard(&[&text[..cut], &text[cut..]], false);
                assert_eq!((said.as_str(), last), ("200:hello.", Ok(true)), "cut at {cut}");
            }
        }
        let hints = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(heard(&[hints], false), ("200:hi.".to_owned(), Ok(true)));
        assert_eq!(heard(&[b"HTTP/1.1 204 No Content\r\n\r\n"], false), ("204:.".to_owned(), Ok(true)));
        assert_eq!(heard(&[b"HTTP/1.1 200 OK\r\n\r\nhi"], true), ("200:hi.".to_owned(), Ok(true)));
    }

    #[test]
    fn what_breaks_off_or_goes_on_is_a_failure() {
        assert!(heard(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"], true).1.is_err());
        assert!(heard(&[b"HTTP/1.1 200"], true).1.is_err());
        assert!(heard(&[b"HTTP/1.1 204 No Content\r\n\r\nHTTP"], false).1.is_err());
        assert!(heard(&[b"garbage that is no answer\r\n\r\n"], false).1.is_err());
    }
}
