//! A vector that grows by chunks and never moves what it holds.
//!
//! A plain vector doubles: at the worst moment old and new copies live side by side, and a third of the
//! room stays unused. Here growth costs one chunk, whatever the size.

/// Elements per chunk: small enough that an empty server stays small, large enough that the list of
/// chunks is short.
pub(crate) const CHUNK: usize = 256;

#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Box<[T]>>,
}

impl<T> Chunks<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Room made so far.
    pub(crate) fn len(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Adds one chunk of elements, made from their indices.
    pub(crate) fn grow(&mut self, make: impl FnMut(usize) -> T) {
        let start = self.len();
        self.chunks.push((start..start + CHUNK).map(make).collect());
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_moves_nothing() {
        let mut chunks = Chunks::new();
        assert_eq!((chunks.len(), chunks.at(0)), (0, None));
        chunks.grow(|index| index);
        let address = std::ptr::from_ref(chunks.at(3).unwrap());
        for _ in 0..100 {
            chunks.grow(|index| index);
        }
        assert_eq!(std::ptr::from_ref(chunks.at(3).unwrap()), address);
        assert_eq!(chunks.iter().copied().collect::<Vec<_>>(), (0..101 * CHUNK).collect::<Vec<_>>());
        assert_eq!(chunks.at(101 * CHUNK as u32), None);
        *chunks.at_mut(300).unwrap() = 1;
        assert_eq!(chunks.at(300), Some(&1));
    }
}
