//! The echo service. Answers at once; a stream that has to wait goes on when the server's loop comes by again, and so does a
//! call that waits for its turn.

const std = @import("std");
const echo = @import("echo");
const types = echo.types;
const server = echo.server;
const Allocator = std.mem.Allocator;

/// Items at a stretch, so that others have their turn.
const turn_items_max = 1_000;

/// A stream of numbers, made as fast as they are taken and no faster.
const Counting = struct {
    service: *Service,
    responder: server.CountResponder,
    next: u64,
    last: u64,
    count: u32 = 0,
    /// What waits behind it to go on.
    behind: ?*Counting = null,

    fn go(self: *Counting) !void {
        var left: u32 = turn_items_max;
        while (left > 0) : (left -= 1) {
            if (self.next > self.last) return self.end();
            const flow = try self.responder.item(.{ .value = @intCast(self.next) });
            self.next += 1;
            self.count += 1;
            switch (flow) {
                .go => {},
                .wait => return self.responder.changed(later, self, null),
                .gone => return self.end(),
            }
        }
        later(self);
    }

    /// Called by the server's thread, which is ours.
    fn later(context: ?*anyopaque) callconv(.c) void {
        const self: *Counting = @ptrCast(@alignCast(context.?));
        self.behind = self.service.ready;
        self.service.ready = self;
    }

    fn end(self: *Counting) !void {
        try self.responder.ok(.{ .count = self.count });
        // The answer and what wakes this are one thread's: behind it nobody calls `later`.
        self.service.allocator.destroy(self);
    }
};

const Fork = struct {
    name: []const u8,
    value: ?[]const u8 = null,
    version: u64 = 0,
    /// What waits until somebody asks for what is committed.
    held: ?*Put = null,
    next: ?*Fork,
};

/// A value that is put, as it came with its request.
const Put = struct { value: []const u8, responder: server.PutResponder, behind: ?*Put };

/// Says back what it was asked.
pub const Service = struct {
    allocator: Allocator,
    forks: ?*Fork = null,
    /// Streams that may go on.
    ready: ?*Counting = null,
    /// Calls whose turn has come, the last first.
    begun: ?*echo.Forks.Job = null,

    /// Has a call run in its turn.
    pub fn post(context: ?*anyopaque, job: *echo.Forks.Job) void {
        const self: *Service = @ptrCast(@alignCast(context.?));
        job.next = self.begun;
        self.begun = job;
    }

    /// Goes on with each stream, and each call, that may; whether any did.
    pub fn goOn(self: *Service) bool {
        var jobs = self.begun;
        self.begun = null;
        var waiting = self.ready;
        self.ready = null;
        const any = waiting != null or jobs != null;
        while (jobs) |job| {
            // Its memory is gone once it has run.
            jobs = job.next;
            job.run();
        }
        while (waiting) |counting| {
            waiting = counting.behind;
            counting.go() catch {
                const responder = counting.responder;
                self.allocator.destroy(counting);
                responder.abandon() catch {};
            };
        }
        return any;
    }

    pub fn bytes(_: *Service, request: types.EchoBytes, responder: server.BytesResponder) !void {
        try responder.ok(.{ .data = request.data });
    }
    pub fn fields(_: *Service, request: types.EchoFields, responder: server.FieldsResponder) !void {
        try responder.ok(.{ .count = request.count, .total = request.total, .name = request.name });
    }
    pub fn nested(_: *Service, request: types.EchoNested, responder: server.NestedResponder) !void {
        try responder.ok(.{ .inner = request.inner });
    }
    pub fn aliases(_: *Service, request: types.EchoAliases, responder: server.AliasesResponder) !void {
        try responder.ok(.{
            .sequence_number = request.sequence_number,
            .digest = request.digest,
            .parent = request.parent,
            .chain = request.chain,
        });
    }
    pub fn blobs(_: *Service, request: types.EchoBlobs, responder: server.BlobsResponder) !void {
        try responder.ok(.{ .extra = request.extra, .parts = request.parts });
    }
    pub fn fail(_: *Service, request: types.EchoFail, responder: server.FailResponder) !void {
        try responder.err(request.reason);
    }
    pub fn numbers(_: *Service, of: types.EchoNumbers, responder: server.NumbersResponder) !void {
        try responder.ok(.{
            .tiny = of.tiny,
            .small = of.small,
            .medium = of.medium,
            .large = of.large,
            .signed_tiny = of.signed_tiny,
            .signed_small = of.signed_small,
            .signed_medium = of.signed_medium,
            .signed_large = of.signed_large,
            .single = of.single,
            .precise = of.precise,
        });
    }
    pub fn places(_: *Service, of: types.EchoPlaces, responder: server.PlacesResponder) !void {
        try responder.ok(.{
            .places = of.places,
            .counts = of.counts,
            .grid = of.grid,
            .mood = of.mood,
            .named = of.named,
        });
    }
    pub fn count(self: *Service, request: types.EchoCount, responder: server.CountResponder) !void {
        const counting = try self.allocator.create(Counting);
        counting.* = .{ .service = self, .responder = responder, .next = request.first, .last = request.last };
        Counting.later(counting);
    }
    pub fn put(self: *Service, request: types.EchoPut, responder: server.PutResponder) !void {
        const fork = self.find(request.fork) orelse try self.begin(request.fork);
        if (!std.mem.eql(u8, request.value, "hold")) return self.take(fork, request.value, responder);
        const held = try responder.allocator.create(Put);
        held.* = .{ .value = request.value, .responder = responder, .behind = fork.held };
        fork.held = held;
    }
    pub fn peek(self: *Service, request: types.EchoPeek, responder: server.PeekResponder) !void {
        const fork = self.find(request.fork);
        try responder.ok(.{ .value = if (fork) |of| of.value else null });
    }
    pub fn peekCommitted(self: *Service, request: types.EchoPeekCommitted, responder: server.PeekCommittedResponder) !void {
        const fork = self.find(request.fork) orelse try self.begin(request.fork);
        try responder.ok(.{ .value = fork.value });
        var held = fork.held;
        fork.held = null;
        while (held) |of| {
            held = of.behind;
            self.take(fork, of.value, of.responder) catch of.responder.abandon() catch {};
        }
    }

    fn take(self: *Service, fork: *Fork, value: []const u8, responder: server.PutResponder) !void {
        const kept = try self.allocator.dupe(u8, value);
        if (fork.value) |last| self.allocator.free(last);
        fork.value = kept;
        fork.version += 1;
        try responder.ok(.{ .version = fork.version });
    }

    fn find(self: *Service, name: []const u8) ?*Fork {
        var at = self.forks;
        while (at) |fork| : (at = fork.next) {
            if (std.mem.eql(u8, fork.name, name)) return fork;
        }
        return null;
    }

    fn begin(self: *Service, name: []const u8) !*Fork {
        const fork = try self.allocator.create(Fork);
        errdefer self.allocator.destroy(fork);
        fork.* = .{ .name = try self.allocator.dupe(u8, name), .next = self.forks };
        self.forks = fork;
        return fork;
    }
};
