//! What each reactor serves: the rules of streams over the engine, behind those who may use them.

use crate::access::{Guard, Keys};
use crate::arguments::ServeOptions;
use crate::cors::{Cors, Policy};
use crate::engine::{Engine, Service};
use crate::metrics::{Board, Metrics};
use crate::serve::Failure;
use std::io;
use std::sync::Arc;
use thalweg_http::{Message, Meters};
use thalweg_reactor::Handle;
use thalweg_streams::Sharing;

/// What each reactor serves.
pub(crate) type Served = Cors<Guard<Metrics<Service>>>;

/// Who may use what is served, and from where. Clones share the tokens.
#[derive(Clone)]
pub(crate) struct Front {
    keys: Option<Keys>,
    policy: Policy,
    board: Arc<Board>,
}

impl Front {
    /// As the options have it.
    ///
    /// # Errors
    /// The token file is not taken, or the origins make no policy.
    pub(crate) fn of(options: &ServeOptions) -> Result<Self, Failure> {
        let keys = options.tokens.as_deref().map(Keys::load).transpose().map_err(Failure::Tokens)?;
        Ok(Self {
            keys,
            policy: Policy::of(&options.cors_origins).map_err(Failure::Origins)?,
            board: Arc::default(),
        })
    }

    /// Whether not everybody may do everything.
    pub(crate) fn is_guarded(&self) -> bool {
        self.keys.is_some()
    }

    /// What only some may read is for no cache that others read from.
    pub(crate) fn sharing(&self) -> Sharing {
        if self.is_guarded() { Sharing::Private } else { Sharing::Public }
    }

    /// What one reactor serves, and where it counts what comes of it.
    ///
    /// # Errors
    /// More reactors than a store announces to.
    pub(crate) fn before(
        &self,
        engine: &Engine,
        handle: Handle<Message>,
    ) -> io::Result<(Served, Arc<Meters>)> {
        let meters = self.board.add(handle.clone());
        let metered = Metrics::new(engine.service(handle)?, engine.clone(), self.board.clone());
        let guarded = Guard::new(metered, self.keys.clone());
        Ok((Cors::new(guarded, self.policy.clone()), meters))
    }

    /// Reads the token file again. One that is wrong changes nothing.
    pub(crate) fn reload(&self, options: &ServeOptions) {
        let (Some(keys), Some(path)) = (&self.keys, &options.tokens) else { return };
        match keys.reload(path) {
            Ok(tokens) => tracing::info!(tokens, "tokens read again"),
            Err(error) => tracing::error!(%error, "the tokens are not reloaded; those in force stay"),
        }
    }
}
