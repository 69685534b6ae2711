//! ZeroMQ over its `ipc` transport: DEALER to ROUTER, each with its own thread for the socket.

use crate::{Failure, Measured, Work, ready, same};
use std::path::Path;

fn address(directory: &Path) -> String {
    format!("ipc://{}", directory.join("zmq").display())
}

pub(crate) fn measure(work: Work, directory: &Path) -> Result<Measured, Failure> {
    let context = zmq::Context::new();
    let socket = context.socket(zmq::DEALER)?;
    socket.connect(&address(directory))?;
    let message = vec![7_u8; work.bytes];
    let measured = work.repeat(|| {
        for _ in 0..work.depth {
            socket.send(&message, 0)?;
        }
        for _ in 0..work.depth {
            same(&message, &socket.recv_bytes(0)?)?;
        }
        Ok(work.depth as u64)
    })?;
    // An empty message asks the far end to stop.
    socket.send("", 0)?;
    socket.recv_bytes(0)?;
    Ok(measured)
}

pub(crate) fn serve(directory: &Path) -> Result<(), Failure> {
    let context = zmq::Context::new();
    let socket = context.socket(zmq::ROUTER)?;
    socket.bind(&address(directory))?;
    ready(|| {})?;
    loop {
        let from = socket.recv_bytes(0)?;
        let message = socket.recv_bytes(0)?;
        socket.send(from, zmq::SNDMORE)?;
        let over = message.is_empty();
        socket.send(message, 0)?;
        if over {
            return Ok(());
        }
    }
}
