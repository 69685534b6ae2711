//! Services by JSON-RPC: which there are, and where they are called: at `/rpc/<name>` beside the streams, or
//! on a listener of their own.

use crate::command_line::ServeOptions;
use crate::engine::Engine;
use crate::layers::pass_on;
use crate::named_file;
use crate::services::{LogService, News};
use crate::start::ServerError;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use thalweg_http::Message;
use thalweg_reactor::{Handle, Pool};
use thalweg_rpc::{Bounds, Gateway, Mount};
use thalweg_schema as schema;
use thalweg_service::Endpoint;
use thalweg_wire::exchange::{
    Advance, Announced, Answer, Live, Method, Now, Refusal, Request, Response, Service, Weight,
};
use thalweg_wire::path::HEALTH;

const LOG: &str = include_str!("../../../../schemas/log.jsonc");
const STATE: &str = include_str!("../../../../schemas/state.jsonc");
/// Where all of it lies: what comes behind it is a service's name.
const ROOT: &str = "/rpc";

const NOT_SERVED: Refusal = Refusal {
    status: 404,
    code: "path-unknown",
    field: "path",
    detail: "no services are served at this address: the operator turns them on with --rpc on, and --rpc-listen gives them an address of their own",
};

/// What `--rpc` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceSpec {
    /// The services of this program.
    On,
    /// None of them.
    Off,
    /// A service that another program serves.
    Elsewhere {
        /// What it is called here.
        name: String,
        /// The file of its schema.
        schema: String,
        /// Where it is.
        endpoint: Endpoint,
    },
}

impl FromStr for ServiceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "on" => return Ok(Self::On),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(',')?)));
        let Some((name, (schema, endpoint))) = parts else {
            return Err("expected on, off, or NAME=SCHEMA,ENDPOINT".to_owned());
        };
        if !Gateway::takes(name) {
            return Err(format!("{name:?} cannot be part of a path as it is"));
        }
        let endpoint = path_endpoint(endpoint)?;
        Ok(Self::Elsewhere { name: name.to_owned(), schema: schema.to_owned(), endpoint })
    }
}

/// An endpoint that others share: this program's own standard streams are its log.
pub(crate) fn path_endpoint(text: &str) -> Result<Endpoint, String> {
    match text.parse() {
        Ok(endpoint) if endpoint != Endpoint::Stdio => Ok(endpoint),
        _ => Err(format!("{text:?} is no endpoint: give a path ending in .sock or .shm")),
    }
}

/// What answers may take that wait, where there is anything to call.
pub(crate) fn answers_bytes_max(options: &ServeOptions) -> u64 {
    let is_off = options.rpc.iter().all(|wish| *wish == ServiceSpec::Off);
    if is_off { 0 } else { options.rpc_answers_max_bytes }
}

/// A service to be called.
#[derive(Clone)]
struct RpcService {
    name: String,
    schema: Arc<schema::Service>,
    source: ServiceSource,
}

#[derive(Clone)]
enum ServiceSource {
    Log,
    State,
    Elsewhere(Endpoint),
}

/// The services, for every reactor to serve.
#[derive(Clone)]
pub(crate) struct Rpc {
    called: Vec<RpcService>,
    bounds: Bounds,
}

impl Rpc {
    /// As the options have it; `None` when there is nothing to call.
    ///
    /// # Errors
    /// A schema cannot be read, or a name is taken.
    pub(crate) fn of(options: &ServeOptions) -> Result<Option<Self>, ServerError> {
        if options.rpc.contains(&ServiceSpec::Off) && options.rpc.iter().any(|wish| *wish != ServiceSpec::Off)
        {
            return Err(ServerError::Rpc("off is given beside a service: leave one of them out".to_owned()));
        }
        let mut called = Vec::new();
        for wish in &options.rpc {
            match wish {
                ServiceSpec::Off => {}
                ServiceSpec::On => {
                    called.push(RpcService {
                        name: "log".to_owned(),
                        schema: built_in("log", LOG)?,
                        source: ServiceSource::Log,
                    });
                    called.push(RpcService {
                        name: "state".to_owned(),
                        schema: built_in("state", STATE)?,
                        source: ServiceSource::State,
                    });
                }
                ServiceSpec::Elsewhere { name, schema, endpoint } => {
                    let text = named_file::read_text(schema.as_ref())
                        .map_err(|error| ServerError::Rpc(format!("{schema}: {error}")))?;
                    let schema = built_in(schema, &text)?;
                    called.push(RpcService {
                        name: name.clone(),
                        schema,
                        source: ServiceSource::Elsewhere(endpoint.clone()),
                    });
                }
            }
        }
        for (place, one) in called.iter().enumerate() {
            if called[..place].iter().any(|other| other.name == one.name) {
                return Err(ServerError::Rpc(format!("{} is the name of two services", one.name)));
            }
        }
        if called.is_empty() && !options.rpc_listen.is_empty() {
            return Err(ServerError::Rpc(
                "rpc_listen has an address, and rpc names nothing to be called there".to_owned(),
            ));
        }
        let delay_max = Duration::from_millis(options.rpc_delay_max_ms.into());
        let answers_bytes_max = usize::try_from(options.rpc_answers_max_bytes).unwrap_or(usize::MAX);
        let hosts = options.hosts.clone();
        let bounds = Bounds { hosts, delay_max, answers_bytes_max, ..Bounds::default() };
        Ok((!called.is_empty()).then_some(Self { called, bounds }))
    }

    /// Shares the bounds out over this many gateways.
    pub(crate) fn share_out(&mut self, gateways: usize) {
        self.bounds.answers_bytes_max = self.bounds.answers_bytes_max.div_ceil(gateways);
    }

    /// Whether each reactor that serves it hears of every commit once more.
    pub(crate) fn watches(&self) -> bool {
        self.called.iter().any(|called| matches!(called.source, ServiceSource::Log))
    }

    /// What one reactor serves, and the descriptors that it is to watch.
    ///
    /// # Errors
    /// More reactors than a store announces to; a name that cannot be part of a path; no descriptor left.
    pub(crate) fn gateway(
        &self,
        engine: &Engine,
        pool: &Pool,
        handle: Handle<Message>,
    ) -> io::Result<(Gateway, Vec<OwnedFd>)> {
        let mut gateway = Gateway::new(handle, self.bounds.clone());
        let mut descriptors = Vec::new();
        for RpcService { name, schema, source } in &self.called {
            let mount = match source {
                ServiceSource::Elsewhere(endpoint) => Mount::elsewhere(schema, endpoint.clone()),
                ServiceSource::State => Mount::here(schema, engine.state().clone()),
                ServiceSource::Log => {
                    let (engine, pool) = (engine.clone(), pool.clone());
                    Mount::with_notifier(schema, move |notifier| {
                        let news = Arc::new(News::new(notifier));
                        Ok(LogService::new(engine.service_for(news.clone())?, news, pool))
                    })
                }
            };
            descriptors.extend(gateway.mount(name, mount).map_err(io::Error::other)?);
        }
        Ok((gateway, descriptors))
    }
}

fn built_in(file: &str, text: &str) -> Result<Arc<schema::Service>, ServerError> {
    schema::parse(file, text).map(Arc::new).map_err(|problems| ServerError::Rpc(problems.to_string()))
}

/// Whether services are called at such a path.
fn is_of_services(path: &str) -> bool {
    path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a reactor serves of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReactorRole {
    /// Streams, and services if there are any and they have no listener of their own.
    Streams,
    /// Services alone.
    Rpc,
}

/// Services beside another.
pub(crate) struct WithRpc<S> {
    inner: S,
    gateway: Option<Gateway>,
    /// There is nothing but the services here.
    alone: bool,
}

impl<S: Service> WithRpc<S> {
    pub(crate) fn new(inner: S, gateway: Option<Gateway>, role: ReactorRole) -> Self {
        Self { inner, gateway, alone: role == ReactorRole::Rpc }
    }

    /// Whether a path is one of the services', if there are any. Whether the server answers may be asked
    /// anywhere.
    fn is_called(&self, path: &str) -> bool {
        self.gateway.is_some() && (self.alone && path != HEALTH || is_of_services(path))
    }

    fn gateway(&mut self, path: &str) -> Option<&mut Gateway> {
        if self.is_called(path) { self.gateway.as_mut() } else { None }
    }
}

impl<S: Service> Service for WithRpc<S> {
    type Topic = S::Topic;

    fn call(&mut self, request: &Request<'_>, now: Now) -> Answer<S::Topic> {
        let is_service = is_of_services(request.path) && request.method != Method::Options;
        let Some(gateway) = self.gateway(request.path) else {
            return if is_service {
                Answer::Respond(self.inner.refuse(&NOT_SERVED, Announced::default(), now))
            } else {
                self.inner.call(request, now)
            };
        };
        match gateway.call(request, now) {
            Answer::Later(name) => Answer::Later(name),
            Answer::Respond(response) => Answer::Respond(response),
            Answer::Live { topic, .. } => match topic {},
            // A gateway has no tickets and no disk.
            Answer::After(..) | Answer::Cold(_) => Answer::Respond(self.inner.failed(now)),
        }
    }

    fn weight(&self, head: &Request<'_>) -> Weight {
        // A call is what it is sent as, by POST, and only its body says whether it changes anything.
        if self.is_called(head.path) { Weight::of(head.method) } else { self.inner.weight(head) }
    }

    fn appends(&self, head: &Request<'_>) -> bool {
        !self.is_called(head.path) && self.inner.appends(head)
    }

    fn admit(&mut self, head: &Request<'_>, now: Now) -> Option<Response> {
        match self.gateway(head.path) {
            Some(gateway) => gateway.admit(head, now),
            None => self.inner.admit(head, now),
        }
    }

    fn alone(&mut self, alone: bool) {
        if let Some(gateway) = &mut self.gateway {
            gateway.alone(alone);
        }
    }

    fn look(&mut self, now: Now, each: &mut dyn FnMut(u64, Response)) -> Option<u32> {
        self.gateway.as_mut().and_then(|gateway| gateway.look(now, each))
    }

    fn gone(&mut self, later: u64) {
        if let Some(gateway) = &mut self.gateway {
            gateway.gone(later);
        }
    }

    pass_on! { writes turn_ended failed watch unwatch acknowledge advance deadline refuse }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_a_word_or_a_service() {
        assert_eq!(ServiceSpec::from_str("on"), Ok(ServiceSpec::On));
        let elsewhere = ServiceSpec::Elsewhere {
            name: "echo".to_owned(),
            schema: "schemas/echo.jsonc".to_owned(),
            endpoint: "run/echo.shm".parse().unwrap(),
        };
        assert_eq!(ServiceSpec::from_str("echo=schemas/echo.jsonc,run/echo.shm"), Ok(elsewhere));
        for wrong in [
            "",
            "yes",
            "echo",
            "echo=",
            "echo=schema.jsonc",
            "echo=schema.jsonc,",
            "a/b=s.jsonc,a.sock",
            "=s.jsonc,a.sock",
            // Standard output is the program's log.
            "echo=schema.jsonc,-",
        ] {
            assert!(ServiceSpec::from_str(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn our_own_schemas_can_be_read() {
        assert_eq!(built_in("log", LOG).unwrap().name, "Log");
        assert_eq!(built_in("state", STATE).unwrap().hash, thalweg_state::SCHEMA_HASH);
    }
}
