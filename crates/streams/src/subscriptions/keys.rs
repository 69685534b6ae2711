//! What proves that something came from this server: Ed25519 signatures of deliveries (PROTOCOL 6.5, 7.1,
//! 12.10), and bearer tokens for the worker that was woken (PROTOCOL 12.9).
//!
//! Everything is derived from one secret of 32 bytes, made once and kept in the store beside the streams.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::KeyPair;
use ring::{digest, hmac, signature};
use serde::{Deserialize, Serialize};

/// How long a token may be used at most. What ends it sooner is its lease.
const TOKEN_LIFE_S: u64 = 24 * 60 * 60;

/// Who a token was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Use {
    /// A webhook's callback.
    Callback,
    /// A worker that claimed.
    Claim,
}

/// What a token says (the claims of a JWT).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// The subscription's identifier.
    pub(crate) sub: String,
    /// Which incarnation of that identifier.
    pub(crate) inc: u64,
    /// Which wake.
    pub(crate) generation: u64,
    /// For which kind of worker.
    pub(crate) aud: Use,
    /// Until when, seconds since the epoch.
    pub(crate) exp: u64,
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadToken {
    /// Not ours, or changed.
    Invalid,
    /// Too old.
    Expired,
}

/// The server's keys.
pub(crate) struct Keys {
    pair: signature::Ed25519KeyPair,
    token: hmac::Key,
    kid: String,
    public: String,
}

impl Keys {
    /// The keys of a secret.
    pub(crate) fn of(secret: &[u8; 32]) -> Option<Keys> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let seed = hmac::sign(&root, b"thalweg webhook signing 1");
        let token = hmac::sign(&root, b"thalweg tokens 1");
        let pair = signature::Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).ok()?;
        let public = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        // PROTOCOL 6.5: a kid derived from key material; this is the thumbprint of RFC 7638.
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{public}"}}"#);
        let thumbprint = digest::digest(&digest::SHA256, members.as_bytes());
        let kid = format!("ds_{}", URL_SAFE_NO_PAD.encode(thumbprint.as_ref()));
        Some(Keys { pair, token: hmac::Key::new(hmac::HMAC_SHA256, token.as_ref()), kid, public })
    }

    /// The identifier of the signing key.
    pub(crate) fn kid(&self) -> &str {
        &self.kid
    }

    /// The JWK Set with the signing key's public half.
    pub(crate) fn jwks(&self) -> serde_json::Value {
        serde_json::json!({ "keys": [{
            "kty": "OKP", "crv": "Ed25519", "kid": self.kid, "use": "sig", "alg": "EdDSA", "x": self.public,
        }] })
    }

    /// PROTOCOL 7.1: the value of `Webhook-Signature`, over `<timestamp>.<body>`.
    pub(crate) fn sign(&self, time_s: u64, body: &[u8]) -> String {
        let mut message = format!("{time_s}.").into_bytes();
        message.extend_from_slice(body);
        let signature = self.pair.sign(&message);
        format!("t={time_s},kid={},ed25519={}", self.kid, URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// PROTOCOL 7.3: a name for one wake that no other wake has.
    pub(crate) fn wake_id(&self, incarnation: u64, generation: u64) -> String {
        let tag = hmac::sign(&self.token, format!("wake {incarnation} {generation}").as_bytes());
        format!("w_{}", URL_SAFE_NO_PAD.encode(&tag.as_ref()[..15]))
    }

    /// PROTOCOL 12.9: a signed token (a JWT, HS256) for one wake.
    pub(crate) fn token(&self, id: &str, incarnation: u64, generation: u64, aud: Use, now_us: u64) -> String {
        let exp = now_us / 1_000_000 + TOKEN_LIFE_S;
        let claims = Claims { sub: id.to_owned(), inc: incarnation, generation, aud, exp };
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let head = URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
        let tag = hmac::sign(&self.token, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    /// What a token says, if we said it and it is not too old.
    pub(crate) fn verify(&self, token: &str, now_us: u64) -> Result<Claims, BadToken> {
        let (signed, tag) = token.rsplit_once('.').ok_or(BadToken::Invalid)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| BadToken::Invalid)?;
        hmac::verify(&self.token, signed.as_bytes(), &tag).map_err(|_| BadToken::Invalid)?;
        let (_, claims) = signed.split_once('.').ok_or(BadToken::Invalid)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| BadToken::Invalid)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| BadToken::Invalid)?;
        if claims.exp <= now_us / 1_000_000 { Err(BadToken::Expired) } else { Ok(claims) }
    }
}

/// A digest of bytes, as text.
pub(crate) fn digest_text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_verifies_with_the_published_key_and_no_other_body() {
        let keys = Keys::of(&[7; 32]).unwrap();
        let jwks = keys.jwks();
        let x = URL_SAFE_NO_PAD.decode(jwks["keys"][0]["x"].as_str().unwrap()).unwrap();
        assert_eq!(jwks["keys"][0]["kid"].as_str().unwrap(), keys.kid());
        let header = keys.sign(1_700_000_000, b"{}");
        let signature = header.rsplit_once("ed25519=").unwrap().1;
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert!(header.starts_with(&format!("t=1700000000,kid={},ed25519=", keys.kid())));
        let public = signature::UnparsedPublicKey::new(&signature::ED25519, x);
        assert!(public.verify(b"1700000000.{}", &signature).is_ok());
        assert!(public.verify(b"1700000001.{}", &signature).is_err());
        assert!(public.verify(b"1700000000.{ }", &signature).is_err());
    }

    #[test]
    fn tokens_are_ours_unchanged_and_recent_or_refused() {
        let (keys, others) = (Keys::of(&[7; 32]).unwrap(), Keys::of(&[8; 32]).unwrap());
        let now_us = 1_700_000_000_000_000;
        let token = keys.token("sub", 3, 9, Use::Claim, now_us);
        let claims = keys.verify(&token, now_us).unwrap();
        assert_eq!(
            (claims.sub.as_str(), claims.inc, claims.generation, claims.aud),
            ("sub", 3, 9, Use::Claim)
        );
        assert_eq!(others.verify(&token, now_us), Err(BadToken::Invalid));
        assert_eq!(keys.verify(&token, now_us + TOKEN_LIFE_S * 1_000_000), Err(BadToken::Expired));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last character of a base64 text may carry bits that mean nothing; those are refused as
            // well.
            assert_eq!(keys.verify(&changed, now_us), Err(BadToken::Invalid), "byte {at}");
        }
        for bad in ["", ".", "..", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
            assert_eq!(keys.verify(bad, now_us), Err(BadToken::Invalid));
        }
        assert_ne!(keys.wake_id(1, 2), keys.wake_id(1, 3));
        assert_ne!(keys.wake_id(1, 2), keys.wake_id(2, 2));
    }
}
