//! `/v1/stream/__ds/…`: which request is which, and its answer.

use super::founding::Served;
use super::keys::{BadToken, Keys, Use};
use super::refusal::Refusal;
use super::request::{self, AckText, Work};
use super::subscription::{Ack, Change, Delivery, Fence, Link, Phase, Position, Refused, Subscription};
use super::{Slot, SubscriptionEntry, Subscriptions, encoding, explicit, see};
use crate::headers::Headers;
use crate::store::Store;
use crate::{Streams, options};
use bytes::Bytes;
use serde_json::{Value, json};
use smallvec::smallvec;
use std::sync::Arc;
use thalweg_wire::exchange::{self, Answer, Method, Now, Pieces, Request, Response};
use thalweg_wire::field::Name;
use thalweg_wire::piece::Piece;
use thalweg_wire::{media, path, rfc3339};

const ID_BYTES_MAX: usize = 256;
/// Links that one commit adds: of the longest names half of what it takes.
const LINKS_AT_ONCE_MAX: usize = 500;

/// A resource under `__ds`.
enum Resource<'a> {
    Jwks,
    Subscription,
    Streams,
    Stream(String),
    Work(&'a str),
}

impl Resource<'_> {
    /// The methods that it understands.
    const fn methods(&self) -> &'static str {
        match self {
            Self::Jwks => options::READS,
            Self::Subscription => "PUT, GET, HEAD, DELETE, OPTIONS",
            Self::Streams | Self::Work(_) => "POST, OPTIONS",
            Self::Stream(_) => "DELETE, OPTIONS",
        }
    }
}

/// The methods that a resource understands, if one is there. `rest` is what follows `__ds/`, encoded.
pub(crate) fn methods(rest: &str) -> Option<&'static str> {
    resource(rest).ok().map(|(_, resource)| resource.methods())
}

/// What a subscription's request found: the ticket after which the answer may leave, and the answer.
pub(super) type Outcome = Result<(u64, Response), Refusal>;

impl<S: Store> Streams<S> {
    /// PROTOCOL 6: control paths are routed before streams are. `rest` is what follows `__ds/`, encoded.
    pub(crate) fn control(&self, rest: &str, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        let Some(shared) = &self.subscriptions else {
            return Answer::Respond(
                Refusal::new(501, "UNSUPPORTED", "path", "no subscriptions here").respond(),
            );
        };
        let outcome = match resource(rest) {
            Ok((_, Resource::Jwks)) => self.jwks(shared, request, now),
            Ok((id, resource)) if shared.is_foreign(&id) => match (resource, request.method) {
                (Resource::Subscription, Method::Delete) => self.discard_foreign(shared, &id, now),
                _ => Err(Refusal::foreign()),
            },
            Ok((id, resource)) => match self.serve(shared, &id, &resource, request, now) {
                Ok(Served::Answered(ticket, response)) => Ok((ticket, response)),
                Ok(Served::Elsewhere(work)) => return Answer::Cold(work),
                Err(refusal) => Err(refusal),
            },
            Err(refusal) => Err(refusal),
        };
        match outcome {
            Ok((ticket, response)) => Self::answer_after(ticket, response),
            Err(refusal) => Self::answer_after(refusal.ticket(), refusal.respond()),
        }
    }

    fn jwks(&self, shared: &Subscriptions<S>, request: &Request<'_>, now: Now) -> Outcome {
        if !matches!(request.method, Method::Get | Method::Head) {
            return Err(Refusal::method(Resource::Jwks.methods()));
        }
        let (keys, log) = shared.keys(&self.store, now.time_us).map_err(|error| Refusal::from(&error))?;
        let mut headers = Headers::new();
        // PROTOCOL 6.5, to the letter.
        headers.constant(b"Content-Type: application/jwk-set+json\r\nCache-Control: public, max-age=300\r\n");
        let response = headers.respond(200, smallvec![Piece::from(keys.jwks().to_string())]);
        Ok((self.settled(&log)?, response))
    }

    fn serve(
        &self,
        shared: &Arc<Subscriptions<S>>,
        id: &str,
        resource: &Resource<'_>,
        request: &Request<'_>,
        now: Now,
    ) -> Result<Served, Refusal> {
        match (resource, request.method) {
            (Resource::Subscription, Method::Put) => self.subscribe(shared, id, request, now),
            (Resource::Subscription, Method::Get | Method::Head) => self.describe(shared, id, now),
            (Resource::Work(verb), Method::Post) if *verb != "claim" => {
                self.work(shared, id, verb, request, now)
            }
            _ => {
                let (ticket, response) = self.subscription(shared, id, resource, request, now)?;
                Ok(Served::Answered(ticket, response))
            }
        }
    }

    fn subscription(
        &self,
        shared: &Subscriptions<S>,
        id: &str,
        resource: &Resource<'_>,
        request: &Request<'_>,
        now: Now,
    ) -> Outcome {
        match (resource, request.method) {
            (Resource::Subscription, Method::Delete) => self.unsubscribe(shared, id, now),
            (Resource::Streams, Method::Post) => {
                let paths = request::members(request)?;
                self.with(shared, id, |held| {
                    if let Some(path) = paths.iter().find(|path| held.subscription.wakes_by(path)) {
                        let detail = format!("{path} is the subscription's own wake stream");
                        return Err(Refusal::new(400, "INVALID_REQUEST", "streams", detail));
                    }
                    let fresh: Vec<_> =
                        paths.into_iter().map(|path| (path.clone(), self.fresh(&path))).collect();
                    let ticket = self.add(shared, held, &fresh, now)?;
                    Ok((ticket, Headers::new().respond_empty(204)))
                })
            }
            (Resource::Stream(path), Method::Delete) => self.with(shared, id, |held| {
                let mut change = held.subscription.unlink(path);
                // A pattern links only what is there.
                let stream = self.store.find(path.as_bytes());
                if stream.is_none_or(|stream| self.is_gone(&stream)) {
                    change.links.values_mut().for_each(|link| *link = None);
                }
                let unlinks = !change.links.is_empty();
                let ticket = self.keep(shared, held, change, now)?;
                if unlinks {
                    shared.unlinked(path);
                }
                Ok((ticket, Headers::new().respond_empty(204)))
            }),
            (Resource::Work(_), Method::Post) => self.claim(shared, id, request, now),
            (Resource::Jwks, _) => Err(Refusal::missing()),
            (resource, _) => Err(Refusal::method(resource.methods())),
        }
    }

    /// Links streams, as many in one commit as fit however long their names are. Should the store not take
    /// all, those before stay linked, and a repeated request goes on from there.
    fn add(
        &self,
        shared: &Subscriptions<S>,
        held: &mut SubscriptionEntry<S>,
        fresh: &[(Arc<str>, Link)],
        now: Now,
    ) -> Result<u64, Refusal> {
        let mut ticket = self.settled(&held.log)?;
        for some in fresh.chunks(LINKS_AT_ONCE_MAX) {
            let change = held.subscription.link(some);
            ticket = self.keep(shared, held, change, now)?;
            shared.touched(&held.subscription.id);
        }
        Ok(ticket)
    }

    /// Runs a change of one subscription under its lock, then has the driver look at it.
    fn with(
        &self,
        shared: &Subscriptions<S>,
        id: &str,
        change: impl FnOnce(&mut SubscriptionEntry<S>) -> Outcome,
    ) -> Outcome {
        let slot = shared.slot(id).ok_or_else(|| self.absent(id))?;
        let outcome = self.locked(&slot, change);
        if outcome.is_ok() {
            shared.touched(&slot.id);
        }
        outcome
    }

    /// Does something with a subscription under its lock.
    fn locked<T>(
        &self,
        slot: &Slot<S>,
        act: impl FnOnce(&mut SubscriptionEntry<S>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut held = slot.held.lock();
        let held = held.as_mut().ok_or_else(|| self.absent(&slot.id))?;
        act(held).map_err(|refusal| self.refused_once_settled(&held.log, refusal))
    }

    /// There is no such subscription, once what there was is durably gone.
    fn absent(&self, id: &str) -> Refusal {
        self.refused_once_gone(id, Refusal::missing())
    }

    /// A refusal that is told once what there was of a subscription is durably gone.
    pub(super) fn refused_once_gone(&self, id: &str, refusal: Refusal) -> Refusal {
        match self.store.find(&encoding::log_name(id)) {
            Some(log) => self.refused_once_settled(&log, refusal),
            None => refusal,
        }
    }

    /// A refusal that is told once what it was decided on is durable.
    pub(super) fn refused_once_settled(&self, log: &S::Stream, refusal: Refusal) -> Refusal {
        self.settled(log).map_or_else(|unsettled| unsettled, |ticket| refusal.after(ticket))
    }

    /// The ticket after which everything of a subscription so far is durable.
    fn settled(&self, log: &S::Stream) -> Result<u64, Refusal> {
        self.store.ticket(log).map_err(|error| Refusal::from(&error))
    }

    pub(super) fn keep(
        &self,
        shared: &Subscriptions<S>,
        held: &mut SubscriptionEntry<S>,
        change: Change,
        now: Now,
    ) -> Result<u64, Refusal> {
        shared.keep(&self.store, held, change, now.time_us).map_err(|error| Refusal::from(&error))
    }

    pub(super) fn keys(&self, shared: &Subscriptions<S>, now: Now) -> Result<Arc<Keys>, Refusal> {
        let keys = shared.keys(&self.store, now.time_us).map_err(|error| Refusal::from(&error))?;
        Ok(keys.0)
    }

    /// PROTOCOL 6.4: a stream that is linked now is linked at its current end; one that does not exist yet,
    /// at its beginning.
    pub(super) fn fresh(&self, path: &str) -> Link {
        let seen = self.store.find(path.as_bytes()).and_then(|stream| see(&self.store, &stream));
        Link { explicit: true, ..seen.unwrap_or_default().linked_at_end() }
    }

    /// PROTOCOL 6.3.
    fn describe(&self, shared: &Arc<Subscriptions<S>>, id: &str, now: Now) -> Result<Served, Refusal> {
        let slot = shared.slot(id).ok_or_else(|| self.absent(id))?;
        let keys = self.keys(shared, now)?;
        let held = slot.held.lock();
        let held = held.as_ref().ok_or_else(|| self.absent(id))?;
        let Some(links) = shared.encode(held) else { return Ok(Served::Elsewhere(listed(shared, &slot))) };
        let response = described(200, &held.subscription, links, &keys);
        Ok(Served::Answered(self.settled(&held.log)?, response))
    }

    /// PROTOCOL 6.3: 204, and whatever is in flight for it changes nothing any more.
    fn unsubscribe(&self, shared: &Subscriptions<S>, id: &str, now: Now) -> Outcome {
        let slot = shared.slot(id).ok_or_else(|| self.absent(id))?;
        let mut place = slot.held.lock();
        let held = place.as_ref().ok_or_else(|| self.absent(id))?;
        let ticket = self.delete_log(&held.log, now)?;
        let named: Vec<Arc<str>> = explicit(&held.subscription).cloned().collect();
        *place = None;
        drop(place);
        shared.remove(&slot);
        shared.count_named(&[], &named);
        shared.touched(&slot.id);
        Ok((ticket, Headers::new().respond_empty(204)))
    }

    /// The same of one that is not understood: its log is all that there is of it.
    fn discard_foreign(&self, shared: &Subscriptions<S>, id: &str, now: Now) -> Outcome {
        let log = self.store.find(&encoding::log_name(id)).ok_or_else(|| self.absent(id))?;
        let ticket = self.delete_log(&log, now)?;
        shared.index.write().foreign.remove(id);
        Ok((ticket, Headers::new().respond_empty(204)))
    }

    /// The ticket after which a subscription's log is gone for good.
    fn delete_log(&self, log: &S::Stream, now: Now) -> Result<u64, Refusal> {
        let version = self.store.staged(log).map_or(0, |state| state.version);
        let receipt = self.store.delete(log, version, now.time_us);
        receipt.map(|receipt| receipt.ticket).map_err(|error| Refusal::from(&error))
    }

    /// PROTOCOL 7.2.
    fn claim(&self, shared: &Subscriptions<S>, id: &str, request: &Request<'_>, now: Now) -> Outcome {
        let worker = request::worker(request)?;
        shared.slot(id).ok_or_else(|| self.absent(id))?;
        let keys = self.keys(shared, now)?;
        self.with(shared, id, |held| {
            if held.subscription.is_webhook() {
                let detail = "a webhook subscription is not claimed; its webhook is called";
                return Err(Refusal::new(400, "NOT_PULL_WAKE", "path", detail));
            }
            if !held.subscription.is_pending() {
                // A worker who is faster than the driver finds its work.
                shared.unseen(held).iter().for_each(|path| self.look_again(&mut held.subscription, path));
            }
            let generation = held.subscription.generation;
            let change =
                held.subscription.claim(&worker, now.time_us).map_err(|why| Refusal::of(why, generation))?;
            let ticket = self.keep(shared, held, change, now)?;
            let streams = told(&held.tell());
            let subscription = &held.subscription;
            let body = json!({
                "wake_id": keys.wake_id(held.incarnation, subscription.generation),
                "generation": subscription.generation,
                "token": keys.token(id, held.incarnation, subscription.generation, Use::Claim, now.time_us),
                "streams": streams,
                "lease_ttl_ms": subscription.config.lease_ttl_ms,
            });
            Ok((ticket, respond(200, &body)))
        })
    }

    /// Sees how far a stream that is linked goes by now, which the driver may not have told of yet.
    fn look_again(&self, subscription: &mut Subscription, path: &Arc<str>) {
        let Some(link) = subscription.links.get(path) else { return };
        let seen = self.store.find(path.as_bytes()).and_then(|stream| see(&self.store, &stream));
        if let Some(seen) = seen.filter(|seen| seen.incarnation == link.incarnation) {
            let link = Link { tail: seen.tail, tail_owner: seen.tail_owner, ..*link };
            subscription.links.insert(path.clone(), link);
        }
    }

    /// Nothing of the stream is there any more, for writers or for readers.
    fn is_gone(&self, stream: &S::Stream) -> bool {
        self.store.visible(stream).is_none() && self.store.staged(stream).is_none()
    }

    /// What acks mean, all of them, or what has to be brought into memory before that can be said.
    fn understood(&self, acks: &[AckText]) -> Result<Result<Vec<Ack>, exchange::Work>, Refusal> {
        let (mut understood, mut cold) = (Vec::with_capacity(acks.len()), Vec::new());
        for said in acks {
            match self.understood_one(said)? {
                Ok(ack) => understood.push(ack),
                Err(work) => cold.push(work),
            }
        }
        if cold.is_empty() {
            return Ok(Ok(understood));
        }
        Ok(Err(exchange::Work(Box::new(|| cold.into_iter().for_each(|work| (work.0)())))))
    }

    /// What an ack means: in a fork, the tokens of inherited offsets name the stream they are inherited from.
    fn understood_one(&self, said: &AckText) -> Result<Result<Ack, exchange::Work>, Refusal> {
        // What is gone has no end to lie past, and no cursor worth moving: that refuses no other ack.
        let nothing = || Ok(Ok(Ack { stream: said.0.clone(), position: Position::Beginning }));
        let (path, Some(token)) = said else { return nothing() };
        let (owner, offset) = (token.incarnation, token.offset);
        let Some(stream) = self.store.find(path.as_bytes()) else { return nothing() };
        let incarnation = self.store.incarnation(&stream);
        let visible = self.store.visible(&stream);
        let within = visible.as_ref().is_some_and(|state| offset <= state.tail);
        let inherits = within && self.store.owner(&stream, offset) == owner;
        if self.is_gone(&stream) || !(inherits || owner == incarnation) {
            return nothing();
        }
        let may_split = visible.is_some_and(|state| state.first < offset && offset < state.tail)
            && media::kind(&self.store.config(&stream).content_type) == media::Kind::Json;
        if may_split {
            if let Some(work) = self.store.cold(&stream, offset, 1) {
                return Ok(Err(work));
            }
            // No reader could go on from there.
            if self.store.read(&stream, offset, 1).is_ok_and(|read| read.inside) {
                return Err(request::foreign_offset(&String::from_utf8_lossy(&token.encode())));
            }
        }
        Ok(Ok(Ack { stream: path.clone(), position: Position::At { incarnation, offset, owner } }))
    }

    /// PROTOCOL 7.1 callback, 7.2 ack and release.
    fn work(
        &self,
        shared: &Subscriptions<S>,
        id: &str,
        verb: &str,
        request: &Request<'_>,
        now: Now,
    ) -> Result<Served, Refusal> {
        // A subscription that is gone says so before a token is looked at.
        let slot = shared.slot(id).ok_or_else(|| self.absent(id))?;
        let keys = self.keys(shared, now)?;
        let aud = if verb == "callback" { Use::Callback } else { Use::Claim };
        let claims = request::bearer(request).ok_or(BadToken::Invalid);
        let claims = claims.and_then(|token| keys.verify(token, now.time_us)).map_err(unauthorized)?;
        let Work { wake_id, generation, acks, done } = request::work(request)?;
        let fence = |held: &SubscriptionEntry<S>| {
            // PROTOCOL 7.3: a token is valid for its subscription alone.
            if claims.sub != id || claims.inc != held.incarnation || claims.aud != aud {
                return Err(unauthorized(BadToken::Invalid));
            }
            let same_wake = wake_id == keys.wake_id(held.incarnation, held.subscription.generation);
            Ok(Fence { token: claims.generation, generation, same_wake })
        };
        // Who is not let in, or not any more, is told that, and nothing is read for them; nor for what is
        // said of streams that are not linked, which changes nothing.
        let acks: Vec<AckText> = self.locked(&slot, |held| {
            let fence = fence(held)?;
            let let_in = held.subscription.ack(fence, &[], false, now.time_us);
            let_in.map_err(|why| Refusal::of(why, held.subscription.generation))?;
            Ok(acks.into_iter().filter(|(path, _)| held.subscription.links.contains_key(path)).collect())
        })?;
        let acks = match self.understood(&acks)? {
            Ok(acks) => acks,
            Err(work) => return Ok(Served::Elsewhere(work)),
        };
        let (ticket, response) = self.with(shared, id, |held| {
            let (fence, present) = (fence(held)?, held.subscription.generation);
            let decide = |subscription: &Subscription| match verb {
                "release" => subscription.release(fence, now.time_us),
                _ => subscription.ack(fence, &acks, done, now.time_us),
            };
            let mut decided = decide(&held.subscription);
            if matches!(decided, Err(Refused::PastEnd { .. })) {
                // Past the end as last seen, which after a start is the cursor until the driver looked.
                for ack in &acks {
                    self.look_again(&mut held.subscription, &ack.stream);
                }
                decided = decide(&held.subscription);
            }
            let change = decided.map_err(|why| Refusal::of(why, present))?;
            let next_wake = (done || verb == "release") && held.subscription.is_pending_after(&change);
            let ticket = self.keep(shared, held, change, now)?;
            let response = match verb {
                "release" => Headers::new().respond_empty(204),
                _ => respond(200, &json!({ "ok": true, "next_wake": next_wake })),
            };
            Ok((ticket, response))
        })?;
        Ok(Served::Answered(ticket, response))
    }
}

fn unauthorized(why: BadToken) -> Refusal {
    let (code, detail) = match why {
        BadToken::Invalid => ("TOKEN_INVALID", "the bearer token is missing or not this subscription's"),
        BadToken::Expired => ("TOKEN_EXPIRED", "the bearer token is too old; wait for the next wake"),
    };
    Refusal::new(401, code, Name::Authorization, detail)
}

/// The subscription's id (empty for the keys) and which of its resources a path names.
fn resource(rest: &str) -> Result<(String, Resource<'_>), Refusal> {
    let unknown = || {
        Refusal::new(
            404,
            "PATH_UNKNOWN",
            "path",
            "nothing is at that path; __ds has subscriptions/<id> and jwks.json",
        )
    };
    if rest == "jwks.json" {
        return Ok((String::new(), Resource::Jwks));
    }
    let rest = rest.strip_prefix("subscriptions/").ok_or_else(unknown)?;
    let (id, rest) = rest.split_once('/').map_or((rest, None), |(id, rest)| (id, Some(rest)));
    let id = path::stream_name(id).map_err(|error| {
        Refusal::new(400, "INVALID_REQUEST", "path", format!("the subscription's id: {error}"))
    })?;
    if id.len() > ID_BYTES_MAX {
        return Err(Refusal::new(
            400,
            "INVALID_REQUEST",
            "path",
            "a subscription's id has at most 256 bytes",
        ));
    }
    let resource = match rest {
        None => Resource::Subscription,
        Some("streams") => Resource::Streams,
        Some(verb @ ("claim" | "ack" | "release" | "callback")) => Resource::Work(verb),
        Some(rest) => {
            // PROTOCOL 6.4: the path is encoded and may contain slashes, encoded or not.
            let encoded = rest.strip_prefix("streams/").ok_or_else(unknown)?;
            let encoded = encoded.replace("%2F", "/").replace("%2f", "/");
            let name = path::stream_name(encoded.strip_prefix('/').unwrap_or(&encoded));
            let name =
                name.map_err(|error| Refusal::new(400, "INVALID_REQUEST", "path", error.to_string()))?;
            Resource::Stream(name.into_owned())
        }
    };
    Ok((id.into_owned(), resource))
}

fn respond(status: u16, body: &Value) -> Response {
    respond_in_pieces(status, smallvec![Piece::from(body.to_string())])
}

fn respond_in_pieces(status: u16, body: Pieces) -> Response {
    let mut headers = Headers::new();
    headers.constant(b"Content-Type: application/json\r\nCache-Control: no-store\r\n");
    headers.respond(status, body)
}

/// Has the links of a subscription encoded that are many.
pub(super) fn listed<S: Store>(shared: &Arc<Subscriptions<S>>, slot: &Arc<Slot<S>>) -> exchange::Work {
    let (shared, slot) = (shared.clone(), slot.clone());
    exchange::Work(Box::new(move || shared.list(&slot)))
}

/// PROTOCOL 6.3: a subscription as callers see it, with its links in texts that commas are to join.
pub(super) fn described(
    status: u16,
    subscription: &Subscription,
    links: Vec<Bytes>,
    keys: &Keys,
) -> Response {
    let config = &subscription.config;
    let (webhook, wake_stream, kind) = match &config.delivery {
        Delivery::Webhook { url } => {
            let jwks_url = format!("{}/v1/stream/__ds/jwks.json", subscription.origin);
            let signing = json!({ "alg": "ed25519", "kid": keys.kid(), "jwks_url": jwks_url });
            (json!({ "url": url, "signing": signing }), Value::Null, "webhook")
        }
        Delivery::PullWake { wake_stream } => (Value::Null, json!(wake_stream), "pull-wake"),
    };
    // PROTOCOL 6.3: failed while a retry is scheduled.
    let failed = matches!(subscription.phase, Phase::Waking { attempts: 1.., .. });
    let before = json!({
        "id": subscription.id,
        "subscription_id": subscription.id,
        "type": kind,
        "pattern": config.pattern.as_ref().map(|pattern| pattern.text()),
    });
    let behind = json!({
        "webhook": webhook,
        "wake_stream": wake_stream,
        "lease_ttl_ms": config.lease_ttl_ms,
        "created_at": rfc3339::format(subscription.created_us / 1_000 * 1_000),
        "status": if failed { "failed" } else { "active" },
        "description": config.description,
    });
    let (before, behind) = (before.to_string(), behind.to_string());
    // Texts, a comma between two, and what comes before and behind them.
    let mut body = Pieces::with_capacity((2 * links.len()).max(1) + 1);
    body.push(format!("{},\"streams\":[", before.trim_end_matches('}')).into());
    for (index, links) in links.into_iter().enumerate() {
        if index > 0 {
            body.push(Piece::from(&b","[..]));
        }
        body.push(links.into());
    }
    body.push(format!("],{}", &behind[1..]).into());
    respond_in_pieces(status, body)
}

/// PROTOCOL 7.1, 7.2: the streams of a wake.
pub(super) fn told(snapshot: &[(Arc<str>, Link)]) -> Value {
    let streams = snapshot.iter().map(|(path, link)| {
        json!({
            "path": path,
            "link_type": link.kind(),
            "acked_offset": link.cursor(),
            "tail_offset": link.end(),
            "has_pending": link.is_pending(),
        })
    });
    Value::Array(streams.collect())
}
