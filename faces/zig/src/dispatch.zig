//! From a server's requests to the methods of a generated service. What belongs to a request (its bytes, what was read from
//! them, the memory its answer is written in) lives in an arena of its own until it is answered, on whatever thread.
//!
//! A responder is copied freely, so a method may ask `cancelled` or `changed` while another thread answers. Each use of the
//! library's reply is therefore one thread's alone, which the others wait for: as long as a frame takes to be copied.

const std = @import("std");
const Allocator = std.mem.Allocator;
const server = @import("server.zig");

/// Dispatches to handlers of a generated module, `@import("echo")` say.
pub fn Dispatcher(comptime Module: type) type {
    const service = Module.service;
    return struct {
        const Call = struct {
            allocator: Allocator,
            arena: std.heap.ArenaAllocator,
            reply: server.Reply,
            /// Who still needs all this: its answer, and its method while that runs.
            holders: std.atomic.Value(u32) = .init(1),
            /// Whether the reply was taken away, or is about to be.
            answered: std.atomic.Value(bool) = .init(false),
            /// The thread that is at the reply, by the address of its `mark`, or 0. The library takes a reply from one thread at a
            /// time, and one that was taken away from none: `answered` only holds for who is here.
            thread: std.atomic.Value(usize) = .init(0),

            threadlocal var mark: u8 = 0;

            fn of(context: *anyopaque) *Call {
                return @ptrCast(@alignCast(context));
            }

            /// Waits while another thread is at the reply; whether this one has to `leave`. It has not where it is there already, in
            /// a `wake` that was called at once.
            fn enter(self: *Call) bool {
                const here = @intFromPtr(&mark);
                if (self.thread.load(.monotonic) == here) return false;
                while (self.thread.cmpxchgWeak(0, here, .acquire, .monotonic)) |_| std.atomic.spinLoopHint();
                return true;
            }

            fn leave(self: *Call, entered: bool) void {
                if (entered) self.thread.store(0, .release);
            }

            fn item(context: *anyopaque, frame: []const u8) service.Flow {
                const self = of(context);
                const entered = self.enter();
                defer self.leave(entered);
                if (self.answered.load(.acquire)) return .gone;
                return switch (self.reply.item(frame)) {
                    .go => .go,
                    .wait => .wait,
                    .gone => .gone,
                };
            }

            fn end(context: *anyopaque, frame: []const u8) void {
                const self = of(context);
                const entered = self.enter();
                defer self.leave(entered);
                self.reply.end(frame);
            }

            fn fail(context: *anyopaque, fault: service.Fault, message: []const u8) void {
                const self = of(context);
                const entered = self.enter();
                defer self.leave(entered);
                self.reply.fail(@enumFromInt(@intFromEnum(fault)), message);
            }

            fn cancelled(context: *anyopaque) bool {
                const self = of(context);
                const entered = self.enter();
                defer self.leave(entered);
                return self.answered.load(.acquire) or self.reply.cancelled();
            }

            fn changed(context: *anyopaque, wake: service.Wake, to: ?*anyopaque, released: ?service.Wake) void {
                const self = of(context);
                // A `wake` that is called at once may end the call.
                hold(context);
                defer release(context);
                {
                    const entered = self.enter();
                    defer self.leave(entered);
                    if (!self.answered.load(.acquire)) return self.reply.changed(wake, to, released);
                }
                wake(to);
                if (released) |releases| releases(to);
            }

            fn claim(context: *anyopaque) bool {
                return !of(context).answered.swap(true, .acq_rel);
            }

            fn hold(context: *anyopaque) void {
                _ = of(context).holders.fetchAdd(1, .monotonic);
            }

            fn release(context: *anyopaque) void {
                const self = of(context);
                if (self.holders.fetchSub(1, .acq_rel) > 1) return;
                self.arena.deinit();
                self.allocator.destroy(self);
            }

            const ways: service.Reply.Ways = .{
                .item = item,
                .end = end,
                .fail = fail,
                .cancelled = cancelled,
                .changed = changed,
                .claim = claim,
                .hold = hold,
                .drop = release,
                .release = release,
            };
        };

        /// Hands a request to its method at once, in no order between the calls of a fork. The allocator is used by whatever thread answers. Where memory ends, the call does
        /// too, as abandoned.
        pub fn dispatchUnordered(allocator: Allocator, handler: anytype, incoming: server.Incoming) void {
            const call = begin(allocator, incoming) orelse return;
            const memory = call.arena.allocator();
            const reply = replyOf(call);
            const frame = memory.dupe(u8, incoming.frame) catch return service.giveUp(reply);
            // What cannot even be refused was not answered.
            Module.server.dispatchUnordered(handler, memory, frame, reply) catch service.giveUp(reply);
        }

        /// Hands a request to its method in the order that the schema says: calls that touch one fork wait for their turn.
        pub fn dispatch(
            allocator: Allocator,
            handler: anytype,
            forks: *Module.Forks,
            incoming: server.Incoming,
        ) void {
            const call = begin(allocator, incoming) orelse return;
            const memory = call.arena.allocator();
            const reply = replyOf(call);
            const frame = memory.dupe(u8, incoming.frame) catch return service.giveUp(reply);
            Module.server.dispatch(handler, forks, memory, frame, reply) catch service.giveUp(reply);
        }

        fn begin(allocator: Allocator, incoming: server.Incoming) ?*Call {
            const call = allocator.create(Call) catch {
                incoming.reply.drop();
                return null;
            };
            call.* = .{
                .allocator = allocator,
                .arena = std.heap.ArenaAllocator.init(allocator),
                .reply = incoming.reply,
            };
            return call;
        }

        fn replyOf(call: *Call) service.Reply {
            return .{ .context = call, .ways = &Call.ways };
        }
    };
}
