//! What a step said of its failures, for the end of a report, where it is looked for: the lines that tell of
//! one with a few behind each, or the last lines, when none did. Bounded, whatever a step prints.

use std::collections::VecDeque;

/// By these a line tells of a failure, in what cargo, libtest, clippy and our own tasks print.
const TELLING: [&str; 6] = ["FAILED", "panicked at", "  failed: ", "error:", "error[", "differs"];
/// Lines behind one that tells, which say of what.
const BEHIND: usize = 4;
const KEPT_MAX: usize = 60;
const LAST: usize = 10;

#[derive(Default)]
pub(super) struct Complaints {
    kept: Vec<String>,
    last: VecDeque<String>,
    /// How many more lines belong to what was last told.
    follows: usize,
}

impl Complaints {
    /// Takes a line of what a step prints.
    pub(super) fn hear(&mut self, line: &str) {
        if TELLING.iter().any(|telling| line.contains(telling)) {
            self.follows = BEHIND + 1;
        }
        if self.follows > 0 && self.kept.len() < KEPT_MAX {
            self.kept.push(line.to_owned());
        }
        self.follows = self.follows.saturating_sub(1);
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    /// The lines to show of a step that failed.
    pub(super) fn lines(self) -> Vec<String> {
        if self.kept.is_empty() { self.last.into() } else { self.kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut complaints = Complaints::default();
        lines.into_iter().for_each(|line| complaints.hear(&line));
        complaints.lines()
    }

    #[test]
    fn what_tells_of_a_failure_is_kept_with_what_follows() {
        let mut lines: Vec<String> = (0..100).map(|n| format!("test {n} ... ok")).collect();
        lines[50] = "test fifty ... FAILED".into();
        let kept = heard(lines);
        assert_eq!((kept.len(), kept[0].as_str()), (1 + BEHIND, "test fifty ... FAILED"));
    }

    #[test]
    fn a_step_that_says_nothing_is_known_by_its_end_and_one_that_says_much_is_cut() {
        assert_eq!(
            heard((0..100).map(|n| n.to_string())),
            (90..100).map(|n| n.to_string()).collect::<Vec<_>>()
        );
        assert_eq!(heard((0..100).map(|n| format!("error: {n}"))).len(), KEPT_MAX);
    }
}
