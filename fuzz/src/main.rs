//! One program for every target; `THALWEG_FUZZ` names the one to run. libFuzzer brings `main`, the inputs and
//! the coverage.
//!
//! A target holds its parser to more than not to panic: to itself in pieces, to its own encoder, or to
//! another parser. `README.md` says which parser has which.
#![no_main]

mod http;
mod shared;
mod sse;
mod store;
mod terms;
mod text;
mod translate;
mod webhook;
mod wire;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

/// Every target by its name.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("http-request", http::request),
    ("http-response", http::response),
    ("http-chunked", http::chunked),
    ("http-answer", http::answer),
    ("json", text::json),
    ("jsonrpc", text::jsonrpc),
    ("schema", text::schema),
    ("names", text::names),
    ("messagepack", wire::messagepack),
    ("terms", terms::terms),
    ("frames", wire::frames),
    ("store", store::opened),
    ("store-resealed", store::resealed),
    ("log-formats", thalweg_log::fuzzing::formats),
    ("attached", shared::attached),
    ("rings", shared::rings),
    ("state", thalweg_state::fuzzing::opened),
    ("state-journal", thalweg_state::fuzzing::journal),
    ("requests", thalweg_streams::fuzzing::requests),
    ("subscription-notes", thalweg_streams::subscriptions::fuzzing::kept),
    ("subscription-patterns", thalweg_streams::subscriptions::fuzzing::patterns),
    ("webhook-targets", webhook::targets),
    ("sse-written", sse::written),
    ("sse-client", thalweg_server::fuzzing::events),
    ("sse-load", thalweg_load::fuzzing::events),
    ("load-records", thalweg_load::fuzzing::records),
    ("tokens", thalweg_server::fuzzing::tokens),
    ("configuration", thalweg_server::fuzzing::configuration),
    ("arguments", thalweg_server::fuzzing::arguments),
    ("globs", thalweg_server::fuzzing::globs),
    ("addresses", thalweg_server::fuzzing::addresses),
    ("translate-json", translate::json),
    ("translate-frames", translate::frames),
    ("service-cut", thalweg_service::fuzzing::cut),
    ("fork-lines", thalweg_fork::fuzzing::lines),
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
