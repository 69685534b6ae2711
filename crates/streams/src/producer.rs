//! Idempotent producers (PROTOCOL 5.2.1): what a request claims, and whether it is new, known or wrong.

use crate::headers::{Headers, single};
use crate::problem::Problem;
use crate::store::ProducerState;
use thalweg_wire::decimal::{self, SAFE_INTEGER_MAX};
use thalweg_wire::exchange::{Request, Response};
use thalweg_wire::field::Name;

/// The longest identifier and writer sequence, bytes: the store keeps them with every commit.
pub(crate) const KEY_BYTES_MAX: usize = 1024;

const ID: Name = Name::ProducerId;
const EPOCH: Name = Name::ProducerEpoch;
const SEQ: Name = Name::ProducerSeq;

/// Who a request says it comes from, and where in its sequence it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) place: ProducerState,
}

/// What a claim is against the place the stream knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// New: append, and remember this place.
    Accept(ProducerState),
    /// Seen before: append nothing; the producer stands here.
    Duplicate(ProducerState),
    /// From an epoch that was superseded by this one.
    Stale { epoch: u64 },
    /// A new epoch that does not start at 0.
    NewEpochNotAtZero,
    /// Requests before this one are missing.
    Gap { expected: u64 },
}

/// The claim in a request's headers, if it makes one.
pub(crate) fn claim<'a>(request: &Request<'a>) -> Result<Option<Claim<'a>>, Problem> {
    let (id, epoch, seq) = match (single(request, ID)?, single(request, EPOCH)?, single(request, SEQ)?) {
        (None, None, None) => return Ok(None),
        (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
        // PROTOCOL 5.2.1: all three together or none at all.
        (id, epoch, _) => {
            let missing = [(id, ID), (epoch, EPOCH)].into_iter().find(|(value, _)| value.is_none());
            let field = missing.map_or(SEQ, |(_, name)| name);
            let detail = "send all of Producer-Id, Producer-Epoch and Producer-Seq, or none of them";
            return Err(Problem::new(400, "producer-headers-incomplete", field, detail));
        }
    };
    // PROTOCOL 5.2.1: a non-empty string.
    if id.is_empty() || id.len() > KEY_BYTES_MAX {
        return Err(Problem::new(400, "producer-id", ID, "it has to have 1 to 1024 bytes"));
    }
    Ok(Some(Claim { id, place: ProducerState { epoch: integer(epoch, EPOCH)?, seq: integer(seq, SEQ)? } }))
}

/// PROTOCOL 5.2.1, validation logic; a producer the stream does not know starts at sequence 0 of any epoch.
pub(crate) fn judge(known: Option<ProducerState>, claimed: ProducerState) -> Judgement {
    let Some(known) = known else {
        return if claimed.seq == 0 { Judgement::Accept(claimed) } else { Judgement::Gap { expected: 0 } };
    };
    if claimed.epoch < known.epoch {
        Judgement::Stale { epoch: known.epoch }
    } else if claimed.epoch > known.epoch {
        if claimed.seq == 0 { Judgement::Accept(claimed) } else { Judgement::NewEpochNotAtZero }
    } else if claimed.seq <= known.seq {
        Judgement::Duplicate(known)
    } else if claimed.seq == known.seq + 1 {
        Judgement::Accept(claimed)
    } else {
        Judgement::Gap { expected: known.seq + 1 }
    }
}

/// Appends where the producer stands. PROTOCOL 5.2.1: the epoch, and the highest sequence accepted in it.
pub(crate) fn place_lines(headers: &mut Headers, place: ProducerState) {
    headers.integer(EPOCH, place.epoch).integer(SEQ, place.seq);
}

/// PROTOCOL 5.2.1: 403 with the current epoch fences a superseded producer.
pub(crate) fn stale(epoch: u64) -> Response {
    let detail = "a newer epoch of this producer has written, that of Producer-Epoch; to take over, begin a higher one";
    Problem::new(403, "producer-epoch-stale", EPOCH, detail).respond_with(|headers| {
        headers.integer(EPOCH, epoch);
    })
}

/// PROTOCOL 5.2.1: 409 with the expected and the received sequence.
pub(crate) fn gap(expected: u64, received: u64) -> Response {
    let detail = "appends of this producer before this one are missing; send them first, from Producer-Expected-Seq on";
    Problem::new(409, "producer-sequence-gap", SEQ, detail).respond_with(|headers| {
        headers.integer("Producer-Expected-Seq", expected).integer("Producer-Received-Seq", received);
    })
}

/// PROTOCOL 5.2.1: a new epoch starts at sequence 0.
pub(crate) fn new_epoch_not_at_zero() -> Response {
    Problem::new(400, "producer-epoch-start", SEQ, "the first append of a new epoch has Producer-Seq 0")
        .respond()
}

/// PROTOCOL 5.2.1: a non-negative integer of at most 2^53-1.
fn integer(value: &[u8], field: Name) -> Result<u64, Problem> {
    decimal::parse(value, SAFE_INTEGER_MAX).ok_or_else(|| {
        Problem::new(400, "producer-integer", field, "it has to be a plain decimal integer of at most 2^53-1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The protocol's pseudo-code, line by line, as status and producer state afterwards.
    fn pseudo_code(state: &mut Option<(u64, u64)>, epoch: u64, seq: u64) -> u16 {
        let Some((state_epoch, last_seq)) = state.as_mut() else {
            if seq != 0 {
                return 409;
            }
            *state = Some((epoch, 0));
            return 200;
        };
        if epoch < *state_epoch {
            return 403;
        }
        if epoch > *state_epoch {
            if seq != 0 {
                return 400;
            }
            (*state_epoch, *last_seq) = (epoch, 0);
            return 200;
        }
        if seq <= *last_seq {
            return 204;
        }
        if seq == *last_seq + 1 {
            *last_seq = seq;
            return 200;
        }
        409
    }

    proptest! {
        #[test]
        fn every_history_is_judged_as_the_pseudo_code_does(requests in proptest::collection::vec((0_u64..4, 0_u64..5), 1..60)) {
            let (mut expected, mut known) = (None, None);
            for (epoch, seq) in requests {
                let status = pseudo_code(&mut expected, epoch, seq);
                let judged = match judge(known, ProducerState { epoch, seq }) {
                    Judgement::Accept(place) => {
                        known = Some(place);
                        200
                    }
                    Judgement::Duplicate(place) => {
                        prop_assert_eq!(Some(place), known);
                        204
                    }
                    Judgement::Stale { epoch } => {
                        prop_assert_eq!(known.map(|known| known.epoch), Some(epoch));
                        403
                    }
                    Judgement::NewEpochNotAtZero => 400,
                    Judgement::Gap { expected: next } => {
                        prop_assert_eq!(known.map_or(0, |known| known.seq + 1), next);
                        409
                    }
                };
                prop_assert_eq!(judged, status);
                prop_assert_eq!(known.map(|place| (place.epoch, place.seq)), expected);
            }
        }
    }
}
