//! What a client shows to be let in.

use std::fmt;
use thalweg_service::Error as Failure;
use thalweg_wire::fault::Fault;

/// A token, as RFC 6750 section 2.1 has it: letters, digits and `-._~+/`, and `=` at its end. It is not shown
/// by its `Debug` output.
///
/// ```
/// use thalweg_rpc::{Bearer, Client, ClientOptions};
/// let token = Some(Bearer::new("tw_4fPq")?);
/// assert_eq!(format!("{token:?}"), "Some(Bearer)");
/// Client::new("http://127.0.0.1:4437/rpc/log", ClientOptions { token, ..ClientOptions::default() })?;
/// # Ok::<(), thalweg_service::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(String);

impl Bearer {
    /// Takes a token.
    ///
    /// # Errors
    /// [`Fault::BadArgument`]: it has other characters, or none.
    pub fn new(token: &str) -> Result<Self, Failure> {
        let inner = token.trim_end_matches('=');
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        if inner.is_empty() || !inner.bytes().all(is_right) {
            let what = "a token has letters, digits and -._~+/, and at its end perhaps =, and nothing else";
            return Err(Failure::new(Fault::BadArgument, what));
        }
        Ok(Self(token.to_owned()))
    }

    /// The token itself.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Bearer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_line_is_no_token() {
        for token in ["a", "tw_4fPq-~+/.==", "0="] {
            assert_eq!(Bearer::new(token).unwrap().text(), token);
        }
        for wrong in ["", "=", "a b", "a\r\nX: y", "a=b", "ä", "\"a\""] {
            assert_eq!(Bearer::new(wrong).unwrap_err().fault, Fault::BadArgument, "{wrong:?}");
        }
    }
}
