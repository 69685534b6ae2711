//! Writes generated files so that no reader ever sees half of one, and remembers which files are ours.
//!
//! The manifest says of which service and language the files are; a directory of another's is left as it is.
//! It lists every file of the last run with the hash of what was written. Only files it lists are replaced or
//! removed; a file it does not know that stands in the way stops the run before anything is written. A file
//! that was changed since is ours to replace (it says so in its first line) but never removed silently:
//! it is named.

use crate::{Error, File};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The manifest's name in the output directory.
pub(crate) const MANIFEST: &str = ".thalweg-codegen";
const HEADING: &str =
    "# Files written by `thalweg codegen`: SHA-256 and path. It removes only what stands here.";

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that are new or changed.
    pub written: Vec<String>,
    /// Files that were right already.
    pub unchanged: Vec<String>,
    /// Files of an earlier run that are no longer made.
    pub removed: Vec<String>,
    /// Such files that were changed since, and that therefore stay.
    pub kept: Vec<String>,
}

/// One way in which a directory is not what would be generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A file is missing.
    Missing(String),
    /// A file is there and differs.
    Changed(String),
    /// A file of an earlier run would be removed.
    Stale(String),
}

/// Files' paths and hashes.
type Manifest = BTreeMap<String, String>;

/// Stands in the manifest before what the files are of.
const OWNER: &str = "# Of ";

/// Brings a directory to these files.
pub(crate) fn write(out: &Path, owner: &str, files: &[File]) -> Result<Report, Error> {
    let before = manifest(out, owner)?;
    for file in files {
        let stands = out.join(&file.path).exists();
        if stands && !before.contains_key(&file.path) && read(&out.join(&file.path))? != file.text {
            return Err(Error::Foreign(out.join(&file.path).display().to_string()));
        }
    }
    let mut report = Report::default();
    let mut after = Manifest::new();
    for file in files {
        let path = out.join(&file.path);
        after.insert(file.path.clone(), hash(&file.text));
        if path.exists() && read(&path)? == file.text {
            report.unchanged.push(file.path.clone());
        } else {
            replace(&path, &file.text)?;
            report.written.push(file.path.clone());
        }
    }
    for (stale, written) in before.iter().filter(|(path, _)| !after.contains_key(*path)) {
        let path = out.join(stale);
        if !path.exists() {
            continue;
        }
        if hash(&read(&path)?) != *written {
            report.kept.push(stale.clone());
            continue;
        }
        fs::remove_file(&path).map_err(|error| failed(&path, error))?;
        report.removed.push(stale.clone());
        // A directory that something else lives in stays.
        let _ = path.parent().filter(|parent| *parent != out).map(fs::remove_dir);
    }
    let text = manifest_text(owner, &after);
    let path = out.join(MANIFEST);
    if !path.exists() || read(&path)? != text {
        replace(&path, &text)?;
    }
    Ok(report)
}

/// How a directory differs from these files.
pub(crate) fn compare(out: &Path, owner: &str, files: &[File]) -> Result<Vec<Difference>, Error> {
    let mut differences = Vec::new();
    for file in files {
        let path = out.join(&file.path);
        if !path.exists() {
            differences.push(Difference::Missing(file.path.clone()));
        } else if read(&path)? != file.text {
            differences.push(Difference::Changed(file.path.clone()));
        }
    }
    let made = |path: &str| files.iter().any(|file| file.path == path);
    let stale = manifest(out, owner)?.into_keys().filter(|path| !made(path));
    differences.extend(stale.map(Difference::Stale));
    // Where a file differs, so does its line in the manifest, which need not be named as well.
    if differences.is_empty() {
        let hashes = files.iter().map(|file| (file.path.clone(), hash(&file.text))).collect();
        let path = out.join(MANIFEST);
        if !path.exists() {
            differences.push(Difference::Missing(MANIFEST.to_owned()));
        } else if read(&path)? != manifest_text(owner, &hashes) {
            differences.push(Difference::Changed(MANIFEST.to_owned()));
        }
    }
    Ok(differences)
}

/// What stands in a directory's manifest, which is this owner's.
fn manifest(out: &Path, owner: &str) -> Result<Manifest, Error> {
    let path = out.join(MANIFEST);
    if !path.exists() {
        return Ok(Manifest::new());
    }
    let text = read(&path)?;
    // Manifests of earlier releases do not say of what the files are.
    let of = text.lines().find_map(|line| line.strip_prefix(OWNER));
    if let Some(other) = of.filter(|of| *of != owner) {
        return Err(Error::Occupied { out: out.display().to_string(), owner: other.to_owned() });
    }
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entries = lines.filter_map(|line| line.split_once("  "));
    // A path that leads out of the directory is none we wrote.
    let ours = entries.filter(|(_, path)| !path.starts_with('/') && path.split('/').all(|part| part != ".."));
    Ok(ours.map(|(hash, path)| (path.to_owned(), hash.to_owned())).collect())
}

fn manifest_text(owner: &str, files: &Manifest) -> String {
    let lines = files.iter().map(|(path, hash)| format!("{hash}  {path}\n"));
    format!("{HEADING}\n{OWNER}{owner}\n{}", lines.collect::<String>())
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Result<String, Error> {
    let bytes = fs::read(path).map_err(|error| failed(path, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes beside and renames over.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = directory.join(format!(".{name}.{}.new", std::process::id()));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        // What could not be put in place is not left lying about.
        let _ = fs::remove_file(&beside);
        failed(path, error)
    })
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::File { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(out: &Path, files: &[File]) -> Result<Report, Error> {
        super::write(out, "Echo for Rust", files)
    }

    fn compare(out: &Path, files: &[File]) -> Result<Vec<Difference>, Error> {
        super::compare(out, "Echo for Rust", files)
    }

    #[test]
    fn a_directory_of_another_service_or_language_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path();
        write(out, &[file("a", "1")]).unwrap();
        let of_other = super::write(out, "Log for Rust", &[file("b", "2")]).unwrap_err();
        assert!(of_other.to_string().contains("the code of Echo for Rust"), "{of_other}");
        assert!(matches!(super::compare(out, "Echo for Zig", &[]), Err(Error::Occupied { .. })));
        assert_eq!(names(out), [MANIFEST, "a"]);
        // An earlier release's manifest says nothing of its owner.
        let manifest = fs::read_to_string(out.join(MANIFEST)).unwrap();
        fs::write(out.join(MANIFEST), manifest.replace("# Of Echo for Rust\n", "")).unwrap();
        assert_eq!(write(out, &[file("b", "2")]).unwrap().removed, ["a"]);
    }

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn a_second_run_writes_only_what_changed_and_removes_what_is_no_longer_made() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path();
        write(out, &[file("a", "1"), file("sub/b", "2"), file("c", "3")]).unwrap();
        fs::write(out.join("own"), "mine").unwrap();
        let report = write(out, &[file("a", "1"), file("c", "4")]).unwrap();
        assert_eq!((report.written, report.unchanged), (vec!["c".to_owned()], vec!["a".to_owned()]));
        assert_eq!(report.removed, ["sub/b"]);
        assert_eq!(names(out), [MANIFEST, "a", "c", "own"]);
        assert!(compare(out, &[file("a", "1"), file("c", "4")]).unwrap().is_empty());
    }

    #[test]
    fn what_we_did_not_write_is_neither_replaced_nor_removed() {
        let directory = tempfile::tempdir().unwrap();
        // In a directory of its own, so that what is outside is not shared with another run.
        let out = &directory.path().join("out");
        fs::create_dir(out).unwrap();
        fs::write(out.join("b"), "mine").unwrap();
        let error = write(out, &[file("a", "1"), file("b", "2")]).unwrap_err();
        assert!(matches!(error, Error::Foreign(_)), "{error}");
        assert_eq!(names(out), ["b"]);
        // Nor does a manifest talk us into leaving the directory.
        let outside = directory.path().join("outside");
        fs::write(&outside, "mine").unwrap();
        fs::write(out.join(MANIFEST), format!("{}  ../outside\n", hash("mine"))).unwrap();
        write(out, &[file("a", "1")]).unwrap();
        assert!(outside.exists());
    }

    #[test]
    fn a_stale_file_that_somebody_changed_stays_and_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path();
        write(out, &[file("a", "1"), file("b", "2")]).unwrap();
        fs::write(out.join("b"), "2, and more").unwrap();
        assert_eq!(write(out, &[file("a", "1")]).unwrap().kept, ["b"]);
        assert!(out.join("b").exists());
    }

    #[test]
    fn differences_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path();
        write(out, &[file("a", "1"), file("b", "2")]).unwrap();
        let found = compare(out, &[file("a", "9"), file("c", "3")]).unwrap();
        let named = |f: fn(String) -> Difference, name: &str| f(name.to_owned());
        assert_eq!(
            found,
            [named(Difference::Changed, "a"), named(Difference::Missing, "c"), named(Difference::Stale, "b")]
        );
        // A manifest that does not list what is there would have a later run keep or replace the wrong files.
        let files = [file("a", "1"), file("b", "2")];
        let manifest = fs::read_to_string(out.join(MANIFEST)).unwrap();
        fs::write(out.join(MANIFEST), manifest.replace(&hash("2"), &hash("3"))).unwrap();
        assert_eq!(compare(out, &files).unwrap(), [named(Difference::Changed, MANIFEST)]);
        fs::remove_file(out.join(MANIFEST)).unwrap();
        assert_eq!(compare(out, &files).unwrap(), [named(Difference::Missing, MANIFEST)]);
        write(out, &files).unwrap();
        assert!(compare(out, &files).unwrap().is_empty());
    }
}
