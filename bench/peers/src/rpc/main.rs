//! Other people's JSON-RPC and HTTP, measured as ours are.
//!
//! As a far end it is a server: `thalweg-rpc-peers far --end Hyper|Jsonrpsee --processor N --shares BOOL`
//! says where it listens, serves until its standard input ends, and then says how much processor time it
//! used; `thalweg-rpc-bench` calls it. As a near end it is jsonrpsee's client with jsonrpsee's server at the
//! other, and prints a line of JSON:
//!
//! `thalweg-rpc-peers --work NAME [--pair N] [--near N] [--far N] [--connections N] [--batch N] [--anew BOOL]
//! [--milliseconds N | --turns N]`
//!
//! Each end is one thread, like ours.

mod hyper_echo;
mod jsonrpsee;

use std::net::SocketAddr;
use std::process::ExitCode;
use thalweg_bench::far::{self, Far, is_far};
use thalweg_bench::plan::{Plan, ended};
use thalweg_bench::{Failure, option};
use thalweg_sys::{clock, process};

fn main() -> ExitCode {
    ended("thalweg-rpc-peers", if is_far() { serve() } else { call() })
}

fn serve() -> Result<(), Failure> {
    let processor = option("--processor", 0)?;
    if option("--shares", false)? {
        process::run_on(processor)?;
    }
    let ready = move |address: SocketAddr| -> Result<(), Failure> {
        process::run_on(processor)?;
        far::ready(address, || {
            println!("{}", clock::process_processor_ns());
            std::process::exit(0);
        })
    };
    match option("--end", String::new())?.as_str() {
        "Hyper" => block_on(hyper_echo::serve(ready))?,
        "Jsonrpsee" => block_on(jsonrpsee::serve(ready))?,
        other => Err(format!("--end {other}: Hyper or Jsonrpsee").into()),
    }
}

fn call() -> Result<(), Failure> {
    let plan = Plan::asked()?;
    let (near, far): (usize, usize) = (option("--near", 0)?, option("--far", 0)?);
    let work = jsonrpsee::Work {
        connections: option("--connections", 1)?,
        batch: option("--batch", 1)?,
        anew: option("--anew", false)?,
        until: plan.until,
    };
    let (shares, far) = ((near == far).to_string(), far.to_string());
    let mut far = Far::start(["--end", "Jsonrpsee", "--processor", &far, "--shares", &shares])?;
    let address = far.hears()?.parse()?;
    process::run_on(near)?;
    let measured = block_on(jsonrpsee::call(address, work))??.with_far(far.end()?.parse()?);
    measured.print(&option("--work", String::new())?, "jsonrpsee", option("--pair", 0)?, plan.is_fixed());
    Ok(())
}

fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}
