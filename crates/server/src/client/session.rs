//! A kept-alive connection to one server, opened again where that is safe.

use super::connection::{Connection, Head};
use super::failure::Failure;
use super::url::Url;

/// Requests to one server, one after the other.
#[derive(Debug)]
pub(super) struct Session {
    url: Url,
    connection: Option<Connection>,
    /// The connection takes another request once the body was read.
    keep_alive: bool,
}

impl Session {
    /// Connects with the first request.
    pub(super) fn new(url: &Url) -> Self {
        Self { url: url.clone(), connection: None, keep_alive: false }
    }

    /// Sends a request and reads the head of its response.
    ///
    /// A kept connection may have been closed by the server meanwhile. Then whatever may be sent twice is:
    /// everything but `POST`, which is for [`super::producer`] to judge.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub(super) fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Head, Failure> {
        if let Some(kept) = self.connection.take().filter(|kept| self.keep_alive && kept.is_done()) {
            match self.ask_on(kept, method, target, fields, body) {
                Err(Failure::Broken(_)) if method != "POST" => {}
                outcome => return outcome,
            }
        }
        let fresh = Connection::open(&self.url)?;
        self.ask_on(fresh, method, target, fields, body)
    }

    fn ask_on(
        &mut self,
        mut connection: Connection,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Head, Failure> {
        let head = connection.ask(method, target, fields, body)?;
        self.keep_alive = head.keep_alive;
        self.connection = Some(connection);
        Ok(head)
    }

    /// The body of the response whose head was read last, whole.
    ///
    /// # Errors
    /// [`Failure::Broken`] when the connection ends in the middle of it.
    pub(super) fn body(&mut self) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        if let Some(connection) = &mut self.connection {
            while connection.read_some(&mut body)? {}
        }
        Ok(body)
    }
}
