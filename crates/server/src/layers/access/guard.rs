//! The guard: a service in front of a service. It reads the method, the path and the `Authorization` header
//! (RFC 6750), and either hands the request on as it is or refuses it. A body that is still to come is
//! announced memory, so it needs a good token even where the request does not; a small one that goes with a
//! token which only the service can judge, any token.

use super::tokens::{Grant, Scope, Tokens, TokensError};
use crate::layers::pass_on;
use crate::named_file;
use parking_lot::RwLock;
use std::path::Path;
use std::sync::Arc;
use thalweg_wire::exchange::{
    Advance, Announced, Answer, Live, Method, Now, Refusal, Request, Response, Service, Weight,
};
use thalweg_wire::field::Name;
use thalweg_wire::path::{self, HEALTH, LIST, RESERVED, STREAMS};
use thalweg_wire::{decimal, query};

/// PROTOCOL 6: what begins a subscription's paths; its id follows, and what is done with it.
const SUBSCRIPTIONS: &str = "/v1/stream/__ds/subscriptions/";
/// PROTOCOL 6.5: the keys by which receivers tell that a delivery is ours.
const JWKS: &str = "/v1/stream/__ds/jwks.json";
/// Bytes of a body that may come before the service has looked at the token it gave: some hundred acks.
const WORK_BYTES_MAX: u64 = 64 << 10;

/// The tokens in force. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Arc<RwLock<Arc<Tokens>>>);

impl Keys {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub(crate) fn load(path: &Path) -> Result<Self, TokensError> {
        Ok(Self(Arc::new(RwLock::new(Arc::new(Tokens::load(path)?)))))
    }

    /// Reads them again, and has every guard go by what the file says now; how many there are.
    ///
    /// # Errors
    /// What is wrong with the file: then nothing has changed.
    pub(crate) fn reload(&self, path: &Path) -> Result<usize, TokensError> {
        named_file::check_lasts(path).map_err(|error| TokensError::Unreadable(path.to_owned(), error))?;
        let tokens = Tokens::load(path)?;
        let count = tokens.len();
        *self.0.write() = Arc::new(tokens);
        Ok(count)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.read().len()
    }
}

/// A service behind a guard; without keys, every client may do everything.
pub(crate) struct Guard<S> {
    inner: S,
    keys: Option<Keys>,
}

impl<S: Service> Guard<S> {
    /// Puts a guard in front of a service.
    pub(crate) fn new(inner: S, keys: Option<Keys>) -> Self {
        Self { inner, keys }
    }

    /// The answer to a request that may not be, or whose body may not come.
    fn refusal(&mut self, request: &Request<'_>, body: Body, now: Now) -> Option<Response> {
        let keys = self.keys.as_ref()?;
        let (proof, token) = (proof(request), bearer(request));
        match (proof, body) {
            (Proof::None | Proof::Theirs, Body::Here) => return None,
            (Proof::Theirs, Body::ToCome)
                if token.is_some() && announces_at_most(request, WORK_BYTES_MAX) =>
            {
                return None;
            }
            _ => {}
        }
        let tokens = keys.0.read().clone();
        let denied = match token.map(|token| tokens.grant(token)) {
            // A client with a token gets memory for a body, whatever the token's scopes.
            Some(Some(_)) if proof == Proof::None => return None,
            Some(Some(grant)) => lacking(wanting(request, grant)?, request.path),
            Some(None) if proof == Proof::Theirs => &WORK_TOO_LARGE,
            None if request.field(Name::Authorization).is_none() => &MISSING,
            _ => &UNKNOWN,
        };
        let mut response = self.inner.refuse(&denied.refusal, Announced::of(request), now);
        response.fields.push(denied.challenge);
        Some(response)
    }
}

impl<S: Service> Service for Guard<S> {
    type Topic = S::Topic;

    fn call(&mut self, request: &Request<'_>, now: Now) -> Answer<S::Topic> {
        match self.refusal(request, Body::Here, now) {
            Some(response) => Answer::Respond(response),
            None => self.inner.call(request, now),
        }
    }

    fn admit(&mut self, head: &Request<'_>, now: Now) -> Option<Response> {
        self.refusal(head, Body::ToCome, now).or_else(|| self.inner.admit(head, now))
    }

    pass_on! { weight appends alone look writes turn_ended gone failed watch unwatch acknowledge advance deadline refuse }
}

/// Where the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// With its head.
    Here,
    /// On its way, and would take memory meanwhile.
    ToCome,
}

/// What a request has to prove itself by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Nothing: any client may ask for it.
    None,
    /// A token that the service gave to the worker that a subscription woke, and that it checks itself
    /// (PROTOCOL 12.9).
    Theirs,
    /// A token of ours.
    Ours,
}

fn proof(request: &Request<'_>) -> Proof {
    let reads = matches!(request.method, Method::Get | Method::Head);
    if request.method == Method::Options || reads && [HEALTH, JWKS].contains(&request.path) {
        return Proof::None;
    }
    // PROTOCOL 7.1, 7.2: callback, ack and release.
    let work = request.path.strip_prefix(SUBSCRIPTIONS).and_then(|rest| rest.split_once('/'));
    match work {
        Some((_, "callback" | "ack" | "release")) if request.method == Method::Post => Proof::Theirs,
        _ => Proof::Ours,
    }
}

/// Whether a body's length is announced, and is at most this many bytes.
fn announces_at_most(request: &Request<'_>, bytes: u64) -> bool {
    request.field(Name::ContentLength).is_some_and(|length| decimal::parse(length, bytes).is_some())
}

/// The token of a request: RFC 6750 2.1, the scheme in any case.
fn bearer<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    let (scheme, token) = request.field(Name::Authorization)?.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The scope that a request needs and its token does not have.
fn wanting(request: &Request<'_>, grant: &Grant) -> Option<Scope> {
    let lacks = |scope: Scope, name: Option<&str>| (!grant.covers(scope, name)).then_some(scope);
    let reads = matches!(request.method, Method::Get | Method::Head);
    if let Some(encoded) = request.path.strip_prefix(STREAMS) {
        let scope = match request.method {
            Method::Get | Method::Head => Scope::Read,
            Method::Put | Method::Post => Scope::Append,
            Method::Delete | Method::Options | Method::Other => Scope::Admin,
        };
        return match path::stream_name(encoded) {
            // The reserved name is subscriptions, whatever follows.
            _ if encoded.split('/').next() == Some(RESERVED) => lacks(Scope::Admin, None),
            // What can name no stream hides none: a client with any scope is told so by the service.
            Err(_) => None,
            Ok(name) if name.split('/').next() != Some(RESERVED) => {
                // What a head says every append is answered with, and who appends may have to know it before.
                let appends = request.method == Method::Head && grant.covers(Scope::Append, Some(&name));
                let lacking = if appends { None } else { lacks(scope, Some(&name)) };
                lacking.or_else(|| reads_source(request, grant))
            }
            Ok(_) => lacks(Scope::Admin, None),
        };
    }
    if request.path == LIST && reads {
        let prefix = query::values(request.query.unwrap_or_default(), ["prefix"]);
        let prefix = prefix.ok().and_then(|[prefix]| prefix);
        return lacks(Scope::Read, prefix.as_deref().or(Some("")));
    }
    lacks(if reads { Scope::Read } else { Scope::Admin }, None)
}

/// What a token is told that lacks a scope for a path, or the right prefix.
fn lacking(scope: Scope, path: &str) -> &'static Denied {
    match scope {
        Scope::Read if path == LIST => &NO_LIST,
        Scope::Append => &NO_APPEND,
        Scope::Read if path.starts_with(STREAMS) => &NO_READ,
        Scope::Read => &NO_READ_OF_ALL,
        Scope::Admin => &NO_ADMIN,
    }
}

/// A fork shows what its source holds.
fn reads_source(request: &Request<'_>, grant: &Grant) -> Option<Scope> {
    request.values(Name::StreamForkedFrom).find_map(|value| {
        let source = std::str::from_utf8(value).ok()?.trim().strip_prefix(STREAMS)?;
        let name = path::stream_name(source).ok()?;
        (!grant.covers(Scope::Read, Some(&name))).then_some(Scope::Read)
    })
}

/// A refusal, and what RFC 6750 3 has it say for machines.
struct Denied {
    refusal: Refusal,
    challenge: &'static [u8],
}

const fn denied(status: u16, code: &'static str, challenge: &'static [u8], detail: &'static str) -> Denied {
    Denied { refusal: Refusal { status, code, field: "Authorization", detail }, challenge }
}

const WORK_TOO_LARGE: Denied = Denied {
    refusal: Refusal {
        status: 413,
        code: "acks-too-large",
        field: "body",
        detail: "With a subscription's own token a body says its length, of at most 65536 bytes; send the acks in several requests.",
    },
    challenge: b"",
};

const BEARER: &[u8] = b"WWW-Authenticate: Bearer realm=\"thalweg\"\r\n";
const INVALID: &[u8] = b"WWW-Authenticate: Bearer realm=\"thalweg\", error=\"invalid_token\"\r\n";
const INSUFFICIENT: &[u8] = b"WWW-Authenticate: Bearer realm=\"thalweg\", error=\"insufficient_scope\"\r\n";

const MISSING: Denied = denied(
    401,
    "token-required",
    BEARER,
    "This server asks for a token: send Authorization: Bearer <token>.",
);
const UNKNOWN: Denied = denied(
    401,
    "token-unknown",
    INVALID,
    "The token is not one of this server's, or the header is not Authorization: Bearer <token>.",
);
const NO_READ: Denied = denied(
    403,
    "token-without-read",
    INSUFFICIENT,
    "The token does not allow to read this stream (of a fork: its source): it lacks the scope read, or its prefix is another.",
);
const NO_LIST: Denied = denied(
    403,
    "token-without-read",
    INSUFFICIENT,
    "This takes a token with the scope read, which lists only names that begin with its prefix: thalweg ls 'pub/**' for pub/.",
);
const NO_READ_OF_ALL: Denied = denied(
    403,
    "token-without-read",
    INSUFFICIENT,
    "This takes a token with the scope read and without a prefix.",
);
const NO_APPEND: Denied = denied(
    403,
    "token-without-append",
    INSUFFICIENT,
    "The token does not allow to write this: it lacks the scope append, or its prefix is another.",
);
const NO_ADMIN: Denied = denied(
    403,
    "token-without-admin",
    INSUFFICIENT,
    "This takes a token with the scope admin, and a prefix that covers it.",
);

#[cfg(test)]
mod tests;
