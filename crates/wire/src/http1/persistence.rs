//! Whether a connection goes on behind a message (RFC 9112 9.3).

/// What the `Connection` fields of a message say about that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Persistence {
    closes: bool,
    keeps: bool,
}

impl Persistence {
    /// Takes up the value of one of them.
    pub(super) fn note(&mut self, value: &[u8]) {
        for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.closes |= token.eq_ignore_ascii_case(b"close");
            self.keeps |= token.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// It goes on: `close` counts before everything, and HTTP/1.0 (`legacy`) has to be told.
    pub(super) fn keeps_alive(self, legacy: bool) -> bool {
        !self.closes && (!legacy || self.keeps)
    }
}
