//! An `http://` or `https://` URL, taken apart (RFC 3986), once for every part that is given one.
//!
//! A caller has rules of its own beside these (which schemes and hosts, what may stand behind them), and its
//! own error messages.

use crate::host::is_port;
use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

/// The parts of a URL, as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// Whether its scheme is `https`.
    pub secure: bool,
    /// Host and port.
    pub authority: &'a str,
    /// The host: a name, or an address without brackets. Whether there is such a host is not looked at.
    pub host: &'a str,
    /// The port, if one is named.
    pub port: Option<u16>,
    /// Path, query and fragment: empty, or beginning with `/`, `?` or `#`.
    pub rest: &'a str,
}

/// Why a text is no such URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// It does not begin with `http://` or `https://`.
    Scheme,
    /// It names a user, and maybe a password.
    User,
    /// It names no host, or brackets are open or hold no address of IPv6.
    Host,
    /// It has blanks, control characters, or others that are not ASCII.
    Character,
    /// What stands behind the host is no port.
    Port,
}

/// What a URL is written in.
const GRAPHIC: RangeInclusive<u8> = 0x21..=0x7e;

impl<'a> Url<'a> {
    /// Takes a URL apart.
    ///
    /// ```
    /// use thalweg_wire::url::Url;
    /// let url = Url::split("http://[::1]:4437/rpc/log?x")?;
    /// assert_eq!((url.host, url.port, url.rest), ("::1", Some(4437), "/rpc/log?x"));
    /// # Ok::<(), thalweg_wire::url::UrlError>(())
    /// ```
    ///
    /// # Errors
    /// It is none; the first thing that is wrong.
    pub fn split(text: &'a str) -> Result<Self, UrlError> {
        // RFC 3986, 3.1: a scheme is the same in capitals.
        let (secure, behind) = match text.split_once("://").ok_or(UrlError::Scheme)? {
            (scheme, behind) if scheme.eq_ignore_ascii_case("http") => (false, behind),
            (scheme, behind) if scheme.eq_ignore_ascii_case("https") => (true, behind),
            _ => return Err(UrlError::Scheme),
        };
        let (authority, rest) = behind.split_at(behind.find(['/', '?', '#']).unwrap_or(behind.len()));
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, port) = split_port(authority)?;
        if host.is_empty() {
            return Err(UrlError::Host);
        }
        if !behind.bytes().all(|byte| GRAPHIC.contains(&byte)) {
            return Err(UrlError::Character);
        }
        let port = match port {
            None => None,
            Some(port) if is_port(port) => port.parse().ok(),
            Some(_) => return Err(UrlError::Port),
        };
        Ok(Self { secure, authority, host, port, rest })
    }

    /// Whether the host is written in brackets, which makes it an address of IPv6.
    pub fn is_bracketed(&self) -> bool {
        self.authority.starts_with('[')
    }

    /// What a `Host` says: host and port, without the zone of an address, which only this machine knows (RFC
    /// 6874, 4).
    ///
    /// ```
    /// # use thalweg_wire::url::Url;
    /// assert_eq!(Url::split("http://[fe80::1%25eth0]:80/x")?.host_field(), "[fe80::1]:80");
    /// # Ok::<(), thalweg_wire::url::UrlError>(())
    /// ```
    pub fn host_field(&self) -> Cow<'a, str> {
        let zoned = self.authority.split_once('%').filter(|_| self.is_bracketed());
        match zoned.and_then(|(before, behind)| Some((before, behind.split_once(']')?.1))) {
            Some((address, port)) => format!("{address}]{port}").into(),
            None => self.authority.into(),
        }
    }

    /// The host as the system's resolver takes it: a zone may be written as it is, or behind `%25` (RFC 6874,
    /// 2), which alone is the zone 25.
    ///
    /// ```
    /// # use thalweg_wire::url::Url;
    /// assert_eq!(Url::split("http://[fe80::1%25eth0]:80/x")?.host_to_resolve(), "fe80::1%eth0");
    /// # Ok::<(), thalweg_wire::url::UrlError>(())
    /// ```
    pub fn host_to_resolve(&self) -> Cow<'a, str> {
        let zoned = self.host.split_once("%25").filter(|(_, zone)| self.is_bracketed() && !zone.is_empty());
        zoned.map_or(self.host.into(), |(address, zone)| format!("{address}%{zone}").into())
    }

    /// The port that is meant: what is named, or the scheme's own.
    pub fn port_or_own(&self) -> u16 {
        self.port.unwrap_or(if self.secure { 443 } else { 80 })
    }
}

/// A URL as it may be repeated: what stands in front of its host may be a secret.
///
/// ```
/// assert_eq!(thalweg_wire::url::shown("http://user:secret@host/path"), "http://…@host/path");
/// ```
pub fn shown(url: &str) -> Cow<'_, str> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let authority = url[start..].split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => format!("{}…{}", &url[..start], &url[start + at..]).into(),
        None => url.into(),
    }
}

/// A host, and what stands behind its colon.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    let Some(bracketed) = authority.strip_prefix('[') else {
        return Ok(authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))));
    };
    let (host, behind) = bracketed.split_once(']').ok_or(UrlError::Host)?;
    // RFC 3986, 3.2.2; a zone (RFC 6874) behind the address is the system's to know.
    let address = host.split_once('%').map_or(host, |(address, _)| address);
    address.parse::<Ipv6Addr>().map_err(|_| UrlError::Host)?;
    match behind.strip_prefix(':') {
        None if behind.is_empty() => Ok((host, None)),
        None => Err(UrlError::Port),
        port => Ok((host, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_url_is_taken_apart() {
        for (text, secure, host, port, rest) in [
            ("http://127.0.0.1:4437/rpc/log", false, "127.0.0.1", Some(4437), "/rpc/log"),
            ("HTTPS://Worker.Example/hooks?x=1#y", true, "Worker.Example", None, "/hooks?x=1#y"),
            ("http://[::1]", false, "::1", None, ""),
            ("http://[fe80::1%2]:80", false, "fe80::1%2", Some(80), ""),
            ("http://h?a=@/", false, "h", None, "?a=@/"),
            ("http://h#x@y", false, "h", None, "#x@y"),
            ("http://h:0/", false, "h", Some(0), "/"),
        ] {
            let url = Url::split(text).unwrap();
            assert_eq!((url.secure, url.host, url.port, url.rest), (secure, host, port, rest), "{text}");
        }
        let url = Url::split("https://[::1]:8443/x").unwrap();
        assert_eq!((url.authority, url.is_bracketed(), url.port_or_own()), ("[::1]:8443", true, 8443));
        let own = |text| Url::split(text).unwrap().port_or_own();
        assert_eq!([own("http://h"), own("https://h/:1")], [80, 443]);
    }

    #[test]
    fn a_zone_is_for_the_resolver_and_not_for_the_server() {
        for (text, field, resolved) in [
            ("http://[fe80::1%2]:80/", "[fe80::1]:80", "fe80::1%2"),
            ("http://[fe80::1%25eth0]", "[fe80::1]", "fe80::1%eth0"),
            ("http://[fe80::1%eth0]/%25x", "[fe80::1]", "fe80::1%eth0"),
            ("http://[fe80::1%25]:1", "[fe80::1]:1", "fe80::1%25"),
            ("http://[::1]:1", "[::1]:1", "::1"),
            ("http://a%25b:1", "a%25b:1", "a%25b"),
        ] {
            let url = Url::split(text).unwrap();
            assert_eq!((url.host_field(), url.host_to_resolve()), (field.into(), resolved.into()), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wrong) in [
            ("", UrlError::Scheme),
            ("h:80", UrlError::Scheme),
            ("example.com", UrlError::Scheme),
            ("ftp://h", UrlError::Scheme),
            ("unix:/x", UrlError::Scheme),
            ("http:/h", UrlError::Scheme),
            (" http://h", UrlError::Scheme),
            ("http://u@h", UrlError::User),
            ("http://u:secret@h/", UrlError::User),
            ("https://10.0.0.1@example.com/", UrlError::User),
            ("http://", UrlError::Host),
            ("http:///x", UrlError::Host),
            ("http://:80/x", UrlError::Host),
            ("http://?x", UrlError::Host),
            ("http://[]", UrlError::Host),
            ("http://[localhost]:80", UrlError::Host),
            ("http://[127.0.0.1]/", UrlError::Host),
            ("http://[::1", UrlError::Host),
            ("http://[::1/]", UrlError::Host),
            ("http://a b/", UrlError::Character),
            ("http://h /", UrlError::Character),
            ("http://h/a b", UrlError::Character),
            ("http://h/\r\nX: y", UrlError::Character),
            ("http://h/\u{f}", UrlError::Character),
            ("http://b\u{fc}cher.example/", UrlError::Character),
            ("http://h:", UrlError::Port),
            ("http://h:x/", UrlError::Port),
            ("http://h:+80/", UrlError::Port),
            ("http://h:65536/", UrlError::Port),
            ("http://h:99999", UrlError::Port),
            ("http://h:80:80/x", UrlError::Port),
            ("http://fe80::1/", UrlError::Port),
            ("http://[::1]x", UrlError::Port),
            ("http://[::1]:x/", UrlError::Port),
            ("https://[::1]:65536", UrlError::Port),
        ] {
            assert_eq!(Url::split(text), Err(wrong), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_parts_are_the_text_again(text in "(http://|HTTPS://|)[\\[\\]a:@/?#1 \u{fc}]{0,16}") {
            if let Ok(url) = Url::split(&text) {
                let scheme = if url.secure { "HTTPS" } else { "http" };
                prop_assert_eq!(format!("{scheme}://{}{}", url.authority, url.rest), text.as_str());
                let named = if url.is_bracketed() { format!("[{}]", url.host) } else { url.host.to_owned() };
                prop_assert!(url.authority.starts_with(&named) && !url.host.is_empty());
            }
        }
    }
}
