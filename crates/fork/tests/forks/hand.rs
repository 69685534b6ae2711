//! A client of the control endpoint that speaks frames by hand: it cancels what it likes, when it likes.

use crate::control::Control;
use std::cell::Cell;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use thalweg_fork::generated::client::ForksClient;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, HELLO_BYTES, Header, Hello, LENGTH_MAX, VERSION};
use thalweg_wire::service::Call;

/// A multiplexed connection.
pub(crate) struct Hand {
    socket: UnixStream,
    /// The number of the last call.
    last: Cell<u64>,
}

impl Hand {
    pub(crate) fn over(control: &Control) -> Self {
        Self::at(control.endpoint.path().unwrap())
    }

    pub(crate) fn at(endpoint: &Path) -> Self {
        let mut socket = UnixStream::connect(endpoint).unwrap();
        let hello = Hello { version: VERSION, shared: false, ring_bytes: 0, schema: [0; 32] };
        socket.write_all(&hello.encode()).unwrap();
        socket.read_exact(&mut [0; HELLO_BYTES]).unwrap();
        Self { socket, last: Cell::new(0) }
    }

    /// For one call, with the next number.
    pub(crate) fn forks(&self) -> ForksClient<Asking<'_>> {
        self.again(self.last.get() + 1)
    }

    /// For one call, with this number.
    pub(crate) fn again(&self, call: u64) -> ForksClient<Asking<'_>> {
        self.last.set(call);
        ForksClient::new(Asking { hand: self, answer: Vec::new() })
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.get()
    }

    pub(crate) fn cancel(&self, call: u64) {
        (&self.socket).write_all(&Header::new(FrameKind::Cancel, call, 0).encode()).unwrap();
    }
}

/// One call.
pub(crate) struct Asking<'a> {
    hand: &'a Hand,
    answer: Vec<u8>,
}

impl Call for Asking<'_> {
    type Error = Infallible;

    fn send(&mut self, request: &[u8]) -> Result<(), Infallible> {
        let length = u32::try_from(request.len()).unwrap();
        let header = Header::new(FrameKind::Request, self.hand.last(), length);
        (&self.hand.socket).write_all(&[&header.encode()[..], request].concat()).unwrap();
        Ok(())
    }

    fn receive(&mut self) -> Result<&[u8], Infallible> {
        let mut head = [0; HEADER_BYTES];
        (&self.hand.socket).read_exact(&mut head).unwrap();
        let header = Header::decode(&head, LENGTH_MAX).unwrap().unwrap();
        assert_eq!((header.kind, header.id), (FrameKind::End, self.hand.last()));
        self.answer.resize(header.length as usize, 0);
        (&self.hand.socket).read_exact(&mut self.answer).unwrap();
        Ok(&self.answer)
    }
}
