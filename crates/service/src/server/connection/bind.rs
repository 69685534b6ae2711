//! Binds the endpoints: listeners, and the one client on standard input and output.

use crate::Error;
use crate::server::collector::ServerCore;
use crate::server::connection::accept::Source;
use crate::server::connection::slot::{Client, Entry};
use crate::server::engine::Engine;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use thalweg_reactor::{Interest, Key, RejectReason};
use thalweg_transport::{Acceptor, Listener};
use thalweg_wire::fault::Fault;

impl Engine {
    /// Listens at a path.
    pub(crate) fn listen_at(
        &mut self,
        core: &mut ServerCore,
        path: &Path,
        shared_only: bool,
    ) -> Result<(), Error> {
        let failed = |error: io::Error| {
            Error::system(fault_of(&error), path.display().to_string(), explained(path, error))
        };
        let listener = Listener::unix(path).map_err(failed)?;
        let acceptor = Acceptor::new().map_err(failed)?;
        let (descriptor, path) = listener.into_parts();
        let key = insert(core, descriptor, Entry::Listener(self.sources.len()), Interest::READ)?;
        self.sources.push(Source { key, acceptor, shared_only, _path: path });
        Ok(())
    }

    /// Takes in the client on standard input and output. When it is gone and there is no listener, the server
    /// ends.
    pub(crate) fn take_standard_streams(&mut self, core: &mut ServerCore) -> Result<(), Error> {
        let failed = |error| Error::system(Fault::System, "standard input and output", error);
        let (input, output) = thalweg_transport::standard_streams().map_err(failed)?;
        let key = insert(core, input, Entry::Client(Client::new(false)), Interest::READ)?;
        let outlet = insert(core, output, Entry::Outlet(key), Interest::NONE)?;
        if let Some(Entry::Client(client)) = core.entry(key) {
            client.outlet = Some(Box::new(outlet));
        }
        self.statistics.clients += 1;
        Ok(())
    }
}

fn insert(
    core: &mut ServerCore,
    descriptor: OwnedFd,
    entry: Entry,
    interest: Interest,
) -> Result<Key, Error> {
    core.insert(descriptor, entry, interest).map_err(|rejected| match rejected.reason {
        RejectReason::Full => Error::new(Fault::Overloaded, "too many endpoints and clients for one server"),
        // A file is always ready, and therefore cannot be waited for.
        RejectReason::Kernel(error) if error.kind() == io::ErrorKind::PermissionDenied => Error::system(
            Fault::BadArgument,
            "a file cannot be served: give a pipe, a socket or a terminal",
            error,
        ),
        RejectReason::Kernel(error) => Error::from(error),
    })
}

/// The kernel's error with what it means for the path: what is not found is its directory, because the path
/// itself need not exist.
fn explained(path: &Path, error: io::Error) -> io::Error {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let explanation = match (error.kind(), directory) {
        (io::ErrorKind::NotFound, Some(directory)) => {
            format!("there is no directory {}: make it first", directory.display())
        }
        (io::ErrorKind::InvalidInput, _) => "a path has no zero byte".to_owned(),
        (io::ErrorKind::InvalidFilename, _) => "a socket's path has at most 107 bytes".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), explanation)
}

fn fault_of(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::AddrInUse => Fault::AddressInUse,
        io::ErrorKind::PermissionDenied => Fault::PermissionDenied,
        io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotFound
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename => Fault::BadArgument,
        _ => Fault::System,
    }
}
