//! The control service: serves a supervisor to the clients of an endpoint.
//!
//! *Invariant*: a copy that no client can know of ends. It does when its client gives up the call that asked
//! for it, whatever that client has sent since; and when its client disconnects without having read its
//! answers, unless it has sent another call since. A copy that any client has named, or that was there when
//! one asked for all servers, stays. *Checked by* `tests/forks/`, with processes.

use crate::generated::server::dispatch_unordered;
use crate::supervisor::Supervisor;
use crate::table::Asker;
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
pub struct Control {
    pub(crate) supervisor: Supervisor,
    /// No other of the supervisor's control services has it.
    pub(crate) number: u64,
}

impl Control {
    fn asker(&self, client: ClientId) -> Asker {
        Asker { control: self.number, client: client.number() }
    }
}

impl Handler for Control {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        let supervisor = self.supervisor.for_call(self.asker(request.client), request.call);
        dispatch_unordered(&supervisor, request.frame, Box::new(reply));
    }

    fn given_up(&mut self, client: ClientId, call: u64) {
        let client = self.asker(client);
        self.supervisor.end_unclaimed(|asked| (asked.client, asked.call) == (client, call));
    }

    fn undelivered(&mut self, client: ClientId) {
        let client = self.asker(client);
        self.supervisor.end_unclaimed(|asked| asked.client == client && !asked.has_gone_on);
    }
}
