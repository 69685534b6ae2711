//! A handler that is told things by other threads.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::sync::mpsc::{Receiver, channel};
use thalweg_service::{
    CallOptions, Client, ClientOptions, Endpoint, Handler, Reply, Request, Server, ServerOptions,
};

/// Answers with what it is told, in the order of asking.
struct Told {
    news: Receiver<Vec<u8>>,
    waiting: Vec<Reply>,
}

impl Told {
    fn answer(&mut self) {
        while let Some(reply) = self.waiting.pop() {
            match self.news.try_recv() {
                Ok(news) => reply.end(&news),
                Err(_) => return self.waiting.push(reply),
            }
        }
    }
}

impl Handler for Told {
    fn request(&mut self, _: Request<'_>, reply: Reply) {
        self.waiting.insert(0, reply);
        self.answer();
    }

    fn notified(&mut self) {
        self.answer();
    }
}

#[test]
fn a_handler_that_is_notified_finds_what_it_was_told() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["told.sock", "told.shm"] {
        let endpoint: Endpoint = directory.path().join(name).to_str().unwrap().parse().unwrap();
        let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default()).unwrap();
        let (notifier, stopper) = (server.notifier(), server.stopper());
        let (tell, news) = channel();
        let running = std::thread::spawn(move || server.serve(Told { news, waiting: Vec::new() }));
        let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        for round in 0..200_u32 {
            let call = client.call(b"?", CallOptions::default()).unwrap();
            client.flush().unwrap();
            tell.send(round.to_le_bytes().to_vec()).unwrap();
            notifier.notify();
            assert_eq!(client.wait(call).unwrap(), round.to_le_bytes());
        }
        stopper.stop();
        running.join().unwrap().unwrap();
    }
}
