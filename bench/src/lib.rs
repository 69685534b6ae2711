//! What the measuring programs share. Owns how they read options from the command line, and lends the load's few lines of
//! HTTP framing; never knows what any of them measures.
#![forbid(unsafe_code)]

pub use thalweg_load::message;

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
