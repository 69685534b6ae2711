//! The loom models of the ring: bytes arrive in order and unchanged, and nobody sleeps who is owed a wake.
//!
//! The code is the very code; only its words and bytes live in loom's atomics instead of a map. A ring has a
//! single word of eight bytes here, so every message shares it with its neighbours and soon wraps. Beside
//! each byte stands a cell in which loom watches for races: a byte that is read before its write is
//! published, or written over before its read is, is a causality violation.
//!
//! Each entry of the table is weakened in turn and loom has to refute it: the four orderings by a race, in
//! models without any fence that could stand in for them, and each fence by a side that sleeps for ever, once
//! as it waits for bytes and once for room. Not in the table, since `Relaxed` cannot be weakened: the words
//! of sleep, and the last look before a sleep, which is followed by a proper one.

use super::{Bell, bounded, deadlocks};
use super::{ConsumerAbsent, ConsumerAcquireRelease, ProducerAbsent, ProducerAcquireRelease};
use crate::handshake::{self, Fence, Strong};
use crate::parking::Wake;
use crate::primitives::atomic::{AtomicU64, Ordering};
use crate::ring::{End, Header, Orderings, Place, Wanted};
use loom::cell::UnsafeCell;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

const RING_BYTES: usize = 8;

/// A pair of rings that loom understands.
struct Model {
    header: Header,
    bytes: [[AtomicU64; RING_BYTES / 8]; 2],
    watched: [[UnsafeCell<()>; RING_BYTES]; 2],
}

impl Place for Arc<Model> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn bytes(&self, ring: usize) -> &[AtomicU64] {
        &self.bytes[ring]
    }

    fn reads(&self, ring: usize, places: Range<usize>) {
        places.for_each(|place| self.watched[ring][place].with(|_| ()));
    }

    fn writes(&self, ring: usize, places: Range<usize>) {
        places.for_each(|place| self.watched[ring][place].with_mut(|_| ()));
    }
}

/// A side, and the bells of both.
struct Side<O> {
    end: End<Arc<Model>, O>,
    ours: Arc<Bell>,
    theirs: Arc<Bell>,
}

fn sides<O: Orderings>() -> [Side<O>; 2] {
    let model = Arc::new(Model {
        header: Header::new(),
        bytes: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        watched: std::array::from_fn(|_| std::array::from_fn(|_| UnsafeCell::new(()))),
    });
    let bells = [Bell::new(), Bell::new()];
    let side = |end, ours: usize| Side { end, ours: bells[ours].clone(), theirs: bells[1 - ours].clone() };
    [side(End::founder(model.clone()), 0), side(End::joiner(model), 1)]
}

impl<O: Orderings> Side<O> {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.end.write(&[IoSlice::new(bytes)]).unwrap()
    }

    /// Reads at most `most` bytes.
    fn read(&mut self, most: usize) -> Vec<u8> {
        let mut into = Vec::with_capacity(most);
        self.end.read(&mut into).unwrap();
        into
    }

    fn ring(&mut self) {
        if self.end.bell_wanted() {
            self.theirs.wake();
        }
    }

    fn sleep(&mut self, wanted: Wanted) {
        if self.end.prepare_to_sleep(wanted, 0) {
            self.ours.notify.wait();
            self.end.wake_up();
        }
    }

    fn write_all(&mut self, bytes: &[u8]) {
        let mut written = 0;
        while written < bytes.len() {
            match self.write(&bytes[written..]) {
                0 => self.sleep(Wanted::BytesOrSpace),
                count => written += count,
            }
            self.ring();
        }
    }

    /// Reads this many bytes, in pieces of at most `most`.
    fn read_all(&mut self, count: usize, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.read(most) {
                none if none.is_empty() => self.sleep(Wanted::Bytes),
                mut some => all.append(&mut some),
            }
            self.ring();
        }
        all
    }
}

/// More than the ring holds goes through it, with sleep on either side.
#[test]
fn a_stream_flows_through_a_ring_that_is_smaller() {
    for (first, most) in [(8, 8), (5, 4), (3, 5)] {
        bounded(2, move || {
            let [mut writer, mut reader] = sides::<Strong>();
            let reading = loom::thread::spawn(move || reader.read_all(11, most));
            let bytes: Vec<u8> = (1..=11).collect();
            writer.write_all(&bytes[..first]);
            writer.write_all(&bytes[first..]);
            assert_eq!(reading.join().unwrap(), bytes);
        });
    }
}

#[test]
fn an_answer_is_never_slept_through() {
    bounded(3, || {
        let [mut client, mut server] = sides::<Strong>();
        let serving = loom::thread::spawn(move || {
            for _ in 0..2 {
                let question = server.read_all(2, 2);
                server.write_all(&question);
            }
        });
        for question in [[1, 2], [3, 4]] {
            client.write_all(&question);
            assert_eq!(client.read_all(2, 2), question);
        }
        serving.join().unwrap();
    });
}

/// A side that waits for both is woken by either, and asked for once.
#[test]
fn one_bell_does_for_bytes_and_room() {
    bounded(3, || {
        let [mut ours, mut theirs] = sides::<Strong>();
        assert_eq!(ours.write(&[7; RING_BYTES]), RING_BYTES);
        let other = loom::thread::spawn(move || {
            assert_eq!(theirs.read(RING_BYTES), [7; RING_BYTES]);
            assert_eq!(theirs.write(&[8]), 1);
            theirs.ring();
            theirs.read_all(1, 1)
        });
        let (mut written, mut got) = (0, Vec::new());
        while written == 0 || got.is_empty() {
            if written == 0 {
                written = ours.write(&[9]);
            }
            got.append(&mut ours.read(1));
            ours.ring();
            if written == 0 || got.is_empty() {
                ours.sleep(Wanted::beside_unsent(written == 0));
            }
        }
        assert_eq!((other.join().unwrap(), got), (vec![9], vec![8]));
    });
}

/// A side that is awake gets no bell.
#[test]
fn a_bell_is_wanted_once_per_sleep_and_only_behind_a_declaration() {
    loom::model(|| {
        let [mut ours, mut theirs] = sides::<Strong>();
        assert_eq!(ours.write(&[1]), 1);
        assert!(!ours.end.bell_wanted());
        assert!(!theirs.end.prepare_to_sleep(Wanted::Bytes, 0), "there is something to read");
        assert_eq!(theirs.read(1), [1]);
        assert!(theirs.end.prepare_to_sleep(Wanted::Bytes, 0));
        assert_eq!(ours.write(&[2]), 1);
        assert!(ours.end.bell_wanted() && !ours.end.bell_wanted());
        assert_eq!(ours.write(&[3]), 1);
        assert!(!ours.end.bell_wanted());
    });
}

/// One write beside two looks, and no fence anywhere.
fn what_is_seen_was_written<O: Orderings + Send + 'static>() {
    loom::model(|| {
        let [mut writer, mut reader] = sides::<O>();
        let writing = loom::thread::spawn(move || assert_eq!(writer.write(&[1, 2, 3]), 3));
        let mut got = reader.read(2);
        got.append(&mut reader.read(2));
        assert!([1, 2, 3].starts_with(&got), "{got:?} was never written");
        writing.join().unwrap();
    });
}

/// A full ring that is emptied beside one attempt to write on, and no fence anywhere.
fn what_is_written_over_was_read<O: Orderings + Send + 'static>() {
    loom::model(|| {
        let [mut writer, mut reader] = sides::<O>();
        assert_eq!(writer.write(&[1; RING_BYTES]), RING_BYTES);
        let reading = loom::thread::spawn(move || reader.read(5));
        let more = writer.write(&[2; 5]);
        assert!([0, 5].contains(&more));
        assert_eq!(reading.join().unwrap(), [1; 5]);
    });
}

fn no_byte_is_slept_through<O: Orderings + Send + 'static>() {
    loom::model(|| {
        let [mut writer, mut reader] = sides::<O>();
        let writing = loom::thread::spawn(move || writer.write_all(&[1]));
        assert_eq!(reader.read_all(1, 1), [1]);
        writing.join().unwrap();
    });
}

/// A side that has something to read and wants nothing but room.
fn room_alone_is_not_slept_through<O: Orderings + Send + 'static>() {
    loom::model(|| {
        let [mut writer, mut reader] = sides::<O>();
        assert_eq!((writer.write(&[1; RING_BYTES]), reader.write(&[3])), (RING_BYTES, 1));
        let reading = loom::thread::spawn(move || {
            assert_eq!(reader.read(RING_BYTES / 2).len(), RING_BYTES / 2);
            reader.ring();
            reader
        });
        if writer.end.prepare_to_sleep(Wanted::Space, 0) {
            writer.ours.notify.wait();
            writer.end.wake_up();
        }
        assert_eq!(writer.write(&[2]), 1);
        assert_eq!((reading.join().unwrap().read(RING_BYTES).len(), writer.read(1)), (5, vec![3]));
    });
}

/// The reader frees no more than a writer is promised to be woken for.
fn no_room_is_slept_through<O: Orderings + Send + 'static>() {
    loom::model(|| {
        let [mut writer, mut reader] = sides::<O>();
        assert_eq!(writer.write(&[1; RING_BYTES]), RING_BYTES);
        let reading = loom::thread::spawn(move || {
            assert_eq!(reader.read(RING_BYTES / 2).len(), RING_BYTES / 2);
            reader.ring();
            reader
        });
        writer.write_all(&[2]);
        assert_eq!(reading.join().unwrap().read(RING_BYTES), [1, 1, 1, 1, 2]);
    });
}

macro_rules! orderings {
    ($name:ident, $tail_published:ident, $tail_seen:ident, $head_published:ident, $head_seen:ident) => {
        struct $name;
        impl handshake::Orderings for $name {
            const PRODUCER: Fence = Fence::Full;
            const CONSUMER: Fence = Fence::Full;
        }
        orderings!(words $name, $tail_published, $tail_seen, $head_published, $head_seen);
    };
    (words $name:ident, $tail_published:ident, $tail_seen:ident, $head_published:ident, $head_seen:ident) => {
        impl Orderings for $name {
            const TAIL_PUBLISHED: Ordering = Ordering::$tail_published;
            const TAIL_SEEN: Ordering = Ordering::$tail_seen;
            const HEAD_PUBLISHED: Ordering = Ordering::$head_published;
            const HEAD_SEEN: Ordering = Ordering::$head_seen;
        }
    };
}
orderings!(TailPublishedRelaxed, Relaxed, Acquire, Release, Acquire);
orderings!(TailSeenRelaxed, Release, Relaxed, Release, Acquire);
orderings!(HeadPublishedRelaxed, Release, Acquire, Relaxed, Acquire);
orderings!(HeadSeenRelaxed, Release, Acquire, Release, Relaxed);
orderings!(words ProducerAbsent, Release, Acquire, Release, Acquire);
orderings!(words ProducerAcquireRelease, Release, Acquire, Release, Acquire);
orderings!(words ConsumerAbsent, Release, Acquire, Release, Acquire);
orderings!(words ConsumerAcquireRelease, Release, Acquire, Release, Acquire);

/// Whether loom found an access that nothing orders behind the one before it.
fn races(model: fn()) -> bool {
    match std::thread::spawn(model).join() {
        Ok(()) => false,
        Err(panic) => panic.downcast_ref::<String>().is_some_and(|message| message.contains("Causality")),
    }
}

#[test]
fn each_ordering_of_the_ring_is_needed() {
    assert!(!races(what_is_seen_was_written::<Strong>));
    assert!(!races(what_is_written_over_was_read::<Strong>));
    assert!(races(what_is_seen_was_written::<TailPublishedRelaxed>));
    assert!(races(what_is_seen_was_written::<TailSeenRelaxed>));
    assert!(races(what_is_written_over_was_read::<HeadPublishedRelaxed>));
    assert!(races(what_is_written_over_was_read::<HeadSeenRelaxed>));
}

#[test]
fn each_fence_of_the_ring_is_needed_for_bytes_and_for_room() {
    fn oversleeps<O: Orderings + Send + 'static>() -> [bool; 3] {
        let models = [
            no_byte_is_slept_through::<O>,
            no_room_is_slept_through::<O>,
            room_alone_is_not_slept_through::<O>,
        ];
        models.map(|model| deadlocks(model))
    }
    assert_eq!(oversleeps::<Strong>(), [false; 3]);
    assert_eq!(oversleeps::<ProducerAbsent>(), [true; 3]);
    assert_eq!(oversleeps::<ProducerAcquireRelease>(), [true; 3]);
    assert_eq!(oversleeps::<ConsumerAbsent>(), [true; 3]);
    assert_eq!(oversleeps::<ConsumerAcquireRelease>(), [true; 3]);
}
