//! What systemd, or whatever speaks its protocol, hands over and is told (`sd_listen_fds(3)`,
//! `sd_notify(3)`).

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use thalweg_sys::systemd;

/// The process that sockets are handed over to, and how many.
const PROCESS: &str = "LISTEN_PID";
const COUNT: &str = "LISTEN_FDS";

/// Listening sockets that were made for this process; none when it was started by hand. To be called before
/// anything is opened.
///
/// # Errors
/// The environment does not say how many, or for whom; a descriptor handed over is not a listening socket.
pub(crate) fn listeners() -> io::Result<Vec<OwnedFd>> {
    let count = handed_over(std::env::var_os(PROCESS), std::env::var_os(COUNT))?;
    if count == 0 { Ok(Vec::new()) } else { systemd::take_listeners(count) }
}

/// How many sockets are meant for this very process, and not for one that it descends from.
fn handed_over(process: Option<OsString>, count: Option<OsString>) -> io::Result<u32> {
    let process = number(PROCESS, process, "the number of a process")?;
    if process != Some(std::process::id()) {
        return Ok(0);
    }
    Ok(number(COUNT, count, "how many sockets there are")?.unwrap_or(0))
}

/// What a variable says, if there is one.
fn number(name: &str, value: Option<OsString>, wanted: &str) -> io::Result<Option<u32>> {
    let Some(value) = value else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.parse().ok());
    let refused = || {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is {value:?}, and should be {wanted}"))
    };
    number.ok_or_else(refused).map(Some)
}

/// The supervisor that is told the state of the service (`NOTIFY_SOCKET`).
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: Option<OsString>,
}

impl Supervisor {
    pub(crate) fn from_environment() -> Self {
        Self { socket: std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) }
    }

    /// The service serves.
    pub(crate) fn ready(&self) {
        self.tell("READY=1\nSTATUS=serving");
    }

    /// The service ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=finishing what is in flight");
    }

    fn tell(&self, news: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = systemd::notify(socket, news) {
            tracing::warn!(%error, ?socket, "the supervisor does not listen at NOTIFY_SOCKET");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_this_process_is_taken() {
        let own = || Some(std::process::id().to_string().into());
        let count = |process: Option<OsString>, count: Option<OsString>| handed_over(process, count).ok();
        assert_eq!(count(own(), Some("2".into())), Some(2));
        assert_eq!(count(Some("1".into()), Some("2".into())), Some(0));
        assert_eq!(count(None, Some("x".into())), Some(0));
        assert_eq!(count(Some("1".into()), Some("x".into())), Some(0));
        assert_eq!(count(own(), None), Some(0));
        for wrong in ["x", "", "-1", "4294967296"] {
            assert_eq!(count(own(), Some(wrong.into())), None, "{wrong}");
            assert_eq!(count(Some(wrong.into()), Some("2".into())), None, "{wrong}");
        }
    }
}
