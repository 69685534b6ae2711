//! `cargo xtask codegen`: writes what is generated from the schemas and committed; with `--check`, says how it differs.

use crate::options::Options;
use crate::server::root;
use crate::{Outcome, Tally};
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

/// `cargo xtask codegen [--check]`.
///
/// # Errors
/// A schema is wrong, or a file cannot be read or written.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    let schemas = root().join("schemas");
    for (lang, folder) in LANGUAGES {
        let out = schemas.join("generated").join(folder);
        let mut arguments = Arguments::new(schemas.join("echo.jsonc"), lang, out);
        (arguments.client, arguments.server) = (true, true);
        if options.flag("check") {
            let differences = thalweg_codegen::check(&arguments).map_err(|e| e.to_string())?;
            tally.check(differences.is_empty(), || {
                format!("schemas/generated/{folder}: {differences:?}; run cargo xtask codegen and look at the difference")
            });
        } else {
            let report = thalweg_codegen::run(&arguments).map_err(|e| e.to_string())?;
            println!("schemas/generated/{folder}: {} written", report.written.len());
            tally.check(report.kept.is_empty(), || {
                format!("{folder}: no longer generated, but changed by hand: {:?}", report.kept)
            });
        }
    }
    Ok(tally)
}
