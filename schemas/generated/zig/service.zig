//! What stands between generated code and whoever carries its frames: a transport under a client, a `Reply` under a
//! server. Generated code speaks these words, transports execute them, neither sees the other.
//!
//! A transport is any type with `send(self, frame: []const u8) !void` and `receive(self) ![]const u8`; what `receive`
//! returns is valid until the next call.

const std = @import("std");
const mp = @import("messagepack.zig");
const Allocator = std.mem.Allocator;

/// What a call brings: the response, or the words of the server's error.
pub fn Answer(comptime Response: type) type {
    return union(enum) { ok: Response, refused: []const u8 };
}

/// What a stream brings next.
pub fn Next(comptime Item: type, comptime Response: type) type {
    return union(enum) { item: Item, end: Response, refused: []const u8 };
}

/// Reads the frame that answers a call.
pub fn answer(
    comptime Response: type,
    comptime Error: type,
    arena: Allocator,
    frame: []const u8,
) mp.DecodeError!Answer(Response.T) {
    const table = .{ .{ "ok", Response }, .{ "failed", Error } };
    const Of = union(enum) { ok: Response.T, failed: Error.T };
    return switch (try mp.Sum(Of, .response, table).decode(arena, frame)) {
        .ok => |response| .{ .ok = response },
        .failed => |failed| .{ .refused = failed.message },
    };
}

/// A stream being read.
pub fn Items(comptime Transport: type, comptime Item: type, comptime Response: type, comptime Error: type) type {
    return struct {
        transport: *Transport,

        /// What comes next; nothing does after the end.
        pub fn next(self: @This(), arena: Allocator) !Next(Item.T, Response.T) {
            const table = .{ .{ "item", Item }, .{ "end", Response }, .{ "failed", Error } };
            const Of = union(enum) { item: Item.T, end: Response.T, failed: Error.T };
            return switch (try mp.Sum(Of, .response, table).decode(arena, try self.transport.receive())) {
                .item => |item| .{ .item = item },
                .end => |response| .{ .end = response },
                .failed => |failed| .{ .refused = failed.message },
            };
        }
    };
}

/// Where a server's frames for one request go.
pub const Reply = struct {
    context: *anyopaque,
    /// Sends one item of a stream. False says that nobody waits for more.
    item_fn: *const fn (context: *anyopaque, frame: []const u8) bool,
    /// Sends the frame that ends the call. Called once.
    end_fn: *const fn (context: *anyopaque, frame: []const u8) void,
};

/// Answers one request, once, now or later, from any thread. Zig runs nothing when a value goes out of scope, so each
/// responder has to be answered by hand, on every path.
pub fn Responder(comptime Response: type, comptime Item: type, comptime Error: type) type {
    return struct {
        reply: Reply,
        allocator: Allocator,

        /// Answers; a stream ends with it.
        pub fn ok(self: @This(), response: Response.T) mp.EncodeError!void {
            var writer: mp.Writer = .{ .allocator = self.allocator };
            defer writer.deinit();
            try mp.frameOf(false, Response, &writer, response);
            self.reply.end_fn(self.reply.context, writer.written());
        }

        /// Answers with the service's error.
        pub fn err(self: @This(), message: []const u8) mp.EncodeError!void {
            return fail(Error, self.allocator, self.reply, message);
        }

        /// Sends one item of a stream. False says that nobody waits for more.
        pub fn item(self: @This(), value: Item.T) mp.EncodeError!bool {
            var writer: mp.Writer = .{ .allocator = self.allocator };
            defer writer.deinit();
            try mp.frameOf(false, Item, &writer, value);
            return self.reply.item_fn(self.reply.context, writer.written());
        }
    };
}

/// Ends a call with the service's error.
pub fn fail(comptime Error: type, allocator: Allocator, reply: Reply, message: []const u8) mp.EncodeError!void {
    var writer: mp.Writer = .{ .allocator = allocator };
    defer writer.deinit();
    try mp.frameOf(false, Error, &writer, .{ .message = message });
    reply.end_fn(reply.context, writer.written());
}

/// What a call does to its fork, for servers that order calls per fork.
pub const Access = enum { unordered, read_committed, read, write };

/// Which fork: none, by number (a negative one as its two's complement), or by text or bytes.
pub const Fork = union(enum) { none, number: u64, bytes: []const u8 };
