use super::copy::{load, store};
use super::header::HEADER_BYTES;
use super::*;
use crate::primitives::atomic::AtomicU64;
use crate::words::Words;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use thalweg_sys::memory;

const RING: u32 = 4096;
const RING_BYTES: usize = RING as usize;

fn rings() -> (End<Shared>, End<Shared>, OwnedFd) {
    let memory = memory::sealed("test", map_bytes(RING).unwrap(), 0).unwrap();
    let map = || memory::map(memory.as_fd()).unwrap();
    let ours = End::founder(Shared::found(map(), RING).unwrap());
    let theirs = End::joiner(Shared::join(map()).unwrap());
    (ours, theirs, memory)
}

fn write(end: &mut End<Shared>, bytes: &[u8]) -> Result<usize, Broken> {
    end.write(&[IoSlice::new(bytes)])
}

fn read(end: &mut End<Shared>, most: usize) -> Result<Vec<u8>, Broken> {
    let mut into = Vec::with_capacity(most);
    end.read(&mut into).map(|_| into)
}

proptest! {
    /// Bytes go into words and come out again wherever they begin and end, and touch no others but what may
    /// be padded.
    #[test]
    fn bytes_in_words_are_bytes(
        before in vec(any::<u8>(), 64), at in 0_usize..64, bytes in vec(any::<u8>(), 0..64), cut in 0_usize..64, pads: bool,
    ) {
        let words: Vec<_> =
            before.as_chunks().0.iter().map(|word| AtomicU64::new(u64::from_ne_bytes(*word))).collect();
        let bytes = &bytes[..bytes.len().min(64 - at)];
        // What was stored of the first word; in two goes.
        let mut edge = (0..at % 8).map(|n| u64::from(before[at - at % 8 + n]) << (8 * n)).sum();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        for (at, bytes) in [(at, first), (at + first.len(), second)] {
            if !bytes.is_empty() {
                store(&words, at, bytes, &mut edge, pads);
            }
        }
        let end = at + bytes.len();
        let mut expected = before;
        expected[at..end].copy_from_slice(bytes);
        let behind = if pads && !bytes.is_empty() { end.next_multiple_of(8) } else { end };
        expected[end..behind].fill(0);
        prop_assert_eq!(edge, (0..end % 8).map(|n| u64::from(expected[end - end % 8 + n]) << (8 * n)).sum::<u64>());
        let after: Vec<u8> = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        prop_assert_eq!(&after, &expected);
        let mut into = vec![MaybeUninit::new(0xa5); bytes.len()];
        load(&words, at, &mut into);
        // SAFETY: every byte was initialised at the start.
        let loaded: Vec<u8> = into.iter().map(|byte| unsafe { byte.assume_init() }).collect();
        prop_assert_eq!(&loaded[..], bytes);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<usize>),
    Read(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Small ones, whatever is near the ring's size, and more than it holds.
    let size =
        || prop_oneof![4 => 0..40_usize, 2 => 0..2000_usize, 1 => 4080..4110_usize, 1 => 0..9000_usize];
    let write = (0..2_usize, vec(size(), 0..4)).prop_map(|(side, pieces)| Step::Write(side, pieces));
    let read = (0..2_usize, size()).prop_map(|(side, room)| Step::Read(side, room));
    vec(prop_oneof![write, read], 1..120)
}

proptest! {
    /// Whatever is written and read in whatever pieces, from wherever the counters stand: each ring is a
    /// queue of bytes that holds so many and no more.
    #[test]
    fn agrees_with_a_plain_queue(steps in steps(), began in prop_oneof![Just(0), any::<u64>(), u64::MAX - 9000..]) {
        let (ours, theirs, _memory) = rings();
        let mut ends = [ours, theirs];
        for (ring, end) in ends.iter_mut().enumerate() {
            end.outgoing.start_at(began);
            end.incoming.start_at(began);
            end.place.header().rings[ring].tail.0.store(began, Ordering::Relaxed);
            end.place.header().rings[ring].head.0.store(began, Ordering::Relaxed);
        }
        let mut queues = [VecDeque::new(), VecDeque::new()];
        let mut next = 0_u8;
        for step in steps {
            match step {
                Step::Write(side, sizes) => {
                    let mut fresh = |size: usize| -> Vec<u8> {
                        (0..size).map(|_| { next = next.wrapping_mul(5).wrapping_add(1); next }).collect()
                    };
                    let pieces: Vec<Vec<u8>> = sizes.into_iter().map(&mut fresh).collect();
                    let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                    let all = pieces.concat();
                    let fits = all.len().min(RING_BYTES - queues[side].len());
                    prop_assert_eq!(ends[side].write(&slices), Ok(fits));
                    queues[side].extend(&all[..fits]);
                    // What did not fit is no longer known: continue the sequence behind what was taken.
                    next = queues[side].back().copied().unwrap_or(next);
                }
                Step::Read(side, room) => {
                    let queue = &mut queues[1 - side];
                    let expected: Vec<u8> = queue.drain(..room.min(queue.len())).collect();
                    let mut into = b"kept".to_vec();
                    into.reserve_exact(room);
                    let spare = into.capacity() - into.len();
                    let surplus: Vec<u8> = queue.drain(..(spare - room).min(queue.len())).collect();
                    prop_assert_eq!(ends[side].read(&mut into), Ok(expected.len() + surplus.len()));
                    prop_assert_eq!(into, [&b"kept"[..], &expected, &surplus].concat());
                }
            }
            for side in 0..2 {
                prop_assert_eq!(ends[1 - side].pending(), !queues[side].is_empty());
                prop_assert_eq!(ends[side].has_space(), queues[side].len() <= RING_BYTES / 2);
            }
        }
    }
}

#[test]
fn room_is_told_when_half_is_free_and_not_before() {
    let (mut ours, mut theirs, _memory) = rings();
    assert_eq!(write(&mut ours, &[1; RING_BYTES + 1]), Ok(RING_BYTES));
    assert!(ours.prepare_to_sleep(Wanted::BytesOrSpace, 0));
    assert_eq!(read(&mut theirs, RING_BYTES / 2 - 1).unwrap().len(), RING_BYTES / 2 - 1);
    assert!(!theirs.bell_wanted());
    assert_eq!(read(&mut theirs, 1).unwrap().len(), 1);
    assert_eq!([theirs.bell_wanted(), theirs.bell_wanted()], [true, false]);
    ours.wake_up();
    assert!(!ours.prepare_to_sleep(Wanted::BytesOrSpace, 0), "there is room");
    assert!(ours.prepare_to_sleep(Wanted::Bytes, 0), "nothing to read");
}

/// By its time, or by a signal: nobody took the wake on.
#[test]
fn who_got_up_by_itself_gets_no_bell() {
    let (mut ours, mut theirs, _memory) = rings();
    assert_eq!(write(&mut ours, &[1; RING_BYTES]), Ok(RING_BYTES));
    assert!(ours.prepare_to_sleep(Wanted::BytesOrSpace, 0));
    ours.wake_up();
    assert_eq!(write(&mut theirs, b"x"), Ok(1));
    assert!(!theirs.bell_wanted(), "for bytes");
    assert_eq!(read(&mut theirs, RING_BYTES).unwrap().len(), RING_BYTES);
    assert!(!theirs.bell_wanted(), "for room");
}

#[test]
fn who_only_waits_for_bytes_is_not_woken_for_room() {
    let (mut ours, mut theirs, _memory) = rings();
    assert_eq!(write(&mut ours, &[1; RING_BYTES]), Ok(RING_BYTES));
    assert!(ours.prepare_to_sleep(Wanted::Bytes, 0));
    assert_eq!(read(&mut theirs, RING_BYTES).unwrap().len(), RING_BYTES);
    assert!(!theirs.bell_wanted());
    assert_eq!(write(&mut theirs, b"x"), Ok(1));
    assert!(theirs.bell_wanted());
}

#[test]
fn who_only_waits_for_room_is_not_woken_for_bytes() {
    let (mut ours, mut theirs, _memory) = rings();
    assert_eq!(write(&mut theirs, b"x"), Ok(1));
    assert!(!ours.prepare_to_sleep(Wanted::Space, 0), "an empty ring is room");
    assert_eq!(write(&mut ours, &[1; RING_BYTES]), Ok(RING_BYTES));
    assert!(ours.prepare_to_sleep(Wanted::Space, 0), "the byte that is there is not wanted now");
    assert_eq!(write(&mut theirs, b"y"), Ok(1));
    assert!(!theirs.bell_wanted());
    assert_eq!(read(&mut theirs, RING_BYTES).unwrap().len(), RING_BYTES);
    assert!(theirs.bell_wanted());
}

#[test]
fn each_side_knows_where_the_other_last_ran() {
    let (mut ours, mut theirs, _memory) = rings();
    ours.runs_on(7);
    assert!(theirs.prepare_to_sleep(Wanted::Bytes, 3));
    assert_eq!((theirs.peer_cpu(), ours.peer_cpu()), (7, 3));
}

/// A peer's word at each value around those that are possible.
#[test]
fn a_word_that_lies_is_told_and_changes_nothing() {
    let ring = RING_BYTES as u64;
    for began in [0, 5000, u64::MAX - 100] {
        let place = |end: &mut End<Shared>| {
            end.outgoing.start_at(began);
            end.incoming.start_at(began);
        };
        for lie in
            [began.wrapping_sub(1), began.wrapping_add(ring + 1), began ^ 1 << 63, began.wrapping_sub(ring)]
        {
            let (mut ours, _, _memory) = rings();
            place(&mut ours);
            ours.place.header().rings[0].head.0.store(began, Ordering::Relaxed);
            ours.place.header().rings[1].tail.0.store(lie, Ordering::Relaxed);
            let broken =
                Broken { word: Word::Tail, found: lie, least: began, most: began.wrapping_add(ring) };
            assert!(ours.pending(), "a lie is something to look at");
            assert!(!ours.prepare_to_sleep(Wanted::Bytes, 0));
            assert_eq!([read(&mut ours, 10), read(&mut ours, 10)], [Err(broken), Err(broken)]);
            ours.place.header().rings[1].tail.0.store(began.wrapping_add(ring), Ordering::Relaxed);
            assert_eq!(read(&mut ours, usize::from(u16::MAX)).unwrap().len(), RING_BYTES);
        }
        // The head may say that all, some or nothing was read of ten bytes.
        for lie in [began.wrapping_sub(1), began.wrapping_add(11), began ^ 1 << 63] {
            let (mut ours, _, _memory) = rings();
            place(&mut ours);
            let head = &ours.place.header().rings[0].head.0;
            head.store(began, Ordering::Relaxed);
            assert_eq!(ours.outgoing.write::<_, Strong>(&ours.place, &[IoSlice::new(&[1; 10])]), Ok(10));
            head.store(lie, Ordering::Relaxed);
            let broken = Broken { word: Word::Head, found: lie, least: began, most: began.wrapping_add(10) };
            assert_eq!(write(&mut ours, &[1; RING_BYTES]), Err(broken));
            let head = &ours.place.header().rings[0].head.0;
            head.store(began.wrapping_add(10), Ordering::Relaxed);
            assert_eq!(write(&mut ours, &[1; RING_BYTES]), Ok(RING_BYTES));
        }
    }
}

#[test]
fn a_broken_word_says_what_it_said() {
    let broken = Broken { word: Word::Tail, found: 9, least: 1, most: 5 };
    assert!(broken.to_string().contains("to have written 9 bytes of a ring, where 1 to 5 are possible"));
}

/// How a hostile peer chooses what it writes next into the word at `index`, if anything.
type Malice = fn(random: u64, before: u64, index: usize) -> Option<u64>;

/// Where the header's words are that say how far the rings are written and read, in words.
const COUNTERS: std::ops::Range<usize> = 16..80;
const HEADER_WORDS: usize = 112;

/// Whatever is written into every word and every byte while we work: an answer, or that the peer is broken.
fn work_beside(malice: Malice) -> usize {
    const OPERATIONS: usize = 20_000;
    const ROUNDS: usize = 1_000;
    let (mut ours, mut theirs, memory) = rings();
    let words = Words::new(memory::map(memory.as_fd()).unwrap());
    let (over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut random, all) = (88_172_645_463_325_252_u64, words.place().1 / 8);
            while !over.load(Ordering::Relaxed) {
                let byte = HEADER_BYTES / 8 + random as usize % (all - HEADER_BYTES / 8);
                for index in (0..HEADER_WORDS).chain([byte]) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if let Some(value) = malice(random, words.load(index), index) {
                        words.store(index, value);
                    }
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (mut told, mut operation) = (0, 0);
        while operation < OPERATIONS || rounds.load(Ordering::Relaxed) < ROUNDS {
            told += work(&mut ours, operation) + work(&mut theirs, operation);
            operation += 1;
        }
        over.store(true, Ordering::Relaxed);
        told
    })
}

#[test]
fn a_hostile_peer_gets_nothing_but_a_broken_connection() {
    const CAPACITY: u64 = RING as u64;
    assert!(work_beside(|random, _, _| Some(random)) > 0);
    let listed: Malice = |random, _, _| {
        let values = [0, 1, u64::MAX, u64::MAX - 1, CAPACITY - 1, CAPACITY, CAPACITY + 1];
        Some(values[random as usize % values.len()])
    };
    assert!(work_beside(listed) > 0);
    // Near what is there, so that some of it is believed.
    assert!(work_beside(|random, before, _| Some(before.wrapping_add(random % 3).wrapping_sub(1))) > 0);
    let steps: Malice =
        |random, before, _| Some(before.wrapping_add([1, 100, CAPACITY][random as usize % 3]));
    assert!(work_beside(steps) > 0);
}

/// Garbage in bytes is what a peer may write anyway, and the words of sleep only cost wakes.
#[test]
fn who_leaves_the_counters_alone_breaks_nothing() {
    let malice: Malice = |random, _, index| (!COUNTERS.contains(&index)).then_some(random % 3);
    assert_eq!(work_beside(malice), 0);
}

/// One operation of everything an end does; how often it was told that the peer is broken.
fn work(end: &mut End<Shared>, operation: usize) -> usize {
    let mut told = 0;
    match read(end, operation % 9000) {
        Ok(bytes) => assert!(bytes.len() <= RING_BYTES),
        Err(_) => told += 1,
    }
    match end.write(&[IoSlice::new(&[1; 77]), IoSlice::new(&[2; 5000][..operation % 5000])]) {
        Ok(count) => assert!(count <= RING_BYTES),
        Err(_) => told += 1,
    }
    end.bell_wanted();
    let wanted = [Wanted::Bytes, Wanted::BytesOrSpace, Wanted::Space][operation % 3];
    if end.prepare_to_sleep(wanted, 0) {
        end.wake_up();
    }
    assert_eq!(end.ring_bytes(), RING_BYTES, "the word in the map is not believed twice");
    told
}

/// What a peer may have laid out that is no pair of rings, or not the one whose length it has.
#[test]
fn what_is_not_a_pair_of_rings_is_not_joined() {
    let join = |bytes: usize, spoil: fn(&Words)| {
        let memory = memory::sealed("test", bytes, 0).unwrap();
        let map = || memory::map(memory.as_fd()).unwrap();
        // What does not fit is not laid out at all.
        let _ = Shared::found(map(), RING);
        spoil(&Words::new(map()));
        Shared::join(map()).map(|shared| size_of_val(shared.bytes(0)))
    };
    let bytes = map_bytes(RING).unwrap();
    assert_eq!(join(bytes, |_| ()), Ok(RING_BYTES));
    assert_eq!(join(bytes, |words| words.store(0, 1)), Err(Foreign::Magic(1)));
    let about = |version: u64, ring_bytes: u64| version | ring_bytes << 32;
    assert_eq!(about(1, 4096), 0x1000_0000_0001);
    assert_eq!(join(bytes, |words| words.store(1, 0x1000_0000_0002)), Err(Foreign::Version(2)));
    for size in [0, 1, 2048, 4097, 1 << 31] {
        assert_eq!(map_bytes(size), None);
    }
    assert_eq!(join(bytes, |words| words.store(1, 1)), Err(Foreign::RingBytes(0)));
    assert_eq!(join(bytes, |words| words.store(1, 0x8000_0000_0000_0001)), Err(Foreign::RingBytes(1 << 31)));
    let stated = map_bytes(8192).unwrap();
    assert_eq!(
        join(bytes, |words| words.store(1, 0x2000_0000_0001)),
        Err(Foreign::Length { found: bytes, stated })
    );
    assert_eq!(join(bytes + 4096, |_| ()), Err(Foreign::Magic(0)));
    assert_eq!(join(2048, |_| ()), Err(Foreign::Length { found: 2048, stated: 4096 }));
}
