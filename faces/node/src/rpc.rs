//! JSON-RPC in Node.js, the native half: a client that the event loop drives, and what a schema says about
//! the way between JSON and frames. What comes and goes is text: JavaScript reads and writes it. Owns the
//! client's place in libuv's loop.

use crate::error::{Result, failure};
use crate::service::{Watch, fault};
use napi::bindgen_prelude::{Buffer, Env, Function};
use napi_derive::napi;
use std::cell::RefCell;
use std::time::Duration;
use thalweg_reactor::Wait;
use thalweg_rpc::client::{Ask, Options};
use thalweg_rpc::{Bearer, Client, Translator};
use thalweg_service::{CallId, Error};
use thalweg_wire::hex::Hex;

/// What JavaScript may say of a client, as it says it.
#[napi(object)]
pub struct RpcOptions {
    pub deadline_ms: Option<f64>,
    pub connections_max: Option<u32>,
    pub idle_max: Option<u32>,
    pub idle_for_ms: Option<f64>,
    pub in_flight_max: Option<u32>,
    pub answer_bytes_max: Option<f64>,
    pub token: Option<String>,
}

fn milliseconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value / 1000.0).unwrap_or(Duration::MAX)
}

impl RpcOptions {
    fn take(self) -> std::result::Result<Options, Error> {
        let usual = Options::default();
        Ok(Options {
            // The event loop waits, never the client.
            spin: false,
            deadline: self.deadline_ms.map_or(usual.deadline, |ms| Some(milliseconds(ms))),
            connections_max: self.connections_max.map_or(usual.connections_max, |count| count as usize),
            idle_max: self.idle_max.map_or(usual.idle_max, |count| count as usize),
            idle_for: self.idle_for_ms.map_or(usual.idle_for, milliseconds),
            in_flight_max: self.in_flight_max.map_or(usual.in_flight_max, |count| count as usize),
            answer_bytes_max: self.answer_bytes_max.map_or(usual.answer_bytes_max, |bytes| bytes as usize),
            token: self.token.as_deref().map(Bearer::new).transpose()?,
            ..usual
        })
    }
}

/// How calls are made.
#[napi(object)]
pub struct RpcAsk {
    pub batch: bool,
    pub notifies: bool,
    pub idempotent: Option<bool>,
    pub deadline_ms: Option<f64>,
    pub url: Option<String>,
}

/// What came of calls: their answers, or a fault's name and the words behind it.
#[napi(object)]
pub struct RpcDone {
    pub call: f64,
    pub answers: Vec<RpcAnswer>,
    pub fault: Option<String>,
    pub detail: String,
}

/// A result as text, or an error and what it holds beside its words.
#[napi(object)]
pub struct RpcAnswer {
    pub json: String,
    pub code: Option<f64>,
    pub message: Option<String>,
}

#[napi(object)]
pub struct RpcStatistics {
    pub opened: f64,
    pub closed: f64,
    pub reused: f64,
    pub waits: f64,
    pub retried: f64,
    pub idle: u32,
    pub connections: u32,
    pub in_flight: u32,
}

/// Connections to services that are called by JSON-RPC.
#[napi]
pub struct RpcCaller {
    client: RefCell<Option<Client>>,
    watch: RefCell<Option<Watch>>,
}

fn closed() -> napi::Error {
    failure("CLOSED", "this client was closed")
}

/// A client of the service at a URL. Connects with the first call.
#[napi]
pub fn open_rpc(url: String, options: RpcOptions) -> Result<RpcCaller> {
    let opened = options.take().and_then(|options| Client::new(&url, options));
    let client = opened.map_err(|error| fault(&error))?;
    Ok(RpcCaller { client: RefCell::new(Some(client)), watch: RefCell::default() })
}

#[napi]
impl RpcCaller {
    fn with<T>(&self, act: impl FnOnce(&mut Client) -> std::result::Result<T, Error>) -> Result<T> {
        let mut client = self.client.borrow_mut();
        act(client.as_mut().ok_or_else(closed)?).map_err(|error| fault(&error))
    }

    /// Calls `ready` whenever a turn has something to do.
    #[napi]
    pub fn watch(&self, env: Env, ready: Function<'_, (), ()>) -> Result<()> {
        let mut client = self.client.borrow_mut();
        let client = client.as_mut().ok_or_else(closed)?;
        let descriptor = client.descriptor().map_err(|error| fault(&error))?;
        *self.watch.borrow_mut() = Some(Watch::start(&env, descriptor, ready)?);
        Ok(())
    }

    /// Begins calls, methods and parameters in turn, and names them. They leave with the next turn.
    #[napi]
    pub fn begin(&self, words: Vec<String>, ask: RpcAsk) -> Result<f64> {
        let calls: Vec<(&str, &str)> =
            words.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        self.with(|client| {
            let target = ask.url.as_deref().map(|url| client.target(url)).transpose()?;
            let ask = Ask {
                calls: &calls,
                call: None,
                is_batch: ask.batch,
                notifies: ask.notifies,
                is_idempotent: ask.idempotent.unwrap_or(false),
                deadline: ask.deadline_ms.map(milliseconds),
                target,
            };
            client.begin(&ask).map(|call| call.number() as f64)
        })
    }

    /// These calls are not awaited any more.
    #[napi]
    pub fn cancel(&self, call: f64) {
        if let Some(client) = &mut *self.client.borrow_mut() {
            client.cancel(CallId::from_number(call as u64));
        }
    }

    /// Writes and reads what can be now, and answers what came.
    #[napi]
    pub fn turn(&self) -> Result<Vec<RpcDone>> {
        self.with(|client| {
            client.turn(Wait::Poll)?;
            let mut came = Vec::new();
            while let Some(done) = client.next() {
                let call = done.call.number() as f64;
                came.push(match &done.outcome {
                    Ok(answers) => RpcDone {
                        call,
                        answers: answers.iter().map(answer).collect(),
                        fault: None,
                        detail: String::new(),
                    },
                    Err(error) => RpcDone {
                        call,
                        answers: Vec::new(),
                        fault: Some(error.fault.word().to_uppercase()),
                        detail: error.to_string(),
                    },
                });
            }
            Ok(came)
        })
    }

    /// Keeps the process alive, or no longer.
    #[napi]
    pub fn hold(&self, held: bool) {
        if let Some(watch) = &*self.watch.borrow() {
            watch.hold(held);
        }
    }

    /// What it has done so far.
    #[napi]
    pub fn statistics(&self) -> Result<RpcStatistics> {
        self.with(|client| {
            let of = client.statistics();
            Ok(RpcStatistics {
                opened: of.opened as f64,
                closed: of.closed as f64,
                reused: of.reused as f64,
                waits: of.waits as f64,
                retried: of.retried as f64,
                idle: of.idle as u32,
                connections: of.connections as u32,
                in_flight: client.in_flight() as u32,
            })
        })
    }

    /// Closes every connection.
    #[napi]
    pub fn close(&self) {
        // The watch first: it lets go of a descriptor that the client owns.
        self.watch.borrow_mut().take();
        self.client.borrow_mut().take();
    }
}

fn answer(answer: std::result::Result<&str, &thalweg_rpc::client::RemoteError>) -> RpcAnswer {
    match answer {
        Ok(json) => RpcAnswer { json: json.to_owned(), code: None, message: None },
        Err(said) => RpcAnswer {
            json: said.data.clone(),
            code: Some(said.code as f64),
            message: Some(said.message.clone()),
        },
    }
}

/// A service's schema: turns parameters into the frame of a request, and a frame that answers it into a
/// result.
#[napi]
pub struct SchemaText {
    translator: Translator,
}

/// What the state is called by, wherever it is served.
const STATE: &str = include_str!("../../../schemas/state.jsonc");

#[napi]
impl SchemaText {
    /// From the text of a schema; that of the state, unless it is given. `name` stands for it in messages.
    #[napi(constructor)]
    pub fn new(text: Option<String>, name: Option<String>) -> Result<Self> {
        let name = name.as_deref().unwrap_or("schema");
        let schema = thalweg_schema::parse(name, text.as_deref().unwrap_or(STATE))
            .map_err(|problems| failure("BAD_ARGUMENT", problems))?;
        Ok(Self { translator: Translator::new(&schema) })
    }

    /// Its hash, which both ends of a connection hold against each other's.
    #[napi]
    pub fn hash(&self) -> String {
        Hex(&self.translator.hash()).to_string()
    }

    /// The frame of a request.
    #[napi]
    pub fn request(&self, method: String, params: String) -> Result<Buffer> {
        let mut frame = Vec::new();
        self.translator.request(&method, &params, &mut frame).map_err(|error| fault(&error))?;
        Ok(frame.into())
    }

    /// What a frame that answers a method says, as text.
    #[napi]
    pub fn result(&self, method: String, frame: Buffer) -> Result<String> {
        let mut json = Vec::new();
        self.translator.result(&method, &frame, &mut json).map_err(|error| {
            // A refusal is the service's own words, and nothing else.
            let words = &error.detail;
            if error.fault == thalweg_wire::fault::Fault::Refused {
                failure("REFUSED", words)
            } else {
                fault(&error)
            }
        })?;
        String::from_utf8(json).map_err(|_| failure("BAD_ANSWER", "the answer is no text"))
    }
}
