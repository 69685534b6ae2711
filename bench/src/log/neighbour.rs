//! A reader in another process: this program started a second time, attached to the store that the first one
//! has open. It scans when it is told to by a line, and answers with a line.

use crate::ours::Neighbour;
use crate::patterns::{self, Subject};
use crate::sample::{Measured, Until};
use crate::side::Failure;
use crate::workload::expected;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The word that makes the program this process.
pub(crate) const WORD: &str = "neighbour";

/// The other process.
pub(crate) struct Process {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it, attached to the store in a directory.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(directory: &Path, until: Until) -> Result<Process, Failure> {
        let (option, value) = until.option();
        let mut child = Command::new(std::env::current_exe()?)
            .args([WORD, "--directory"])
            .arg(directory)
            .args([option, &value])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(tell), Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        Ok(Process { child, tell, hear: BufReader::new(hear) })
    }

    /// Lets it scan the store's `entries`.
    ///
    /// # Errors
    /// It failed, or read something else.
    pub(crate) fn scan(&mut self, entries: u64) -> Result<Measured, Failure> {
        writeln!(self.tell, "{entries}")?;
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        let number = |name: &str| answer[name].as_u64().ok_or_else(|| format!("it says no {name}: {line}"));
        let turns = number("turns")?;
        let mut sum = expected(0, entries);
        (sum.entries, sum.bytes) = (sum.entries * turns, sum.bytes * turns);
        if number("operations")? != sum.entries {
            return Err(format!("{turns} turns over {entries} entries: {line}").into());
        }
        let (operations, processor_ns) = (number("operations")?, number("processor_ns")?);
        let per_second = answer["per_second"].as_f64().ok_or("it says no rate")?;
        Ok(Measured { operations, per_second, processor_ns, turns, sum })
    }

    /// Ends it.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        drop(self.tell);
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the neighbour ended with {status}").into()) }
    }
}

/// What the other process does: a scan for each line, until there are no more.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn serve(directory: &Path, until: Until) -> Result<(), Failure> {
    let neighbour = Neighbour::attach(directory)?;
    let mut subject = Subject::new(neighbour, 0);
    for line in std::io::stdin().lock().lines() {
        subject = subject.with_entries(line?.parse()?);
        let measured = patterns::scan(&subject, 1, until, false)?;
        let answer = json!({
            "operations": measured.operations,
            "per_second": measured.per_second,
            "processor_ns": measured.processor_ns,
            "turns": measured.turns,
        });
        println!("{answer}");
    }
    Ok(())
}
