//! What is put into commands that are advised, to be pasted into a shell.

use std::path::Path;

/// A path as one word of a shell's.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_whatever_is_in_it() {
        for (path, word) in [("a b", "'a b'"), ("$HOME", "'$HOME'"), ("it's", r"'it'\''s'")] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
