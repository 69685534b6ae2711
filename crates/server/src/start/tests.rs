//! What is opened before a store is made.

use super::{Addresses, Intent, ListenAddress};
use crate::config::Configuration;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;

fn addresses(data: &Path, listen: &str) -> Addresses {
    let data = format!("--data={}", data.display());
    let line = ["thalweg", "serve", &data, "--listen", listen].map(Into::into);
    let configuration = Configuration::load(&line).unwrap();
    let plan = Intent::of(&configuration).unwrap().plan;
    Addresses::before_store(&plan, &configuration.options).unwrap()
}

#[test]
fn nobody_takes_an_address_between_the_look_at_it_and_a_new_store() {
    let directory = tempfile::tempdir().unwrap();
    let (data, socket) = (directory.path().join("new/data"), directory.path().join("s.sock"));
    let within = directory.path().join("new/s.sock");
    let listen = format!("127.0.0.1:0,unix:{},unix:{}", socket.display(), within.display());
    let mut opened = addresses(&data, &listen);
    let ListenAddress::Tcp(address) = opened.streams.addresses[0] else { panic!("not TCP") };
    assert_eq!(TcpListener::bind(address).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert!(UnixStream::connect(&socket).is_ok(), "it is listened at");
    assert!(!directory.path().join("new").exists(), "nothing is made for that");
    assert_eq!(opened.left, [vec![ListenAddress::Unix(within.clone())], vec![]]);
    std::fs::create_dir_all(&data).unwrap();
    opened.behind_store().unwrap();
    assert_eq!((opened.streams.addresses.len(), within.exists()), (3, true));
}

#[test]
fn nobody_waits_for_a_store_that_is_opened_first() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    std::fs::write(directory.path().join("control"), "").unwrap();
    let opened = addresses(directory.path(), &format!("unix:{}", socket.display()));
    assert_eq!((opened.left[0].len(), socket.exists()), (1, false));
}
