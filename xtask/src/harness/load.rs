//! `thalweg bench` as the judges use it: run against a server they started, its report read.

use crate::harness::server::{Server, build};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The program.
#[derive(Clone, Debug)]
pub(crate) struct Load(PathBuf);

impl Load {
    /// Builds it.
    ///
    /// # Errors
    /// It does not build.
    pub(crate) fn new() -> Result<Self, String> {
        build("thalweg-server", "thalweg").map(Self)
    }

    /// A run against a server, not started yet.
    pub(crate) fn command(&self, server: &Server, words: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["--output", "json", "bench"]).args(words).args(["--url", &server.url()]);
        command.args(["--process", &server.process().to_string()]);
        command
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It failed, or an operation did.
    pub(crate) fn run(&self, server: &Server, words: &[&str]) -> Result<Value, String> {
        let report = self.try_run(server, words)?;
        if report["failed"].as_u64() != Some(0) {
            return Err(format!(
                "{}: {} failed: {}",
                words.join(" "),
                report["failed"],
                report["complaints"]
            ));
        }
        Ok(report)
    }

    /// Runs it to its end, whatever the operations came to.
    ///
    /// # Errors
    /// It failed.
    pub(crate) fn try_run(&self, server: &Server, words: &[&str]) -> Result<Value, String> {
        let output =
            self.command(server, words).output().map_err(|e| format!("{}: {e}", self.0.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let report = String::from_utf8_lossy(&output.stdout);
            return Err(format!("{}: {said}{report}: {}", words.join(" "), server.last_words()));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| format!("{}: {e}: {said}", words.join(" ")))
    }

    /// Starts a run that is ended by dropping it.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn beside(&self, server: &Server, words: &[&str]) -> Result<Beside, String> {
        let mut command = self.command(server, words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Beside).map_err(|e| format!("{}: {e}", self.0.display()))
    }
}

/// A run beside another.
#[derive(Debug)]
pub(crate) struct Beside(Child);

impl Beside {
    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.0.id()
    }

    /// Whether it runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
