//! `cargo xtask zig`: the Zig face with the oldest and the newest Zig that it is for: its layout, its tests
//! as a program that links the library, the package as Zig's own build reads it, and that every function and
//! struct of the header is declared as it is there. Needs `make tools`.

use crate::harness::at_once;
use crate::harness::options::Options;
use crate::harness::programs::{self, Programs};
use crate::harness::server::{Scratch, cache, root, target};
use crate::{Outcome, Tally, golden};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compilers, by the folders that `make tools` installs them in.
const COMPILERS: [&str; 2] = ["zig-lowest", "zig-highest"];

/// `cargo xtask zig`.
///
/// # Errors
/// A compiler is missing, or something does not build.
pub(crate) fn run(_options: &Options) -> Outcome {
    let mut tally = Tally::default();
    declared(&mut tally)?;
    // The newest lays code out differently.
    let formatted = zig(COMPILERS[0]).args(["fmt", "--check"]).arg(face()).status();
    tally.check(formatted.is_ok_and(|status| status.success()), || "zig fmt".to_owned());
    // A compiler keeps one processor busy for most of its time.
    for judged in at_once::each(COMPILERS.to_vec(), at_once::processors(), judge)? {
        tally.add(judged);
    }
    Ok(tally)
}

fn judge(compiler: &str) -> Outcome {
    let mut tally = Tally::default();
    let scratch = Scratch::new(compiler)?;
    let caches = target().join("zig/cache").join(compiler);
    let mut package = zig(compiler);
    package.arg("build").env("ZIG_LOCAL_CACHE_DIR", &caches).env("ZIG_GLOBAL_CACHE_DIR", &caches);
    let built = programs::output(package.current_dir(face()));
    tally.check(built.is_ok(), || format!("{compiler}: zig build: {built:?}"));
    let tests = build(compiler, "tests/face.zig")?;
    let output = programs::output(Command::new(tests).arg(scratch.path()))?;
    programs::count(&mut tally, "face-zig", &output);
    Ok(tally)
}

/// Builds the echo programs, with the newest Zig.
///
/// # Errors
/// They do not build.
pub(crate) fn programs() -> Result<Programs, String> {
    let [_, newest] = COMPILERS;
    Ok(Programs { server: build(newest, "echo/server.zig")?, client: build(newest, "echo/client.zig")? })
}

fn face() -> PathBuf {
    root().join("faces/zig")
}

fn zig(compiler: &str) -> Command {
    let mut command = Command::new(cache().join(compiler).join("bin/python"));
    command.args(["-m", "ziglang"]).current_dir(root());
    command
}

/// Builds a program of the face, and says where it is.
fn build(compiler: &str, source: &str) -> Result<PathBuf, String> {
    let library = programs::library()?;
    let home = target().join("zig").join(compiler);
    fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    // Programs look for the library by its soname.
    let named = home.join("libthalweg.so.0");
    fs::copy(&library, &named).map_err(|e| format!("{}: {e}", named.display()))?;
    let frames = home.join("frames.zig");
    fs::write(&frames, golden::frames_in_zig(&root().join("schemas/golden"))?).map_err(|e| e.to_string())?;
    let name = source.replace('/', "-").replace(".zig", "");
    let program = home.join(&name);
    let module = |name: &str, path: &Path| format!("-M{name}={}", path.display());
    let mut command = zig(compiler);
    command.args(["build-exe", "-O", "ReleaseSafe", "-lc", "--name", &name]);
    command.arg(format!("-femit-bin={}", program.display()));
    for dependency in ["echo", "thalweg", "frames", "system", "service"] {
        command.args(["--dep", dependency]);
    }
    command.arg(module("root", &face().join(source))).args(["--dep", "echo"]);
    command.arg(module("service", &face().join("echo/service.zig")));
    command.arg(module("echo", &root().join("schemas/generated/zig/echo.zig")));
    command.arg(module("thalweg", &face().join("src/thalweg.zig")));
    command.arg(module("frames", &frames)).arg(module("system", &face().join("echo/system.zig")));
    programs::output(command.arg(&library).arg("-rpath").arg(&home))?;
    Ok(program)
}

/// The functions and structs of the header stand in the face's declarations, and no others.
fn declared(tally: &mut Tally) -> Result<(), String> {
    let read = |path: &str| fs::read_to_string(root().join(path)).map_err(|e| format!("{path}: {e}"));
    let (header, face) = (read("crates/abi/include/thalweg.h")?, read("faces/zig/src/c.zig")?);
    let (wanted, found) = (functions(&header), functions(&face));
    tally.check(!wanted.is_empty() && wanted == found, || {
        let differing: Vec<_> = wanted.symmetric_difference(&found).collect();
        format!("faces/zig/src/c.zig and thalweg.h differ in {differing:?}")
    });
    let (wanted, found) = (structs_in_c(&header), structs_in_zig(&face));
    tally.check(!wanted.is_empty(), || "thalweg.h has no struct".to_owned());
    for name in wanted.keys().chain(found.keys().filter(|name| !wanted.contains_key(*name))) {
        let (wanted, found) = (wanted.get(name), found.get(name));
        tally.check(wanted == found, || {
            format!("{name} is {found:?} in faces/zig/src/c.zig, {wanted:?} in thalweg.h")
        });
    }
    Ok(())
}

/// Names that begin with `thalweg_` and stand right before a parenthesis.
fn functions(text: &str) -> BTreeSet<&str> {
    let is_code = |line: &&str| !line.trim_start().starts_with(['*', '/']);
    let words = text.lines().filter(is_code).flat_map(|line| {
        line.match_indices("thalweg_").filter_map(move |(start, _)| {
            let rest = &line[start..];
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
            rest[end..].starts_with('(').then(|| &rest[..end])
        })
    });
    words.collect()
}

/// Structs by their names in Zig, with every field's name and type in Zig, where a pointer is a pointer.
type Structs = BTreeMap<String, Vec<(String, String)>>;

/// The structs of a C header that have fields.
fn structs_in_c(text: &str) -> Structs {
    structs(
        text,
        |line| Some(named(line.strip_prefix("struct ")?.strip_suffix(" {")?)),
        |line| {
            let (kind, name) = line.strip_suffix(';')?.rsplit_once([' ', '*'])?;
            if line.contains('*') {
                return Some((name.to_owned(), "*".to_owned()));
            }
            let kind = match kind {
                "size_t" => "usize".to_owned(),
                "bool" => "bool".to_owned(),
                _ => match (kind.strip_prefix("enum "), kind.strip_suffix("_t")) {
                    (Some(name), _) => named(name),
                    (None, Some(number)) => number.replace("uint", "u").replace("int", "i"),
                    (None, None) => kind.to_owned(),
                },
            };
            Some(match name.split_once('[') {
                Some((name, length)) => (name.to_owned(), format!("[{length}{kind}")),
                None => (name.to_owned(), kind),
            })
        },
    )
}

/// The extern structs of a Zig file.
fn structs_in_zig(text: &str) -> Structs {
    // Those of one line as those of many.
    let text =
        text.replace("extern struct { ", "extern struct {\n").replace(" };", ",\n};").replace(", ", ",\n");
    structs(
        &text,
        |line| Some(line.strip_prefix("pub const ")?.strip_suffix(" = extern struct {")?.to_owned()),
        |line| {
            let (name, kind) = line.strip_suffix(',')?.split_once(": ")?;
            let kind = kind.split(" = ").next()?;
            Some((name.to_owned(), if kind.contains('*') { "*".to_owned() } else { kind.to_owned() }))
        },
    )
}

/// Structs whose first line `begins` knows, and whose other lines up to the brace are fields or comments.
fn structs(
    text: &str,
    begins: impl Fn(&str) -> Option<String>,
    field: impl Fn(&str) -> Option<(String, String)>,
) -> Structs {
    let mut lines = text.lines();
    let mut found = Structs::new();
    while let Some(line) = lines.next() {
        if let Some(name) = begins(line) {
            let is_comment = |line: &str| line.starts_with(['/', '*']);
            let body = lines.by_ref().take_while(|line| *line != "};").map(str::trim);
            found.insert(name, body.filter(|line| !is_comment(line)).filter_map(&field).collect());
        }
    }
    found
}

/// What `thalweg_some_thing` is called in Zig: `SomeThing`.
fn named(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    name.trim_start_matches("thalweg_").split('_').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_structs_and_comments() {
        let header = " * `thalweg_a()` is one\nuint16_t thalweg_b(struct thalweg_c *c,\n  int d);\nstruct thalweg_e {\n";
        assert_eq!(functions(header).into_iter().collect::<Vec<_>>(), ["thalweg_b"]);
    }

    #[test]
    fn structs_are_the_same_in_both_languages_field_by_field() {
        let header = "struct thalweg_opaque;\nstruct thalweg_a_b {\n  /**\n   * How; why.\n   */\n  uint8_t schema[32];\n  \
                      const char *detail;\n  size_t length;\n  int32_t number;\n  bool plain;\n  enum thalweg_exit_kind \
                      kind;\n};\n";
        let face = "pub const AB = extern struct {\n    schema: [32]u8,\n    detail: ?[*:0]const u8 = null,\n    length: \
                    usize,\n    number: i32 = 0,\n    plain: bool,\n    kind: ExitKind,\n};\n";
        let found = structs_in_c(header);
        assert_eq!(found["AB"].len(), 6);
        assert_eq!(found, structs_in_zig(face));
        let short = structs_in_zig("pub const AB = extern struct { schema: [32]u8, detail: *u8 };\n");
        assert_eq!(short["AB"], found["AB"][..2]);
    }
}
