//! An echo server and a client that keeps calls in flight, to be run side by side under whatever pinning and profiler.
//!
//! ```text
//! echo_load serve PATH [serial|inline|pool]
//! echo_load load PATH DEPTH BYTES SECONDS
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};
use thalweg_service::{
    CallOptions, Client, ClientOptions, Endpoint, Executor, Pool, Reply, Request, Server, ServerOptions,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", path, ..] => serve(path, words.get(2).copied().unwrap_or("inline")),
        ["load", path, depth, bytes, seconds] => {
            load(path, depth.parse()?, bytes.parse()?, Duration::from_secs_f64(seconds.parse()?))
        }
        _ => Err("serve PATH [serial|inline|pool], or load PATH DEPTH BYTES SECONDS".into()),
    }
}

fn serve(path: &str, how: &str) -> Result<(), Box<dyn Error>> {
    let options = ServerOptions { spin: std::env::var_os("NO_SPIN").is_none(), ..ServerOptions::default() };
    let mut server = Server::bind(&[path.parse::<Endpoint>()?], options)?;
    match how {
        "serial" => server.run(|request, response| response.extend_from_slice(request))?,
        "pool" => {
            let pool = Pool::new(2);
            server.run_reactor(move |request: Request<'_>, reply: Reply| {
                let frame = request.frame.to_vec();
                pool.execute(Box::new(move || reply.end(&frame)));
            })?;
        }
        _ => server.run_reactor(|request: Request<'_>, reply: Reply| reply.end(request.frame))?,
    }
    Ok(())
}

fn load(path: &str, depth: usize, bytes: usize, duration: Duration) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect(&path.parse::<Endpoint>()?, ClientOptions::default())?;
    let payload = vec![7; bytes];
    let mut calls = VecDeque::new();
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < duration {
        for _ in 0..64 {
            while calls.len() < depth {
                calls.push_back(client.call(&payload, CallOptions::default())?);
            }
            if let Some(call) = calls.pop_front() {
                assert_eq!(client.wait(call)?.len(), bytes, "an echo is as long as its call");
                count += 1;
            }
        }
    }
    let took = began.elapsed();
    println!(
        "{:>10.0} calls/s  {:>8.2} us/call",
        count as f64 / took.as_secs_f64(),
        took.as_micros() as f64 / count as f64
    );
    Ok(())
}
