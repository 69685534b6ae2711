//! A service's program: started, waited for, tended and ended. The kernel kills it when the thread that started it ends.

const c = @import("c.zig");
const faults = @import("faults.zig");
const check = @import("code.zig").check;
const Client = @import("client.zig").Client;
const ClientOptions = @import("client.zig").ClientOptions;
const Error = faults.Error;

/// How a program is started, and what happens when it does not do as it should. As `thalweg.h` says.
pub const SpawnOptions = struct {
    arguments: []const [*:0]const u8 = &.{},
    /// `NAME=VALUE` each.
    environment: []const [*:0]const u8 = &.{},
    directory: ?[:0]const u8 = null,
    log: ?[:0]const u8 = null,
    ready_within_ms: ?u64 = null,
    end_within_ms: ?u64 = null,
    respawn_within_ms: ?u64 = null,
    respawn_most: u32 = 0,
    plain: bool = false,
    pipes: bool = false,

    fn inC(self: SpawnOptions) c.SpawnOptions {
        const of = c.thalweg_spawn_defaults();
        return .{
            .arguments = self.arguments.ptr,
            .arguments_count = self.arguments.len,
            .environment = self.environment.ptr,
            .environment_count = self.environment.len,
            .directory = if (self.directory) |text| text.ptr else null,
            .log = if (self.log) |text| text.ptr else null,
            .ready_within_ms = self.ready_within_ms orelse of.ready_within_ms,
            .end_within_ms = self.end_within_ms orelse of.end_within_ms,
            .respawn_within_ms = self.respawn_within_ms orelse of.respawn_within_ms,
            .respawn_most = self.respawn_most,
            .plain = self.plain,
            .pipes = self.pipes,
        };
    }
};

/// How a program ended.
pub const Exit = union(enum) {
    /// By itself, with this code.
    code: i32,
    /// By a signal of this number.
    signal: i32,
    /// Nobody knows how: this process ignores SIGCHLD, or waits elsewhere for all its children.
    unknown,

    fn of(exit: c.Exit) ?Exit {
        return switch (exit.kind) {
            .running => null,
            .code => .{ .code = exit.number },
            .signal => .{ .signal = exit.number },
            .unknown => .unknown,
        };
    }
};

/// A program that serves an endpoint.
pub const Spawned = struct {
    handle: *c.Spawned,

    /// Starts a program and waits until its endpoint answers. `thalweg.detail()` quotes the end of its log.
    pub fn start(program: [:0]const u8, endpoint: [:0]const u8, options: SpawnOptions) Error!Spawned {
        var handle: ?*c.Spawned = null;
        try check(c.thalweg_spawned_start(program, endpoint, &options.inC(), &handle));
        return .{ .handle = handle.? };
    }

    /// Ends it, as `stop` does.
    pub fn close(self: *Spawned) void {
        c.thalweg_spawned_close(self.handle);
    }

    /// Starts it anew if it ended and may be started: then how it had ended.
    pub fn tend(self: *Spawned) Error!?Exit {
        var exit: c.Exit = undefined;
        try check(c.thalweg_spawned_tend(self.handle, &exit));
        return Exit.of(exit);
    }

    /// Tends it, then connects. Over `-`, once.
    pub fn connect(self: *Spawned, options: ClientOptions) Error!Client {
        var handle: ?*c.Client = null;
        try check(c.thalweg_spawned_connect(self.handle, &options.inC(), &handle));
        return .{ .handle = handle.? };
    }

    /// Ends one that does not do as it should, and starts it anew.
    pub fn restart(self: *Spawned) Error!void {
        try check(c.thalweg_spawned_restart(self.handle));
    }

    /// Asks it to end, then makes it; how it ended.
    pub fn stop(self: *Spawned) Error!?Exit {
        var exit: c.Exit = undefined;
        try check(c.thalweg_spawned_stop(self.handle, &exit));
        return Exit.of(exit);
    }

    /// Readable when it ended; another one after it was started anew. -1 while there is none.
    pub fn descriptor(self: *const Spawned) c_int {
        return c.thalweg_spawned_descriptor(self.handle);
    }

    /// Its process; 0 while there is none.
    pub fn process(self: *const Spawned) u32 {
        return c.thalweg_spawned_process(self.handle);
    }
};
