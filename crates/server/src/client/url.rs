//! Where a server is, what it asks for, and whom to trust there.

use super::channel::Endpoint;
use super::failure::Failure;
use std::path::PathBuf;
use thalweg_http::tls::Trust;
use thalweg_wire::url as parts;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    pub(super) endpoint: Endpoint,
    /// What the Host field says.
    pub(super) host: String,
    /// Path in front of every target.
    pub(super) prefix: String,
    /// What the server asks for, if it does.
    pub(super) token: Option<String>,
    /// Whom to trust, if not whom the system does.
    ca: Option<PathBuf>,
}

impl Url {
    /// # Errors
    /// [`Failure::Url`].
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let bad = || Failure::Url(parts::shown(text).into_owned());
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let endpoint = Endpoint::Unix(path.into());
            return Ok(Self {
                text: text.to_owned(),
                endpoint,
                host: "localhost".into(),
                prefix: String::new(),
                token: None,
                ca: None,
            });
        }
        let parts = parts::Url::split(text).map_err(|_| bad())?;
        if parts.rest.contains(['?', '#']) {
            // A path in front of every target has none.
            return Err(bad());
        }
        let (host, port) = (parts.host_to_resolve().into_owned(), parts.port_or_own());
        let endpoint = if parts.secure {
            // No certificate names a zone: it is this machine's own name of a network.
            let name = parts.host.split('%').next().unwrap_or_default();
            let name = if parts.is_bracketed() { format!("[{name}]") } else { name.to_owned() };
            Endpoint::Tls { host, port, name }
        } else {
            Endpoint::Tcp { host, port }
        };
        Ok(Self {
            text: text.to_owned(),
            endpoint,
            host: parts.host_field().into_owned(),
            prefix: parts.rest.trim_end_matches('/').to_owned(),
            token: None,
            ca: None,
        })
    }

    /// With what the server asks for.
    pub(crate) fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Behind https://, trusting whom this file names, if there is one.
    pub(crate) fn trusting(mut self, ca: Option<PathBuf>) -> Self {
        self.ca = ca;
        self
    }

    /// Which authorities to trust there, read before anything is sent.
    pub(super) fn trust(&self) -> Result<Option<Trust>, Failure> {
        match (&self.endpoint, &self.ca) {
            (Endpoint::Tls { .. }, Some(path)) => {
                let read = Trust::in_file(path).map(Some);
                read.map_err(Failure::Trust)
            }
            _ => Ok(None),
        }
    }

    /// Whether both lead to the same server.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint
    }

    /// As it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url = Url::parse("http://localhost:4437/base/").unwrap();
        assert_eq!((url.host.as_str(), url.prefix.as_str()), ("localhost:4437", "/base"));
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port };
        assert_eq!(url.endpoint, tcp("localhost", 4437));
        assert_eq!(Url::parse("http://h").unwrap().endpoint, tcp("h", 80));
        let tls = |host: &str, port, name: &str| Endpoint::Tls { host: host.into(), port, name: name.into() };
        assert_eq!(Url::parse("https://h").unwrap().endpoint, tls("h", 443, "h"));
        assert_eq!(Url::parse("https://[::1]:1/x").unwrap().endpoint, tls("::1", 1, "[::1]"));
        for zoned in ["[fe80::1%25eth0]", "[fe80::1%eth0]"] {
            let url = Url::parse(&format!("http://{zoned}:1")).unwrap();
            assert_eq!((url.endpoint, url.host.as_str()), (tcp("fe80::1%eth0", 1), "[fe80::1]:1"), "{zoned}");
            let url = Url::parse(&format!("https://{zoned}")).unwrap();
            assert_eq!(url.endpoint, tls("fe80::1%eth0", 443, "[fe80::1]"), "{zoned}");
        }
        assert_eq!(Url::parse("unix:/run/t.sock").unwrap().endpoint, Endpoint::Unix("/run/t.sock".into()));
        for bad in [
            "",
            "ftp://h",
            "h:80",
            "http://",
            "http://u@h",
            "http://h/?q",
            "http://h?q",
            "http://h#f",
            "http://h:x",
            "unix:",
            "http://h /",
            "http://h:99999",
            "https://[::1]:65536",
            "http://h/a b",
            "http://h/\u{f}",
        ] {
            assert!(matches!(Url::parse(bad), Err(Failure::Url(_))), "{bad}");
        }
    }
}
