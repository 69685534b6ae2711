//! Header fields of requests: those that some layer reads, by name. Of all others a parser checks the form
//! and keeps nothing.
//!
//! A name is resolved once, when a head is parsed. Code that looks for a field then compares a byte, and
//! cannot misspell the name.

/// Declares the names, in the order of their lengths.
macro_rules! names {
    ($($name:ident $text:literal)*) => {
        /// A field's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        /// All names, in the order of their lengths.
        const ALL: &[Name] = &[$(Name::$name),*];

        impl Name {
            /// As it is usually written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

names! {
    Host "Host"
    Expect "Expect"
    Origin "Origin"
    IfMatch "If-Match"
    Connection "Connection"
    StreamSeq "Stream-Seq"
    StreamTtl "Stream-TTL"
    ProducerId "Producer-Id"
    ContentType "Content-Type"
    ProducerSeq "Producer-Seq"
    Authorization "Authorization"
    IfNoneMatch "If-None-Match"
    LastEventId "Last-Event-ID"
    StreamClosed "Stream-Closed"
    ContentLength "Content-Length"
    ProducerEpoch "Producer-Epoch"
    ContentEncoding "Content-Encoding"
    StreamExpiresAt "Stream-Expires-At"
    TransferEncoding "Transfer-Encoding"
    XForwardedProto "X-Forwarded-Proto"
    StreamForkOffset "Stream-Fork-Offset"
    StreamForkedFrom "Stream-Forked-From"
    StreamRetainBytes "Stream-Retain-Bytes"
    StreamRetainSeconds "Stream-Retain-Seconds"
    StreamForkSubOffset "Stream-Fork-Sub-Offset"
}

/// Bytes of the longest name.
const LENGTH_MAX: usize = ALL[ALL.len() - 1].as_str().len();

/// For each length, how many names are shorter.
const SHORTER: [u8; LENGTH_MAX + 2] = {
    let (mut shorter, mut length) = ([0; LENGTH_MAX + 2], 0);
    while length < shorter.len() {
        let mut count = 0;
        while count < ALL.len() && ALL[count].as_str().len() < length {
            count += 1;
        }
        shorter[length] = count as u8;
        length += 1;
    }
    shorter
};

impl Name {
    /// The name that is written so, in any case; `None` for one that no layer reads.
    ///
    /// ```
    /// use thalweg_wire::field::Name;
    /// assert_eq!(Name::of("content-TYPE"), Some(Name::ContentType));
    /// assert_eq!(Name::of("User-Agent"), None);
    /// ```
    pub fn of(written: &str) -> Option<Self> {
        let start = usize::from(*SHORTER.get(written.len())?);
        let end = usize::from(*SHORTER.get(written.len() + 1)?);
        ALL[start..end].iter().copied().find(|name| name.as_str().eq_ignore_ascii_case(written))
    }

    /// Whether it has one value. RFC 9110 5.3: no sender repeats such a field, and of two values a reader and
    /// whatever stands in front of it may choose different ones. Lists may go on in further lines, and what
    /// frames a message is judged with its head.
    pub const fn is_single(self) -> bool {
        !matches!(
            self,
            Self::Connection
                | Self::ContentEncoding
                | Self::ContentLength
                | Self::Expect
                | Self::Host
                | Self::IfMatch
                | Self::IfNoneMatch
                | Self::TransferEncoding
                | Self::XForwardedProto
        )
    }
}

impl From<Name> for &'static str {
    fn from(name: Name) -> Self {
        name.as_str()
    }
}

/// A field of a request, borrowed from its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: Name,
    /// Its value, trimmed of outer blanks; any octet but NUL, CR and LF.
    pub value: &'a [u8],
}

impl<'a> Field<'a> {
    /// The field that is written so; `None` for one that no layer reads.
    pub fn of(name: &str, value: &'a [u8]) -> Option<Self> {
        Name::of(name).map(|name| Self { name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case_and_nothing_else_is() {
        assert!(ALL.is_sorted_by_key(|name| name.as_str().len()));
        for name in ALL {
            let written = name.as_str();
            assert_eq!(Name::of(written), Some(*name));
            assert_eq!(Name::of(&written.to_ascii_lowercase()), Some(*name));
            assert_eq!(Name::of(&written.to_ascii_uppercase()), Some(*name));
            for other in [&written[1..], &format!("{written}s"), &written.replace('-', "_").replace('o', "0")]
            {
                assert!(Name::of(other).is_none_or(|found| found.as_str() == other), "{other}");
            }
        }
        for other in ["", "X", "Via", "Accept", "Stream-Fork-Sub-Offsets", &"x".repeat(1 << 16)] {
            assert_eq!(Name::of(other), None, "{other}");
        }
    }
}
