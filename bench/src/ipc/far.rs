//! The far end: a server of one side. It says `ready`, serves until its standard input ends, and then says
//! how much processor time it used.

use crate::work::{Pins, Side, WORKS, Work};
use crate::{crowd, floors, ours, rings};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout};
use thalweg_bench::far::Directory;
use thalweg_bench::{Failure, far, option};
use thalweg_sys::{clock, process};

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
    pub(crate) fn start(side: Side, work: &Work) -> Result<Far, Failure> {
        let directory = Directory::new("ipc")?;
        let words = ["--side", side.name(), "--work", work.name, "--directory"].map(AsRef::as_ref);
        let mut process = far::Far::start(words.into_iter().chain([directory.path().as_os_str()]))?;
        // Whose standard output is a pipe that is measured says nothing before.
        if side != Side::Pipe {
            process.is_ready()?;
        }
        Ok(Far { process, directory })
    }

    /// Where it serves.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its standard input and output, for the side that is made of them.
    pub(crate) fn pipes(&mut self) -> Result<(&mut ChildStdin, &mut BufReader<ChildStdout>), Failure> {
        self.process.pipes()
    }

    /// Ends it; the processor time it used.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub(crate) fn end(self) -> Result<u64, Failure> {
        Ok(self.process.end()?.parse()?)
    }
}

/// What the other process does.
///
/// # Errors
/// A side that has no far end, or one that fails.
pub(crate) fn serve() -> Result<(), Failure> {
    let side = option("--side", String::new())?;
    let side = Side::of(&side).ok_or_else(|| format!("no side {side}"))?;
    let name = option("--work", String::new())?;
    let work = WORKS.iter().find(|work| work.name == name).ok_or_else(|| format!("no work {name}"))?;
    let directory = PathBuf::from(option("--directory", String::new())?);
    if work.pins != Pins::Free
        && let (Some(processor), _) = work.pins.processors()
    {
        process::run_on(processor)?;
    }
    match side {
        Side::Rings => rings::serve(&directory)?,
        Side::Crowd | Side::Killed => crowd::serve(&directory)?,
        Side::Visitor => crowd::visit(work, &directory)?,
        Side::Serial | Side::Reactor | Side::Pool | Side::Typed => ours::serve(side, work, &directory)?,
        _ => floors::serve(side, work, &directory)?,
    }
    println!("{}", clock::process_processor_ns());
    Ok(())
}

/// Says that clients may come, and calls `ended` once nobody needs this process any more.
pub(crate) fn ready(ended: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    far::ready("ready", ended)
}
