//! A client: one connection, many calls at once. It is the transport of both generated clients, the one that waits and the
//! pipeline.

const std = @import("std");
const c = @import("c.zig");
const faults = @import("faults.zig");
const code = @import("code.zig");
const check = code.check;
const Wait = @import("thalweg.zig").Wait;
const Error = faults.Error;

/// As `thalweg.h` says.
pub const ClientOptions = struct {
    /// The `schema_hash` that was generated with the types; zeros fit any.
    schema: [32]u8 = @splat(0),
    connect_within_ms: ?u64 = null,
    deadline_ms: u64 = 0,
    reconnect_first_ms: u64 = 0,
    reconnect_most_ms: u64 = 0,
    unsent_bytes_max: ?u64 = null,
    in_flight_max: ?u32 = null,
    frame_bytes_max: ?u32 = null,
    ring_bytes: u32 = 0,
    shared: bool = false,
    spin: bool = true,
    plain: bool = false,
    same_user_only: bool = true,

    pub fn inC(self: ClientOptions) c.ClientOptions {
        const of = c.thalweg_client_defaults();
        return .{
            .schema = self.schema,
            .connect_within_ms = self.connect_within_ms orelse of.connect_within_ms,
            .deadline_ms = self.deadline_ms,
            .reconnect_first_ms = self.reconnect_first_ms,
            .reconnect_most_ms = self.reconnect_most_ms,
            .unsent_bytes_max = self.unsent_bytes_max orelse of.unsent_bytes_max,
            .in_flight_max = self.in_flight_max orelse of.in_flight_max,
            .frame_bytes_max = self.frame_bytes_max orelse of.frame_bytes_max,
            .ring_bytes = self.ring_bytes,
            .shared = self.shared,
            .spin = self.spin,
            .plain = self.plain,
            .same_user_only = self.same_user_only,
        };
    }
};

/// What one call may be given, instead of what the client's options, and the server, say.
pub const CallOptions = struct {
    /// How long the answer is wanted; at 0 that time has passed already.
    deadline_ms: ?u64 = null,
    /// Of a stream: how many items may come before more are granted. 0 is what the server says.
    credit: u32 = 0,

    pub fn inC(self: CallOptions) c.CallOptions {
        // 0 is none to C: one that has passed already is as short as one can be.
        return .{ .deadline_ms = if (self.deadline_ms) |ms| @max(ms, 1) else 0, .credit = self.credit };
    }
};

/// Calls a service. To be used from one thread at a time.
pub const Client = struct {
    handle: *c.Client,
    next_call: CallOptions = .{},
    /// The call that `receive` is about, and how many of its stream's items were taken and not granted anew.
    waited: Begun = .{ .call = 0, .credit = 0 },
    taken: u32 = 0,

    /// A call that has begun, and how many items a stream may bring before it is granted more.
    pub const Begun = struct { call: u64, credit: u32 };

    /// Connects to `*.sock` or `*.shm`, trying again for as long as the options say.
    pub fn open(endpoint: [:0]const u8, options: ClientOptions) Error!Client {
        var handle: ?*c.Client = null;
        try check(c.thalweg_client_open(endpoint, &options.inC(), &handle));
        return .{ .handle = handle.? };
    }

    /// Ends the connection. Calls in flight are not heard of any more.
    pub fn close(self: *Client) void {
        c.thalweg_client_close(self.handle);
    }

    /// Gives the next call, and no other, what it says here. A call whose request cannot be written was the next one, too.
    pub fn with(self: *Client, options: CallOptions) void {
        self.next_call = options;
    }

    /// The next call's request could not be written.
    pub fn unsent(self: *Client) void {
        self.next_call = .{};
    }

    /// Items that a new stream may bring before it is granted more; 0 where streams know no credit, and while there is no
    /// connection.
    pub fn credit(self: *const Client) u32 {
        return self.state().credit;
    }

    /// Begins a call, which leaves with the next flush, turn or wait.
    pub fn begin(self: *Client, frame: []const u8) Error!Begun {
        return self.beginAs(frame, false);
    }

    /// The same of a call that one frame answers: an item of a stream ends it as `error.BadAnswer`.
    pub fn beginAsk(self: *Client, frame: []const u8) Error!Begun {
        return self.beginAs(frame, true);
    }

    fn beginAs(self: *Client, frame: []const u8, unary: bool) Error!Begun {
        const options = self.next_call;
        self.next_call = .{};
        var given = options.inC();
        given.unary = unary;
        var call: u64 = 0;
        try check(c.thalweg_client_call(self.handle, frame.ptr, frame.len, &given, &call));
        return .{ .call = call, .credit = if (options.credit > 0) options.credit else self.credit() };
    }

    /// Waits for the call's next frame, which is lent until the next call of this client's methods.
    pub fn wait(self: *Client, call: u64) Error![]const u8 {
        var event: c.Event = undefined;
        try check(c.thalweg_client_wait(self.handle, call, &event));
        return frameOf(&event);
    }

    /// The call's next frame if it has come; nothing until another turn, or when there is no such call.
    pub fn take(self: *Client, call: u64) Error!?[]const u8 {
        var event: c.Event = undefined;
        try check(c.thalweg_client_take(self.handle, call, &event));
        return if (event.kind == .nothing) null else try frameOf(&event);
    }

    /// Lets a stream send so many items more.
    pub fn grant(self: *Client, call: u64, items: u32) void {
        _ = c.thalweg_client_grant(self.handle, call, items);
    }

    /// Says that the answer is not awaited any more. The call still ends, usually as `error.Cancelled`; what an answer names that
    /// was faster may be gone, because a server may take it back.
    pub fn cancel(self: *Client, call: u64) void {
        _ = c.thalweg_client_cancel(self.handle, call);
    }

    /// Cancels the call and never hears of it again.
    pub fn forget(self: *Client, call: u64) void {
        _ = c.thalweg_client_forget(self.handle, call);
    }

    /// Sends a request whose answer `receive` waits for, by the call's number. A stream before it that was not read to its end
    /// is left.
    pub fn send(self: *Client, frame: []const u8) Error!u64 {
        return self.sendAs(frame, false);
    }

    /// The same of a request that one frame answers.
    pub fn ask(self: *Client, frame: []const u8) Error!u64 {
        return self.sendAs(frame, true);
    }

    fn sendAs(self: *Client, frame: []const u8, unary: bool) Error!u64 {
        if (self.waited.call != 0) self.forget(self.waited.call);
        self.waited.call = 0;
        self.waited = try self.beginAs(frame, unary);
        self.taken = 0;
        return self.waited.call;
    }

    /// Leaves the call that was sent last, if this is it: nothing more comes of it, and the server is told at once.
    pub fn leave(self: *Client, call: u64) void {
        if (call == 0 or self.waited.call != call) return;
        self.waited.call = 0;
        self.forget(call);
        // A connection that cannot be written to shows in the next call.
        self.flush() catch {};
    }

    /// Waits for the next frame of what was sent last, if this is the call.
    pub fn receive(self: *Client, call: u64) Error![]const u8 {
        if (call == 0 or call != self.waited.call) {
            return code.failure(error.Cancelled, "another call was made on this client, or this one has ended");
        }
        var event: c.Event = undefined;
        try check(c.thalweg_client_wait(self.handle, call, &event));
        if (event.kind != .item) {
            self.waited.call = 0;
            return frameOf(&event);
        }
        self.taken += 1;
        // Of a stream that was begun while there was no connection it is known since there is one.
        if (self.waited.credit == 0) self.waited.credit = self.credit();
        if (self.taken > self.waited.credit / 2) {
            self.grant(self.waited.call, self.taken);
            self.taken = 0;
        }
        return frameOf(&event);
    }

    /// Writes what is queued, as far as it can be now.
    pub fn flush(self: *Client) Error!void {
        try check(c.thalweg_client_flush(self.handle));
    }

    /// Writes what is queued, waits as it may for something to come, and reads it. Says how much happened. It does not wait
    /// while something is there that was not taken, of whatever call: beside `take`, use `turnFor`.
    pub fn turn(self: *Client, how: Wait) Error!usize {
        var happened: usize = 0;
        try check(c.thalweg_client_turn(self.handle, how.number(), &happened));
        return happened;
    }

    /// A turn for one call: what came of others, and was not taken, does not keep it from waiting.
    pub fn turnFor(self: *Client, call: u64, how: Wait) Error!usize {
        var happened: usize = 0;
        try check(c.thalweg_client_turn_for(self.handle, call, how.number(), &happened));
        return happened;
    }

    /// For a foreign loop: readable whenever a turn that polls has something to do. One such turn comes first, and one
    /// after each round of calls. What was read and not taken it does not tell of, until a `flush`.
    pub fn descriptor(self: *Client) Error!c_int {
        var number: c_int = -1;
        try check(c.thalweg_client_descriptor(self.handle, &number));
        return number;
    }

    /// Calls that have not ended, credit of new streams, whether frames go through shared memory, whether it is connected.
    pub fn state(self: *const Client) c.ClientState {
        return c.thalweg_client_state_of(self.handle);
    }

    /// A refusal is the service's own answer: its words are in the frame.
    fn frameOf(event: *const c.Event) Error![]const u8 {
        const fault: faults.Fault = @enumFromInt(event.fault);
        const frame: []const u8 = if (event.frame) |bytes| bytes[0..event.length] else &.{};
        if (event.kind == .failed and !(fault == .refused and frame.len > 0)) return code.behind(fault);
        return frame;
    }
};
