//! Typed services for Zig: clients and concurrent servers over Unix sockets and shared memory, driven by the program that owns
//! them, without a thread of their own. Types and methods come from `thalweg codegen --lang zig`; what stands here carries
//! their frames. Everything is a thin layer over the C interface: link `libthalweg` and the C library.

const faults = @import("faults.zig");

pub const Fault = faults.Fault;
pub const Retry = faults.Retry;
pub const Error = faults.Error;
pub const faultOf = faults.faultOf;
pub const errorOf = faults.errorOf;

pub const Client = @import("client.zig").Client;
pub const ClientOptions = @import("client.zig").ClientOptions;
pub const CallOptions = @import("client.zig").CallOptions;
pub const Server = @import("server.zig").Server;
pub const ServerOptions = @import("server.zig").ServerOptions;
pub const Stopper = @import("server.zig").Stopper;
pub const Reply = @import("server.zig").Reply;
pub const Incoming = @import("server.zig").Incoming;
pub const Answer = @import("server.zig").Answer;
pub const Spawned = @import("spawned.zig").Spawned;
pub const SpawnOptions = @import("spawned.zig").SpawnOptions;
pub const Exit = @import("spawned.zig").Exit;
pub const Rpc = @import("rpc.zig").Rpc;
pub const RpcOptions = @import("rpc.zig").RpcOptions;
pub const Dispatcher = @import("dispatch.zig").Dispatcher;

/// How long a turn may wait.
pub const Wait = union(enum) {
    /// Not at all.
    poll,
    /// So many milliseconds.
    ms: u31,
    /// As long as it takes.
    block,

    pub fn number(self: Wait) i64 {
        return switch (self) {
            .poll => 0,
            .ms => |ms| ms,
            .block => -1,
        };
    }
};

/// What went wrong last on this thread, in words, with what to do about it. Lent until the next function fails.
pub const detail = @import("code.zig").detail;
