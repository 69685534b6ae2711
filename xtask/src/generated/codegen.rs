//! `cargo xtask codegen`: writes what is generated from the schemas and committed; with `--check`, says how
//! it differs.

use crate::harness::options::Options;
use crate::harness::server::root;
use crate::{Outcome, Tally};
use std::path::PathBuf;
use thalweg_codegen::{Arguments, Language};

/// Every language, with the folder its output is committed in.
pub(crate) const LANGUAGES: [(Language, &str); 6] = [
    (Language::Rust, "rust"),
    (Language::Ts, "ts"),
    (Language::Python, "python"),
    (Language::Cpp, "cpp"),
    (Language::Zig, "zig"),
    (Language::Erlang, "erlang"),
];

/// What comes with generated code and stands in a face as it is.
const COPIES: [(&str, &str); 2] = [
    ("crates/codegen/runtime/python/forks.py", "faces/python/python/thalweg/forks.py"),
    ("crates/codegen/runtime/python/service.py", "faces/python/python/thalweg/calls.py"),
];

/// Everything that is committed: where it is, and what makes it.
fn outputs() -> Vec<(String, Arguments)> {
    let schema = |name: &str| root().join("schemas").join(name);
    let whole = |schema: PathBuf, lang, out: &str| Arguments {
        client: true,
        server: true,
        ..Arguments::new(schema, lang, root().join(out))
    };
    let examples = LANGUAGES.map(|(lang, folder)| {
        let out = format!("schemas/generated/{folder}");
        (out.clone(), whole(schema("echo.jsonc"), lang, &out))
    });
    let log = "crates/server/src/services/generated";
    let log = (log.to_owned(), whole(schema("log.jsonc"), Language::Rust, log));
    let state = "crates/state/src/generated";
    let state = (state.to_owned(), whole(schema("state.jsonc"), Language::Rust, state));
    let forks = "crates/fork/src/generated";
    let forks = (forks.to_owned(), whole(schema("forks.jsonc"), Language::Rust, forks));
    // Both ends of what runs Python for Erlang are machine code.
    let python = ["faces/erlang/native/generated", "faces/python/src/worker/generated"].map(|out| {
        (out.to_owned(), Arguments::new(schema("python.jsonc"), Language::Rust, root().join(out)))
    });
    let erlang = "faces/erlang/src/generated";
    let calls = Arguments {
        client: true,
        ..Arguments::new(schema("log.jsonc"), Language::Erlang, root().join(erlang))
    };
    let erlang = (erlang.to_owned(), calls);
    examples.into_iter().chain([log, state, forks, erlang]).chain(python).collect()
}

/// `cargo xtask codegen [--check]`.
///
/// # Errors
/// A schema is wrong, or a file cannot be read or written.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    for (out, arguments) in outputs() {
        if options.flag("check") {
            let differences = thalweg_codegen::check(&arguments).map_err(|e| e.to_string())?;
            tally.check(differences.is_empty(), || {
                format!("{out}: {differences:?}; run cargo xtask codegen and look at the difference")
            });
        } else {
            let report = thalweg_codegen::run(&arguments).map_err(|e| e.to_string())?;
            println!("{out}: {} written", report.written.len());
            tally.check(report.kept.is_empty(), || {
                format!("{out}: no longer generated, but changed by hand: {:?}", report.kept)
            });
        }
    }
    for (from, to) in COPIES {
        let read = |path: &str| std::fs::read(root().join(path)).map_err(|error| format!("{path}: {error}"));
        let (original, copy) = (read(from)?, read(to)?);
        if options.flag("check") {
            tally.check(original == copy, || {
                format!("{to} is to be as {from}; run cargo xtask codegen and look at the difference")
            });
        } else if original != copy {
            std::fs::write(root().join(to), &original).map_err(|error| format!("{to}: {error}"))?;
            println!("{to}: written");
        }
    }
    Ok(tally)
}
