//! `cargo xtask header`: the C header, from the functions and structs of `crates/abi`; with `--check`,
//! whether it is what is committed. What a C compiler makes of it is the C++ face's business.

use crate::harness::options::Options;
use crate::harness::server::root;
use crate::{Outcome, Tally};
use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, RenameRule, Style};
use std::fs;

const PATH: &str = "crates/abi/include/thalweg.h";

const HEAD: &str = "\
/* The C interface of typed services and of JSON-RPC. Written by `cargo xtask header` from crates/abi. Do not edit.
 *
 * Functions answer with a code of `enum thalweg_fault`, THALWEG_OK (0) when nothing went wrong; what exactly did is then in
 * `thalweg_error_detail()`. A client or server has no thread of its own: it is driven by turns, by waiting, or by `run`. It
 * may be used from any thread, but from one at a time; what may be used from several says so. Pointers to bytes and options
 * may be null where there are none. Handles that are null are THALWEG_BAD_ARGUMENT, freeing one is fine. */";

/// `cargo xtask header [--check]`.
///
/// # Errors
/// The sources do not parse, or the header cannot be written.
pub(crate) fn run(options: &Options) -> Outcome {
    let text = header()?;
    let file = root().join(PATH);
    let found = fs::read_to_string(&file).unwrap_or_default();
    let mut tally = Tally::default();
    if options.flag("check") {
        tally.check(text == found, || format!("{PATH} differs from crates/abi: run cargo xtask header"));
        return Ok(tally);
    }
    if text != found {
        fs::write(&file, text).map_err(|e| format!("{PATH}: {e}"))?;
        println!("{PATH}: written");
    }
    tally.passed += 1;
    Ok(tally)
}

fn header() -> Result<String, String> {
    let config = Config {
        language: Language::C,
        style: Style::Tag,
        header: Some(HEAD.to_owned()),
        include_guard: Some("THALWEG_H".to_owned()),
        includes: vec!["thalweg_faults.h".to_owned()],
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        no_includes: true,
        cpp_compat: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 100,
        usize_is_size_t: true,
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        export: ExportConfig { rename: renames(), ..ExportConfig::default() },
        ..Config::default()
    };
    let bindings = Builder::new()
        .with_src(root().join("crates/abi/src/lib.rs"))
        .with_config(config)
        .generate()
        .map_err(|e| format!("crates/abi: {e}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    // What Rust calls safety is in C what a function takes for granted.
    String::from_utf8(text).map(|text| text.replace("# Safety", "Requires:")).map_err(|e| e.to_string())
}

/// Types as C spells them.
fn renames() -> std::collections::HashMap<String, String> {
    let types = [
        "Answer",
        "CallOptions",
        "Client",
        "ClientOptions",
        "ClientState",
        "Event",
        "EventKind",
        "Exit",
        "ExitKind",
        "Flow",
        "Reply",
        "Request",
        "Rpc",
        "RpcAnswer",
        "RpcAsk",
        "RpcCall",
        "RpcDone",
        "RpcOptions",
        "RpcStatistics",
        "Server",
        "ServerOptions",
        "ServerStatistics",
        "SpawnOptions",
        "Spawned",
        "Stopper",
    ];
    types.iter().map(|name| (format!("Thalweg{name}"), format!("thalweg{}", snake(name)))).collect()
}

/// `_of_words` of `OfWords`.
fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut text, letter| {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_is_in_the_header() {
        let text = header().unwrap();
        for name in ["thalweg_client_open(", "struct thalweg_event {", "THALWEG_EVENT_KIND_END = 2"] {
            assert!(text.contains(name), "{name} is missing");
        }
        assert!(!text.contains(" Thalweg"), "a type's name is not as C spells it");
        assert_eq!(snake("EventKind"), "_event_kind");
    }
}
