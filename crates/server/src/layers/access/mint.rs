//! New tokens: shown once, and kept as what they hash to.

use super::tokens::{Scope, hash};
use crate::client::{Failure, Output, notice};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use thalweg_sys::process::random_bytes;
use thalweg_wire::hex::Hex;

/// 256 random bits cannot be guessed, so a plain hash is enough to keep.
const SECRET_BYTES: usize = 32;

/// Makes a token, and prints its table for the token file. As text the token itself goes to standard error,
/// so that what is written to the file holds no secret; as JSON all of it is one object.
///
/// # Errors
/// The system gives no randomness, or standard output cannot be written.
pub(crate) fn mint(label: &str, scopes: &[Scope], prefix: &str, output: Output) -> Result<(), Failure> {
    let secret: [u8; SECRET_BYTES] = random_bytes().map_err(Failure::Random)?;
    // Begins as a leaked one is searched for.
    let token = format!("thalweg_{}", URL_SAFE_NO_PAD.encode(secret));
    let digest = Hex(&hash(token.as_bytes())).to_string();
    let scopes: Vec<String> = scopes.iter().map(ToString::to_string).collect();
    let mut grant = toml::Table::new();
    grant.insert("sha256".into(), digest.clone().into());
    grant.insert("scopes".into(), scopes.clone().into());
    if !prefix.is_empty() {
        grant.insert("prefix".into(), prefix.into());
    }
    let mut file = toml::Table::new();
    file.insert(label.into(), grant.into());
    if output == Output::Text {
        notice(format_args!("the token, shown this once:\n{token}"));
    }
    output.say(
        file,
        json!({ "token": token, "label": label, "sha256": digest, "scopes": scopes, "prefix": prefix }),
    )
}
