//! A listener, as one reactor of several watches it.

mod common;

use common::{Shared, TestService};
use std::sync::{Arc, Mutex};
use thalweg_http::{Config, Http, Listening};
use thalweg_reactor::{Handler, Interest, Reactor};
use thalweg_transport::Listener;

#[test]
fn a_listener_is_watched_after_a_pause_as_it_was_before() {
    for (shared, interest) in [(false, Interest::READ), (true, Interest::SHARED_LISTENER)] {
        let descriptor = Listener::tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0).into_parts().0;
        let listening =
            Listening { descriptor, shared, identity: None, same_user_only: false, known_hosts_only: false };
        let service = TestService { shared: Arc::<Mutex<Shared>>::default() };
        let mut reactor = Reactor::new(thalweg_reactor::Config::default(), |core| {
            Http::new(core, service, Config::default(), vec![listening])
        })
        .unwrap();
        let (core, http) = reactor.parts();
        let listener = core.keys().find(|key| core.interest(*key) == Some(interest)).unwrap();
        // What it is when no descriptor is left, until its timer comes.
        core.set_interest(listener, Interest::NONE).unwrap();
        http.timer(core, listener);
        assert_eq!(core.interest(listener), Some(interest));
    }
}
