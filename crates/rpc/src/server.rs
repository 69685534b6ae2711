//! A program that is nothing but services by JSON-RPC: a reactor, a listener, a gateway.

use crate::gateway::{Bounds, Gateway};
use crate::mount::Mount;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_http::{Config, Http, ListenerSettings, Message};
use thalweg_reactor::{Handle, Reactor, Wait};
use thalweg_service::Error;
use thalweg_sys::socket;
use thalweg_transport::Listener;

/// Ready descriptors that one turn takes.
const TURN_MAX: usize = 256;
/// Services that live elsewhere, at most.
const ELSEWHERE_MAX: usize = 64;

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// What its calls may take.
    pub bounds: Bounds,
    /// What its connections may take.
    pub http: Config,
    /// Look again for a moment before sleeping while work comes fast.
    pub spin: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { bounds: Bounds::default(), http: Config::default(), spin: true }
    }
}

/// Serves services by JSON-RPC, on the thread that runs it.
///
/// ```
/// use thalweg_rpc::{Client, ClientOptions, Mount, Server, ServerOptions};
/// use thalweg_service::{Reply, Request};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = thalweg_schema::parse(
///     "door.jsonc",
///     r#"{
///         "service": "Door",
///         "error": { "message": "string" },
///         "commands": { "Knock": { "request": { "times": "u8" }, "response": { "times": "u8" } } },
///     }"#,
/// )?;
/// // Generated code does this by names; here a request becomes its response by its tag.
/// let handler = |request: Request<'_>, reply: Reply| {
///     let fields = &request.frame[2 + 1 + "DoorKnock".len()..];
///     reply.end(&[b"\x92\xb1DoorKnockResponse", fields].concat());
/// };
/// let mut server = Server::bind("127.0.0.1:0".parse()?, ServerOptions::default())?;
/// server.mount("door", Mount::here(&schema, handler))?;
/// let (address, stopper) = (server.address(), server.stopper());
/// let calling = std::thread::spawn(move || {
///     let mut client = Client::new(&format!("http://{address}/rpc/door"), ClientOptions::default()).unwrap();
///     let answer = client.call("Knock", r#"{"times":3}"#).unwrap().to_owned();
///     stopper.stop();
///     answer
/// });
/// server.run()?;
/// assert_eq!(calling.join().unwrap(), r#"{"times":3}"#);
/// # Ok(())
/// # }
/// ```
pub struct Server {
    reactor: Reactor<Http<Gateway>>,
    address: SocketAddr,
}

/// Ends a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    handle: Handle<Message>,
}

impl Stopper {
    /// Asks the server to end: its run returns after the turn it is in.
    pub fn stop(&self) {
        self.handle.stop();
    }

    /// Asks the server to end in good order: nothing new is taken, what was begun is answered, within the
    /// grace.
    pub fn drain(&self, grace_ms: u32) {
        if self.handle.post(Message::Drain { grace_ms }).is_err() {
            self.handle.stop();
        }
    }
}

impl Server {
    /// Listens. Clients may connect from here on; they are served once the server runs.
    ///
    /// # Errors
    /// What the system says of the address.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> io::Result<Self> {
        let listener = Listener::tcp(address, 1)?.pop().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Self::over(listener.local_address()?, listener.into_parts().0, options)
    }

    /// Serves at a listening socket that is there already, and does not block: one that was handed over, say.
    ///
    /// # Errors
    /// It is no TCP socket; out of descriptors.
    pub fn on(listener: OwnedFd, options: ServerOptions) -> io::Result<Self> {
        Self::over(socket::local_address(listener.as_fd())?, listener, options)
    }

    fn over(address: SocketAddr, descriptor: OwnedFd, options: ServerOptions) -> io::Result<Self> {
        let entries = options.http.connections_max + Http::<Gateway>::entries_beside(1) + ELSEWHERE_MAX;
        let config = thalweg_reactor::Config {
            entries_max: u32::try_from(entries).unwrap_or(u32::MAX),
            spin: options.spin,
            ..thalweg_reactor::Config::default()
        };
        let reactor = Reactor::new(config, |core| {
            let gateway = Gateway::new(core.handle(), options.bounds);
            let listening = ListenerSettings {
                descriptor,
                shared: false,
                handed_over: false,
                identity: None,
                same_user_only: false,
                // The gateway asks for more than that.
                known_hosts_only: false,
            };
            Http::new(core, gateway, options.http, vec![listening])
        })?;
        Ok(Self { reactor, address })
    }

    /// Serves a service under a name: at `/rpc/<name>`.
    ///
    /// # Errors
    /// [`Fault::BadArgument`](thalweg_wire::fault::Fault::BadArgument) for a name that is taken or cannot
    /// stand in a path; what the endpoint of a service elsewhere says.
    pub fn mount(&mut self, name: &str, mount: Mount) -> Result<(), Error> {
        let (core, http) = self.reactor.parts();
        if let Some(descriptor) = http.service().mount(name, mount)? {
            http.attach(core, descriptor)?;
        }
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper { handle: self.reactor.handle() }
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn run(&mut self) -> io::Result<()> {
        self.reactor.run()
    }

    /// To be watched for reading by a foreign loop, which calls [`Server::turn`] with [`Wait::Poll`] whenever
    /// it is readable, and once to begin with.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.reactor.descriptor()
    }

    /// Whether it was stopped, or has drained: a foreign loop has no more turns to give then.
    pub fn is_stopped(&mut self) -> bool {
        self.reactor.core().is_stopping()
    }

    /// One turn; how many things happened.
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn turn(&mut self, wait: Wait) -> io::Result<usize> {
        self.reactor.turn(TURN_MAX, wait)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}
