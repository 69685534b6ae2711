//! Within a crate, too, arrows point down only: where the code of one lies in folders, in layers, the table
//! says which folders each may name. What stands beside the folders is what all of them are about, and may be
//! named by any.

use super::Finding;
use super::source::Source;
use std::collections::HashMap;
use std::path::Path;

/// What each folder may name of the others, the lowest first.
type Layers = &'static [(&'static str, &'static [&'static str])];

/// The crates whose folders are layers.
const MAY_NAME: &[(&str, Layers)] = &[(
    "crates/log/src",
    &[
        ("files", &[]),
        ("writing", &["files"]),
        ("reading", &["files"]),
        ("keeping", &["files", "writing", "reading"]),
    ],
)];

/// Checks what the files in the folders of each crate in the table name.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    MAY_NAME.iter().flat_map(|(home, layers)| check_crate(sources, Path::new(home), layers)).collect()
}

fn check_crate(sources: &[Source], home: &Path, layers: &[(&str, &[&str])]) -> Vec<Finding> {
    let inside =
        |source: &Source| source.path.strip_prefix(home).ok().and_then(|path| folder_of(path, layers));
    let mut folders: HashMap<String, &str> =
        layers.iter().map(|(name, _)| ((*name).to_owned(), *name)).collect();
    for source in sources {
        // What lies further down goes by the name of its parent.
        let is_direct = source.path.parent().is_some_and(|parent| parent.parent() == Some(home));
        if let (true, Some(folder), Some(stem)) = (is_direct, inside(source), source.path.file_stem()) {
            folders.insert(stem.to_string_lossy().into_owned(), folder);
        }
    }
    // By whatever the crate's root names again.
    if let Some(root) = sources.iter().find(|source| source.path == home.join("lib.rs")) {
        for (module, items) in reexports(&text_of(root)) {
            if let Some(folder) = folders.get(&module).copied() {
                items.into_iter().for_each(|item| _ = folders.insert(item, folder));
            }
        }
    }
    let mut findings = Vec::new();
    for source in sources {
        let Some(folder) = inside(source) else { continue };
        let allowed = layers.iter().find(|(name, _)| *name == folder).map_or(&[][..], |(_, below)| *below);
        for name in named(&text_of(source)) {
            let Some(other) = folders.get(&name).filter(|other| **other != folder) else { continue };
            if !allowed.contains(other) {
                let rule =
                    format!("an arrow points up: {folder}/ must not name {name}, which is of {other}/");
                findings.push(Finding::new(source.path.display().to_string(), rule));
            }
        }
    }
    findings
}

/// The folder of the table that a file is in, directly or further down.
fn folder_of<'t>(path: &Path, layers: &[(&'t str, &[&str])]) -> Option<&'t str> {
    let first = path.components().next().filter(|_| path.components().count() > 1)?;
    layers.iter().map(|(name, _)| *name).find(|name| first.as_os_str() == *name)
}

fn text_of(source: &Source) -> String {
    source.shipped().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// The first name of each path from the crate's root.
fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => names.extend(tops(list)),
            None => names.push(word(rest).to_owned()),
        }
    }
    names
}

/// The first name of each path of a list in braces.
fn tops(list: &str) -> Vec<String> {
    let (mut depth, mut flat) = (1, String::new());
    for character in list.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            character if depth == 1 => flat.push(character),
            _ => {}
        }
    }
    flat.split(',').map(|path| word(path.trim()).to_owned()).filter(|name| !name.is_empty()).collect()
}

/// Each module of which the root names items again, and those items.
fn reexports(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for item in text.split("pub use ").skip(1) {
        let Some((module, rest)) = item.split(';').next().and_then(|item| item.split_once("::")) else {
            continue;
        };
        let items = rest.strip_prefix('{').map_or_else(|| vec![word(rest).to_owned()], tops);
        found.push((module.to_owned(), items));
    }
    found
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &[(&str, &[&str])] = &[("low", &[]), ("high", &["low"])];

    fn judge(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(path, text): &(&str, &str)| Source::new(&Path::new("a/src").join(path), text);
        let sources: Vec<Source> = files.iter().map(source).collect();
        check_crate(&sources, Path::new("a/src"), LAYERS).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_folder_names_what_lies_below_it_and_what_stands_beside_it() {
        let files = [
            ("high/top.rs", "use crate::bottom::Thing;\nuse crate::{beside, Item};\n"),
            ("high/other.rs", "use crate::top;\n"),
            ("high/other/beside.rs", ""),
            ("low/bottom.rs", "use crate::beside::Model;\n// crate::top\n"),
            ("beside.rs", "use crate::top::Top;\n"),
            ("lib.rs", "pub use bottom::Item;\n"),
        ];
        assert!(judge(&files).is_empty());
    }

    #[test]
    fn a_folder_that_names_what_lies_above_it_is_found_however_it_does() {
        for text in [
            "use crate::top::Top;\n",
            "use crate::{beside, top::{Top, Other}};\n",
            "fn f() { crate::high::top::g() }\n",
            "use crate::{Position, Top};\n",
        ] {
            let files =
                [("high/top.rs", ""), ("lib.rs", "pub use top::{Other, Top};\n"), ("low/deep/er.rs", text)];
            assert_eq!(judge(&files), ["a/src/low/deep/er.rs"], "{text}");
        }
        let tested = "#[cfg(test)]\nmod tests {\n    use crate::top::Top;\n}\n";
        assert!(judge(&[("high/top.rs", ""), ("low/a.rs", tested)]).is_empty());
    }

    #[test]
    fn the_table_itself_points_down() {
        for (_, layers) in MAY_NAME {
            for (n, (folder, below)) in layers.iter().enumerate() {
                for other in *below {
                    assert!(layers[..n].iter().any(|(name, _)| name == other), "{folder} names {other}");
                }
            }
        }
    }
}
