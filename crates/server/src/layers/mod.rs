//! What stands in front of the streams on each reactor: services that wrap a service.
//!
//! A request passes them in this order, and an answer in the reverse one; [`front`] puts them together.
//!
//! | layer | what it adds |
//! |---|---|
//! | [`cors`] | which origins' pages may use the streams |
//! | [`access`] | which token may do what; tokens, certificate and key come from files that SIGHUP reads again |
//! | [`metrics`], [`stats`] | `/metrics` and `/v1/stats` |
//! | [`rpc`] | services by JSON-RPC at `/rpc/` |
//!
//! What a layer has nothing to say about goes to the one behind it ([`pass_on!`]).

pub(crate) mod access;
pub(crate) mod cors;
pub(crate) mod front;
pub(crate) mod metrics;
mod pass_on;
pub(crate) mod rpc;
pub(crate) mod stats;

use pass_on::pass_on;
