//! The control service: a supervisor as its endpoint's clients reach it.
//!
//! *Invariant*: a copy that no client can know of ends. The client that asked for it knows of it if it sends
//! another call, or if it is gone and had read its answers; another client does if it names the copy or asks
//! for every server. *Checked by* `tests/forks.rs`, with processes.

use crate::generated::server::dispatch_unordered;
use crate::supervisor::Supervisor;
use thalweg_service::{ClientId, Handler, Reply, Request};

/// What serves `schemas/forks.jsonc` at an endpoint, for a supervisor.
///
/// ```no_run
/// use thalweg_fork::{ERROR_TAG, First, Options, Supervisor};
/// use thalweg_service::{Endpoint, Server, ServerOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let first = First::At("127.0.0.1:0".parse()?);
/// let supervisor = Supervisor::start(Options::new(vec!["./engine".into()], first))?;
/// let options = ServerOptions { error_tag: ERROR_TAG.into(), ..ServerOptions::default() };
/// let endpoint: Endpoint = "run/forks.sock".parse()?;
/// let mut server = Server::bind(std::slice::from_ref(&endpoint), options)?;
/// server.serve(supervisor.control())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Control(pub(crate) Supervisor);

impl Handler for Control {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        let asker = request.client.number();
        self.0.heard_from(asker);
        dispatch_unordered(&self.0.asked_by(asker), request.frame, Box::new(reply));
    }

    fn undelivered(&mut self, client: ClientId) {
        self.0.end_unheard(client.number());
    }
}
