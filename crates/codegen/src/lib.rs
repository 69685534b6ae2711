//! A validated service to source in six languages. Owns one emitter per language, the runtime files some of
//! them need, and the safe writing of output; never knows the schema's syntax, or how a frame travels.
//!
//! Generated code stands on a few words only: frames out, frames in (`crates/wire/src/service.rs` for Rust, a
//! file written beside the output for the others). What is generated is a plain function of schema and
//! options, so that it can be committed and compared.
//!
//! *Checked by* `cargo xtask golden`: every language's own compiler, formatter and the golden frames, their
//! prefixes and their mutations; `cargo xtask codegen --check` compares what is committed.
#![forbid(unsafe_code)]

mod arguments;
mod borrowing;
mod cpp;
mod erlang;
mod names;
mod output;
mod package;
mod python;
mod records;
mod rust;
mod text;
mod typescript;
mod zig;

pub use arguments::{Arguments, Language};
pub use output::{Difference, Report};

use names::Names;
use std::fs;
use thalweg_schema::Service;
use thiserror::Error;

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where, below the output directory, with `/` between parts.
    pub path: String,
    /// What.
    pub text: String,
}

/// Why nothing was generated.
#[derive(Debug, Error)]
pub enum Error {
    /// The schema breaks rules.
    #[error("{0}")]
    Schema(#[from] thalweg_schema::Problems),
    /// Options that do not go together.
    #[error("{0}")]
    Options(String),
    /// There is no `rustfmt`.
    #[error(
        "rustfmt lays generated Rust out, and did not start: {0}; `rustup component add rustfmt` installs it"
    )]
    NoLayout(std::io::Error),
    /// Rust that `rustfmt` refused.
    #[error("rustfmt lays generated Rust out, and refused it: {0}")]
    Layout(String),
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A file stands where one would be written, and the generator did not write it.
    #[error("{0} was not written by the generator: move it away, or choose another --out")]
    Foreign(String),
    /// The directory is another service's, or another language's.
    #[error("{out} holds the code of {owner}, which would be removed: choose another --out")]
    Occupied {
        /// The directory.
        out: String,
        /// What its files were generated of.
        owner: String,
    },
}

/// Reads the schema, generates, and writes what changed.
///
/// # Errors
/// The schema or the options are wrong, or a file cannot be read or written; then nothing was changed, or,
/// when the disk failed in between, each file is as before or as it should be.
pub fn run(arguments: &Arguments) -> Result<Report, Error> {
    let (owner, files) = files(arguments)?;
    output::write(&arguments.out, &owner, &files)
}

/// What [`run`] would change.
///
/// # Errors
/// As [`run`].
pub fn check(arguments: &Arguments) -> Result<Vec<Difference>, Error> {
    let (owner, files) = files(arguments)?;
    output::compare(&arguments.out, &owner, &files)
}

/// The files, and of what they are: the service and the language.
fn files(arguments: &Arguments) -> Result<(String, Vec<File>), Error> {
    let path = arguments.schema.display().to_string();
    let bytes = fs::read(&arguments.schema).map_err(|error| Error::File { path: path.clone(), error })?;
    let service = thalweg_schema::parse_bytes(&path, &bytes)?;
    let owner = format!("{} for {}", service.name, arguments.lang.name());
    Ok((owner, generate(&service, arguments)?))
}

/// The files for a service.
///
/// # Errors
/// Options that do not go together, or do not fit the service; for Rust, that there is no `rustfmt`.
pub fn generate(service: &Service, arguments: &Arguments) -> Result<Vec<File>, Error> {
    arguments.check(service).map_err(Error::Options)?;
    let names = Names::new(service, arguments);
    let mut files = match arguments.lang {
        Language::Cpp => cpp::emit(service, &names),
        Language::Rust => rust::emit(service, &names)?,
        Language::Ts => typescript::emit(service, &names),
        Language::Python => python::emit(service, &names),
        Language::Zig => zig::emit(service, &names),
        Language::Erlang => erlang::emit(service, &names),
    };
    if arguments.package.is_some() {
        files.extend(package::emit(service, &names));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
