//! Command-line options of the tasks: `--name value`, `--flag`, and plain words. Every task reads what it
//! knows; a name that no task knows is refused here, so a misspelt option never passes silently.

use std::collections::BTreeMap;
use std::str::FromStr;

const FLAGS: [&str; 10] =
    ["check", "libraries", "list", "newest", "peer", "readme", "record", "restart", "tiny", "without-peer"];
const VALUES: [&str; 24] = [
    "at-once",
    "bytes",
    "connections",
    "durability",
    "face",
    "first",
    "interpreter",
    "milliseconds",
    "minutes",
    "only",
    "operations",
    "pairs",
    "port",
    "profile",
    "records",
    "retain-bytes",
    "rounds",
    "seconds",
    "seed",
    "seeds",
    "sizes",
    "streams",
    "subscribers",
    "target",
];

/// Parsed options.
#[derive(Debug, Default)]
pub(crate) struct Options {
    values: BTreeMap<String, String>,
    /// Words that are no options.
    pub(crate) words: Vec<String>,
}

impl Options {
    /// Reads the words after the task's name.
    ///
    /// # Errors
    /// An unknown option, or one without its value.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                options.words.push(word);
                continue;
            };
            if FLAGS.contains(&name) {
                options.values.insert(name.to_owned(), String::new());
            } else if VALUES.contains(&name) {
                let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
                options.values.insert(name.to_owned(), value);
            } else {
                return Err(format!("--{name} is no option of any task"));
            }
        }
        Ok(options)
    }

    /// Whether a flag was given.
    pub(crate) fn flag(&self, name: &str) -> bool {
        debug_assert!(FLAGS.contains(&name), "--{name} could not be given");
        self.values.contains_key(name)
    }

    /// An option's text.
    pub(crate) fn text<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        debug_assert!(VALUES.contains(&name), "--{name} could not be given");
        self.values.get(name).map_or(default, String::as_str)
    }

    /// An option's value.
    ///
    /// # Errors
    /// The text is no such value.
    pub(crate) fn value<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        debug_assert!(VALUES.contains(&name), "--{name} could not be given");
        match self.values.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: not a value it takes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    /// Every source file of these tasks, one behind the other.
    fn sources(directory: &std::path::Path, into: &mut String) {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                sources(&entry.path(), into);
            } else {
                into.push_str(&std::fs::read_to_string(entry.path()).unwrap());
            }
        }
    }

    #[test]
    fn whatever_a_task_asks_for_can_be_given() {
        let mut text = String::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        let asked = |what: &str| -> Vec<String> {
            let call = format!("options.{what}(\"");
            let calls = text.split(&call).skip(1);
            calls.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
        };
        let values = [asked("value"), asked("text")].concat();
        assert!(values.len() > 20 && asked("flag").len() > 2, "{values:?}");
        assert!(values.iter().all(|name| VALUES.contains(&name.as_str())), "{values:?}");
        assert!(asked("flag").iter().all(|name| FLAGS.contains(&name.as_str())), "{:?}", asked("flag"));
    }

    #[test]
    fn values_flags_and_words_are_told_apart() {
        let options = parse("streams --pairs 7 --peer").unwrap();
        assert_eq!(options.words, ["streams"]);
        assert_eq!(options.value("pairs", 5), Ok(7));
        assert_eq!(options.value("rounds", 20), Ok(20));
        assert!(options.flag("peer") && !options.flag("check"));
    }

    #[test]
    fn misspelt_or_unfinished_options_are_refused() {
        assert!(parse("--paris 7").is_err());
        assert!(parse("--pairs").is_err());
        assert!(parse("--pairs many").unwrap().value("pairs", 5_u32).is_err());
    }
}
