//! MessagePack as typed services use it: what generated codecs are made of. Rules in `docs/schema.md`.
//!
//! Reading is strict where a value could mean two things and lenient where it cannot: integers of any width
//! are taken if the value fits, floats of either width for `f64`; a string is no `bin`, a field that is not
//! declared is refused, and so is one that comes twice. [`Reader`] borrows from the frame. A count is
//! believed only as far as the bytes that are left could hold so many. What [`Reader::list`] and
//! [`Reader::map`] hold in memory is counted too, since a value of one byte may be large there: nothing is
//! allocated beyond a fixed multiple of the frame and a fixed rest.
//!
//! *Checked by* the tests here, and by every generated codec against the golden frames, their prefixes and
//! mutations.

mod error;
mod read;
pub mod write;

pub use error::{DecodeError, DecodeErrorKind};
pub use read::Reader;

/// Something that travels as a map of fields: what the generator makes of a struct.
pub trait Fields<'a>: Sized {
    /// Writes the fields as a map.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads the fields from a map.
    ///
    /// # Errors
    /// The bytes are no such map.
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// Fields with a tag: a request, a response, a stream's item or an error.
pub trait Message<'a>: Fields<'a> {
    /// Its name on the wire.
    const TAG: &'static str;
}

/// Writes a request's frame, `[[tag, fields]]`, behind what `out` holds.
pub fn request_frame<'a, M: Message<'a>>(message: &M, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x91, 0x92]);
    write::string(out, M::TAG);
    message.write(out);
}

/// Writes the frame of a response, an item or an error, `[tag, fields]`, behind what `out` holds.
pub fn response_frame<'a, M: Message<'a>>(message: &M, out: &mut Vec<u8>) {
    out.push(0x92);
    write::string(out, M::TAG);
    message.write(out);
}
