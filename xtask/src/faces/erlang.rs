//! `cargo xtask erlang`: the Erlang application as rebar3 builds it, with its native half, its Common Test
//! suites, and what xref and dialyzer say of it. The workers that the tests start run in an environment that
//! has the built wheel and nothing else. Needs `make tools`.

use crate::harness::options::Options;
use crate::harness::programs::output;
use crate::harness::server::{Scratch, build, cache, root, target};
use crate::{Outcome, Tally, python};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Fewer tests than this means that some were not found.
const TESTS_MIN: u64 = 285;

/// `cargo xtask erlang [--only calls]`.
///
/// # Errors
/// A tool is missing, or something does not build.
pub(crate) fn run(options: &Options) -> Outcome {
    let scratch = Scratch::new("erlang")?;
    let interpreter = python::installed(&cache().join("face-python"), scratch.path())?;
    native()?;
    let mut tally = Tally::default();
    let mut command = rebar3()?;
    command.args(["ct", "--readable=false", "--logdir"]).arg(scratch.path().join("logs"));
    let only = options.text("only", "");
    if !only.is_empty() {
        let suites: Vec<String> = only.split(',').map(|name| format!("test/thalweg_{name}_SUITE")).collect();
        command.args(["--suite", &suites.join(",")]);
    }
    command.env("THALWEG_PYTHON", interpreter).env("THALWEG_SERVER", build("thalweg-server", "thalweg")?);
    let ran = command.output().map_err(|e| format!("rebar3: {e}"))?;
    judged(&ran, !only.is_empty(), &mut tally);
    if tally.failed > 0 {
        reasons(&scratch.path().join("logs"));
    }
    if only.is_empty() {
        analysed(&mut tally)?;
    }
    Ok(tally)
}

/// What is called is there, and is called as it says.
fn analysed(tally: &mut Tally) -> Result<(), String> {
    for judge in ["xref", "dialyzer"] {
        let ran = rebar3()?.arg(judge).output().map_err(|e| format!("rebar3: {e}"))?;
        tally.check(ran.status.success(), || format!("{judge}: {}", String::from_utf8_lossy(&ran.stdout)));
    }
    Ok(())
}

/// Builds the application without its tests, and says where its folder with `ebin` and `priv` is.
///
/// # Errors
/// It does not build.
pub(crate) fn application() -> Result<PathBuf, String> {
    native()?;
    output(rebar3()?.arg("compile"))?;
    Ok(base().join("default/lib/thalweg"))
}

/// Builds what measures the floors; its path without the ending.
///
/// # Errors
/// It does not build.
pub(crate) fn floors() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--package", "thalweg-erlang", "--example", "floors"]);
    output(command.current_dir(root()))?;
    Ok(target().join("release/examples/libfloors"))
}

/// Compiles the echo client and the generated code that it calls through; the folders they and the
/// application lie in.
///
/// # Errors
/// Something does not build.
pub(crate) fn caller(scratch: &Path) -> Result<[PathBuf; 2], String> {
    let ebin = application()?.join("ebin");
    let mut compiler = Command::new("erlc");
    compiler.arg("-o").arg(scratch);
    compiler.args(["echo_caller", "echo_probe"].map(|module| face().join(format!("echo/{module}.erl"))));
    for module in ["echo_client", "echo_types", "thalweg_messagepack"] {
        compiler.arg(root().join(format!("schemas/generated/erlang/{module}.erl")));
    }
    output(&mut compiler)?;
    Ok([ebin, scratch.to_owned()])
}

fn face() -> PathBuf {
    root().join("faces/erlang")
}

fn base() -> PathBuf {
    target().join("erlang")
}

/// Builds the native half, and puts it where the application looks for it.
fn native() -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--package", "thalweg-erlang"]);
    output(command.current_dir(root()))?;
    let home = face().join("priv");
    fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    // A virtual machine that runs keeps the file that it loaded.
    let (fresh, library) = (home.join("thalweg_nif.new"), home.join("thalweg_nif.so"));
    fs::copy(target().join("release/libthalweg_erlang.so"), &fresh)
        .map_err(|e| format!("{}: {e}", fresh.display()))?;
    fs::rename(&fresh, &library).map_err(|e| format!("{}: {e}", library.display()))
}

/// Rebar3 links what it builds to the checkout that it builds from, and leaves such links as they are; ours
/// outlive the checkout when the target directory does. Those of another checkout are thrown away.
fn forget_other_checkout() -> Result<(), String> {
    for profile in ["default", "test"] {
        let built = base().join(profile).join("lib/thalweg");
        let is_ours = match (fs::canonicalize(built.join("src")), fs::canonicalize(face().join("src"))) {
            (Ok(linked), Ok(ours)) => linked == ours,
            _ => false,
        };
        if built.exists() && !is_ours {
            fs::remove_dir_all(&built).map_err(|e| format!("{}: {e}", built.display()))?;
        }
    }
    Ok(())
}

/// Rebar3, with Erlang's libraries that were unpacked beside it.
fn rebar3() -> Result<Command, String> {
    forget_other_checkout()?;
    let tools = cache().join("erlang");
    let program = tools.join("usr/bin/rebar3");
    if !program.exists() {
        return Err(format!("{} is missing: run `make tools`", program.display()));
    }
    let mut command = Command::new(program);
    command.current_dir(face()).env("ERL_LIBS", tools.join("usr/lib/erlang/lib"));
    // What dialyzer knows of Erlang's own libraries takes minutes to find out, and stays as it is.
    command.env("REBAR_BASE_DIR", base()).env("REBAR_CACHE_DIR", cache().join("rebar3"));
    Ok(command)
}

/// Counts what rebar3 says at the end.
fn judged(ran: &Output, some: bool, tally: &mut Tally) {
    let text = String::from_utf8_lossy(&ran.stdout);
    let (passed, failed) = counted(&text);
    tally.passed += passed;
    tally.failed += failed;
    let at_least = if some { 1 } else { TESTS_MIN };
    tally.check(passed + failed >= at_least, || {
        format!("{} tests, {at_least} are there: {text}", passed + failed)
    });
    tally.check(ran.status.success() || failed > 0, || format!("rebar3 ended with {}", ran.status));
}

/// `All N tests passed.`, or `Failed N tests. Passed M tests.`, perhaps `Skipped …` between them.
fn counted(text: &str) -> (u64, u64) {
    let after = |word: &str| {
        let rest = text.rsplit_once(word)?.1;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    match after("\nAll ") {
        Some(passed) => (passed, 0),
        None => {
            let skipped = after("Skipped ").unwrap_or(0);
            (after("Passed ").unwrap_or(0), after("Failed ").unwrap_or(0) + skipped)
        }
    }
}

/// Prints why tests failed, from Common Test's own logs.
fn reasons(logs: &Path) {
    let Ok(entries) = fs::read_dir(logs) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            reasons(&path);
        } else if path.file_name().is_some_and(|name| name == "suite.log")
            && let Ok(text) = fs::read_to_string(&path)
        {
            let cases = text.split("\n=case ").filter(|case| case.contains("\n=result        failed"));
            cases.for_each(|case| println!("{}", case.lines().take(20).collect::<Vec<_>>().join("\n")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted() {
        assert_eq!(counted("===> Running\n\nAll 8 tests passed.\n"), (8, 0));
        assert_eq!(counted("x\nFailed 5 tests. Passed 14 tests. \n"), (14, 5));
        assert_eq!(counted("x\nSkipped 2 (0, 2) tests. Passed 14 tests. \n"), (14, 2));
        assert_eq!(counted("nothing ran"), (0, 0));
    }
}
