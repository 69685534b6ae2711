//! A piece of a body: bytes in memory, which a file may hold as well.
//!
//! Purpose: what a service answers is sent without a copy. Where it says which file holds the same bytes, the
//! sender may have the kernel take them from there (`sendfile`). The bytes are good without the file;
//! two pieces are equal when their bytes are.

use bytes::{Buf, Bytes};
use std::borrow::Borrow;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A piece of a body. A clone shares the bytes.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    bytes: Bytes,
    /// What holds the same bytes for good, and from where on.
    file: Option<(Arc<OwnedFd>, u64)>,
}

impl Piece {
    /// Bytes that a file holds as well, from a place of it on; neither will ever change.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use std::sync::Arc;
    /// use thalweg_wire::piece::Piece;
    ///
    /// let file = Arc::new(std::fs::File::open("Cargo.toml")?.into());
    /// let mut piece = Piece::held(Bytes::from(std::fs::read("Cargo.toml")?), file, 0);
    /// piece.advance(4);
    /// assert_eq!(piece.file().map(|(_, at)| at), Some(4));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn held(bytes: Bytes, file: Arc<OwnedFd>, at: u64) -> Piece {
        Piece { bytes, file: Some((file, at)) }
    }

    /// The file that holds the same bytes, and where they begin in it.
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.file.as_ref().map(|(file, at)| (file.as_fd(), *at))
    }

    /// Keeps the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some((_, at)) = &mut self.file {
            *at += count as u64;
        }
    }

    /// What follows the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn behind(&self, count: usize) -> Piece {
        let mut rest = self.clone();
        rest.advance(count);
        rest
    }
}

impl<B: Into<Bytes>> From<B> for Piece {
    fn from(bytes: B) -> Piece {
        Piece { bytes: bytes.into(), file: None }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Borrow<[u8]> for Piece {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Piece) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Piece {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_says_where_what_is_left_of_it_lies() {
        let (file, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut piece = Piece::held(Bytes::from_static(b"abcdef"), Arc::new(file.into()), 40);
        let rest = piece.behind(2);
        assert_eq!((&rest[..], rest.file().map(|(_, at)| at)), (&b"cdef"[..], Some(42)));
        piece.truncate(3);
        piece.advance(1);
        assert_eq!((&piece[..], piece.file().map(|(_, at)| at)), (&b"bc"[..], Some(41)));
        assert_eq!(piece, Piece::from(&b"bc"[..]), "wherever they lie");
        assert!(Piece::from(vec![1]).file().is_none());
        assert_eq!([Piece::from("a"), Piece::from("b")].concat(), b"ab");
    }
}
