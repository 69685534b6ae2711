//! The descent of the logs that are opened together: which of a log's ancestors gave out an offset.
//!
//! A log owns the offsets behind its branch point. The branch point itself, and what lies before it, an
//! ancestor owns: the *origin* of a log is the owner of its branch point. Between a log and its origin lie
//! only logs that branch off no earlier, and own nothing that the log inherits. So forks of forks that all
//! branch off at one offset have one origin, and are one step from it, however many they are.
//!
//! Branch points grow from each origin to the next log. Beside its origin each log has a skip further up, as
//! in Myers' "An applicative random-access stack" (1983), so that an owner is found in logarithmic time.
//!
//! *Checked by* the test below, which compares it with what the logs themselves say.

use crate::images::lineage;
use std::collections::{BTreeMap, HashMap};
use std::iter::successors;
use std::ops::Range;
use std::sync::Arc;
use thalweg_log::{Log, LogId, Offset};

/// A place in the history that forks share: the log that gave out the offset, and the offset.
pub(crate) type Place = (LogId, Offset);

/// The descent of some logs and of all their ancestors.
#[derive(Debug, Default)]
pub(crate) struct Lineages {
    descents: HashMap<LogId, Descent>,
    /// By log its number and, behind it, those of its descendants.
    numbers: HashMap<LogId, Range<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Descent {
    /// Where the log branches off; 0 for a log that is no fork.
    base: Offset,
    /// `None` for a log that is no fork.
    origin: Option<LogId>,
    /// Another log on the way from the log through its origins; the log itself if it is no fork.
    skip: LogId,
    /// How many origins are above it.
    depth: u64,
}

impl Lineages {
    /// Complexity: logarithmic for each log and each ancestor.
    pub(crate) fn of(logs: &[Arc<Log>]) -> Self {
        let mut lineages = Self::default();
        let mut parents = Vec::new();
        for log in with_ancestors(logs) {
            let branch = log.fork().map(|branch| (branch.parent.id(), branch.at));
            lineages.add(log.id(), branch);
            parents.push((log.id(), branch.map(|(parent, _)| parent)));
        }
        lineages.numbers = numbered(&parents);
        lineages
    }

    /// Adds a log whose parent is known already.
    fn add(&mut self, log: LogId, branch: Option<(LogId, Offset)>) {
        let origin = branch.and_then(|(parent, base)| Some((self.owner(parent, base)?, base)));
        let descent = match origin {
            None => Descent { base: 0, origin: None, skip: log, depth: 0 },
            Some((origin, base)) => {
                let above = self.descents[&origin];
                let skipped = self.descents[&above.skip];
                let is_even =
                    above.depth - skipped.depth == skipped.depth - self.descents[&skipped.skip].depth;
                let skip = if is_even { skipped.skip } else { origin };
                Descent { base, origin: Some(origin), skip, depth: above.depth + 1 }
            }
        };
        self.descents.insert(log, descent);
    }

    /// The log that gave out an offset of a log; `None` for an unknown log. Complexity: logarithmic.
    pub(crate) fn owner(&self, log: LogId, offset: Offset) -> Option<LogId> {
        let (mut owner, mut descent) = (log, self.descents.get(&log)?);
        while let Some(origin) = descent.origin
            && offset <= descent.base
        {
            step();
            // No log before the skip branches off earlier than the skip does.
            owner = if offset <= self.descents[&descent.skip].base { descent.skip } else { origin };
            descent = &self.descents[&owner];
        }
        Some(owner)
    }

    /// The logs that own offsets of a log, from the log itself on, each with the last offset of it that the
    /// log has.
    pub(crate) fn owners(&self, log: LogId) -> impl Iterator<Item = Place> {
        successors(Some((log, Offset::MAX)), |(log, _)| {
            step();
            let descent = self.descents.get(log)?;
            Some((descent.origin?, descent.base))
        })
    }

    /// Whether a log is another one or descends from it. Complexity: constant.
    pub(crate) fn descends(&self, log: LogId, from: LogId) -> bool {
        let number = self.numbers.get(&log).map(|numbers| numbers.start);
        number.zip(self.numbers.get(&from)).is_some_and(|(number, of)| of.contains(&number))
    }

    /// The places where logs branch off.
    pub(crate) fn branch_points(&self) -> impl Iterator<Item = Place> {
        self.descents.values().filter_map(|descent| Some((descent.origin?, descent.base)))
    }
}

/// Logs and all their ancestors, dropped ones included, each behind its parent. Complexity: a look at each.
pub(crate) fn with_ancestors(logs: &[Arc<Log>]) -> impl Iterator<Item = Arc<Log>> + use<> {
    // A parent is older than its forks, and ids only grow.
    let mut all = BTreeMap::new();
    for log in logs {
        for (log, _) in lineage(log, Offset::MAX) {
            if all.insert(log.id(), log).is_some() {
                break;
            }
        }
    }
    all.into_values()
}

/// By log its number and, behind it, those of its descendants. Each log stands behind its parent.
fn numbered(parents: &[(LogId, Option<LogId>)]) -> HashMap<LogId, Range<usize>> {
    let mut counts: HashMap<LogId, usize> = HashMap::new();
    for (log, parent) in parents.iter().rev() {
        let count = counts.entry(*log).or_default();
        *count += 1;
        let count = *count;
        if let Some(parent) = parent {
            *counts.entry(*parent).or_default() += count;
        }
    }
    let (mut numbers, mut free) = (HashMap::new(), HashMap::new());
    let mut end = 0;
    for (log, parent) in parents {
        let next = parent.as_ref().and_then(|parent| free.get_mut(parent)).unwrap_or(&mut end);
        let first = *next;
        *next += counts[log];
        numbers.insert(*log, first..*next);
        free.insert(*log, first + 1);
    }
    numbers
}

/// Counts a look at a log, for tests.
fn step() {
    #[cfg(test)]
    crate::images::STEPS.set(crate::images::STEPS.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::STEPS;
    use thalweg_log::sim::Random;
    use thalweg_log::{Commit, Config, Fork, Lifetime, Options, Store};

    /// Forks of random logs at random offsets, some of them dropped.
    fn tree(store: &Store, random: &mut Random, forks: u64) -> Vec<Arc<Log>> {
        let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
        let create = |name: &str, fork: Option<&Fork>| {
            store.create(name.as_bytes(), &config, fork, &Commit::default(), None).unwrap().0
        };
        let mut logs = vec![create("main", None)];
        for n in 0..forks {
            let parent = logs[usize::try_from(random.below(logs.len() as u64)).unwrap()].clone();
            for _ in 0..random.below(3) {
                store.append(&parent, b"x", 1).unwrap();
            }
            let at = random.below(parent.staged().unwrap().tail + 1);
            logs.push(create(&n.to_string(), Some(&Fork { parent, at, asked: [0; 2] })));
        }
        for log in logs.extract_if(.., |_| random.once_in(4)) {
            store.delete(&log, log.staged().unwrap().version, 2, None).unwrap();
        }
        logs
    }

    #[test]
    fn owners_are_those_that_the_logs_say() {
        for seed in 0..20 {
            let store = Store::memory(Options::default()).unwrap();
            let logs = tree(&store, &mut Random::new(seed), 60);
            let lineages = Lineages::of(&logs);
            let points: Vec<_> = lineages.branch_points().collect();
            for log in &logs {
                let tail = log.staged().unwrap().tail;
                for offset in 0..=tail {
                    let owner = log.owner(offset);
                    assert_eq!(lineages.owner(log.id(), offset), Some(owner), "seed {seed}, {offset}");
                    let mut owners = lineages.owners(log.id()).take_while(|(_, until)| *until >= offset);
                    assert_eq!(owners.by_ref().last().map(|(log, _)| log), Some(owner), "seed {seed}");
                }
                for other in &logs {
                    let line: Vec<_> = lineage(log, Offset::MAX).map(|(log, _)| log.id()).collect();
                    assert_eq!(lineages.descends(log.id(), other.id()), line.contains(&other.id()));
                }
                if let Some(branch) = log.fork() {
                    assert!(points.contains(&(branch.parent.owner(branch.at), branch.at)));
                }
            }
            assert_eq!(lineages.owner(LogId::MAX, 0), None);
        }
    }

    #[test]
    fn an_owner_far_above_is_found_in_a_few_steps() {
        const LOGS: u64 = 10_000;
        let mut lineages = Lineages::default();
        lineages.add(0, None);
        (1..LOGS).for_each(|log| lineages.add(log, Some((log - 1, log))));
        STEPS.set(0);
        for offset in 1..100 {
            // Log n branches off log n - 1 at n.
            assert_eq!(lineages.owner(LOGS - 1, offset), Some(offset - 1));
        }
        assert!(STEPS.get() < 100 * 40, "{} steps", STEPS.get());
    }
}
