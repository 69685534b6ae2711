//! What a name may look like, and which words it may not become.

use super::Check;
use crate::casing::{camel, snake};
use crate::jsonc::Span;
use crate::words;

/// The longest name.
const NAME_MAX: usize = 64;

impl Check {
    /// A name for a type or service: of the right form, and free.
    pub(super) fn type_name(&mut self, name: &str, at: Span, what: &str) {
        if self.capitalised(name, at, what)
            && let Some(owner) = words::reserves_type(name)
        {
            let hint = format!("add a word, as in {name}Value");
            self.wrong(at, format!("{name} is taken by {owner}"), hint);
        }
    }

    /// A service's name, which becomes a namespace too.
    pub(super) fn namespace_name(&mut self, name: &str, at: Span) {
        if let Some(owner) = words::reserves_service(&snake(name)) {
            let hint = format!("add a word, as in {name}Service");
            self.wrong(
                at,
                format!("a namespace cannot be called {}: reserved by {owner}", snake(name)),
                hint,
            );
        }
    }

    /// A capital, then letters and digits.
    fn capitalised(&mut self, name: &str, at: Span, what: &str) -> bool {
        if !self.fits(name, name, at, &format!("{what}'s name")) {
            return false;
        }
        let right = name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains('_');
        if !right {
            let hint = format!("write {}", crate::casing::pascal(name));
            self.wrong(at, format!("{what}'s name is written LikeThis: {name}"), hint);
        }
        right
    }

    /// A field's name.
    pub(super) fn field_name(&mut self, name: &str, at: Span) {
        if self.fits(name, name, at, "a field's name") {
            self.unreserved(name, at, words::reserves_value);
        }
    }

    /// An enum's word; it may have hyphens.
    pub(super) fn member_name(&mut self, name: &str, at: Span) {
        if self.fits(&name.replace('-', "_"), name, at, "an enum's word") {
            self.unreserved(name, at, words::reserves_member);
        }
    }

    fn unreserved(&mut self, name: &str, at: Span, reserves: fn(&str) -> Option<&'static str>) {
        for word in [snake(name), camel(name)] {
            if let Some(language) = reserves(&word) {
                let hint = format!("add a word, as in {word}_value");
                self.wrong(at, format!("{word} is reserved in {language}"), hint);
                return;
            }
        }
    }

    /// A command's name, which becomes methods too.
    pub(super) fn command_name(&mut self, name: &str, at: Span) {
        if !self.capitalised(name, at, "a command") {
            return;
        }
        if let Some((word, owner)) = words::reserves_command(name) {
            let hint = format!("add a word, as in {name}Value");
            self.wrong(at, format!("a method cannot be called {word}: reserved by {owner}"), hint);
        }
    }

    /// Letters, digits and single underscores, a letter first. `written` is how the schema has the name.
    fn fits(&mut self, name: &str, written: &str, at: Span, what: &str) -> bool {
        let (broken, hint) = if name.is_empty() {
            ("is empty".to_owned(), "give it a name")
        } else if name.len() > NAME_MAX {
            (format!("is longer than {NAME_MAX}: {written}"), "shorten it")
        } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            (format!("must begin with a letter: {written:?}"), "put a letter before it")
        } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            let hint = "separate words with capitals or underscores";
            (format!("may have letters and digits only: {written:?}"), hint)
        } else if name.ends_with('_') || name.contains("__") {
            let hint = "drop an underscore";
            (format!("may have no underscore at its end, and no two together: {written}"), hint)
        } else {
            return true;
        };
        self.wrong(at, format!("{what} {broken}"), hint);
        false
    }
}
