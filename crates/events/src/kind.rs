//! The table of kinds. Numbers are for good: other languages and other processes name kinds by them.

use std::fmt::Write;

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// As it is called in Python.
    pub name: &'static str,
    /// What comes with it.
    pub payload: &'static str,
    /// What posts it.
    pub posted_by: &'static str,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $number:literal, $name:literal, $payload:literal, $by:literal;)+) => {
        /// What an event is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[doc = $doc])+ $kind = $number,)+
        }

        /// Every kind, in the order of the numbers.
        pub const ROWS: &[Row] = &[
            $(Row { kind: Kind::$kind, name: $name, payload: $payload, posted_by: $by },)+
        ];

        impl Kind {
            /// The kind of a number; `None`: there is none.
            ///
            /// ```
            /// use thalweg_events::Kind;
            /// assert_eq!(Kind::of(20), Some(Kind::ProcessExit));
            /// assert_eq!(Kind::of(4), None);
            /// ```
            #[inline]
            pub const fn of(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A descriptor can be read from.
    Readable = 1, "READABLE", "the descriptor", "the loop, for a descriptor that `Mailbox.watch` was given; a router";
    /// A descriptor can be written to.
    Writable = 2, "WRITABLE", "the descriptor", "the same";
    /// A timer came due.
    Timer = 3, "TIMER", "none", "the loop's timers, for `Mailbox.timer`";
    /// A call was answered.
    CallResult = 10, "CALL_RESULT", "the frame that answers it; the answer",
        "the loop, for `Mailbox.call`; the code that answers elsewhere, for `Mailbox.future`";
    /// A call failed.
    CallError = 11, "CALL_ERROR", "an exception", "the same";
    /// Work done elsewhere came to its end, or to its next piece.
    AsyncResult = 12, "ASYNC_RESULT", "the result; none for a log that moved",
        "the code that does the work, for `Mailbox.future`; the thread that commits, for a log's tail";
    /// Work done elsewhere failed.
    AsyncError = 13, "ASYNC_ERROR", "an exception", "the code that does the work, for `Mailbox.future`";
    /// A process ended; everything that it wrote before has been told.
    ProcessExit = 20, "PROCESS_EXIT", "the exit status, negative for a signal", "the loop, for `Mailbox.process`";
    /// A process wrote to its standard output.
    ProcessOutput = 21, "PROCESS_OUTPUT", "the bytes", "the same";
    /// A process wrote to its standard error.
    ProcessErrors = 22, "PROCESS_ERRORS", "the bytes", "the same";
    /// Bytes came.
    SocketData = 30, "SOCKET_DATA", "the bytes", "the loop, for `Mailbox.socket`; a router";
    /// The peer sends nothing more.
    SocketClosed = 31, "SOCKET_CLOSED", "none", "the same";
    /// The connection broke.
    SocketError = 32, "SOCKET_ERROR", "an `OSError`", "the same";
}

impl Kind {
    /// The number, for good.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether a second one beside one that waits would say nothing new.
    #[inline]
    pub const fn says_the_same_twice(self) -> bool {
        matches!(self, Self::Readable | Self::Writable)
    }

    /// Whether it says that something went wrong, with an exception for payload.
    #[inline]
    pub const fn is_error(self) -> bool {
        matches!(self, Self::CallError | Self::AsyncError | Self::SocketError)
    }

    /// Whether it is the one answer that a future waits for.
    #[inline]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::CallResult | Self::CallError | Self::AsyncResult | Self::AsyncError)
    }
}

/// The table as the documentation has it.
pub fn table() -> String {
    let mut text = String::from("| number | kind | payload | posted by |\n|---|---|---|---|\n");
    for Row { kind, name, payload, posted_by } in ROWS {
        let _ = writeln!(text, "| {} | `{name}` | {payload} | {posted_by} |", kind.number());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_lead_back_to_their_kinds() {
        assert!(ROWS.windows(2).all(|pair| pair[0].kind.number() < pair[1].kind.number()));
        let named: Vec<u8> = (0..=u8::MAX).filter(|number| Kind::of(*number).is_some()).collect();
        let rows: Vec<u8> = ROWS.iter().map(|row| row.kind.number()).collect();
        assert_eq!(named, rows);
        assert_eq!(rows, [1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 30, 31, 32]);
        assert!(ROWS.iter().all(|row| Kind::of(row.kind.number()) == Some(row.kind)));
    }

    #[test]
    fn the_documentation_has_this_very_table() {
        let document = include_str!("../../../docs/loop.md");
        assert!(document.contains(&table()), "docs/loop.md is to contain:\n{}", table());
    }
}
