//! One program for every target; `THALWEG_FUZZ` names the one to run. libFuzzer brings `main`, the inputs and the coverage.
//!
//! A target holds its parser to more than not to panic: to itself in pieces, to its own encoder, or to another parser.
#![no_main]

mod http;
mod store;
mod terms;
mod text;
mod wire;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

/// Every target by its name.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("http-request", http::request),
    ("http-response", http::response),
    ("http-chunked", http::chunked),
    ("json", text::json),
    ("jsonrpc", text::jsonrpc),
    ("schema", text::schema),
    ("names", text::names),
    ("messagepack", wire::messagepack),
    ("terms", terms::terms),
    ("frames", wire::frames),
    ("store", store::opened),
];

fn target() -> fn(&[u8]) {
    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let wanted = std::env::var("THALWEG_FUZZ").unwrap_or_default();
        let found = TARGETS.iter().find(|(name, _)| *name == wanted);
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        found.unwrap_or_else(|| panic!("THALWEG_FUZZ names none of {}", names.join(", "))).1
    })
}

fuzz_target!(|data: &[u8]| target()(data));
