//! The messages of JSON-RPC, appended: what stands around values.

use super::body::Id;
use crate::json::write::{signed, string, unsigned};

/// What every message begins with, and what follows in this one, as one piece.
macro_rules! begun_with {
    ($rest:literal) => {
        concat!("{\"jsonrpc\":\"2.0\",", $rest).as_bytes()
    };
}

/// Begins an answer; a result is to follow, and then [`end`].
pub fn begin_result(out: &mut Vec<u8>) {
    out.extend_from_slice(begun_with!("\"result\":"));
}

/// Ends an answer.
pub fn end(out: &mut Vec<u8>, id: Id<'_>) {
    out.extend_from_slice(b",\"id\":");
    out.extend_from_slice(id.as_str().as_bytes());
    out.push(b'}');
}

/// An answer that is an error; `data` appends a value, or nothing for none.
pub fn error(out: &mut Vec<u8>, id: Id<'_>, code: i32, message: &str, data: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(begun_with!("\"error\":{\"code\":"));
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
    out.extend_from_slice(begun_with!("\"method\":"));
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
        fn what_is_written_is_read_back(text in any::<String>(), data in any::<i64>()) {
            let mut out = Vec::new();
            error(&mut out, Id::NULL, -1, &text, |out| signed(out, data));
            let value: Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(&value["error"], &json!({ "code": -1, "message": text, "data": data }));
        }
    }
}
