//! How a connection is named, what it wants to hear of, and what is heard.

use thalweg_sys::epoll::{Event, Watch};

/// Names one connection for as long as it lives: a slab slot and the generation that lives in it. Also
/// the epoll token. A key outlives its connection harmlessly: from then on it finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// The place in the slab: of connections there at the same time no two have the same.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// The key as one word.
    pub fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The key a word stands for.
    pub fn from_token(token: u64) -> Self {
        // The slot is the low half, the generation the high half: both casts keep exactly their half.
        Self { slot: token as u32, generation: (token >> 32) as u32 }
    }
}

/// What a descriptor is ready for. Hang-up and error come whether asked for or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    bits: u8,
}

impl Readiness {
    const READABLE: u8 = 1;
    const WRITABLE: u8 = 2;
    const HANGUP: u8 = 4;
    const ERROR: u8 = 8;

    pub(crate) fn of(event: Event) -> Self {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let bits = bit(event.readable, Self::READABLE)
            | bit(event.writable, Self::WRITABLE)
            | bit(event.hangup, Self::HANGUP)
            | bit(event.error, Self::ERROR);
        Self { bits }
    }

    /// A read will not block: data, the end of the stream, or a connection to accept.
    pub fn readable(self) -> bool {
        self.bits & Self::READABLE != 0
    }

    /// A write will not block.
    pub fn writable(self) -> bool {
        self.bits & Self::WRITABLE != 0
    }

    /// Both directions are shut: nothing can be sent any more. (A peer that only stopped sending shows as
    /// readable, and a read then finds the end.)
    pub fn hangup(self) -> bool {
        self.bits & Self::HANGUP != 0
    }

    /// An error is pending on the descriptor.
    pub fn error(self) -> bool {
        self.bits & Self::ERROR != 0
    }
}

/// What to be told of. With [`Interest::NONE`] a hang-up or an error is still reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    bits: u8,
}

impl Interest {
    /// Neither.
    pub const NONE: Self = Self { bits: 0 };
    /// Reading.
    pub const READ: Self = Self { bits: 1 };
    /// Writing.
    pub const WRITE: Self = Self { bits: 2 };
    /// Both.
    pub const BOTH: Self = Self { bits: 3 };
    /// Nothing; a hang-up or an error is reported once, and not again every turn.
    pub const ONCE: Self = Self { bits: 8 };
    /// Accepting from a listener that several reactors share: each connection wakes about one of them.
    pub const SHARED_LISTENER: Self = Self { bits: 5 };

    /// Whether reading is among it.
    pub fn readable(self) -> bool {
        self.bits & 1 != 0
    }

    /// Whether writing is among it.
    pub fn writable(self) -> bool {
        self.bits & 2 != 0
    }

    pub(crate) fn watch(self) -> Watch {
        Watch {
            readable: self.readable(),
            writable: self.writable(),
            edge: self.bits & 8 != 0,
            exclusive: self.bits & 4 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_token() {
        for key in [
            Key { slot: 0, generation: 0 },
            Key { slot: u32::MAX, generation: 1 },
            Key { slot: 7, generation: u32::MAX },
        ] {
            assert_eq!(Key::from_token(key.token()), key);
        }
        assert_ne!(Key { slot: 1, generation: 2 }.token(), Key { slot: 2, generation: 1 }.token());
    }

    #[test]
    fn readiness_and_interest_keep_their_bits_apart() {
        let event = Event { token: 0, readable: false, writable: true, hangup: true, error: false };
        let readiness = Readiness::of(event);
        assert!(readiness.writable() && readiness.hangup());
        assert!(!readiness.readable() && !readiness.error());
        assert!(Interest::READ.readable() && !Interest::READ.writable());
        assert!(Interest::BOTH.readable() && Interest::BOTH.writable());
        assert!(Interest::SHARED_LISTENER.watch().exclusive && Interest::SHARED_LISTENER.readable());
        assert!(!Interest::BOTH.watch().exclusive);
    }
}
