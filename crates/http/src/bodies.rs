//! The bodies that are still arriving, and what they may take together.
//!
//! A body has reserved what has come of it, and the next stride of what was announced. Where there is no room
//! for that, bodies whose peers are slow (`patience`) are answered 408 and make room, the slowest first;
//! where none is slow, the body that asks is refused. So a client that announces a large body and sends
//! nothing holds one stride, and only until another body needs it. Heads are not counted, since every
//! connection may have one, and neither is a request that is no longer than a head may be: small requests
//! need no room here. What was reserved is given back when the request is whole, refused or gone.
//!
//! Invariant: `held` is the sum of what every connection has reserved. *Checked by* the tests in
//! `tests/requests.rs`.

use crate::at::At;
use crate::config::Config;
use crate::connection::{Active, Body};
use crate::limit::Limit;
use crate::patience::{LOOK_AGAIN_MS, Phase, deadline_left_ms, now_ms, slow_ms, stride_bytes};
use crate::reactor::{Http, HttpCore};
use crate::request::TOO_SLOW;
use thalweg_reactor::Key;
use thalweg_wire::exchange::{Refusal, Service};

/// What the bodies of one reactor have reserved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bodies {
    held: u64,
    /// When the slow ones were last looked for and there was none, in the reactor's milliseconds.
    looked_ms: u32,
}

impl Bodies {
    /// Reserves what a body needs next; whether there was room for it.
    pub(crate) fn reserve<T>(&mut self, active: &mut Active<T>, body: &Body, config: &Config) -> bool {
        let (head_bytes, body_bytes, needed_bytes) = match body {
            Body::Unknown => (0, 0, 0),
            Body::Fixed { head_bytes, total_bytes } => {
                let body_bytes = total_bytes - head_bytes;
                let come = active.unread().len().saturating_sub(*head_bytes);
                (*head_bytes, body_bytes, body_bytes.min(come + stride_bytes(body_bytes)))
            }
            Body::Chunked { head_bytes, decoded, .. } => (*head_bytes, decoded.len(), decoded.len()),
        };
        let is_small = head_bytes + body_bytes <= config.head_limits.head_bytes_max;
        let wanted = if is_small { 0 } else { needed_bytes as u64 };
        let held = self.held - active.reserved + wanted;
        // What gives room back is never refused.
        let fits = held <= config.bodies_bytes_max || wanted <= active.reserved;
        if fits {
            (self.held, active.reserved) = (held, wanted);
        }
        fits
    }

    /// Bytes reserved at the moment.
    pub(crate) fn held(self) -> u64 {
        self.held
    }

    /// Gives back what a connection's body had reserved.
    pub(crate) fn release<T>(&mut self, active: &mut Active<T>) {
        self.held -= std::mem::take(&mut active.reserved);
    }
}

impl<S: Service> Http<S> {
    /// Reserves what a body needs next; whether there was room for it, or slow ones made some.
    pub(crate) fn reserve_body(&mut self, at: &mut At<'_, S>, body: &Body) -> bool {
        while !self.bodies.reserve(at.active, body, &self.config) {
            let Some(key) = self.slowest_body(at.core) else { return false };
            self.meters.overload(Limit::Bodies);
            self.with_active(at.core, key, |http, at| {
                http.refuse(at, &TOO_SLOW);
                http.drive(at)
            });
        }
        true
    }

    /// Of the connections whose body is slow to come, the one that has brought no stride for longest.
    fn slowest_body(&mut self, core: &mut HttpCore<S>) -> Option<Key> {
        let now_ms = now_ms(core);
        if now_ms.wrapping_sub(self.bodies.looked_ms) < LOOK_AGAIN_MS {
            return None;
        }
        let patience_ms = self.config.body_timeout_ms;
        let keys: Vec<Key> = core.keys().collect();
        let left_ms = |key: Key| {
            let active = core.entry(key)?.active.as_ref()?;
            let holds = active.reserved > 0 && active.phase == Phase::Body;
            holds.then(|| (deadline_left_ms(core, key), key))
        };
        let next = keys.into_iter().filter_map(left_ms).min_by_key(|(left_ms, _)| *left_ms);
        let slowest =
            next.filter(|(left_ms, _)| patience_ms.saturating_sub(*left_ms) >= slow_ms(patience_ms));
        if slowest.is_none() {
            self.bodies.looked_ms = now_ms;
        }
        slowest.map(|(_, key)| key)
    }
}

/// Takes what came of a body in chunks. While that is no longer than a head may be, which is not
/// reserved and counted once for each connection, the memory it lies in is no larger either.
pub(crate) fn take_in(decoded: &mut Vec<u8>, chunk: &[u8], head_bytes_max: usize) {
    let wanted = decoded.len() + chunk.len();
    if decoded.capacity() < wanted && wanted <= head_bytes_max {
        decoded.reserve_exact((2 * wanted).min(head_bytes_max) - decoded.len());
    }
    decoded.extend_from_slice(chunk);
}

/// The refusal of a body that there is no room for now.
pub(crate) const FULL: Refusal = Refusal {
    status: 503,
    code: Limit::Bodies.name(),
    field: "body",
    detail: "Other request bodies that are arriving take all the memory there is for them; send it again in a moment.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_body_in_chunks_lies_in_no_more_than_a_head_may_take() {
        const MOST: usize = 16_384;
        for chunk_bytes in [1, 100, 5_000, 9_000, 15_000] {
            let (mut decoded, chunk) = (Vec::new(), vec![b'x'; chunk_bytes]);
            let mut grown = 0;
            while decoded.len() + chunk_bytes <= MOST {
                let before = decoded.capacity();
                take_in(&mut decoded, &chunk, MOST);
                grown += usize::from(decoded.capacity() != before);
                assert!(decoded.capacity() <= MOST, "{} of {}", decoded.capacity(), decoded.len());
            }
            assert!(grown <= 15, "it grows by doubling: {grown}");
            // Beyond, it is reserved like any other.
            take_in(&mut decoded, &vec![b'x'; MOST], MOST);
            assert!(decoded.len() > MOST);
        }
    }
}
