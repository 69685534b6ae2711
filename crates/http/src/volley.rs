//! Deliveries that go out together: what a walk over a topic's subscribers has for each of them is handed to the kernel in one
//! call, where the kernel takes such calls.
//!
//! Purpose: a delivery to many is many small writes, each a system call of its own otherwise. A delivery joins only when its
//! connection has nothing else to send and is served the only time in this walk; whatever comes behind it on the same connection takes
//! it out again and is sent with it, so that order is the connection's. What a socket does not take is kept as ever.
//!
//! Invariants: nothing is collected but during [`Http::serve_each`](crate::live), and nothing is left when it is over; a connection is in
//! the volley once. *Checked by* the tests of live reads in `tests/`, which run with and without.

use crate::connection::Active;
use crate::drive::now_ms;
use crate::reactor::{Gone, Http, HttpCore};
use bytes::Bytes;
use smallvec::SmallVec;
use std::io;
use thalweg_reactor::Key;
use thalweg_sys::volley;
use thalweg_wire::exchange::Service;

/// Fewer subscribers than this are sent to one by one.
const TOGETHER_MIN: usize = 16;

/// The way to the kernel.
#[derive(Debug)]
enum Ring {
    /// Made when it is first of use: many servers never have as many subscribers.
    Untried,
    Ready(Box<volley::Volley>),
    /// Not wanted, or not to be had.
    Absent,
}

/// Deliveries that wait for the walk's end.
#[derive(Debug)]
pub(crate) struct Volley {
    ring: Ring,
    open: bool,
    deliveries: Vec<(Key, Bytes)>,
}

impl Volley {
    /// None at all, unless they are wanted.
    pub(crate) fn new(wanted: bool) -> Volley {
        let ring = if wanted { Ring::Untried } else { Ring::Absent };
        Volley { ring, open: false, deliveries: Vec::new() }
    }

    /// So many subscribers are served now.
    pub(crate) fn begin(&mut self, subscribers: usize) {
        if subscribers < TOGETHER_MIN {
            return;
        }
        if matches!(self.ring, Ring::Untried) {
            self.ring = volley::Volley::new().map_or_else(
                |error| {
                    tracing::debug!(%error, "deliveries are sent one by one");
                    Ring::Absent
                },
                |ring| Ring::Ready(Box::new(ring)),
            );
        }
        self.open = matches!(self.ring, Ring::Ready(_));
    }

    fn holds(&self, key: Key) -> bool {
        self.deliveries.last().is_some_and(|(last, _)| *last == key)
    }
}

impl<S: Service> Http<S> {
    /// Has a delivery wait for the others'. `false`: it is to be sent by itself.
    pub(crate) fn join_volley(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &Active<S::Topic>,
        bytes: &Bytes,
    ) -> bool {
        let alone = self.segments.is_empty() && active.output.is_empty() && !self.volley.holds(key);
        let joins = self.volley.open && alone && core.entry(key).is_some_and(|entry| !entry.secure);
        if joins {
            self.load.spend(bytes.len());
            self.volley.deliveries.push((key, bytes.clone()));
        }
        joins
    }

    /// Stages what waits for this connection, in front of whatever is sent to it next.
    pub(crate) fn leave_volley(&mut self, key: Key) {
        if self.volley.holds(key)
            && let Some((_, bytes)) = self.volley.deliveries.pop()
        {
            self.segments.insert(0, crate::send::Segment::Piece(bytes));
        }
    }

    /// Sends what was collected.
    pub(crate) fn end_volley(&mut self, core: &mut HttpCore<S>) {
        self.volley.open = false;
        let mut deliveries = std::mem::take(&mut self.volley.deliveries);
        let mut taken = Vec::with_capacity(deliveries.len());
        if let Ring::Ready(ring) = &mut self.volley.ring
            && !deliveries.is_empty()
        {
            self.meters.write();
            // Who is gone meanwhile has nothing to take.
            deliveries.retain(|(key, _)| core.descriptor(*key).is_some());
            let sends: SmallVec<[_; 64]> = deliveries
                .iter()
                .filter_map(|(key, bytes)| core.descriptor(*key).map(|socket| (socket, &bytes[..])))
                .collect();
            if let Err(error) = ring.send(&sends, &mut taken) {
                tracing::warn!(%error, "deliveries are sent one by one from now on");
                self.volley.ring = Ring::Absent;
            }
        }
        taken.resize_with(deliveries.len(), || Ok(None));
        for ((key, bytes), taken) in deliveries.drain(..).zip(taken) {
            self.keep_untaken(core, key, &bytes, taken);
        }
        self.volley.deliveries = deliveries;
    }

    /// What a socket did not take becomes its connection's output.
    fn keep_untaken(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        bytes: &Bytes,
        taken: io::Result<Option<usize>>,
    ) {
        let taken = taken.map(Option::unwrap_or_default);
        if taken.as_ref().is_ok_and(|taken| *taken == bytes.len()) {
            return;
        }
        self.with_active(core, key, |http, core, key, active| {
            let taken = taken.map_err(|_| Gone::Close)?;
            active.output.push(bytes.slice(taken..));
            http.load.unsent_bytes += (bytes.len() - taken) as u64;
            active.progressed_ms = now_ms(core);
            core.set_timer(key, http.config.stall_timeout_ms);
            Ok(())
        });
    }
}
