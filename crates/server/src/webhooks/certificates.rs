//! The authorities that calls over TLS trust, and how long they count: the system's certificates are read
//! again once they are an hour old, and on `SIGHUP`, so that one an operator adds or withdraws counts without
//! a restart. Knows no clock; checked by the tests below.

/// How long certificates count after they were read.
const GOOD_MS: u64 = 3_600_000;

/// Certificates of type `T`, once they were read.
#[derive(Debug)]
pub(super) struct Certificates<T> {
    /// What the read found that began last, and when it began.
    last: Option<(u64, T)>,
    /// When a new read was asked for. One that began until then may have seen the files as they were before.
    outdated_ms: Option<u64>,
}

impl<T> Certificates<T> {
    pub(super) fn new() -> Self {
        Self { last: None, outdated_ms: None }
    }

    /// Notes what a read found that began at `began_ms`, unless one that began later was noted before it.
    pub(super) fn read(&mut self, began_ms: u64, certificates: T) {
        if self.last.as_ref().is_none_or(|(last_ms, _)| *last_ms <= began_ms) {
            self.last = Some((began_ms, certificates));
        }
    }

    /// Has them read again before the next call.
    pub(super) fn outdate(&mut self, now_ms: u64) {
        self.outdated_ms = Some(now_ms);
    }

    /// The certificates, unless they have to be read again.
    pub(super) fn good(&self, now_ms: u64) -> Option<&T> {
        let (began_ms, certificates) = self.last.as_ref()?;
        let is_young = now_ms.saturating_sub(*began_ms) < GOOD_MS;
        let is_newer = self.outdated_ms.is_none_or(|outdated_ms| *began_ms > outdated_ms);
        (is_young && is_newer).then_some(certificates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_good_for_an_hour() {
        let mut certificates = Certificates::new();
        assert_eq!(certificates.good(0), None);
        certificates.read(5, "first");
        assert_eq!(certificates.good(4 + GOOD_MS), Some(&"first"));
        assert_eq!(certificates.good(5 + GOOD_MS), None);
        certificates.read(6 + GOOD_MS, "second");
        assert_eq!(certificates.good(6 + GOOD_MS), Some(&"second"));
    }

    #[test]
    fn only_a_read_that_began_after_the_files_changed_is_good() {
        let mut certificates = Certificates::new();
        certificates.read(5, "first");
        certificates.outdate(7);
        assert_eq!(certificates.good(8), None);
        certificates.read(7, "perhaps the first");
        assert_eq!(certificates.good(8), None, "it may have begun before");
        certificates.read(8, "second");
        assert_eq!(certificates.good(8), Some(&"second"));
    }

    #[test]
    fn a_read_that_is_reported_late_replaces_none_that_began_after_it() {
        let mut certificates = Certificates::new();
        certificates.outdate(7);
        certificates.read(8, "second");
        certificates.read(6, "first");
        assert_eq!(certificates.good(9), Some(&"second"));
    }
}
