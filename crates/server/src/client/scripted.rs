//! A server that says what a test has it say: one request a connection, whole, and one answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Serves for as long as the test's process lives, and says where. `answer` gets a request's method and
/// target.
pub(super) fn serve<A: Into<Vec<u8>>>(mut answer: impl FnMut(&str) -> A + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let asked = request(&stream);
            stream.write_all(&answer(&asked).into()).unwrap();
        }
    });
    url
}

/// An answer with a body of known length, after which the connection ends.
pub(super) fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!("HTTP/1.1 {status} \r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

/// The method and the target of a request, which is read to its end: one that is not resets the connection.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut asked = String::new();
    reader.read_line(&mut asked).unwrap();
    let mut left = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(length) = line.strip_prefix("content-length: ") {
            left = length.parse().unwrap();
        }
    }
    std::io::copy(&mut reader.take(left), &mut std::io::sink()).unwrap();
    asked.trim_end().trim_end_matches(" HTTP/1.1").to_owned()
}
