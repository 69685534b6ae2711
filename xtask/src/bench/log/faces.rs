//! The languages through which the log is measured, and how each one's program is started.

use super::Size;
use super::samples::Samples;
use super::works::{NATIVE, Work};
use crate::server::build;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A language.
pub(crate) struct Face {
    pub(crate) name: &'static str,
    /// The peer as this language's programs use it.
    pub(crate) peer: &'static str,
    pub(crate) works: &'static [Work],
    /// Measures in a directory of its own.
    pub(crate) measure: fn(&Path, &Size, &mut Samples) -> Result<(), String>,
}

pub(crate) const FACES: [Face; 1] =
    [Face { name: "native", peer: "LMDB (heed 0.23)", works: NATIVE, measure: native }];

fn native(directory: &Path, size: &Size, samples: &mut Samples) -> Result<(), String> {
    let program = build("thalweg-bench", "thalweg-log-bench")?;
    let mut command = Command::new(program);
    hear(command.arg("--directory").arg(directory), size, samples)
}

/// Runs a measuring program to its end and takes in what it prints.
fn hear(command: &mut Command, size: &Size, samples: &mut Samples) -> Result<(), String> {
    let (until, value) = &size.until;
    command.args(["--entries", &size.entries.to_string(), "--pairs", &size.pairs.to_string()]);
    let mut child =
        command.args([until, value.as_str()]).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    let heard = child.stdout.take().map_or(Ok(()), |output| {
        BufReader::new(output).lines().try_for_each(|line| samples.take(&line.map_err(|e| e.to_string())?))
    });
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(format!("{:?}: {status}", command.get_program()));
    }
    heard
}
