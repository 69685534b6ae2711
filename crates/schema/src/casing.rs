//! Names in the casings of the target languages. Owns the split of a name into words; never knows which
//! language uses which casing.

#[cfg(test)]
thread_local! {
    /// How many names this thread has split into words: what tests count as work.
    pub(crate) static SPLITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The words of a name: `treeId`, `tree_id` and `TreeID` are `tree id` alike; digits stay with the word
/// before.
fn words(name: &str) -> Vec<String> {
    #[cfg(test)]
    SPLITS.set(SPLITS.get() + 1);
    let characters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut fresh = true;
    for (n, &c) in characters.iter().enumerate() {
        if !c.is_ascii_alphanumeric() {
            fresh = true;
            continue;
        }
        let before = n.checked_sub(1).map(|n| characters[n]);
        let after_small = before.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        // `HTTPGet`: the last capital of a run begins the next word.
        let ends_run = before.is_some_and(|b| b.is_ascii_uppercase())
            && characters.get(n + 1).is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && (after_small || ends_run) {
            fresh = true;
        }
        if fresh {
            words.push(String::new());
            fresh = false;
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// `tree_id`.
///
/// ```
/// assert_eq!(thalweg_schema::casing::snake("treeId"), "tree_id");
/// ```
pub fn snake(name: &str) -> String {
    words(name).join("_")
}

/// `TREE_ID`.
pub fn shouting(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

/// `TreeId`.
pub fn pascal(name: &str) -> String {
    words(name).iter().map(|word| capital(word)).collect()
}

/// `treeId`.
pub fn camel(name: &str) -> String {
    let words = words(name);
    let later = words.iter().skip(1).map(|word| capital(word));
    words.first().cloned().into_iter().chain(later).collect()
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_split_whatever_its_casing() {
        for name in ["treeId", "tree_id", "TreeId", "TreeID", "tree-id", "TREE_ID"] {
            assert_eq!(snake(name), "tree_id", "{name}");
            assert_eq!(camel(name), "treeId", "{name}");
            assert_eq!(pascal(name), "TreeId", "{name}");
            assert_eq!(shouting(name), "TREE_ID", "{name}");
        }
        assert_eq!(snake("HTTPGet2Be"), "http_get2_be");
        assert_eq!(snake("bin16"), "bin16");
        assert_eq!(snake("a"), "a");
    }
}
