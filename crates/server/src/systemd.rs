//! What systemd, or whatever speaks its protocol, hands over and is told (`sd_listen_fds(3)`, `sd_notify(3)`).

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use thalweg_sys::systemd;

/// Listening sockets that were made for this process; none when it was started by hand. To be called before
/// anything is opened.
///
/// # Errors
/// A descriptor handed over is not a listening socket.
pub(crate) fn listeners() -> io::Result<Vec<OwnedFd>> {
    let count = handed_over(std::env::var("LISTEN_PID").ok(), std::env::var("LISTEN_FDS").ok());
    if count == 0 { Ok(Vec::new()) } else { systemd::take_listeners(count) }
}

/// How many sockets are meant for this very process, and not for one that it descends from.
fn handed_over(process: Option<String>, count: Option<String>) -> u32 {
    let is_ours = process.and_then(|text| text.parse().ok()) == Some(std::process::id());
    count.filter(|_| is_ours).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whoever wants to hear how the service is.
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
        let own = || Some(std::process::id().to_string());
        let two = || Some("2".to_owned());
        assert_eq!(handed_over(own(), two()), 2);
        assert_eq!(handed_over(Some("1".into()), two()), 0);
        assert_eq!(handed_over(None, two()), 0);
        assert_eq!(handed_over(own(), None), 0);
        assert_eq!(handed_over(own(), Some("x".into())), 0);
    }
}
