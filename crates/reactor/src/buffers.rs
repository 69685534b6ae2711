//! The buffer pool: bytes in flight borrow a buffer, idle connections own none.

/// A byte buffer from the pool: empty, with the pool's capacity.
pub type Buffer = Vec<u8>;

/// The shape of a reactor's buffer pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferConfig {
    /// Capacity of each buffer in bytes.
    pub buffer_bytes: usize,
    /// Buffers kept for the next borrower; more are freed when given back.
    pub idle_max: usize,
}

impl Default for BufferConfig {
    fn default() -> Self {
        Self { buffer_bytes: 16 * 1024, idle_max: 32 }
    }
}

/// Idle buffers, last given first taken, so that a steady load runs on warm memory.
#[derive(Debug)]
pub(crate) struct Buffers {
    config: BufferConfig,
    idle: Vec<Buffer>,
}

impl Buffers {
    pub(crate) fn new(config: BufferConfig) -> Self {
        Self { config, idle: Vec::new() }
    }

    /// Capacity of each.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.config.buffer_bytes
    }

    pub(crate) fn take(&mut self) -> Buffer {
        self.idle.pop().unwrap_or_else(|| Vec::with_capacity(self.config.buffer_bytes))
    }

    /// Takes a buffer back. One that grew or shrank on its way is freed: the pool's bound is in bytes.
    pub(crate) fn give(&mut self, mut buffer: Buffer) {
        let ours = buffer.capacity() == self.config.buffer_bytes;
        if ours && self.idle.len() < self.config.idle_max {
            buffer.clear();
            self.idle.push(buffer);
        }
    }

    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.idle.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_no_more_than_its_bound_and_nothing_of_another_size() {
        let mut buffers = Buffers::new(BufferConfig { buffer_bytes: 64, idle_max: 2 });
        let taken: Vec<Buffer> = (0..3).map(|_| buffers.take()).collect();
        assert!(taken.iter().all(|buffer| buffer.is_empty() && buffer.capacity() == 64));
        taken.into_iter().for_each(|buffer| buffers.give(buffer));
        assert_eq!(buffers.idle(), 2);
        let mut grown = buffers.take();
        grown.extend_from_slice(&[0; 200]);
        buffers.give(grown);
        assert_eq!(buffers.idle(), 1);
        let mut used = buffers.take();
        used.push(1);
        buffers.give(used);
        assert!(buffers.take().is_empty(), "a buffer comes back empty");
    }
}
