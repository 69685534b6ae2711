//! A listener, as one reactor of several watches it.

mod common;

use common::{Shared, TestService};
use std::io::Read;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use thalweg_http::{Config, Http, ListenerSettings, Message};
use thalweg_reactor::{Handler, Interest, Reactor};
use thalweg_sys::epoll::wait_readable;
use thalweg_transport::Listener;

fn listening(descriptor: OwnedFd) -> ListenerSettings {
    ListenerSettings {
        descriptor,
        shared: false,
        handed_over: false,
        identity: None,
        same_user_only: false,
        known_hosts_only: false,
    }
}

fn reactor(listening: ListenerSettings) -> std::io::Result<Reactor<Http<TestService>>> {
    let service = TestService { shared: Arc::<Mutex<Shared>>::default() };
    let config = thalweg_reactor::Config::default();
    Reactor::new(config, |core| Http::new(core, service, Config::default(), vec![listening]))
}

#[test]
fn who_waits_at_a_listener_that_was_handed_over_is_left_to_whoever_listens_there_next() {
    for handed_over in [false, true] {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        let descriptor = listener.duplicate().unwrap();
        let mut reactor = reactor(ListenerSettings { handed_over, ..listening(descriptor) }).unwrap();
        let mut peer = TcpStream::connect(listener.local_address().unwrap()).unwrap();
        let (core, http) = reactor.parts();
        http.message(core, Message::Drain { grace_ms: 60_000 });
        assert_eq!(wait_readable(listener.as_fd(), 0).unwrap(), handed_over, "is the peer in the queue?");
        if !handed_over {
            // It was let in, and asks for nothing.
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        }
    }
}

#[test]
fn a_listener_is_watched_after_a_pause_as_it_was_before() {
    for (shared, interest) in [(false, Interest::READ), (true, Interest::SHARED_LISTENER)] {
        let descriptor = Listener::tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0).into_parts().0;
        let mut reactor = reactor(ListenerSettings { shared, ..listening(descriptor) }).unwrap();
        let (core, http) = reactor.parts();
        let listener = core.keys().find(|key| core.interest(*key) == Some(interest)).unwrap();
        // What it is when no descriptor is left, until its timer comes.
        core.set_interest(listener, Interest::NONE).unwrap();
        http.timer(core, listener);
        assert_eq!(core.interest(listener), Some(interest));
    }
}
