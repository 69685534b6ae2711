//! `client ENDPOINT`: calls everything that an echo server answers; `client ENDPOINT MILLISECONDS STEP...` takes single steps.
//! What is expected of it: conformance/matrix/README.md.

const std = @import("std");
const echo = @import("echo");
const frames = @import("frames");
const thalweg = @import("thalweg");
const system = @import("system");
const probe = @import("probe.zig");
const mp = echo.mp;
const types = echo.types;

const Allocator = std.mem.Allocator;
const Client = thalweg.Client;
const Pipeline = echo.client.EchoPipeline(Client);
const Waiting = echo.client.EchoClient(Client);

var passed: usize = 0;

fn holds(what: bool, comptime name: []const u8) !void {
    if (!what) {
        system.complain(name ++ " is not as expected");
        return error.Different;
    }
    passed += 1;
}

fn golden(comptime name: []const u8) []const u8 {
    inline for (frames.golden) |frame| {
        if (comptime std.mem.eql(u8, frame.name, name)) return frame.bytes;
    }
    @compileError("no golden frame " ++ name);
}

fn request(arena: Allocator, frame: []const u8) !types.EchoRequest {
    return types.EchoRequestCodec.decode(arena, frame);
}

/// A message's fields as they travel: the same for a request and for what says it back.
fn fields(comptime Codec: type, arena: Allocator, message: Codec.T) ![]const u8 {
    var writer: mp.Writer = .{ .allocator = arena };
    try Codec.write(&writer, message);
    return writer.written();
}

fn isSaidBack(of: types.EchoRequest) bool {
    return switch (of) {
        .bytes, .fields, .nested, .aliases, .blobs, .numbers, .places => true,
        else => false,
    };
}

fn same(arena: Allocator, comptime Name: []const u8, asked: anytype, answer: anytype) !void {
    const said = try fields(@field(types, Name ++ "ResponseCodec"), arena, answer.ok);
    const of = try fields(@field(types, Name ++ "Codec"), arena, asked);
    try holds(std.mem.eql(u8, said, of), Name);
}

fn echoes(client: *Waiting, arena: Allocator, of: types.EchoRequest) !void {
    switch (of) {
        .bytes => |it| try same(arena, "EchoBytes", it, try client.bytes(arena, it)),
        .fields => |it| try same(arena, "EchoFields", it, try client.fields(arena, it)),
        .nested => |it| try same(arena, "EchoNested", it, try client.nested(arena, it)),
        .aliases => |it| try same(arena, "EchoAliases", it, try client.aliases(arena, it)),
        .blobs => |it| try same(arena, "EchoBlobs", it, try client.blobs(arena, it)),
        .numbers => |it| try same(arena, "EchoNumbers", it, try client.numbers(arena, it)),
        .places => |it| try same(arena, "EchoPlaces", it, try client.places(arena, it)),
        else => {},
    }
}

/// A call under way, whatever it is of.
const Begun = struct {
    of: types.EchoRequest,
    call: u64,

    fn begin(pipeline: *Pipeline, of: types.EchoRequest) !Begun {
        const call = switch (of) {
            .bytes => |it| (try pipeline.bytes(it)).call,
            .fields => |it| (try pipeline.fields(it)).call,
            .nested => |it| (try pipeline.nested(it)).call,
            .aliases => |it| (try pipeline.aliases(it)).call,
            .blobs => |it| (try pipeline.blobs(it)).call,
            .numbers => |it| (try pipeline.numbers(it)).call,
            .places => |it| (try pipeline.places(it)).call,
            else => unreachable,
        };
        return .{ .of = of, .call = call };
    }

    fn end(self: Begun, client: *Client, arena: Allocator) !void {
        const frame = try client.wait(self.call);
        const answer = try types.EchoResponseCodec.decode(arena, frame);
        switch (answer) {
            .bytes_response => |it| try same(arena, "EchoBytes", self.of.bytes, .{ .ok = it }),
            .fields_response => |it| try same(arena, "EchoFields", self.of.fields, .{ .ok = it }),
            .nested_response => |it| try same(arena, "EchoNested", self.of.nested, .{ .ok = it }),
            .aliases_response => |it| try same(arena, "EchoAliases", self.of.aliases, .{ .ok = it }),
            .blobs_response => |it| try same(arena, "EchoBlobs", self.of.blobs, .{ .ok = it }),
            .numbers_response => |it| try same(arena, "EchoNumbers", self.of.numbers, .{ .ok = it }),
            .places_response => |it| try same(arena, "EchoPlaces", self.of.places, .{ .ok = it }),
            else => try holds(false, "an answer of another kind"),
        }
    }
};

fn forks(client: *Waiting, arena: Allocator) !void {
    const put = (try request(arena, golden("echo_put_request"))).put;
    const fork = try std.fmt.allocPrint(arena, "zig-{x}", .{system.random()});
    try holds((try client.peek(arena, .{ .fork = fork })).ok.value == null, "a fork before it was put to");
    try holds((try client.put(arena, .{ .fork = fork, .value = put.value })).ok.version == 1, "the first version");
    try holds((try client.put(arena, .{ .fork = fork, .value = put.value })).ok.version == 2, "the second version");
    const last = (try client.peek(arena, .{ .fork = fork })).ok.value;
    try holds(std.mem.eql(u8, last orelse "", put.value), "what was put");
    const committed = (try client.peekCommitted(arena, .{ .fork = fork })).ok.value;
    try holds(std.mem.eql(u8, committed orelse "", put.value), "what was committed");
}

/// 64 calls in flight at once, ended in another order than they were begun.
fn many(client: *Client, pipeline: *Pipeline, arena: Allocator, of: []const types.EchoRequest) !void {
    var begun: [64]Begun = undefined;
    for (&begun, 0..) |*call, n| call.* = try Begun.begin(pipeline, of[n % of.len]);
    try holds(client.state().in_flight == 64, "64 calls in flight");
    for (0..begun.len) |n| try begun[(n * 37) % begun.len].end(client, arena);
}

fn stream(client: *Client, pipeline: *Pipeline, arena: Allocator) !void {
    const wanted = (try request(arena, golden("echo_count_request"))).count;
    client.with(.{ .credit = 16 });
    var items = try pipeline.count(wanted);
    var expected = wanted.first;
    while (true) : (expected += 1) {
        switch (try items.next(arena)) {
            .item => |item| if (item.value != expected) return holds(false, "a stream's order"),
            .end => |end| return holds(expected == wanted.last + 1 and end.count == 1_000, "a stream"),
            .refused => return holds(false, "a stream"),
        }
    }
}

fn refused(pipeline: *Pipeline, arena: Allocator) !void {
    const of = (try request(arena, golden("echo_fail_request"))).fail;
    const pending = try pipeline.fail(of);
    try holds(std.mem.eql(u8, (try pending.wait(arena)).refused, of.reason), "a refusal");
}

/// A request that no service knows: an error frame, or the fault.
fn unknown(client: *Client, arena: Allocator) !void {
    const call = try client.send("\x91\x92\xafEchoNoSuchThing\x80");
    const frame = client.receive(call) catch |problem| return holds(problem == error.UnknownCommand, "an unknown command");
    try holds(try types.EchoResponseCodec.decode(arena, frame) == .error_response, "an unknown command's answer");
}

const endless: types.EchoCount = .{ .first = 0, .last = 0xffff_ffff };

fn cancelled(client: *Client, pipeline: *Pipeline, arena: Allocator) !void {
    client.with(.{ .credit = 4 });
    var items = try pipeline.count(endless);
    try holds((try items.next(arena)).item.value == 0, "the first item");
    items.cancel();
    while (true) {
        _ = items.next(arena) catch |problem| return holds(problem == error.Cancelled, "a cancelled call");
    }
}

/// Nobody grants more items, so the stream waits until its deadline.
fn overdue(client: *Client, pipeline: *Pipeline) !void {
    client.with(.{ .deadline_ms = 50, .credit = 1 });
    const items = try pipeline.count(endless);
    while (true) {
        const frame = client.take(items.call) catch |problem| return holds(problem == error.DeadlineExceeded, "a deadline");
        if (frame == null) _ = try client.turn(.block);
    }
}

fn everything(arena: Allocator, endpoint: [:0]const u8) !void {
    var client = try Client.open(endpoint, .{ .schema = types.schema_hash });
    defer client.close();
    try holds(client.state().shared == std.mem.endsWith(u8, endpoint, ".shm"), "shared memory");
    var waiting = Waiting.init(arena, &client);
    var pipeline = Pipeline.init(arena, &client);
    var of: [frames.golden.len]types.EchoRequest = undefined;
    var count: usize = 0;
    for (frames.golden) |frame| {
        // A request begins as a list of one.
        if (frame.bytes.len == 0 or frame.bytes[0] != 0x91) continue;
        of[count] = try request(arena, frame.bytes);
        if (isSaidBack(of[count])) count += 1;
    }
    for (of[0..count]) |it| try echoes(&waiting, arena, it);
    try forks(&waiting, arena);
    try many(&client, &pipeline, arena, of[0..count]);
    try stream(&client, &pipeline, arena);
    try refused(&pipeline, arena);
    try unknown(&client, arena);
    try cancelled(&client, &pipeline, arena);
    try overdue(&client, &pipeline);
    try echoes(&waiting, arena, of[0]);
    const items = try waiting.count((try request(arena, golden("echo_count_request"))).count);
    while (true) {
        switch (try items.next(arena)) {
            .item => {},
            .end => |end| return holds(end.count == 1_000, "a stream that was waited for"),
            .refused => return holds(false, "a stream that was waited for"),
        }
    }
}

pub export fn main(count: c_int, arguments: [*]const [*:0]const u8) c_int {
    if (count < 2) {
        system.complain("usage: client ENDPOINT [MILLISECONDS STEP...]");
        return 2;
    }
    var arena = std.heap.ArenaAllocator.init(std.heap.c_allocator);
    defer arena.deinit();
    const endpoint = std.mem.span(arguments[1]);
    if (count > 2) {
        const steps = arguments[3..@intCast(count)];
        probe.run(arena.allocator(), endpoint, std.mem.span(arguments[2]), steps) catch |problem| {
            system.complain(@errorName(problem));
            return 1;
        };
        return 0;
    }
    everything(arena.allocator(), endpoint) catch |problem| {
        system.complain(@errorName(problem));
        system.complain(thalweg.detail());
        return 1;
    };
    var text: [32]u8 = undefined;
    system.say(std.fmt.bufPrint(&text, "ok {d}\n", .{passed}) catch "ok\n");
    return 0;
}
