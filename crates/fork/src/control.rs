//! The control service: serves a supervisor to the clients of an endpoint.
//!
//! *Invariant*: a copy that no client can know of ends. It does when its client gives up the call that asked
//! for it, whatever that client has sent since; and when its client disconnects without having read its
//! answers, unless it has sent another call since. A copy that any client has named, or that was there when
//! one asked for all servers, stays. *Checked by* `tests/forks/`, with processes.

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
        let supervisor = self.0.for_call(request.client.number(), request.call);
        dispatch_unordered(&supervisor, request.frame, Box::new(reply));
    }

    fn given_up(&mut self, client: ClientId, call: u64) {
        self.0.end_unclaimed(|asked| (asked.client, asked.call) == (client.number(), call));
    }

    fn undelivered(&mut self, client: ClientId) {
        self.0.end_unclaimed(|asked| asked.client == client.number() && !asked.has_gone_on);
    }
}
