//! `cargo xtask guide`: the first service of `docs/services.md`, made and run as it says there. The schema,
//! the program and what it says are read out of the page, so that the page cannot be wrong about them; so is
//! what it depends on, but for where that lies. Never knows what they are about.

use crate::harness::options::Options;
use crate::harness::server::{Scratch, root, target};
use crate::{Outcome, Tally};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use thalweg_codegen::{Arguments, Language};

const PAGE: &str = "docs/services.md";
/// What the page calls the program by.
const RUN: &str = "cargo run -q -- ";
/// Whatever the program says from here on.
const AND_SO_ON: &str = "…";

/// `cargo xtask guide`.
///
/// # Errors
/// The page has no such service, or its program does not build.
pub(crate) fn run(_options: &Options) -> Outcome {
    let page = fs::read_to_string(root().join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let home = target().join("guide");
    let program = build(
        &home,
        block(&page, "**2. Generate the code**", "toml")?,
        block(&page, "in `greeter.jsonc`", "jsonc")?,
        block(&page, "in `src/main.rs`", "rust")?,
    )?;
    let scratch = Scratch::new("guide")?;
    let mut tally = Tally::default();
    let mut serving = Vec::new();
    for said in sessions(block(&page, "**4. Run it.**", "")?) {
        let mut command = Command::new(&program);
        command.current_dir(scratch.path()).args(said.arguments.iter().map(|word| word.trim_matches('"')));
        if said.stays {
            serving.push(Ended(command.spawn().map_err(|e| format!("{}: {e}", program.display()))?));
            continue;
        }
        let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
        let found = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        tally.check(said.fits(&found.concat()), || {
            format!("{PAGE}: {:?} says {found:?}, not {:?}", said.arguments, said.lines)
        });
    }
    tally.check(!serving.is_empty() && tally.passed > 0, || format!("{PAGE}: nothing was run"));
    Ok(tally)
}

/// The first block of a language behind some words, without its fences.
fn block<'p>(page: &'p str, behind: &str, language: &str) -> Result<&'p str, String> {
    let missing = || format!("{PAGE}: no block of {language:?} behind {behind:?}");
    let (_, rest) = page.split_once(behind).ok_or_else(missing)?;
    let (_, rest) = rest.split_once(&format!("```{language}\n")).ok_or_else(missing)?;
    rest.split_once("```\n").map(|(text, _)| text).ok_or_else(missing)
}

/// What the page takes by git, taken from this checkout.
fn from_here(dependencies: &str) -> String {
    let by_path = |line: &str| {
        let name = line.split_once(" = { git").and_then(|(name, _)| name.strip_prefix("thalweg-"));
        let path = |name| root().join("crates").join(name).display().to_string();
        name.map_or_else(|| line.to_owned(), |name| format!("thalweg-{name} = {{ path = {:?} }}", path(name)))
    };
    dependencies.lines().map(|line| by_path(line) + "\n").collect()
}

/// Makes the package as the page says, and says where its program is.
fn build(home: &Path, dependencies: &str, schema: &str, main: &str) -> Result<std::path::PathBuf, String> {
    let package = home.join("greeter");
    let failed = |e: std::io::Error| format!("{}: {e}", package.display());
    fs::create_dir_all(package.join("src")).map_err(failed)?;
    let manifest = format!(
        "[package]\nname = \"greeter\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{}",
        from_here(dependencies)
    );
    fs::write(package.join("Cargo.toml"), manifest).map_err(failed)?;
    fs::copy(root().join("Cargo.lock"), package.join("Cargo.lock")).map_err(failed)?;
    fs::write(home.join("greeter.jsonc"), schema).map_err(failed)?;
    fs::write(package.join("src/main.rs"), main).map_err(failed)?;
    let arguments = Arguments::new(home.join("greeter.jsonc"), Language::Rust, package.join("src/greeter"));
    thalweg_codegen::run(&Arguments { client: true, server: true, ..arguments })
        .map_err(|e| e.to_string())?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--offline"]).current_dir(&package);
    let built = command.env("CARGO_TARGET_DIR", home.join("target")).output().map_err(failed)?;
    if !built.status.success() {
        return Err(format!(
            "{PAGE}: its program does not build:\n{}",
            String::from_utf8_lossy(&built.stderr)
        ));
    }
    Ok(home.join("target/debug/greeter"))
}

/// A command of the page, and what it is to say.
#[derive(Debug, PartialEq, Eq)]
struct Said<'p> {
    arguments: Vec<&'p str>,
    /// It goes on beside what follows.
    stays: bool,
    lines: Vec<&'p str>,
}

impl Said<'_> {
    fn fits(&self, found: &str) -> bool {
        let mut found = found.lines();
        for line in &self.lines {
            if *line == AND_SO_ON {
                return true;
            }
            if found.next() != Some(line) {
                return false;
            }
        }
        found.next().is_none()
    }
}

fn sessions(block: &str) -> Vec<Said<'_>> {
    let mut sessions: Vec<Said<'_>> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ").and_then(|line| line.strip_prefix(RUN)) {
            let words = command.split(' ').filter(|word| *word != "&").collect();
            sessions.push(Said { arguments: words, stays: command.ends_with(" &"), lines: Vec::new() });
        } else if let Some(last) = sessions.last_mut() {
            last.lines.push(line);
        }
    }
    sessions
}

/// A program that is ended with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_a_person_would() {
        let block = "$ cargo run -q -- serve &\n$ cargo run -q -- a.sock \"\"\nHello\n3\n…\n";
        let said = sessions(block);
        assert_eq!(said[0], Said { arguments: vec!["serve"], stays: true, lines: vec![] });
        assert_eq!((&said[1].arguments[..], said[1].stays), (&["a.sock", "\"\""][..], false));
        assert!(said[1].fits("Hello\n3\n2\n1\n") && said[1].fits("Hello\n3\n"));
        for other in ["Hello\n", "Hello\n4\n", ""] {
            assert!(!said[1].fits(other), "{other:?}");
        }
        assert!(!Said { arguments: vec![], stays: false, lines: vec!["one"] }.fits("one\ntwo\n"));
    }

    #[test]
    fn a_block_is_the_first_of_its_language_behind_the_words() {
        let page = "```rust\nno\n```\nhere\n```jsonc\n{}\n```\n```rust\nyes\n```\n";
        assert_eq!(block(page, "here", "rust"), Ok("yes\n"));
        assert!(block(page, "nowhere", "rust").is_err() && block(page, "here", "toml").is_err());
    }

    #[test]
    fn what_comes_by_git_is_taken_from_here() {
        let taken = from_here("[dependencies]\nthalweg-wire = { git = \"https://somewhere\" }\n");
        let wire = root().join("crates/wire");
        assert_eq!(taken, format!("[dependencies]\nthalweg-wire = {{ path = \"{}\" }}\n", wire.display()));
    }
}
