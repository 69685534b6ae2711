//! Calls that wait to be made, and which of them is next.
//!
//! A call takes as long as its peer likes, up to 30 seconds, and there are [`CALLS_MAX`] places. Peers that
//! hang are to hold back only themselves. So peers take turns, and each has a [`SHARE`] of the places; beyond
//! it a peer gets one only while fewer than half of all are taken. A peer whose last call timed out gets none
//! of the last quarter. Knows neither sockets nor clocks; checked by the tests below.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Calls at once.
pub(super) const CALLS_MAX: usize = 256;
/// Places that one peer may have whatever the others have.
const SHARE: usize = 16;
/// A peer that has its share gets another place only while fewer than these are taken.
const BEYOND_SHARE_MAX: usize = CALLS_MAX / 2;
/// A peer whose last call was late gets a place only while fewer than these are taken, and none beyond its
/// share.
const LATE_MAX: usize = CALLS_MAX / 4 * 3;
/// Peers that are remembered as late. One more, and all are forgotten: they are late again soon enough.
const LATE_PEERS_MAX: usize = 4_096;

/// Whom a call is made to: host and port.
pub(super) type Peer = (Arc<str>, u16);

/// Calls of type `T`, waiting and under way.
pub(super) struct Calls<T> {
    /// Peers with a call that waits or is under way.
    peers: HashMap<Peer, Line<T>>,
    /// Peers that a call waits for, the one whose turn comes next in front.
    turns: VecDeque<Peer>,
    under_way: usize,
    /// Peers whose last call was late.
    late: HashSet<Peer>,
}

struct Line<T> {
    waiting: VecDeque<T>,
    under_way: usize,
}

impl<T> Calls<T> {
    pub(super) fn new() -> Self {
        Self { peers: HashMap::new(), turns: VecDeque::new(), under_way: 0, late: HashSet::new() }
    }

    /// A call to that peer waits.
    pub(super) fn wait(&mut self, peer: &Peer, call: T) {
        let empty = || Line { waiting: VecDeque::new(), under_way: 0 };
        let line = self.peers.entry(peer.clone()).or_insert_with(empty);
        if line.waiting.is_empty() {
            self.turns.push_back(peer.clone());
        }
        line.waiting.push_back(call);
    }

    /// The next call to make, if another may be made now. It is under way until it has [ended](Calls::ended).
    pub(super) fn begin(&mut self) -> Option<(Peer, T)> {
        let place = self.turns.iter().position(|peer| self.may_begin(peer))?;
        let peer = self.turns.remove(place)?;
        let line = self.peers.get_mut(&peer)?;
        let call = line.waiting.pop_front()?;
        line.under_way += 1;
        self.under_way += 1;
        if !line.waiting.is_empty() {
            self.turns.push_back(peer.clone());
        }
        Some((peer, call))
    }

    fn may_begin(&self, peer: &Peer) -> bool {
        let has_share = self.peers.get(peer).is_some_and(|line| line.under_way >= SHARE);
        self.under_way
            < match (self.late.contains(peer), has_share) {
                (false, false) => CALLS_MAX,
                (false, true) => BEYOND_SHARE_MAX,
                (true, false) => LATE_MAX,
                (true, true) => 0,
            }
    }

    /// A call to that peer is over, or is not made after all.
    pub(super) fn ended(&mut self, peer: &Peer) {
        self.under_way -= 1;
        if let Some(line) = self.peers.get_mut(peer) {
            line.under_way -= 1;
            if line.under_way == 0 && line.waiting.is_empty() {
                self.peers.remove(peer);
            }
        }
    }

    /// Remembers whether a call to that peer was late, for its next ones.
    pub(super) fn timed(&mut self, peer: &Peer, was_late: bool) {
        if !was_late {
            self.late.remove(peer);
            return;
        }
        if self.late.len() == LATE_PEERS_MAX {
            self.late.clear();
        }
        self.late.insert(peer.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: usize) -> Peer {
        (format!("h{number}").into(), 443)
    }

    /// Begins every call that may be made now: to whom each.
    fn begun(calls: &mut Calls<usize>) -> Vec<Peer> {
        std::iter::from_fn(|| calls.begin()).map(|(peer, _)| peer).collect()
    }

    fn end(calls: &mut Calls<usize>, peer: &Peer, was_late: bool) {
        calls.ended(peer);
        calls.timed(peer, was_late);
    }

    fn wait(calls: &mut Calls<usize>, peer: &Peer, count: usize) {
        (0..count).for_each(|number| calls.wait(peer, number));
    }

    #[test]
    fn one_peer_has_half_of_the_places_while_it_is_alone_and_its_share_where_others_are() {
        let mut calls = Calls::new();
        wait(&mut calls, &peer(0), CALLS_MAX);
        assert_eq!(begun(&mut calls).len(), BEYOND_SHARE_MAX);
        wait(&mut calls, &peer(1), CALLS_MAX);
        assert_eq!(begun(&mut calls), vec![peer(1); SHARE]);
        wait(&mut calls, &peer(2), 1);
        assert_eq!(begun(&mut calls), [peer(2)]);
    }

    #[test]
    fn peers_take_turns_and_the_calls_of_each_keep_their_order() {
        let mut calls = Calls::new();
        wait(&mut calls, &peer(0), 3);
        wait(&mut calls, &peer(1), 2);
        let order: Vec<_> = std::iter::from_fn(|| calls.begin()).collect();
        let [a, b] = [peer(0), peer(1)];
        assert_eq!(order, [(a.clone(), 0), (b.clone(), 0), (a.clone(), 1), (b, 1), (a, 2)]);
    }

    #[test]
    fn peers_that_were_late_leave_places_to_others_until_they_are_in_time() {
        let mut calls = Calls::new();
        let all: Vec<Peer> = (0..CALLS_MAX).map(peer).collect();
        for round in [CALLS_MAX, LATE_MAX] {
            all.iter().for_each(|peer| calls.wait(peer, 0));
            let hung = begun(&mut calls);
            assert_eq!(hung.len(), round);
            calls.wait(&("quick".into(), 80), 0);
            assert_eq!(begun(&mut calls).len(), usize::from(round < CALLS_MAX), "{round}");
            hung.iter().for_each(|peer| end(&mut calls, peer, true));
            begun(&mut calls).iter().for_each(|peer| end(&mut calls, peer, false));
            calls = Calls { late: calls.late, ..Calls::new() };
        }
        // In time once, it is as any other.
        wait(&mut calls, &all[0], SHARE + 1);
        assert_eq!(begun(&mut calls).len(), SHARE);
        end(&mut calls, &all[0], false);
        assert_eq!(begun(&mut calls).len(), 1);
    }

    #[test]
    fn nothing_is_kept_of_whom_nobody_calls() {
        let mut calls = Calls::new();
        wait(&mut calls, &peer(0), 2);
        for peer in begun(&mut calls) {
            end(&mut calls, &peer, false);
        }
        assert!(calls.peers.is_empty() && calls.turns.is_empty() && calls.late.is_empty());
        assert_eq!(calls.under_way, 0);
    }
}
