//! The control service: serves a supervisor to the clients of an endpoint.
//!
//! *Invariant*: a copy that no client can know of ends. The client that asked for a copy claims it by sending
//! another call, or by having read its answers when it disconnects. Any other client claims it by naming it,
//! or by asking for all servers. *Checked by* `tests/forks/`, with processes.

use crate::generated::server::dispatch_unordered;
use crate::supervisor::Supervisor;
use thalweg_service::{ClientId, Handler, Reply, Request};

/// The handler of `schemas/forks.jsonc` for one supervisor.
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
        let client = request.client.number();
        self.0.claim(client);
        dispatch_unordered(&self.0.for_client(client), request.frame, Box::new(reply));
    }

    fn undelivered(&mut self, client: ClientId) {
        self.0.end_unclaimed(client.number());
    }
}
