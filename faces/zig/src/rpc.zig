//! A client of services by JSON-RPC over kept-alive connections. To be used from one thread at a time.

const std = @import("std");
const c = @import("c.zig");
const faults = @import("faults.zig");
const code = @import("code.zig");
const check = code.check;
const Wait = @import("thalweg.zig").Wait;
const Error = faults.Error;

/// As `thalweg.h` says; begin with `Rpc.defaults()`.
pub const RpcOptions = c.RpcOptions;

/// Calls the service at a URL, `http://host:port/rpc/name`.
pub const Rpc = struct {
    handle: *c.Rpc,

    /// A method and its parameters: a JSON array or object, or none.
    pub const Call = c.RpcCall;
    /// How calls are made.
    pub const Ask = c.RpcAsk;
    /// What came of calls: how many answers there are, or the fault that is why there are none and, in words, what to do
    /// about it. The words are lent until the client is used again.
    pub const Done = struct { call: u64, answers: usize, fault: ?faults.Fault, detail: [:0]const u8 };
    /// An answer, lent until the client is used again.
    pub const Answer = union(enum) {
        /// JSON.
        result: []const u8,
        /// What the server says is wrong, its fault if it is a server of ours, and what it says beside: JSON, or nothing.
        failure: struct { code: i64, fault: ?faults.Fault, message: [:0]const u8, data: []const u8 },
    };

    pub fn defaults() RpcOptions {
        return c.thalweg_rpc_defaults();
    }

    /// Connects with the first call.
    pub fn open(url: [:0]const u8, options: ?RpcOptions) Error!Rpc {
        var handle: ?*c.Rpc = null;
        try check(c.thalweg_rpc_open(url, if (options) |*given| given else null, &handle));
        return .{ .handle = handle.? };
    }

    /// Ends every connection. Calls under way are not heard of any more.
    pub fn close(self: *Rpc) void {
        c.thalweg_rpc_close(self.handle);
    }

    /// Another service over the same connections, for `Ask.target`.
    pub fn target(self: *Rpc, url: [:0]const u8) Error!u32 {
        var number: u32 = 0;
        try check(c.thalweg_rpc_target(self.handle, url, &number));
        return number;
    }

    /// Begins calls, which go together and leave with the next turn or wait.
    pub fn begin(self: *Rpc, calls: []const Call, ask: Ask) Error!u64 {
        var number: u64 = 0;
        try check(c.thalweg_rpc_begin(self.handle, calls.ptr, calls.len, &ask, &number));
        return number;
    }

    /// These calls are not awaited any more.
    pub fn cancel(self: *Rpc, number: u64) Error!void {
        try check(c.thalweg_rpc_cancel(self.handle, number));
    }

    /// Readable whenever a turn has something to do: for a loop of your own.
    pub fn descriptor(self: *Rpc) Error!c_int {
        var number: c_int = -1;
        try check(c.thalweg_rpc_descriptor(self.handle, &number));
        return number;
    }

    /// Writes what was begun and reads what came; how much there is to be taken. Nothing is waited for where there is something.
    pub fn turn(self: *Rpc, patience: Wait) Error!usize {
        var happened: usize = 0;
        try check(c.thalweg_rpc_turn(self.handle, patience.number(), &happened));
        return happened;
    }

    /// What came next, of whatever calls, their fault included; null until another turn.
    pub fn next(self: *Rpc) Error!?Done {
        var done: c.RpcDone = undefined;
        try check(c.thalweg_rpc_next(self.handle, &done));
        return if (done.call == 0) null else doneOf(&done);
    }

    /// Waits for what comes of calls; their fault is an error.
    pub fn wait(self: *Rpc, number: u64) Error!Done {
        var done: c.RpcDone = undefined;
        try check(c.thalweg_rpc_wait(self.handle, number, &done));
        try check(done.fault);
        return doneOf(&done);
    }

    /// One of the answers that were taken last, by the place of its call.
    pub fn answerAt(self: *Rpc, place: usize) Error!Answer {
        var answer: c.RpcAnswer = undefined;
        try check(c.thalweg_rpc_answer_at(self.handle, place, &answer));
        const json = if (answer.json) |bytes| bytes[0..answer.length] else "";
        if (!answer.is_error) return .{ .result = json };
        const message = std.mem.span(answer.message);
        return .{ .failure = .{ .code = answer.code, .fault = faultOf(answer.fault), .message = message, .data = json } };
    }

    /// Calls one method and waits for its answer.
    pub fn call(self: *Rpc, method: [:0]const u8, params: ?[:0]const u8) Error!Answer {
        const calls = [_]Call{.{ .method = method, .params = if (params) |given| given.ptr else null }};
        _ = try self.wait(try self.begin(&calls, .{}));
        return self.answerAt(0);
    }

    /// Asks whether the client's own service was made from the schema with this hash, as generated code has it.
    pub fn expectSchema(self: *Rpc, hash: *const [32]u8) Error!void {
        try check(c.thalweg_rpc_expect_schema(self.handle, hash));
    }

    /// What it has done so far.
    pub fn statistics(self: *const Rpc) c.RpcStatistics {
        return c.thalweg_rpc_statistics_of(self.handle);
    }

    fn doneOf(done: *const c.RpcDone) Done {
        if (done.fault != 0) code.forgetOwn();
        return .{
            .call = done.call,
            .answers = done.answers,
            .fault = faultOf(done.fault),
            .detail = std.mem.span(done.detail),
        };
    }

    fn faultOf(number: u16) ?faults.Fault {
        return if (number == 0) null else @enumFromInt(number);
    }
};
