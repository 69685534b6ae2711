//! Callers in other languages, through shared memory, of a server in Rust that runs beside them. Each
//! language has a program that calls and measures itself; nobody is pinned.

use super::line::hear;
use super::log::package;
use super::samples::Samples;
use crate::faces::node;
use crate::harness::server::{Scratch, build_example, cache, root};
use crate::harness::serving::Serving;
use std::path::PathBuf;
use std::process::Command;

/// A language's program, and the work, the side and what is under way at once, as it is told.
type Call = (fn(&Callers) -> Command, &'static str, &'static str, &'static str);

const CALLS: [Call; 4] = [
    (Callers::node, "node-deep", "asynchronous", "16"),
    (Callers::node, "node-one", "synchronous", "1"),
    (Callers::python, "python-one", "synchronous", "1"),
    (Callers::python, "python-deep", "asynchronous", "16"),
];

/// A server, and programs that are ready to call it.
pub(super) struct Callers {
    serving: Serving,
    endpoint: PathBuf,
    python: PathBuf,
    scratch: Scratch,
}

impl Callers {
    /// Builds what is called and what calls, and serves.
    ///
    /// # Errors
    /// What is missing, or does not build or start.
    pub(super) fn start() -> Result<Self, String> {
        let python = cache().join("bench-python/bin/python");
        for needed in [&python, &root().join("faces/node/node_modules")] {
            if !needed.exists() {
                return Err(format!("{} is missing: `make tools`", needed.display()));
            }
        }
        let scratch = Scratch::new("bench-callers")?;
        node::build_echo()?;
        package(scratch.path())?;
        let endpoint = scratch.path().join("echo.shm");
        let mut server = Command::new(build_example("thalweg-service", "echo_server")?);
        server.arg(&endpoint);
        Ok(Self { serving: Serving::start(server)?, endpoint, python, scratch })
    }

    /// Each program's measurements of one pair.
    ///
    /// # Errors
    /// A program does not end well.
    pub(super) fn measure(&self, pair: &str, until: [&str; 2], samples: &mut Samples) -> Result<(), String> {
        for (program, work, side, depth) in CALLS {
            let mut command = program(self);
            command.arg(&self.endpoint).args(["--work", work, "--side", side, "--depth", depth]);
            hear(command.args(["--pair", pair]).args(until), samples)?;
        }
        Ok(())
    }

    fn node(&self) -> Command {
        let mut command = Command::new("node");
        command.arg(root().join("faces/node/bench/calls.mjs"));
        command
    }

    fn python(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.env("PYTHONPATH", self.scratch.path()).arg(root().join("faces/python/bench/calls.py"));
        command
    }

    /// Ends the server.
    ///
    /// # Errors
    /// It did not end well.
    pub(super) fn end(self) -> Result<(), String> {
        let status = self.serving.end()?;
        if status.success() { Ok(()) } else { Err(format!("echo_server: {status}")) }
    }
}
