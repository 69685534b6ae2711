//! The npm package as its users get it: built in release, packed, installed into an empty folder, and used
//! from there by its tests, by the example of its README in both module systems, and by the TypeScript
//! compiler. With `--newest`, its tests and the example run in the newest Node.js, which the tools bring.
//! Never knows what the package does.

use crate::harness::options::Options;
use crate::harness::server::{self, Scratch, cache, root, target};
use crate::{Outcome, Tally};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo xtask node`.
///
/// # Errors
/// A tool is missing, or the package cannot be built, packed or installed.
pub(crate) fn run(options: &Options) -> Outcome {
    let is_newest = options.flag("newest");
    let node = if is_newest { newest()? } else { PathBuf::from("node") };
    build()?;
    let scratch = Scratch::new("node")?;
    let installed = install(scratch.path())?;
    let mut tally = Tally::default();
    examples(&node, scratch.path(), &mut tally)?;
    tests(&node, &installed, &mut tally)?;
    if !is_newest {
        contents(&installed, &mut tally)?;
        types(scratch.path(), &mut tally)?;
    }
    Ok(tally)
}

/// Where the tools put the newest Node.js.
fn newest() -> Result<PathBuf, String> {
    let node = cache().join("node-newest/bin/node");
    match node.exists() {
        true => Ok(node),
        false => Err(format!("{} is missing: run `make tools`", node.display())),
    }
}

/// `cargo xtask faces-format`: writes anew what the faces generate from the log.
///
/// # Errors
/// Cargo cannot be started, or fails.
pub(crate) fn write_format() -> Outcome {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--package", "thalweg-node", "--test", "format"]);
    succeed(command.current_dir(root()).env("THALWEG_FACES_FORMAT", "write"))?;
    Ok(Tally { passed: 1, failed: 0 })
}

/// Builds the native part where the package looks for it.
///
/// # Errors
/// It does not build, or this platform is none of the package's.
pub(crate) fn build() -> Result<PathBuf, String> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => return Err(format!("the package has no name for {other}")),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    succeed(
        command.args(["build", "--quiet", "--release", "--package", "thalweg-node"]).current_dir(root()),
    )?;
    let home = face().join("native");
    let file = home.join(format!("thalweg-linux-{architecture}.node"));
    // Put in place whole: a process that has the old one mapped keeps it.
    let fresh = file.with_extension("fresh");
    fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    fs::copy(target().join("release/libthalweg_node.so"), &fresh)
        .and_then(|_| fs::rename(&fresh, &file))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file)
}

/// Builds the native part, and compiles what the echo programs import.
///
/// # Errors
/// It does not build or compile.
pub(crate) fn build_echo() -> Result<(), String> {
    build()?;
    let compiler = face().join("node_modules/.bin/tsc");
    output(Command::new(compiler).args(["--project", "echo"]).current_dir(face())).map(drop)
}

fn face() -> PathBuf {
    root().join("faces/node")
}

fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

/// Packs the package and installs the tarball where nothing else is.
fn install(folder: &Path) -> Result<PathBuf, String> {
    let npm = |words: &[&str], within: &Path| {
        output(Command::new("npm").args(words).args(["--silent"]).current_dir(within))
    };
    let destination = folder.to_string_lossy();
    let tarball = npm(&["pack", "--pack-destination", &destination], &face())?;
    let manifest = r#"{ "name": "clean", "version": "1.0.0", "private": true }"#;
    fs::write(folder.join("package.json"), manifest).map_err(|e| e.to_string())?;
    let tarball = format!("./{}", tarball.trim().lines().last().unwrap_or_default());
    npm(&["install", "--offline", "--no-audit", "--no-fund", &tarball], folder)?;
    Ok(folder.join("node_modules/thalweg"))
}

/// What is in the package, and what is not.
fn contents(installed: &Path, tally: &mut Tally) -> Result<(), String> {
    let names = |path: &Path| -> Result<Vec<String>, String> {
        let entries = fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut names: Vec<String> =
            entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned())).collect();
        names.sort();
        Ok(names)
    };
    let found = names(installed)?;
    tally.check(
        found
            == [
                "LICENSE",
                "README.md",
                "index.d.ts",
                "lib",
                "native",
                "package.json",
                "rpc.d.ts",
                "service.d.ts",
                "state.d.ts",
            ],
        || format!("the package holds {found:?}"),
    );
    let native = names(&installed.join("native"))?;
    tally.check(native.iter().all(|name| name.ends_with(".node")), || format!("native holds {native:?}"));
    Ok(())
}

/// Runs the README's first program, as a module and as a script.
fn examples(node: &Path, folder: &Path, tally: &mut Tally) -> Result<(), String> {
    let readme = fs::read_to_string(face().join("README.md")).map_err(|e| format!("README.md: {e}"))?;
    let module = readme.split("```js\n").nth(1).and_then(|rest| rest.split("```").next());
    let module = module.ok_or("README.md has no program")?;
    let (_, body) = module.split_once('\n').ok_or("README.md's program is one line")?;
    let script = format!("const {{ open }} = require(\"thalweg\")\n;(async () => {{\n{body}\n}})()\n");
    for (name, text) in [("example.mjs", module), ("example.cjs", &script)] {
        fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"))?;
        let _ = fs::remove_dir_all(folder.join("data"));
        let said = output(Command::new(node).arg(name).current_dir(folder));
        let says = ["one espresso", "two cappuccini", "tre biscotti", "just in: the bill"];
        tally.check(said.as_ref().is_ok_and(|said| says.iter().all(|line| said.contains(line))), || {
            format!("{name}: {said:?}")
        });
    }
    Ok(())
}

/// Compiles what users write, strictly, against the installed package.
fn types(folder: &Path, tally: &mut Tally) -> Result<(), String> {
    let home = folder.join("types");
    fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    for name in ["tsconfig.json", "use.mts", "use.cts", "service.mts", "service.cts", "rpc.mts", "state.mts"]
    {
        fs::copy(face().join("tests/types").join(name), home.join(name))
            .map_err(|e| format!("{name}: {e}"))?;
    }
    let tools = face().join("node_modules");
    let mut compiler = Command::new(tools.join(".bin/tsc"));
    compiler.arg("--project").arg(&home).arg("--typeRoots").arg(tools.join("@types"));
    let outcome = output(&mut compiler);
    tally.check(outcome.is_ok(), || outcome.err().unwrap_or_default());
    Ok(())
}

/// Runs the package's tests against what was installed.
fn tests(node: &Path, installed: &Path, tally: &mut Tally) -> Result<(), String> {
    let home = face().join("tests");
    let entries = fs::read_dir(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".test.js"));
    files.sort();
    let mut command = Command::new(node);
    command.args(["--test", "--test-reporter=tap"]).args(&files).env("THALWEG_PACKAGE", installed);
    command.env("THALWEG_PROGRAM", server::build("thalweg-server", "thalweg")?);
    let output = command.output().map_err(|e| format!("node --test: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let count = |what: &str| {
        let line = said.lines().rev().find_map(|line| line.strip_prefix("# ")?.strip_prefix(what));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    let (Some(passed), Some(failed)) = (count("pass "), count("fail ")) else {
        return Err(format!("node --test said nothing of its tests:\n{said}"));
    };
    if failed > 0 || !output.status.success() {
        eprintln!("{said}");
    }
    tally.passed += passed;
    tally.failed += failed.max(u64::from(!output.status.success()));
    tally.check(passed >= 399, || format!("only {passed} tests ran"));
    Ok(())
}
