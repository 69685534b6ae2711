//! Where a webhook may go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_streams::subscriptions::target::{Target, is_public};

/// A URL that is taken is the same once it was written again, and leads to where it may.
pub fn targets(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    let [closed, open] = [false, true].map(|loopback| Target::parse(url, loopback));
    if let Ok(target) = &closed {
        assert!(target.secure && open.as_ref() == Ok(target));
    }
    let Ok(target) = open else { return };
    let scheme = if target.secure { "https" } else { "http" };
    let written = format!("{scheme}://{}{}", target.authority, target.path);
    // A path that was not written makes it longer.
    if written.len() <= url.len() {
        assert_eq!(Target::parse(&written, true).as_ref(), Ok(&target));
    }
    assert!(target.path.starts_with('/') && target.path.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(target.address().is_none_or(|address| target.permits(address)));
    let near =
        [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST), Ipv4Addr::new(10, 0, 0, 1).into()];
    assert!(!is_public(near[2]) && !target.permits(near[2]));
    assert_eq!(target.is_development(), target.permits(near[0]));
    assert_eq!(target.is_development(), target.permits(near[1]));
}
