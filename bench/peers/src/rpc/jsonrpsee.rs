//! jsonrpsee: its server, and its client.

use crate::Failure;
use jsonrpsee_core::client::ClientT;
use jsonrpsee_core::params::{ArrayParams, BatchRequestBuilder};
use jsonrpsee_http_client::{HttpClient, HttpClientBuilder};
use jsonrpsee_server::types::ErrorObjectOwned;
use jsonrpsee_server::{RpcModule, Server, ServerConfig};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Instant;
use thalweg_bench::measure::{Measured, Until};
use thalweg_sys::clock;

/// Turns of each client before the clock starts.
const WARM_TURNS: u64 = 50;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Sum {
    sum: u64,
}

pub(crate) async fn serve(ready: impl FnOnce(SocketAddr) -> Result<(), Failure>) -> Result<(), Failure> {
    let config = ServerConfig::builder().http_only().set_tcp_no_delay(true).max_connections(1_024).build();
    let server = Server::builder().set_config(config).build("127.0.0.1:0").await?;
    let mut module = RpcModule::new(());
    module.register_method("Add", |params, _, _| {
        let (a, b): (u64, u64) = params.parse()?;
        Ok::<_, ErrorObjectOwned>(Sum { sum: a.wrapping_add(b) })
    })?;
    ready(server.local_addr()?)?;
    server.start(module).stopped().await;
    Ok(())
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Clients, each with one exchange under way, over the connections of one pool.
    pub(crate) connections: usize,
    /// Calls in one body.
    pub(crate) batch: usize,
    /// A client, and so a connection, for each body.
    pub(crate) anew: bool,
    pub(crate) until: Until,
}

pub(crate) async fn call(address: SocketAddr, work: Work) -> Result<Measured, Failure> {
    let url = format!("http://{address}");
    let client = client(&url)?;
    if !matches!(work.until, Until::Turns(_)) {
        all(&client, &url, Work { until: Until::Turns(WARM_TURNS), ..work }).await?;
    }
    let (since, before_ns) = (Instant::now(), clock::process_processor_ns());
    let operations = all(&client, &url, work).await?;
    Ok(Measured {
        operations,
        per_second: operations as f64 / since.elapsed().as_secs_f64(),
        processor_ns: clock::process_processor_ns() - before_ns,
        ..Measured::default()
    })
}

/// Every client, each as often as it may. How many calls that was.
async fn all(client: &HttpClient, url: &str, work: Work) -> Result<u64, Failure> {
    let clients: Vec<_> =
        (0..work.connections).map(|_| tokio::spawn(one(client.clone(), url.to_owned(), work))).collect();
    let mut operations = 0;
    for client in clients {
        operations += client.await??;
    }
    Ok(operations)
}

async fn one(mut kept: HttpClient, url: String, work: Work) -> Result<u64, Failure> {
    let (since, mut operations) = (Instant::now(), 0);
    for turns in 1.. {
        if work.anew {
            kept = client(&url)?;
        }
        operations += turn(&kept, work.batch).await?;
        let over = match work.until {
            Until::Turns(count) => turns >= count,
            Until::Elapsed(time) => since.elapsed() >= time,
        };
        if over {
            break;
        }
    }
    Ok(operations)
}

async fn turn(client: &HttpClient, batch: usize) -> Result<u64, Failure> {
    if batch == 1 {
        let sum: Sum = client.request("Add", params()?).await?;
        return right(&sum).map(|()| 1);
    }
    let mut calls = BatchRequestBuilder::new();
    (0..batch).try_for_each(|_| calls.insert("Add", params()?).map_err(Failure::from))?;
    let mut count = 0;
    for sum in client.batch_request::<Sum>(calls).await? {
        right(&sum.map_err(|error| error.to_string())?)?;
        count += 1;
    }
    if count == batch as u64 { Ok(count) } else { Err("another number of answers".into()) }
}

fn client(url: &str) -> Result<HttpClient, Failure> {
    Ok(HttpClientBuilder::default().build(url)?)
}

fn params() -> Result<ArrayParams, Failure> {
    let mut params = ArrayParams::new();
    params.insert(40_u64)?;
    params.insert(2_u64)?;
    Ok(params)
}

fn right(sum: &Sum) -> Result<(), Failure> {
    if sum.sum == 42 { Ok(()) } else { Err(format!("another answer: {sum:?}").into()) }
}
