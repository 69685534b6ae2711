//! The far end: this program started again, so that what is measured crosses processes. It says a line once
//! it is ready, and ends with its standard input.

use crate::Failure;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The word that makes the program the far end.
pub const WORD: &str = "far";

/// Whether this process is one.
pub fn is_far() -> bool {
    std::env::args().nth(1).as_deref() == Some(WORD)
}

/// The other process. Ends with this value.
pub struct Far {
    child: Child,
    tell: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Far {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self, Failure> {
        Self::start_program(&std::env::current_exe()?, arguments)
    }

    /// Starts another program that knows how to be one.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_program(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self, Failure> {
        let mut child = Command::new(program)
            .arg(WORD)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (tell, Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        Ok(Self { child, tell, hear: BufReader::new(hear) })
    }

    /// The next line that it says.
    ///
    /// # Errors
    /// It ended.
    pub fn hears(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.hear.read_line(&mut line)? == 0 {
            return Err("the far end ended".into());
        }
        Ok(line.trim().to_owned())
    }

    /// Waits until it says `ready`.
    ///
    /// # Errors
    /// It ended, or said something else.
    pub fn is_ready(&mut self) -> Result<(), Failure> {
        let line = self.hears()?;
        if line == "ready" { Ok(()) } else { Err(format!("the far end said {line:?}").into()) }
    }

    /// Its standard input and output, for the side that is made of them.
    ///
    /// # Errors
    /// None in practice.
    pub fn pipes(&mut self) -> Result<(&mut ChildStdin, &mut BufReader<ChildStdout>), Failure> {
        Ok((self.tell.as_mut().ok_or("its standard input is closed")?, &mut self.hear))
    }

    /// Ends it; what it said last.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub fn end(mut self) -> Result<String, Failure> {
        drop(self.tell.take());
        let mut text = String::new();
        self.hear.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(text.trim().to_owned())
        } else {
            Err(format!("the far end ended with {status}").into())
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// At the far end: says that the near one may come, and calls `ended` once nobody needs this process any
/// more.
///
/// # Errors
/// Nobody hears it.
pub fn ready(line: impl Display, ended: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended();
    });
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

/// A directory of this process's own, which goes with this value.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes one.
    ///
    /// # Errors
    /// What the disk says.
    pub fn new(purpose: &str) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("thalweg-{purpose}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
