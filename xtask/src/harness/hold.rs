//! Connections that are held open and do nothing: what the drain judge attaches to a server.

use crate::harness::server::Server;
use std::net::TcpStream;

/// How a held connection idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Waiting for the next record.
    LongPoll,
    /// Attached to the live tail, past its first event.
    Sse,
}

/// Creates an empty text stream.
///
/// # Errors
/// The server refuses.
pub(crate) fn create(server: &Server, names: impl Iterator<Item = String>) -> Result<(), String> {
    let mut connection = server.connect()?;
    for name in names {
        let target = format!("/v1/stream/{name}");
        let reply = connection.request("PUT", &target, &[("Content-Type", "text/plain")], b"")?;
        if reply.status != 201 {
            return Err(format!("PUT {target}: {}", reply.status));
        }
    }
    Ok(())
}

/// Opens one connection and brings it to rest.
///
/// # Errors
/// The server refuses it.
pub(crate) fn open(server: &Server, kind: Kind, stream: &str) -> Result<TcpStream, String> {
    let mut connection = server.connect()?;
    match kind {
        Kind::LongPoll => {
            let target = format!("/v1/stream/{stream}?offset=now&live=long-poll");
            connection.send("GET", &target, &[], b"")?;
        }
        Kind::Sse => {
            let target = format!("/v1/stream/{stream}?offset=now&live=sse");
            connection.send("GET", &target, &[], b"")?;
            expect_status(connection.read_head()?.status, 200, "SSE")?;
            connection.skip_past(b"streamNextOffset")?;
        }
    }
    Ok(connection.into_socket())
}

fn expect_status(status: u16, wanted: u16, what: &str) -> Result<(), String> {
    if status == wanted { Ok(()) } else { Err(format!("{what}: status {status}")) }
}
