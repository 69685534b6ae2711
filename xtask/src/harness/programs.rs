//! What the faces over the C interface have in common: the library they link, commands that have to succeed,
//! and summaries that are counted.

use crate::Tally;
use crate::harness::server::{root, target};
use std::path::PathBuf;
use std::process::Command;

/// The echo programs of a face: each is given an endpoint.
pub(crate) struct Programs {
    /// Serves until it is asked to end.
    pub(crate) server: PathBuf,
    /// Calls everything once.
    pub(crate) client: PathBuf,
}

/// Builds the library of the C interface, and says where it is.
///
/// # Errors
/// It does not build.
pub(crate) fn library() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--package", "thalweg-abi"]);
    output(command.current_dir(root()))?;
    Ok(target().join("release/libthalweg.so"))
}

/// What a command says that has to succeed.
///
/// # Errors
/// It does not.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let named = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|e| format!("{named}: {e}; `make tools` installs what is missing"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{named}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Adds the numbers of `name: N passed, N failed`.
pub(crate) fn count(tally: &mut Tally, name: &str, text: &str) {
    println!("{}", text.trim_end());
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let numbers = line.and_then(|line| {
        let (passed, failed) = line.split_once(" passed, ")?;
        Some((passed.parse::<u64>().ok()?, failed.strip_suffix(" failed")?.parse::<u64>().ok()?))
    });
    tally.check(numbers.is_some_and(|(passed, _)| passed > 0), || format!("{name}: no summary"));
    let (passed, failed) = numbers.unwrap_or_default();
    tally.passed += passed;
    tally.failed += failed;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted_and_missed() {
        let judged = |text: &str| {
            let mut tally = Tally::default();
            count(&mut tally, "face-x", text);
            (tally.passed, tally.failed)
        };
        assert_eq!(judged("face-x: 7 passed, 1 failed\n"), (8, 1));
        assert_eq!(judged("face-y: 7 passed, 0 failed\n"), (0, 1));
        assert_eq!(judged(""), (0, 1));
    }
}
