//! The table in C, as constants beside the functions that answer with them, and in C++.

use super::{NOTICE, lines, shout};
use std::fmt::Write as _;
use thalweg_wire::fault::Fault;

pub(super) fn header() -> String {
    let rows = lines(|fault| {
        format!("    /** {} */\n    THALWEG_{} = {},", fault.meaning(), shout(fault), fault as u16)
    });
    format!(
        "/* What can go wrong, by code. {NOTICE} */\n\
         #ifndef THALWEG_FAULTS_H\n#define THALWEG_FAULTS_H\n\n\
         /** What a function of thalweg.h answers. Codes are never reused; a newer library may know more of them. */\n\
         enum thalweg_fault {{\n    /** Nothing went wrong. */\n    THALWEG_OK = 0,\n{rows}}};\n\n#endif\n"
    )
}

pub(super) fn plus_plus() -> String {
    let mut text = format!(
        "// What can go wrong with a call. {NOTICE}\n#include \"runtime.hpp\"\n\n#ifndef THALWEG_FAULTS_HPP\n#define THALWEG_FAULTS_HPP\n\n"
    );
    text.push_str("#include <cstdint>\n#include <string_view>\n\n");
    text.push_str("namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {\n\n");
    text.push_str("/// What went wrong. Codes are never reused; a newer library may know more of them.\n");
    let rows =
        lines(|fault| format!("    /// {}\n    {} = {},", fault.meaning(), fault.word(), fault as u16));
    let _ = writeln!(text, "enum class Fault : std::uint16_t {{\n{rows}}};\n");
    text.push_str(
        "/// Whether the same call may be made again: never (it would go wrong again), safe (it was not carried out),\n\
         /// unknown (it may have been).\nenum class Retry : std::uint8_t { never, safe, unknown };\n\n",
    );
    let mut function = |doc: &str, head: &str, row: &dyn Fn(Fault) -> String, otherwise: &str| {
        let rows = lines(|fault| format!("    case Fault::{}: return {};", fault.word(), row(fault)));
        let _ = writeln!(
            text,
            "/// {doc}\nconstexpr {head}(Fault fault) {{\n    switch (fault) {{\n{rows}    }}\n    return {otherwise};\n}}\n"
        );
    };
    let quoted = |text: &str| format!("\"{text}\"");
    let name = "std::string_view";
    function("Its name.", &format!("{name} word"), &|fault| quoted(fault.word()), "\"unknown\"");
    function(
        "One sentence for people.",
        &format!("{name} says"),
        &|fault| quoted(fault.says()),
        "\"a fault of a newer version\"",
    );
    let retry = |fault: Fault| format!("Retry::{}", fault.retry().word());
    function("Whether the same call may be made again.", "Retry retry", &retry, "Retry::unknown");
    function(
        "The HTTP status that says the same.",
        "int http_status",
        &|f| f.http_status().to_string(),
        "500",
    );
    function(
        "The JSON-RPC code that says the same.",
        "int rpc_code",
        &|f| f.rpc_code().to_string(),
        "-32603",
    );
    text.push_str("} // namespace thalweg\n\n#endif\n");
    text
}
