//! Tests of the whole store.
mod damage;
mod fork;
mod reader;
mod sim;
mod store;
