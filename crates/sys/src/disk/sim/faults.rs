//! What goes wrong on a simulated disk because a test asks for it: each once, after as many calls as it says.
//!
//! *Checked by* the test below, the tests of the disk, and whatever is simulated on it.

use std::path::PathBuf;

/// What is to go wrong.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Syncs that go well before one fails.
    pub(super) syncs: Option<u32>,
    /// Writes that go well before one fails.
    pub(super) writes: Option<u32>,
    /// Listings that go well before one passes over this file.
    pub(super) unlisted: Option<(PathBuf, u32)>,
}

impl Faults {
    /// Whether this sync fails.
    pub(super) fn fails_sync(&mut self) -> bool {
        take_due(&mut self.syncs, |left| left).is_some()
    }

    /// Whether this write fails.
    pub(super) fn fails_write(&mut self) -> bool {
        take_due(&mut self.writes, |left| left).is_some()
    }

    /// The file that this listing passes over.
    pub(super) fn passed_over(&mut self) -> Option<PathBuf> {
        take_due(&mut self.unlisted, |(_, left)| left).map(|(path, _)| path)
    }
}

/// Takes what is to go wrong if it is this call's turn; counts the call otherwise.
fn take_due<T>(fault: &mut Option<T>, left: impl Fn(&mut T) -> &mut u32) -> Option<T> {
    let due = fault.take_if(|fault| *left(fault) == 0);
    if let Some(fault) = fault {
        *left(fault) -= 1;
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once_after_as_many_calls_as_were_asked_for() {
        let path = PathBuf::from("/a");
        let unlisted = Some((path.clone(), 2));
        let mut faults = Faults { syncs: Some(1), writes: Some(0), unlisted };
        assert_eq!([(); 4].map(|()| faults.fails_sync()), [false, true, false, false]);
        assert_eq!([(); 2].map(|()| faults.fails_write()), [true, false]);
        assert_eq!([(); 4].map(|()| faults.passed_over()), [None, None, Some(path), None]);
    }
}
