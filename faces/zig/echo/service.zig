//! The echo service. Answers at once; a stream that has to wait goes on when the server's loop comes by again.

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
                .wait => return self.responder.changed(later, self),
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
        const count = self.count;
        const responder = self.responder;
        self.service.allocator.destroy(self);
        try responder.ok(.{ .count = count });
    }
};

const Fork = struct { name: []const u8, value: []const u8, version: u64, next: ?*Fork };

/// Says back what it was asked.
pub const Service = struct {
    allocator: Allocator,
    forks: ?*Fork = null,
    /// Streams that may go on.
    ready: ?*Counting = null,

    /// Goes on with each stream that may; whether any did.
    pub fn goOn(self: *Service) bool {
        var waiting = self.ready;
        self.ready = null;
        const any = waiting != null;
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
        const value = try self.allocator.dupe(u8, request.value);
        const fork = self.find(request.fork) orelse try self.begin(request.fork);
        self.allocator.free(fork.value);
        fork.value = value;
        fork.version += 1;
        try responder.ok(.{ .version = fork.version });
    }
    pub fn peek(self: *Service, request: types.EchoPeek, responder: server.PeekResponder) !void {
        const fork = self.find(request.fork);
        try responder.ok(.{ .value = if (fork) |of| of.value else null });
    }
    pub fn peekCommitted(self: *Service, request: types.EchoPeekCommitted, responder: server.PeekCommittedResponder) !void {
        return self.peek(.{ .fork = request.fork }, responder);
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
        fork.* = .{ .name = try self.allocator.dupe(u8, name), .value = &.{}, .version = 0, .next = self.forks };
        self.forks = fork;
        return fork;
    }
};
