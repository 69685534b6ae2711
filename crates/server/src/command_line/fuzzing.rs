//! Arbitrary command lines.

use super::Arguments;
use crate::layers::cors::Origin;
use crate::start::ListenSpec;
use clap::Parser;
use thalweg_service::Endpoint;

/// A line of arguments, each ended by a line feed, is taken or refused, and whatever it names names itself.
pub fn arguments(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let line: Vec<&str> = text.lines().take(32).collect();
    for part in &line {
        if let Ok(endpoint) = part.parse::<Endpoint>() {
            assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
        if let Ok(origin) = part.parse::<Origin>() {
            assert_eq!(origin.to_string().parse(), Ok(origin));
        }
        if let Ok(place) = part.parse::<ListenSpec>() {
            assert!(place.to_string().trim_start_matches("http://").parse() == Ok(place));
        }
    }
    let Err(error) = Arguments::try_parse_from(std::iter::once("thalweg").chain(line)) else { return };
    assert!(!error.to_string().is_empty());
}
