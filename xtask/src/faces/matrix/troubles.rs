//! What can be wrong, and how a client's steps end then, in every language alike. Owns the table and the
//! places that are wrong by themselves; the servers that break the rules are `peer`'s.

use super::frames;
use super::peer::{self, Script};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use thalweg_wire::fault::Fault;

/// Milliseconds for what has to come about, and for what never does.
const IN_ANY_CASE: u64 = 30_000;
const IN_VAIN: u64 = 150;

/// Where a client's steps lead.
pub(super) enum Place {
    /// Nothing is there.
    Nothing,
    /// A path that a dead server left.
    Stale,
    /// A server that accepts no connection, with a full backlog.
    Crowded,
    /// A server that accepts no connection, and is silent.
    Silent,
    /// A path that may not be used.
    Forbidden,
    /// A server that breaks the rules.
    Peer(Script),
}

/// Something wrong, and each step with how it ends: `ok`, `decode` or faults, any of which will do.
pub(super) struct Trouble {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) within_ms: u64,
    pub(super) steps: Vec<(String, String)>,
}

fn trouble(name: &'static str, place: Place, within_ms: u64, steps: &[(&str, &str)]) -> Trouble {
    let steps = steps.iter().map(|(step, end)| ((*step).to_owned(), (*end).to_owned())).collect();
    Trouble { name, place, within_ms, steps }
}

/// A fault with whether a retry may help.
fn fault(fault: Fault) -> String {
    format!("{} {}", fault.word(), fault.retry().word())
}

fn asked(ends: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    ends.into_iter().map(|end| ("echo".to_owned(), end)).collect()
}

/// All of them. Where the connection may go on, the last step shows that it does.
pub(super) fn troubles() -> Vec<Trouble> {
    let ok = || "ok".to_owned();
    let door = |name, script: Script, why: Fault| {
        let steps = asked([fault(why)]);
        Trouble { name, place: Place::Peer(script), within_ms: IN_ANY_CASE, steps }
    };
    let peer = |name, script: Script, steps| Trouble {
        name,
        place: Place::Peer(script),
        within_ms: IN_ANY_CASE,
        steps,
    };
    let spoiled = frames::bad_responses().into_iter().map(|_| "decode".to_owned()).chain([ok()]);
    let misplaced = [fault(Fault::BadAnswer), fault(Fault::BadAnswer), fault(Fault::BadAnswer), ok()];
    // The service's own words travel as an answer; a number of a newer version is none that this one knows.
    let faults = Fault::ALL.iter().map(|of| fault(*of)).chain([fault(Fault::BadAnswer), ok()]);
    let gone = format!("{}|{}", fault(Fault::Disconnected), fault(Fault::Closed));
    vec![
        trouble("nothing there", Place::Nothing, IN_VAIN, &[("echo", "no_server safe")]),
        trouble("a stale path", Place::Stale, IN_VAIN, &[("echo", "no_server safe")]),
        trouble("a full backlog", Place::Crowded, IN_VAIN, &[("echo", "connect_timeout safe")]),
        trouble("a silent server", Place::Silent, IN_VAIN, &[("echo", "connect_timeout safe")]),
        trouble("a path forbidden", Place::Forbidden, IN_ANY_CASE, &[("echo", "permission_denied never")]),
        door("another schema", |visit| visit.greet(Fault::SchemaMismatch as u16), Fault::SchemaMismatch),
        door("another version", |visit| visit.greet(Fault::VersionMismatch as u16), Fault::VersionMismatch),
        door("another protocol", peer::another_protocol, Fault::BadFrame),
        peer("bad answers", peer::bad_responses, asked(spoiled)),
        peer("misplaced items", peer::misplaced_items, asked(misplaced)),
        peer("each fault", peer::every_fault, asked(faults)),
        peer("too long an answer", peer::too_long, asked([fault(Fault::FrameTooLarge), ok()])),
        peer("answers twice", peer::twice, asked([ok(), ok(), ok()])),
        peer("half an answer", peer::half, asked([fault(Fault::Disconnected), fault(Fault::NotSent)])),
        peer(
            "no frames",
            peer::no_frames,
            asked([fault(Fault::BadFrame), format!("{gone}|{}", fault(Fault::BadFrame))]),
        ),
        trouble(
            "late answers",
            Place::Peer(peer::late),
            IN_ANY_CASE,
            &[("late", "deadline_exceeded unknown"), ("cancel", "cancelled unknown|ok"), ("echo", "ok")],
        ),
    ]
}

/// What is asked of every server in every language: requests that are none, and one in the end that is.
pub(super) fn bad_requests() -> Vec<(String, String)> {
    let hex = |frame: &[u8]| frame.iter().fold("x".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    let mut steps: Vec<_> =
        frames::bad_requests().iter().map(|(_, frame)| (hex(frame), fault(Fault::BadRequest))).collect();
    steps.push((hex(&frames::unknown_command()), fault(Fault::UnknownCommand)));
    steps.push(("large".to_owned(), fault(Fault::FrameTooLarge)));
    steps.push(("echo".to_owned(), "ok".to_owned()));
    steps
}

/// Whether this is how a step should end. Languages spell faults as they spell names, and not all say whether
/// to retry.
pub(super) fn ends_so(said: &str, expected: &str) -> bool {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let (name, retry) = said.trim().split_once(' ').unwrap_or((said.trim(), ""));
    expected.split('|').any(|end| {
        let (wanted, wanted_retry) = end.split_once(' ').unwrap_or((end, ""));
        plain(name) == plain(wanted) && (retry.is_empty() || retry == wanted_retry)
    })
}

/// A place that is wrong, for as long as this is kept.
pub(super) struct Prepared {
    _kept: Vec<OwnedFd>,
    /// The superuser may use it all the same, unless it gives that right away.
    pub(super) needs_fewer_rights: bool,
}

impl Place {
    /// Makes it so at a path.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn prepare(&self, path: &Path) -> Result<Prepared, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut prepared = Prepared { _kept: Vec::new(), needs_fewer_rights: false };
        match self {
            Self::Nothing => {}
            Self::Stale => drop(UnixListener::bind(path).map_err(failed)?),
            Self::Crowded => {
                let listener = thalweg_sys::socket::listen_unix(path, 1).map_err(failed)?;
                prepared._kept.push(listener);
                while let Ok(waits) = thalweg_sys::socket::connect_unix(path) {
                    prepared._kept.push(waits);
                }
            }
            Self::Silent => prepared._kept.push(UnixListener::bind(path).map_err(failed)?.into()),
            Self::Forbidden => {
                prepared._kept.push(UnixListener::bind(path).map_err(failed)?.into());
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).map_err(failed)?;
                prepared.needs_fewer_rights = UnixStream::connect(path).is_ok();
            }
            Self::Peer(script) => peer::serve(path, *script)?,
        }
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_however_they_are_spelled() {
        for said in ["no_server safe", "NoServer safe", "NO_SERVER safe", "no_server"] {
            assert!(ends_so(said, "ok|no_server safe"), "{said}");
        }
        for said in ["no_server never", "ok", "", "Closed never"] {
            assert!(!ends_so(said, "no_server safe"), "{said}");
        }
    }
}
