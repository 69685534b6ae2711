//! Frames between programs, and what they carry.

use thalweg_state::generated::types::StateRequest;
use thalweg_wire::frame::{Header, Welcome, opening, plain_length};

/// A request is the same when it is written and read again, and owned or not.
pub fn messagepack(data: &[u8]) {
    let Ok(request) = StateRequest::decode(data) else { return };
    let mut written = Vec::new();
    request.encode(&mut written);
    let again = StateRequest::decode(&written).expect("what was written cannot be read");
    // NaN is not equal to itself, but is written alike.
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(written, twice);
    let mut owned = Vec::new();
    again.into_owned().encode(&mut owned);
    assert_eq!(written, owned);
}

/// Headers and greetings are what they were when they are written again.
pub fn frames(data: &[u8]) {
    let _ = (opening(data), plain_length(data, 1 << 20));
    if let Ok(Some(welcome)) = Welcome::decode(data) {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(Some(welcome)));
    }
    if let Ok(Some(header)) = Header::decode(data, 1 << 20) {
        assert_eq!(Header::decode(&header.encode(), 1 << 20), Ok(Some(header)));
    }
}
