//! Calls that do not wait, made again when a signal came between.

use rustix::io::{Errno, retry_on_intr};
use std::io;

/// What such a call came to; `None` when it would have had to wait.
pub(crate) fn unless_it_would_wait<T>(call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<Option<T>> {
    match retry_on_intr(call) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_call_made_again_and_nothing_else_does() {
        let outcome = |said: &[rustix::io::Result<u8>]| {
            let mut calls = said.iter();
            let outcome = unless_it_would_wait(|| *calls.next().unwrap());
            (outcome.map_err(|error| error.kind()), calls.len())
        };
        assert_eq!(outcome(&[Err(Errno::INTR), Err(Errno::INTR), Ok(7), Ok(8)]), (Ok(Some(7)), 1));
        assert_eq!(outcome(&[Err(Errno::INTR), Err(Errno::AGAIN), Ok(8)]), (Ok(None), 1));
        assert_eq!(outcome(&[Err(Errno::PIPE), Ok(8)]), (Err(io::ErrorKind::BrokenPipe), 1));
    }
}
