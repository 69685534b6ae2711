//! JSON-RPC 2.0: any service that has a schema, over HTTP, and a client that keeps its connections.
//!
//! Owns the way between JSON and a service's frames, which the schema alone describes ([`Translator`],
//! [`Mount`], [`Gateway`]), a server that is nothing else ([`Server`]), and the pool of kept-alive
//! connections that calls leave by ([`Client`]).
//!
//! Never knows: a particular service, where its handler runs, what a stream or a fork is.
#![forbid(unsafe_code)]

#[cfg(feature = "server")]
mod admission;
#[cfg(feature = "server")]
mod answer;
#[cfg(feature = "server")]
mod budget;
#[cfg(feature = "server")]
mod built_in;
pub mod client;
#[cfg(feature = "server")]
mod delayed;
#[cfg(feature = "server")]
mod discover;
#[cfg(feature = "server")]
mod gateway;
#[cfg(feature = "server")]
mod mount;
#[cfg(feature = "server")]
mod pending;
#[cfg(feature = "schema")]
mod plan;
#[cfg(feature = "schema")]
mod request;
#[cfg(feature = "schema")]
mod response;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "schema")]
mod translator;

#[cfg(feature = "schema")]
pub use client::Carrier;
pub use client::{Bearer, Client, Options as ClientOptions};
#[cfg(feature = "server")]
pub use gateway::{Bounds, Gateway};
#[cfg(feature = "server")]
pub use mount::Mount;
#[cfg(feature = "server")]
pub use server::{Server, ServerOptions, Stopper};
#[cfg(feature = "schema")]
pub use translator::Translator;
