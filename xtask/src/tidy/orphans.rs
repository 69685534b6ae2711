//! Files under `src` that no module names: they are not compiled, so nothing notices what becomes of them.

use super::Finding;
use super::source::Source;
use std::path::{Path, PathBuf};

/// Where the modules may lie that a file declares, `#[path]` included; `text` is the file as it is.
pub(super) fn named(source: &Source, text: &str) -> Vec<PathBuf> {
    let lines: Vec<&str> = text.lines().collect();
    let (home, beside) = (source.home(), source.path.parent().unwrap_or(Path::new("")));
    let mut named = Vec::new();
    for (line, name) in source.modules() {
        // Attributes stand in front of what they are about, one on a line.
        let attributes = lines[..line].iter().rev().take_while(|line| line.trim_start().starts_with("#["));
        let path = attributes.filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        match path.last() {
            Some(path) => named.push(beside.join(path)),
            None => named.extend([home.join(name).with_extension("rs"), home.join(name).join("mod.rs")]),
        }
    }
    named
}

/// The files that are neither named nor where cargo itself looks.
pub(super) fn check<'p>(paths: impl Iterator<Item = &'p Path>, named: &[PathBuf]) -> Vec<Finding> {
    let orphans = paths.filter(|path| is_module(path) && !named.iter().any(|named| named == path));
    let rule = "no module names this file, so nobody compiles it: name it or delete it";
    orphans.map(|path| Finding::new(path.display().to_string(), rule)).collect()
}

/// Whether a file is one that only a module can bring in. A `main.rs` is a program's, wherever the manifest
/// says that it lies.
fn is_module(path: &Path) -> bool {
    let mut parts = path.iter().skip_while(|part| *part != "src").skip(1);
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("main.rs");
    parts.next().is_some_and(|first| first != "bin") && !is_root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_module_names_is_found() {
        let text = "mod near;\npub(crate) mod wide;\nmod r#loop;\n#[cfg(test)]\n#[path = \"far_tests.rs\"]\nmod tests;\nmod here {}\n";
        let [root, deep] = ["crates/a/src/lib.rs", "crates/a/src/near.rs"]
            .map(|path| named(&Source::new(Path::new(path), text), text));
        let paths = [
            "lib.rs",
            "main.rs",
            "bin/tool.rs",
            "tool/main.rs",
            "near.rs",
            "wide/mod.rs",
            "loop.rs",
            "far_tests.rs",
            "near/wide.rs",
        ];
        let paths = paths.map(|name| PathBuf::from("crates/a/src").join(name));
        let orphans =
            ["here.rs", "lost.rs", "near/lost.rs"].map(|name| PathBuf::from("crates/a/src").join(name));
        let elsewhere = [PathBuf::from("crates/a/tests/x.rs"), PathBuf::from("crates/a/build.rs")];
        let all = paths.iter().chain(&orphans).chain(&elsewhere).map(PathBuf::as_path);
        let found: Vec<String> =
            check(all, &[root, deep].concat()).into_iter().map(|found| found.place).collect();
        assert_eq!(found, orphans.map(|path| path.display().to_string()));
    }
}
