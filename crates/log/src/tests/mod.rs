//! Tests of the whole store.
mod backup;
mod carry;
mod compact;
mod damage;
mod flips;
mod fork;
mod linear;
mod parse;
mod places;
mod purge;
mod query;
mod reader;
mod reclaim;
mod refusals;
mod sim;
mod store;
mod trim;
