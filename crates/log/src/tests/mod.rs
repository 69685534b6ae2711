//! Tests of the whole store.
mod sim;
mod store;
