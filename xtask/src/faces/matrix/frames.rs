//! Frames that are wrong, made of one that is right: the echo service's `Fields`, written out byte by byte.

/// What the steps ask, and what is behind the tag of request and response alike.
const FIELDS: &[u8] = b"\x83\xa5count\x07\xa5total\x09\xa4name\xa4step";

/// What is wrong with a frame's fields.
const SPOILED: [(&str, &[u8]); 4] = [
    ("a field of another type", b"\x83\xa5count\xc3\xa5total\x09\xa4name\xa4step"),
    ("a field too few", b"\x82\xa5total\x09\xa4name\xa4step"),
    ("a field too many", b"\x84\xa5count\x07\xa5total\x09\xa4name\xa4step\xa4more\x01"),
    ("a byte behind it", b"\x83\xa5count\x07\xa5total\x09\xa4name\xa4step\x00"),
];

fn message(head: &[u8], tag: &str, fields: &[u8]) -> Vec<u8> {
    let mut frame = head.to_vec();
    // Tags of up to 31 bytes carry their length in their first.
    frame.push(0xa0 | tag.len() as u8);
    frame.extend_from_slice(tag.as_bytes());
    frame.extend_from_slice(fields);
    frame
}

/// The response that the steps wait for.
pub(super) fn response() -> Vec<u8> {
    message(b"\x92", "EchoFieldsResponse", FIELDS)
}

/// An item of a stream.
pub(super) fn item() -> Vec<u8> {
    message(b"\x92", "EchoCountItem", b"\x81\xa5value\x07")
}

/// The service's error.
pub(super) fn error() -> Vec<u8> {
    message(b"\x92", "EchoErrorResponse", b"\x81\xa7message\xa2no")
}

/// Responses that are none.
pub(super) fn bad_responses() -> Vec<(&'static str, Vec<u8>)> {
    let mut bad = broken(&response());
    bad.push(("another command's", message(b"\x92", "EchoBytesResponse", b"\x81\xa4data\xc4\x00")));
    bad.extend(SPOILED.map(|(what, fields)| (what, message(b"\x92", "EchoFieldsResponse", fields))));
    bad
}

/// Requests that are none, the unknown command apart.
pub(super) fn bad_requests() -> Vec<(&'static str, Vec<u8>)> {
    let mut bad = broken(&message(b"\x91\x92", "EchoFields", FIELDS));
    bad.extend(SPOILED.map(|(what, fields)| (what, message(b"\x91\x92", "EchoFields", fields))));
    bad
}

/// A request that is well formed, of a command that there is not.
pub(super) fn unknown_command() -> Vec<u8> {
    message(b"\x91\x92", "EchoNoSuchThing", b"\x80")
}

fn broken(good: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("an empty one", Vec::new()),
        ("its first byte", good[..1].to_vec()),
        ("all but its last byte", good[..good.len() - 1].to_vec()),
        ("a byte of no MessagePack", vec![0xc1]),
        ("text", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ]
}

/// A request of a command about a fork.
pub(super) fn about_fork(command: &str, fork: &str, value: Option<&[u8]>) -> Vec<u8> {
    let mut fields = vec![if value.is_some() { 0x82 } else { 0x81 }];
    fields.extend_from_slice(b"\xa4fork");
    fields.push(0xa0 | fork.len() as u8);
    fields.extend_from_slice(fork.as_bytes());
    if let Some(value) = value {
        fields.extend_from_slice(b"\xa5value\xc4");
        fields.push(value.len() as u8);
        fields.extend_from_slice(value);
    }
    message(b"\x91\x92", &format!("Echo{command}"), &fields)
}

/// What `Put` answers.
pub(super) fn version(version: u8) -> Vec<u8> {
    message(b"\x92", "EchoPutResponse", &[b"\x81\xa7version".as_slice(), &[version]].concat())
}

/// What is answered about a fork that was put to last with this.
pub(super) fn value(value: &[u8]) -> Vec<u8> {
    message(b"\x92", "EchoPeekResponse", &[b"\x81\xa5value\xc4", &[value.len() as u8][..], value].concat())
}

/// A stream that goes on and on.
pub(super) fn endless() -> Vec<u8> {
    message(b"\x91\x92", "EchoCount", b"\x82\xa5first\x00\xa4last\xce\xff\xff\xff\xff")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_good_ones_are_golden() {
        let golden = crate::harness::server::root().join("schemas/golden");
        let read = |name: &str| std::fs::read(golden.join(format!("echo_{name}.bin"))).unwrap();
        // As far as they say the same.
        let begins =
            |name: &str, frame: &[u8], length: usize| assert_eq!(read(name)[..length], frame[..length]);
        begins("fields_request", &message(b"\x91\x92", "EchoFields", FIELDS), 20);
        begins("fields_response", &response(), 27);
        begins("count_item", &item(), 22);
        begins("error_response", &error(), 28);
        begins("count_request", &endless(), 19);
        assert_eq!(read("put_request"), about_fork("Put", "main", Some(b"v")));
    }
}
