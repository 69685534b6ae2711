//! The far end: this program started again as a server of one side. It says `ready`, serves until its standard input
//! ends, and then says how much processor time it used.

use crate::work::{Pins, Side, WORKS, Work};
use crate::{Failure, floors, ours, rings};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use thalweg_bench::option;
use thalweg_sys::{clock, process};

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
    pub(crate) fn start(side: Side, work: &Work) -> Result<Far, Failure> {
        let directory = std::env::temp_dir().join(format!("thalweg-ipc-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args([WORD, "--side", side.name(), "--work", work.name, "--directory"])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (tell, Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let mut far = Far { child, tell, hear: BufReader::new(hear), directory };
        if side != Side::Pipe {
            far.hears("ready")?;
        }
        Ok(far)
    }

    /// Where it serves.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Its standard input and output, for the side that is made of them.
    pub(crate) fn pipes(&mut self) -> Result<(&mut ChildStdin, &mut BufReader<ChildStdout>), Failure> {
        Ok((self.tell.as_mut().ok_or("its standard input is closed")?, &mut self.hear))
    }

    /// Ends it; the processor time it used.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub(crate) fn end(mut self) -> Result<u64, Failure> {
        drop(self.tell.take());
        let mut text = String::new();
        self.hear.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("the far end ended with {status}").into());
        }
        Ok(text.trim().parse()?)
    }

    fn hears(&mut self, word: &str) -> Result<(), Failure> {
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        if line.trim() == word { Ok(()) } else { Err(format!("the far end said {line:?}").into()) }
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
        Side::Serial | Side::Reactor | Side::Pool | Side::Typed => ours::serve(side, work, &directory)?,
        _ => floors::serve(side, work, &directory)?,
    }
    println!("{}", clock::process_processor_ns());
    Ok(())
}

/// Says that clients may come, and calls `ended` once nobody needs this process any more.
pub(crate) fn ready(ended: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended();
    });
    println!("ready");
    std::io::stdout().flush()?;
    Ok(())
}
