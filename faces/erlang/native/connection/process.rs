//! The process at the other end of a worker's connection: watched for its end, and ended, by a descriptor of
//! its own.

use super::State;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

impl State {
    /// Finds the process at the other end, and the descriptor to watch for its end; the same one again.
    pub(crate) fn find_process(&mut self) -> io::Result<RawFd> {
        if let Some(watched) = &self.watched_process {
            return Ok(watched.as_raw_fd());
        }
        let client = self.client.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let process = client.peer_process()?;
        let watched = process.descriptor()?;
        let number = watched.as_raw_fd();
        (self.process, self.watched_process) = (Some(process), Some(watched));
        Ok(number)
    }

    /// Ends the process at the other end. `false`: no process asked to be told of its end.
    pub(crate) fn kill_process(&self) -> bool {
        // One that ended is no longer there, and a process of that number may be none that was started here.
        self.process.as_ref().is_some_and(|process| process.kill().is_ok())
    }

    /// What the virtual machine watches for the end of the process, if it does.
    pub(crate) fn watched_process(&self) -> Option<RawFd> {
        self.watched_process.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Lets go of that descriptor.
    pub(crate) fn drop_process(&mut self) {
        self.watched_process = None;
    }
}
