//! What requests under `__ds` carry: JSON bodies, checked before anything is looked at.

use super::pattern::{Pattern, is_name};
use super::refusal::Refusal;
use super::subscription::{Config, Delivery};
use super::target::Target;
use crate::{Loopback, Options};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use thalweg_wire::exchange::Request;
use thalweg_wire::field::Name;
use thalweg_wire::media;
use thalweg_wire::token::Token;

/// PROTOCOL 6.2: from 1 second to 10 minutes.
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=600_000;
const LEASE_MS_DEFAULT: u64 = 30_000;
/// Streams that one request may name.
const NAMED_MAX: usize = 1_000;
const TEXT_BYTES_MAX: usize = 4_096;

#[derive(Deserialize)]
struct SubscriptionBody {
    r#type: Option<String>,
    pattern: Option<String>,
    streams: Option<Vec<String>>,
    webhook: Option<Object<Webhook>>,
    wake_stream: Option<String>,
    lease_ttl_ms: Option<u64>,
    description: Option<String>,
}

#[derive(Deserialize)]
struct Webhook {
    url: Option<String>,
}

#[derive(Deserialize)]
struct Members {
    streams: Vec<String>,
}

#[derive(Deserialize)]
struct ClaimBody {
    worker: String,
}

#[derive(Deserialize)]
struct WorkBody {
    wake_id: String,
    generation: u64,
    #[serde(default)]
    acks: Vec<Object<AckBody>>,
    #[serde(default)]
    done: bool,
}

#[derive(Deserialize)]
struct AckBody {
    stream: String,
    offset: String,
}

/// Who asks for a subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// A page: with whatever changes something, a browser says its origin.
    Page,
    Program,
}

/// An ack as it was written: the stream, and the offset's token if it is not the beginning.
pub(crate) type AckText = (Arc<str>, Option<Token>);

/// A callback, an ack or a release.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) wake_id: String,
    pub(crate) generation: u64,
    pub(crate) acks: Vec<AckText>,
    pub(crate) done: bool,
}

fn body<'a, T: Deserialize<'a>>(request: &Request<'a>) -> Result<T, Refusal> {
    if let Some(value) = request.field(Name::ContentType)
        && media::parse(value).map(media::kind) != Some(media::Kind::Json)
    {
        return Err(Refusal::new(
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            Name::ContentType,
            "the body has to be application/json, and its Content-Type says another (curl -d does by itself)",
        ));
    }
    let bad = |detail| Err(Refusal::new(400, "INVALID_REQUEST", "body", detail));
    if request.body.trim_ascii().is_empty() {
        return bad("the body is empty; it has to be a JSON object".to_owned());
    }
    match serde_json::from_slice(request.body) {
        Ok(Object(body)) => Ok(body),
        Err(error) => bad(format!("the body is not as expected: {error}")),
    }
}

/// What is written as an object and no other way: by itself a structure is taken from an array as well, which
/// says its members without their names.
struct Object<T>(T);

impl<'a, T: Deserialize<'a>> Deserialize<'a> for Object<T> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Takes the members of an object.
struct ObjectVisitor<T>(PhantomData<T>);

impl<'a, T: Deserialize<'a>> Visitor<'a> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// PROTOCOL 6: stream-root-relative. A slash in front changes nothing.
fn stream(text: &str, field: &'static str) -> Result<Arc<str>, Refusal> {
    let name = text.strip_prefix('/').unwrap_or(text);
    if is_name(name) {
        return Ok(name.into());
    }
    Err(Refusal::new(400, "INVALID_REQUEST", field, format!("{text:?} is no name that a stream can have")))
}

fn streams(texts: &[String]) -> Result<BTreeSet<Arc<str>>, Refusal> {
    if texts.len() > NAMED_MAX {
        let detail = format!("at most {NAMED_MAX} streams in one request; add the others with further ones");
        return Err(Refusal::new(400, "INVALID_REQUEST", "streams", detail));
    }
    texts.iter().map(|text| stream(text, "streams")).collect()
}

/// PROTOCOL 6.2: the configuration a PUT asks for.
pub(crate) fn config(request: &Request<'_>, options: &Options) -> Result<Config, Refusal> {
    let bad = |field, detail: &str| Refusal::new(400, "INVALID_REQUEST", field, detail.to_owned());
    let wanted: SubscriptionBody = body(request)?;
    let asker = if request.field(Name::Origin).is_some() { Asker::Page } else { Asker::Program };
    let delivery = delivery(&wanted, asker, options)?;
    let pattern = match &wanted.pattern {
        None => None,
        Some(text) => {
            let text = text.strip_prefix('/').unwrap_or(text);
            let detail = "a pattern is made of non-empty segments; * stands for one, ** for any number";
            Some(Pattern::parse(text).ok_or_else(|| bad("pattern", detail))?)
        }
    };
    if wanted.pattern.is_none() && wanted.streams.is_none() {
        return Err(bad("pattern", "name the streams to follow: pattern, streams, or both"));
    }
    let streams = streams(wanted.streams.as_deref().unwrap_or_default())?;
    if let Delivery::PullWake { wake_stream } = &delivery
        && streams.contains(wake_stream.as_str())
    {
        return Err(bad("wake_stream", "a subscription that follows its own wake stream would wake itself"));
    }
    let lease_ttl_ms = wanted.lease_ttl_ms.unwrap_or(LEASE_MS_DEFAULT);
    if !LEASE_MS.contains(&lease_ttl_ms) {
        return Err(bad("lease_ttl_ms", "a lease lasts from 1000 to 600000 milliseconds"));
    }
    if wanted.description.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(bad("description", "at most 4096 bytes"));
    }
    Ok(Config { delivery, pattern, streams, lease_ttl_ms, description: wanted.description })
}

/// PROTOCOL 6.2: each type has a member of its own. The example there has the other one as well, which
/// changes nothing.
fn delivery(wanted: &SubscriptionBody, asker: Asker, options: &Options) -> Result<Delivery, Refusal> {
    let bad = |field, detail: &str| Refusal::new(400, "INVALID_REQUEST", field, detail.to_owned());
    match wanted.r#type.as_deref() {
        Some("webhook") => {
            let url = wanted.webhook.as_ref().and_then(|Object(webhook)| webhook.url.as_deref());
            let url = url.ok_or_else(|| bad("webhook.url", "a webhook subscription needs webhook.url"))?;
            // PROTOCOL 6.2, 12.8: what could lead into a network of ours is refused.
            let target = Target::parse(url, options.allows_loopback())
                .map_err(|why| Refusal::new(400, "WEBHOOK_URL_REJECTED", "webhook.url", why.to_owned()))?;
            let is_for_programs = options.webhooks_loopback == Loopback::OfPrograms;
            if target.is_development() && is_for_programs && asker == Asker::Page {
                let detail = "Pages may not have the server call webhooks on its own machine, unless the operator lists their \
                              origin with --cors-origins.";
                return Err(Refusal::new(403, "ORIGIN_NOT_ALLOWED", Name::Origin, detail));
            }
            Ok(Delivery::Webhook { url: url.to_owned() })
        }
        Some("pull-wake") => {
            let name = wanted.wake_stream.as_deref();
            let name =
                name.ok_or_else(|| bad("wake_stream", "a pull-wake subscription needs wake_stream"))?;
            let wake_stream = stream(name, "wake_stream")?;
            if options.is_read_only(&wake_stream) {
                let detail =
                    "the wake stream is written by a service of the server, and can only be read here";
                return Err(Refusal::new(403, "STREAM_READ_ONLY", "wake_stream", detail));
            }
            Ok(Delivery::PullWake { wake_stream: wake_stream.as_ref().to_owned() })
        }
        _ => Err(bad("type", "type has to be webhook or pull-wake")),
    }
}

/// PROTOCOL 6.4: the streams to add.
pub(crate) fn members(request: &Request<'_>) -> Result<BTreeSet<Arc<str>>, Refusal> {
    streams(&body::<Members>(request)?.streams)
}

/// PROTOCOL 7.2: who claims.
pub(crate) fn worker(request: &Request<'_>) -> Result<String, Refusal> {
    let ClaimBody { worker } = body(request)?;
    if worker.is_empty() || worker.len() > TEXT_BYTES_MAX {
        return Err(Refusal::new(400, "INVALID_REQUEST", "worker", "a worker's name has 1 to 4096 bytes"));
    }
    Ok(worker)
}

/// PROTOCOL 7.1, 7.2: what a worker did.
pub(crate) fn work(request: &Request<'_>) -> Result<Work, Refusal> {
    let WorkBody { wake_id, generation, acks, done } = body(request)?;
    let acks = acks.iter().map(ack).collect::<Result<_, _>>()?;
    Ok(Work { wake_id, generation, acks, done })
}

fn ack(Object(ack): &Object<AckBody>) -> Result<AckText, Refusal> {
    let stream = stream(&ack.stream, "acks.stream")?;
    match Token::parse(ack.offset.as_bytes()) {
        Some(token) => Ok((stream, Some(token))),
        None if ack.offset == "-1" => Ok((stream, None)),
        None => Err(foreign_offset(&ack.offset)),
    }
}

/// The refusal of an ack that is none of what this server tells.
pub(crate) fn foreign_offset(offset: &str) -> Refusal {
    let detail = format!("{offset:?} is not an offset that this server issued");
    Refusal::new(400, "INVALID_OFFSET", "acks.offset", detail)
}

/// The token in `Authorization: Bearer <token>`. PROTOCOL 12.9: nowhere else.
pub(crate) fn bearer<'a>(request: &Request<'a>) -> Option<&'a str> {
    let value = std::str::from_utf8(request.field(Name::Authorization)?).ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Scheme and authority the caller reached us by, as far as they can be known and written into a URL.
pub(crate) fn origin(request: &Request<'_>) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_~:[]".contains(byte);
    let host = request.field(Name::Host).filter(|host| !host.is_empty() && host.iter().all(plain));
    let host = host.and_then(|host| std::str::from_utf8(host).ok()).unwrap_or("localhost");
    format!("{}://{host}", request.scheme())
}
