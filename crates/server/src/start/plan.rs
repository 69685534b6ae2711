//! What a configuration comes to before anything is opened: who may use the server, as whom it speaks, and
//! whether that may be.
//!
//! Reads what the configuration names (tokens, certificate, schemas) and changes nothing. Whatever is wrong
//! with a configuration is found here or by its own parsers, so that `doctor` and `--print-config` refuse
//! what `serve` would, in the same words.

use super::address::{ListenAddress, ListenSpec};
use super::error::ServerError;
use super::listen_conflicts::{Asker, ListenConflict};
use crate::command_line::ServeOptions;
use crate::layers::access::Certificate;
use crate::layers::front::Front;
use crate::services;
use thalweg_sys::process::parallelism;

/// The store announces to 32 watchers; what drives subscriptions is one of them, the state another, and what
/// serves neighbours a third.
const REACTORS_MAX: usize = 29;

/// A configuration that may be served.
pub(crate) struct Plan {
    pub(crate) front: Front,
    /// Where streams are to be served, beside what was handed over.
    pub(crate) streams: Vec<ListenAddress>,
    /// Where services are, if they have places of their own.
    pub(crate) rpc: Vec<ListenAddress>,
    /// Reactors that serve streams.
    pub(crate) reactors: usize,
    /// In whose name TLS is spoken, if it is.
    pub(crate) certificate: Option<Certificate>,
    /// Where other machines can reach the server, if they can.
    reachable: Option<ListenAddress>,
    /// Streams have an address.
    has_address: bool,
}

impl Plan {
    /// What the options come to where streams are served at places that were handed over and at others that
    /// are wanted. Waits for the resolver where those have names.
    ///
    /// # Errors
    /// What is wrong with the configuration, or the name of a place that has no address.
    pub(crate) fn of<'a>(
        options: &'a ServeOptions,
        handed_over: impl Iterator<Item = &'a ListenAddress> + Clone,
        wanted: &[ListenSpec],
    ) -> Result<Self, ServerError> {
        let mut front = Front::of(options)?;
        let most = (REACTORS_MAX - front.watchers_apart()) / front.watchers();
        let reactors = reactors(options.reactors, most)?;
        front.share_out(reactors);
        let (streams, rpc) = (resolved(wanted)?, resolved(&options.rpc_listen)?);
        let handed_over = handed_over.map(|place| (Asker::Supervisor, place));
        let asked = handed_over.chain(streams.iter().map(|place| (Asker::Listen, place)));
        let places = asked.clone().map(|(_, place)| place);
        let asked = asked.chain(rpc.iter().map(|place| (Asker::RpcListen, place)));
        let served = services::addresses(options);
        let asked = served.iter().map(|place| (Asker::Service, place)).chain(asked);
        let is_sealed = options.tls_certificate.is_some();
        let has_address = places.clone().next().is_some();
        if !has_address && options.rpc_listen.is_empty() && !services::are_wanted(options) {
            return Err(ServerError::Nowhere);
        }
        if let Some(conflict) = ListenConflict::among(asked) {
            return Err(ServerError::ListenConflict(conflict.spoken(is_sealed)));
        }
        let reachable = places.chain(&rpc).find(|place| !place.is_local()).cloned();
        let reachable = reachable.map(|place| place.spoken(is_sealed));
        let is_open = !front.is_guarded() && !options.insecure_listen_anywhere;
        if let Some(place) = reachable.as_ref().filter(|_| is_open) {
            return Err(ServerError::Reachable(place.clone()));
        }
        let certificate = certificate(options)?;
        Ok(Self { front, streams, rpc, reactors, certificate, reachable, has_address })
    }

    /// Whether no other machine can reach the server.
    pub(crate) fn is_apart(&self) -> bool {
        self.reachable.is_none()
    }

    /// Logs what may be and is hardly meant.
    pub(crate) fn warn(&self) {
        if let Some(place) = self.reachable.as_ref().filter(|_| !self.front.is_guarded()) {
            tracing::warn!(
                %place,
                "other machines can reach this server and everybody may do everything, as --insecure-listen-anywhere allows: \
                 something in front has to protect it"
            );
        }
        if !self.has_address {
            tracing::warn!("listen is empty: streams are served at no HTTP address");
        }
        self.certificate.iter().for_each(Certificate::warn);
        self.front.warn();
    }
}

/// Where places are that may have names.
fn resolved(places: &[ListenSpec]) -> Result<Vec<ListenAddress>, ServerError> {
    let resolve =
        |place: &ListenSpec| place.resolve().map_err(|error| ServerError::Unresolved(place.clone(), error));
    places.iter().map(resolve).collect()
}

/// As many as were asked for, or as there are processors.
fn reactors(asked: Option<u32>, most: usize) -> Result<usize, ServerError> {
    match asked.map(|count| count as usize) {
        None => Ok(parallelism().min(most)),
        Some(asked) if asked > most => Err(ServerError::Reactors { asked, most }),
        Some(asked) => Ok(asked),
    }
}

/// Both files are named, or neither: see `config::PAIRS`.
fn certificate(options: &ServeOptions) -> Result<Option<Certificate>, ServerError> {
    let files = options.tls_certificate.as_deref().zip(options.tls_key.as_deref());
    let loaded = files.map(|(chain, key)| Certificate::load(chain, key));
    loaded.transpose().map_err(ServerError::Certificate)
}
