//! A server, and the replies that its requests come with.

const std = @import("std");
const c = @import("c.zig");
const faults = @import("faults.zig");
const check = @import("code.zig").check;
const Wait = @import("thalweg.zig").Wait;
const Error = faults.Error;

/// As `thalweg.h` says.
pub const ServerOptions = struct {
    /// The `schema_hash` that was generated with the types; zeros fit any.
    schema: [32]u8 = @splat(0),
    /// The `error_tag` that was generated with the types.
    error_tag: ?[:0]const u8 = null,
    unsent_bytes_max: ?u64 = null,
    in_flight_bytes_max: ?u64 = null,
    drain_grace_ms: ?u64 = null,
    hello_within_ms: ?u64 = null,
    frame_bytes_max: ?u32 = null,
    ring_bytes_max: ?u32 = null,
    clients_max: ?u32 = null,
    in_flight_max: ?u32 = null,
    stream_credit: ?u32 = null,
    spin: bool = true,
    same_user_only: bool = true,

    fn inC(self: ServerOptions) c.ServerOptions {
        const of = c.thalweg_server_defaults();
        return .{
            .schema = self.schema,
            .error_tag = if (self.error_tag) |tag| tag.ptr else null,
            .unsent_bytes_max = self.unsent_bytes_max orelse of.unsent_bytes_max,
            .in_flight_bytes_max = self.in_flight_bytes_max orelse of.in_flight_bytes_max,
            .drain_grace_ms = self.drain_grace_ms orelse of.drain_grace_ms,
            .hello_within_ms = self.hello_within_ms orelse of.hello_within_ms,
            .frame_bytes_max = self.frame_bytes_max orelse of.frame_bytes_max,
            .ring_bytes_max = self.ring_bytes_max orelse of.ring_bytes_max,
            .clients_max = self.clients_max orelse of.clients_max,
            .in_flight_max = self.in_flight_max orelse of.in_flight_max,
            .stream_credit = self.stream_credit orelse of.stream_credit,
            .spin = self.spin,
            .same_user_only = self.same_user_only,
        };
    }
};

/// The right, and the duty, to answer one call: once, now or later, from any thread. `end`, `fail` and `drop` take it away.
pub const Reply = struct {
    handle: *c.Reply,

    /// Ends the call with a response's frame.
    pub fn end(self: Reply, frame: []const u8) void {
        _ = c.thalweg_reply_end(self.handle, frame.ptr, frame.len);
    }

    /// Ends the call with a fault and the service's error.
    pub fn fail(self: Reply, fault: faults.Fault, message: []const u8) void {
        _ = c.thalweg_reply_fail(self.handle, @intFromEnum(fault), message.ptr, message.len);
    }

    /// Ends the call as abandoned.
    pub fn drop(self: Reply) void {
        c.thalweg_reply_drop(self.handle);
    }

    /// Sends one item of a stream, and says whether to make another.
    pub fn item(self: Reply, frame: []const u8) c.Flow {
        return c.thalweg_reply_item(self.handle, frame.ptr, frame.len);
    }

    /// Whether the answer is not awaited any more.
    pub fn cancelled(self: Reply) bool {
        return c.thalweg_reply_cancelled(self.handle);
    }

    /// Has `wake` called with `of` once a stream may go on or the answer is not awaited any more; at once, on this thread,
    /// if it is so already. A credit, a cancellation and a client that is gone are seen, and told, by the thread that runs the
    /// server, which must not be held up. A `wake` that was given before is forgotten, and an answer forgets this one; of one
    /// that another thread has begun by then, `released` says when it is over: it is called once, from any thread, when
    /// `of` is not used any more.
    pub fn changed(self: Reply, wake: c.Call, of: ?*anyopaque, released: ?c.Call) void {
        _ = c.thalweg_reply_changed(self.handle, wake, of, released);
    }
};

/// A request that came.
pub const Incoming = struct {
    /// No two clients of a server have the same number.
    client: u64,
    /// Lent: until the next turn, or until the callback returns.
    frame: []const u8,
    /// Milliseconds until the answer is not wanted any more.
    deadline_ms: ?u63,
    /// Nothing else waits or is in flight, and no other client asked within the last millisecond: to answer
    /// at once delays no other call.
    alone: bool,
    reply: Reply,

    fn of(request: *const c.Request) ?Incoming {
        return .{
            .client = request.client,
            .frame = if (request.frame) |bytes| bytes[0..request.length] else &.{},
            .deadline_ms = if (request.deadline_ms < 0) null else @intCast(request.deadline_ms),
            .alone = request.alone,
            .reply = .{ .handle = request.reply orelse return null },
        };
    }
};

/// Where a serial handler's answer is put together.
pub const Answer = struct {
    handle: *c.Answer,

    /// Appends.
    pub fn write(self: Answer, bytes: []const u8) void {
        _ = c.thalweg_answer_write(self.handle, bytes.ptr, bytes.len);
    }
};

/// Stops a server, from any thread, and may outlive it.
pub const Stopper = struct {
    handle: *c.Stopper,

    /// The server takes nothing new; what has begun is answered, then its run returns.
    pub fn stop(self: Stopper) void {
        c.thalweg_stopper_stop(self.handle);
    }

    pub fn free(self: Stopper) void {
        c.thalweg_stopper_free(self.handle);
    }
};

/// Serves at endpoints. To be used from one thread at a time; stoppers and replies from any.
pub const Server = struct {
    handle: *c.Server,

    /// Listens. A path is taken over only from a server that is dead.
    pub fn open(endpoints: []const [*:0]const u8, options: ServerOptions) Error!Server {
        var handle: ?*c.Server = null;
        try check(c.thalweg_server_open(endpoints.ptr, endpoints.len, &options.inC(), &handle));
        return .{ .handle = handle.? };
    }

    /// Ends every connection and takes the paths away.
    pub fn close(self: *Server) void {
        c.thalweg_server_close(self.handle);
    }

    /// Answers one request after the other, until the server is stopped.
    pub fn run(
        self: *Server,
        context: anytype,
        comptime handle: fn (@TypeOf(context), request: []const u8, answer: Answer) void,
    ) Error!void {
        const Of = @TypeOf(context);
        const answer = struct {
            fn answer(to: ?*anyopaque, frame: ?[*]const u8, length: usize, out: *c.Answer) callconv(.c) void {
                const of: *const Of = @ptrCast(@alignCast(to.?));
                handle(of.*, if (frame) |bytes| bytes[0..length] else &.{}, .{ .handle = out });
            }
        }.answer;
        try check(c.thalweg_server_run(self.handle, answer, @ptrCast(@constCast(&context))));
    }

    /// Hands requests out as they come, until the server is stopped; returns when everything that was handed out has been
    /// answered.
    pub fn runReactor(
        self: *Server,
        context: anytype,
        comptime take: fn (@TypeOf(context), incoming: Incoming) void,
    ) Error!void {
        const Of = @TypeOf(context);
        const taken = struct {
            fn taken(to: ?*anyopaque, request: *const c.Request) callconv(.c) void {
                const of: *const Of = @ptrCast(@alignCast(to.?));
                take(of.*, Incoming.of(request).?);
            }
        }.taken;
        try check(c.thalweg_server_run_reactor(self.handle, taken, @ptrCast(@constCast(&context))));
    }

    /// Reads, writes and waits: then `next` has the requests that came. Says how much happened.
    pub fn turn(self: *Server, wait: Wait) Error!usize {
        var happened: usize = 0;
        try check(c.thalweg_server_turn(self.handle, wait.number(), &happened));
        return happened;
    }

    /// The next request that came, until there is none. A foreign loop asks until then, whatever became of a request: only
    /// then do answers leave, and does the descriptor tell of what comes.
    pub fn next(self: *Server) Error!?Incoming {
        var request: c.Request = undefined;
        try check(c.thalweg_server_next(self.handle, &request));
        return Incoming.of(&request);
    }

    /// For a foreign loop: readable whenever a turn that polls has something to do.
    pub fn descriptor(self: *const Server) c_int {
        return c.thalweg_server_descriptor(self.handle);
    }

    pub fn stopper(self: *const Server) Error!Stopper {
        var handle: ?*c.Stopper = null;
        try check(c.thalweg_server_stopper(self.handle, &handle));
        return .{ .handle = handle.? };
    }

    /// Whether it was stopped and everything that was begun is answered: the end of a loop of turns.
    pub fn isStopped(self: *const Server) bool {
        return c.thalweg_server_is_stopped(self.handle);
    }

    pub fn statistics(self: *const Server) c.ServerStatistics {
        return c.thalweg_server_statistics_of(self.handle);
    }
};
