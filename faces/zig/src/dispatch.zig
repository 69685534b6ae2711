//! From a server's requests to the methods of a generated service. What belongs to a request (its bytes, what was read from
//! them, the memory its answer is written in) lives in an arena of its own until it is answered, on whatever thread.
//!
//! A responder is copied freely, so a method may ask `cancelled` or `changed` while another thread answers.
//! Each use of the library's reply is therefore one thread's alone, for as long as a frame takes to be
//! copied, and the others wait for it. No `wake` or `released` runs within such a use: see `guard.zig`.

const std = @import("std");
const Allocator = std.mem.Allocator;
const server = @import("server.zig");
const guards = @import("guard.zig");

/// Dispatches to handlers of a generated module, `@import("echo")` say.
pub fn Dispatcher(comptime Module: type) type {
    const service = Module.service;
    return struct {
        const Call = struct {
            allocator: Allocator,
            arena: std.heap.ArenaAllocator,
            reply: server.Reply,
            /// How many still need all this: the answer, and the method while that runs.
            holders: std.atomic.Value(u32) = .init(1),
            /// Whether the reply was taken away, or is about to be.
            answered: std.atomic.Value(bool) = .init(false),
            /// Held at every use of the reply. Under it, a reply that is not `answered` was not taken away.
            lock: guards.Lock = .{},

            fn of(context: *anyopaque) *Call {
                return @ptrCast(@alignCast(context));
            }

            fn item(context: *anyopaque, frame: []const u8) service.Flow {
                const self = of(context);
                var guard: guards.Guard = undefined;
                guard.take(&self.lock);
                defer guard.free();
                if (self.answered.load(.acquire)) return .gone;
                return switch (self.reply.item(frame)) {
                    .go => .go,
                    .wait => .wait,
                    .gone => .gone,
                };
            }

            fn end(context: *anyopaque, frame: []const u8) void {
                const self = of(context);
                var guard: guards.Guard = undefined;
                guard.take(&self.lock);
                defer guard.free();
                self.reply.end(frame);
            }

            fn fail(context: *anyopaque, fault: service.Fault, message: []const u8) void {
                const self = of(context);
                var guard: guards.Guard = undefined;
                guard.take(&self.lock);
                defer guard.free();
                self.reply.fail(@enumFromInt(@intFromEnum(fault)), message);
            }

            fn cancelled(context: *anyopaque) bool {
                const self = of(context);
                var guard: guards.Guard = undefined;
                guard.take(&self.lock);
                defer guard.free();
                return self.answered.load(.acquire) or self.reply.cancelled();
            }

            fn changed(context: *anyopaque, wake: service.Wake, to: ?*anyopaque, released: ?service.Wake) void {
                if (of(context).watch(wake, to, released)) return;
                // The answer is not awaited any more, or there is no memory to wait with. In both cases the
                // stream goes on at once. The library ends one that goes on without credit, after a few
                // items.
                wake(to);
                if (released) |releases| releases(to);
            }

            /// Whether `wake` and `released` were taken, to be called without the lock.
            fn watch(self: *Call, wake: service.Wake, to: ?*anyopaque, released: ?service.Wake) bool {
                var guard: guards.Guard = undefined;
                guard.take(&self.lock);
                defer guard.free();
                if (self.answered.load(.acquire)) return false;
                return guards.changed(self.allocator, self.reply, wake, to, released);
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

        /// Hands a request to its method at once, in no order between the calls of a fork. The allocator is
        /// used by the server's thread and by every thread that uses a responder, at the same time. Where
        /// memory ends, the call does too, as abandoned.
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
