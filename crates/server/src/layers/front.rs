//! What each reactor serves: the rules of streams over the engine, behind those who may use them.

use crate::command_line::ServeOptions;
use crate::engine::{Engine, Service};
use crate::layers::access::{Guard, Keys};
use crate::layers::cors::{Cors, Policy};
use crate::layers::metrics::{Board, Metrics};
use crate::layers::rpc::{ReactorRole, Rpc, WithRpc};
use crate::start::ServerError;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thalweg_http::{Message, Meters};
use thalweg_reactor::{Handle, Pool};
use thalweg_streams::{Loopback, Sharing};

/// What each reactor serves.
pub(crate) type ReactorService = Cors<Guard<Metrics<WithRpc<Service>>>>;

/// What one reactor is given.
pub(crate) struct ReactorParts {
    pub(crate) service: ReactorService,
    /// Where it counts what comes of it.
    pub(crate) meters: Arc<Meters>,
    /// What it is to watch beside its connections.
    pub(crate) attached: Vec<OwnedFd>,
}

/// Who may use what is served, and from where. Clones share the tokens.
#[derive(Clone)]
pub(crate) struct Front {
    keys: Option<Keys>,
    policy: Policy,
    hosts: Arc<[String]>,
    board: Arc<Board>,
    rpc: Option<Rpc>,
    /// Services have a listener of their own.
    rpc_apart: bool,
}

impl Front {
    /// As the options have it.
    ///
    /// # Errors
    /// The token file is not taken, or the origins make no policy.
    pub(crate) fn of(options: &ServeOptions) -> Result<Self, ServerError> {
        let keys = options.tokens.as_deref().map(Keys::load).transpose().map_err(ServerError::Tokens)?;
        Ok(Self {
            keys,
            policy: Policy::of(&options.cors_origins).map_err(ServerError::Origins)?,
            hosts: options.hosts.clone().into(),
            board: Arc::default(),
            rpc: Rpc::of(options)?,
            rpc_apart: !options.rpc_listen.is_empty(),
        })
    }

    /// Whether requests need a token.
    pub(crate) fn is_guarded(&self) -> bool {
        self.keys.is_some()
    }

    /// Names that the server goes by.
    pub(crate) fn hosts(&self) -> Arc<[String]> {
        self.hosts.clone()
    }

    /// What only some may read is for no cache that others read from.
    pub(crate) fn sharing(&self) -> Sharing {
        if self.is_guarded() { Sharing::Private } else { Sharing::Public }
    }

    /// Whose webhooks may go to this very machine, where any may. With a list of origins, other pages do not
    /// get so far.
    pub(crate) fn loopback(&self) -> Loopback {
        match self.policy {
            Policy::Any => Loopback::OfPrograms,
            Policy::Only(_) => Loopback::OfPagesToo,
        }
    }

    /// Has so many reactors share what all of them may take together.
    pub(crate) fn share_out(&mut self, reactors: usize) {
        let gateways = if self.rpc_apart { 1 } else { reactors };
        if let Some(rpc) = &mut self.rpc {
            rpc.share_out(gateways);
        }
    }

    /// What one reactor serves.
    ///
    /// # Errors
    /// More reactors than a store announces to.
    pub(crate) fn parts(
        &self,
        engine: &Engine,
        pool: &Pool,
        handle: Handle<Message>,
        role: ReactorRole,
    ) -> io::Result<ReactorParts> {
        let meters = self.board.add(handle.clone());
        let rpc = self.rpc.as_ref().filter(|_| (role == ReactorRole::Rpc) == self.rpc_apart);
        let gateway = rpc.map(|rpc| rpc.gateway(engine, pool, handle.clone())).transpose()?;
        let (gateway, attached) =
            gateway.map_or((None, Vec::new()), |(gateway, attached)| (Some(gateway), attached));
        let with_rpc = WithRpc::new(engine.service(handle)?, gateway, role);
        let metered = Metrics::new(with_rpc, engine.clone(), self.board.clone());
        let guarded = Guard::new(metered, self.keys.clone());
        let policy = (role == ReactorRole::Streams).then(|| self.policy.clone());
        Ok(ReactorParts { service: Cors::new(guarded, policy), meters, attached })
    }

    /// How often each reactor has the store announce to it.
    pub(crate) fn watchers(&self) -> usize {
        let log_too = !self.rpc_apart && self.rpc.as_ref().is_some_and(Rpc::watches);
        1 + usize::from(log_too)
    }

    /// The same of the reactor that serves JSON-RPC apart from the others, if there is one.
    pub(crate) fn watchers_apart(&self) -> usize {
        let apart = self.rpc.as_ref().filter(|_| self.rpc_apart);
        apart.map_or(0, |rpc| 1 + usize::from(rpc.watches()))
    }

    /// Logs that there are tokens to be asked for and none to be given.
    pub(crate) fn warn(&self) {
        if self.keys.as_ref().is_some_and(|keys| keys.count() == 0) {
            tracing::warn!(
                "the token file has no token: only requests that take none, such as /healthz, are answered"
            );
        }
    }

    /// Reads the token file again. One that is wrong changes nothing.
    pub(crate) fn reload(&self, options: &ServeOptions) {
        let (Some(keys), Some(path)) = (&self.keys, &options.tokens) else { return };
        match keys.reload(path) {
            Ok(tokens) => {
                tracing::info!(tokens, "tokens read again");
                self.warn();
            }
            Err(error) => tracing::error!(%error, "the tokens are not reloaded; those in force stay"),
        }
    }
}
