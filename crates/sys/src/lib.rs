//! Every system call Thalweg makes, behind safe functions, and a simulated twin of the disk.
//!
//! Owns: the only mention of `rustix`, `libc` and `io-uring` in the workspace. Readiness ([`epoll`],
//! [`event`]), sockets ([`socket`]), many of them at once ([`send_ring`]), and their names ([`name`]), clocks
//! ([`clock`]), signals ([`signal`]), limits and entropy ([`process`]), files and maps (`disk`), sleeping on
//! a word of a map ([`futex`]), hints to the processor ([`hint`]) and its checksum ([`checksum`]), what a
//! supervisor hands over ([`systemd`]), other programs ([`child`]), and a process that goes on twice
//! ([`fork`]).
//!
//! Never knows: what a byte means, who waits for it, any policy. A function here is one system call, or
//! the fixed few that make one thing (a listener, a descriptor for signals); retrying, batching and
//! buffering belong above.
//!
//! `unsafe` appears only where the kernel's interface, or the processor's, has no safe wrapper, each time
//! with its argument.
//!
//! Linux on x86-64 and aarch64.

#[cfg(not(target_os = "linux"))]
compile_error!("thalweg-sys speaks to Linux (epoll, eventfd, signalfd); no other kernel is supported yet");

mod again;
pub mod bell;
pub mod checksum;
pub mod child;
pub mod clock;
pub mod code;
pub mod datagram;
pub mod disk;
pub mod epoll;
pub mod event;
pub mod fork;
pub mod futex;
pub mod handover;
pub mod hint;
pub mod machine;
pub mod memory;
pub mod name;
pub mod nested;
pub mod process;
pub mod send_ring;
pub mod signal;
pub mod socket;
pub mod spawn;
pub mod standard;
pub mod systemd;
pub mod usage;
