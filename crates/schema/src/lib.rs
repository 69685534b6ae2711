//! Schema text to one validated description of a service. Owns the JSONC syntax, the rules of
//! `docs/schema.md`, the canonical form and its hash; never knows files, target languages' syntax (only which
//! words they reserve), or how a message travels.
//!
//! [`parse`] either returns a [`Service`] that every emitter may take at its word, or says everything that is
//! wrong at once. A [`Service`] keeps declaration order, refers to its own types by name, and contains no
//! type that contains itself, so a decoder's depth is fixed.
#![forbid(unsafe_code)]

mod canonical;
pub mod casing;
mod check;
mod elsewhere;
mod index;
mod jsonc;
mod model;
mod problem;
mod reference;
mod words;

pub use check::prefix_clash;
pub use model::{Access, Alias, Command, Enum, Field, Int, Message, Schedule, Service, Struct, Type};
pub use problem::{Problem, Problems};
pub use words::{is_word_of, reserves_command, reserves_service};

/// Reads a schema. `file` names it in messages.
///
/// ```
/// let text = r#"{
///     // Says things back.
///     "service": "Echo",
///     "error": { "message": "string" },
///     "commands": { "Bytes": { "request": { "data": "bytes" }, "response": { "data": "bytes" } } },
/// }"#;
/// let service = thalweg_schema::parse("echo.jsonc", text)?;
/// assert_eq!(service.doc, "Says things back.");
/// assert_eq!(service.commands[0].request.tag, "EchoBytes");
///
/// let problems = thalweg_schema::parse("echo.jsonc", &text.replace("\"bytes\" }", "\"byte\" }")).unwrap_err();
/// assert_eq!(problems.list.len(), 2);
/// assert_eq!(problems.list[0].hint, "did you mean \"bytes\"?");
/// # Ok::<(), thalweg_schema::Problems>(())
/// ```
///
/// # Errors
/// Every rule the text breaks, each with its place; a text that is no JSONC is one problem.
pub fn parse(file: &str, text: &str) -> Result<Service, Problems> {
    let root = jsonc::parse(text).map_err(|finding| problem::report(file, text, vec![finding]))?;
    check::service(&root).map_err(|findings| problem::report(file, text, findings))
}

/// The same for what was read from a file, which may be no text.
///
/// ```
/// let problems = thalweg_schema::parse_bytes("echo.jsonc", b"{\n \xff").unwrap_err();
/// assert!(problems.to_string().starts_with("echo.jsonc:2:2: expected UTF-8"));
/// ```
///
/// # Errors
/// As [`parse`]; bytes that are no UTF-8, with their place.
pub fn parse_bytes(file: &str, bytes: &[u8]) -> Result<Service, Problems> {
    let text = std::str::from_utf8(bytes).map_err(|wrong| {
        let (before, rest) = bytes.split_at(wrong.valid_up_to());
        let what = format!("expected UTF-8, found the byte 0x{:02x}", rest.first().unwrap_or(&0));
        let finding = problem::Finding::at(before.len(), what, "save the file as UTF-8");
        problem::report(file, &String::from_utf8_lossy(before), vec![finding])
    })?;
    parse(file, text)
}
