//! Log lines on their way to the log's reader.
//!
//! Reactors, the committer and the thread that waits for signals log, and none of them may wait for a reader
//! that is slow or has stopped. So a line is put into a bounded buffer, one thread writes what waits there,
//! and a line that finds no room is dropped and counted. Lines keep their order. Knows neither threads nor
//! descriptors; checked by the tests below.

use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Bytes of lines that may wait; as many again may be being written.
const WAITING_BYTES_MAX: usize = 512 << 10;
/// A buffer that grew beyond this is given back once it is written.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Lines that wait to be written.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// There is a line to write.
    filled: Condvar,
    /// Nothing waits any more.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// What was taken out is not written yet.
    is_writing: bool,
    /// Lines that found no room since the beginning.
    dropped: u64,
}

impl Queue {
    fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.waiting.len() + line.len() > WAITING_BYTES_MAX {
            state.dropped += 1;
            return;
        }
        state.waiting.extend_from_slice(line);
        drop(state);
        self.filled.notify_one();
    }

    /// Waits for lines and writes all that wait, by way of `buffer`, which is empty before and after. Answers
    /// how many lines were dropped since the beginning.
    pub(super) fn write_to(&self, output: &mut impl Write, buffer: &mut Vec<u8>) -> u64 {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            self.filled.wait(&mut state);
        }
        std::mem::swap(&mut state.waiting, buffer);
        state.is_writing = true;
        drop(state);
        // A log that cannot be written has no other place to say so.
        let _ = output.write_all(buffer);
        buffer.clear();
        buffer.shrink_to(KEPT_BYTES_MAX);
        let mut state = self.state.lock();
        state.is_writing = false;
        let dropped = state.dropped;
        if state.waiting.is_empty() {
            self.emptied.notify_all();
        }
        dropped
    }

    /// Waits until everything is written, but no longer than that.
    pub(super) fn flush(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.is_writing || !state.waiting.is_empty() {
            if self.emptied.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

/// A line, which the formatter hands over whole.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LONG: Duration = Duration::from_secs(60);

    /// A reader that says when something is written to it, and takes it when it is allowed to.
    struct Slow {
        begun: Sender<()>,
        allowed: Receiver<()>,
        taken: Vec<u8>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.begun.send(()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.allowed.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.taken.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_the_others_keep_their_order() {
        let ((begun, begins), (allow, allowed)) = (channel(), channel());
        let mut output = Slow { begun, allowed, taken: Vec::new() };
        let queue = Queue::default();
        let line = |number: usize| format!("{number:>1023}\n").into_bytes();
        let fits = WAITING_BYTES_MAX / line(0).len();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut buffer = Vec::new();
                [(); 2].map(|()| queue.write_to(&mut output, &mut buffer))
            });
            queue.push(&line(0));
            begins.recv().unwrap();
            // While that one is not read, as many wait behind it as there is room for.
            (1..=fits + 3).for_each(|number| queue.push(&line(number)));
            queue.flush(Duration::ZERO);
            allow.send(()).unwrap();
            begins.recv().unwrap();
            allow.send(()).unwrap();
            assert_eq!(writing.join().unwrap(), [3, 3]);
        });
        assert!(output.taken == (0..=fits).flat_map(line).collect::<Vec<_>>());
        queue.flush(LONG);
    }

    #[test]
    fn a_buffer_that_grew_is_given_back_and_a_reader_that_is_gone_stops_nobody() {
        let (begun, (_, allowed)) = (channel().0, channel());
        let (mut output, queue, mut buffer) =
            (Slow { begun, allowed, taken: Vec::new() }, Queue::default(), Vec::new());
        for _ in 0..3 {
            queue.push(&vec![b'x'; WAITING_BYTES_MAX]);
            assert_eq!(queue.write_to(&mut output, &mut buffer), 0);
            assert!(buffer.is_empty() && buffer.capacity() <= KEPT_BYTES_MAX);
        }
        queue.flush(LONG);
    }
}
