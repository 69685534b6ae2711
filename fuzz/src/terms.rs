//! Erlang's terms: whatever is read is written again, and read again as the same.

use thalweg_wire::messagepack::write as plain;
use thalweg_wire::term::{Build, TermError, extension, read, read_items, write};

/// A term is one when it is written and read again.
pub fn terms(data: &[u8]) {
    let _ = read_items(&mut Writer, data);
    let Ok(written) = read(&mut Writer, data) else { return };
    assert_eq!(read(&mut Writer, &written), Ok(written.clone()), "what was written reads as something else");
}

/// Has for a value the bytes that it would be written as.
struct Writer;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn put(out: &mut Vec<u8>, items: &[Vec<u8>]) {
    items.iter().for_each(|item| out.extend_from_slice(item));
}

impl Build for Writer {
    type Value = Vec<u8>;
    type Error = TermError;

    fn none(&mut self) -> Vec<u8> {
        vec![0xc0]
    }

    fn boolean(&mut self, value: bool) -> Vec<u8> {
        written(|out| plain::boolean(out, &value))
    }

    fn integer(&mut self, value: i64) -> Vec<u8> {
        written(|out| plain::i64(out, &value))
    }

    fn natural(&mut self, value: u64) -> Vec<u8> {
        written(|out| plain::u64(out, &value))
    }

    fn large(&mut self, is_negative: bool, magnitude: &[u8]) -> Result<Vec<u8>, TermError> {
        Ok(written(|out| write::large(out, is_negative, magnitude)))
    }

    fn float(&mut self, value: f64) -> Vec<u8> {
        written(|out| plain::f64(out, &value))
    }

    fn text(&mut self, text: &[u8]) -> Result<Vec<u8>, TermError> {
        let text = std::str::from_utf8(text).map_err(|_| TermError("no text"))?;
        Ok(written(|out| plain::string(out, text)))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        written(|out| plain::bytes(out, bytes))
    }

    fn list(&mut self, items: Vec<Vec<u8>>) -> Result<Vec<u8>, TermError> {
        Ok(written(|out| {
            plain::list_header(out, items.len());
            put(out, &items);
        }))
    }

    fn tuple(&mut self, items: Vec<Vec<u8>>) -> Result<Vec<u8>, TermError> {
        let mut out = Vec::new();
        write::tuple(&mut out, items.len(), |out| {
            put(out, &items);
            Ok::<(), TermError>(())
        })?;
        Ok(out)
    }

    fn map(&mut self, pairs: Vec<Vec<u8>>) -> Result<Vec<u8>, TermError> {
        Ok(written(|out| {
            plain::map_header(out, pairs.len() / 2);
            put(out, &pairs);
        }))
    }

    fn atom(&mut self, name: &[u8]) -> Result<Vec<u8>, TermError> {
        Ok(written(|out| write::extended(out, extension::ATOM, name)))
    }

    fn pid(&mut self, form: &[u8]) -> Result<Vec<u8>, TermError> {
        Ok(written(|out| write::extended(out, extension::PID, form)))
    }

    fn reference(&mut self, form: &[u8]) -> Result<Vec<u8>, TermError> {
        Ok(written(|out| write::extended(out, extension::REFERENCE, form)))
    }
}
