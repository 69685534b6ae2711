//! What tokens are made of: names of methods, header fields and media types.

/// Whether a token may have a byte (RFC 9110, 5.6.2).
pub(crate) const fn is_tchar(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
        || matches!(byte, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.')
        || matches!(byte, b'^' | b'_' | b'`' | b'|' | b'~')
}
