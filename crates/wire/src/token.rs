//! Offset tokens: `(incarnation, offset)` as fixed-width text that sorts as the numbers do.
//!
//! Sixteen lowercase hexadecimal digits, `_`, sixteen more. The incarnation makes a token of a deleted
//! stream recognisable after its name is taken again. Strict: one text per value, one value per text.

/// Bytes of an encoded token.
pub const TOKEN_BYTES: usize = 33;

/// A position in one incarnation of a stream. Orders like its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// Which incarnation of the stream's name.
    pub incarnation: u64,
    /// Payload bytes before the position.
    pub offset: u64,
}

impl Token {
    /// The token as text, all ASCII.
    pub fn encode(self) -> [u8; TOKEN_BYTES] {
        let mut text = [b'_'; TOKEN_BYTES];
        write_hex(&mut text[..16], self.incarnation);
        write_hex(&mut text[17..], self.offset);
        text
    }

    /// The token in `text`, or `None` unless [`Token::encode`] could have written it.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != TOKEN_BYTES || text[16] != b'_' {
            return None;
        }
        Some(Self { incarnation: read_hex(&text[..16])?, offset: read_hex(&text[17..])? })
    }
}

fn write_hex(out: &mut [u8], mut value: u64) {
    for byte in out.iter_mut().rev() {
        *byte = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

fn read_hex(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some((value << 4) | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_form_is_fixed() {
        let token = Token { incarnation: 7, offset: 0xabc };
        assert_eq!(&token.encode(), b"0000000000000007_0000000000000abc");
        for bad in [
            "",
            "-1",
            "now",
            "0000000000000007_0000000000000ABC",
            "0000000000000007_0000000000000ab",
            "0000000000000007_0000000000000abcd",
            "0000000000000007-0000000000000abc",
            "000000000000000 _0000000000000abc",
            "+000000000000007_0000000000000abc",
        ] {
            assert_eq!(Token::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_sorts_and_returns(a in any::<(u64, u64)>(), b in any::<(u64, u64)>()) {
            let a = Token { incarnation: a.0, offset: a.1 };
            let b = Token { incarnation: b.0, offset: b.1 };
            prop_assert_eq!(Token::parse(&a.encode()), Some(a));
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
        }

        #[test]
        fn one_text_per_value(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(token) = Token::parse(&text) {
                prop_assert_eq!(token.encode().to_vec(), text);
            }
        }
    }
}
