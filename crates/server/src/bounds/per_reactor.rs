//! The bounds of the server, and how they are shared out to its reactors.

use super::descriptors::{Capacity, Needs, TooFew};
use super::limits::{Limits, streams_max};
use super::memory;
use crate::command_line::{ServeOptions, Switch};
use crate::layers::rpc;
use crate::quantity::Bytes;
use crate::services;
use thalweg_http::Config;
use thalweg_state::ServiceOptions;
use thalweg_sys::process::{descriptors_max, raise_descriptors_max};

/// Connections at once, unless something else is asked for.
const CONNECTIONS_DEFAULT: u32 = 65_536;

/// How bounds are shared out to reactors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerReactor {
    /// Reactors that serve streams.
    streaming: usize,
    /// Reactors that serve HTTP, the one that serves JSON-RPC alone included.
    reactors: usize,
    capacity: Capacity,
    sealed: bool,
}

impl PerReactor {
    /// Of a server with these options, whose reactors each listen at `places` places. Raises the limit of
    /// descriptors as far as it goes: the log may use those that connections do not take.
    ///
    /// # Errors
    /// There are too few descriptors.
    pub(crate) fn of(options: &ServeOptions, reactors: usize, places: usize) -> Result<Self, TooFew> {
        let wanted = u64::from(options.connections_max.unwrap_or(CONNECTIONS_DEFAULT));
        let limit = raise_descriptors_max(u64::MAX).unwrap_or_else(|_| descriptors_max().0);
        let capacity = Needs::of(options, reactors, places).capacity(limit, wanted)?;
        Ok(Self { capacity, ..Self::with_room_for_one(options, reactors) })
    }

    /// The same with descriptors for one connection.
    pub(crate) fn with_room_for_one(options: &ServeOptions, reactors: usize) -> Self {
        let streaming = reactors.max(1);
        let reactors = streaming + usize::from(!options.rpc_listen.is_empty());
        let capacity = Capacity { connections: 1, overflow_connections: 1 };
        Self { streaming, reactors, capacity, sealed: options.tls_certificate.is_some() }
    }

    /// Connections in all.
    pub(crate) fn connections(&self) -> usize {
        self.capacity.connections
    }

    /// The bounds of each reactor.
    pub(crate) fn config(&self, options: &ServeOptions) -> Config {
        let (share, shares) = (self.reactors, self.reactors as u64);
        let bodies_bytes_max = options.bodies_max_bytes / shares;
        let connections_max = self.connections();
        Config {
            body_bytes_max: options.body_max_bytes,
            bodies_bytes_max: bodies_bytes_max.max(options.body_max_bytes),
            connections_max,
            overflow_connections_max: self.capacity.overflow_connections,
            writes_max: (options.writes_max as usize).div_ceil(share),
            subscribers_max: options
                .subscribers_max
                .map_or(connections_max, |max| (max as usize).div_ceil(self.streaming)),
            unsent_bytes_max: options.unsent_max_bytes.div_ceil(shares),
            long_poll_timeout_ms: options.long_poll_timeout_ms,
            sse_lifetime_ms: options.sse_lifetime_ms,
            idle_timeout_ms: options.idle_timeout_ms,
            head_timeout_ms: options.request_timeout_ms,
            body_timeout_ms: options.request_timeout_ms,
            stall_timeout_ms: options.stall_timeout_ms,
            batched_sends: options.io_uring == Switch::On,
            ..Config::default()
        }
    }

    /// The bounds of the whole server.
    pub(crate) fn limits(&self, options: &ServeOptions) -> Limits {
        Limits::of(&self.config(options), self.streaming, self.reactors, self.sealed)
            .with_answers(rpc::answers_bytes_max(options))
            .with_neighbours(services::clients_max(options, self.connections()), services::unsent_bytes_max())
            .with_state(options.state_sessions_max_bytes, ServiceOptions::default().waiting_bytes_max as u64)
            .with_streams(streams_max(options.streams_max, memory::available()))
    }

    /// Warns of connections that cannot be had, and of limits that together exceed the memory.
    pub(crate) fn warn(&self, options: &ServeOptions, limits: &Limits) {
        let possible = self.connections();
        if let Some(wanted) = options.connections_max.filter(|wanted| *wanted as usize > possible) {
            tracing::warn!(
                wanted,
                possible,
                "fewer connections than asked for: raise the descriptor limit (ulimit -n)"
            );
        }
        let (sum, available) = (limits.busy_bytes(), memory::available());
        if let Some(available) = available.filter(|available| sum > *available) {
            tracing::warn!(
                sum = %Bytes(sum),
                available = %Bytes(available),
                "all limits at once come to more memory than this program may use: lower --connections-max, \
                 --bodies-max-bytes, --unsent-max-bytes, --streams-max, --rpc-answers-max-bytes or \
                 --state-sessions-max-bytes, or give it more"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::{Arguments, Verb};
    use clap::Parser;

    #[test]
    fn a_reactor_of_json_rpc_alone_takes_no_subscribers_from_the_others() {
        let line = "thalweg serve --rpc on --rpc-listen 127.0.0.1:0 --subscribers-max 6".split(' ');
        let Verb::Serve(options) = Arguments::try_parse_from(line).unwrap().verb else { panic!("not serve") };
        for (reactors, each) in [(1, 6), (2, 3)] {
            let per_reactor = PerReactor::with_room_for_one(&options, reactors);
            assert_eq!(per_reactor.config(&options).subscribers_max, each);
        }
    }
}
