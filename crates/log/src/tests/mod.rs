//! Tests of the whole store.
mod fork;
mod sim;
mod store;
