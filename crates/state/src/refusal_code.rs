//! Refusal codes: the codes that refusals begin with. Part of the interface, the same in every language.

use std::fmt;

macro_rules! refusal_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Why the state did not do what was asked. But for [`RefusalCode::Unknown`], nothing was changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RefusalCode {
            $($(#[doc = $doc])+ $name,)+
        }

        impl RefusalCode {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// As it is written.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

refusal_codes! {
    /// No such fork: dropped, or never made.
    NoFork = "no_fork",
    /// The main line cannot be dropped.
    MainLine = "main_line",
    /// There are as many streams as there may be, forks among them.
    TooManyForks = "too_many_forks",
    /// Neither a fork nor a session; or a session where a fork is asked for.
    BadPlace = "bad_place",
    /// A view of a session, which sees one state.
    BadView = "bad_view",
    /// A key that cannot be.
    BadKey = "bad_key",
    /// Nothing to roll back.
    NoSnapshot = "no_snapshot",
    /// Others committed to the fork since the snapshot, or it does not end where a batch expects.
    Conflict = "conflict",
    /// Something else is there than was expected.
    RootMismatch = "root_mismatch",
    /// No commit of the fork ended at that offset, or what led to it was let go of.
    NoState = "no_state",
    /// The server that gave the token has ended.
    SessionLost = "session_lost",
    /// The lease ended, or the session was closed.
    SessionExpired = "session_expired",
    /// As many sessions are open as may be, or they hold as much as they may.
    SessionsFull = "sessions_full",
    /// A lease that cannot be.
    BadLease = "bad_lease",
    /// More than a session may hold beside its snapshot.
    TooMuch = "too_much",
    /// The log does not take the commit.
    NotTaken = "not_taken",
    /// The disk failed, and whether the commit lasts is not known.
    Unknown = "unknown",
    /// A log of the state's names holds something else.
    Foreign = "foreign",
    /// The log cannot be read.
    Unreadable = "unreadable",
}

impl RefusalCode {
    /// The code that the message of a refusal begins with.
    pub fn of(message: &str) -> Option<Self> {
        let (code, _) = message.split_once(": ")?;
        Self::ALL.iter().copied().find(|known| known.text() == code)
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_begins_with_its_code() {
        for code in RefusalCode::ALL {
            assert_eq!(RefusalCode::of(&format!("{code}: and why")), Some(*code));
        }
        assert_eq!(RefusalCode::of("because: of that"), None);
        assert_eq!(RefusalCode::of("conflict"), None);
    }

    #[test]
    fn every_code_stands_in_the_documents() {
        let page = include_str!("../../../docs/state.md");
        for code in RefusalCode::ALL {
            assert!(page.contains(&format!("| `{code}` |")), "{code}");
        }
    }
}
