//! The verbs that use a server: a small blocking HTTP/1.1 client, a file per verb that is more than a
//! request.

mod address;
mod append;
mod channel;
mod compare;
mod connection;
mod copy;
mod failure;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod glob;
mod list;
mod neighbour;
mod output;
mod partly;
mod parts;
mod place;
mod producer;
mod progress;
mod rates;
mod read;
#[cfg(test)]
mod scripted;
mod session;
mod stats;
mod tail;
mod url;
mod verbs;

use address::Address;
use connection::{Connection, Head};
use neighbour::Via;
use serde_json::{Map, Value, json};
use std::time::Duration;
use thalweg_wire::media::{self, Kind};
use verbs::{Lifetime, Server, Target};

pub(crate) use failure::Failure;
pub(crate) use output::{Output, notice};
pub(crate) use verbs::ClientVerb;

/// Does what the verb says.
///
/// # Errors
/// [`Failure`]: no server, a refusal, or a broken connection.
pub(crate) fn run(verb: &ClientVerb, output: Output) -> Result<(), Failure> {
    // What comes next may never come.
    if matches!(verb, ClientVerb::Tail { .. } | ClientVerb::Watch { .. }) {
        output::end_when_unread()?;
    }
    match verb {
        ClientVerb::Create { target, content_type, lifetime, closed } => {
            create(&target.address()?, content_type, lifetime, *closed, output)
        }
        ClientVerb::Append(options) => append::append(options, output),
        ClientVerb::Read { target, from, until } => read::read(&target.address()?, from, until, output),
        ClientVerb::Tail { target, from, via: Via::Http, .. } => tail::tail(&target.address()?, from, output),
        ClientVerb::Tail { from, via: Via::Sock | Via::Shm, .. } if place::is_time(from) => {
            Err(Failure::Asked("a tail begins at a time over HTTP alone: leave out --via, or name an offset"))
        }
        ClientVerb::Tail { target, from, via, data, .. } => {
            neighbour::tail(&target.address()?.name, *via, data, from, output)
        }
        ClientVerb::Head { target } => head(&target.address()?, output),
        ClientVerb::Ls { glob, server, long } => list::list(glob.as_deref(), server, *long, output),
        ClientVerb::Fork { source, name, server, at, sub, lifetime } => {
            let source = Address::parse(source, server)?;
            let fork = Address::parse(name, server)?;
            create_fork(&source, &fork, at.as_deref(), *sub, lifetime, output)
        }
        ClientVerb::Close { target } => close(&target.address()?, output),
        ClientVerb::Rm { names, server } => remove_all(names, server, output),
        ClientVerb::Cp(options) => copy::copy(options, output),
        ClientVerb::Stats(options) => stats::stats(options, output),
        ClientVerb::Watch { glob, server, totals, every, interval_ms, rounds } => {
            let interval = interval_ms.map_or(*every, Duration::from_millis);
            list::watch(glob.as_deref(), server, *totals, interval, *rounds, output)
        }
    }
}

impl Target {
    fn address(&self) -> Result<Address, Failure> {
        Address::parse(&self.name, &self.server)
    }
}

/// One request on a connection of its own.
fn ask_once(address: &Address, method: &str, fields: &[(&str, &str)], body: &[u8]) -> Result<Head, Failure> {
    let asked = Connection::open(&address.url)?.ask(method, &address.target(""), fields, body);
    asked.map_err(|failure| if method == "HEAD" { failure } else { failure.of_change(false) })
}

fn create(
    address: &Address,
    content_type: &str,
    lifetime: &Lifetime,
    closed: bool,
    output: Output,
) -> Result<(), Failure> {
    let ttl = lifetime.ttl_s.map(|seconds| seconds.to_string());
    let mut fields = vec![("Content-Type", content_type)];
    fields.extend(ttl.as_deref().map(|ttl| ("Stream-TTL", ttl)));
    fields.extend(lifetime.expires_at.as_deref().map(|time| ("Stream-Expires-At", time)));
    if closed {
        fields.push(("Stream-Closed", "true"));
    }
    created(address, &ask_once(address, "PUT", &fields, b"")?, None, output)
}

fn create_fork(
    source: &Address,
    fork: &Address,
    at: Option<&str>,
    sub: Option<u64>,
    lifetime: &Lifetime,
    output: Output,
) -> Result<(), Failure> {
    let (from, ttl, sub) = (
        source.target(""),
        lifetime.ttl_s.map(|seconds| seconds.to_string()),
        sub.map(|count| count.to_string()),
    );
    // A fork is made where its source is, whatever server its own URL would name.
    if source.url != fork.url {
        let why = format!("{} is on another server: a fork lives beside its source; use cp", fork.name);
        return Err(Failure::Copy(why));
    }
    let mut fields = vec![("Stream-Forked-From", from.as_str())];
    fields.extend(at.map(|offset| ("Stream-Fork-Offset", offset)));
    fields.extend(sub.as_deref().map(|count| ("Stream-Fork-Sub-Offset", count)));
    fields.extend(ttl.as_deref().map(|ttl| ("Stream-TTL", ttl)));
    fields.extend(lifetime.expires_at.as_deref().map(|time| ("Stream-Expires-At", time)));
    created(fork, &ask_once(fork, "PUT", &fields, b"")?, Some(&source.name), output)
}

fn created(address: &Address, head: &Head, source: Option<&str>, output: Output) -> Result<(), Failure> {
    let new = head.status == 201;
    let word = if new { "created" } else { "exists already, as asked for:" };
    let mut json = json!({
        "name": address.name,
        "created": new,
        "nextOffset": head.field("stream-next-offset"),
        "closed": head.says("stream-closed"),
    });
    if let (Some(object), Some(source)) = (json.as_object_mut(), source) {
        object.insert("forkedFrom".to_owned(), source.into());
    }
    output.say(format_args!("{word} {}", address.name), json)
}

fn head(address: &Address, output: Output) -> Result<(), Failure> {
    let head = ask_once(address, "HEAD", &[], b"")?;
    let mut text = String::new();
    let mut json = Map::new();
    json.insert("name".to_owned(), address.name.clone().into());
    json.insert("closed".to_owned(), head.says("stream-closed").into());
    for (name, value) in &head.fields {
        let name = name.to_ascii_lowercase();
        if !name.starts_with("stream-") && name != "content-type" {
            continue;
        }
        text += &format!("{name}: {value}\n");
        let (key, value) = match name.as_str() {
            "stream-closed" => continue,
            "stream-damaged" => ("damaged".to_owned(), (value == "true").into()),
            "stream-ttl" => ("ttlS".to_owned(), number(value)),
            "stream-retain-seconds" | "stream-retain-bytes" => {
                (camel_case(name.trim_start_matches("stream-")), number(value))
            }
            name => (camel_case(name.strip_prefix("stream-").unwrap_or(name)), value.clone().into()),
        };
        json.insert(key, value);
    }
    output.say(text, json)
}

fn number(value: &str) -> Value {
    value.parse::<u64>().map_or(Value::Null, Value::from)
}

/// `next-offset` as `nextOffset`.
fn camel_case(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| {
        let mut letters = word.chars();
        let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
        all + &initial.into_iter().chain(letters).collect::<String>()
    })
}

fn close(address: &Address, output: Output) -> Result<(), Failure> {
    let head = ask_once(address, "POST", &[("Stream-Closed", "true")], b"")?;
    let next_offset = head.field("stream-next-offset");
    let json = json!({ "name": address.name, "nextOffset": next_offset, "closed": true });
    output.say(format_args!("closed {}", address.name), json)
}

/// Deletes those that can be deleted. Where only one is named, a failure does not repeat its name.
fn remove_all(names: &[String], server: &Server, output: Output) -> Result<(), Failure> {
    let delete = |name: &String| Address::parse(name, server).and_then(|address| remove(&address, output));
    if let [name] = names {
        return delete(name);
    }
    let mut failures = Vec::new();
    for name in names {
        match delete(name) {
            Ok(()) => {}
            // Neither would the others be.
            Err(failure @ (Failure::Unreachable { .. } | Failure::Output(_))) if failures.is_empty() => {
                return Err(failure);
            }
            Err(failure) => failures.push((name.clone(), failure)),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Several(failures)) }
}

fn remove(address: &Address, output: Output) -> Result<(), Failure> {
    ask_once(address, "DELETE", &[], b"")?;
    output.say(format_args!("deleted {}", address.name), json!({ "name": address.name, "deleted": true }))
}

fn is_json(head: &Head) -> bool {
    names_json(head.field("content-type").unwrap_or_default())
}

/// Whether that is the content type of a stream of messages.
fn names_json(content_type: &str) -> bool {
    media::kind(content_type) == Kind::Json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_something_may_have_been_applied() {
        let url = scripted::serve(|_| String::new());
        let address = Address::parse("a", &Server { url, token: None, tls_ca: None }).unwrap();
        for (method, may) in [("HEAD", false), ("PUT", true), ("DELETE", true)] {
            let said = ask_once(&address, method, &[], b"").unwrap_err().to_string();
            assert!(
                said.contains("broke") && said.contains("may have been applied") == may,
                "{method}: {said}"
            );
        }
    }

    #[test]
    fn a_content_type_is_judged_by_its_essence() {
        for json in ["application/json", "Application/JSON; charset=utf-8"] {
            assert!(names_json(json), "{json}");
        }
        for other in ["application/json-seq", "application/jsonl", "text/plain", ""] {
            assert!(!names_json(other), "{other}");
        }
    }

    #[test]
    fn keys_of_json_are_in_camel_case() {
        assert_eq!(camel_case("next-offset"), "nextOffset");
        assert_eq!(camel_case("expires-at-x"), "expiresAtX");
        assert_eq!(camel_case("a"), "a");
    }
}
