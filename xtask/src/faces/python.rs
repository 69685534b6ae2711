//! The Python face as a user gets it: the wheel is built, installed into an environment that has nothing
//! else, and judged there: its tests (the README's examples among them), what type checkers see of it, and
//! whether its stubs say what the module has. What builds and checks is installed by `.ci/tools` and pinned
//! in `faces/python`.
//!
//! The wheel is one for all versions of CPython. `--newest` has it tested in the newest one, which the tools
//! bring beside their own, and `--interpreter` in any: without NumPy, which they keep for their own, and
//! without types, which do not depend on it.

use crate::harness::at_once;
use crate::harness::options::Options;
use crate::harness::server::{self, Scratch, cache, root, target};
use crate::{Outcome, Tally};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Fewer tests than this means that some were not found.
const TESTS_MIN: u64 = 480;
const TESTS: &str = "faces/python/tests";

/// Has interrupts raise: whatever a shell starts in the background is born with them ignored.
const RUNNER: &str = "import signal, unittest; signal.signal(signal.SIGINT, signal.default_int_handler); \
    unittest.main(module=None)";

/// The tests that need NumPy.
const OF_NUMPY: &str = "test_scan";

/// `cargo xtask python`.
///
/// # Errors
/// A tool is missing, or the wheel is not built or installed.
pub(crate) fn run(options: &Options) -> Outcome {
    let tools = cache().join("face-python");
    let scratch = Scratch::new("python")?;
    let python = installed_as_asked(&tools, scratch.path(), options)?;
    let mut tally = Tally::default();
    if another(options).is_some() {
        tests(&python, options, |name| name != OF_NUMPY, &mut tally)?;
        return Ok(tally);
    }
    let alone = "import thalweg, sys; sys.exit('numpy' in sys.modules)";
    let imported = output(Command::new(&python).args(["-c", alone]))?;
    tally.check(imported.status.success(), || format!("it needs NumPy to be imported: {}", said(&imported)));
    install(&tools, &python, Path::new("numpy"))?;
    tests(&python, options, |_| true, &mut tally)?;
    types(&tools, &python, &mut tally)?;
    twins(&tools, &python, scratch.path(), &mut tally)?;
    Ok(tally)
}

/// Builds the wheel, installs it into an environment that has nothing else, and says where its interpreter
/// is.
pub(crate) fn installed(tools: &Path, scratch: &Path) -> Result<PathBuf, String> {
    installed_for(tools, scratch, &tools.join("bin/python"))
}

/// The same for the interpreter that was asked for, where one was.
pub(crate) fn installed_as_asked(tools: &Path, scratch: &Path, options: &Options) -> Result<PathBuf, String> {
    match another(options) {
        None => installed(tools, scratch),
        Some(other) => installed_for(tools, scratch, &other),
    }
}

/// The interpreter that was asked for, where it is not that of the tools.
fn another(options: &Options) -> Option<PathBuf> {
    if options.flag("newest") {
        return Some(cache().join("cpython-newest/bin/python3"));
    }
    Some(options.text("interpreter", "")).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn installed_for(tools: &Path, scratch: &Path, interpreter: &Path) -> Result<PathBuf, String> {
    for needed in [&tools.join("bin/maturin"), interpreter] {
        if !needed.exists() {
            return Err(format!("{} is missing: run `make tools`", needed.display()));
        }
    }
    let wheel = build(tools, scratch)?;
    let python = environment(interpreter, scratch)?;
    install(tools, &python, &wheel)?;
    Ok(python)
}

/// Builds the wheel and says where it is.
fn build(tools: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let built = output(
        Command::new(tools.join("bin/maturin"))
            .args(["build", "--quiet", "--release", "--locked", "--interpreter"])
            .arg(tools.join("bin/python"))
            .arg("--out")
            .arg(scratch)
            .env("CARGO_TARGET_DIR", target())
            .current_dir(root().join("faces/python")),
    )?;
    let wheels = std::fs::read_dir(scratch).map_err(|e| e.to_string())?;
    let wheel = wheels
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|p| p.extension().is_some_and(|e| e == "whl"));
    match wheel {
        Some(wheel) if built.status.success() => Ok(wheel),
        _ => Err(format!("no wheel: {}", said(&built))),
    }
}

/// Makes an environment with nothing in it, and says where its interpreter is.
fn environment(interpreter: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let clean = scratch.join("clean");
    let made = output(Command::new(interpreter).args(["-m", "venv", "--without-pip"]).arg(&clean))?;
    if made.status.success() { Ok(clean.join("bin/python")) } else { Err(said(&made)) }
}

/// Installs from files alone: the wheel itself, or one that `.ci/tools` has fetched.
fn install(tools: &Path, python: &Path, what: &Path) -> Result<(), String> {
    let installed = output(
        Command::new(tools.join("bin/python"))
            .args(["-m", "pip", "--python"])
            .arg(python)
            .args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links"])
            .arg(tools.join("wheels"))
            .arg(what),
    )?;
    if installed.status.success() { Ok(()) } else { Err(format!("{}: {}", what.display(), said(&installed))) }
}

/// Every module of tests that is `wanted`, in one order everywhere.
fn modules(wanted: impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let files = std::fs::read_dir(root().join(TESTS)).map_err(|e| format!("{TESTS}: {e}"))?;
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let modules = names.filter_map(|name| Some(name.strip_suffix(".py")?.to_owned()));
    let mut found: Vec<String> = modules.filter(|name| name.starts_with("test_") && wanted(name)).collect();
    found.sort();
    Ok(found)
}

/// Runs the tests that are named, or those of every module that is `wanted`. Each has a process of its own,
/// and several run at once: much of their time is spent waiting.
fn tests(
    python: &Path,
    options: &Options,
    wanted: impl Fn(&str) -> bool,
    tally: &mut Tally,
) -> Result<(), String> {
    let named: Vec<String> =
        options.text("only", "").split(',').filter(|test| !test.is_empty()).map(str::to_owned).collect();
    let are_all = named.is_empty();
    let tests = if are_all { modules(wanted)? } else { named };
    let program = server::build("thalweg-server", "thalweg")?;
    let reports = at_once::each(tests, at_once::processors(), |test| {
        let mut command = Command::new(python);
        command.args(["-X", "dev", "-c", RUNNER, &test]).current_dir(root().join(TESTS));
        command.env("THALWEG_PROGRAM", &program);
        Ok((output(&mut command)?, test))
    })?;
    let mut in_all = 0;
    for (ran, test) in reports {
        let report = String::from_utf8_lossy(&ran.stderr);
        let (count, failed) = counted(&report);
        in_all += count;
        tally.passed += count.saturating_sub(failed);
        tally.failed += failed;
        if !ran.status.success() {
            eprintln!("{test}:\n{report}");
        }
        tally.check(ran.status.success() || failed > 0, || format!("{test} ended with {}", ran.status));
    }
    tally.check(!are_all || in_all >= TESTS_MIN, || format!("{in_all} tests, {TESTS_MIN} are there"));
    Ok(())
}

/// Generated code takes the package's machine code where that is installed and its own where it is not: both
/// are held to the golden frames, and to the same words for ten thousand mutated ones.
fn twins(tools: &Path, python: &Path, scratch: &Path, tally: &mut Tally) -> Result<(), String> {
    let mut outcomes = Vec::new();
    for (name, python) in [("its own", tools.join("bin/python")), ("the package's", python.to_owned())] {
        let outcome = scratch.join(format!("outcome-{}", outcomes.len()));
        let judged = output(
            Command::new(python)
                .arg(root().join("conformance/golden/python/golden.py"))
                .arg(root().join("schemas/golden"))
                .arg(&outcome)
                .arg(root().join("schemas/generated/python"))
                .current_dir(scratch),
        )?;
        tally.check(judged.status.success(), || format!("golden frames with {name} code: {}", said(&judged)));
        outcomes.push(std::fs::read(&outcome).map_err(|e| format!("{}: {e}", outcome.display()))?);
    }
    let same =
        outcomes.windows(2).all(|pair| pair[0] == pair[1]) && outcomes.iter().all(|found| !found.is_empty());
    tally.check(same, || "mutated frames end differently in machine code".to_owned());
    Ok(())
}

fn types(tools: &Path, python: &Path, tally: &mut Tally) -> Result<(), String> {
    let face = root().join("faces/python");
    let mypy = |arguments: &[&str]| {
        let mut command = Command::new(tools.join("bin/mypy"));
        command.args(["--strict", "--no-incremental", "--python-executable"]).arg(python).args(arguments);
        command.current_dir(&face);
        command
    };
    let generated = |arguments: &[&str]| {
        let mut command = mypy(arguments);
        command.env("MYPYPATH", root().join("schemas/generated"));
        command
    };
    let stubs = "import sys; sys.path.append(sys.argv[1]); from mypy.stubtest import main; \
        sys.argv = ['stubtest', 'thalweg', '--allowlist', sys.argv[2]]; sys.exit(main())";
    let mut stubtest = Command::new(tools.join("bin/python"));
    let packages =
        output(Command::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))?;
    let packages = String::from_utf8_lossy(&packages.stdout).trim().to_owned();
    stubtest.args(["-c", stubs, &packages]).arg(face.join("stubs-allowed.txt")).env("MYPYPATH", &packages);
    let checks = [
        ("the sample", mypy(&["tests/types_sample.py"])),
        ("the package", mypy(&["-p", "thalweg"])),
        ("the echo server", generated(&["echo/server.py"])),
        ("the echo client", generated(&["echo/client.py"])),
        ("the stubs", stubtest),
    ];
    for (name, mut command) in checks {
        let checked = output(&mut command)?;
        tally.check(checked.status.success(), || format!("types of {name}: {}", said(&checked)));
    }
    Ok(())
}

/// How many tests unittest says it ran, and how many of them failed.
fn counted(report: &str) -> (u64, u64) {
    let number =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let after = |line: &str, word: &str| line.split_once(word).map_or(0, |(_, rest)| number(rest));
    let ran =
        report.lines().rev().find(|line| line.starts_with("Ran ")).map_or(0, |line| after(line, "Ran "));
    let last = report.lines().rev().find(|line| line.starts_with("FAILED ("));
    (ran, last.map_or(0, |line| after(line, "failures=") + after(line, "errors=")))
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unittest_says_is_counted() {
        assert_eq!(counted("...\nRan 78 tests in 10.5s\n\nOK\n"), (78, 0));
        assert_eq!(counted("Ran 78 tests in 1s\n\nFAILED (failures=1, errors=2)\n"), (78, 3));
        assert_eq!(counted("Ran 3 tests in 1s\n\nFAILED (errors=2)\n"), (3, 2));
        assert_eq!(counted("No module named unittest"), (0, 0));
    }
}
