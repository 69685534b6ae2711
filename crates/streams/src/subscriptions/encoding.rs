//! How a subscription is kept: as notes of a log of its own, so that a cursor is durable with the very commit
//! that moved it, and a commit costs what changed and not what there is.
//!
//! The log's name is `\0subscription/<id>`, which no stream can have. Key `head`: everything but the links
//! and the streams that were named at creation, as JSON with a version. Key `named/<path>`, one byte: such a
//! stream. Key `link/<path>`: 25 bytes, flags 1 | incarnation 8 | acked 8 | the incarnation that the token of
//! `acked` names 8, little-endian. A glob link whose cursor is at the stream's beginning is not kept: every
//! stream that matches and has no note is there. A head of version 1 holds the named streams itself, which
//! beside many links are more than one commit takes: they are given their notes before the next head is
//! written. A head says when it is whole: a subscription with more links than one commit takes is written in
//! several, and one that was not finished when the store ended is as good as never asked for. What is
//! neither, a later version of this program wrote, or it is damaged: it may still be wanted.

use super::keys::digest_text;
use super::links::Links;
use super::pattern::Pattern;
use super::subscription::{Change, Config, Delivery, Link, Phase, Subscription};
use crate::store::Note;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the names of subscriptions' logs begin with.
pub(crate) const PREFIX: &str = "\0subscription/";
/// The log that keeps the server's secret, and its key there.
pub(crate) const SECRET_LOG: &[u8] = b"\0subscriptions-secret";
pub(crate) const SECRET_KEY: &[u8] = b"secret";

const HEAD: &[u8] = b"head";
const LINK: &[u8] = b"link/";
const NAMED: &[u8] = b"named/";
const VERSION: u32 = 2;
/// The version whose heads hold the streams that were named at creation.
const VERSION_NAMING: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    whole: bool,
    delivery: Delivery,
    pattern: Option<String>,
    /// Of [`VERSION_NAMING`] alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<BTreeSet<Arc<str>>>,
    lease_ttl_ms: u64,
    description: Option<String>,
    origin: String,
    created_us: u64,
    generation: u64,
    phase: Phase,
}

/// Keys and values to note. An empty value removes.
pub(crate) type Notes = Vec<(Vec<u8>, Vec<u8>)>;

/// What is kept of a subscription.
#[derive(Debug)]
pub(crate) struct StoredSubscription {
    pub(crate) subscription: Subscription,
    /// The streams that were named at creation have their notes; where they have not, [`named`] has to be
    /// kept before any head.
    pub(crate) named: bool,
}

/// The name of a subscription's log.
pub(crate) fn log_name(id: &str) -> Vec<u8> {
    [PREFIX.as_bytes(), id.as_bytes()].concat()
}

/// The identifier in the name of a subscription's log.
pub(crate) fn id_of(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name.strip_prefix(PREFIX.as_bytes())?).ok()
}

fn head(subscription: &Subscription, change: &Change, whole: bool) -> Vec<u8> {
    let config = &subscription.config;
    let head = Head {
        version: VERSION,
        whole,
        delivery: config.delivery.clone(),
        pattern: config.pattern.as_ref().map(|pattern| pattern.text().to_owned()),
        streams: None,
        lease_ttl_ms: config.lease_ttl_ms,
        description: config.description.clone(),
        origin: change.origin.clone().unwrap_or_else(|| subscription.origin.clone()),
        created_us: subscription.created_us,
        generation: change.generation.unwrap_or(subscription.generation),
        phase: change.phase.clone().unwrap_or_else(|| subscription.phase.clone()),
    };
    // Strings, integers and maps of those: writing them to memory cannot fail.
    serde_json::to_vec(&head).unwrap_or_default()
}

fn link_note(path: &str, link: Option<&Link>) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::new();
    if let Some(link) = link.filter(|link| link.explicit || link.acked > link.base) {
        value.push(u8::from(link.glob) | u8::from(link.explicit) << 1);
        value.extend_from_slice(&link.incarnation.to_le_bytes());
        value.extend_from_slice(&link.acked.to_le_bytes());
        value.extend_from_slice(&link.acked_owner.to_le_bytes());
    }
    ([LINK, path.as_bytes()].concat(), value)
}

fn named_note(path: &str) -> (Vec<u8>, Vec<u8>) {
    ([NAMED, path.as_bytes()].concat(), vec![1])
}

/// What says which streams were named at creation, in commits of at most `bytes_max`.
pub(crate) fn named(subscription: &Subscription, bytes_max: usize) -> Vec<Notes> {
    let mut commits: Vec<Notes> = Vec::new();
    let mut room = 0;
    for path in &subscription.config.streams {
        let note = named_note(path);
        let size = note.0.len() + note.1.len();
        match commits.last_mut().filter(|_| size <= room) {
            Some(notes) => notes.push(note),
            None => {
                commits.push(vec![note]);
                room = bytes_max.max(size);
            }
        }
        room -= size;
    }
    commits
}

/// What a change has to note. Empty when nothing durable changes.
pub(crate) fn notes(subscription: &Subscription, change: &Change) -> Notes {
    let mut notes = Notes::new();
    if change.moves_head() {
        notes.push((HEAD.to_vec(), head(subscription, change, true)));
    }
    for (path, link) in &change.links {
        let before = link_note(path, subscription.links.get(path));
        let after = link_note(path, link.as_ref());
        if before != after {
            notes.push(after);
        }
    }
    notes
}

/// What a new subscription has to note, in commits of at most `bytes_max`: the head that says so comes last.
pub(crate) fn whole(subscription: &Subscription, bytes_max: usize) -> Vec<Notes> {
    let nothing = Change::default();
    let last = (HEAD.to_vec(), head(subscription, &nothing, true));
    let first = (HEAD.to_vec(), head(subscription, &nothing, false));
    let mut commits: Vec<Notes> = Vec::new();
    let mut notes = Notes::new();
    let mut bytes = 2 * (first.1.len() + HEAD.len());
    let named = subscription.config.streams.iter().map(|path| named_note(path));
    let links = subscription.links.iter().map(|(path, link)| link_note(path, Some(link)));
    for note in named.chain(links.filter(|(_, value)| !value.is_empty())) {
        let size = note.0.len() + note.1.len();
        if bytes + size > bytes_max {
            if commits.is_empty() {
                notes.push(first.clone());
            }
            commits.push(std::mem::take(&mut notes));
            bytes = last.1.len() + HEAD.len();
        }
        bytes += size;
        notes.push(note);
    }
    notes.push(last);
    commits.push(notes);
    commits
}

/// Notes that tell of no subscription that this program understands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Foreign;

/// The subscription that notes tell of; `None` of one that was never finished.
///
/// # Errors
/// [`Foreign`].
pub(crate) fn decode(id: &str, notes: &[Note]) -> Result<Option<StoredSubscription>, Foreign> {
    let head = notes.iter().find(|(key, _)| **key == *HEAD).ok_or(Foreign)?;
    let mut head: Head = serde_json::from_slice(&head.1).map_err(|_| Foreign)?;
    let (streams, is_named) = match (head.version, head.streams.take()) {
        (VERSION, None) => (noted(notes).ok_or(Foreign)?, true),
        (VERSION_NAMING, Some(streams)) => (streams, false),
        _ => return Err(Foreign),
    };
    if !head.whole {
        return Ok(None);
    }
    let subscription = subscription(id, head, streams, notes).ok_or(Foreign)?;
    Ok(Some(StoredSubscription { subscription, named: is_named }))
}

/// The streams that notes say were named at creation.
fn noted(notes: &[Note]) -> Option<BTreeSet<Arc<str>>> {
    let paths = notes.iter().filter_map(|(key, _)| key.strip_prefix(NAMED));
    paths.map(|path| std::str::from_utf8(path).ok().map(Arc::from)).collect()
}

fn link(value: &[u8]) -> Option<Link> {
    let (flags, words) = value.split_first()?;
    let word = |at: usize| words.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    let (incarnation, acked) = (u64::from_le_bytes(word(0)?), u64::from_le_bytes(word(8)?));
    let acked_owner = u64::from_le_bytes(word(16)?);
    let (glob, explicit) = (flags & 1 != 0, flags & 2 != 0);
    let (base, tail, tail_owner) = (0, acked, acked_owner);
    Some(Link { glob, explicit, incarnation, acked, acked_owner, base, tail, tail_owner })
}

fn subscription(id: &str, head: Head, streams: BTreeSet<Arc<str>>, notes: &[Note]) -> Option<Subscription> {
    let pattern = match &head.pattern {
        Some(text) => Some(Pattern::parse(text)?),
        None => None,
    };
    let mut links = Links::default();
    for (key, value) in notes {
        let Some(path) = key.strip_prefix(LINK) else { continue };
        links.insert(std::str::from_utf8(path).ok()?.into(), link(value)?);
    }
    Some(Subscription {
        id: id.into(),
        config: Config {
            delivery: head.delivery,
            pattern,
            streams,
            lease_ttl_ms: head.lease_ttl_ms,
            description: head.description,
        },
        origin: head.origin,
        created_us: head.created_us,
        generation: head.generation,
        phase: head.phase,
        links,
    })
}

/// PROTOCOL 6.2: the hash of the normalised configuration that a re-confirmation is compared by.
pub(crate) fn config_hash(config: &Config) -> String {
    let normal = serde_json::json!([
        config.delivery,
        config.pattern.as_ref().map(Pattern::text),
        config.streams,
        config.lease_ttl_ms,
        config.description,
    ]);
    digest_text(normal.to_string().as_bytes())
}
