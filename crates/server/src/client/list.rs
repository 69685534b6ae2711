//! `thalweg ls` and `watch`: which streams a server has, and what moves on it.

use super::failure::{Failure, passes};
use super::glob::Glob;
use super::output::Output;
use super::session::Session;
use super::stats::totals;
use super::verbs::Server;
use crate::quantity::Count;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;
use thalweg_wire::path::encode;

/// Streams asked for at once.
const PAGE: usize = 1_000;

fn parsed(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::Event(error.to_string()))
}

/// Told of a stream; `None` when it wants no more.
type Each<'a> = dyn FnMut(&str, &Value) -> Result<Option<()>, Failure> + 'a;

/// Hands every stream like the pattern to `each`, until that says `None`.
fn streams(session: &mut Session, glob: &Glob, each: &mut Each<'_>) -> Result<(), Failure> {
    let mut after = String::new();
    loop {
        let (prefix, from) = (encode(&glob.prefix()), encode(&after));
        let target = format!("/v1/streams?prefix={prefix}&after={from}&limit={PAGE}");
        session.ask("GET", &target, &[("Accept", "application/json")], b"")?;
        let page = parsed(&session.body()?)?;
        for entry in page["streams"].as_array().into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default();
            if glob.matches(name) && each(name, entry)?.is_none() {
                return Ok(());
            }
        }
        match page["next"].as_str() {
            Some(next) if next > after.as_str() => after = next.to_owned(),
            _ => return Ok(()),
        }
    }
}

/// Prints the names of streams, or a table.
pub(super) fn list(glob: Option<&str>, server: &Server, long: bool, output: Output) -> Result<(), Failure> {
    let mut session = Session::new(&server.parse()?);
    streams(&mut session, &Glob::new(glob.unwrap_or("**")), &mut |name, entry| {
        let text = if long { described(name, entry) } else { name.to_owned() };
        output.line(text, entry)
    })
}

fn described(name: &str, entry: &Value) -> String {
    let lifetime = match (entry["ttlS"].as_u64(), entry["expiresAt"].as_str()) {
        (Some(ttl_s), _) => format!("{ttl_s} s idle"),
        (None, Some(time)) => format!("until {time}"),
        (None, None) => String::new(),
    };
    let says = |key: &str| entry[key] == true;
    // Whether a stream that cannot be read is closed matters little.
    let open = if says("damaged") {
        "damaged"
    } else if says("closed") {
        "closed"
    } else {
        "open"
    };
    let bytes = entry["bytes"].as_u64().unwrap_or_default();
    let kept = entry["keptBytes"].as_u64().unwrap_or(bytes);
    let content_type = entry["contentType"].as_str().unwrap_or_default();
    format!("{kept:>14} {bytes:>14}  {open:<7}  {content_type:<24}  {name}  {lifetime}").trim_end().to_owned()
}

/// What happened to a stream between two looks.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Change {
    event: &'static str,
    name: String,
    bytes: u64,
    appended_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<String>,
}

/// A stream as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StreamState {
    incarnation: String,
    next_offset: String,
    bytes: u64,
    closed: bool,
    round: u64,
}

impl StreamState {
    fn of(entry: &Value, round: u64) -> Self {
        Self {
            incarnation: entry["incarnation"].as_str().unwrap_or_default().to_owned(),
            next_offset: entry["nextOffset"].as_str().unwrap_or_default().to_owned(),
            bytes: entry["bytes"].as_u64().unwrap_or_default(),
            closed: entry["closed"] == true,
            round,
        }
    }

    fn change(&self, name: &str, before: Option<&Self>) -> Option<Change> {
        let event = match before {
            None => "created",
            Some(before) if self.incarnation != before.incarnation => "recreated",
            Some(before) if self.closed && !before.closed => "closed",
            Some(before) if self.next_offset != before.next_offset => "appended",
            Some(_) => return None,
        };
        let known = before.filter(|_| event != "recreated").map_or(0, |before| before.bytes);
        let appended_bytes = self.bytes.saturating_sub(known);
        let next_offset = Some(self.next_offset.clone());
        Some(Change { event, name: name.to_owned(), bytes: self.bytes, appended_bytes, next_offset })
    }
}

impl Change {
    fn text(&self) -> String {
        format!(
            "{:<9} {:>10} {:>14}  {}",
            self.event,
            format!("+{}", self.appended_bytes),
            self.bytes,
            self.name
        )
    }
}

/// Prints a line per stream that changed between two looks, or the totals when they did.
pub(super) fn watch(
    glob: Option<&str>,
    server: &Server,
    show_totals: bool,
    interval: Duration,
    rounds: Option<u64>,
    output: Output,
) -> Result<(), Failure> {
    let mut session = Session::new(&server.parse()?);
    let glob = Glob::new(glob.unwrap_or("**"));
    let mut seen: HashMap<String, StreamState> = HashMap::new();
    let mut last = Value::Null;
    for round in 0..rounds.unwrap_or(u64::MAX) {
        if round > 0 {
            std::thread::sleep(interval);
        }
        let outcome = if show_totals {
            watch_totals(&mut session, &mut last, output)
        } else {
            watch_streams(&mut session, &glob, &mut seen, round, output)
        };
        match outcome {
            Ok(Some(())) => {}
            Ok(None) => return Ok(()),
            Err(failure) if round > 0 && passes(&failure) => {
                output.tell(format_args!("{failure}; looking again"));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

fn watch_totals(session: &mut Session, last: &mut Value, output: Output) -> Result<Option<()>, Failure> {
    let now: Value = totals(session)?;
    if now == *last {
        return Ok(Some(()));
    }
    let printed = output.line(totals_text(&now), &now);
    *last = now;
    printed
}

/// The totals of a server, for people.
fn totals_text(now: &Value) -> String {
    let count = |key: &str, what| Count(now[key].as_u64().unwrap_or(0), what);
    format!(
        "{}, {} in {}",
        count("streams", "stream"),
        count("storedBytes", "byte"),
        count("segments", "segment")
    )
}

fn watch_streams(
    session: &mut Session,
    glob: &Glob,
    seen: &mut HashMap<String, StreamState>,
    round: u64,
    output: Output,
) -> Result<Option<()>, Failure> {
    let mut heard = Some(());
    streams(session, glob, &mut |name, entry| {
        let now = StreamState::of(entry, round);
        // The first look only learns what there is.
        let change = if round == 0 { None } else { now.change(name, seen.get(name)) };
        if let Some(change) = change {
            heard = output.line(change.text(), &change)?;
        }
        seen.insert(name.to_owned(), now);
        Ok(heard)
    })?;
    if heard.is_none() {
        return Ok(None);
    }
    let mut gone: Vec<(String, StreamState)> = seen.extract_if(|_, stream| stream.round != round).collect();
    gone.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (name, stream) in gone {
        let change =
            Change { event: "deleted", name, bytes: stream.bytes, appended_bytes: 0, next_offset: None };
        if output.line(change.text(), &change)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(next_offset: &str, bytes: u64, closed: bool) -> StreamState {
        let (incarnation, _) = next_offset.split_once('_').unwrap();
        StreamState {
            incarnation: incarnation.into(),
            next_offset: next_offset.into(),
            bytes,
            closed,
            round: 0,
        }
    }

    #[test]
    fn changes_are_told_apart() {
        let before = seen("1_5", 5, false);
        let event = |now: StreamState| now.change("x", Some(&before)).map(|c| (c.event, c.appended_bytes));
        assert_eq!(event(seen("1_5", 5, false)), None);
        assert_eq!(event(seen("1_9", 9, false)), Some(("appended", 4)));
        assert_eq!(event(seen("1_9", 9, true)), Some(("closed", 4)));
        assert_eq!(event(seen("2_3", 3, false)), Some(("recreated", 3)));
        assert_eq!(event(seen("2_9", 9, false)), Some(("recreated", 9)), "however long it is by now");
        assert_eq!(
            seen("1_5", 5, false).change("x", None).map(|c| (c.event, c.appended_bytes)),
            Some(("created", 5))
        );
    }

    #[test]
    fn totals_are_told_in_words() {
        let text = |streams| {
            totals_text(&serde_json::json!({ "streams": streams, "storedBytes": 70, "segments": 1 }))
        };
        assert_eq!(
            (text(1).as_str(), text(2).as_str()),
            ("1 stream, 70 bytes in 1 segment", "2 streams, 70 bytes in 1 segment")
        );
    }

    #[test]
    fn a_table_line_has_everything() {
        let entry =
            serde_json::json!({ "bytes": 5, "closed": true, "contentType": "text/plain", "ttlS": 60 });
        let line = described("a/b", &entry);
        assert!(line.contains(" 5  closed   text/plain ") && line.ends_with("a/b  60 s idle"), "{line}");
    }
}
