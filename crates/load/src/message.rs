//! Where an HTTP/1.1 message ends: the head at its empty line, the body after `Content-Length` bytes. Enough
//! for peers that are known to send nothing else.

/// Bytes of the first whole message in `bytes`, `None` while it is incomplete.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let whole = head + content_length(&bytes[..head]);
    (bytes.len() >= whole).then_some(whole)
}

/// Bytes of the body of a whole message.
pub fn body_bytes(message: &[u8]) -> usize {
    content_length(message)
}

/// The status of a response, 0 when it has none.
pub fn status(bytes: &[u8]) -> u16 {
    let digits = bytes.get(9..12).and_then(|d| std::str::from_utf8(d).ok());
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    for line in head.split(|b| *b == b'\n') {
        if line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
            let digits = std::str::from_utf8(&line[NAME.len()..]).map_or("", str::trim);
            return digits.parse().unwrap_or(0);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_behind_its_body() {
        let message = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello";
        for cut in 0..message.len() {
            assert_eq!(length(&message[..cut]), None, "cut at {cut}");
        }
        assert_eq!(length(message), Some(message.len()));
        assert_eq!(body_bytes(message), 5);
        assert_eq!(length(&[&message[..], b"HTTP"].concat()), Some(message.len()));
        assert_eq!(length(b"HTTP/1.1 204 No Content\r\n\r\n"), Some(27));
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\n\r\n"), 204);
        assert_eq!(status(b"HTTP"), 0);
    }
}
