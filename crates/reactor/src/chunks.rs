//! A vector that grows by chunks and never moves what it holds.
//!
//! A plain vector doubles: at the worst moment old and new copies live side by side, and a third of the
//! room stays unused. Here growth costs one chunk, whatever the size.
//!
//! Where places come and go, the vacant ones are a list, the one vacated last filled first. Invariant: from
//! the first one, each names the next, and the last one none.

/// No place.
const NONE: u32 = u32::MAX;
/// Elements per chunk: small enough that an empty server stays small, large enough that the list of
/// chunks is short.
pub(crate) const CHUNK: usize = 256;

/// What lies in a place that may be vacant.
pub(crate) trait Vacancy {
    /// A place where nothing has been yet, and the vacant one after it.
    fn vacant(next: u32) -> Self;

    /// The vacant place after this one; `None` where something is.
    fn next(&self) -> Option<u32>;
}

#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Box<[T]>>,
    first_vacant: u32,
}

impl<T> Chunks<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), first_vacant: NONE }
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

impl<T: Vacancy> Chunks<T> {
    /// The place that is filled next. Grows by a chunk if it must.
    pub(crate) fn first_vacant(&mut self) -> u32 {
        if self.first_vacant == NONE {
            let (start, end) = (self.len(), self.len() + CHUNK);
            self.grow(|index| T::vacant(if index + 1 < end { index as u32 + 1 } else { NONE }));
            self.first_vacant = start as u32;
        }
        self.first_vacant
    }

    /// Fills that place.
    pub(crate) fn fill(&mut self, element: T) {
        let Some(place) = self.at_mut(self.first_vacant) else { return };
        let next = place.next();
        *place = element;
        debug_assert!(next.is_some(), "the list of vacant places holds vacant places");
        if let Some(next) = next {
            self.first_vacant = next;
        }
    }

    /// What is taken out of its place, which holds `vacant`, made from the vacant place after it, from now
    /// on.
    pub(crate) fn vacate(&mut self, index: u32, vacant: impl FnOnce(u32) -> T) -> Option<T> {
        let next = self.first_vacant;
        let element = std::mem::replace(self.at_mut(index)?, vacant(next));
        self.first_vacant = index;
        Some(element)
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

    #[derive(Debug, PartialEq, Eq)]
    enum Place {
        Vacant(u32),
        Taken(u32),
    }

    impl Vacancy for Place {
        fn vacant(next: u32) -> Self {
            Self::Vacant(next)
        }

        fn next(&self) -> Option<u32> {
            match self {
                Self::Vacant(next) => Some(*next),
                Self::Taken(_) => None,
            }
        }
    }

    #[test]
    fn what_was_vacated_last_is_filled_first_and_growth_comes_last() {
        let mut chunks = Chunks::new();
        for index in 0..CHUNK as u32 {
            assert_eq!(chunks.first_vacant(), index);
            chunks.fill(Place::Taken(index));
        }
        for index in [7, 3] {
            assert_eq!(chunks.vacate(index, Place::Vacant), Some(Place::Taken(index)));
        }
        for index in [3, 7] {
            assert_eq!((chunks.first_vacant(), chunks.len()), (index, CHUNK));
            chunks.fill(Place::Taken(index));
        }
        assert_eq!((chunks.first_vacant(), chunks.len()), (CHUNK as u32, 2 * CHUNK));
    }
}
