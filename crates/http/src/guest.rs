//! Who comes when there are as many connections as there may be.
//!
//! A guest has a place beside the others for a moment, long enough to ask one thing. What is small it is
//! answered, so that whoever looks after a server that is full can see it, and a probe does not take it for
//! dead; everything else is refused, and either way the connection ends. There are few such places: whoever
//! finds none is told so at once, and so is whoever finds no descriptor, by means of the one that is kept for
//! that. Nobody is left without a word but those who speak TLS.
//!
//! Invariants: every connection but guests has one of `places`; `guests` is the number of entries with
//! [`Flags::GUEST`], all of them connections; a guest's deadline is the one it was given when it came.
//! *Checked by* the tests in `tests/guests.rs`.

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
    detail: "The server has as many connections as it takes; try again in a moment.",
};

impl<S: Service> Http<S> {
    /// Whether a connection came when there was no room.
    pub(crate) fn is_guest(&self, core: &mut HttpCore<S>, key: Key) -> bool {
        self.guests > 0 && core.entry(key).is_some_and(|entry| entry.flags.has(Flags::GUEST))
    }

    /// Lets a guest go that did not ask in time.
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
