//! Command lines, as anybody could type them.

use super::Arguments;
use crate::cors::Origin;
use crate::listen::Listen;
use clap::Parser;
use thalweg_service::Endpoint;

/// A line of arguments, each ended by a line feed, is taken or refused, and whatever it names names itself.
pub fn arguments(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let line: Vec<&str> = text.lines().take(32).collect();
    // Names would be asked of a resolver.
    let resolved =
        |part: &str| part.rsplit_once(':').is_some_and(|(host, _)| host.parse::<std::net::IpAddr>().is_err());
    for part in &line {
        if let Ok(endpoint) = part.parse::<Endpoint>() {
            assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
        if let Ok(origin) = part.parse::<Origin>() {
            assert_eq!(origin.to_string().parse(), Ok(origin));
        }
        if part.starts_with("unix:") {
            let listen = part.parse::<Listen>();
            assert!(listen.is_err() || listen.is_ok_and(|listen| listen.to_string() == *part));
        }
    }
    if line.iter().any(|part| resolved(part) && !part.contains("unix:")) {
        return;
    }
    let Err(error) = Arguments::try_parse_from(std::iter::once("thalweg").chain(line)) else { return };
    assert!(!error.to_string().is_empty());
}
