//! Every link of the pages leads somewhere: to a file or folder that is there and, where it names one, to a
//! heading of that page. Links to other sites are not followed. Reads the Markdown files of the tree, as
//! lines; what stands in code blocks is no link.

use super::Finding;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Folders whose pages are not ours, beside those whose names begin with a dot.
const FOREIGN: [&str; 3] = ["_build", "node_modules", "target"];

/// Every link that leads nowhere.
///
/// # Errors
/// A page cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut pages = HashMap::new();
    for path in markdown_files(root)? {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        pages.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), text);
    }
    Ok(dead_links(&pages, |path| root.join(path).exists()))
}

fn dead_links(pages: &HashMap<PathBuf, String>, is_there: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let headings: HashMap<&Path, HashSet<String>> =
        pages.iter().map(|(page, text)| (page.as_path(), anchors(text))).collect();
    let mut findings = Vec::new();
    for (page, text) in pages {
        for (number, link) in links(text) {
            let (target, heading) = target(page, link);
            let missing = match headings.get(target.as_path()) {
                _ if !is_there(&target) => target.display().to_string(),
                Some(known) if heading.is_some_and(|heading| !known.contains(heading)) => {
                    format!("such heading in {}", target.display())
                }
                _ => continue,
            };
            let rule = format!("the link to {link} leads nowhere: there is no {missing}");
            findings.push(Finding::new(format!("{}:{number}", page.display()), rule));
        }
    }
    findings.sort_by(|one, other| one.place.cmp(&other.place));
    findings
}

fn markdown_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut files, mut directories) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = directories.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_foreign = name.starts_with('.') || name.starts_with("target-");
            if entry.file_type().map_err(failed)?.is_dir() {
                if !is_foreign && !FOREIGN.contains(&&*name) {
                    directories.push(path);
                }
            } else if name.ends_with(".md") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// The lines of a page that are not in code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Where the links of a page lead, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let of_line = |(number, line)| {
        let ends = str::split(line, "](").skip(1).filter_map(|rest| rest.split_once(')'));
        ends.map(|(target, _)| (number, target)).collect::<Vec<_>>()
    };
    prose(text).flat_map(of_line).filter(|(_, target)| !target.contains([' ', ':', '`'])).collect()
}

/// What the headings of a page are called in links, as GitHub calls them.
fn anchors(text: &str) -> HashSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut anchors = HashSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let name =
            title.trim().to_lowercase().chars().filter(|c| kept(*c)).collect::<String>().replace(' ', "-");
        let times = seen.entry(name.clone()).and_modify(|times| *times += 1).or_insert(0);
        anchors.insert(if *times == 0 { name } else { format!("{name}-{times}") });
    }
    anchors
}

/// The file that a link of a page leads to, and the heading there.
fn target<'a>(page: &Path, link: &'a str) -> (PathBuf, Option<&'a str>) {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = if path.is_empty() { page.to_owned() } else { resolved(&page.with_file_name(path)) };
    (target, heading)
}

/// A path without `.` and `..` in it.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = resolved.pop(),
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_page_and_to_its_heading() {
        let page = "# Two words, *and* `code`\n\n## Same\n\n## Same\n\n```\n# none\n[x](none)\n```\n";
        let good = "[a](docs/a.md), [b](docs/a.md#two-words-and-code) and [c](docs/a.md#same-1), [d](docs), \
             [e](https://example.org/none), [f](#here) `array[1](x y)`\n# Here\n";
        let bad = "[a](../README.md#there)\nand [b](c.md), [c](#none), [d](a.md#none), [e](a.md#same-2)\n";
        let pages = [("docs/a.md", page), ("README.md", good), ("docs/b.md", bad)];
        let pages = pages.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let pages = HashMap::from(pages);
        let found = dead_links(&pages, |path| path == Path::new("docs") || pages.contains_key(path));
        let places: Vec<&str> = found.iter().map(|finding| &*finding.place).collect();
        assert_eq!(places, ["docs/b.md:1", "docs/b.md:2", "docs/b.md:2", "docs/b.md:2", "docs/b.md:2"]);
    }
}
