//! The generated Zig against the golden frames; `crates/codegen/tests/golden.rs` says what is judged and why. The
//! frames come as the module `frames`; what became of each goes to standard error, one line each.

const std = @import("std");
const frames = @import("frames");
const echo = @import("echo");
const types = echo.types;
const mp = echo.mp;

var passed: usize = 0;
var failed: usize = 0;
var memory = std.heap.ArenaAllocator.init(std.heap.page_allocator);

fn check(name: []const u8, outcome: anyerror!void) void {
    if (outcome) {
        passed += 1;
    } else |problem| {
        failed += 1;
        std.debug.print("  FAILED: {s}: {s}\n", .{ name, @errorName(problem) });
    }
}

fn holds(what: bool) !void {
    if (!what) return error.DoesNotHold;
}

fn equal(left: []const u8, right: []const u8) !void {
    return holds(std.mem.eql(u8, left, right));
}

/// Decodes a frame as what its first byte says it is, and encodes it again.
fn again(arena: std.mem.Allocator, frame: []const u8) ![]const u8 {
    var writer: mp.Writer = .{ .allocator = arena };
    if (frame.len > 0 and frame[0] == 0x91) {
        try types.EchoRequestCodec.encode(&writer, try types.EchoRequestCodec.decode(arena, frame));
    } else {
        try types.EchoResponseCodec.encode(&writer, try types.EchoResponseCodec.decode(arena, frame));
    }
    return writer.written();
}

fn comesBack(frame: []const u8, as: []const u8) !void {
    return equal(try again(memory.allocator(), frame), as);
}

fn refuses(frame: []const u8) !void {
    if (again(memory.allocator(), frame)) |_| {
        return error.Taken;
    } else |problem| if (problem == error.OutOfMemory) return problem;
}

fn refusesPrefixes(frame: []const u8) !void {
    for (0..frame.len) |length| try refuses(frame[0..length]);
}

fn named(name: []const u8) []const u8 {
    for (frames.golden) |frame| {
        if (std.mem.eql(u8, frame.name, name)) return frame.bytes;
    }
    unreachable;
}

const Random = struct {
    state: u32 = 0x7ea19e65,

    fn below(self: *Random, bound: usize) usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        return self.state % bound;
    }
};

/// A mutated frame; there is room for two bytes more than the longest has.
fn mutate(random: *Random, room: []u8) []u8 {
    const from = frames.golden[random.below(frames.golden.len)].bytes;
    var length = from.len;
    @memcpy(room[0..length], from);
    const edits = random.below(2) + 1;
    for (0..edits) |_| {
        const what = random.below(8);
        const at = random.below(length);
        const byte: u8 = @intCast(random.below(256));
        switch (what) {
            0 => {
                for (at..length - 1) |n| room[n] = room[n + 1];
                length -= 1;
            },
            1 => {
                var n = length;
                while (n > at) : (n -= 1) room[n] = room[n - 1];
                room[at] = byte;
                length += 1;
            },
            2 => room[at] = byte,
            else => room[at] ^= @as(u8, 1) << @intCast(byte & 7),
        }
    }
    return room[0..length];
}

/// What the frame means, or where it is wrong.
fn printOutcome(frame: []const u8) !void {
    defer _ = memory.reset(.retain_capacity);
    if (again(memory.allocator(), frame)) |back| {
        try equal(try again(memory.allocator(), back), back);
        for (back) |byte| std.debug.print("{x:0>2}", .{byte});
        std.debug.print("\n", .{});
    } else |problem| {
        if (problem == error.OutOfMemory) return problem;
        var reader: mp.Reader = .{ .frame = frame, .allocator = memory.allocator() };
        try holds(isRefused(&reader));
        std.debug.print("- {s} {d}\n", .{ reader.place, reader.at });
    }
}

fn mutations() !void {
    var random: Random = .{};
    var room: [1024]u8 = undefined;
    for (frames.refused) |frame| try printOutcome(frame.bytes);
    for (0..10_000) |_| try printOutcome(mutate(&random, &room));
}

/// Whether a frame is refused, whichever kind of message it is; the reader then says where.
fn isRefused(reader: *mp.Reader) bool {
    if (reader.frame.len > 0 and reader.frame[0] == 0x91) {
        _ = types.EchoRequestCodec.read(reader) catch return true;
    } else {
        _ = types.EchoResponseCodec.read(reader) catch return true;
    }
    return false;
}

fn values() !void {
    const arena = memory.allocator();
    var writer: mp.Writer = .{ .allocator = arena };
    try types.EchoResponseCodec.encode(&writer, .{ .numbers_response = .{
        .tiny = 127,
        .small = 128,
        .medium = 256,
        .large = 65_536,
        .signed_tiny = std.math.minInt(i8),
        .signed_small = std.math.minInt(i16),
        .signed_medium = std.math.minInt(i32),
        .signed_large = std.math.minInt(i64),
        .single = -1.5,
        .precise = -std.math.pi,
    } });
    try equal(writer.written(), named("echo_numbers_min"));
    const places = (try types.EchoRequestCodec.decode(arena, named("echo_places_request"))).places;
    try equal(places.places[0].moods[1].key, "tuesday");
    try holds(places.places[0].moods[1].value == .in_a_hurry);
    try holds(places.grid[1][0].? == -32_768 and places.grid[0][1] == null);
    try equal(places.counts[2].key, "\u{10000}");
    try holds(places.counts[2].value == 256);
    // Written in the keys' order, whatever order they are in.
    var counts = [_]mp.Entry(u64){ places.counts[2], places.counts[0], places.counts[1] };
    var shuffled = places;
    shuffled.counts = &counts;
    writer.clear();
    try types.EchoRequestCodec.encode(&writer, .{ .places = shuffled });
    try equal(writer.written(), named("echo_places_request"));
}

/// Text that nobody could read does not leave, wherever it stands, and neither do two entries with one key.
fn misfits() !void {
    const arena = memory.allocator();
    const places = (try types.EchoRequestCodec.decode(arena, named("echo_places_request"))).places;
    for ([_][]const u8{ "\xff", "caf\xe9", "\xed\xa0\x80", "\xc3" }) |text| {
        try unwritable(.{ .fail = .{ .reason = text } }, "EchoFail.reason", error.NotUtf8);
        var keyed = places;
        keyed.counts = &.{.{ .key = text, .value = 1 }};
        try unwritable(.{ .places = keyed }, "EchoPlaces.counts", error.NotUtf8);
        keyed.places = &.{.{ .name = text, .inner = null, .moods = &.{} }};
        try unwritable(.{ .places = keyed }, "Place.name", error.NotUtf8);
    }
    var twice = places;
    twice.counts = &.{ .{ .key = "a", .value = 1 }, .{ .key = "a", .value = 2 } };
    try unwritable(.{ .places = twice }, "EchoPlaces.counts", error.Duplicate);
}

fn unwritable(request: types.EchoRequest, place: []const u8, problem: mp.EncodeError) !void {
    var writer: mp.Writer = .{ .allocator = memory.allocator() };
    if (types.EchoRequestCodec.encode(&writer, request)) return error.Taken else |wrong| {
        if (wrong != problem) return wrong;
    }
    try equal(writer.place, place);
}

/// What is wrong is placed by its name on the wire, and where it begins.
fn placed() !void {
    const head = "\x91\x92\xaaEchoPlaces\x82\xa6places\x91\x83\xa4name\xa0";
    const trailing = try std.mem.concat(memory.allocator(), u8, &.{ named("echo_places_request"), "\xc0" });
    for ([_]struct { []const u8, []const u8, usize }{
        .{ trailing, "frame", trailing.len - 1 },
        .{ "\x91\x92\xabEchoAliases\x80", "EchoAliases.sequenceNumber", 15 },
        .{ "\x91\x92\xabEchoAliases\x81\xaesequenceNumber\xc0", "EchoAliases.sequenceNumber", 30 },
        .{ "\x91\x92\xabEchoAliases\x81\xaesequenceNumber\xff", "EchoAliases.sequenceNumber", 30 },
        // An enum's word, by its field and where it begins; text, where that begins.
        .{ head ++ "\xa5moods\x81\xa1a\xa4glad", "Place.moods", 38 },
        .{ head ++ "\xa5moods\x81\xa2a\xff\xa4calm", "Place.moods", 37 },
        // The struct, behind a field that holds another.
        .{ head ++ "\xa5inner\x81\xa6values\x90\x07", "Place", 44 },
        // A key that comes again, whatever its value is.
        .{ "\x91\x92\xaaEchoPlaces\x81\xa6counts\x82\xa1a\x01\xa1a\xc0", "EchoPlaces.counts", 25 },
        .{ head ++ "\xa5moods\x82\xa1a\xa4calm\xa1a\xa4glad", "Place.moods", 43 },
    }) |of| {
        var reader: mp.Reader = .{ .frame = of[0], .allocator = memory.allocator() };
        if (types.EchoRequestCodec.read(&reader)) |_| return error.Taken else |problem| {
            if (problem == error.OutOfMemory) return problem;
        }
        try equal(reader.place, of[1]);
        try holds(reader.at == of[2]);
    }
    // Where the map is, not what its value lacks.
    const Inner = struct { n: u8 };
    const Map = mp.Map(mp.Struct(Inner, "Inner", .{.{ "n", "n", mp.Integer(u8) }}));
    var reader: mp.Reader = .{ .frame = "\x82\xa1a\x81\xa1n\x01\xa1a\x83\xa1n\xc0\xa1n\xa1n", .allocator = memory.allocator() };
    if (Map.read(&reader)) |_| return error.Taken else |problem| try holds(problem == error.Duplicate);
    try equal(reader.place, "frame");
    try holds(reader.at == 7);
}

const Service = struct {
    pub fn bytes(_: Service, request: types.EchoBytes, responder: echo.server.BytesResponder) !void {
        try responder.ok(.{ .data = request.data });
    }
    pub fn fields(_: Service, request: types.EchoFields, responder: echo.server.FieldsResponder) !void {
        try responder.ok(.{ .count = request.count, .total = request.total, .name = request.name });
    }
    pub fn nested(_: Service, request: types.EchoNested, responder: echo.server.NestedResponder) !void {
        try responder.ok(.{ .inner = request.inner });
    }
    pub fn aliases(_: Service, _: types.EchoAliases, _: echo.server.AliasesResponder) !void {
        return error.Unprepared;
    }
    pub fn blobs(_: Service, request: types.EchoBlobs, responder: echo.server.BlobsResponder) !void {
        try responder.ok(.{ .extra = request.extra, .parts = request.parts });
    }
    pub fn fail(_: Service, request: types.EchoFail, responder: echo.server.FailResponder) !void {
        try responder.err(request.reason);
    }
    pub fn numbers(_: Service, _: types.EchoNumbers, responder: echo.server.NumbersResponder) !void {
        try responder.err("caf\xc3\xa9, caf\xe9, \xed\xa0\x80");
    }
    pub fn places(_: Service, of: types.EchoPlaces, responder: echo.server.PlacesResponder) !void {
        const counts = [_]mp.Entry(u64){.{ .key = "caf\xe9", .value = 1 }};
        try responder.ok(.{ .places = of.places, .counts = &counts, .grid = of.grid, .mood = of.mood });
    }
    pub fn count(_: Service, request: types.EchoCount, responder: echo.server.CountResponder) !void {
        var sent: u32 = 0;
        var value = request.first;
        while (value <= request.last) : (value += 1) {
            if (try responder.item(.{ .value = value }) == .gone) break;
            sent += 1;
        }
        try responder.ok(.{ .count = sent });
    }
    pub fn put(_: Service, _: types.EchoPut, responder: echo.server.PutResponder) !void {
        try responder.ok(.{ .version = 1 });
    }
    pub fn peek(_: Service, _: types.EchoPeek, responder: echo.server.PeekResponder) !void {
        try responder.ok(.{});
    }
    pub fn peekCommitted(_: Service, _: types.EchoPeekCommitted, responder: echo.server.PeekCommittedResponder) !void {
        try responder.ok(.{ .value = "committed" });
    }
};

/// Carries frames to a service in the same thread.
const Wire = struct {
    queue: [8][]const u8 = undefined,
    first: usize = 0,
    end: usize = 0,
    left: u64 = 0,

    pub fn send(self: *Wire, frame: []const u8) !u64 {
        self.first = 0;
        self.end = 0;
        const reply: echo.service.Reply = .{ .context = self, .ways = &.{ .item = item, .end = finish } };
        try echo.server.dispatchUnordered(Service{}, memory.allocator(), frame, reply);
        return 7;
    }

    pub fn receive(self: *Wire, _: u64) ![]const u8 {
        if (self.first == self.end) return error.NothingCame;
        defer self.first += 1;
        return self.queue[self.first];
    }

    pub fn leave(self: *Wire, call: u64) void {
        self.left += call;
    }

    fn item(context: *anyopaque, frame: []const u8) echo.service.Flow {
        finish(context, frame);
        const self: *Wire = @ptrCast(@alignCast(context));
        return if (self.end < 5) .go else .gone;
    }

    fn finish(context: *anyopaque, frame: []const u8) void {
        const self: *Wire = @ptrCast(@alignCast(context));
        self.queue[self.end] = memory.allocator().dupe(u8, frame) catch unreachable;
        self.end += 1;
    }
};

fn calls() !void {
    const arena = memory.allocator();
    var wire: Wire = .{};
    var client = echo.client.EchoClient(Wire).init(arena, &wire);
    defer client.deinit();
    try equal((try client.bytes(arena, .{ .data = "ab" })).ok.data, "ab");
    try equal((try client.peekCommitted(arena, .{ .fork = "" })).ok.value.?, "committed");
    try equal((try client.fail(arena, .{ .reason = "because" })).refused, "because");
    const digest: types.Digest = .{ .bytes = @splat(0) };
    const refused = try client.aliases(arena, .{ .sequence_number = 1, .digest = digest, .chain = &.{} });
    try equal(refused.refused, "Unprepared");
    var numbers: types.EchoNumbers = undefined;
    inline for (comptime std.meta.fieldNames(types.EchoNumbers)) |name| @field(numbers, name) = 0;
    try equal((try client.numbers(arena, numbers)).refused, "caf\u{e9}, caf\u{fffd}, \u{fffd}\u{fffd}\u{fffd}");
    const places = (try types.EchoRequestCodec.decode(arena, named("echo_places_request"))).places;
    try equal((try client.places(arena, places)).refused, "EchoPlacesResponse.counts: NotUtf8");
    if (client.fail(arena, .{ .reason = "caf\xe9" })) |_| return error.Taken else |problem| try holds(problem == error.NotUtf8);
    try equal(client.writer_.place, "EchoFail.reason");
    const nonsense = try types.EchoResponseCodec.decode(arena, try wire.receive(try wire.send("nonsense")));
    try equal(nonsense.error_response.message, "frame: WrongType at byte 0");
}

fn streams() !void {
    const arena = memory.allocator();
    var wire: Wire = .{};
    var client = echo.client.EchoClient(Wire).init(arena, &wire);
    defer client.deinit();
    const items = try client.count(.{ .first = 7, .last = 8 });
    try holds((try items.next(arena)).item.value == 7);
    try holds((try items.next(arena)).item.value == 8);
    try holds((try items.next(arena)).end.count == 2);
    const many = try client.count(.{ .first = 0, .last = 0xffffffff });
    try holds(wire.end == 6 and wire.left == 0);
    many.close();
    try holds(wire.left == 7);
    wire.queue[0] = "nonsense";
    if (many.next(arena)) |_| return error.Read else |_| {}
    try holds(wire.left == 14);
}

/// What a frame asks for beyond its bound is its own fault; what memory there is not, is not.
fn exhausted() !void {
    const arena = memory.allocator();
    // Each byte of the list is a struct that takes more than 64.
    const Wide = struct { a: ?[32]u8, b: ?[32]u8, c: ?[32]u8, d: ?[32]u8 };
    const of = mp.Optional(mp.Bin32);
    const table = .{ .{ "a", "a", of }, .{ "b", "b", of }, .{ "c", "c", of }, .{ "d", "d", of } };
    const List = mp.List(mp.Struct(Wide, "Wide", table));
    const frame = try arena.alloc(u8, 400_000);
    @memset(frame, 0x80);
    @memcpy(frame[0..5], "\xdd\x00\x06\x1a\x7b");
    var reader: mp.Reader = .{ .frame = frame, .allocator = arena };
    if (List.read(&reader)) |_| return error.Taken else |problem| try holds(problem == error.TooMuchMemory);
    var nothing: [0]u8 = .{};
    var none = std.heap.FixedBufferAllocator.init(&nothing);
    reader = .{ .frame = "\x91\x80", .allocator = none.allocator() };
    if (List.read(&reader)) |_| return error.Taken else |problem| try holds(problem == error.OutOfMemory);
    // The dispatcher hears of it, and the client is not told that the request was wrong.
    var wire: Wire = .{};
    const reply: echo.service.Reply = .{ .context = &wire, .ways = &.{ .item = Wire.item, .end = Wire.finish } };
    const request = named("echo_places_request");
    if (echo.server.dispatchUnordered(Service{}, none.allocator(), request, reply)) return error.Taken else |problem| {
        try holds(problem == error.OutOfMemory and wire.end == 0);
    }
}

/// Many calls at once, of which one brings what is no item.
const Many = struct {
    cancelled: u64 = 0,
    forgotten: u64 = 0,

    pub const Begun = struct { call: u64, credit: u32 };

    pub fn credit(_: *const Many) u32 {
        return 8;
    }
    pub fn begin(_: *Many, _: []const u8) !Begun {
        return .{ .call = 7, .credit = 8 };
    }
    pub fn wait(_: *Many, _: u64) ![]const u8 {
        return "nonsense";
    }
    pub fn grant(_: *Many, _: u64, _: u32) void {}
    pub fn cancel(self: *Many, call: u64) void {
        self.cancelled = call;
    }
    pub fn forget(self: *Many, call: u64) void {
        self.forgotten += call;
    }
};

fn unreadable() !void {
    const arena = memory.allocator();
    var many: Many = .{};
    var pipeline = echo.client.EchoPipeline(Many).init(arena, &many);
    defer pipeline.deinit();
    var items = try pipeline.count(.{ .first = 7, .last = 8 });
    if (items.next(arena)) |_| return error.Read else |_| {}
    try holds(many.forgotten == 7 and many.cancelled == 0);
    items.forget();
    (try pipeline.bytes(.{ .data = "" })).forget();
    try holds(many.forgotten == 21);
    items.cancel();
    try holds(many.cancelled == 7);
}

fn order() !void {
    const put = types.accessOf(&.{ .put = .{ .fork = "main", .value = "" } });
    try holds(put.access == .write);
    try equal(put.fork.bytes, "main");
    try holds(types.accessOf(&.{ .fail = .{ .reason = "" } }).access == .unordered);
}

/// A write of one fork, and whether anybody waits for it.
const Write = struct {
    job: echo.Forks.Job,
    left: bool,
    ran: bool = false,

    const ways: echo.service.Reply.Ways = .{ .item = item, .end = finish, .cancelled = cancelled };

    fn make(left: bool) !*Write {
        const self = try memory.allocator().create(Write);
        self.* = .{ .job = .{ .call = run, .reply = .{ .context = self, .ways = &ways } }, .left = left };
        return self;
    }
    fn run(job: *echo.Forks.Job) void {
        const self: *Write = @alignCast(@fieldParentPtr("job", job));
        self.ran = true;
    }
    fn item(_: *anyopaque, _: []const u8) echo.service.Flow {
        return .gone;
    }
    fn finish(_: *anyopaque, _: []const u8) void {}
    fn cancelled(context: *anyopaque) bool {
        const self: *Write = @ptrCast(@alignCast(context));
        return self.left;
    }
    fn post(_: ?*anyopaque, job: *echo.Forks.Job) void {
        posted = job;
    }
    var posted: ?*echo.Forks.Job = null;
};

fn turns() !void {
    var forks = echo.Forks.init(memory.allocator(), .{ .post = Write.post });
    defer forks.deinit();
    const writes = [_]*Write{ try Write.make(false), try Write.make(true), try Write.make(false) };
    for (writes) |write| try forks.order(.write, .{ .number = 1 }, &write.job);
    try holds(writes[0].ran and Write.posted == null);
    writes[0].job.inTurn().release();
    while (Write.posted) |job| {
        Write.posted = null;
        job.run();
    }
    try holds(!writes[1].ran and writes[2].ran);
    writes[2].job.inTurn().release();
}

pub fn main() void {
    for (frames.golden) |frame| {
        check(frame.name, comesBack(frame.bytes, frame.bytes));
        check(frame.name, refusesPrefixes(frame.bytes));
        _ = memory.reset(.retain_capacity);
    }
    for (frames.accepted) |frame| {
        const end = std.mem.indexOfScalar(u8, frame.name, '.').?;
        check(frame.name, comesBack(frame.bytes, named(frame.name[0..end])));
    }
    for (frames.refused) |frame| check(frame.name, refuses(frame.bytes));
    check("mutations", mutations());
    check("values are what the frames say", values());
    check("text that is not UTF-8 is not written", misfits());
    check("what is wrong is placed by its name on the wire", placed());
    check("calls are answered", calls());
    check("streams bring items and then their end", streams());
    check("a stream ends with an item that cannot be read", unreadable());
    check("what takes too much memory is told from what there is not", exhausted());
    check("requests say how they are ordered", order());
    check("calls of one fork begin in turn, but for those that nobody waits for", turns());
    std.debug.print("golden-zig: {d} passed, {d} failed\n", .{ passed, failed });
    if (failed > 0) std.process.exit(1);
}
