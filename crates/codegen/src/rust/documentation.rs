//! A schema's words as Rust's documentation. What Markdown takes for code without saying whose, Rust would
//! compile and run as a test: here it is marked as text.

/// What the schema says, or else the name on the wire.
pub(super) fn documented(doc: &str, name: &str) -> String {
    if doc.is_empty() { format!("`{name}`.") } else { untested(doc) }
}

/// The same words, with nothing in them that is tested unless it is said to be Rust.
pub(super) fn untested(doc: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    // The marks of the fence that is open; whether an indented block is; whether one may begin, as it may not
    // in a paragraph.
    let (mut fence, mut indented, mut may_begin) = ("", false, true);
    for line in doc.lines() {
        if !fence.is_empty() {
            let words = line.trim_matches([' ', '>']);
            if words.starts_with(fence) && words.trim_start_matches(&fence[..1]).is_empty() {
                fence = "";
            }
            lines.push(line.to_owned());
            continue;
        }
        let words = line.trim();
        let code = line.strip_prefix("    ").filter(|_| indented || may_begin);
        if !words.is_empty() && indented != code.is_some() {
            // Longer than the marks that may stand in the block.
            lines.push(if indented { "````" } else { "````text" }.to_owned());
            indented = !indented;
        }
        if indented {
            lines.push(code.unwrap_or_default().to_owned());
            continue;
        }
        let (marks, about) = opened(words);
        fence = marks;
        lines.push(format!("{line}{}", if !fence.is_empty() && about.is_empty() { "text" } else { "" }));
        let is_rule = words.trim_matches(['-', '=', '*', '_', ' ']).is_empty();
        may_begin = is_rule || words.starts_with('#') || !fence.is_empty();
    }
    if indented {
        lines.push("````".to_owned());
    }
    lines.join("\n")
}

/// The marks of the fence that a line opens, be it in a list or a quotation, and what it says of what is in
/// it.
fn opened(words: &str) -> (&str, &str) {
    let is_before = |c: char| " -*+>.)".contains(c) || c.is_ascii_digit();
    let words = words.trim_start_matches(is_before);
    let about = words.trim_start_matches(if words.starts_with('~') { '~' } else { '`' });
    let marks = &words[..words.len() - about.len()];
    let opens = marks.len() >= 3 && !(marks.starts_with('`') && about.contains('`'));
    if opens { (marks, about.trim()) } else { ("", "") }
}

#[cfg(test)]
mod tests {
    use super::untested;

    #[test]
    fn what_is_not_said_to_be_rust_is_text() {
        let said = |doc: &str, wanted: &str| assert_eq!(untested(doc), wanted, "{doc}");
        said("Plain.\n\nAnd `more`.", "Plain.\n\nAnd `more`.");
        said("Like:\n\n    a b\n\n    c\nEnd.", "Like:\n\n````text\na b\n\nc\n````\nEnd.");
        said("    a", "````text\na\n````");
        said("# Head\n    a", "# Head\n````text\na\n````");
        said("One\n    that goes on.", "One\n    that goes on.");
        said("```\na b\n```\n    c", "```text\na b\n```\n````text\nc\n````");
        said("~~~\n```\n~~~~\nEnd.", "~~~text\n```\n~~~~\nEnd.");
        said("```json\n{\n```\n```\na\n```", "```json\n{\n```\n```text\na\n```");
        said("- ```\n  a\n  ```\n> ```\n> b\n> ```", "- ```text\n  a\n  ```\n> ```text\n> b\n> ```");
        said("``` a ``` and\n\n    b", "``` a ``` and\n\n````text\nb\n````");
    }
}
