//! Whether a store could be served where it is to be, asked before it is made: a start that fails for an
//! address leaves no new store behind.
//!
//! The addresses are opened for a moment, and only where there is no store yet: nothing waits for a server
//! that was never there. Where there is one, a start that fails for an address has only to close it again.
//! What takes an address between this look and the real one is found then.

use super::address::ListenAddress;
use super::error::ServerError;
use super::plan::Plan;
use crate::command_line::{Durability, ServeOptions};
use crate::{engine, services};
use std::io;
use std::net::SocketAddr;
use std::os::unix;
use std::path::{Path, absolute};
use thalweg_transport::Listener;

/// Looks at every path and address that the server will listen at.
///
/// # Errors
/// The one that cannot be listened at.
pub(super) fn check(options: &ServeOptions, plan: &Plan) -> Result<(), ServerError> {
    services::addresses(options).iter().try_for_each(check_service)?;
    if options.durability == Durability::Memory || engine::is_store(&options.data) {
        return Ok(());
    }
    for address in plan.streams.iter().chain(&plan.rpc) {
        let free = match address {
            ListenAddress::Tcp(address) | ListenAddress::Tls(address) => check_tcp(*address),
            ListenAddress::Unix(path) => check_unix(path, &options.data),
        };
        free.map_err(|error| ServerError::Listen(plan.spoken(address.clone()), error))?;
    }
    Ok(())
}

/// A path that no socket can have.
fn check_service(address: &ListenAddress) -> Result<(), ServerError> {
    let ListenAddress::Unix(path) = address else { return Ok(()) };
    match unix::net::SocketAddr::from_pathname(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(ServerError::ServicePath(path.clone(), error)),
    }
}

fn check_tcp(address: SocketAddr) -> io::Result<()> {
    // Which port that is the system chooses when it is opened.
    if address.port() == 0 { Ok(()) } else { Listener::tcp(address, 1).map(drop) }
}

fn check_unix(path: &Path, data: &Path) -> io::Result<()> {
    match Listener::unix(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_made_with(path, data) => Ok(()),
        looked => looked.map(drop),
    }
}

/// Whether the directory of a path is made when the store is: it is the store's, or the store's lies in it.
fn is_made_with(path: &Path, data: &Path) -> bool {
    match (path.parent().map(absolute), absolute(data)) {
        (Some(Ok(parent)), Ok(data)) => data.starts_with(parent),
        _ => false,
    }
}
