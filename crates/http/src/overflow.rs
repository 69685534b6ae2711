//! Connections beyond `connections_max`.
//!
//! Such an overflow connection may send one request. What is small is answered, so that an operator can see a
//! server that is full, and a probe does not take it for dead. Any other request is refused, and the
//! connection ends either way. There are few of them: one more is answered 503 and closed at once, and so is
//! a client for which there is no descriptor, by means of the one that is kept for that. Only a client that
//! speaks TLS is closed without an answer.
//!
//! Invariants: every connection but these has one of `places`; `overflow` is the number of
//! entries with [`Flags::OVERFLOW`], all of them connections; such a connection keeps the deadline that it
//! was given when it was accepted. *Checked by* the tests in `tests/overflow.rs`.

use crate::connection::Flags;
use crate::limit::Limit;
use crate::meters::Meters;
use crate::reactor::{Http, HttpCore};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use thalweg_reactor::Key;
use thalweg_transport::{read, shutdown_write, write_gathered};
use thalweg_wire::exchange::{Announced, Now, Refusal, Service};
use thalweg_wire::http1::{Date, Framing, HeadPlan, encode_head};

/// Bytes of a request that has come already, which are read so that what it is answered is not lost with
/// them.
const READ_BYTES: usize = 4 << 10;

pub(crate) const CONNECTIONS: Refusal = Refusal {
    status: 503,
    code: Limit::Connections.name(),
    field: "connection",
    detail: "The server has as many connections as it allows; try again in a moment.",
};

impl<S: Service> Http<S> {
    /// Whether a connection was accepted beyond `connections_max`.
    pub(crate) fn is_overflow(&self, core: &mut HttpCore<S>, key: Key) -> bool {
        self.admitted.overflow > 0 && core.entry(key).is_some_and(|entry| entry.flags.has(Flags::OVERFLOW))
    }

    /// Ends an overflow connection that sent no request in time.
    pub(crate) fn dismiss(&mut self, core: &mut HttpCore<S>, key: Key) {
        self.meters.overload(Limit::Connections);
        self.with_active(core, key, |http, at| {
            http.refuse(at, &CONNECTIONS);
            http.drive(at)
        });
    }
}

/// Tells a peer that there is no room, because of that limit, on a socket that is about to be closed.
pub(crate) fn turn_away<S: Service>(
    service: &mut S,
    date: &Date,
    meters: &Meters,
    now: Now,
    limit: Limit,
    connection: BorrowedFd<'_>,
) {
    meters.overload(limit);
    let response = service.refuse(&CONNECTIONS, Announced::default(), now);
    meters.response(response.status);
    let framing = Framing::Length(response.body_bytes() as u64);
    let plan = HeadPlan { framing, close: true, legacy: false };
    let mut head = Vec::new();
    encode_head(&mut head, response.status, &response.fields, plan, date);
    let pieces = std::iter::once(&head[..]).chain(response.body.iter().map(|piece| &piece[..]));
    let slices: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
    // Nothing was sent on this socket before, so there is room, unless its peer is gone. Bytes that were not
    // read when it is closed would take the answer with them.
    let _ = write_gathered(connection, &slices);
    let _ = shutdown_write(connection);
    let _ = read(connection, &mut Vec::with_capacity(READ_BYTES));
}
