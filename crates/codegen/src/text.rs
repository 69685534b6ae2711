//! Lines with indentation: all that emitters share about writing.

/// Source being written.
pub(crate) struct Text {
    out: String,
    depth: usize,
    step: &'static str,
}

impl Text {
    /// Nothing yet; each level of depth is one `step`.
    pub(crate) fn new(step: &'static str) -> Self {
        Self { out: String::new(), depth: 0, step }
    }

    /// One line at the current depth; an empty one has no white space.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            for _ in 0..self.depth {
                self.out.push_str(self.step);
            }
            self.out.push_str(line);
        }
        self.out.push('\n');
    }

    /// Several lines of source, indented like the current depth on top of their own.
    pub(crate) fn lines(&mut self, lines: &str) {
        lines.lines().for_each(|line| self.line(line));
    }

    /// A line, then what `inside` writes one level deeper, then another line.
    pub(crate) fn block(&mut self, open: impl AsRef<str>, close: &str, inside: impl FnOnce(&mut Self)) {
        self.line(open);
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.line(close);
    }

    /// Deeper, without a line before or behind.
    pub(crate) fn deeper(&mut self, inside: impl FnOnce(&mut Self)) {
        self.depth += 1;
        inside(self);
        self.depth -= 1;
    }

    /// Each line of a comment behind `mark`. One that ends in a backslash is ended otherwise: in C++ the next
    /// line would be part of the comment.
    pub(crate) fn comment(&mut self, mark: &str, comment: &str) {
        for line in comment.lines().map(str::trim_end) {
            let end = if line.ends_with('\\') { "." } else { "" };
            self.line(format!("{mark} {line}{end}").trim_end());
        }
    }

    /// How many columns the current depth takes.
    pub(crate) fn column(&self) -> usize {
        self.depth * self.step.len()
    }

    /// Takes back empty lines at the end.
    pub(crate) fn trim_end(&mut self) {
        let length = self.out.trim_end().len();
        self.out.truncate(length);
        self.out.push('\n');
    }

    /// What was written.
    pub(crate) fn finish(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn no_comment_swallows_the_line_behind_it() {
        let mut text = Text::new("    ");
        text.comment("///", "a path, C:\\ \nand more\n\nend");
        assert_eq!(text.finish(), "/// a path, C:\\.\n/// and more\n///\n/// end\n");
    }
}
