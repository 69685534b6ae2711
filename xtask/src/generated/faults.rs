//! `cargo xtask faults`: the table of faults as every face has it, written from the one in `wire`; with
//! `--check`, says which files differ. What is written is committed, so that a face can be read and built
//! without this task.

mod c;
mod documents;
mod python;
mod scripts;
mod zig;

use crate::harness::options::Options;
use crate::harness::server::root;
use crate::{Outcome, Tally};
use std::fs;
use thalweg_wire::fault::Fault;

/// A file that holds the table, and what writes it.
type Table = (&'static str, fn() -> String);

const FILES: &[Table] = &[
    ("crates/abi/include/thalweg_faults.h", c::header),
    ("crates/codegen/runtime/cpp/faults.hpp", c::plus_plus),
    ("crates/codegen/runtime/zig/faults.zig", zig::module),
    ("faces/zig/src/faults.zig", zig::module),
    ("faces/node/lib/faults.js", scripts::javascript),
    ("faces/node/lib/faults.d.ts", scripts::typescript),
    ("faces/python/python/thalweg/faults.py", python::module),
    ("docs/faults.md", documents::page),
];

const NOTICE: &str = "Written by `cargo xtask faults` from crates/wire/src/fault.rs. Do not edit.";

/// `cargo xtask faults [--check]`.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    for (path, write) in FILES {
        let file = root().join(path);
        let (text, found) = (write(), fs::read_to_string(&file).unwrap_or_default());
        if options.flag("check") {
            tally.check(text == found, || format!("{path} differs from the table: run cargo xtask faults"));
            continue;
        }
        if text != found {
            let folder = file.parent().unwrap_or(&file);
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&file, &text))
                .map_err(|e| format!("{path}: {e}"))?;
            println!("{path}: written");
        }
        tally.passed += 1;
    }
    Ok(tally)
}

/// The name in capitals.
fn shout(fault: Fault) -> String {
    fault.word().to_uppercase()
}

/// One line per fault, between what comes before and after all of them.
fn lines(line: impl Fn(Fault) -> String) -> String {
    Fault::ALL.iter().map(|fault| line(*fault) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_names_every_fault() {
        for (path, write) in FILES {
            let text = write();
            assert!(text.contains("cargo xtask faults"), "{path}");
            for fault in Fault::ALL {
                let named =
                    [fault.word().to_owned(), shout(*fault)].iter().any(|name| text.contains(name.as_str()));
                assert!(named, "{path} lacks {fault:?}");
            }
        }
    }
}
