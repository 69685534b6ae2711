//! Whether a store could be served where it is to be, found out before it is made: a start that fails for an
//! address leaves no new store behind.
//!
//! The addresses of a new store are opened before it, and stay open: nobody takes one in between, and nothing
//! waits for a server that was never there. Where there is a store, opening it may take long and clients may
//! be waiting for it; they are not accepted from before it is done, and a start that fails for an address has
//! only to close it again. A socket's path may lie in a directory that is made with the store: it is opened
//! behind it. A signal that ends the program while a new store is made takes the sockets' files away.

use super::address::ListenAddress;
use super::error::ServerError;
use crate::command_line::{Durability, ServeOptions};
use crate::{engine, services};
use std::os::unix;
use std::path::{Path, absolute};

/// Looks at every path that the services will listen at.
///
/// # Errors
/// One that no socket can have.
pub(crate) fn check_services(options: &ServeOptions) -> Result<(), ServerError> {
    services::addresses(options).iter().try_for_each(check_service)
}

fn check_service(address: &ListenAddress) -> Result<(), ServerError> {
    let ListenAddress::Unix(path) = address else { return Ok(()) };
    match unix::net::SocketAddr::from_pathname(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(ServerError::ServicePath(path.clone(), error)),
    }
}

/// Whether the start makes the store, so that its files would be left behind.
pub(super) fn makes_store(options: &ServeOptions) -> bool {
    options.durability != Durability::Memory && !engine::is_store(&options.data)
}

/// Whether the directory of a path is made when the store is: it is the store's, or the store's lies in it.
pub(super) fn is_made_with(path: &Path, data: &Path) -> bool {
    match (path.parent().map(absolute), absolute(data)) {
        (Some(Ok(parent)), Ok(data)) => data.starts_with(parent),
        _ => false,
    }
}
