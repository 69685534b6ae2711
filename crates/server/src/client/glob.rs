//! Names like a pattern: `*` stands for anything but a slash, `**` for anything, `?` for one character but a
//! slash. Every other character stands for itself.

/// A pattern for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    pattern: Vec<char>,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        Self { pattern: pattern.trim_start_matches('/').chars().collect() }
    }

    /// What every name like it begins with.
    pub(super) fn prefix(&self) -> String {
        self.pattern.iter().take_while(|c| !matches!(c, '*' | '?')).collect()
    }

    /// Whether a name is like it. Complexity: the product of both lengths.
    pub(super) fn matches(&self, name: &str) -> bool {
        // `reached[i]`: the first i characters of the pattern match what was seen of the name.
        let mut reached = vec![false; self.pattern.len() + 1];
        reached[0] = true;
        self.skip_empty(&mut reached);
        for character in name.chars() {
            let mut next = vec![false; reached.len()];
            for (index, wanted) in self.pattern.iter().enumerate() {
                let anything = *wanted == '*' && (character != '/' || self.is_deep(index));
                let one = match wanted {
                    '*' => false,
                    '?' => character != '/',
                    wanted => *wanted == character,
                };
                next[index] |= reached[index] && anything;
                next[index + 1] |= reached[index] && (anything || one);
            }
            reached = next;
            self.skip_empty(&mut reached);
        }
        reached[self.pattern.len()]
    }

    /// A star may stand for nothing.
    fn skip_empty(&self, reached: &mut [bool]) {
        for index in 0..self.pattern.len() {
            reached[index + 1] |= reached[index] && self.pattern[index] == '*';
        }
    }

    /// Whether the star at `index` is one of two.
    fn is_deep(&self, index: usize) -> bool {
        let is_star = |index: Option<usize>| index.and_then(|i| self.pattern.get(i)) == Some(&'*');
        is_star(index.checked_sub(1)) || is_star(Some(index + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stop_at_slashes_unless_there_are_two() {
        for (pattern, name, wanted) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "abc", true),
            ("*", "a/b", false),
            ("**", "a/b/c", true),
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", false),
            ("a/**", "a/b/c", true),
            ("a/**/z", "a/b/c/z", true),
            ("*/z", "a/b/z", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("*.log", "x.log", true),
            ("", "", true),
            ("", "a", false),
            ("/a", "a", true),
            ("ü?", "üß", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), wanted, "{pattern} {name}");
        }
        assert_eq!(Glob::new("logs/app-*/x").prefix(), "logs/app-");
        let hard = Glob::new(&"*a".repeat(50));
        assert!(!hard.matches(&"a".repeat(49)) && hard.matches(&"a".repeat(50)));
    }
}
