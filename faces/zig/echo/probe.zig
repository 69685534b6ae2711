//! The client that takes single steps and says how each ended: what is wrong is at the other end, and told by the program that started
//! this. The steps stand in conformance/matrix/README.md.

const std = @import("std");
const echo = @import("echo");
const thalweg = @import("thalweg");
const system = @import("system");
const types = echo.types;

const Allocator = std.mem.Allocator;
const Client = thalweg.Client;
const Pipeline = echo.client.EchoPipeline(Client);
const Waiting = echo.client.EchoClient(Client);

/// More than a frame may have unless said otherwise.
const large_bytes = (16 << 20) + 1;

const asked: types.EchoFields = .{ .count = 7, .total = 9, .name = "step" };

/// What became of a call, in a word or two.
fn say(arena: Allocator, outcome: anyerror!void) !void {
    const problem = if (outcome) |_| return system.say("ok\n") else |problem| problem;
    const fault = thalweg.faultOf(problem) orelse return problem;
    // What cannot be read is a bad answer that the client found itself.
    const is_read = fault != .bad_answer or problem == error.BadAnswer;
    if (!is_read) return system.say("decode\n");
    return system.say(try std.fmt.allocPrint(arena, "{s} {s}\n", .{ @errorName(problem), @tagName(fault.retry()) }));
}

fn same(answer: anytype) !void {
    const of = switch (answer) {
        .ok => |of| of,
        .refused => return error.Refused,
    };
    if (of.count != 7 or of.total != 9 or !std.mem.eql(u8, of.name, "step")) return error.Different;
}

fn ask(client: *Client, arena: Allocator, options: thalweg.CallOptions) !void {
    client.with(options);
    var waiting = Waiting.init(arena, client);
    return same(try waiting.fields(arena, asked));
}

/// Begins a call and gives it up.
fn cancelled(client: *Client, arena: Allocator) !void {
    var pipeline = Pipeline.init(arena, client);
    const pending = try pipeline.fields(asked);
    try client.flush();
    pending.cancel();
    return same(try pending.wait(arena));
}

fn send(client: *Client, frame: []const u8) !void {
    _ = try client.receive(try client.send(frame));
}

fn take(client: *Client, arena: Allocator, step: []const u8) !void {
    if (std.mem.eql(u8, step, "echo")) return ask(client, arena, .{});
    if (std.mem.eql(u8, step, "late")) return ask(client, arena, .{ .deadline_ms = 50 });
    if (std.mem.eql(u8, step, "cancel")) return cancelled(client, arena);
    if (std.mem.eql(u8, step, "large")) return send(client, try arena.alloc(u8, large_bytes));
    const frame = try arena.alloc(u8, step.len / 2);
    return send(client, try std.fmt.hexToBytes(frame, step[1..]));
}

/// Takes the steps.
pub fn run(arena: Allocator, endpoint: [:0]const u8, within_ms: []const u8, steps: []const [*:0]const u8) !void {
    const within = try std.fmt.parseInt(u64, within_ms, 10);
    var client = Client.open(endpoint, .{ .schema = types.schema_hash, .connect_within_ms = within }) catch |problem| {
        return say(arena, problem);
    };
    defer client.close();
    for (steps) |step| try say(arena, take(&client, arena, std.mem.span(step)));
}
