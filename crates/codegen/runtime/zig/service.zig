//! What stands between generated code and what carries its frames: a transport under a client, a `Reply` under a
//! server. Generated code speaks these words, transports execute them, neither sees the other.
//!
//! A transport is any type with `send(self, frame: []const u8) !u64`, `receive(self, call: u64) ![]const u8` and
//! `leave(self, call: u64) void`. `send` names the call, which takes the place of the one before. What `receive` returns is
//! valid until the next call; of a call whose place another took it fails. `leave` says that nobody waits for more of a call,
//! if it has its place still and has not ended. A transport may have `unsent(self) void`, which is told of a request that could
//! not be written: what was said for it alone is said for none.

const std = @import("std");
const mp = @import("messagepack.zig");
pub const Fault = @import("faults.zig").Fault;
const Allocator = std.mem.Allocator;

/// What a call brings: the response, or the words of the server's error.
pub fn Answer(comptime Response: type) type {
    return union(enum) { ok: Response, refused: []const u8 };
}

/// What a stream brings next.
pub fn Next(comptime Item: type, comptime Response: type) type {
    return union(enum) { item: Item, end: Response, refused: []const u8 };
}

/// Tells a transport that the next request could not be written.
pub fn unsent(transport: anytype) void {
    if (@hasDecl(@TypeOf(transport.*), "unsent")) transport.unsent();
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

/// Reads a frame of a stream.
fn heard(
    comptime Item: type,
    comptime Response: type,
    comptime Error: type,
    arena: Allocator,
    frame: []const u8,
) mp.DecodeError!Next(Item.T, Response.T) {
    const table = .{ .{ "item", Item }, .{ "end", Response }, .{ "failed", Error } };
    const Of = union(enum) { item: Item.T, end: Response.T, failed: Error.T };
    return switch (try mp.Sum(Of, .response, table).decode(arena, frame)) {
        .item => |item| .{ .item = item },
        .end => |response| .{ .end = response },
        .failed => |failed| .{ .refused = failed.message },
    };
}

/// A stream being read. Who does not read it to its end closes it, or its call, and what that holds at the server, stays
/// until the next one.
pub fn Items(comptime Transport: type, comptime Item: type, comptime Response: type, comptime Error: type) type {
    return struct {
        transport: *Transport,
        call: u64,

        /// What comes next; nothing does after the end, or after an error. Another call on the same transport that waits leaves
        /// this stream.
        pub fn next(self: @This(), arena: Allocator) !Next(Item.T, Response.T) {
            const frame = try self.transport.receive(self.call);
            // Behind what cannot be read nobody waits for more.
            errdefer self.close();
            return heard(Item, Response, Error, arena, frame);
        }

        /// Leaves the stream, at once. Behind its end, and once another call was made, there is nothing to leave.
        pub fn close(self: @This()) void {
            self.transport.leave(self.call);
        }
    };
}

/// A call under way on a transport that carries many at once: one with a type `Begun` of `call`, a
/// number, and `credit`, the items that a stream may bring before it is granted more; `begin(self, frame) !Begun`;
/// `credit(self) u32`, that of a new stream, 0 where streams know none and as long as it is not known;
/// `wait(self, call) ![]const u8`, which waits for the call's next frame; `grant(self, call, items) void`; `cancel(self, call) void`, after which the call still ends;
/// `forget(self, call) void`, after which nothing is heard of it, or kept.
pub fn Pending(comptime Transport: type, comptime Response: type, comptime Error: type) type {
    return struct {
        transport: *Transport,
        call: u64,

        /// Waits for the answer, which borrows from the transport and the arena. To be called once.
        pub fn wait(self: @This(), arena: Allocator) !Answer(Response.T) {
            return answer(Response, Error, arena, try self.transport.wait(self.call));
        }

        /// Tells the server that nobody waits for the answer. The call still ends, usually as cancelled: it is to be waited for.
        pub fn cancel(self: @This()) void {
            self.transport.cancel(self.call);
        }

        /// The same for who does not wait either. Nothing of the call is kept.
        pub fn forget(self: @This()) void {
            self.transport.forget(self.call);
        }
    };
}

/// A stream under way on such a transport.
pub fn PendingItems(comptime Transport: type, comptime Item: type, comptime Response: type, comptime Error: type) type {
    return struct {
        transport: *Transport,
        call: u64,
        credit: u32,
        taken: u32 = 0,

        /// Waits for what comes next; nothing does after the end. The stream may go on as far as items are taken.
        pub fn next(self: *@This(), arena: Allocator) !Next(Item.T, Response.T) {
            const frame = try self.transport.wait(self.call);
            // Behind what cannot be read nobody waits for more.
            errdefer self.forget();
            const what = try heard(Item, Response, Error, arena, frame);
            if (what == .item) self.taken += 1;
            // Of a stream that was begun while there was no connection it is known since there is one.
            if (self.credit == 0) self.credit = self.transport.credit();
            // Half at a time: the server goes on while the other half is on its way.
            if (self.taken > self.credit / 2) {
                self.transport.grant(self.call, self.taken);
                self.taken = 0;
            }
            return what;
        }

        /// Tells the server that nobody waits for more. The call still ends, usually as cancelled: it is to be read to that.
        pub fn cancel(self: @This()) void {
            self.transport.cancel(self.call);
        }

        /// The same for who does not read on. Nothing of the stream is kept.
        pub fn forget(self: @This()) void {
            self.transport.forget(self.call);
        }
    };
}

/// What a stream's producer does next: goes on, waits until it hears that something changed, or ends, because nobody
/// waits for more.
pub const Flow = enum { go, wait, gone };

/// Told that something changed, or that nobody will be told any more, with what was given beside it.
pub const Wake = *const fn (of: ?*anyopaque) callconv(.c) void;

/// Where a server's frames for one request go.
pub const Reply = struct {
    context: *anyopaque,
    ways: *const Ways,

    pub const Ways = struct {
        /// Sends one item of a stream.
        item: *const fn (context: *anyopaque, frame: []const u8) Flow,
        /// Sends the frame that ends the call. Nothing is called after it.
        end: *const fn (context: *anyopaque, frame: []const u8) void,
        /// Ends the call with a fault and the service's error. Nothing is called after it. Without this, `end` does.
        fail: ?*const fn (context: *anyopaque, fault: Fault, message: []const u8) void = null,
        /// Whether nobody waits for the answer any more.
        cancelled: ?*const fn (context: *anyopaque) bool = null,
        /// Has `wake` called once, from any thread, when `cancelled` or a `Flow` may have changed: at once if one has. `released`,
        /// if given, is called once when `wake` will not be called any more.
        changed: ?*const fn (context: *anyopaque, wake: Wake, of: ?*anyopaque, released: ?Wake) void = null,
        /// Whether nobody has ended the call yet; a caller that is told so has to. Without this, nobody ends it twice.
        claim: ?*const fn (context: *anyopaque) bool = null,
        /// Keeps what `release` would free, and the other ways with it, until `drop`.
        hold: ?*const fn (context: *anyopaque) void = null,
        drop: ?*const fn (context: *anyopaque) void = null,
        /// Frees what was kept for the call, the request and the allocator among it. Called once, by what ended it.
        release: ?*const fn (context: *anyopaque) void = null,
    };

    /// The right to end the call, which is given once.
    fn claim(self: Reply) bool {
        return if (self.ways.claim) |claims| claims(self.context) else true;
    }

    /// Keeps the call's memory while its method runs, which may answer it.
    pub fn hold(self: Reply) void {
        if (self.ways.hold) |holds| holds(self.context);
    }

    /// Ends a `hold`.
    pub fn drop(self: Reply) void {
        if (self.ways.drop) |drops| drops(self.context);
    }

    /// Lets go of what was kept for the call; what answers it does this last.
    pub fn release(self: Reply) void {
        if (self.ways.release) |releases| releases(self.context);
    }
};

/// The items of what is no stream: no value of this can be made.
pub const NoItem = struct {
    pub const T = noreturn;
};

/// Where the value stands that could not be written last on this thread, if nothing was since.
threadlocal var unwritten: ?[]const u8 = null;

fn write(comptime Codec: type, writer: *mp.Writer, value: Codec.T) mp.EncodeError!void {
    unwritten = null;
    errdefer unwritten = writer.place;
    return mp.frameOf(false, Codec, writer, value);
}

/// Writes a frame into memory of the allocator, and ends the call with it. Of a call that has ended nothing is heard.
fn end(comptime Codec: type, allocator: Allocator, reply: Reply, value: Codec.T) mp.EncodeError!void {
    {
        var writer: mp.Writer = .{ .allocator = allocator };
        defer writer.deinit();
        try write(Codec, &writer, value);
        if (!reply.claim()) return;
        reply.ways.end(reply.context, writer.written());
    }
    reply.release();
}

/// Answers one request, once, now or later, from any thread; then nothing that came with the request may be used any more.
/// Zig runs nothing when a value goes out of scope, so each responder has to be answered by hand, on every path; `abandon`
/// is the answer of who has none. While its method runs, a second answer is dropped, and the method may ask `cancelled` and
/// `changed` though another thread answers. Answers and items are written into the allocator: from one thread at a time.
pub fn Responder(comptime Response: type, comptime Item: type, comptime Error: type) type {
    return struct {
        reply: Reply,
        allocator: Allocator,

        /// Answers; a stream ends with it.
        pub fn ok(self: @This(), response: Response.T) mp.EncodeError!void {
            return end(Response, self.allocator, self.reply, response);
        }

        /// Answers with the service's error.
        pub fn err(self: @This(), message: []const u8) mp.EncodeError!void {
            return fail(Error, self.allocator, self.reply, .refused, message);
        }

        /// Ends the call without an answer.
        pub fn abandon(self: @This()) mp.EncodeError!void {
            return fail(Error, self.allocator, self.reply, .abandoned, "the handler gave no answer");
        }

        /// Sends one item of a stream.
        pub fn item(self: @This(), value: Item.T) mp.EncodeError!Flow {
            var writer: mp.Writer = .{ .allocator = self.allocator };
            defer writer.deinit();
            try write(Item, &writer, value);
            return self.reply.ways.item(self.reply.context, writer.written());
        }

        /// Whether nobody waits for the answer any more.
        pub fn cancelled(self: @This()) bool {
            return if (self.reply.ways.cancelled) |asks| asks(self.reply.context) else false;
        }

        /// Has `wake` called with `of`, once, when a stream may go on or nobody waits for it any more. If it is so already, that
        /// is at once, on this thread and before this returns. Else it is on the thread that runs the server, which must not be
        /// held up: let it put the stream into a queue. A `wake` that was given before is forgotten.
        ///
        /// The answer forgets it too: no `wake` begins once the responder has answered. One that another
        /// thread has begun by then, or calls at once in its own `changed`, may still run. So a stream that
        /// is answered on another thread than the server's frees `of` in `released`. That is called once,
        /// from any thread, when nobody uses `of` any more: after the wake, or by the answer, before it
        /// returns, or by the `changed` that forgets this one.
        ///
        /// No lock is held while `wake` or `released` runs: each may take locks that its caller does not
        /// hold, or wait for another thread that uses the responder, and a `wake` that is called at once may
        /// answer.
        pub fn changed(self: @This(), wake: Wake, of: ?*anyopaque, released: ?Wake) void {
            if (self.reply.ways.changed) |tells| return tells(self.reply.context, wake, of, released);
            if (released) |releases| releases(of);
        }
    };
}

/// Ends a call with a fault and the service's error.
pub fn fail(
    comptime Error: type,
    allocator: Allocator,
    reply: Reply,
    fault: Fault,
    message: []const u8,
) mp.EncodeError!void {
    const fails = reply.ways.fail;
    // The service's own error is an answer like any other.
    if (fails != null and fault != .refused) {
        if (!reply.claim()) return;
        fails.?(reply.context, fault, message);
        return reply.release();
    }
    // What a handler says may quote anything, and a frame with that in it could not be read. The allocator may be one that
    // is freed with the call: that is held until the words are.
    reply.hold();
    defer reply.drop();
    var words: mp.Writer = .{ .allocator = allocator };
    defer words.deinit();
    try mp.readable(&words, message);
    return end(Error, allocator, reply, .{ .message = words.written() });
}

/// Ends a call whose method returned an error, in its words: its name, and which value it is of that cannot be written.
pub fn refuse(comptime Error: type, allocator: Allocator, reply: Reply, problem: anyerror) mp.EncodeError!void {
    const place = switch (problem) {
        error.Duplicate, error.NotUtf8 => unwritten orelse "",
        else => "",
    };
    const words = try std.mem.concat(allocator, u8, &.{ place, if (place.len > 0) ": " else "", @errorName(problem) });
    defer allocator.free(words);
    return fail(Error, allocator, reply, .refused, words);
}

/// Ends a call that could not even be refused.
pub fn giveUp(reply: Reply) void {
    if (!reply.claim()) return;
    if (reply.ways.fail) |fails| fails(reply.context, .abandoned, "") else reply.ways.end(reply.context, "");
    reply.release();
}

/// What a call does to its fork, for servers that order calls per fork.
pub const Access = enum { unordered, read_committed, read, write };

/// Which fork: none, by number (a negative one as its two's complement), or by text or bytes.
pub const Fork = union(enum) { none, number: u64, bytes: []const u8 };
