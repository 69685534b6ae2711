//! A [`Client`] as generated code wants it when it waits: one call at a time.
//!
//! A stream's credit is given back as its items are taken, half a window at a time, so that its producer
//! seldom waits for its reader. A stream that is left before its end is cancelled at once.

use crate::call::{CallId, CallOptions, EventKind};
use crate::client::{Client, ClientOptions};
use crate::error::Error;
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Call;

/// Carries one call at a time and waits for it.
///
/// ```no_run
/// use thalweg_service::{ClientOptions, SyncClient};
/// # mod echo { pub struct EchoClient<C>(C); impl<C> EchoClient<C> { pub fn new(call: C) -> Self { Self(call) } } }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let call = SyncClient::connect(&"run/echo.sock".parse()?, ClientOptions::default())?;
/// let mut client = echo::EchoClient::new(call); // as generated from echo.jsonc
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SyncClient {
    client: Client,
    current: Option<Current>,
    options: CallOptions,
}

/// The call being waited for.
#[derive(Debug)]
struct Current {
    call: CallId,
    /// What the call was given.
    options: CallOptions,
    /// Items taken since credit was last given.
    taken: u32,
}

impl SyncClient {
    /// Connects; see [`Client::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Self, Error> {
        Client::connect(endpoint, options).map(Self::new)
    }

    /// Over a client that was connected already.
    pub fn new(client: Client) -> Self {
        Self { client, current: None, options: CallOptions::default() }
    }

    /// What further calls are given.
    pub fn set_options(&mut self, options: CallOptions) {
        self.options = options;
    }

    /// The client underneath.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn begin(&mut self, request: &[u8], options: CallOptions) -> Result<(), Error> {
        if let Some(left) = self.current.take() {
            self.client.forget(left.call);
        }
        let call = self.client.call(request, options)?;
        self.current = Some(Current { call, options, taken: 0 });
        Ok(())
    }

    /// Gives the client back. A stream that was not read to its end goes on.
    pub fn into_client(self) -> Client {
        self.client
    }
}

impl Call for SyncClient {
    type Error = Error;

    fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        self.begin(request, self.options)
    }

    fn ask(&mut self, request: &[u8]) -> Result<(), Error> {
        self.begin(request, CallOptions { unary: true, ..self.options })
    }

    fn receive(&mut self) -> Result<&[u8], Error> {
        let Some(current) = &mut self.current else {
            return Err(Error::new(Fault::BadArgument, "nothing was asked"));
        };
        let window = self.client.window(current.options);
        if current.taken > 0 && current.taken >= window.div_ceil(2) {
            self.client.grant(current.call, current.taken);
            current.taken = 0;
        }
        let event = self.client.wait_event(current.call)?;
        let is_refusal = event.is_refusal();
        match event.kind {
            EventKind::Item => {
                current.taken += 1;
                Ok(event.frame)
            }
            EventKind::End => {
                self.current = None;
                Ok(event.frame)
            }
            EventKind::Failed(error) => {
                self.current = None;
                if is_refusal { Ok(event.frame) } else { Err(error) }
            }
        }
    }

    fn leave(&mut self) {
        if let Some(left) = self.current.take() {
            self.client.forget(left.call);
            // A connection that cannot be written to shows in the next call.
            let _ = self.client.flush();
        }
    }
}
