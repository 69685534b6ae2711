//! Tests of the whole store.
mod damage;
mod flips;
mod fork;
mod parse;
mod reader;
mod sim;
mod store;
