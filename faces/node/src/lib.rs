//! The log in Node.js, the native half.
//!
//! Owns what JavaScript cannot do by itself: opening stores once per process, appending, lending maps as
//! `ArrayBuffer`s, verifying bytes, and waking an event loop. Never knows how entries are read: that is done
//! in JavaScript, over the maps, without a call (`lib/`).
//!
//! Nothing here blocks the event loop but opening; whatever may wait for a disk runs on libuv's pool. Calls
//! answer in numbers or throw an error whose message is JSON, from which `lib/error.js` makes the typed one.

#![allow(unreachable_pub, reason = "what the macros export is reached from JavaScript")]
#![cfg_attr(test, allow(dead_code, reason = "the macros export nothing in a test build"))]

mod append;
mod bell;
mod dues;
mod error;
mod housekeeping;
mod lend;
mod loan;
mod log;
mod offline;
mod recovery;
mod remembered;
mod rpc;
mod segment;
mod service;
mod shelf;
mod store;
