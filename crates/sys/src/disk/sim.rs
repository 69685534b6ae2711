//! The simulated twin of the disk: one seeded, single-threaded world of files that can lose power.
//!
//! Each file has *visible* bytes (what a process reads and maps) and *durable* bytes (what a power cut
//! leaves). A store marks 512-byte sectors dirty; `sync_data` carries dirty sectors over. A crash keeps an
//! arbitrary subset of the dirty sectors, so pages are lost, torn and reordered; between syncs the kernel
//! may write back whatever it likes, and so does [`SimDisk::write_back`]. Names behave alike: creations,
//! renames and removals since the last directory sync survive as a prefix of arbitrary length. A failed
//! sync carries over an arbitrary subset and marks the rest clean, as Linux does, so that asking again
//! reports a success that means nothing.
//!
//! A write that fails may have taken some of the bytes, from the first one on: a call that takes fewer than
//! it was given is made again for the rest, and that one may be refused.
//!
//! Space is bounded: allocation past it answers `StorageFull`, as do writes that extend a file.

mod faults;

use super::Map;
use faults::Faults;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR_BYTES: usize = 512;

/// A small seeded generator (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose sequence depends on the seed alone.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A disk in memory.
#[derive(Clone, Debug)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

#[derive(Debug)]
struct World {
    random: Random,
    names: BTreeMap<PathBuf, Arc<Inode>>,
    durable_names: BTreeMap<PathBuf, Arc<Inode>>,
    name_changes: Vec<NameChange>,
    space_bytes: u64,
    faults: Faults,
    syncs: u64,
    boot: u64,
}

#[derive(Debug)]
enum NameChange {
    Bind(PathBuf, Arc<Inode>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// An open simulated file.
#[derive(Clone, Debug)]
pub struct SimFile {
    world: Arc<Mutex<World>>,
    inode: Arc<Inode>,
}

#[derive(Debug)]
struct Inode {
    bytes: Mutex<Bytes>,
}

/// `visible` lives in boxed storage whose address never changes once mapped.
#[derive(Debug)]
struct Bytes {
    visible: Vec<u8>,
    durable: Vec<u8>,
    dirty: Vec<bool>,
    mapped: bool,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimDisk {
    /// An empty disk of `space_bytes`, whose faults follow from the seed.
    pub fn new(seed: u64, space_bytes: u64) -> SimDisk {
        let world = World {
            random: Random::new(seed),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            space_bytes,
            faults: Faults::default(),
            syncs: 0,
            boot: 1,
        };
        SimDisk { world: Arc::new(Mutex::new(world)) }
    }

    /// The sync after `count` more fails.
    pub fn fail_sync_after(&self, count: u32) {
        held(&self.world).faults.syncs = Some(count);
    }

    /// The write after `count` more takes some of its bytes, or none, and fails.
    pub fn fail_write_after(&self, count: u32) {
        held(&self.world).faults.writes = Some(count);
    }

    /// Whether a write is going to fail.
    pub fn fails_a_write(&self) -> bool {
        held(&self.world).faults.writes.is_some()
    }

    /// The listing after `count` more passes over a file, as one may while the file takes another's place.
    pub fn pass_over_after(&self, path: &Path, count: u32) {
        held(&self.world).faults.unlisted = Some((path.to_owned(), count));
    }

    /// Whether a listing is going to pass over a file.
    pub fn passes_over_a_file(&self) -> bool {
        held(&self.world).faults.unlisted.is_some()
    }

    /// No sync and no write is going to fail, and no file is passed over.
    pub fn mend(&self) {
        held(&self.world).faults = Faults::default();
    }

    /// Changes the room on the disk.
    pub fn set_space(&self, space_bytes: u64) {
        held(&self.world).space_bytes = space_bytes;
    }

    /// Bytes in all files that have a name.
    pub fn used_bytes(&self) -> u64 {
        held(&self.world).used()
    }

    /// Bytes that there is room for.
    pub(super) fn free_bytes(&self) -> u64 {
        let world = held(&self.world);
        world.space_bytes.saturating_sub(world.used())
    }

    /// Syncs so far, failed ones included.
    pub fn syncs(&self) -> u64 {
        held(&self.world).syncs
    }

    /// How often there was power, this time included.
    pub(super) fn boot(&self) -> u64 {
        held(&self.world).boot
    }

    /// Writes back some dirty sectors, as a kernel does when it pleases.
    pub fn write_back(&self) {
        let mut world = held(&self.world);
        for inode in files(&world.names) {
            inode.carry(&mut |random| random.once_in(3), &mut world.random, false);
        }
    }

    /// Cuts the power: what the disk holds afterwards. Files and maps of the old disk stay usable and
    /// reach nothing any more.
    pub fn crash(&self) -> SimDisk {
        let mut world = held(&self.world);
        let changes = world.name_changes.len() as u64;
        let kept = world.random.below(changes + 1);
        let mut names = world.durable_names.clone();
        let survivors: Vec<_> =
            world.name_changes.drain(..).take(usize::try_from(kept).unwrap_or(0)).collect();
        for change in survivors {
            change.apply(&mut names);
        }
        let mood = world.random.below(4);
        for inode in files(&names) {
            let mut keeps = |random: &mut Random| match mood {
                0 => false,
                1 => true,
                2 => random.once_in(2),
                _ => !random.once_in(8),
            };
            inode.carry(&mut keeps, &mut world.random, false);
        }
        // A file with two names is still one file.
        let mut reborn_of: BTreeMap<*const Inode, Arc<Inode>> = BTreeMap::new();
        let mut reborn = |inode: Arc<Inode>| {
            reborn_of.entry(Arc::as_ptr(&inode)).or_insert_with(|| Arc::new(inode.reborn())).clone()
        };
        let names: BTreeMap<_, _> = names.into_iter().map(|(path, inode)| (path, reborn(inode))).collect();
        let reborn = World {
            random: Random::new(world.random.word()),
            durable_names: names.clone(),
            names,
            name_changes: Vec::new(),
            space_bytes: world.space_bytes,
            faults: Faults::default(),
            syncs: 0,
            boot: world.boot + 1,
        };
        SimDisk { world: Arc::new(Mutex::new(reborn)) }
    }

    /// Flips one bit of a file, visible and durable.
    pub fn flip(&self, path: &Path, byte: usize, bit: u8) {
        if let Some(inode) = held(&self.world).names.get(path) {
            let mut bytes = held(&inode.bytes);
            for side in [true, false] {
                let store = if side { &mut bytes.visible } else { &mut bytes.durable };
                if let Some(value) = store.get_mut(byte) {
                    *value ^= 1 << bit;
                }
            }
        }
    }

    pub(super) fn create(&self, path: &Path) -> io::Result<SimFile> {
        let mut world = held(&self.world);
        if world.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let empty = Bytes { visible: Vec::new(), durable: Vec::new(), dirty: Vec::new(), mapped: false };
        let inode = Arc::new(Inode { bytes: Mutex::new(empty) });
        world.change(NameChange::Bind(path.to_owned(), inode.clone()));
        Ok(SimFile { world: self.world.clone(), inode })
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<SimFile> {
        let world = held(&self.world);
        let inode = world.names.get(path).ok_or(io::ErrorKind::NotFound)?.clone();
        Ok(SimFile { world: self.world.clone(), inode })
    }

    pub(super) fn names(&self, directory: &Path) -> Vec<String> {
        let mut world = held(&self.world);
        let unlisted = world.faults.passed_over();
        let inside = world.names.keys().filter(|path| path.parent() == Some(directory));
        let inside = inside.filter(|path| Some(*path) != unlisted.as_ref());
        inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
    }

    pub(super) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = held(&self.world);
        if world.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = world.names.get(from).ok_or(io::ErrorKind::NotFound)?.clone();
        world.change(NameChange::Bind(to.to_owned(), inode));
        Ok(())
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = held(&self.world);
        if !world.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    pub(super) fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut world = held(&self.world);
        if !world.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.change(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    pub(super) fn sync_directory(&self) -> io::Result<()> {
        let mut world = held(&self.world);
        world.count_sync()?;
        world.durable_names = world.names.clone();
        world.name_changes.clear();
        Ok(())
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Arc<Inode>>) {
        match self {
            NameChange::Bind(path, inode) => {
                names.insert(path.clone(), inode.clone());
            }
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
        }
    }
}

/// The files behind the names, each once.
fn files(names: &BTreeMap<PathBuf, Arc<Inode>>) -> Vec<Arc<Inode>> {
    let mut files: Vec<Arc<Inode>> = Vec::new();
    for inode in names.values() {
        if files.iter().all(|known| !Arc::ptr_eq(known, inode)) {
            files.push(inode.clone());
        }
    }
    files
}

impl World {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    fn used(&self) -> u64 {
        files(&self.names).iter().map(|inode| held(&inode.bytes).visible.len() as u64).sum()
    }

    fn count_sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        match self.faults.fails_sync() {
            true => Err(io::Error::other("simulated sync failure")),
            false => Ok(()),
        }
    }

    /// How many of `bytes` a write takes: fewer where it is to fail.
    fn count_write(&mut self, bytes: usize) -> usize {
        match self.faults.fails_write() {
            true => usize::try_from(self.random.below(bytes.max(1) as u64)).unwrap_or(0),
            false => bytes,
        }
    }
}

impl Inode {
    /// Carries those dirty sectors over that `keeps` picks; with `forget` the others count as clean too.
    fn carry(&self, keeps: &mut dyn FnMut(&mut Random) -> bool, random: &mut Random, forget: bool) {
        let mut bytes = held(&self.bytes);
        let Bytes { visible, durable, dirty, .. } = &mut *bytes;
        if durable.len() < visible.len() {
            durable.resize(visible.len(), 0);
        }
        for (sector, is_dirty) in dirty.iter_mut().enumerate() {
            if !*is_dirty {
                continue;
            }
            if keeps(random) {
                let start = sector * SECTOR_BYTES;
                let end = (start + SECTOR_BYTES).min(visible.len());
                durable[start..end].copy_from_slice(&visible[start..end]);
                *is_dirty = false;
            } else if forget {
                *is_dirty = false;
            }
        }
    }

    fn reborn(&self) -> Inode {
        let bytes = held(&self.bytes);
        let dirty = vec![false; bytes.durable.len().div_ceil(SECTOR_BYTES)];
        let reborn =
            Bytes { visible: bytes.durable.clone(), durable: bytes.durable.clone(), dirty, mapped: false };
        Inode { bytes: Mutex::new(reborn) }
    }
}

impl SimFile {
    pub(super) fn is_at(&self, path: &Path) -> bool {
        held(&self.world).names.get(path).is_some_and(|there| Arc::ptr_eq(there, &self.inode))
    }

    pub(super) fn length(&self) -> u64 {
        held(&self.inode.bytes).visible.len() as u64
    }

    fn extend(&self, length: u64) -> io::Result<()> {
        let world = held(&self.world);
        let have = held(&self.inode.bytes).visible.len() as u64;
        if length <= have {
            return Ok(());
        }
        if world.used() + (length - have) > world.space_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = held(&self.inode.bytes);
        assert!(!bytes.mapped, "a mapped file never grows");
        let length = usize::try_from(length).map_err(io::Error::other)?;
        bytes.visible.resize(length, 0);
        bytes.dirty.resize(length.div_ceil(SECTOR_BYTES), true);
        Ok(())
    }

    pub(super) fn allocate(&self, length: u64) -> io::Result<()> {
        self.extend(length)
    }

    pub(super) fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        let bytes = held(&self.inode.bytes);
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let from = bytes.visible.get(start..start + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(from);
        Ok(())
    }

    pub(super) fn write_at(&self, from: &[u8], position: u64) -> io::Result<()> {
        self.extend(position + from.len() as u64)?;
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let taken = held(&self.world).count_write(from.len());
        held(&self.inode.bytes).visible[start..start + taken].copy_from_slice(&from[..taken]);
        self.mark(start, taken);
        match taken == from.len() {
            true => Ok(()),
            false => Err(io::Error::other("simulated write failure")),
        }
    }

    pub(super) fn write_zeros(&self, length: u64, position: u64) -> io::Result<()> {
        self.write_at(&vec![0; usize::try_from(length).map_err(io::Error::other)?], position)
    }

    pub(super) fn mark(&self, position: usize, length: usize) {
        if length > 0 {
            let sectors = position / SECTOR_BYTES..=(position + length - 1) / SECTOR_BYTES;
            held(&self.inode.bytes).dirty[sectors].fill(true);
        }
    }

    pub(super) fn empty(&self) {
        let mut bytes = held(&self.inode.bytes);
        assert!(!bytes.mapped, "a mapped file never shrinks");
        bytes.visible.clear();
        bytes.dirty.clear();
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        let mut world = held(&self.world);
        match world.count_sync() {
            Ok(()) => {
                self.inode.carry(&mut |_| true, &mut world.random, false);
                Ok(())
            }
            Err(error) => {
                self.inode.carry(&mut |random| random.once_in(2), &mut world.random, true);
                Err(error)
            }
        }
    }

    pub(super) fn map(&self, length: usize) -> Map {
        let mut bytes = held(&self.inode.bytes);
        bytes.mapped = true;
        let start = NonNull::from(bytes.visible.as_mut_slice()).cast();
        drop(bytes);
        Map::of_sim(start, length, self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Disk;
    use super::*;

    fn disk_with(bytes: &[u8], seed: u64) -> (SimDisk, super::super::File) {
        let sim = SimDisk::new(seed, 1 << 20);
        let disk = Disk::Sim(sim.clone());
        let file = disk.create(Path::new("/d/f")).unwrap();
        file.write_at(bytes, 0).unwrap();
        (sim, file)
    }

    fn content(sim: &SimDisk) -> Option<Vec<u8>> {
        let file = Disk::Sim(sim.clone()).open(Path::new("/d/f")).ok()?;
        let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        Some(bytes)
    }

    #[test]
    fn what_was_synced_survives_every_crash() {
        for seed in 0..50 {
            let (sim, file) = disk_with(&[7; 4096], seed);
            file.sync_data().unwrap();
            sim.sync_directory().unwrap();
            assert_eq!(content(&sim.crash()), Some(vec![7; 4096]), "seed {seed}");
        }
    }

    #[test]
    fn what_was_not_synced_is_lost_kept_and_torn_by_turns() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let (sim, file) = disk_with(&[1; 2048], seed);
            file.sync_data().unwrap();
            sim.sync_directory().unwrap();
            file.write_at(&[2; 2048], 0).unwrap();
            let after = content(&sim.crash()).unwrap();
            let kept = after.chunks(SECTOR_BYTES).filter(|sector| sector[0] == 2).count();
            outcomes.insert(kept);
        }
        assert_eq!(outcomes, (0..=4).collect());
    }

    #[test]
    fn a_name_without_a_directory_sync_may_vanish() {
        let vanished = (0..50).filter(|seed| content(&disk_with(b"x", *seed).0.crash()).is_none()).count();
        assert!(vanished > 5 && vanished < 45, "{vanished}");
    }

    #[test]
    fn a_failed_sync_leaves_later_ones_lying() {
        let mut lost = 0;
        for seed in 0..50 {
            let (sim, file) = disk_with(&[1; 8192], seed);
            sim.sync_directory().unwrap();
            sim.fail_sync_after(0);
            assert!(file.sync_data().is_err());
            file.sync_data().unwrap();
            lost += usize::from(content(&sim.crash()) != Some(vec![1; 8192]));
        }
        assert!(lost > 40, "{lost}");
    }

    #[test]
    fn a_write_that_fails_takes_bytes_from_the_first_one_on_and_later_ones_take_all() {
        let mut taken = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let (sim, file) = disk_with(&[1; 8], seed);
            sim.fail_write_after(1);
            file.write_at(&[2; 8], 0).unwrap();
            assert!(sim.fails_a_write() && file.write_at(&[3; 8], 0).is_err() && !sim.fails_a_write());
            let bytes = content(&sim).unwrap();
            let count = bytes.iter().take_while(|byte| **byte == 3).count();
            assert!(bytes[count..].iter().all(|byte| *byte == 2));
            taken.insert(count);
            file.write_at(&[4; 8], 0).unwrap();
            assert_eq!(content(&sim), Some(vec![4; 8]));
        }
        assert_eq!(taken, (0..8).collect());
    }

    #[test]
    fn a_file_with_two_names_is_one_file_and_stays_one_when_the_power_is_cut() {
        let (sim, file) = disk_with(&[1; 600], 3);
        let disk = Disk::Sim(sim.clone());
        disk.link(Path::new("/d/f"), &disk, Path::new("/d/g")).unwrap();
        let again = disk.link(Path::new("/d/f"), &disk, Path::new("/d/g")).unwrap_err();
        assert_eq!((again.kind(), sim.used_bytes()), (io::ErrorKind::AlreadyExists, 600));
        file.sync_data().unwrap();
        sim.sync_directory().unwrap();
        let after = sim.crash();
        let disk = Disk::Sim(after.clone());
        disk.open(Path::new("/d/g")).unwrap().write_at(&[2; 600], 0).unwrap();
        assert_eq!(content(&after), Some(vec![2; 600]));
        disk.unlink(Path::new("/d/f")).unwrap();
        assert_eq!(after.names(Path::new("/d")), ["g"]);
    }

    #[test]
    fn a_full_disk_says_so_and_takes_more_when_there_is_room() {
        let sim = SimDisk::new(1, 1000);
        let file = Disk::Sim(sim.clone()).create(Path::new("/d/f")).unwrap();
        assert_eq!(file.write_at(&[0; 1001], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        sim.set_space(2000);
        file.write_at(&[0; 1001], 0).unwrap();
    }
}
