//! How each language's echo programs are built and started.

use crate::harness::server::{build_example, cache, root};
use crate::{cpp, erlang, node, python, zig};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the programs of a language; what is temporary goes into the folder.
type Build = fn(&Path) -> Result<Programs, String>;

pub(super) const LANGUAGES: [(&str, Build); 6] =
    [("rust", rust), ("cpp", cpp), ("zig", zig), ("node", node), ("python", python), ("erlang", erlang)];

/// Two programs that are given an endpoint.
pub(super) struct Programs {
    /// Empty for a language that only calls.
    server: Vec<OsString>,
    client: Vec<OsString>,
}

impl Programs {
    /// Programs that run by themselves.
    fn alone(server: PathBuf, client: PathBuf) -> Self {
        Self { server: vec![server.into()], client: vec![client.into()] }
    }

    /// Programs that an interpreter runs.
    fn interpreted(interpreter: &Path, folder: &Path, [server, client]: [&str; 2]) -> Result<Self, String> {
        let words = |name: &str| {
            let path = folder.join(name);
            if !path.exists() {
                return Err(format!("{} is missing", path.display()));
            }
            Ok(vec![interpreter.into(), path.into()])
        };
        Ok(Self { server: words(server)?, client: words(client)? })
    }

    pub(super) fn serves(&self) -> bool {
        !self.server.is_empty()
    }

    pub(super) fn server(&self, endpoint: &Path) -> Command {
        command(&self.server, endpoint)
    }

    pub(super) fn client(&self, endpoint: &Path) -> Command {
        command(&self.client, endpoint)
    }

    /// The client, connecting within so many milliseconds and taking steps.
    pub(super) fn steps(&self, endpoint: &Path, within_ms: u64, steps: &[(String, String)]) -> Command {
        let mut command = self.client(endpoint);
        command.arg(within_ms.to_string()).args(steps.iter().map(|(step, _)| step));
        command
    }
}

fn command(words: &[OsString], endpoint: &Path) -> Command {
    let mut command = Command::new(words.first().cloned().unwrap_or_default());
    command.args(words.iter().skip(1)).arg(endpoint).current_dir(root());
    command
}

fn rust(_scratch: &Path) -> Result<Programs, String> {
    let program = |name: &str| build_example("thalweg-service", name);
    Ok(Programs::alone(program("echo_server")?, program("echo_client")?))
}

fn node(_scratch: &Path) -> Result<Programs, String> {
    node::build_echo()?;
    Programs::interpreted(Path::new("node"), &root().join("faces/node/echo"), ["server.mjs", "client.mjs"])
}

fn python(scratch: &Path) -> Result<Programs, String> {
    let interpreter = python::installed(&cache().join("face-python"), scratch)?;
    Programs::interpreted(&interpreter, &root().join("faces/python/echo"), ["server.py", "client.py"])
}

fn cpp(_scratch: &Path) -> Result<Programs, String> {
    cpp::programs().map(|built| Programs::alone(built.server, built.client))
}

fn erlang(scratch: &Path) -> Result<Programs, String> {
    let mut client: Vec<OsString> = vec!["erl".into(), "-noshell".into(), "-pa".into()];
    client.extend(erlang::caller(scratch)?.into_iter().map(OsString::from));
    client.extend(["-run", "echo_caller", "main"].map(OsString::from));
    client.push(root().join("schemas/golden").into());
    Ok(Programs { server: Vec::new(), client })
}

fn zig(_scratch: &Path) -> Result<Programs, String> {
    zig::programs().map(|built| Programs::alone(built.server, built.client))
}
