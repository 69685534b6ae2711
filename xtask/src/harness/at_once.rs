//! Work of several pieces, so many of them at once.

use std::sync::Mutex;
use std::thread;

/// How many pieces that compute keep this machine busy.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Does every piece, beginning them in their order, and answers what came of each in that order.
///
/// # Errors
/// That of the first piece that has one; a piece that panicked.
pub(crate) fn each<P: Send, T: Send>(
    pieces: Vec<P>,
    at_once: usize,
    work: impl Fn(P) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let asked = pieces.len();
    let queue = Mutex::new(pieces.into_iter().enumerate());
    let next = || queue.lock().map_or(None, |mut queue| queue.next());
    let worker = || std::iter::from_fn(next).map(|(place, piece)| (place, work(piece))).collect::<Vec<_>>();
    let ended: Vec<thread::Result<_>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.max(1)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut done = Vec::with_capacity(asked);
    for worker in ended {
        done.extend(worker.map_err(|_| "a worker panicked, and what it had found is gone".to_owned())?);
    }
    if done.len() != asked {
        return Err(format!("{} of {asked} pieces were done", done.len()));
    }
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, came)| came).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_however_many_at_once() {
        for at_once in [0, 1, 3, 100] {
            let doubled = each((0..20).collect(), at_once, |piece: u32| Ok(2 * piece)).unwrap();
            assert_eq!(doubled, (0..20).map(|piece| 2 * piece).collect::<Vec<_>>(), "{at_once} at once");
        }
    }

    #[test]
    fn a_worker_that_panics_takes_no_piece_away_unseen() {
        let panics = |piece: u32| if piece == 3 { panic!("as it should") } else { Ok(()) };
        assert!(each((0..5).collect(), 2, panics).unwrap_err().contains("panicked"));
        let fails = |piece: u32| if piece % 2 == 1 { Err(format!("{piece} does not start")) } else { Ok(()) };
        assert_eq!(each((0..5).collect(), 2, fails).unwrap_err(), "1 does not start");
    }
}
