//! The server's side of one connection, as a function of the bytes that come and go.
//!
//! Invariant: `partial` is a record, or a handshake message, that has not come whole, and nothing when none
//! is under way. *Checked by* `bytes_that_come_one_at_a_time_are_the_same_bytes` in `tests/tls.rs`.

use super::Identity;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{Error, server::ServerConnectionData};
use std::io::IoSlice;

/// Bytes that are sealed before the socket is asked to take them.
const SEALED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a record before it is sealed (RFC 8446 5.1), and what sealing adds at most.
const RECORD_BYTES: usize = 16 * 1024;
const OVERHEAD_BYTES: usize = 64;
/// Bytes of what has not come whole: a record of the greatest size there is (TLS 1.2: 16 KiB, 2 KiB that
/// sealing may add, its head). A client whose handshake has a message greater than that is none that we know.
const PARTIAL_BYTES_MAX: usize = 20 * 1024;

/// One connection's keys, and where its handshake is.
pub(super) struct Session {
    connection: UnbufferedServerConnection,
    partial: Vec<u8>,
    begun: bool,
    /// A whole record has come.
    spoken: bool,
    /// Nothing may be sealed any more: the end was said, or something that was sealed is lost.
    over: bool,
}

impl Session {
    pub(super) fn new(identity: &Identity) -> Result<Self, Error> {
        Ok(Self {
            connection: identity.connection()?,
            partial: Vec::new(),
            begun: false,
            spoken: false,
            over: false,
        })
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether anything has come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether no whole record has come.
    pub(super) fn is_silent(&self) -> bool {
        !self.spoken
    }

    /// Whether a part of a record has come whose rest is to come.
    pub(super) fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Something that was sealed will not be sent: what follows would make no sense.
    pub(super) fn spoil(&mut self) {
        self.over = true;
    }

    /// Opens what came: what it says is appended to `plain`, what the protocol answers to `out`. Whether the
    /// peer said that nothing follows. `received` keeps its memory, and nothing else.
    ///
    /// # Errors
    /// What came is not TLS, or not from the peer of the handshake; `out` has the alert that says so.
    pub(super) fn take(
        &mut self,
        received: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        self.begun = true;
        let whole = self.partial.is_empty();
        let mut bytes = if whole { std::mem::take(received) } else { std::mem::take(&mut self.partial) };
        if !whole {
            bytes.append(received);
        }
        let (used, outcome) = self.open(&mut bytes, plain, out);
        self.spoken |= used > 0;
        if outcome.is_err() {
            self.alert(&mut bytes[used..], out);
        }
        if used < bytes.len() {
            self.partial = bytes[used..].to_vec();
        }
        if whole {
            bytes.clear();
            *received = bytes;
        }
        if outcome.is_ok() && self.partial.len() > PARTIAL_BYTES_MAX {
            return Err(Error::General("a message without end".to_owned()));
        }
        outcome
    }

    /// How many of the bytes are done with, and whether the peer said that nothing follows.
    fn open(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> (usize, Result<bool, Error>) {
        let (mut used, mut ended) = (0, false);
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut bytes[used..]);
            let waits = match state {
                Err(error) => return (used + discard, Err(error)),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                plain.extend_from_slice(record.payload);
                            }
                            Err(error) => return (used + discard, Err(error)),
                        }
                    }
                    false
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, out);
                    false
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    ended = true;
                    false
                }
                Ok(ConnectionState::Closed) => {
                    ended = true;
                    true
                }
                // Early data is not asked for.
                Ok(_) => true,
            };
            used += discard;
            if waits {
                return (used, Ok(ended));
            }
        }
    }

    /// Adds the alert that an error led to, and seals nothing any more. `rest` is what was not done with: the
    /// library looks for what it has begun there, and is asked no more than it has to say, or it would judge
    /// the rest once more.
    fn alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        self.over = true;
        while self.connection.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.connection.process_tls_records(rest).state
        {
            encode(&mut data, out);
        }
    }

    /// Seals the pieces past the first `skip` bytes, as many as make up one write. How many bytes of them
    /// that were.
    ///
    /// # Errors
    /// Nothing can be sealed: the handshake is under way, or the end was said.
    pub(super) fn seal(
        &mut self,
        pieces: &[IoSlice<'_>],
        mut skip: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        self.with_traffic(out, |traffic, out| {
            let mut taken = 0;
            for piece in pieces {
                let skipped = skip.min(piece.len());
                skip -= skipped;
                let most = SEALED_BYTES_MAX - taken;
                let bytes = &piece[skipped..];
                let bytes = &bytes[..bytes.len().min(most)];
                if !bytes.is_empty() {
                    let records = bytes.len().div_ceil(RECORD_BYTES);
                    into(out, bytes.len() + records * OVERHEAD_BYTES, |room| traffic.encrypt(bytes, room))?;
                    taken += bytes.len();
                }
                if taken == SEALED_BYTES_MAX {
                    break;
                }
            }
            Ok(taken)
        })
    }

    /// Says that nothing follows.
    pub(super) fn goodbye(&mut self, out: &mut Vec<u8>) {
        let said = self.with_traffic(out, |traffic, out| {
            into(out, OVERHEAD_BYTES, |room| traffic.queue_close_notify(room))
        });
        // One whose handshake is not over has nothing to end.
        self.over |= said.is_ok();
    }

    fn with_traffic<T>(
        &mut self,
        out: &mut Vec<u8>,
        work: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut Vec<u8>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.over {
            return Err(Error::General("the connection's end was said".to_owned()));
        }
        loop {
            // What has not come whole is where it was when it was last looked at; nothing of it is done with.
            match self.connection.process_tls_records(&mut self.partial).state? {
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => {}
                ConnectionState::WriteTraffic(mut traffic) => return work(&mut traffic, out),
                _ => return Err(Error::HandshakeNotComplete),
            }
        }
    }
}

/// Appends what `work` writes, which says how much room it needs if `room` was too little.
fn into(
    out: &mut Vec<u8>,
    mut room: usize,
    mut work: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<usize, Error> {
    let length = out.len();
    loop {
        out.resize(length + room, 0);
        match work(&mut out[length..]) {
            Ok(written) => {
                out.truncate(length + written);
                return Ok(written);
            }
            Err(EncryptError::InsufficientSize(needs)) if needs.required_size > room => {
                room = needs.required_size;
            }
            Err(_) => {
                out.truncate(length);
                return Err(Error::EncryptError);
            }
        }
    }
}

fn encode(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    let length = out.len();
    let mut room = 0;
    loop {
        out.resize(length + room, 0);
        match data.encode(&mut out[length..]) {
            Ok(written) => return out.truncate(length + written),
            Err(EncodeError::InsufficientSize(needs)) if needs.required_size > room => {
                room = needs.required_size;
            }
            Err(_) => return out.truncate(length),
        }
    }
}
