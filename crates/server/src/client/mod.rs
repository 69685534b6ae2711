//! The verbs that use a server: a small blocking HTTP/1.1 client.

mod connection;
mod events;
mod tail;

use crate::arguments::{ClientVerb, Target};
use connection::{Connection, Head, Url};
use std::io::{self, Read, Write};

pub(crate) use connection::Failure;

/// Does what the verb says.
///
/// # Errors
/// [`Failure`]: no server, a refusal, or a broken connection.
pub(crate) fn run(verb: &ClientVerb) -> Result<(), Failure> {
    match verb {
        ClientVerb::Create { target, content_type, ttl_s, expires_at } => {
            create(target, content_type, *ttl_s, expires_at.as_deref())
        }
        ClientVerb::Append { target, data, content_type, close } => {
            append(target, data.as_deref(), content_type.as_deref(), *close)
        }
        ClientVerb::Read { target, from } => read(target, from),
        ClientVerb::Tail { target, from } => tail::tail(target, from),
        ClientVerb::Head { target } => head(target),
        ClientVerb::Rm { target } => remove(target),
    }
}

fn create(
    target: &Target,
    content_type: &str,
    ttl_s: Option<u64>,
    expires_at: Option<&str>,
) -> Result<(), Failure> {
    let ttl = ttl_s.map(|seconds| seconds.to_string());
    let mut fields = vec![("Content-Type", content_type)];
    fields.extend(ttl.as_deref().map(|ttl| ("Stream-TTL", ttl)));
    fields.extend(expires_at.map(|time| ("Stream-Expires-At", time)));
    let url = Url::parse(&target.url)?;
    let mut connection = Connection::open(&url)?;
    let head = connection.ask("PUT", &stream_path(&target.name, ""), &fields, b"")?;
    let word = if head.status == 201 { "created" } else { "exists already, as asked for:" };
    print(format_args!("{word} {}\n", target.name))
}

fn append(
    target: &Target,
    data: Option<&str>,
    content_type: Option<&str>,
    close: bool,
) -> Result<(), Failure> {
    let body = match data {
        Some(text) if text != "-" => text.as_bytes().to_vec(),
        _ => {
            let mut body = Vec::new();
            io::stdin().read_to_end(&mut body).map_err(Failure::Input)?;
            body
        }
    };
    let url = Url::parse(&target.url)?;
    let mut connection = Connection::open(&url)?;
    let path = stream_path(&target.name, "");
    let content_type = match content_type {
        Some(known) => known.to_owned(),
        None => {
            let head = connection.ask("HEAD", &path, &[], b"")?;
            if !head.keep_alive {
                connection = Connection::open(&url)?;
            }
            head.field("content-type").unwrap_or("application/octet-stream").to_owned()
        }
    };
    let mut fields = vec![("Content-Type", content_type.as_str())];
    if close {
        fields.push(("Stream-Closed", "true"));
    }
    let head = connection.ask("POST", &path, &fields, &body)?;
    print(format_args!("{}\n", head.field("stream-next-offset").unwrap_or("-")))
}

/// Reads chunk after chunk until the server says that this is all there is.
fn read(target: &Target, from: &str) -> Result<(), Failure> {
    let url = Url::parse(&target.url)?;
    let mut connection = Connection::open(&url)?;
    let mut offset = from.to_owned();
    let mut out = io::stdout().lock();
    loop {
        let query = format!("?offset={}", encoded(&offset));
        let head = connection.ask("GET", &stream_path(&target.name, &query), &[], b"")?;
        let mut piece = Vec::new();
        let mut last_byte = b'\n';
        while connection.read_some(&mut piece)? {
            last_byte = piece.last().copied().unwrap_or(last_byte);
            if written(out.write_all(&piece))?.is_none() {
                return Ok(());
            }
            piece.clear();
        }
        // Messages come as an array per chunk: a line each.
        if is_json(&head) && last_byte != b'\n' && written(out.write_all(b"\n"))?.is_none() {
            return Ok(());
        }
        let next = head.field("stream-next-offset").map(str::to_owned);
        match next {
            Some(next)
                if !head.says("stream-up-to-date") && !head.says("stream-closed") && next != offset =>
            {
                offset = next;
            }
            _ => return written(out.flush()).map(|_| ()),
        }
        if !head.keep_alive {
            connection = Connection::open(&url)?;
        }
    }
}

fn head(target: &Target) -> Result<(), Failure> {
    let url = Url::parse(&target.url)?;
    let head = Connection::open(&url)?.ask("HEAD", &stream_path(&target.name, ""), &[], b"")?;
    let shown = |name: &str| name.starts_with("stream-") || name == "content-type";
    let mut text = String::new();
    for (name, value) in &head.fields {
        let name = name.to_ascii_lowercase();
        if shown(&name) {
            text += &format!("{name}: {value}\n");
        }
    }
    print(format_args!("{text}"))
}

fn remove(target: &Target) -> Result<(), Failure> {
    let url = Url::parse(&target.url)?;
    Connection::open(&url)?.ask("DELETE", &stream_path(&target.name, ""), &[], b"")?;
    print(format_args!("deleted {}\n", target.name))
}

fn is_json(head: &Head) -> bool {
    let content_type = head.field("content-type").unwrap_or_default();
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The target of a stream, its name percent-encoded but for the slashes.
fn stream_path(name: &str, query: &str) -> String {
    let segments: Vec<String> = name.trim_start_matches('/').split('/').map(encoded).collect();
    format!("/v1/stream/{}{query}", segments.join("/"))
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

fn print(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    written(out.write_fmt(text).and_then(|()| out.flush())).map(|_| ())
}

/// What a write to standard output came to; `None` when the reader at its other end has had enough.
fn written(outcome: io::Result<()>) -> Result<Option<()>, Failure> {
    match outcome {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
        Err(error) => Err(Failure::Output(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_but_for_their_slashes() {
        assert_eq!(stream_path("orders/2024 Q1?#%", ""), "/v1/stream/orders/2024%20Q1%3F%23%25");
        assert_eq!(stream_path("/a", "?offset=-1"), "/v1/stream/a?offset=-1");
        assert_eq!(stream_path("ä", ""), "/v1/stream/%C3%A4");
    }
}
