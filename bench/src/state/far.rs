//! The far end: this program started again as the server of a state. It says `ready`, tells how much processor time it used
//! whenever a line comes in, and ends with its standard input.

use crate::Failure;
use crate::floor::{self, SOCKET};
use crate::near::{fill, store};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use thalweg_bench::option;
use thalweg_service::{Endpoint, Server, ServerOptions};
use thalweg_state::{ERROR_TAG, SCHEMA_HASH, Service, ServiceOptions};
use thalweg_sys::clock;

/// The word that makes the program this process.
pub(crate) const WORD: &str = "far";

/// The other process. Ends with this value.
pub(crate) struct Far {
    child: Child,
    tell: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
    directory: PathBuf,
}

impl Far {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or ends before it is ready.
    pub(crate) fn start(keys: u64) -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("thalweg-state-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args([WORD, "--keys", &keys.to_string(), "--directory"])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (tell, Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let mut far = Self { child, tell, hear: BufReader::new(hear), directory };
        let word = far.hears()?;
        if word == "ready" { Ok(far) } else { Err(format!("the far end said {word:?}").into()) }
    }

    /// Where it serves.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// How much processor time it used so far.
    ///
    /// # Errors
    /// It does not say.
    pub(crate) fn processor_ns(&mut self) -> Result<u64, Failure> {
        let tell = self.tell.as_mut().ok_or("its standard input is closed")?;
        tell.write_all(b"\n")?;
        tell.flush()?;
        Ok(self.hears()?.parse()?)
    }

    /// Ends it.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        drop(self.tell.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the far end ended with {status}").into()) }
    }

    fn hears(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What the other process does.
///
/// # Errors
/// It cannot serve.
pub(crate) fn serve() -> Result<(), Failure> {
    let directory = PathBuf::from(option("--directory", String::new())?);
    let (store, held) = store("far")?;
    let service = Service::new(&store, "state", ServiceOptions::default());
    fill(&service.state()?, option("--keys", 1_000)?)?;
    floor::serve(&directory.join(SOCKET), service.state()?)?;
    let options =
        ServerOptions { schema: SCHEMA_HASH, error_tag: ERROR_TAG.into(), ..ServerOptions::default() };
    let endpoints =
        [Endpoint::Socket(directory.join("state.sock")), Endpoint::Shared(directory.join("state.shm"))];
    let mut server = Server::bind(&endpoints, options)?;
    let stopper = server.stopper();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines() {
            println!("{}", clock::process_processor_ns());
        }
        stopper.stop();
    });
    println!("ready");
    std::io::stdout().flush()?;
    server.run_reactor(service)?;
    let _ = std::fs::remove_dir_all(held);
    Ok(())
}
