//! Tests of the whole store.
mod damage;
mod fork;
mod sim;
mod store;
