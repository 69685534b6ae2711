//! Tests of the whole store.
mod damage;
mod fork;
mod parse;
mod reader;
mod sim;
mod store;
