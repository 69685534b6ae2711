//! Bytes to messages and back, sans-io. Owns every wire format; never knows time, files or sockets.
#![forbid(unsafe_code)]

pub mod exchange;
