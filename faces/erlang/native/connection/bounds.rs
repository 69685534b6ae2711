//! How many calls a connection has, how many it may have, and what speaks against another.

use super::{State, UNSENT_BYTES_MAX};
use thalweg_service::Client;

impl State {
    /// Calls for whose answers the router hurries.
    pub(crate) fn hurried(&self) -> usize {
        self.waiters.len() - self.patient
    }

    /// Calls that count, and how many of them there may be. One that was given up counts no more: if nothing
    /// of it has left, the client takes it back.
    pub(crate) fn bound(&self) -> (usize, u32) {
        (self.waiters.len() - self.unbounded, self.in_flight_max)
    }

    /// What a bound was that spoke against a call: how much there is, and how much there may be.
    pub(crate) fn reached(&self) -> (u64, u64) {
        let (in_flight, in_flight_max) = self.bound();
        match &self.client {
            Some(client) if in_flight < in_flight_max as usize => {
                (client.unsent_bytes() as u64, UNSENT_BYTES_MAX as u64)
            }
            _ => (in_flight as u64, u64::from(in_flight_max)),
        }
    }

    /// What speaks against another call, the worst first: the worker is gone, there is no room, there is no
    /// worker yet; and how many calls count.
    pub(crate) fn burden(&self) -> (bool, bool, bool, usize) {
        let (in_flight, in_flight_max) = self.bound();
        let is_lost = self.client.as_ref().is_none_or(|client| client.failure().is_some());
        let is_up = self.client.as_ref().is_some_and(Client::is_connected);
        (is_lost, in_flight >= in_flight_max as usize, !is_up, in_flight)
    }
}
