//! Arbitrary token files.

use super::{Grant, Scope, Tokens};
use thalweg_wire::hex::Hex;

/// A file says the same when what it says is written again, and nothing is let in by accident.
pub fn tokens(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(tokens) = Tokens::parse(text) else { return };
    let table = |(place, grant): (usize, &Grant)| {
        let scopes: Vec<String> = grant.scopes.iter().map(|scope| format!("\"{scope}\"")).collect();
        let (digest, scopes) = (Hex(&grant.digest), scopes.join(","));
        let prefix = toml::Value::from(grant.prefix.as_str());
        format!("[t{place:06}]\nsha256 = \"{digest}\"\nscopes = [{scopes}]\nprefix = {prefix}\n")
    };
    let written: String = tokens.0.iter().enumerate().map(table).collect();
    assert_eq!(Tokens::parse(&written).as_ref(), Ok(&tokens));
    assert!(tokens.grant(data).is_none() && tokens.grant(b"").is_none());
    for grant in &tokens.0 {
        assert_eq!(
            grant.prefix.is_empty(),
            [Scope::Read, Scope::Append, Scope::Admin].iter().any(|s| grant.covers(*s, None))
        );
    }
}
