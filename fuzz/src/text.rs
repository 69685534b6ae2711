//! What people and browsers write: JSON, JSON-RPC, schemas, names and times.

use serde::de::IgnoredAny;
use serde_json::Value;
use thalweg_codegen::{Arguments, Language, generate};
use thalweg_wire::etag::{self, Comparison};
use thalweg_wire::host::Hosts;
use thalweg_wire::{decimal, json, jsonrpc, media, path, query, rfc3339, token::Token};

/// A body is messages exactly if it is JSON, and holds what it held.
pub fn json(data: &[u8]) {
    let Ok(messages) = json::messages(data) else { return };
    let mut array = vec![b'['];
    array.extend_from_slice(&messages.joined);
    array.push(b']');
    let count = elements(&array).expect("messages that are not JSON").expect("a list is a list");
    assert_eq!(count as u64, messages.count);
    elements(data).expect("a body that is not JSON was taken");
    // Numbers that no float holds are JSON, and mean nothing to the other parser.
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let joined: Vec<Value> = serde_json::from_slice(&array).expect("what could be read cannot any more");
    match value {
        Value::Array(values) => assert_eq!(values, joined),
        value => assert_eq!(joined, [value]),
    }
}

/// Whether bytes are JSON by its grammar alone, and how many elements there are if it is an array.
fn elements(data: &[u8]) -> Option<Option<usize>> {
    let list = serde_json::from_slice::<Vec<IgnoredAny>>(data).ok().map(|list| list.len());
    serde_json::from_slice::<IgnoredAny>(data).ok().map(|_| list)
}

/// Only JSON is carried out, and an id is what was sent.
pub fn jsonrpc(data: &[u8]) {
    if let Ok(calls) = jsonrpc::calls(data, 64) {
        let count = elements(data).expect("a body that is not JSON is carried out");
        assert_eq!(calls.is_batch, count.is_some());
        assert_eq!(calls.items.len(), count.unwrap_or(1));
    }
    let _ = jsonrpc::answers(&String::from_utf8_lossy(data), |answer| {
        assert!(elements(answer.id.as_bytes()).is_some());
    });
}

/// A schema that is taken is written in every language.
pub fn schema(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(service) = thalweg_schema::parse("x.jsonc", text) else { return };
    for lang in
        [Language::Cpp, Language::Rust, Language::Ts, Language::Python, Language::Zig, Language::Erlang]
    {
        let mut arguments = Arguments::new("x.jsonc", lang, "out");
        arguments.server = true;
        arguments.client = true;
        generate(&service, &arguments).expect("a schema that is taken cannot be written");
    }
}

/// What stands in paths, queries and headers means the same when it is written again.
pub fn names(data: &[u8]) {
    if let Some(token) = Token::parse(data) {
        assert_eq!(token.encode(), data);
    }
    let _ = decimal::parse(data, u64::MAX);
    let is_listed = |comparison| etag::matches(data, comparison, |tag| tag == b"\"1:2:3\"");
    assert!(
        !is_listed(Comparison::Strong) || is_listed(Comparison::Weak),
        "what is one strongly is one weakly"
    );
    if let Some(media) = media::parse(data) {
        assert!(media.contains('/') && media::kind(media) == media::kind(&media.to_ascii_uppercase()));
    }
    let mut hosts = Hosts::default();
    assert_eq!(hosts.include(data), hosts.include(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = path::stream_name(text) {
        let again: Vec<String> = name.split('/').map(path::encode).collect();
        assert_eq!(path::stream_name(&again.join("/")).as_deref(), Ok(name.as_ref()));
    }
    let _ = query::values(text, ["offset", "live", "cursor"]);
    if let Some(time) = rfc3339::parse(text)
        && let Some(written) = rfc3339::format(time)
    {
        assert_eq!(rfc3339::parse(&written), Some(time));
    }
    assert!(media::same(text, text));
}
