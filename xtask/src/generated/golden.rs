//! `cargo xtask golden`: the generated code of every language against the golden frames, each compiled as
//! strictly as its compiler can, and then against each other: what became of the refused frames and of ten
//! thousand mutated ones has to be the same everywhere, the place of what is wrong included. Three more
//! schemas, one of what is legal and awkward, one of words that languages reserve and one of nothing but
//! streams, are generated and compiled, never run.
//!
//! The judges stand in `conformance/golden`; Rust's is a test of `crates/codegen`. Needs `make tools`.

mod runtimes;
mod words;

use crate::generated::codegen::LANGUAGES;
use crate::harness::at_once;
use crate::harness::options::Options;
use crate::harness::server::{cache, root, target};
use crate::{Outcome, Tally};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use thalweg_codegen::{Arguments, Language};

/// Where things are.
struct Bench {
    /// The checkout.
    root: PathBuf,
    /// Where everything is built.
    work: PathBuf,
}

/// How many mutated frames each judge reads.
const MUTATIONS: usize = 10_000;

/// What is generated and compiled only: services, and the folders of what is generated from each.
const COMPILED: [&str; 4] = ["corners", "forks", "anything", "flowing"];

/// A service without a command that is answered once, with comments that are awkward in some language.
const FLOWING: &str = r#"{
  // Flows; what it says of itself ends in a backslash: \
  "service": "Flowing",
  "enums": {
    // Comes to "its end" */ and goes on, \
    "Pace": ["slow", "fast"],
  },
  "error": { "message": "string" },
  "commands": {
    // Follows C:\
    "Follow": {
      "request": {
        // Where to begin, as in C:\logs\
        "place": "string",
      },
      "stream": {
        /** How fast, and `why` """ not. \ */
        "pace": "Pace",
      },
      "response": { "word": "string" },
    },
  },
}
"#;

/// Has each codec of a service's types compiled. Declarations are names to the newest Zig, structs to others.
const EVERY_CODEC: &str = r#"const std = @import("std");

comptime {
    @setEvalBranchQuota(1_000_000);
    const types = @import("all").types;
    for (std.meta.declarations(types)) |decl| {
        const of = @field(types, if (@TypeOf(decl) == [:0]const u8) decl else decl.name);
        if (@TypeOf(of) != type or @typeInfo(of) != .@"struct") continue;
        if (@hasDecl(of, "write")) {
            _ = &of.read;
            _ = &of.write;
        }
        if (@hasDecl(of, "encode")) {
            _ = &of.decode;
            _ = &of.encode;
        }
    }
}
"#;

/// What ends a line, is not shown or is refused in some language's comments.
const AWKWARD: &str = "its\tend\r\u{2028}\u{2029}#\u{b}\u{c}\u{7}\0\u{85}\u{202e}\u{2066}";

/// `cargo xtask golden [--only rust,ts,…]`.
///
/// # Errors
/// An unknown language, or a compiler is missing.
pub(crate) fn run(options: &Options) -> Outcome {
    let only: Vec<&str> = options.text("only", "").split(',').filter(|word| !word.is_empty()).collect();
    if let Some(unknown) = only.iter().find(|word| LANGUAGES.iter().all(|(_, name)| name != *word)) {
        return Err(format!("no language {unknown}"));
    }
    let work = target().join("golden");
    let bench = Bench { root: root(), work };
    fs::create_dir_all(&bench.work).map_err(|e| format!("{}: {e}", bench.work.display()))?;
    write(&bench.work.join("anything.jsonc"), &words::schema())?;
    write(&bench.work.join("flowing.jsonc"), &FLOWING.replace("its end", AWKWARD))?;
    let mut tally = Tally::default();
    let chosen = LANGUAGES.iter().filter(|(_, name)| only.is_empty() || only.contains(name)).collect();
    let came =
        at_once::each(chosen, at_once::processors(), |(lang, name)| bench.judge_language(*lang, name))?;
    let mut judged = Vec::new();
    for (of_language, name, outcomes) in came {
        tally.add(of_language);
        judged.push((name, outcomes));
    }
    if let Some((first, rest)) = judged.split_first() {
        let frames = sorted(&bench.frames().join("refused"), "bin")?.len() + MUTATIONS;
        tally.check(first.1.lines().count() == frames, || format!("{} left no outcomes", first.0));
        for (name, outcomes) in rest {
            let mut both = first.1.lines().zip(outcomes.lines()).enumerate();
            let differ = both.find(|(_, (one, other))| one != other);
            tally.check(*outcomes == first.1, || {
                format!("{} and {name} do not agree about a frame: {differ:?}", first.0)
            });
        }
    }
    Ok(tally)
}

impl Bench {
    /// What came of a language: its checks, its name, and the outcomes of its mutated frames.
    fn judge_language<'a>(&self, lang: Language, name: &'a str) -> Result<(Tally, &'a str, String), String> {
        let mut tally = Tally::default();
        self.generate(lang, name)?;
        let outcomes = self.outcomes(name);
        let _ = fs::remove_file(&outcomes);
        match lang {
            Language::Rust => self.rust(&mut tally)?,
            Language::Ts => self.typescript(&mut tally)?,
            Language::Python => self.python(&mut tally)?,
            Language::Cpp => self.cpp(&mut tally)?,
            Language::Zig => self.zig(&mut tally)?,
            Language::Erlang => self.erlang(&mut tally)?,
        }
        Ok((tally, name, fs::read_to_string(outcomes).unwrap_or_default()))
    }

    fn outcomes(&self, name: &str) -> PathBuf {
        self.work.join(format!("{name}.outcomes"))
    }

    fn frames(&self) -> PathBuf {
        self.root.join("schemas/golden")
    }

    fn generated(&self, name: &str) -> PathBuf {
        self.root.join("schemas/generated").join(name)
    }

    fn judge(&self, path: &str) -> PathBuf {
        self.root.join("conformance/golden").join(path)
    }

    fn generate(&self, lang: Language, name: &str) -> Result<(), String> {
        let schemas = self.root.join("schemas");
        for (service, folder) in COMPILED.iter().zip([&schemas, &schemas, &self.work, &self.work]) {
            let out = self.work.join(service).join(name);
            let mut arguments = Arguments::new(folder.join(format!("{service}.jsonc")), lang, out);
            (arguments.client, arguments.server) = (true, true);
            // A name of C's library, which is free behind another.
            arguments.cpp_namespace =
                (*service == "flowing" && name == "cpp").then(|| "flowing::log".to_owned());
            thalweg_codegen::run(&arguments).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// What was generated of each service that is only compiled.
    fn compiled(&self, language: &str) -> [(&'static str, PathBuf); 4] {
        COMPILED.map(|service| (service, self.work.join(service).join(language)))
    }

    fn rust(&self, tally: &mut Tally) -> Result<(), String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&cargo);
        command.args([
            "test",
            "--quiet",
            "--package",
            "thalweg-codegen",
            "--test",
            "golden",
            "--test",
            "calls",
        ]);
        command.current_dir(&self.root).env("THALWEG_OUTCOMES", self.outcomes("rust"));
        passes(tally, "rust: the golden frames", &mut command)?;
        // Compiled by the same cargo: each is a crate of its own, on this checkout's runtime.
        for (service, folder) in self.compiled("rust") {
            let package = self.work.join(service).join("rust-crate");
            let manifest = format!(
                "[package]\nname = \"{service}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"{}\"\n\
                 [dependencies]\nthalweg-wire = {{ path = \"{}\" }}\n[workspace]\n",
                folder.join("mod.rs").display(),
                self.root.join("crates/wire").display()
            );
            write(&package.join("Cargo.toml"), &manifest)?;
            fs::copy(self.root.join("Cargo.lock"), package.join("Cargo.lock")).map_err(|e| e.to_string())?;
            let mut check = Command::new(&cargo);
            check.args(["check", "--quiet"]).current_dir(&package).env("RUSTFLAGS", "-D warnings");
            // Flags of its own would undo the workspace's cache.
            check.env("CARGO_TARGET_DIR", self.work.join("rust-target"));
            passes(tally, &format!("rust: {service} compile"), &mut check)?;
        }
        Ok(())
    }

    fn typescript(&self, tally: &mut Tally) -> Result<(), String> {
        let tsc = self.judge("node_modules/.bin/tsc");
        let out = self.work.join("ts");
        let project = self.judge("ts/tsconfig.json");
        passes(tally, "ts: tsc", Command::new(&tsc).arg("-p").arg(&project).arg("--outDir").arg(&out))?;
        write(&out.join("package.json"), "{ \"type\": \"module\" }\n")?;
        let mut node = Command::new("node");
        node.arg(out.join("conformance/golden/ts/golden.js")).arg(self.frames()).arg(self.outcomes("ts"));
        counts(tally, "golden-ts", &mut node)?;
        let settings = format!(
            "{{ \"extends\": \"{}\", \"compilerOptions\": {{ \"noEmit\": true, \"rootDir\": \".\" }}, \
             \"include\": [\"*.ts\"] }}\n",
            project.display()
        );
        for (service, folder) in self.compiled("ts") {
            write(&folder.join("tsconfig.json"), &settings)?;
            passes(tally, &format!("ts: {service} compile"), Command::new(&tsc).arg("-p").arg(folder))?;
        }
        Ok(())
    }

    fn python(&self, tally: &mut Tally) -> Result<(), String> {
        let tool = |name: &str| Command::new(cache().join("golden-python/bin").join(name));
        let mut judge = tool("python");
        judge.arg(self.judge("python/golden.py")).arg(self.frames()).arg(self.outcomes("python"));
        counts(tally, "golden-python", judge.arg(self.generated("python")))?;
        let compiled = self.compiled("python").map(|(_, folder)| folder);
        for folder in [self.generated("python")].into_iter().chain(compiled) {
            let mut black = tool("black");
            // By itself it passes over what version control ignores, and a folder of builds is.
            black.args(["--check", "--quiet", "--exclude", "/no-folder/"]);
            passes(tally, "python: black", black.arg(&folder))?;
            let mut mypy = tool("mypy");
            mypy.args(["--strict", "--no-incremental", "-p", "python"]).current_dir(folder.join(".."));
            passes(tally, "python: mypy", &mut mypy)?;
        }
        Ok(())
    }

    fn cpp(&self, tally: &mut Tally) -> Result<(), String> {
        let compiler = |include: &Path| {
            let mut command = Command::new("g++");
            command.args([
                "-std=c++20",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Wshadow",
                "-Wconversion",
                "-Werror",
            ]);
            command.arg("-I").arg(include);
            command
        };
        let program = self.work.join("golden-cpp");
        let mut build = compiler(&self.generated("cpp"));
        // A byte read too far, or arithmetic without a meaning, ends the run.
        build.args(["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        passes(tally, "cpp: g++", build.arg(self.judge("cpp/golden.cpp")).arg("-o").arg(&program))?;
        counts(tally, "golden-cpp", Command::new(program).arg(self.frames()).arg(self.outcomes("cpp")))?;
        for (service, folder) in self.compiled("cpp") {
            let source = self.work.join(service).join("all.cpp");
            // Behind the headers of C whose macros have names that a schema's words could have.
            let text = format!(
                "#include <bits/stdc++.h>\n#include <dirent.h>\n#include <net/if.h>\n#include <netdb.h>\n#include <netinet/in.h>\n\
                 #include <sys/msg.h>\n#include <sys/stat.h>\n#include <sys/sysmacros.h>\n#include <sys/time.h>\n\
                 #include \"{service}_client.hpp\"\n#include \"{service}_server.hpp\"\n"
            );
            write(&source, &text)?;
            let mut build = compiler(&folder);
            passes(tally, &format!("cpp: {service} compile"), build.arg("-fsyntax-only").arg(source))?;
        }
        let [_, forks, _, flowing] = self.compiled("cpp");
        let services = [&forks, &flowing].map(|(service, folder)| (*service, folder.as_path()));
        runtimes::judge(tally, &self.work, services)
    }

    /// By the compiler that the outcomes are compared with, and by the newest, which has others' library.
    fn zig(&self, tally: &mut Tally) -> Result<(), String> {
        let compiled = self.compiled("zig").map(|(_, folder)| folder);
        for folder in [self.generated("zig"), self.judge("zig")].into_iter().chain(compiled) {
            // The newest lays code out differently.
            passes(tally, "zig: fmt", self.zig_of("golden-python").args(["fmt", "--check"]).arg(folder))?;
        }
        write(&self.work.join("frames.zig"), &frames_in_zig(&self.frames())?)?;
        let newest = self.zig_by("zig-highest", "Debug", tally)?;
        let outcomes = self.zig_by("golden-python", "ReleaseSafe", tally)?;
        tally
            .check(newest == outcomes, || "zig: the newest compiler reads a mutation differently".to_owned());
        write(&self.outcomes("zig"), &outcomes)
    }

    fn zig_of(&self, compiler: &str) -> Command {
        let mut command = Command::new(cache().join(compiler).join("bin/python"));
        command.args(["-m", "ziglang"]).current_dir(&self.work);
        command
    }

    /// Judges with one compiler, and returns the outcomes.
    fn zig_by(&self, compiler: &str, optimized: &str, tally: &mut Tally) -> Result<String, String> {
        let module = |name: &str, path: PathBuf| format!("-M{name}={}", path.display());
        let program = format!("golden-zig-{compiler}");
        let mut build = self.zig_of(compiler);
        build.args(["build-exe", "-O", optimized, "--name", &program, "--dep", "echo", "--dep", "frames"]);
        build.arg(module("root", self.judge("zig/golden.zig")));
        build.arg(module("echo", self.generated("zig").join("echo.zig")));
        build.arg(module("frames", self.work.join("frames.zig")));
        passes(tally, &format!("{compiler}: build"), &mut build)?;
        let output = start(&mut Command::new(self.work.join(&program)))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_outcome =
            |line: &&str| line.starts_with("- ") || line.bytes().all(|byte| byte.is_ascii_hexdigit());
        let outcomes: String = text.lines().filter(is_outcome).map(|line| format!("{line}\n")).collect();
        let rest: Vec<&str> = text.lines().filter(|line| !is_outcome(line)).collect();
        count(tally, "golden-zig", &rest.join("\n"), output.status.success());
        for (service, folder) in self.compiled("zig") {
            let source = self.work.join(service).join("all.zig");
            write(&source, EVERY_CODEC)?;
            let mut build = self.zig_of(compiler);
            build.args(["build-obj", "-fno-emit-bin", "--dep", "all"]).arg(module("root", source));
            build.arg(module("all", folder.join(format!("{service}.zig"))));
            passes(tally, &format!("{compiler}: {service} compile"), &mut build)?;
        }
        Ok(outcomes)
    }

    fn erlang(&self, tally: &mut Tally) -> Result<(), String> {
        let beams = self.work.join("erlang");
        fs::create_dir_all(&beams).map_err(|e| e.to_string())?;
        let compile = |sources: Vec<PathBuf>| {
            let mut command = Command::new("erlc");
            command.args(["-Wall", "-Werror", "-pa"]).arg(&beams).arg("-o").arg(&beams).args(sources);
            command
        };
        let generated = sorted(&self.generated("erlang"), "erl")?;
        passes(tally, "erlang: erlc", &mut compile(generated))?;
        passes(tally, "erlang: erlc", &mut compile(vec![self.judge("erlang/golden.erl")]))?;
        let mut judge = Command::new("erl");
        judge.arg("-noshell").arg("-pa").arg(&beams).arg("-eval").arg(format!(
            "golden:main([{:?}, {:?}])",
            self.frames().display().to_string(),
            self.outcomes("erlang").display().to_string()
        ));
        counts(tally, "golden-erlang", &mut judge)?;
        for (service, folder) in self.compiled("erlang") {
            passes(tally, &format!("erlang: {service} compile"), &mut compile(sorted(&folder, "erl")?))?;
        }
        Ok(())
    }
}

/// The frames as a module, because reading files is spelt differently in each Zig.
///
/// # Errors
/// A frame cannot be read.
pub(crate) fn frames_in_zig(frames: &Path) -> Result<String, String> {
    let mut text = "pub const Frame = struct { name: []const u8, bytes: []const u8 };\n".to_owned();
    for (name, folder) in [("golden", ""), ("accepted", "accepted"), ("refused", "refused")] {
        let _ = writeln!(text, "pub const {name} = [_]Frame{{");
        for path in sorted(&frames.join(folder), "bin")? {
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let bytes: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            let _ = writeln!(text, "    .{{ .name = \"{stem}\", .bytes = \"{bytes}\" }},");
        }
        text.push_str("};\n");
    }
    Ok(text)
}

/// Files of a folder with this extension, by name.
fn sorted(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    Ok(paths)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, text))
        .map_err(|e| format!("{}: {e}", path.display()))
}

fn start(command: &mut Command) -> Result<Output, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|e| format!("{program}: {e}; `make tools` installs what is missing"))
}

/// One check: the command succeeds.
fn passes(tally: &mut Tally, what: &str, command: &mut Command) -> Result<(), String> {
    let output = start(command)?;
    tally.check(output.status.success(), || {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        format!("{what}\n{out}{err}")
    });
    Ok(())
}

/// As many checks as the judge says it made.
fn counts(tally: &mut Tally, name: &str, command: &mut Command) -> Result<(), String> {
    let output = start(command)?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    count(tally, name, &text, output.status.success());
    Ok(())
}

/// Adds the numbers of `name: N passed, N failed`.
fn count(tally: &mut Tally, name: &str, text: &str, succeeded: bool) {
    println!("{text}");
    let summary = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let numbers = summary.and_then(|line| {
        let (passed, failed) = line.split_once(" passed, ")?;
        Some((passed.parse::<u64>().ok()?, failed.strip_suffix(" failed")?.parse::<u64>().ok()?))
    });
    let (passed, failed) = numbers.unwrap_or((0, 1));
    tally.passed += passed;
    tally.failed += failed;
    // A judge that fails without saying so, or says nothing, has not judged.
    tally.check(succeeded == (failed == 0) && passed > 0, || format!("{name}: no summary it stands by"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_has_to_say_what_it_did() {
        let judged = |text: &str, succeeded: bool| {
            let mut tally = Tally::default();
            count(&mut tally, "golden-x", text, succeeded);
            (tally.passed, tally.failed)
        };
        assert_eq!(judged("noise\ngolden-x: 7 passed, 0 failed", true), (8, 0));
        assert_eq!(judged("golden-x: 7 passed, 1 failed", false), (8, 1));
        assert_eq!(judged("golden-x: 7 passed, 0 failed", false), (7, 1));
        assert_eq!(judged("golden-x: 0 passed, 0 failed", true), (0, 1));
        assert_eq!(judged("", true), (0, 2));
    }
}
