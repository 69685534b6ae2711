//! A blocking HTTP/1.1 client, small enough to be trusted by the judges that use it. One connection, kept
//! alive; a reply is read whole. It never retries: what the server did not answer was not answered.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One kept-alive connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// A whole reply.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Status code.
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    /// The body, transfer coding removed.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// A reply that no server gave.
    #[cfg(test)]
    pub(crate) fn for_test(status: u16, fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Self { status, fields, body: Vec::new() }
    }

    /// The first field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|e| e.to_string())?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request without waiting for anything.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn send(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), String> {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || matches!(method, "PUT" | "POST") {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.send_raw(&bytes)
    }

    /// Sends bytes as they are, whatever they mean.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.get_mut().write_all(bytes).map_err(|e| format!("send: {e}"))
    }

    /// Sends a request and reads its reply.
    ///
    /// # Errors
    /// The connection broke before the reply was whole.
    pub(crate) fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Reply, String> {
        self.send(method, target, fields, body)?;
        if method == "HEAD" { self.read_head() } else { self.read_reply() }
    }

    /// Reads a whole reply, to anything but HEAD.
    ///
    /// # Errors
    /// The connection broke before the reply was whole.
    pub(crate) fn read_reply(&mut self) -> Result<Reply, String> {
        let mut reply = self.read_head()?;
        if !matches!(reply.status, 204 | 304) {
            reply.body = self.read_body(&reply)?;
        }
        Ok(reply)
    }

    /// Reads a reply's head; the body is left on the connection.
    ///
    /// # Errors
    /// The connection broke, or what came is no head.
    pub(crate) fn read_head(&mut self) -> Result<Reply, String> {
        let line = self.read_line()?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.ok_or_else(|| format!("not a status line: {line:?}"))?;
        let mut fields = Vec::new();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Ok(Reply { status, fields, body: Vec::new() });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| format!("not a field: {line:?}"))?;
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Reads until `mark` has passed, and drops what was read.
    ///
    /// # Errors
    /// The connection ended first.
    pub(crate) fn skip_past(&mut self, mark: &[u8]) -> Result<(), String> {
        let mut seen = Vec::new();
        while !seen.ends_with(mark) {
            let mut byte = [0_u8; 1];
            self.stream.read_exact(&mut byte).map_err(|e| format!("receive: {e}"))?;
            seen.push(byte[0]);
        }
        Ok(())
    }

    /// Gives up the read buffer and keeps the socket, for connections that only have to exist.
    pub(crate) fn into_socket(self) -> TcpStream {
        self.stream.into_inner()
    }

    fn read_body(&mut self, reply: &Reply) -> Result<Vec<u8>, String> {
        if reply.field("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
            return self.read_chunks();
        }
        let length = reply.field("content-length").ok_or("a body without its length")?;
        let length: usize = length.parse().map_err(|_| format!("Content-Length: {length}"))?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(|e| format!("receive: {e}"))?;
        Ok(body)
    }

    fn read_chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line()?;
            let length =
                usize::from_str_radix(&line, 16).map_err(|_| format!("not a chunk length: {line:?}"))?;
            let start = body.len();
            body.resize(start + length, 0);
            self.stream.read_exact(&mut body[start..]).map_err(|e| format!("receive: {e}"))?;
            if !self.read_line()?.is_empty() {
                return Err("a chunk without its end".to_owned());
            }
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn read_line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).map_err(|e| format!("receive: {e}"))?;
        if line.pop() != Some(b'\n') {
            return Err("the connection ended".to_owned());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answered_by(reply: &'static [u8]) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(reply).unwrap();
        });
        Connection::open(address).unwrap()
    }

    #[test]
    fn a_body_with_a_length_is_read_whole() {
        let mut c = answered_by(b"HTTP/1.1 200 OK\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nhello");
        let reply = c.request("GET", "/", &[], b"").unwrap();
        assert_eq!(
            (reply.status, reply.field("x-one"), reply.body.as_slice()),
            (200, Some("1"), &b"hello"[..])
        );
    }

    #[test]
    fn a_chunked_body_is_joined() {
        let mut c = answered_by(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n",
        );
        assert_eq!(c.request("GET", "/", &[], b"").unwrap().body, b"abc0123456789");
    }

    #[test]
    fn a_torn_reply_is_no_reply() {
        let mut c = answered_by(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
        assert!(c.request("GET", "/", &[], b"").is_err());
        let mut c = answered_by(b"HTTP/1.1 200 OK\r\nContent-Le");
        assert!(c.request("GET", "/", &[], b"").is_err());
    }
}
