//! Bytes as values. A [`Reader`] walks one frame; nothing it does panics, and every failure names the place.

use super::error::{DecodeError, DecodeErrorKind};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

type Read<T> = Result<T, DecodeError>;

/// What the values of lists and maps may take in memory, for each byte of the frame.
const HELD_PER_BYTE: usize = 64;

/// What they may take besides, however short the frame: an array that is absent takes one byte there and its
/// whole length in memory.
const HELD_BESIDES: usize = 16 << 20;

/// Walks one frame.
///
/// ```
/// use thalweg_wire::messagepack::{Reader, DecodeErrorKind};
/// let mut reader = Reader::new(&[0xcd, 1, 0, 0xa2, b'h', b'i']);
/// assert_eq!(reader.u32()?, 256);
/// assert_eq!(reader.string()?, "hi");
/// reader.finish()?;
/// assert_eq!(Reader::new(&[0xcd, 1, 0]).u8().unwrap_err().kind, DecodeErrorKind::Range);
/// # Ok::<(), thalweg_wire::messagepack::DecodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
    place: &'static str,
    /// What values may still take in memory.
    room: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the frame's first byte.
    pub fn new(frame: &'a [u8]) -> Self {
        Self::resume(frame, 0)
    }

    /// Goes on where another reader of the same frame stood: for a caller that cannot keep one that borrows.
    ///
    /// ```
    /// # use thalweg_wire::messagepack::Reader;
    /// let frame = [1, 2];
    /// let mut first = Reader::new(&frame);
    /// assert_eq!(first.u8()?, 1);
    /// assert_eq!(Reader::resume(&frame, first.at()).u8()?, 2);
    /// # Ok::<(), thalweg_wire::messagepack::DecodeError>(())
    /// ```
    #[inline]
    pub fn resume(frame: &'a [u8], at: usize) -> Self {
        let room = frame.len().saturating_mul(HELD_PER_BYTE).saturating_add(HELD_BESIDES);
        Self { frame, at: at.min(frame.len()), place: "frame", room }
    }

    /// The byte that comes next.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Ends the frame.
    ///
    /// # Errors
    /// Something is left of it.
    #[inline]
    pub fn finish(&self) -> Read<()> {
        // What was read last is whole, so it is not to blame.
        if self.at < self.frame.len() { Err(self.refuse(DecodeErrorKind::Trailing, "frame")) } else { Ok(()) }
    }

    /// An error that begins at `at`.
    #[cold]
    fn error(&self, kind: DecodeErrorKind, at: usize) -> DecodeError {
        DecodeError { kind, at, place: self.place }
    }

    /// An error about what was read last.
    #[cold]
    pub fn refuse(&self, kind: DecodeErrorKind, place: &'static str) -> DecodeError {
        DecodeError { kind, at: self.at, place }
    }

    #[inline]
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.frame.len());
        let Some(end) = end else { return Err(self.error(DecodeErrorKind::Truncated, self.frame.len())) };
        let taken = &self.frame[self.at..end];
        self.at = end;
        Ok(taken)
    }

    #[inline]
    fn byte(&mut self) -> Read<u8> {
        let Some(&byte) = self.frame.get(self.at) else {
            return Err(self.error(DecodeErrorKind::Truncated, self.at));
        };
        self.at += 1;
        Ok(byte)
    }

    /// The next `N` bytes.
    #[inline]
    fn exactly<const N: usize>(&mut self) -> Read<[u8; N]> {
        match self.frame.get(self.at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.error(DecodeErrorKind::Truncated, self.frame.len())),
        }
    }

    #[inline]
    fn number1(&mut self) -> Read<u64> {
        self.byte().map(u64::from)
    }

    #[inline]
    fn number2(&mut self) -> Read<u64> {
        Ok(u16::from_be_bytes(self.exactly()?).into())
    }

    #[inline]
    fn number4(&mut self) -> Read<u64> {
        Ok(u32::from_be_bytes(self.exactly()?).into())
    }

    #[inline]
    fn number8(&mut self) -> Read<u64> {
        Ok(u64::from_be_bytes(self.exactly()?))
    }

    #[cold]
    fn wrong_type<T>(&self, expected: &'static str, found: u8) -> Read<T> {
        Err(self.error(DecodeErrorKind::Type { expected, found }, self.at - 1))
    }

    /// True or false.
    ///
    /// # Errors
    /// Something else stands here.
    #[inline]
    pub fn boolean(&mut self) -> Read<bool> {
        match self.byte()? {
            0xc2 => Ok(false),
            0xc3 => Ok(true),
            found => self.wrong_type("a boolean", found),
        }
    }

    /// An integer of any width and sign, as its sign-extended bits and whether it is negative.
    #[inline]
    fn integer(&mut self) -> Read<(u64, bool)> {
        let tag = self.byte()?;
        if tag < 0x80 {
            return Ok((u64::from(tag), false));
        }
        let signed = |value: i64| (value as u64, value < 0);
        Ok(match tag {
            0xcc => (self.number1()?, false),
            0xcd => (self.number2()?, false),
            0xce => (self.number4()?, false),
            0xcf => (self.number8()?, false),
            0xd0 => signed(i64::from(self.number1()? as i8)),
            0xd1 => signed(i64::from(self.number2()? as i16)),
            0xd2 => signed(i64::from(self.number4()? as i32)),
            0xd3 => signed(self.number8()? as i64),
            0xe0.. => signed(i64::from(tag as i8)),
            found => return self.wrong_type("an integer", found),
        })
    }

    /// An unsigned integer of any width.
    ///
    /// # Errors
    /// No integer stands here, or a negative one.
    #[inline]
    pub fn u64(&mut self) -> Read<u64> {
        let at = self.at;
        match self.integer()? {
            (value, false) => Ok(value),
            _ => Err(self.error(DecodeErrorKind::Range, at)),
        }
    }

    /// A signed integer of any width.
    ///
    /// # Errors
    /// No integer stands here, or one too large.
    #[inline]
    pub fn i64(&mut self) -> Read<i64> {
        let at = self.at;
        match self.integer()? {
            (value, negative) if negative == ((value as i64) < 0) => Ok(value as i64),
            _ => Err(self.error(DecodeErrorKind::Range, at)),
        }
    }

    /// A 32-bit float.
    ///
    /// # Errors
    /// Something else stands here, a 64-bit float included.
    pub fn f32(&mut self) -> Read<f32> {
        match self.byte()? {
            0xca => Ok(f32::from_bits(self.number4()? as u32)),
            found => self.wrong_type("a 32-bit float", found),
        }
    }

    /// A float of either width.
    ///
    /// # Errors
    /// Something else stands here.
    pub fn f64(&mut self) -> Read<f64> {
        match self.byte()? {
            0xca => Ok(f64::from(f32::from_bits(self.number4()? as u32))),
            0xcb => Ok(f64::from_bits(self.number8()?)),
            found => self.wrong_type("a float", found),
        }
    }

    /// A string's bytes, not yet known to be UTF-8.
    #[inline]
    fn raw_string(&mut self) -> Read<&'a [u8]> {
        let length = match self.byte()? {
            tag @ 0xa0..=0xbf => usize::from(tag & 31),
            0xd9 => self.number1()? as usize,
            0xda => self.number2()? as usize,
            0xdb => self.number4()? as usize,
            found => return self.wrong_type("a string", found),
        };
        self.take(length)
    }

    /// UTF-8 text, borrowed.
    ///
    /// # Errors
    /// Something else stands here.
    #[inline]
    pub fn string(&mut self) -> Read<Cow<'a, str>> {
        let raw = self.raw_string()?;
        match std::str::from_utf8(raw) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) => Err(self.error(DecodeErrorKind::Utf8, self.at - raw.len())),
        }
    }

    /// Any bytes, borrowed.
    ///
    /// # Errors
    /// Something else stands here, a string included.
    #[inline]
    pub fn bytes(&mut self) -> Read<Cow<'a, [u8]>> {
        let length = match self.byte()? {
            0xc4 => self.number1()? as usize,
            0xc5 => self.number2()? as usize,
            0xc6 => self.number4()? as usize,
            found => return self.wrong_type("bytes", found),
        };
        self.take(length).map(Cow::Borrowed)
    }

    /// Exactly 32 bytes.
    ///
    /// # Errors
    /// Something else stands here.
    pub fn bin32(&mut self) -> Read<[u8; 32]> {
        let at = self.at;
        let bytes = self.bytes()?;
        let found = bytes.len();
        <[u8; 32]>::try_from(&*bytes)
            .map_err(|_| self.error(DecodeErrorKind::Length { expected: 32, found }, at))
    }

    /// A value that may be absent.
    ///
    /// # Errors
    /// Neither nil nor the value stands here.
    #[inline]
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.nil() { Ok(None) } else { read(self).map(Some) }
    }

    /// Takes a nil, if one stands here.
    #[inline]
    pub fn nil(&mut self) -> bool {
        let stands = self.frame.get(self.at) == Some(&0xc0);
        self.at += usize::from(stands);
        stands
    }

    #[inline]
    fn array_length(&mut self) -> Read<usize> {
        Ok(match self.byte()? {
            tag @ 0x90..=0x9f => usize::from(tag & 15),
            0xdc => self.number2()? as usize,
            0xdd => self.number4()? as usize,
            found => return self.wrong_type("an array", found),
        })
    }

    #[inline]
    fn map_length(&mut self) -> Read<usize> {
        Ok(match self.byte()? {
            tag @ 0x80..=0x8f => usize::from(tag & 15),
            0xde => self.number2()? as usize,
            0xdf => self.number4()? as usize,
            found => return self.wrong_type("a map", found),
        })
    }

    /// Refuses a count of values that the rest of the frame cannot hold.
    #[inline]
    fn believe(&self, count: usize, item_bytes_min: usize) -> Read<usize> {
        let left = self.frame.len() - self.at;
        if count > left / item_bytes_min.max(1) {
            return Err(self.error(DecodeErrorKind::Truncated, self.frame.len()));
        }
        Ok(count)
    }

    /// Counts the memory of as many values, before any of them is read. Returns for how many of them it may
    /// be reserved at once: what is reserved is measured by the bytes that are left, the rest by values that
    /// were read.
    #[inline]
    fn hold<T>(&mut self, count: usize) -> Read<usize> {
        let room = count.checked_mul(size_of::<T>()).and_then(|taken| self.room.checked_sub(taken));
        let Some(room) = room else { return Err(self.error(DecodeErrorKind::Memory, self.at)) };
        self.room = room;
        let left = self.frame.len() - self.at;
        Ok(count.min(left.saturating_mul(HELD_PER_BYTE) / size_of::<T>().max(1)))
    }

    /// A list whose values take at least `item_bytes_min` each.
    ///
    /// # Errors
    /// No array stands here, its values would take too much memory, or one of them is wrong.
    pub fn list<T>(
        &mut self,
        item_bytes_min: usize,
        mut read: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let count = self.begin_list(item_bytes_min)?;
        let mut values = Vec::with_capacity(self.hold::<T>(count)?);
        let place = self.place;
        for _ in 0..count {
            values.push(read(self)?);
        }
        self.place = place;
        Ok(values)
    }

    /// Begins a list whose values take at least `item_bytes_min` each: how many follow.
    ///
    /// # Errors
    /// No array stands here, or one of more values than the frame can hold.
    #[inline]
    pub fn begin_list(&mut self, item_bytes_min: usize) -> Read<usize> {
        let count = self.array_length()?;
        self.believe(count, item_bytes_min)
    }

    /// An array of a fixed length.
    ///
    /// # Errors
    /// No array of this length stands here, or one of its values is wrong.
    pub fn array<T, const N: usize>(&mut self, mut read: impl FnMut(&mut Self) -> Read<T>) -> Read<[T; N]> {
        self.begin_array(N)?;
        let place = self.place;
        let mut refused = None;
        let values: [Option<T>; N] = std::array::from_fn(|_| match refused {
            Some(_) => None,
            None => read(self).map_err(|error| refused = Some(error)).ok(),
        });
        self.place = place;
        match refused {
            Some(error) => Err(error),
            // Nothing was refused, so each of them was read.
            None => Ok(values.map(|value| value.unwrap_or_else(|| unreachable!()))),
        }
    }

    /// Begins an array of a fixed length.
    ///
    /// # Errors
    /// No array of this length stands here.
    pub fn begin_array(&mut self, expected: usize) -> Read<()> {
        let at = self.at;
        let found = self.array_length()?;
        if found == expected {
            Ok(())
        } else {
            Err(self.error(DecodeErrorKind::Length { expected, found }, at))
        }
    }

    /// Values by string keys, in any order.
    ///
    /// # Errors
    /// No map stands here, one of its keys comes twice, its values would take too much memory, or one of them
    /// is wrong.
    pub fn map<T>(
        &mut self,
        item_bytes_min: usize,
        mut read: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<BTreeMap<Cow<'a, str>, T>> {
        let count = self.begin_map(item_bytes_min)?;
        self.hold::<(Cow<'a, str>, T)>(count)?;
        let mut values = BTreeMap::new();
        for _ in 0..count {
            let at = self.at;
            let Entry::Vacant(free) = values.entry(self.string()?) else {
                return Err(self.error(DecodeErrorKind::Duplicate, at));
            };
            let place = self.place;
            free.insert(read(self)?);
            // A struct left its own place.
            self.place = place;
        }
        Ok(values)
    }

    /// Begins a map whose values take at least `item_bytes_min` each: how many keys follow, each with its
    /// value.
    ///
    /// # Errors
    /// No map stands here, or one of more values than the frame can hold.
    #[inline]
    pub fn begin_map(&mut self, item_bytes_min: usize) -> Read<usize> {
        let count = self.map_length()?;
        self.believe(count, item_bytes_min.saturating_add(1))
    }

    /// Begins a struct: how many fields follow.
    ///
    /// # Errors
    /// No map stands here.
    #[inline]
    pub fn fields(&mut self, place: &'static str) -> Read<usize> {
        self.place = place;
        self.begin_map(1)
    }

    /// A struct without fields.
    ///
    /// # Errors
    /// No map stands here, or one with a field.
    pub fn no_fields(&mut self, place: &'static str) -> Read<()> {
        if self.fields(place)? == 0 {
            return Ok(());
        }
        self.key()?;
        Err(self.refuse(DecodeErrorKind::UnknownField, place))
    }

    /// A field's name, to be compared with those that are declared.
    ///
    /// # Errors
    /// No string stands here.
    #[inline]
    pub fn key(&mut self) -> Read<&'a [u8]> {
        self.raw_string()
    }

    /// A word of an enum, which `of` knows.
    ///
    /// # Errors
    /// No string stands here, or one that is no word of the enum.
    #[inline]
    pub fn word<T>(&mut self, of: impl FnOnce(&[u8]) -> Option<T>) -> Read<T> {
        let at = self.at;
        of(self.raw_string()?).ok_or_else(|| self.error(DecodeErrorKind::UnknownWord, at))
    }

    /// A field's value, once.
    ///
    /// # Errors
    /// The field was there already, or its value is wrong.
    #[inline]
    pub fn field<T>(
        &mut self,
        slot: &mut Option<T>,
        place: &'static str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<()> {
        let outer = std::mem::replace(&mut self.place, place);
        if slot.is_some() {
            return Err(self.error(DecodeErrorKind::Duplicate, self.at));
        }
        *slot = Some(read(self)?);
        self.place = outer;
        Ok(())
    }

    /// A field that has to be there.
    ///
    /// # Errors
    /// It is not.
    #[inline]
    pub fn required<T>(&self, slot: Option<T>, place: &'static str) -> Read<T> {
        slot.ok_or_else(|| self.refuse(DecodeErrorKind::Missing, place))
    }

    /// Begins a request's envelope, `[[tag, …]]`, and returns its tag.
    ///
    /// # Errors
    /// No such envelope stands here.
    pub fn request(&mut self) -> Read<&'a [u8]> {
        self.begin_array(1)?;
        self.response()
    }

    /// Begins the envelope of a response, an item or an error, `[tag, …]`, and returns its tag.
    ///
    /// # Errors
    /// No such envelope stands here.
    pub fn response(&mut self) -> Read<&'a [u8]> {
        self.begin_array(2)?;
        self.key()
    }
}

macro_rules! narrow {
    ($($name:ident from $wide:ident),*) => {
        impl Reader<'_> {$(
            /// An integer of any width that fits this one.
            ///
            /// # Errors
            /// No integer stands here, or one that does not fit.
            #[inline]
            pub fn $name(&mut self) -> Read<$name> {
                let at = self.at;
                let value = self.$wide()?;
                $name::try_from(value).map_err(|_| self.error(DecodeErrorKind::Range, at))
            }
        )*}
    };
}
narrow!(u8 from u64, u16 from u64, u32 from u64, i8 from i64, i16 from i64, i32 from i64);

#[cfg(test)]
mod tests;
