//! JSON with comments and trailing commas, read into a tree that knows where each part stands and which
//! comment stands right above it. Owns the text's syntax; never knows what a schema means.
//!
//! Written here because a schema needs all three at once: byte spans of keys and values, trailing commas, and
//! the comment above a member as that member's documentation.
//!
//! *Invariants*: no input panics, nesting is bounded by [`DEPTH_MAX`], every span lies in the text on
//! character boundaries. *Checked by* the tests below, which also feed it arbitrary text.

use crate::problem::Finding;

/// How deep objects and arrays may nest.
pub(crate) const DEPTH_MAX: usize = 32;

/// A stretch of the text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Span,
}

/// What a value is. Scalars no schema uses keep nothing but their kind.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Boolean,
    Number,
    String(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

/// One `"key": value`.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    /// The comment right above, without its marks.
    pub(crate) doc: String,
    pub(crate) node: Node,
}

impl Value {
    /// The kind's name, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// Reads the whole text.
///
/// # Errors
/// The first place where it is no JSON.
pub(crate) fn parse(text: &str) -> Result<Node, Finding> {
    let mut parser = Parser { text, at: 0, doc: String::new(), depth: 0, suspect: None };
    parser.blank()?;
    let node = parser.value()?;
    parser.blank()?;
    if parser.at < text.len() {
        return Err(parser.unexpected("the end of the file", "a schema is one object: drop what follows it"));
    }
    Ok(node)
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// The comment lines passed last, as long as nothing but they stand before what comes next.
    doc: String,
    depth: usize,
    /// The first object or array whose end begins a line of another indentation than the line of its
    /// beginning: where there is one end too few, it may have taken that of what is around it.
    suspect: Option<Span>,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn unexpected(&self, wanted: &str, hint: &str) -> Finding {
        let found = match self.peek() {
            Some(c) => format!("{c:?}"),
            None => "the end of the file".to_owned(),
        };
        Finding::at(self.at, format!("expected {wanted}, found {found}"), hint)
    }

    /// Passes white space and comments. A comment counts as documentation when it begins its line and no
    /// empty line follows.
    fn blank(&mut self) -> Result<(), Finding> {
        self.doc.clear();
        let mut line_is_empty =
            self.text[..self.at].trim_end_matches([' ', '\t']).ends_with('\n') || self.at == 0;
        let mut newlines = 0;
        while let Some(c) = self.peek() {
            if c == '\n' {
                newlines += 1;
                line_is_empty = true;
                if newlines > 1 {
                    self.doc.clear();
                }
                self.at += 1;
            } else if matches!(c, ' ' | '\t' | '\r' | '\u{feff}') {
                self.at += c.len_utf8();
            } else if c == '/' {
                let comment = self.comment()?;
                if line_is_empty {
                    if !self.doc.is_empty() {
                        self.doc.push('\n');
                    }
                    self.doc.push_str(&comment);
                }
                newlines = 0;
                line_is_empty = false;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One comment's words; its line's end stays unread.
    fn comment(&mut self) -> Result<String, Finding> {
        let start = self.at;
        if let Some(body) = self.rest().strip_prefix("//") {
            let line = body.split('\n').next().unwrap_or("");
            let words = plain(line.trim_end());
            let words = words.strip_prefix(' ').unwrap_or(&words).to_owned();
            self.at += 2 + line.len();
            return Ok(words);
        }
        let Some(body) = self.rest().strip_prefix("/*") else {
            return Err(self.unexpected("a value or a comment", "a comment begins with // or /*"));
        };
        let Some(length) = body.find("*/") else {
            return Err(Finding::at(start, "a comment that is never closed", "add */"));
        };
        let body = &body[..length];
        // Only `/** … */` documents; `/* … */` switches something off.
        let words = body.strip_prefix('*').map(|body| unstar(&plain(body))).unwrap_or_default();
        self.at += length + 4;
        Ok(words)
    }

    fn value(&mut self) -> Result<Node, Finding> {
        let start = self.at;
        let value = match self.peek() {
            Some('{') => self.nested(Self::object)?,
            Some('[') => self.nested(Self::array)?,
            Some('"') => Value::String(self.string()?),
            Some('-' | '0'..='9') => self.number(),
            Some('a'..='z') => self.word()?,
            _ => return Err(self.unexpected("a value", "a value is a string, an object or an array")),
        };
        Ok(Node { value, span: Span { start, end: self.at } })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Finding>) -> Result<Value, Finding> {
        if self.depth == DEPTH_MAX {
            return Err(Finding::at(
                self.at,
                format!("nested more than {DEPTH_MAX} deep"),
                "a schema needs no more than four levels",
            ));
        }
        let start = self.at;
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        if self.suspect.is_none() && self.is_closed_askew(start, self.at - 1) {
            self.suspect = Some(Span { start, end: self.at });
        }
        Ok(value)
    }

    /// Whether what closes an object or array begins a line, and the line in which that was opened has
    /// another indentation.
    fn is_closed_askew(&self, opened: usize, closed: usize) -> bool {
        let blank = [' ', '\t'];
        let above = self.text[..closed].trim_end_matches(blank);
        if !above.ends_with('\n') {
            return false;
        }
        let line = &self.text[self.text[..opened].rfind('\n').map_or(0, |at| at + 1)..=opened];
        let indentation = line.len() - line.trim_start_matches(blank).len();
        line[..indentation] != self.text[above.len()..closed]
    }

    /// What is wrong where the text ends in an object or array, or goes on with what cannot stand there.
    fn wrong_inside(&self, opened: usize, end: char, wanted: &str, hint: &str) -> Finding {
        if self.peek().is_none() { self.unclosed(opened, end) } else { self.unexpected(wanted, hint) }
    }

    fn unclosed(&self, opened: usize, end: char) -> Finding {
        let line = |at: usize| self.text[..at].matches('\n').count() + 1;
        let within = self.suspect.map(|Span { start, end }| {
            let (begun, ended) = (&self.text[start..=start], &self.text[end - 1..end]);
            let (from, to) = (line(start), line(end));
            format!(
                ", or what is missing inside: the {ended} of line {to} closes the {begun} of line {from}, whose \
                 line is indented differently"
            )
        });
        let hint = format!("add {end}{}", within.unwrap_or_default());
        Finding::at(opened, format!("a {} that is never closed", &self.text[opened..=opened]), hint)
    }

    fn object(&mut self) -> Result<Value, Finding> {
        let mut members = Vec::new();
        let opened = self.at;
        self.at += 1;
        loop {
            self.blank()?;
            if self.passes('}') {
                return Ok(Value::Object(members));
            }
            let doc = std::mem::take(&mut self.doc);
            let start = self.at;
            if self.peek() != Some('"') {
                return Err(self.wrong_inside(
                    opened,
                    '}',
                    "a member's name in quotes, or }",
                    "write \"name\": value, and } after the last one",
                ));
            }
            let key = self.string()?;
            let key_span = Span { start, end: self.at };
            self.blank()?;
            if !self.passes(':') {
                return Err(self.unexpected("a colon", "write \"name\": value"));
            }
            self.blank()?;
            let node = self.value()?;
            members.push(Member { key, key_span, doc, node });
            self.blank()?;
            if !self.passes(',') && self.peek() != Some('}') {
                return Err(self.wrong_inside(
                    opened,
                    '}',
                    "a comma or }",
                    "separate members with commas, and close what was opened with {",
                ));
            }
        }
    }

    fn array(&mut self) -> Result<Value, Finding> {
        let mut items = Vec::new();
        let opened = self.at;
        self.at += 1;
        loop {
            self.blank()?;
            if self.passes(']') {
                return Ok(Value::Array(items));
            }
            if self.peek().is_none() {
                return Err(self.unclosed(opened, ']'));
            }
            items.push(self.value()?);
            self.blank()?;
            if !self.passes(',') && self.peek() != Some(']') {
                return Err(self.wrong_inside(
                    opened,
                    ']',
                    "a comma or ]",
                    "separate items with commas, and close what was opened with [",
                ));
            }
        }
    }

    fn passes(&mut self, wanted: char) -> bool {
        let passes = self.peek() == Some(wanted);
        if passes {
            self.at += wanted.len_utf8();
        }
        passes
    }

    fn string(&mut self) -> Result<String, Finding> {
        let opened = self.at;
        let mut text = String::new();
        self.at += 1;
        loop {
            match self.peek() {
                None | Some('\n') => {
                    return Err(Finding::at(opened, "a string that is never closed", "add \""));
                }
                Some('"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some('\\') => text.push(self.escape()?),
                Some(c) if c < ' ' => {
                    return Err(self
                        .unexpected("no control character in a string", "write it as \\u and four digits"));
                }
                Some(c) => {
                    text.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Finding> {
        let start = self.at;
        self.at += 1;
        let Some(c) = self.peek() else {
            return Err(self.unexpected("an escape", "a backslash itself is written \\\\"));
        };
        self.at += c.len_utf8();
        Ok(match c {
            '"' | '\\' | '/' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok()).and_then(char::from_u32);
                self.at += 4;
                code.ok_or_else(|| {
                    Finding::at(start, "no character has this \\u escape", "write the character itself")
                })?
            }
            _ => {
                return Err(Finding::at(
                    start,
                    format!("no such escape: \\{c}"),
                    "a backslash itself is written \\\\",
                ));
            }
        })
    }

    fn number(&mut self) -> Value {
        let length = self.rest().find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.'));
        self.at += length.unwrap_or(self.rest().len());
        Value::Number
    }

    fn word(&mut self) -> Result<Value, Finding> {
        let length = self.rest().find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest().len());
        let value = match &self.rest()[..length] {
            "null" => Value::Null,
            "true" | "false" => Value::Boolean,
            word => {
                let hint = format!("put it in quotes: \"{word}\"");
                return Err(Finding::at(self.at, format!("expected a value, found {word}"), hint));
            }
        };
        self.at += length;
        Ok(value)
    }
}

/// A comment's words as a comment of every language can hold them: each of these characters ends a line,
/// changes what is shown or is refused in one of them.
fn plain(comment: &str) -> String {
    let words = comment.replace("\r\n", "\n");
    let character = |c: char| match c {
        '\t' => Some(' '),
        '\n' | '\r' | '\u{2028}' | '\u{2029}' => Some('\n'),
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => None,
        c => (!c.is_control()).then_some(c),
    };
    words.chars().filter_map(character).collect()
}

/// The lines of a `/** … */` comment without the stars at their left.
fn unstar(body: &str) -> String {
    let lines = body.lines().map(|line| {
        let line = line.trim();
        let line = line.strip_prefix('*').unwrap_or(line);
        line.strip_prefix(' ').unwrap_or(line)
    });
    let lines: Vec<&str> = lines.collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(text: &str) -> Vec<Member> {
        match parse(text).unwrap().value {
            Value::Object(members) => members,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn comments_and_trailing_commas_are_json_here() {
        let found = members("// head\n{ \"a\": [1, 2,], /* b */ \"b\": \"x\\u0041\\n\", }\n");
        assert_eq!(found.len(), 2);
        assert!(matches!(&found[1].node.value, Value::String(s) if s == "xA\n"));
    }

    #[test]
    fn spans_are_where_things_stand() {
        let text = "{ \"å\": { \"key\" : \"value\" } }";
        let outer = members(text);
        let Value::Object(inner) = &outer[0].node.value else { panic!() };
        assert_eq!(&text[inner[0].key_span.start..inner[0].key_span.end], "\"key\"");
        assert_eq!(&text[inner[0].node.span.start..inner[0].node.span.end], "\"value\"");
    }

    #[test]
    fn the_comment_right_above_documents() {
        let text = "{\n// One.\n//  Two.\n\"a\": 1, // beside\n\"b\": 2,\n// apart\n\n\"c\": 3,\n/** Stars\n * here. */\n\"d\": 4,\n/* off */\n\"e\": 5 }";
        let docs: Vec<String> = members(text).into_iter().map(|m| m.doc).collect();
        assert_eq!(docs, ["One.\n Two.", "", "", "Stars\nhere.", ""]);
    }

    #[test]
    fn a_comment_holds_nothing_that_some_language_minds() {
        let docs = |text: &str| members(text).into_iter().map(|m| m.doc).collect::<Vec<_>>();
        let line = "{\n// a\tb\u{0}\u{b}\u{c}\u{7}\u{85}\rc\u{2028}d\u{2029}e\u{202e}\u{2066}f\r\n\"a\": 1 }";
        assert_eq!(docs(line), ["a b\nc\nd\nef"]);
        let stars = "{\n/** a\tb\u{0}\rc\r\n * d\u{2028}e\u{202a} */\n\"a\": 1 }";
        assert_eq!(docs(stars), ["a b\nc\nd\ne"]);
    }

    #[test]
    fn what_is_no_json_is_named_where_it_stands() {
        for (text, at, says) in [
            ("{ \"a\" 1 }", 6, "expected a colon"),
            ("{ \"a\": u32 }", 7, "found u32"),
            ("{ \"a\": 1 \"b\": 2 }", 9, "expected a comma or }"),
            ("{ \"a\":", 6, "the end of the file"),
            ("{} x", 3, "expected the end"),
            ("{ \"a", 2, "never closed"),
            ("/* a", 0, "never closed"),
            ("{ \"\\q\": 1 }", 3, "no such escape"),
            ("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 32, "nested more than"),
        ] {
            let finding = parse(text).unwrap_err();
            assert_eq!(finding.at, at, "{text}");
            assert!(finding.what.contains(says), "{text}: {}", finding.what);
        }
    }

    #[test]
    fn what_is_never_closed_is_named_where_it_was_opened() {
        for (text, at, what, hint) in [
            ("{ \"a\": 1", 0, "a { that is never closed", "add }"),
            ("{ \"a\": 1, // b\n", 0, "a { that is never closed", "add }"),
            ("{ \"å\": { \"b\": 1 \n}", 0, "a { that is never closed", "add }"),
            ("{ \"a\": [", 7, "a [ that is never closed", "add ]"),
            ("{ \"a\": [1, ", 7, "a [ that is never closed", "add ]"),
            ("{ \"a\": {}, \"b", 11, "a string that is never closed", "add \""),
        ] {
            assert_eq!(parse(text).unwrap_err(), Finding::at(at, what, hint), "{text}");
        }
    }

    #[test]
    fn indentation_tells_which_end_is_missing() {
        let hint = |text: &str| parse(text).unwrap_err().hint;
        let askew = |ended, begun| {
            format!(
                "add }}, or what is missing inside: the }} of line {ended} closes the {{ of line {begun}, whose line is \
                 indented differently"
            )
        };
        // The first whose end is another's: those around it follow from that.
        let text = "{\n  \"a\": {\n    \"b\": {\n    },\n    \"c\": {\n  },\n  \"d\": {\n  },\n}\n// end\n";
        assert_eq!(parse(text).unwrap_err().at, 0);
        assert_eq!(hint(text), askew(6, 5));
        assert_eq!(hint("{\r\n  \"a\": [\r\n    {\r\n\t},\r\n  ],\r\n"), askew(4, 3));
        // An end behind something else in its line says nothing, and none does where all are there.
        assert_eq!(hint("{ \"a\": {\n\"b\": 1 },"), "add }");
        parse("  {\n\t\"a\": {\n}\n}").unwrap();
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PC\\n\"{}\\[\\],:/*\\\\u0-9]{0,80}") {
            if let Ok(node) = parse(&text) {
                prop_assert!(text.is_char_boundary(node.span.start) && text.is_char_boundary(node.span.end));
            }
        }
    }
}
