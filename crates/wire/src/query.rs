//! The query of a target: known keys once each, unknown keys ignored.
//!
//! A key that means something may appear once only, so that no two readers of one address (a cache, a
//! proxy, this server) can disagree about which occurrence counts.

use crate::percent;
use std::borrow::Cow;

/// What is wrong with a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A known key appears more than once.
    #[error("the query names `{0}` more than once")]
    Duplicate(&'static str),
    /// The value of a known key holds a bad percent escape or is not UTF-8.
    #[error("the value of `{0}` is not percent-encoded UTF-8")]
    Encoding(&'static str),
}

impl QueryError {
    /// The key at fault.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Duplicate(key) | Self::Encoding(key) => key,
        }
    }

    /// Stable machine-readable word for the rule.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Duplicate(_) => "query-key-duplicate",
            Self::Encoding(_) => "query-encoding",
        }
    }
}

/// The decoded values of the `known` keys, in the order of `known`; `None` where a key is absent.
///
/// # Errors
/// [`QueryError`] names the key that appears twice or cannot be decoded.
pub fn values<'a, const N: usize>(
    query: &'a str,
    known: [&'static str; N],
) -> Result<[Option<Cow<'a, str>>; N], QueryError> {
    let mut found: [Option<Cow<'a, str>>; N] = [const { None }; N];
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Ok(key) = percent::decode(key, true) else { continue };
        let Some(index) = known.iter().position(|name| name.as_bytes() == key.as_ref()) else { continue };
        if found[index].is_some() {
            return Err(QueryError::Duplicate(known[index]));
        }
        found[index] = Some(text(value).ok_or(QueryError::Encoding(known[index]))?);
    }
    Ok(found)
}

fn text(value: &str) -> Option<Cow<'_, str>> {
    match percent::decode(value, true).ok()? {
        Cow::Borrowed(_) => Some(Cow::Borrowed(value)),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KNOWN: [&str; 2] = ["offset", "live"];

    #[test]
    fn values_are_found_and_decoded() {
        let [offset, live] = values("foo=bar&offset=0%20+1&live=sse&&baz", KNOWN).unwrap();
        assert_eq!(offset.as_deref(), Some("0  1"));
        assert_eq!(live.as_deref(), Some("sse"));
        let [offset, live] = values("offset", KNOWN).unwrap();
        assert_eq!((offset.as_deref(), live), (Some(""), None));
    }

    #[test]
    fn a_known_key_twice_is_an_error_that_names_it() {
        assert_eq!(values("offset=a&offset=b", KNOWN), Err(QueryError::Duplicate("offset")));
        assert_eq!(values("live=a&l%69ve=a", KNOWN), Err(QueryError::Duplicate("live")));
        assert!(values("x=1&x=2", KNOWN).is_ok());
    }

    #[test]
    fn bad_encoding_matters_in_known_keys_only() {
        assert_eq!(values("offset=%zz", KNOWN), Err(QueryError::Encoding("offset")));
        assert_eq!(values("offset=%ff", KNOWN), Err(QueryError::Encoding("offset")));
        assert_eq!(values("%zz=1&x=%zz", KNOWN), Ok([None, None]));
    }

    proptest! {
        #[test]
        fn any_query_is_survived(query in ".*") {
            if let Ok([offset, _]) = values(&query, KNOWN) {
                prop_assert_eq!(offset.is_some(), query.split('&').any(|pair| {
                    let key = pair.split('=').next().unwrap_or("");
                    percent::decode(key, true).is_ok_and(|key| key.as_ref() == b"offset")
                }));
            }
        }
    }
}
