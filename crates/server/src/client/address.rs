//! Which stream on which server: a name beside `--url`, or a whole URL.

use super::failure::Failure;
use super::url::Url;
use super::verbs::Server;
use thalweg_wire::path::{RESERVED, STREAMS, of_stream, stream_name};

/// A stream on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) url: Url,
    /// The stream's name, decoded.
    pub(super) name: String,
}

impl Address {
    /// # Errors
    /// [`Failure::Url`], or [`Failure::Name`] with the rule that the name breaks.
    pub(super) fn parse(name: &str, server: &Server) -> Result<Self, Failure> {
        if ["http://", "https://"].iter().any(|scheme| has_scheme(name, scheme)) {
            let refused = |why: &str| Failure::Name { name: name.to_owned(), why: why.to_owned() };
            let (place, encoded) = name
                .split_once(STREAMS)
                .ok_or_else(|| refused("a stream's URL looks like http://host:port/v1/stream/name"))?;
            if encoded.contains(['?', '#']) {
                let why =
                    "leave out what begins with ? or #, or write %3F or %23 where it is part of the name";
                return Err(refused(why));
            }
            let decoded = stream_name(encoded).map_err(|error| bad_name(name, &error))?.into_owned();
            check_reserved(name, &decoded)?;
            let (url, known) = (Url::parse(place)?.trusting(server.tls_ca.clone()), server.parse()?);
            let url = if url.is_same_server(&known) { url.with_token(server.token.clone()) } else { url };
            return Ok(Self { url, name: decoded });
        }
        if name.contains("://") {
            let why = "a stream's URL begins with http:// or https://".to_owned();
            return Err(Failure::Name { name: name.to_owned(), why });
        }
        let plain = name.strip_prefix('/').unwrap_or(name);
        check_reserved(name, plain)?;
        stream_name(&of_stream(plain)[STREAMS.len()..]).map_err(|error| bad_name(name, &error))?;
        Ok(Self { url: server.parse()?, name: plain.to_owned() })
    }

    /// The same, asked for with this token.
    pub(super) fn with_token(self, token: Option<String>) -> Self {
        Self { url: self.url.with_token(token), ..self }
    }

    /// Whether both are one stream, whatever token each is asked for with.
    pub(super) fn is_same_stream(&self, other: &Self) -> bool {
        self.clone().with_token(None) == other.clone().with_token(None)
    }

    /// The target of the stream, with a query.
    pub(super) fn target(&self, query: &str) -> String {
        of_stream(&self.name) + query
    }
}

/// Whether a URL begins with that scheme, which may be written in capitals.
fn has_scheme(url: &str, scheme: &str) -> bool {
    url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
}

/// What lies there is the server's own.
fn check_reserved(given: &str, name: &str) -> Result<(), Failure> {
    if name.split('/').next() != Some(RESERVED) {
        return Ok(());
    }
    Err(Failure::Name { name: given.to_owned(), why: format!("no stream's name begins with {RESERVED}") })
}

fn bad_name(name: &str, error: &thalweg_wire::path::NameError) -> Failure {
    Failure::Name { name: name.to_owned(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Server {
        Server { url: url.to_owned(), token: Some("t".to_owned()), tls_ca: None }
    }

    #[test]
    fn names_are_encoded_but_for_their_slashes() {
        let target =
            |name: &str| Address::parse(name, &server("http://h:1/base")).unwrap().target("?offset=-1");
        assert_eq!(target("orders/2024 Q1?#%"), "/v1/stream/orders/2024%20Q1%3F%23%25?offset=-1");
        assert_eq!(target("/a"), "/v1/stream/a?offset=-1");
        assert_eq!(target("ä"), "/v1/stream/%C3%A4?offset=-1");
    }

    #[test]
    fn a_whole_url_brings_its_own_server() {
        let address = Address::parse("http://other:2/x/v1/stream/a/b%20c", &server("http://h:1")).unwrap();
        assert_eq!(address, Address { url: Url::parse("http://other:2/x").unwrap(), name: "a/b c".into() });
        let shouted = Address::parse("HTTP://other:2/v1/stream/a", &server("http://h:1")).unwrap();
        assert_eq!((shouted.url.host.as_str(), shouted.name.as_str()), ("other:2", "a"));
    }

    #[test]
    fn a_token_goes_to_its_own_server_alone() {
        let url = |name: &str| Address::parse(name, &server("http://h:1/base")).unwrap().url;
        let known = Url::parse("http://h:1/base").unwrap().with_token(Some("t".to_owned()));
        assert_eq!((url("a"), url("http://h:1/base/v1/stream/a")), (known.clone(), known));
        assert_eq!(url("http://h:2/base/v1/stream/a"), Url::parse("http://h:2/base").unwrap());
    }

    #[test]
    fn names_that_cannot_be_are_refused_before_anything_is_sent() {
        let urls =
            ["elsewhere", "v1/stream/%2f", "v1/stream/a?offset=-1", "v1/stream/a#b", "v1/stream/%5F_ds/a"];
        let urls = urls.map(|path| format!("http://h/{path}"));
        for name in ["", "/", "a//b", "..", "a/../b", "a\nb", "__ds", "/__ds/x"]
            .into_iter()
            .chain(urls.iter().map(String::as_str))
        {
            assert!(
                matches!(Address::parse(name, &server("http://h:1/base")), Err(Failure::Name { .. })),
                "{name:?}"
            );
        }
        assert!(matches!(Address::parse("a", &server("ftp://x")), Err(Failure::Url(_))));
        let foreign = Address::parse("ftp://x/y", &server("http://h:1")).unwrap_err().to_string();
        assert!(foreign.contains("begins with http://"), "{foreign}");
        assert!(Address::parse("__dsx", &server("http://h:1")).is_ok());
    }
}
