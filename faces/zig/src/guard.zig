//! A lock for a reply of the library, and what the library calls while it is held.
//!
//! The library takes a reply from one thread at a time. A `wake` and a `released` are the user's code, which
//! may take locks of its own, answer the call, or wait for a thread that does. So neither runs under the
//! lock: one that the library calls there is put off until the lock is free again, and then runs on the same
//! thread.

const std = @import("std");
const Allocator = std.mem.Allocator;
const server = @import("server.zig");
const Function = @import("c.zig").Call;

/// Held for one use of a reply, and never while a user's code runs.
pub const Lock = struct {
    taken: std.atomic.Value(bool) = .init(false),

    fn take(self: *Lock) void {
        while (self.taken.swap(true, .acquire)) std.atomic.spinLoopHint();
    }

    fn free(self: *Lock) void {
        self.taken.store(false, .release);
    }
};

/// A lock that is held, on the stack of its thread, which holds no other.
pub const Guard = struct {
    lock: *Lock,
    first: ?*Watch = null,
    last: ?*Watch = null,

    threadlocal var held: ?*Guard = null;

    pub fn take(self: *Guard, lock: *Lock) void {
        lock.take();
        self.* = .{ .lock = lock };
        held = self;
    }

    /// Frees the lock, then runs what was put off. That may free the memory of the lock.
    pub fn free(self: *Guard) void {
        held = null;
        self.lock.free();
        while (self.first) |watch| {
            self.first = watch.next;
            watch.runLate();
        }
    }

    fn putOff(self: *Guard, watch: *Watch) void {
        if (self.last) |last| last.next = watch else self.first = watch;
        self.last = watch;
    }
};

/// A `wake` with its `released`, as they are given to the library.
const Watch = struct {
    allocator: Allocator,
    wake: Function,
    of: ?*anyopaque,
    released: ?Function,
    /// The library uses this until it releases it, and a guard until it has run a wake that was put off.
    users: std.atomic.Value(u32) = .init(1),
    is_woken_late: bool = false,
    next: ?*Watch = null,

    fn from(context: ?*anyopaque) *Watch {
        return @ptrCast(@alignCast(context.?));
    }

    fn woken(context: ?*anyopaque) callconv(.c) void {
        const self = from(context);
        const guard = Guard.held orelse return self.wake(self.of);
        _ = self.users.fetchAdd(1, .monotonic);
        self.is_woken_late = true;
        guard.putOff(self);
    }

    fn over(context: ?*anyopaque) callconv(.c) void {
        const self = from(context);
        if (!self.leave()) return;
        if (Guard.held) |guard| guard.putOff(self) else self.end();
    }

    fn runLate(self: *Watch) void {
        if (self.is_woken_late) {
            self.wake(self.of);
            if (!self.leave()) return;
        }
        self.end();
    }

    /// Ends one use; whether it was the last.
    fn leave(self: *Watch) bool {
        return self.users.fetchSub(1, .acq_rel) == 1;
    }

    fn end(self: *Watch) void {
        const of, const released = .{ self.of, self.released };
        self.allocator.destroy(self);
        if (released) |function| function(of);
    }
};

/// `Reply.changed` under a guard, which calls afterwards what the library calls at once. Without memory for
/// that, this answers `false` and calls nothing.
pub fn changed(
    allocator: Allocator,
    reply: server.Reply,
    wake: Function,
    of: ?*anyopaque,
    released: ?Function,
) bool {
    const watch = allocator.create(Watch) catch return false;
    watch.* = .{ .allocator = allocator, .wake = wake, .of = of, .released = released };
    reply.changed(Watch.woken, watch, Watch.over);
    return true;
}
