//! What JavaScript may say when it connects or listens, as it says it.

use crate::error::{Result, failure};
use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use std::borrow::Cow;
use std::time::Duration;
use thalweg_service::{ClientOptions, Error, Reconnect, ServerOptions};
use thalweg_transport::Endpoint;

/// How a client that may connects anew.
const RECONNECT: Reconnect =
    Reconnect::Backoff { first: Duration::from_millis(10), most: Duration::from_secs(1) };

/// A fault on its way to JavaScript: its name in the one table, and the words behind it.
pub(crate) fn fault(error: &Error) -> napi::Error {
    failure(&error.fault.word().to_uppercase(), error)
}

pub(crate) fn endpoint(text: &str) -> Result<Endpoint> {
    text.parse().map_err(|error| failure("BAD_ARGUMENT", error))
}

/// Whether an endpoint can be one, before anything is begun for it.
#[napi]
pub fn check_endpoint(path: String) -> Result<()> {
    endpoint(&path).map(drop)
}

fn milliseconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value / 1000.0).unwrap_or(Duration::MAX)
}

/// The 32 bytes of a schema's hash; none fit any.
pub(crate) fn schema(bytes: Option<&Uint8Array>) -> Result<[u8; 32]> {
    let Some(bytes) = bytes else { return Ok([0; 32]) };
    <[u8; 32]>::try_from(bytes.as_ref()).map_err(|_| {
        failure("BAD_ARGUMENT", format!("a schema's hash has 32 bytes, this one {}", bytes.len()))
    })
}

#[napi(object)]
pub struct ConnectOptions {
    pub schema: Option<Uint8Array>,
    pub connect_within_ms: Option<f64>,
    pub deadline_ms: Option<f64>,
    pub in_flight_max: Option<u32>,
    pub unsent_bytes_max: Option<u32>,
    pub frame_bytes_max: Option<u32>,
    pub shared: Option<bool>,
    pub ring_bytes: Option<u32>,
    pub spin: Option<bool>,
    pub plain: Option<bool>,
    pub same_user_only: Option<bool>,
    pub reconnect: Option<bool>,
}

impl ConnectOptions {
    pub(crate) fn take(self) -> Result<ClientOptions> {
        let usual = ClientOptions::default();
        Ok(ClientOptions {
            schema: schema(self.schema.as_ref())?,
            connect_within: self.connect_within_ms.map_or(usual.connect_within, milliseconds),
            deadline: self.deadline_ms.map(milliseconds),
            in_flight_max: self.in_flight_max.unwrap_or(usual.in_flight_max),
            unsent_bytes_max: self.unsent_bytes_max.map_or(usual.unsent_bytes_max, |bytes| bytes as usize),
            frame_bytes_max: self.frame_bytes_max.unwrap_or(usual.frame_bytes_max),
            shared: self.shared.unwrap_or(usual.shared),
            ring_bytes: self.ring_bytes.unwrap_or(usual.ring_bytes),
            spin: self.spin.unwrap_or(usual.spin),
            plain: self.plain.unwrap_or(usual.plain),
            same_user_only: self.same_user_only.unwrap_or(usual.same_user_only),
            reconnect: if self.reconnect.unwrap_or(false) { RECONNECT } else { Reconnect::Never },
        })
    }
}

#[napi(object)]
pub struct ListenOptions {
    pub schema: Option<Uint8Array>,
    pub error_tag: Option<String>,
    pub frame_bytes_max: Option<u32>,
    pub ring_bytes_max: Option<u32>,
    pub clients_max: Option<u32>,
    pub in_flight_max: Option<u32>,
    pub in_flight_bytes_max: Option<u32>,
    pub unsent_bytes_max: Option<u32>,
    pub stream_credit: Option<u32>,
    pub spin: Option<bool>,
    pub drain_grace_ms: Option<f64>,
    pub hello_within_ms: Option<f64>,
    pub same_user_only: Option<bool>,
}

impl ListenOptions {
    pub(crate) fn take(self) -> Result<ServerOptions> {
        let usual = ServerOptions::default();
        Ok(ServerOptions {
            schema: schema(self.schema.as_ref())?,
            error_tag: self.error_tag.map_or(usual.error_tag, Cow::Owned),
            frame_bytes_max: self.frame_bytes_max.unwrap_or(usual.frame_bytes_max),
            ring_bytes_max: self.ring_bytes_max.unwrap_or(usual.ring_bytes_max),
            clients_max: self.clients_max.unwrap_or(usual.clients_max),
            in_flight_max: self.in_flight_max.unwrap_or(usual.in_flight_max),
            in_flight_bytes_max: self
                .in_flight_bytes_max
                .map_or(usual.in_flight_bytes_max, |bytes| bytes as usize),
            unsent_bytes_max: self.unsent_bytes_max.map_or(usual.unsent_bytes_max, |bytes| bytes as usize),
            stream_credit: self.stream_credit.unwrap_or(usual.stream_credit),
            spin: self.spin.unwrap_or(usual.spin),
            drain_grace: self.drain_grace_ms.map_or(usual.drain_grace, milliseconds),
            hello_within: self.hello_within_ms.map_or(usual.hello_within, milliseconds),
            same_user_only: self.same_user_only.unwrap_or(usual.same_user_only),
        })
    }
}
