//! Every atomic of Thalweg: the mailbox, parking and the gate, rings, snapshots, published regions and
//! words, counters, places, meters, marks, and the loom switch.
//!
//! Owns: each word that two threads (or two processes) touch without a lock, and the reasoning about it.
//! Clippy and `cargo xtask tidy` keep atomics out of every other crate.
//!
//! Never knows: what travels through it, who is woken, or how (see [`parking::Wake`]).
//!
//! Handshakes are written with explicit fences and are generic over where their words live and over a
//! table of fences, so that loom checks the very code that runs, and shows each fence necessary by taking
//! it away. The models run with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p thalweg-sync --lib --release --target-dir target-loom
//! ```

pub mod contain;
pub mod counter;
pub mod gate;
pub mod handshake;
pub mod mailbox;
pub mod marks;
pub mod meter;
pub mod parking;
pub mod patience;
pub mod places;
pub mod primitives;
pub mod region;
pub mod ring;
pub mod snapshot;
pub mod words;

#[cfg(loom)]
#[cfg(test)]
mod models;
