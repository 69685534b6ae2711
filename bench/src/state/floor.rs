//! What the machine allows: the same read behind a bare socket, with a thread for each connection. A byte
//! asks for it and the count answers: one wake there and one back, and nothing done to either.

use crate::Failure;
use crate::near::count_until;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use thalweg_state::State;

/// The name of the socket that it is served at.
pub(crate) const SOCKET: &str = "floor.sock";

/// Serves reads of a state up to a key that each connection names first, until the process ends.
///
/// # Errors
/// The socket cannot be made.
pub(crate) fn serve(path: &Path, state: State) -> Result<(), Failure> {
    let listener = UnixListener::bind(path)?;
    let state = Arc::new(state);
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let state = Arc::clone(&state);
            // A connection that ends ends its thread.
            std::thread::spawn(move || answer(connection, &state));
        }
    });
    Ok(())
}

fn answer(mut connection: UnixStream, state: &State) -> Result<(), Failure> {
    let mut length = [0];
    connection.read_exact(&mut length)?;
    let mut until = vec![0; usize::from(length[0])];
    connection.read_exact(&mut until)?;
    let until = String::from_utf8(until)?;
    let mut asked = [0];
    loop {
        connection.read_exact(&mut asked)?;
        connection.write_all(&count_until(state, state.main(), &until)?.to_ne_bytes())?;
    }
}

/// A client of it.
pub(crate) struct Floor(UnixStream);

impl Floor {
    /// Connects, and says up to which key it will read.
    ///
    /// # Errors
    /// Nobody serves there.
    pub(crate) fn connect(path: &Path, until: &str) -> Result<Self, Failure> {
        let mut stream = UnixStream::connect(path)?;
        stream.write_all(&[u8::try_from(until.len())?])?;
        stream.write_all(until.as_bytes())?;
        Ok(Self(stream))
    }

    /// One read.
    ///
    /// # Errors
    /// The server is gone.
    pub(crate) fn read(&mut self) -> Result<u64, Failure> {
        let mut count = [0; 8];
        self.0.write_all(&[1])?;
        self.0.read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}
