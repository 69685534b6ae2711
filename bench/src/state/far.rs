//! The far end: the server of a state. It says `ready`, tells how much processor time it used
//! whenever a line comes in, and ends with its standard input.

use crate::floor::{self, SOCKET};
use crate::near::{fill, store};
use std::io::Write;
use std::path::PathBuf;
use thalweg_bench::far::Directory;
use thalweg_bench::{Failure, far, option};
use thalweg_service::{Endpoint, Server, ServerOptions};
use thalweg_state::{ERROR_TAG, SCHEMA_HASH, Service, ServiceOptions};
use thalweg_sys::clock;

/// The other process. Ends with this value.
pub(crate) struct Far {
    process: far::Far,
    directory: Directory,
}

impl Far {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or ends before it is ready.
    pub(crate) fn start(keys: u64) -> Result<Self, Failure> {
        let directory = Directory::new("state")?;
        let keys = keys.to_string();
        let words = ["--keys", &keys, "--directory"].map(AsRef::as_ref);
        let mut process = far::Far::start(words.into_iter().chain([directory.path().as_os_str()]))?;
        process.is_ready()?;
        Ok(Self { process, directory })
    }

    /// Where it serves.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// How much processor time it used so far.
    ///
    /// # Errors
    /// It does not say.
    pub(crate) fn processor_ns(&mut self) -> Result<u64, Failure> {
        let (tell, _) = self.process.pipes()?;
        tell.write_all(b"\n")?;
        tell.flush()?;
        Ok(self.process.hears()?.parse()?)
    }

    /// Ends it.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.process.end().map(drop)
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
    server.serve(service)?;
    let _ = std::fs::remove_dir_all(held);
    Ok(())
}
