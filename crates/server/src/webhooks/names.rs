//! Names whose addresses are looked up, and who waits for them.
//!
//! A look-up takes as long as the system's resolver likes, and cannot be cut short: who waits for it gives up
//! in time, and its answer is for nobody then. So that a name whose servers are silent holds back only
//! itself, each is looked up once at a time, for everybody who waits for it, and one that was late leaves the
//! last few look-ups to the others. Knows neither threads nor clocks; checked by the tests below.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Look-ups at once.
const LOOK_UPS_MAX: usize = 32;
/// A name whose last look-up was late is looked up only while fewer than these are under way.
const LATE_LOOK_UPS_MAX: usize = 24;
/// Names that are remembered as late. One more, and all are forgotten: they are late again soon enough.
const LATE_NAMES_MAX: usize = 4_096;

/// Names, each with those of type `T` who wait for it.
pub(super) struct Names<T> {
    by_host: HashMap<Arc<str>, LookUp<T>>,
    /// Names whose look-up has not begun.
    queue: VecDeque<Arc<str>>,
    under_way: usize,
    /// Names whose last look-up was late.
    late: HashSet<Arc<str>>,
}

struct LookUp<T> {
    begun: bool,
    /// A call gave up waiting for it.
    late: bool,
    /// Who waits, and until when.
    waiting: Vec<(u64, T)>,
}

impl<T> Names<T> {
    pub(super) fn new() -> Self {
        Self { by_host: HashMap::new(), queue: VecDeque::new(), under_way: 0, late: HashSet::new() }
    }

    /// `who` waits for a name's addresses until `deadline_ms`.
    pub(super) fn wait(&mut self, host: &str, who: T, deadline_ms: u64) {
        if let Some(look_up) = self.by_host.get_mut(host) {
            look_up.waiting.push((deadline_ms, who));
            return;
        }
        let host: Arc<str> = host.into();
        self.queue.push_back(host.clone());
        self.by_host.insert(host, LookUp { begun: false, late: false, waiting: vec![(deadline_ms, who)] });
    }

    /// The next name to look up, if another may be now. It is under way until it is answered.
    pub(super) fn begin(&mut self) -> Option<Arc<str>> {
        let most = |host| if self.late.contains(host) { LATE_LOOK_UPS_MAX } else { LOOK_UPS_MAX };
        let place = self.queue.iter().position(|host| self.under_way < most(host))?;
        let host = self.queue.remove(place)?;
        self.by_host.get_mut(&host)?.begun = true;
        self.under_way += 1;
        Some(host)
    }

    /// A look-up that was begun has ended: who still waits for it.
    pub(super) fn answered(&mut self, host: &Arc<str>) -> impl Iterator<Item = T> + use<T> {
        let look_up = self.by_host.remove(host);
        self.under_way -= usize::from(look_up.is_some());
        if look_up.as_ref().is_some_and(|look_up| look_up.late) {
            if self.late.len() == LATE_NAMES_MAX {
                self.late.clear();
            }
            self.late.insert(host.clone());
        } else {
            self.late.remove(host);
        }
        look_up.into_iter().flat_map(|look_up| look_up.waiting).map(|(_, who)| who)
    }

    /// Those whose time is up.
    pub(super) fn overdue(&mut self, now_ms: u64) -> Vec<T> {
        let mut overdue = Vec::new();
        for look_up in self.by_host.values_mut() {
            let gone = look_up.waiting.extract_if(.., |(deadline_ms, _)| *deadline_ms <= now_ms);
            let before = overdue.len();
            overdue.extend(gone.map(|(_, who)| who));
            look_up.late |= look_up.begun && overdue.len() > before;
        }
        // What is under way goes on; the rest is no longer needed.
        self.by_host.retain(|_, look_up| look_up.begun || !look_up.waiting.is_empty());
        self.queue.retain(|host| self.by_host.contains_key(host));
        overdue
    }

    /// When the next of those who wait is to give up.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.by_host.values().flat_map(|look_up| &look_up.waiting).map(|(deadline_ms, _)| *deadline_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(names: &mut Names<u32>) -> Vec<Arc<str>> {
        std::iter::from_fn(|| names.begin()).collect()
    }

    #[test]
    fn a_name_is_looked_up_once_at_a_time_for_everybody_who_waits() {
        let mut names = Names::new();
        for (host, who) in [("a", 1), ("b", 2), ("a", 3)] {
            names.wait(host, who, 10);
        }
        let both = begun(&mut names);
        assert_eq!(both, ["a".into(), "b".into()]);
        names.wait("a", 4, 10);
        assert_eq!(names.begin(), None);
        assert_eq!(names.answered(&both[0]).collect::<Vec<_>>(), [1, 3, 4]);
        names.wait("a", 5, 10);
        assert_eq!(names.begin(), Some("a".into()), "what came is not remembered");
    }

    #[test]
    fn who_waits_gives_up_in_time_and_the_answer_is_for_those_who_came_later() {
        let mut names = Names::new();
        names.wait("a", 1, 10);
        names.wait("a", 2, 20);
        let a = names.begin().unwrap();
        assert_eq!(names.next_due_ms(), Some(10));
        assert_eq!((names.overdue(9), names.overdue(10)), (vec![], vec![1]));
        assert_eq!((names.overdue(20), names.next_due_ms()), (vec![2], None));
        names.wait("a", 3, 30);
        assert_eq!(names.begin(), None, "it is under way still");
        assert_eq!(names.answered(&a).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_name_that_nobody_waits_for_any_more_is_not_looked_up() {
        let mut names = Names::new();
        for number in 0..=LOOK_UPS_MAX {
            names.wait(&format!("n{number}"), 0, 10 + number as u64);
        }
        assert_eq!(begun(&mut names).len(), LOOK_UPS_MAX);
        names.overdue(10 + LOOK_UPS_MAX as u64);
        assert_eq!(names.answered(&"n0".into()).count(), 0);
        assert_eq!(names.begin(), None);
    }

    #[test]
    fn names_that_were_late_leave_room_for_others_until_they_are_in_time() {
        let mut names = Names::new();
        let hosts: Vec<String> = (0..LOOK_UPS_MAX).map(|number| format!("slow{number}")).collect();
        hosts.iter().for_each(|host| names.wait(host, 0, 10));
        let all = begun(&mut names);
        assert_eq!(all.len(), LOOK_UPS_MAX);
        assert_eq!(names.overdue(10).len(), LOOK_UPS_MAX);
        assert!(all.iter().all(|host| names.answered(host).count() == 0));
        // The same again: now they are known.
        hosts.iter().for_each(|host| names.wait(host, 0, 30));
        let again = begun(&mut names);
        assert_eq!(again.len(), LATE_LOOK_UPS_MAX);
        for number in LATE_LOOK_UPS_MAX..=LOOK_UPS_MAX {
            names.wait(&format!("quick{number}"), 0, 30);
        }
        let quick = begun(&mut names);
        assert_eq!(quick.len(), LOOK_UPS_MAX - LATE_LOOK_UPS_MAX);
        assert!(quick.iter().all(|host| host.starts_with("quick")));
        // One that is in time is as any other.
        assert_eq!(names.answered(&again[0]).count(), 1);
        names.wait(&again[0], 0, 30);
        names.queue.retain(|host| *host == again[0]);
        assert_eq!(begun(&mut names), [again[0].clone()]);
    }
}
