//! Load for the benchmarks. Owns a closed-loop HTTP client that costs as little as it can (one thread, one
//! epoll, one send and one receive per operation) and the few lines of HTTP framing that it shares with the
//! floor; never knows which server it speaks to.
#![forbid(unsafe_code)]

pub mod histogram;
pub mod message;

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
