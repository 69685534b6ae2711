//! The logs of one batch, numbered as they come.
//!
//! Purpose: a batch may touch 65,535 logs, and whoever puts one together or takes one apart asks for each of
//! its entries whose it is. Most batches touch one log or a few, for which a look through a list is the
//! quickest; for more there is a table beside it. *Checked by* the test below.

use crate::LogId;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Logs that are looked through one by one.
const FEW: usize = 16;

/// Logs, by numbers that count up from 0.
#[derive(Debug, Default)]
pub(crate) struct LogNumbers {
    ids: SmallVec<[LogId; 2]>,
    /// Of all of them, once they are more than a few.
    table: Option<HashMap<LogId, usize>>,
    /// The one that was last asked for or added: entries of a log often follow each other.
    latest: usize,
}

impl LogNumbers {
    /// The number of a log that was added.
    #[inline]
    pub(crate) fn find(&mut self, log: LogId) -> Option<usize> {
        if self.ids.get(self.latest) == Some(&log) {
            return Some(self.latest);
        }
        let found = match self.ids.len() <= FEW {
            true => self.ids.iter().position(|id| *id == log),
            false => self.table.as_ref().and_then(|table| table.get(&log).copied()),
        };
        self.latest = found.unwrap_or(self.latest);
        found
    }

    /// Adds a log, which was not there. Answers its number: as many as there were.
    pub(crate) fn add(&mut self, log: LogId) -> usize {
        self.latest = self.ids.len();
        self.ids.push(log);
        if self.ids.len() > FEW {
            let table = self.table.get_or_insert_default();
            let known = table.len();
            table.extend(self.ids.iter().copied().enumerate().skip(known).map(|(n, id)| (id, n)));
        }
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_keeps_its_number_however_many_there_are() {
        let mut numbers = LogNumbers::default();
        let id = |n: usize| (n as LogId).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for n in 0..5 * FEW {
            assert_eq!(numbers.find(id(n)), None);
            assert_eq!(numbers.add(id(n)), n);
            for known in 0..=n {
                assert_eq!([numbers.find(id(known)), numbers.find(id(known))], [Some(known); 2]);
            }
        }
    }
}
