//! Why a server does not run, in words that say what to do, and with what code the program ends.

use super::address::{ListenAddress, ListenSpec};
use super::listen_conflicts::ListenConflict;
use crate::bounds::TooFew;
use crate::exit::{EXIT_CONFIGURATION, EXIT_FAILED};
use crate::layers::access::{CertificateError, TokensError};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the server does not run, or ended.
#[derive(Debug)]
pub(crate) enum ServerError {
    /// Other machines could reach an address, and no token would be asked for.
    Reachable(ListenAddress),
    /// There is no address to listen at.
    Nowhere,
    /// Two of its addresses are one.
    ListenConflict(ListenConflict),
    /// The origins make no policy.
    Origins(String),
    /// The token file is not taken.
    Tokens(TokensError),
    /// The certificate or its key is not taken.
    Certificate(CertificateError),
    /// A host to listen at has no address.
    Unresolved(ListenSpec, io::Error),
    /// An address cannot be listened at.
    Listen(ListenAddress, io::Error),
    /// No socket can have the path of a service.
    ServicePath(PathBuf, io::Error),
    /// The store cannot be served.
    Store(String),
    /// The log cannot be served to neighbours.
    Service(thalweg_service::Error),
    /// Services cannot be called.
    Rpc(String),
    /// More reactors than the store announces to.
    Reactors {
        /// How many were asked for.
        asked: usize,
        /// How many there may be, with what each of them serves.
        most: usize,
    },
    /// Too few descriptors to serve one connection.
    Descriptors(TooFew),
    /// The system refused something else.
    System(&'static str, io::Error),
    /// A thread ended by itself.
    ThreadEnded,
}

impl fmt::Display for ServerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reachable(place) => write!(
                out,
                "other machines could reach {place}, and everybody may do everything: name a token file with --tokens, \
                 listen on 127.0.0.1, or add --insecure-listen-anywhere if something in front protects it"
            ),
            Self::Nowhere => out.write_str(
                "listen is empty, and nothing else is listened at: name an address with --listen, or leave it to the default",
            ),
            Self::ListenConflict(conflict) => write!(out, "{conflict}"),
            Self::Origins(why) => write!(out, "--cors-origins: {why}"),
            Self::Tokens(error) => write!(out, "{error}"),
            Self::Certificate(error) => write!(out, "{error}"),
            Self::Unresolved(place, error) => {
                write!(out, "cannot find the address of {place}: {error}; give an address instead of the name")
            }
            Self::Listen(place, error) => {
                write!(out, "cannot listen at {place}: {error}")?;
                out.write_str(match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "; is another server running? choose another place with --listen"
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        "; this machine has no such address: choose another with --listen"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "; ports below 1024 take privileges: choose another place with --listen"
                    }
                    _ => "",
                })
            }
            Self::ServicePath(path, error) => write!(
                out,
                "cannot listen at {}: {error}; choose a shorter --data, or --services off",
                path.display()
            ),
            Self::Store(why) => write!(out, "{why}"),
            Self::Service(error) => write!(out, "{error}; with --services off the server starts without them"),
            Self::Rpc(why) => write!(out, "--rpc: {why}"),
            Self::Reactors { asked, most } => write!(
                out,
                "--reactors {asked}: there may be {most}, for the store tells 32 of each commit, and a reactor that serves the \
                 log by JSON-RPC counts twice: --rpc-listen has one do that for all"
            ),
            Self::Descriptors(TooFew { limit, needed }) => write!(
                out,
                "only {limit} descriptors may be open, and this server takes {needed} to serve one connection: \
                 raise the limit (ulimit -n, LimitNOFILE=), or have fewer --reactors"
            ),
            Self::System(action, error) => write!(out, "cannot {action}: {error}"),
            Self::ThreadEnded => write!(out, "a thread ended unexpectedly; see the log above"),
        }
    }
}

impl ServerError {
    /// The system gives no thread.
    pub(crate) fn no_thread(error: io::Error) -> Self {
        Self::System("start a thread", error)
    }

    /// What the program ends with: a wrong configuration is told from what the machine or the store refuses.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Reachable(_)
            | Self::Nowhere
            | Self::ListenConflict(_)
            | Self::Origins(_)
            | Self::Tokens(_)
            | Self::Certificate(_)
            | Self::Rpc(_)
            | Self::Reactors { .. } => EXIT_CONFIGURATION,
            Self::Unresolved(..)
            | Self::Listen(..)
            | Self::ServicePath(..)
            | Self::Store(_)
            | Self::Service(_)
            | Self::Descriptors(_)
            | Self::System(..)
            | Self::ThreadEnded => EXIT_FAILED,
        }
    }
}
