//! What the measuring programs share. Owns the plan that the command line asks for, the process at the far
//! end, clients that begin together, and the clock; lends the load's few lines of HTTP framing. Never knows
//! what any of them measures.
#![forbid(unsafe_code)]

pub mod far;
pub mod measure;
pub mod plan;

pub use thalweg_load::message;

/// What goes wrong here is only ever printed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The value behind `--name` on the command line, or the default.
///
/// # Errors
/// The text is no such value.
pub fn option<T: std::str::FromStr>(name: &str, default: T) -> Result<T, String> {
    let mut words = std::env::args().skip_while(|word| word != name).skip(1);
    match words.next() {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("{name} {text}: not a value it takes")),
    }
}
