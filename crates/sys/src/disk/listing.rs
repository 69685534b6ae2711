//! What a directory holds, as of one moment.
//!
//! The kernel lists under the directory's lock, as much in one call as the caller has room for. Where a
//! second call is needed the directory may have changed in between, and some file systems then name a file
//! twice, or one not at all that was there all the time (tmpfs, for one that another was renamed to). So all
//! of it is read in one call, with more room for each attempt.

use super::held::At;
use super::real;
use rustix::fs::RawDir;
use std::io;
use std::os::fd::AsFd;

/// Room for some hundreds of names.
const BYTES: usize = 32 << 10;

/// The names in a directory that are UTF-8, in order.
pub(super) fn names(at: At<'_>) -> io::Result<Vec<String>> {
    let mut bytes = BYTES;
    loop {
        let directory = real::directory(at)?;
        if let Some(mut names) = in_one_call(&directory, bytes)? {
            names.sort_unstable();
            return Ok(names);
        }
        bytes *= 2;
    }
}

/// What there is, unless it needs more room.
fn in_one_call(directory: impl AsFd, bytes: usize) -> io::Result<Option<Vec<String>>> {
    let (mut names, mut calls, mut room) = (Vec::new(), 0, Vec::with_capacity(bytes));
    let mut entries = RawDir::new(directory, room.spare_capacity_mut());
    loop {
        calls += usize::from(entries.is_buffer_empty());
        let Some(entry) = entries.next() else { return Ok(Some(names)) };
        if calls > 1 {
            return Ok(None);
        }
        match entry?.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::Disk;
    use std::path::Path;
    use std::sync::mpsc::{TryRecvError, channel};

    #[test]
    fn a_directory_of_any_size_is_listed_whole_and_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut expected: Vec<String> = (0..3000).map(|number| format!("{number:040}")).collect();
        expected
            .iter()
            .rev()
            .for_each(|name| drop(std::fs::File::create(directory.path().join(name)).unwrap()));
        assert_eq!(Disk::Real.names(directory.path()).unwrap(), expected);
        expected.drain(..).for_each(|name| std::fs::remove_file(directory.path().join(name)).unwrap());
        assert_eq!(Disk::Real.names(directory.path()).unwrap(), expected);
    }

    #[test]
    fn what_is_renamed_beside_it_is_named_once() {
        let memory = Path::new("/dev/shm");
        let places = [std::env::temp_dir(), memory.to_owned()];
        for place in places.iter().filter(|place| place.is_dir()) {
            let directory = tempfile::tempdir_in(place).unwrap();
            let at = directory.path();
            let expected: Vec<String> = (10..99).map(|number| format!("segment-{number}")).collect();
            expected.iter().for_each(|name| drop(std::fs::File::create(at.join(name)).unwrap()));
            let (stop, stopped) = channel::<()>();
            std::thread::scope(|scope| {
                let mut names = expected.iter().cycle();
                scope.spawn(move || {
                    while stopped.try_recv() == Err(TryRecvError::Empty) {
                        std::fs::File::create(at.join("new")).unwrap();
                        std::fs::rename(at.join("new"), at.join(names.next().unwrap())).unwrap();
                    }
                });
                for _ in 0..2000 {
                    let mut found = Disk::Real.names(at).unwrap();
                    found.retain(|name| name != "new");
                    assert_eq!(found, expected, "in {}", place.display());
                }
                drop(stop);
            });
        }
    }
}
