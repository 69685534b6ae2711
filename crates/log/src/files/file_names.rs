//! Which of the files in a store's directory are the store's.
//!
//! Others may lie there, which neither opening nor removing a store touches. *Checked by* the test below.

use crate::final_end::LOCK_NAME;
use crate::working::Working;
use crate::{checkpoint, control, segment, settled, signal};

/// Room that is held back.
pub(crate) const RESERVE: &str = "reserve";
const SPARE_PREFIX: &str = "spare-";

/// The next segment's file, until it is full of zeros.
pub(crate) fn spare(number: u32) -> String {
    format!("{SPARE_PREFIX}{number:010}")
}

fn is_spare(name: &str) -> bool {
    let number = name.strip_prefix(SPARE_PREFIX).and_then(|digits| digits.parse().ok());
    number.is_some_and(|number| spare(number) == name)
}

/// What marks a store, in the order in which they go.
pub(crate) const MARKS: [&str; 2] = [control::FILE_NAME, LOCK_NAME];

/// Whether it is the name of one of a store's files.
pub(crate) fn is_ours(name: &str) -> bool {
    is_placed(name) || is_leftover(name)
}

/// Whether it is the name of a file that an earlier opening left unfinished.
pub(crate) fn is_leftover(name: &str) -> bool {
    is_spare(name) || Working::target_of(name).is_some_and(is_placed)
}

fn is_placed(name: &str) -> bool {
    segment::number_of(name).is_some()
        || settled::number_of(name).is_some()
        || checkpoint::start_of(name).is_some()
        || [RESERVE, signal::FILE_NAME].contains(&name)
        || MARKS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_store_s_files_are_told_from_all_others() {
        for name in [
            "segment-0000000001",
            "settled-0000000001",
            "checkpoint-0000000100000040",
            "reserve",
            "signal",
            "control",
            "lock",
        ] {
            assert!(is_ours(name) && !is_leftover(name), "{name}");
            let new = format!("{name}.new");
            assert!(is_ours(&new) && is_leftover(&new), "{new}");
            assert!(!is_ours(&format!("{name}~")) && !is_ours(&format!("my-{name}.new")), "{name}");
        }
        assert!(is_ours("spare-0000000002") && is_leftover("spare-0000000002"));
        for name in ["notes", "notes.new", ".new", "segment-1", "segment-notes", "spare-parts", "backup.new"]
        {
            assert!(!is_ours(name), "{name}");
        }
        // Numbers of ours, but not as we write them.
        for name in ["segment-+000000001", "settled-+000000001", "spare-+000000002"] {
            assert!(!is_ours(name), "{name}");
        }
        for name in ["checkpoint-+000000100000040", "checkpoint-00000001000000FF"] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
