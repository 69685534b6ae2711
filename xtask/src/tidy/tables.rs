//! No table of the pages has the same row twice: one of them was forgotten when the other was moved. Reads
//! the Markdown files of the root and of `docs`, as lines.

use super::Finding;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Every row that its table has before.
///
/// # Errors
/// A page cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for directory in [root.to_owned(), root.join("docs")] {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
                let page = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                findings.extend(repeated(&page, &text));
            }
        }
    }
    Ok(findings)
}

fn repeated(page: &str, text: &str) -> Vec<Finding> {
    let (mut findings, mut rows) = (Vec::new(), HashMap::new());
    for (number, line) in (1..).zip(text.lines()) {
        if !line.starts_with('|') {
            rows.clear();
        } else if let Some(first) = rows.insert(line, number) {
            let rule = format!("the same row as in line {first}: leave one of them out");
            findings.push(Finding::new(format!("{page}:{number}"), rule));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_once_in_a_table_and_again_in_another() {
        let table = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n";
        assert_eq!(repeated("p.md", &format!("{table}\n{table}")), []);
        let found = repeated("p.md", &format!("words\n{table}| 1 | 2 |\n"));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].place.as_str(), found[0].rule.contains("line 4")), ("p.md:6", true));
    }
}
