//! A store whose opening or closing is cut short, on the simulated disk.

use super::store::small;
use crate::{Durability, OpenError, Options, Purge, Store};
use std::path::Path;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

const DIRECTORY: &str = "/store";
/// More calls than an opening or a closing makes.
const CALLS_MAX: u32 = 64;

fn options(durability: Durability) -> Options {
    Options { durability, committer_thread: false, ..small() }
}

fn open(sim: &SimDisk, durability: Durability) -> Result<Store, OpenError> {
    let (store, found) = Store::open(&Disk::Sim(sim.clone()), Path::new(DIRECTORY), options(durability))?;
    assert_eq!(found.damage, [], "nothing was damaged");
    Ok(store)
}

/// A store of several segments with two checkpoints and something behind them, and what it holds durably.
fn filled(seed: u64, durability: Durability, closes: bool) -> (SimDisk, Vec<u8>) {
    let sim = SimDisk::new(seed, 64 << 20);
    let store = open(&sim, durability).unwrap();
    let log = store.log(b"a").unwrap();
    for round in 0..3 {
        for time in 0..40 {
            store.append(&log, &[round + 1; 100], time).unwrap();
        }
        if round == 1 {
            store.flush().unwrap();
            store.purge(&Purge { before: Some(2), ..Purge::default() }).unwrap();
        }
        store.checkpoint().unwrap();
    }
    store.append(&log, &[9; 700], 50).unwrap();
    store.flush().unwrap();
    let held = {
        let state = log.visible().unwrap();
        store.read(&log, state.first, usize::MAX).unwrap().pieces.concat()
    };
    // Nobody was told that it lasts.
    store.append(&log, &[0xee; 300], 51).unwrap();
    if closes {
        store.close().unwrap();
    }
    (sim, held)
}

fn held(store: &Store) -> Vec<u8> {
    let log = store.find(b"a").unwrap();
    let first = log.visible().unwrap().first;
    store.read(&log, first, usize::MAX).unwrap().pieces.concat()
}

/// What was durable is there, and what was not is there whole or not at all.
fn check(sim: &SimDisk, durability: Durability, before: &[u8], how: &str) {
    let store = open(sim, durability).unwrap_or_else(|error| panic!("{how}: {error}"));
    let now = held(&store);
    assert!(now.starts_with(before), "{how}: something is lost");
    assert!(matches!(now.len() - before.len(), 0 | 300), "{how}: half a commit");
    store.append(&store.find(b"a").unwrap(), b"more", 60).unwrap();
    store.flush().unwrap();
    drop(store);
    let store = open(sim, durability).unwrap_or_else(|error| panic!("{how}, again: {error}"));
    assert!(held(&store).ends_with(b"more"), "{how}");
    store.close().unwrap();
}

#[test]
fn an_opening_that_fails_at_any_call_takes_nothing_even_if_the_power_is_cut_behind_it() {
    for seed in 0..6 {
        let durability = if seed % 2 == 0 { Durability::Sync } else { Durability::Os };
        for closes in [false, true] {
            for calls in 0..CALLS_MAX {
                let mut refused = false;
                for kind in ["sync", "write", "space"] {
                    let (sim, before) = filled(seed, durability, closes);
                    let how = format!("seed {seed}, {durability:?}, closed {closes}, {kind} {calls}");
                    let sim = if closes { sim } else { sim.crash() };
                    match kind {
                        "sync" => sim.fail_sync_after(calls),
                        "write" => sim.fail_write_after(calls),
                        _ => sim.set_space(sim.used_bytes() + u64::from(calls) * 1024),
                    }
                    refused |= open(&sim, durability).map(drop).is_err();
                    sim.mend();
                    sim.set_space(64 << 20);
                    check(&sim.crash(), durability, &before, &how);
                    check(&sim, durability, &before, &how);
                }
                if !refused && calls > 8 {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_closing_that_fails_at_any_call_takes_nothing_even_if_the_power_is_cut_behind_it() {
    for seed in 0..6 {
        let durability = if seed % 2 == 0 { Durability::Sync } else { Durability::Os };
        for calls in 0..CALLS_MAX {
            let mut refused = false;
            for kind in ["sync", "write", "space"] {
                let (sim, before) = filled(seed, durability, false);
                let sim = sim.crash();
                let store = open(&sim, durability).unwrap();
                let how = format!("seed {seed}, {durability:?}, {kind} {calls}");
                match kind {
                    "sync" => sim.fail_sync_after(calls),
                    "write" => sim.fail_write_after(calls),
                    _ => sim.set_space(sim.used_bytes() + u64::from(calls) * 1024),
                }
                refused |= store.close().is_err();
                drop(store);
                sim.mend();
                sim.set_space(64 << 20);
                check(&sim.crash(), durability, &before, &how);
                check(&sim, durability, &before, &how);
            }
            if !refused && calls > 8 {
                break;
            }
        }
    }
}
