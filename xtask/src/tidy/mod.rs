//! `cargo xtask tidy`: the rules of the house as a test. Reads the sources as text through a small tokenizer
//! (`source`), judges them line by line (`rules`) and by what each folder names of others (`folders`), and
//! judges the Cargo.toml files (`arrows`, `licences`) and the tables and links of the pages (`tables`,
//! `links`).
//! Every rule has a good and a bad snippet beside it, so a rule that stopped biting fails its own test.

mod arrows;
mod folders;
mod licences;
mod links;
mod orphans;
mod rules;
mod source;
mod tables;

use crate::harness::server::root;
use crate::{Outcome, Tally};
use source::Source;
use std::fs;
use std::path::{Path, PathBuf};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// File and line, or the manifest at fault.
    pub(crate) place: String,
    /// The rule, and what to do.
    pub(crate) rule: String,
}

impl Finding {
    fn new(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { place: place.into(), rule: rule.into() }
    }
}

/// Runs every rule over the workspace.
///
/// # Errors
/// A file cannot be read, or cargo cannot tell the dependencies.
pub(crate) fn run() -> Outcome {
    let root = root();
    let mut tally = Tally::default();
    let mut findings = arrows::check(&root)?;
    findings.extend(licences::check(&root)?);
    findings.extend(tables::check(&root)?);
    findings.extend(links::check(&root)?);
    let (mut sources, mut named) = (Vec::new(), Vec::new());
    for directory in ["crates", "faces", "xtask", "bench"] {
        for path in rust_files(&root.join(directory))? {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let source = Source::new(path.strip_prefix(&root).unwrap_or(&path), &text);
            named.extend(orphans::named(&source, &text));
            sources.push(source);
        }
    }
    findings.extend(orphans::check(sources.iter().map(|source| source.path.as_path()), &named));
    let test_modules: Vec<PathBuf> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        if test_modules.iter().any(|module| source.path.starts_with(module)) {
            source.mark_as_test();
        }
        let found = rules::check(source);
        if found.is_empty() {
            tally.passed += 1;
        }
        findings.extend(found);
    }
    findings.extend(folders::check(&sources));
    for finding in &findings {
        eprintln!("  {}: {}", finding.place, finding.rule);
    }
    tally.failed = findings.len() as u64;
    Ok(tally)
}

fn rust_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.is_dir() {
                // What a package manager put there is not ours, and what we generate is judged where it is
                // made.
                let generated = path.join(".thalweg-codegen").exists();
                if !generated && path.file_name().is_none_or(|name| name != "node_modules") {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
