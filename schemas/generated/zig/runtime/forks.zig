//! Calls that touch one fork, in their turn: a read waits behind the writes that came before it, a write is alone, and reads
//! of what is committed wait for nobody. A call keeps its turn until it is answered, on whatever thread that is.

const std = @import("std");
const service = @import("service.zig");
const Allocator = std.mem.Allocator;
const Reply = service.Reply;

/// Orders calls per fork. Outlives the calls that it orders; nothing is kept for a fork that nobody uses.
pub const Forks = struct {
    allocator: Allocator,
    executor: Executor,
    lines: std.StringHashMapUnmanaged(*Line) = .empty,
    lock: Lock = .{},

    /// What runs a call that had to wait for its turn, not before `post` has returned: `job.run()`, once. A pool that stops calls
    /// `job.abandon()` in its place, in `post` or later: a job that is forgotten keeps its client waiting, and its fork.
    pub const Executor = struct {
        context: ?*anyopaque = null,
        post: *const fn (context: ?*anyopaque, job: *Job) void,
    };

    /// A call that has a turn, or waits for one. It lies in memory that is the call's until its reply is released.
    pub const Job = struct {
        /// Handles the call, whose reply is `job.inTurn()`.
        call: *const fn (job: *Job) void,
        reply: Reply,
        /// For an owner that keeps jobs in a line.
        next: ?*Job = null,
        forks: *Forks = undefined,
        line: *Line = undefined,
        writes: bool = false,
        ways: ?Reply.Ways = null,

        /// After its wait.
        pub fn run(self: *Job) void {
            const held = self.inTurn();
            // Nobody may wait any more by the time its turn has come.
            if (held.ways.cancelled) |cancels| if (cancels(held.context)) return service.giveUp(held);
            self.call(self);
        }

        /// In place of a run: the call ends as abandoned, and the next one has its turn.
        pub fn abandon(self: *Job) void {
            service.giveUp(self.inTurn());
        }

        /// The call's reply, whose release ends its turn.
        pub fn inTurn(self: *Job) Reply {
            return if (self.ways) |*ways| .{ .context = self, .ways = ways } else self.reply;
        }

        fn of(context: *anyopaque) *Job {
            return @ptrCast(@alignCast(context));
        }
        fn item(context: *anyopaque, frame: []const u8) service.Flow {
            const reply = of(context).reply;
            return reply.ways.item(reply.context, frame);
        }
        fn end(context: *anyopaque, frame: []const u8) void {
            const reply = of(context).reply;
            reply.ways.end(reply.context, frame);
        }
        fn fail(context: *anyopaque, fault: service.Fault, message: []const u8) void {
            const reply = of(context).reply;
            reply.ways.fail.?(reply.context, fault, message);
        }
        fn cancelled(context: *anyopaque) bool {
            const reply = of(context).reply;
            return reply.ways.cancelled.?(reply.context);
        }
        fn changed(context: *anyopaque, wake: service.Wake, to: ?*anyopaque, released: ?service.Wake) void {
            const reply = of(context).reply;
            reply.ways.changed.?(reply.context, wake, to, released);
        }
        fn claim(context: *anyopaque) bool {
            const reply = of(context).reply;
            return reply.ways.claim.?(reply.context);
        }
        fn hold(context: *anyopaque) void {
            of(context).reply.hold();
        }
        fn drop(context: *anyopaque) void {
            of(context).reply.drop();
        }
        fn release(context: *anyopaque) void {
            const self = of(context);
            const forks, const line, const writes = .{ self.forks, self.line, self.writes };
            // The job's own memory may go with it.
            self.reply.release();
            forks.leave(line, writes);
        }
    };

    pub fn init(allocator: Allocator, executor: Executor) Forks {
        return .{ .allocator = allocator, .executor = executor };
    }

    /// To be called when no call is under way.
    pub fn deinit(self: *Forks) void {
        self.lines.deinit(self.allocator);
    }

    /// Runs the job here if it is its turn, else later by the executor.
    pub fn order(self: *Forks, access: service.Access, fork: service.Fork, job: *Job) Allocator.Error!void {
        if (access == .unordered or access == .read_committed) return job.call(job);
        const ways = job.reply.ways;
        job.forks = self;
        job.writes = access == .write;
        const begins = begins: {
            self.lock.take();
            defer self.lock.leave();
            const line = try self.lineOf(fork);
            job.line = line;
            job.ways = .{
                .item = Job.item,
                .end = Job.end,
                .fail = if (ways.fail == null) null else Job.fail,
                .cancelled = if (ways.cancelled == null) null else Job.cancelled,
                .changed = if (ways.changed == null) null else Job.changed,
                .claim = if (ways.claim == null) null else Job.claim,
                .hold = Job.hold,
                .drop = Job.drop,
                .release = Job.release,
            };
            break :begins line.enter(job);
        };
        if (begins) job.call(job);
    }

    /// Who is at one fork, and who waits for it.
    const Line = struct {
        key: []const u8,
        writing: bool = false,
        reads: usize = 0,
        first: ?*Job = null,
        last: ?*Job = null,

        fn may(self: *const Line, writes: bool) bool {
            return !self.writing and !(writes and self.reads > 0);
        }

        fn begin(self: *Line, writes: bool) void {
            if (writes) self.writing = true else self.reads += 1;
        }

        fn enter(self: *Line, job: *Job) bool {
            if (self.first == null and self.may(job.writes)) {
                self.begin(job.writes);
                return true;
            }
            job.next = null;
            if (self.last) |last| last.next = job else self.first = job;
            self.last = job;
            return false;
        }

        /// Takes out the jobs that may begin, in their order.
        fn advance(self: *Line) ?*Job {
            const begun = self.first;
            var at: ?*Job = null;
            while (self.first) |job| {
                if (!self.may(job.writes)) break;
                self.begin(job.writes);
                self.first = job.next;
                at = job;
            }
            if (self.first == null) self.last = null;
            if (at) |job| job.next = null;
            return if (at == null) null else begun;
        }
    };

    fn leave(self: *Forks, line: *Line, writes: bool) void {
        const begun = begun: {
            self.lock.take();
            defer self.lock.leave();
            if (writes) line.writing = false else line.reads -= 1;
            const begun = line.advance();
            if (!line.writing and line.reads == 0) {
                _ = self.lines.remove(line.key);
                self.allocator.free(line.key);
                self.allocator.destroy(line);
            }
            break :begun begun;
        };
        handOut(begun);
    }

    /// Jobs that this thread gives to their executors.
    const Queue = struct {
        first: ?*Job = null,
        last: ?*Job = null,

        fn put(self: *Queue, jobs: ?*Job) void {
            var at = jobs;
            while (at) |job| {
                at = job.next;
                job.next = null;
                if (self.last) |last| last.next = job else self.first = job;
                self.last = job;
            }
        }

        fn take(self: *Queue) ?*Job {
            const job = self.first orelse return null;
            self.first = job.next;
            if (self.first == null) self.last = null;
            job.next = null;
            return job;
        }
    };

    threadlocal var under_way: ?*Queue = null;

    /// Gives jobs to their executors. One that is abandoned there lets others begin: those are given from the same queue, and not
    /// from the depth of the stack.
    fn handOut(jobs: ?*Job) void {
        if (under_way) |queue| return queue.put(jobs);
        var queue: Queue = .{};
        under_way = &queue;
        defer under_way = null;
        queue.put(jobs);
        while (queue.take()) |job| job.forks.executor.post(job.forks.executor.context, job);
    }

    fn lineOf(self: *Forks, fork: service.Fork) Allocator.Error!*Line {
        // Numbers and bytes are told apart by their first byte.
        var number: [9]u8 = undefined;
        var key: []const u8 = &.{};
        switch (fork) {
            .none => {},
            .number => |of| {
                number[0] = 0;
                std.mem.writeInt(u64, number[1..], of, .little);
                key = &number;
            },
            .bytes => |of| key = of,
        }
        const owned = try self.allocator.alloc(u8, key.len + @intFromBool(fork == .bytes));
        errdefer self.allocator.free(owned);
        if (fork == .bytes) owned[0] = 1;
        @memcpy(owned[owned.len - key.len ..], key);
        const found = try self.lines.getOrPut(self.allocator, owned);
        if (found.found_existing) {
            self.allocator.free(owned);
            return found.value_ptr.*;
        }
        errdefer _ = self.lines.remove(owned);
        const line = try self.allocator.create(Line);
        line.* = .{ .key = owned };
        found.value_ptr.* = line;
        return line;
    }
};

/// Held for a look at who is at a fork, and never while a call is handled.
const Lock = struct {
    taken: std.atomic.Value(bool) = .init(false),

    fn take(self: *Lock) void {
        while (self.taken.swap(true, .acquire)) std.atomic.spinLoopHint();
    }

    fn leave(self: *Lock) void {
        self.taken.store(false, .release);
    }
};
