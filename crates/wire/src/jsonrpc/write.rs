//! JSON, appended: values, and the messages of JSON-RPC around them.

use super::body::Id;
use super::text::ordinary;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What every message begins with.
const HEAD: &[u8] = b"{\"jsonrpc\":\"2.0\",";

/// A string, quotes included.
///
/// ```
/// use thalweg_wire::jsonrpc::write;
/// let mut out = Vec::new();
/// write::string(&mut out, "say \"hi\"\n");
/// assert_eq!(out, br#""say \"hi\"\n""#);
/// ```
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let at = ordinary(rest);
        out.extend_from_slice(&rest[..at]);
        let Some(byte) = rest.get(at) else { break };
        match *byte {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.push(b'"');
}

/// Bytes, as a string of base64 with its padding.
pub fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The room is exactly what it takes; without room nothing would be written.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.push(b'"');
}

/// An unsigned integer.
pub fn unsigned(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A signed integer.
pub fn signed(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Begins an answer; a result is to follow, and then [`end`].
pub fn begin_result(out: &mut Vec<u8>) {
    out.extend_from_slice(HEAD);
    out.extend_from_slice(b"\"result\":");
}

/// Ends an answer.
pub fn end(out: &mut Vec<u8>, id: Id<'_>) {
    out.extend_from_slice(b",\"id\":");
    out.extend_from_slice(id.as_str().as_bytes());
    out.push(b'}');
}

/// An answer that is an error; `data` appends a value, or nothing for none.
pub fn error(out: &mut Vec<u8>, id: Id<'_>, code: i32, message: &str, data: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(HEAD);
    out.extend_from_slice(b"\"error\":{\"code\":");
    signed(out, code.into());
    out.extend_from_slice(b",\"message\":");
    string(out, message);
    let bare = out.len();
    out.extend_from_slice(b",\"data\":");
    let start = out.len();
    data(out);
    if out.len() == start {
        out.truncate(bare);
    }
    out.push(b'}');
    end(out, id);
}

/// A call; `params` is an array or object, or empty for none. Without an id it is a notification.
///
/// ```
/// use thalweg_wire::jsonrpc::write;
/// let mut out = Vec::new();
/// write::call(&mut out, "Add", "[1,2]", Some(7));
/// assert_eq!(out, br#"{"jsonrpc":"2.0","method":"Add","params":[1,2],"id":7}"#);
/// ```
pub fn call(out: &mut Vec<u8>, method: &str, params: &str, id: Option<u64>) {
    out.extend_from_slice(HEAD);
    out.extend_from_slice(b"\"method\":");
    string(out, method);
    if !params.is_empty() {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params.as_bytes());
    }
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        unsigned(out, id);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn an_error_without_data_says_none() {
        let mut out = Vec::new();
        error(&mut out, Id::NULL, -32700, "no", |_| {});
        assert_eq!(out, br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"},"id":null}"#);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let mut out = Vec::new();
            error(&mut out, Id::NULL, -1, &text, |out| base64(out, &bytes));
            let value: Value = serde_json::from_slice(&out).unwrap();
            let expected = json!({ "code": -1, "message": text, "data": STANDARD.encode(&bytes) });
            prop_assert_eq!(&value["error"], &expected);
        }
    }
}
