//! The languages through which the log is measured, and how each one's program is started.

use super::super::line::hear;
use super::super::samples::Samples;
use super::Size;
use super::works::{FLOOR, NATIVE, NODE, PYTHON, Work};
use crate::harness::server::{Scratch, build, cache, root, target};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A language.
pub(crate) struct Face {
    pub(crate) name: &'static str,
    /// The peer as this language's programs use it.
    pub(crate) peer: &'static str,
    pub(crate) works: &'static [Work],
    /// Entries of the large store: fewer where the peer takes seconds for a scan.
    pub(crate) entries: u64,
    /// Measures in a directory of its own.
    pub(crate) measure: fn(&Face, &Path, &Size, &mut Samples) -> Result<(), String>,
}

impl Face {
    /// What is measured in a run of this size.
    pub(crate) fn works_of(&self, size: &Size) -> impl Iterator<Item = &'static Work> {
        let barred = size.barred;
        self.works.iter().filter(move |work| !barred || work.bar.is_some())
    }

    /// The sides it takes.
    fn sides(&self, size: &Size) -> String {
        let sides = self.works_of(size).flat_map(|work| [work.ours, work.against]).chain([FLOOR]);
        sides.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",")
    }

    /// Runs a measuring program to its end and takes in what it prints.
    fn hear(&self, command: &mut Command, size: &Size, samples: &mut Samples) -> Result<(), String> {
        let (until, value) = &size.until;
        command.args(["--entries", &size.entries.to_string(), "--pairs", &size.pairs.to_string()]);
        command.args([until, value.as_str(), "--sides", &self.sides(size)]);
        hear(command, samples)
    }
}

pub(crate) const FACES: [Face; 3] = [
    Face { name: "native", peer: "LMDB (heed 0.23)", works: NATIVE, entries: 1_000_000, measure: native },
    Face { name: "node", peer: "LMDB (npm lmdb 3.5)", works: NODE, entries: 100_000, measure: node },
    Face { name: "python", peer: "LMDB (PyPI lmdb 3.0)", works: PYTHON, entries: 100_000, measure: python },
];

fn native(face: &Face, directory: &Path, size: &Size, samples: &mut Samples) -> Result<(), String> {
    let program = build("thalweg-bench", "thalweg-log-bench")?;
    let mut command = Command::new(program);
    face.hear(command.arg("--directory").arg(directory), size, samples)
}

fn node(face: &Face, directory: &Path, size: &Size, samples: &mut Samples) -> Result<(), String> {
    let bench = root().join("bench/node");
    installed(&["lmdb", "thalweg"].map(|name| bench.join("node_modules").join(name)))?;
    crate::faces::node::build()?;
    let mut command = Command::new("node");
    face.hear(command.arg(bench.join("bench.mjs")).arg("--directory").arg(directory), size, samples)
}

fn python(face: &Face, directory: &Path, size: &Size, samples: &mut Samples) -> Result<(), String> {
    let program = cache().join("bench-python/bin/python");
    installed(std::slice::from_ref(&program))?;
    let path = Scratch::new("bench-python")?;
    package(path.path())?;
    let mut command = Command::new(program);
    command.env("PYTHONPATH", path.path()).arg(root().join("bench/python/bench.py"));
    face.hear(command.arg("--directory").arg(directory), size, samples)
}

/// Puts Python's package as it stands, with its native half beside it, into a directory.
pub(crate) fn package(into: &Path) -> Result<(), String> {
    let library = library("thalweg-python", "lib_native.so")?;
    let package = into.join("thalweg");
    copy(&root().join("faces/python/python/thalweg"), &package)?;
    put(&library, &package.join("_native.abi3.so"))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    for file in std::fs::read_dir(from).map_err(|e| e.to_string())? {
        let file = file.map_err(|e| e.to_string())?;
        let (from, to) = (file.path(), to.join(file.file_name()));
        if from.is_dir() { copy(&from, &to)? } else { put(&from, &to)? }
    }
    Ok(())
}

/// Builds a language's native half.
fn library(package: &str, file: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--package", package]).current_dir(root());
    match command.status() {
        Ok(status) if status.success() => Ok(target().join("release").join(file)),
        Ok(_) => Err(format!("{package}: no build")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

/// Copies a file beside its place and moves it there, so that a program that has mapped the old one keeps it.
fn put(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", to.display());
    let beside = to.with_extension("new");
    std::fs::create_dir_all(to.parent().unwrap_or(to)).map_err(failed)?;
    std::fs::copy(from, &beside).map_err(failed)?;
    std::fs::rename(&beside, to).map_err(failed)
}

fn installed(needs: &[PathBuf]) -> Result<(), String> {
    match needs.iter().find(|path| !path.exists()) {
        Some(missing) => Err(format!("{} is missing: `make tools`", missing.display())),
        None => Ok(()),
    }
}
