//! The token file: TOML, a table per token, named for people. It holds no secret: only what a token hashes
//! to.
//!
//! ```toml
//! [ingest]
//! sha256 = "64 hexadecimal digits"
//! scopes = ["append"]
//! prefix = "logs/"
//! ```

use crate::named_file;
use crate::quoting::quoted;
use clap::ValueEnum;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;
use thalweg_wire::hex;

/// What a token hashes to.
pub(super) type Digest = [u8; SHA256_OUTPUT_LEN];

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Read streams, live or not, and list them.
    Read,
    /// Create streams, append to them, close them.
    Append,
    /// Everything: delete, subscriptions, services, and what the other scopes may.
    Admin,
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Admin => "admin",
        })
    }
}

/// What a token is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    digest: Digest,
    scopes: Vec<Scope>,
    prefix: String,
}

impl Grant {
    /// Whether it covers a scope for a name; without a name, for all names.
    pub(super) fn covers(&self, scope: Scope, name: Option<&str>) -> bool {
        let scoped = self.scopes.iter().any(|held| *held == scope || *held == Scope::Admin);
        scoped && name.map_or(self.prefix.is_empty(), |name| name.starts_with(&self.prefix))
    }
}

/// A token's table as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenTable {
    sha256: String,
    scopes: Vec<Scope>,
    #[serde(default)]
    prefix: String,
}

/// Why a token file is not taken.
#[derive(Debug)]
pub(crate) enum TokensError {
    /// It cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// Others could add tokens of their own.
    Writable(PathBuf),
    /// It is no list of tokens.
    Malformed(PathBuf, String),
}

impl fmt::Display for TokensError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(out, "cannot read the tokens in {}: {error}", path.display())
            }
            Self::Writable(path) => write!(
                out,
                "the token file {} can be written by users other than its owner: chmod go-w -- {}",
                path.display(),
                quoted(path)
            ),
            Self::Malformed(path, why) => write!(out, "{}: {why}", path.display()),
        }
    }
}

/// Every token there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens(Vec<Grant>);

impl Tokens {
    /// Reads a token file.
    ///
    /// # Errors
    /// [`TokensError`] says what is wrong with it, and where.
    pub(crate) fn load(path: &Path) -> Result<Self, TokensError> {
        let read = named_file::read(path).map_err(|error| TokensError::Unreadable(path.to_owned(), error))?;
        if read.is_writable_by_others {
            return Err(TokensError::Writable(path.to_owned()));
        }
        let malformed = |why| TokensError::Malformed(path.to_owned(), why);
        let text = str::from_utf8(&read.bytes).map_err(|error| malformed(error.to_string()))?;
        Self::parse(text).map_err(malformed)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let tables: BTreeMap<String, TokenTable> = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut labels = BTreeMap::new();
        let grant = |(label, written): (String, TokenTable)| {
            let digest = hex::parse(&written.sha256.to_ascii_lowercase()).ok_or_else(|| {
                format!("[{label}]: sha256 is 64 hexadecimal digits, as `thalweg token` prints them")
            })?;
            if written.scopes.is_empty() {
                return Err(format!("[{label}]: scopes names none of read, append, admin"));
            }
            // One token in two tables is two answers to what it may.
            if let Some(other) = labels.insert(digest, label.clone()) {
                return Err(format!("[{other}] and [{label}] have the same sha256: a token has one table"));
            }
            Ok(Grant { digest, scopes: written.scopes, prefix: written.prefix })
        };
        tables.into_iter().map(grant).collect::<Result<_, _>>().map(Self)
    }

    /// What a token is good for; `None` for one that is unknown. Looks at every token there is, whichever it
    /// is.
    pub(super) fn grant(&self, token: &[u8]) -> Option<&Grant> {
        let presented = hash(token);
        let mut found = None;
        for grant in &self.0 {
            if grant.digest.ct_eq(&presented).into() {
                found = Some(grant);
            }
        }
        found
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What is kept of a token.
pub(super) fn hash(token: &[u8]) -> Digest {
    let mut out = Digest::default();
    out.copy_from_slice(digest(&SHA256, token).as_ref());
    out
}

#[cfg(fuzzing)]
pub(crate) mod fuzzing;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use thalweg_wire::hex::Hex;

    fn file(token: &str, rest: &str) -> String {
        format!("[one]\nsha256 = \"{}\"\n{rest}", Hex(&hash(token.as_bytes())))
    }

    #[test]
    fn a_token_is_good_for_its_scopes_and_its_prefix_alone() {
        let tokens = Tokens::parse(&file("secret", "scopes = [\"append\"]\nprefix = \"logs/\"")).unwrap();
        let grant = tokens.grant(b"secret").unwrap();
        assert!(grant.covers(Scope::Append, Some("logs/today")));
        assert!(!grant.covers(Scope::Append, Some("log")) && !grant.covers(Scope::Append, None));
        assert!(!grant.covers(Scope::Read, Some("logs/today")) && !grant.covers(Scope::Admin, Some("logs/")));
        assert!(tokens.grant(b"Secret").is_none() && tokens.grant(b"").is_none());
    }

    #[test]
    fn admin_may_everything_under_its_prefix() {
        let tokens = Tokens::parse(&file("t", "scopes = [\"admin\"]")).unwrap();
        let grant = tokens.grant(b"t").unwrap();
        let all = [Scope::Read, Scope::Append, Scope::Admin];
        assert!(all.into_iter().all(|scope| grant.covers(scope, Some("x")) && grant.covers(scope, None)));
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_table_that_is_wrong() {
        let wrong = |text: &str| Tokens::parse(text).unwrap_err();
        assert!(wrong("[a]\nsha256 = \"12\"\nscopes = [\"read\"]").contains("[a]: sha256 is 64"));
        assert!(wrong(&file("t", "scopes = []")).contains("[one]: scopes names none"));
        assert!(wrong(&file("t", "scopes = [\"write\"]")).contains("unknown variant `write`"));
        assert!(wrong(&file("t", "scopes = [\"read\"]\nprefx = \"a\"")).contains("prefx"));
    }

    #[test]
    fn a_token_has_one_table() {
        let table =
            |label: &str, digest: &str| format!("[{label}]\nsha256 = \"{digest}\"\nscopes = [\"read\"]\n");
        let (digest, other) = (Hex(&hash(b"t")).to_string(), Hex(&hash(b"u")).to_string());
        assert_eq!(Tokens::parse(&(table("one", &digest) + &table("two", &other))).unwrap().len(), 2);
        let twice = table("one", &digest) + &table("two", &digest.to_uppercase());
        let said = Tokens::parse(&twice).unwrap_err();
        assert!(said.contains("[one] and [two] have the same sha256"), "{said}");
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let file = tempfile::NamedTempFile::with_prefix("it's $HOME").unwrap();
        let mode = |mode| std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
        mode(0o620);
        let said = Tokens::load(file.path()).unwrap_err().to_string();
        let command =
            format!("chmod go-w -- '{}'", file.path().display().to_string().replace("it's", r"it'\''s"));
        assert!(said.ends_with(&command), "{said}");
        mode(0o644);
        assert_eq!(Tokens::load(file.path()).unwrap().len(), 0);
    }
}
