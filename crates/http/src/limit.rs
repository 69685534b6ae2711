//! The limits that connections and requests may meet. Each is counted, and warned of, under a name of its
//! own, for what helps against one does nothing about another.

/// A bound that a connection or a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Connections, in all.
    Connections,
    /// Descriptors of the process.
    Descriptors,
    /// TLS handshakes under way.
    Handshakes,
    /// Connections that follow a topic.
    Subscribers,
    /// Bytes of bodies that are arriving: slow bodies are answered 408; where none is slow, one that needs
    /// more is refused.
    Bodies,
    /// Writes that wait for the store.
    Writes,
    /// Reads that wait for the disk.
    ColdReads,
    /// Bytes that readers have not taken, and slow readers made no room: further reads are refused.
    Unsent,
    /// The same: slow readers are cut to make room, and a quarter beyond the bound the slowest, however slow
    /// they are.
    SlowestCut,
    /// Time in which a peer took less than 16 KiB, or less than a 64th of a larger answer.
    Stalled,
    /// One of the service's own.
    Service,
}

impl Limit {
    /// How many there are.
    pub const COUNT: usize = 11;

    /// All of them, each at its own number.
    pub const ALL: [Limit; Limit::COUNT] = [
        Self::Connections,
        Self::Descriptors,
        Self::Handshakes,
        Self::Subscribers,
        Self::Bodies,
        Self::Writes,
        Self::ColdReads,
        Self::Unsent,
        Self::SlowestCut,
        Self::Stalled,
        Self::Service,
    ];

    /// What it is called: where requests are refused because of it, the code of that refusal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "too-many-connections",
            Self::Descriptors => "no-descriptors",
            Self::Handshakes => "too-many-handshakes",
            Self::Subscribers => "too-many-subscribers",
            Self::Bodies => "too-many-bodies",
            Self::Writes => "too-many-writes",
            Self::ColdReads => "reads-overloaded",
            Self::Unsent => "too-much-unsent",
            Self::SlowestCut => "slowest-cut",
            Self::Stalled => "peer-stalled",
            Self::Service => "status-429",
        }
    }

    /// What was done because of it, and what an operator may do.
    pub(crate) const fn said(self) -> &'static str {
        match self {
            Self::Connections => "refused: there are as many connections as there may be (connections_max)",
            Self::Descriptors => "refused: no descriptor left; raise the limit (ulimit -n, LimitNOFILE=)",
            Self::Handshakes => "refused: as many TLS handshakes are under way as there may be",
            Self::Subscribers => "refused: there are as many subscribers as there may be (subscribers_max)",
            Self::Bodies => {
                "slow bodies are cut, and where none is slow, bodies refused: those that are arriving take all \
                 there is for them (bodies_max_bytes)"
            }
            Self::Writes => "refused: as many writes wait for the store as may (writes_max)",
            Self::ColdReads => "refused: as many reads wait for the disk as may",
            Self::Unsent => {
                "refused: readers leave more unread than is kept for them, and cutting slow ones made too \
                 little room (unsent_max_bytes)"
            }
            Self::SlowestCut => {
                "the slowest readers are cut: readers leave more unread than is kept for them \
                 (unsent_max_bytes)"
            }
            Self::Stalled => {
                "cut: peers took neither 16 KiB nor a 64th of what they are sent in time (stall_timeout_ms)"
            }
            Self::Service => "refused with 429: there is as much as there may be (streams_max and the like)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_number_and_a_name_of_its_own() {
        for (number, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number);
            assert!(Limit::ALL[..number].iter().all(|other| other.name() != limit.name()), "{limit:?}");
        }
    }
}
