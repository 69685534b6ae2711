//! A Rust file as the rules see it: the same lines with comments and the insides of literals blanked out, the
//! comments by themselves, and which lines belong to tests. A tokenizer of strings, comments and braces is
//! all this takes; it never needs to understand Rust, only to never mistake text for code.

use std::path::{Path, PathBuf};

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path below the workspace's root.
    pub(crate) path: PathBuf,
    /// Lines of code: comments gone, literals emptied (their quotes stay), columns kept.
    pub(crate) code: Vec<String>,
    /// Lines of comments: everything else blanked out.
    pub(crate) comments: Vec<String>,
    /// Which lines are tests.
    pub(crate) tests: Vec<bool>,
}

/// What the scanner is inside of.
enum Inside {
    Code,
    LineComment,
    BlockComment { depth: u32 },
    Text,
    RawText { hashes: usize },
}

impl Source {
    /// Tokenizes a file.
    pub(crate) fn new(path: &Path, text: &str) -> Self {
        let (code, comments) = split(text);
        let code: Vec<String> = code.lines().map(str::to_owned).collect();
        let comments: Vec<String> = comments.lines().map(str::to_owned).collect();
        let tests = if is_test_file(path) { vec![true; code.len()] } else { mark_tests(&code) };
        Self { path: path.to_owned(), code, comments, tests }
    }

    /// The workspace directory the file belongs to: `crates/sys`, `faces/node`, `xtask`.
    pub(crate) fn package(&self) -> String {
        let mut parts = self.path.components().map(|c| c.as_os_str().to_string_lossy().into_owned());
        let first = parts.next().unwrap_or_default();
        let holds_several = first == "crates" || first == "faces";
        if holds_several { format!("{first}/{}", parts.next().unwrap_or_default()) } else { first }
    }

    /// Files and folders that this file declares as test modules (`#[cfg(test)] mod name;`).
    pub(crate) fn test_modules(&self) -> Vec<PathBuf> {
        let home = self.home();
        let names = self.modules().filter(|(line, _)| self.tests[*line]);
        names.flat_map(|(_, name)| [home.join(name), home.join(name).with_extension("rs")]).collect()
    }

    /// The modules that this file declares to be in files of their own, and on which line.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().filter_map(|(number, line)| {
            let line = line.trim();
            let (visibility, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
            let is_declared =
                visibility.is_empty() || visibility.starts_with("pub") && visibility.ends_with(' ');
            is_declared.then_some((number, name.trim_start_matches("r#")))
        })
    }

    /// Where the modules lie that this file declares.
    pub(crate) fn home(&self) -> PathBuf {
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let stem = self.path.file_stem().unwrap_or_default();
        // A root's children lie beside it, another module's in the folder of its name.
        if ["lib", "main", "mod"].iter().any(|s| stem == *s) { parent.to_owned() } else { parent.join(stem) }
    }

    /// Takes the whole file for a test.
    pub(crate) fn mark_as_test(&mut self) {
        self.tests.fill(true);
    }

    /// Lines that are not tests, numbered from zero.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().filter(|(n, _)| !self.tests[*n]).map(|(n, line)| (n, line.as_str()))
    }

    /// The last line of the item that starts on line `start`: where its braces close, or its semicolon.
    pub(crate) fn end_of_item(&self, start: usize) -> usize {
        end_of_item(&self.code, start, 0)
    }
}

/// Only tests and the fuzz targets, which nothing that ships holds, may panic.
fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let inside = |folder: &str| path.components().any(|c| c.as_os_str() == folder);
    matches!(&*name, "tests.rs" | "fuzzing.rs")
        || name.ends_with("_tests.rs")
        || inside("tests")
        || inside("benches")
}

/// The end of the item that starts at (line, column): the line on which its first brace at depth zero closes,
/// or on which a semicolon ends it before any brace.
fn end_of_item(code: &[String], line: usize, column: usize) -> usize {
    let (mut braces, mut others) = (0_i32, 0_i32);
    for (n, text) in code.iter().enumerate().skip(line) {
        let from = if n == line { column } else { 0 };
        for character in text.chars().skip(from) {
            match character {
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces == 0 && others == 0 {
                        return n;
                    }
                }
                '(' | '[' => others += 1,
                ')' | ']' => others -= 1,
                ';' if braces == 0 && others == 0 => return n,
                _ => {}
            }
        }
    }
    code.len().saturating_sub(1)
}

/// Lines under `#[test]` or a `#[cfg(…)]` that asks for `test`.
fn mark_tests(code: &[String]) -> Vec<bool> {
    let mut tests = vec![false; code.len()];
    let mut n = 0;
    while n < code.len() {
        let line = code[n].trim_start();
        let attribute = line.starts_with("#[test]")
            || ((line.starts_with("#[cfg(") || line.starts_with("#![cfg(")) && asks_for_test(line));
        if !attribute {
            n += 1;
            continue;
        }
        let whole_file = line.starts_with("#![");
        // The item starts behind this attribute; the brackets of further ones are balanced away.
        let column = code[n].find(']').map_or(0, |c| c + 1);
        let end = if whole_file { code.len() - 1 } else { end_of_item(code, n, column) };
        tests[n..=end].iter_mut().for_each(|t| *t = true);
        n = end + 1;
    }
    tests
}

fn asks_for_test(attribute: &str) -> bool {
    let words = attribute.split(|c: char| !c.is_alphanumeric() && c != '_');
    attribute.matches("not(test").count() == 0 && words.into_iter().any(|w| w == "test")
}

/// Splits a text into its code and its comments, each with the shape of the whole.
fn split(text: &str) -> (String, String) {
    let characters: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut inside = Inside::Code;
    let mut n = 0;
    while n < characters.len() {
        let rest = &characters[n..];
        let (width, next) = step(&inside, rest);
        let comment = matches!(inside, Inside::LineComment | Inside::BlockComment { .. })
            || matches!(next, Some(Inside::LineComment | Inside::BlockComment { .. }));
        let literal = matches!(inside, Inside::Text | Inside::RawText { .. }) && next.is_none();
        let quoted = width > 1 && !comment && next.is_none() && rest[0] == '\'';
        for &c in &rest[..width] {
            if c == '\n' {
                code.push(c);
                comments.push(c);
                continue;
            }
            comments.push(if comment { c } else { ' ' });
            code.push(if comment || literal || quoted { ' ' } else { c });
        }
        if let Some(next) = next {
            inside = next;
        }
        n += width;
    }
    (code, comments)
}

/// How many characters belong together from here on, and what they lead into.
fn step(inside: &Inside, rest: &[char]) -> (usize, Option<Inside>) {
    let at = |n: usize| rest.get(n).copied().unwrap_or('\0');
    match inside {
        Inside::Code => match (at(0), at(1)) {
            ('/', '/') => (2, Some(Inside::LineComment)),
            ('/', '*') => (2, Some(Inside::BlockComment { depth: 1 })),
            ('"', _) => (1, Some(Inside::Text)),
            ('\'', _) => (character_literal(rest), None),
            ('r', '"' | '#') => raw_start(rest),
            (c, _) if is_word(c) => (word(rest), None),
            _ => (1, None),
        },
        Inside::LineComment if at(0) == '\n' => (1, Some(Inside::Code)),
        Inside::BlockComment { depth } => match (at(0), at(1)) {
            ('/', '*') => (2, Some(Inside::BlockComment { depth: depth + 1 })),
            ('*', '/') if *depth == 1 => (2, Some(Inside::Code)),
            ('*', '/') => (2, Some(Inside::BlockComment { depth: depth - 1 })),
            _ => (1, None),
        },
        Inside::Text => match at(0) {
            '\\' => (2.min(rest.len()), None),
            '"' => (1, Some(Inside::Code)),
            _ => (1, None),
        },
        Inside::RawText { hashes } => {
            let closes = at(0) == '"' && (1..=*hashes).all(|n| at(n) == '#');
            if closes { (1 + hashes, Some(Inside::Code)) } else { (1, None) }
        }
        Inside::LineComment => (1, None),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A word is taken whole, so that the `r` of `for` never starts a raw string; `br"` and `cr"` do.
fn word(rest: &[char]) -> usize {
    if matches!(rest, ['b' | 'c', 'r', '"' | '#', ..]) {
        return 1;
    }
    rest.iter().take_while(|c| is_word(**c)).count()
}

fn raw_start(rest: &[char]) -> (usize, Option<Inside>) {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) == Some(&'"') {
        (2 + hashes, Some(Inside::RawText { hashes }))
    } else {
        (word(rest).max(1), None)
    }
}

/// The width of a character literal, or 1 for the tick of a lifetime.
fn character_literal(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', _, tail @ ..] => tail.iter().position(|c| *c == '\'').map_or(1, |n| n + 4),
        ['\'', _, '\'', ..] => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new(Path::new("crates/sys/src/lib.rs"), text)
    }

    #[test]
    fn literals_and_comments_are_no_code() {
        let s = source(
            "let a = \"unsafe { \\\" }\"; // unsafe {\nlet b = r#\"}\"}\"#; /* { /* } */ */ let c = '{';\n",
        );
        assert!(!s.code.join("").contains('{') && !s.code.join("").contains('}'), "{:?}", s.code);
        assert!(s.code[1].contains("let c"));
        assert!(s.comments[0].contains("// unsafe {") && !s.comments[0].contains("let"));
    }

    #[test]
    fn lifetimes_characters_and_words_are_told_apart() {
        let s = source("fn f<'a>(x: &'a str) -> char { '\\'' }\nfor r in x { '\\u{7b}'; b'{'; br\"{\"; }\n");
        assert_eq!(s.code[0].matches(['{', '}']).count(), 2, "{}", s.code[0]);
        assert_eq!(s.code[1].matches(['{', '}']).count(), 2, "{}", s.code[1]);
    }

    #[test]
    fn tests_are_marked_to_their_last_brace() {
        let s = source(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(not(test))]\nfn d() {}\n",
        );
        assert_eq!(s.tests, [false, true, true, true, true, false, false, false]);
    }

    #[test]
    fn a_test_module_elsewhere_ends_at_its_semicolon() {
        let s = source("#[cfg(all(test, not(loom)))]\n#[path = \"t.rs\"]\nmod tests;\nfn a() {}\n");
        assert_eq!(s.tests, [true, true, true, false]);
        let folder =
            |path: &str| Source::new(Path::new(path), "#[cfg(test)]\nmod model;\nmod read;\n").test_modules();
        assert_eq!(folder("src/lib.rs"), [Path::new("src/model"), Path::new("src/model.rs")]);
        assert_eq!(folder("src/a.rs"), [Path::new("src/a/model"), Path::new("src/a/model.rs")]);
        assert!(Source::new(Path::new("crates/log/tests/x.rs"), "fn a() {}\n").tests[0]);
    }

    #[test]
    fn an_item_ends_where_its_braces_close() {
        let s = source("fn a(x: [u8; 2])\nwhere\n{\n  if x { y(); }\n}\nfn b();\n");
        assert_eq!(s.end_of_item(0), 4);
        assert_eq!(s.end_of_item(5), 5);
    }
}
