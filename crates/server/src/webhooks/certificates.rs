//! What calls that are encrypted trust, and for how long that is good: the system's certificates are read
//! anew once they are older than an hour, so that those an operator adds or withdraws count without a
//! restart. Knows no clock; checked by the test below.

/// For how long what was read is good.
const GOOD_MS: u64 = 3_600_000;

/// Certificates of type `T`, once they were read.
pub(super) struct Certificates<T>(Option<(u64, T)>);

impl<T> Certificates<T> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    /// They were read.
    pub(super) fn read(&mut self, now_ms: u64, certificates: T) {
        self.0 = Some((now_ms, certificates));
    }

    /// Those that need not be read anew.
    pub(super) fn good(&self, now_ms: u64) -> Option<&T> {
        self.0.as_ref().filter(|(read_ms, _)| now_ms.saturating_sub(*read_ms) < GOOD_MS).map(|(_, some)| some)
    }

    /// Those that were read last: for whoever asked for them to be read a moment ago.
    pub(super) fn last(&self) -> Option<&T> {
        self.0.as_ref().map(|(_, some)| some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_good_for_an_hour() {
        let mut certificates = Certificates::new();
        assert_eq!((certificates.good(0), certificates.last()), (None, None));
        certificates.read(5, "first");
        assert_eq!(certificates.good(4 + GOOD_MS), Some(&"first"));
        assert_eq!((certificates.good(5 + GOOD_MS), certificates.last()), (None, Some(&"first")));
        certificates.read(6 + GOOD_MS, "second");
        assert_eq!(certificates.good(6 + GOOD_MS), Some(&"second"));
    }
}
