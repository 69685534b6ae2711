//! The face's tests, as a program: each check is counted.

const std = @import("std");
const echo = @import("echo");
const frames = @import("frames");
const thalweg = @import("thalweg");
const system = @import("system");
const EchoService = @import("service").Service;

const types = echo.types;
const Client = thalweg.Client;
const Waiting = echo.client.EchoClient(Client);
const Pipeline = echo.client.EchoPipeline(Client);

var passed: usize = 0;
var failed: usize = 0;
var memory = std.heap.ArenaAllocator.init(std.heap.c_allocator);

fn holds(what: bool, comptime name: []const u8) void {
    if (what) {
        passed += 1;
    } else {
        failed += 1;
        system.complain(name ++ " does not hold");
    }
}

fn fails(outcome: anytype, expected: anyerror, comptime name: []const u8) void {
    if (outcome) |_| holds(false, name) else |problem| holds(problem == expected, name);
}

/// A path in the folder that the program was given.
fn path(folder: []const u8, comptime name: []const u8) [:0]const u8 {
    return std.fmt.allocPrintSentinel(memory.allocator(), "{s}/{s}", .{ folder, name }, 0) catch unreachable;
}

const Take = fn (*EchoService, thalweg.Incoming) void;

/// A server that runs on a thread.
const Running = struct {
    server: thalweg.Server,
    stopper: thalweg.Stopper,
    service: EchoService,
    thread: system.Thread,

    fn start(endpoint: [:0]const u8, options: thalweg.ServerOptions, comptime take: Take) !*Running {
        const self = try memory.allocator().create(Running);
        self.server = try thalweg.Server.open(&.{endpoint}, options);
        self.stopper = try self.server.stopper();
        self.service = .{ .allocator = std.heap.c_allocator };
        self.thread = system.Thread.start(struct {
            fn work(context: ?*anyopaque) callconv(.c) ?*anyopaque {
                const running: *Running = @ptrCast(@alignCast(context.?));
                running.server.runReactor(&running.service, take) catch holds(false, "a server's run");
                return null;
            }
        }.work, self);
        return self;
    }

    fn end(self: *Running) void {
        self.stopper.stop();
        self.thread.join();
        self.stopper.free();
        self.server.close();
    }
};

fn dispatch(service: *EchoService, incoming: thalweg.Incoming) void {
    thalweg.Dispatcher(echo).dispatchUnordered(std.heap.c_allocator, service, incoming);
}

const serving: thalweg.ServerOptions = .{ .schema = types.schema_hash, .error_tag = types.error_tag };
const calling: thalweg.ClientOptions = .{ .schema = types.schema_hash };

fn serves(client: *Client) bool {
    const arena = memory.allocator();
    var waiting = Waiting.init(arena, client);
    const answer = waiting.bytes(arena, .{ .data = "abc" }) catch return false;
    return answer == .ok and std.mem.eql(u8, answer.ok.data, "abc");
}

fn connecting(folder: []const u8) !void {
    var once = calling;
    once.connect_within_ms = 0;
    const endpoint = path(folder, "connecting.sock");
    fails(Client.open(endpoint, once), error.NoServer, "nobody listens");
    holds(std.mem.indexOf(u8, thalweg.detail(), "connecting.sock") != null, "the path in the words");
    holds(thalweg.faultOf(error.NoServer).?.retry() == .safe, "that a repetition is safe");
    fails(Client.open("no-endpoint", once), error.BadArgument, "no endpoint");

    const stale = path(folder, "stale.sock");
    _ = system.close(system.bound(stale));
    fails(Client.open(stale, once), error.NoServer, "a path that a dead server left");
    const crowded = path(folder, "crowded.sock");
    const listener = system.bound(crowded);
    defer _ = system.close(listener);
    var patient = calling;
    patient.connect_within_ms = 50;
    const waits = system.crowd(listener, crowded);
    defer _ = system.close(waits);
    fails(Client.open(crowded, patient), error.ConnectTimeout, "a server before whom as many wait as may");

    const running = try Running.start(endpoint, serving, dispatch);
    defer running.end();
    var other = calling;
    other.schema[0] ^= 1;
    fails(Client.open(endpoint, other), error.SchemaMismatch, "another schema");
    fails(thalweg.Server.open(&.{endpoint}, serving), error.AddressInUse, "a path of somebody else's");
    var client = try Client.open(endpoint, calling);
    defer client.close();
    holds(serves(&client), "that nobody was disturbed");
}

/// Frames that no client would write: each is answered with a fault of its own, and the connection serves on.
fn nonsense(folder: []const u8, comptime name: []const u8) !void {
    const endpoint = path(folder, name);
    const running = try Running.start(endpoint, serving, dispatch);
    defer running.end();
    var client = try Client.open(endpoint, calling);
    defer client.close();
    for (frames.refused) |frame| {
        const outcome = client.receive(try client.send(frame.bytes));
        const is_named = if (outcome) |_| false else |problem| switch (problem) {
            error.BadRequest, error.UnknownCommand => true,
            else => false,
        };
        holds(is_named, "a frame's refusal");
    }
    holds(serves(&client), "that the connection serves on");
}

fn limits(folder: []const u8) !void {
    const endpoint = path(folder, "limits.sock");
    var small = serving;
    small.frame_bytes_max = 10_000;
    const running = try Running.start(endpoint, small, dispatch);
    defer running.end();
    var few = calling;
    few.in_flight_max = 4;
    few.frame_bytes_max = 100_000;
    var client = try Client.open(endpoint, few);
    defer client.close();
    const arena = memory.allocator();
    var pipeline = Pipeline.init(arena, &client);
    const large = try arena.alloc(u8, 200_000);
    @memset(large, 0);
    fails(pipeline.bytes(.{ .data = large }), error.FrameTooLarge, "more than the client sends");
    const refused = try pipeline.bytes(.{ .data = large[0..50_000] });
    fails(refused.wait(arena), error.FrameTooLarge, "more than the server takes");
    var pending: [4]@TypeOf(refused) = undefined;
    for (&pending) |*call| call.* = try pipeline.bytes(.{ .data = "x" });
    fails(pipeline.bytes(.{ .data = "x" }), error.Overloaded, "one call too many");
    for (pending) |call| holds((try call.wait(arena)) == .ok, "a call within the limit");
    holds(serves(&client), "that the connection serves on");
}

/// Replies that are not given as they should be.
fn careless(_: *EchoService, incoming: thalweg.Incoming) void {
    if (incoming.frame.len == 1) return incoming.reply.drop();
    incoming.reply.fail(.overloaded, "come back later");
}

fn carelessness(folder: []const u8) !void {
    const endpoint = path(folder, "careless.shm");
    const running = try Running.start(endpoint, serving, careless);
    defer running.end();
    var client = try Client.open(endpoint, calling);
    defer client.close();
    holds(client.state().shared, "shared memory");
    fails(client.receive(try client.send("1")), error.Abandoned, "a reply that was dropped");
    fails(client.receive(0), error.Cancelled, "a call that there is not, which the face finds itself");
    fails(client.receive(try client.send("22")), error.Overloaded, "a fault of the handler's");
    holds(std.mem.indexOf(u8, thalweg.detail(), "come back later") != null, "what the handler said, in the words");
}

/// Answers, and then goes on as if it had not.
const Hasty = struct {
    fn twice(responder: anytype, response: anytype) !void {
        try responder.ok(response);
        try responder.ok(response);
        holds(responder.cancelled(), "that nobody waits for a second answer");
        return error.TooLate;
    }

    pub fn bytes(_: Hasty, request: types.EchoBytes, responder: anytype) !void {
        return twice(responder, types.EchoBytesResponse{ .data = request.data });
    }
    pub fn put(_: Hasty, _: types.EchoPut, responder: anytype) !void {
        return twice(responder, types.EchoPutResponse{ .version = 1 });
    }
    pub fn count(_: Hasty, _: types.EchoCount, responder: anytype) !void {
        try responder.ok(.{ .count = 0 });
        holds(try responder.item(.{ .value = 1 }) == .gone, "an item behind the end");
        return responder.err("too late");
    }
    pub fn peek(_: Hasty, _: types.EchoPeek, responder: anytype) !void {
        try responder.abandon();
        return error.TooLate;
    }
    pub const peekCommitted = neither;
    pub const fields = neither;
    pub const nested = neither;
    pub const aliases = neither;
    pub const blobs = neither;
    pub const fail = neither;
    pub const numbers = neither;
    pub const places = neither;

    fn neither(_: Hasty, _: anytype, _: anytype) !void {
        return error.Unasked;
    }

    var watched: std.heap.DebugAllocator(.{}) = .init;
    var forks = echo.Forks.init(std.heap.c_allocator, .{ .post = post });

    fn post(_: ?*anyopaque, _: *echo.Forks.Job) void {
        holds(false, "that each has its turn at once");
    }
    fn take(_: *EchoService, incoming: thalweg.Incoming) void {
        thalweg.Dispatcher(echo).dispatch(watched.allocator(), Hasty{}, &forks, incoming);
    }
};

fn haste(folder: []const u8) !void {
    const running = try Running.start(path(folder, "hasty.sock"), serving, Hasty.take);
    const arena = memory.allocator();
    {
        defer running.end();
        var client = try Client.open(path(folder, "hasty.sock"), calling);
        defer client.close();
        var waiting = Waiting.init(arena, &client);
        for (0..3) |_| {
            holds(serves(&client), "the first of two answers");
            holds((try waiting.put(arena, .{ .fork = "main", .value = "" })).ok.version == 1, "the first in its turn");
            const items = try waiting.count(.{ .first = 1, .last = 2 });
            holds((try items.next(arena)).end.count == 0, "the end of a stream without items");
            fails(waiting.peek(arena, .{ .fork = "main" }), error.Abandoned, "a call that was abandoned and failed");
            const refused = try waiting.fail(arena, .{ .reason = "x" });
            holds(std.mem.eql(u8, refused.refused, "Unasked"), "an error before any answer");
        }
    }
    Hasty.forks.deinit();
    holds(Hasty.watched.deinit() == .ok, "that each call's memory is freed once");
}

/// A stream that brings one thing twice, and then waits for its reader to leave.
const Held = struct {
    var bell: system.Bell = undefined;
    var replies: [4]thalweg.Reply = undefined;
    var taken: usize = 0;
    var brings: []const u8 = undefined;

    fn take(_: *EchoService, incoming: thalweg.Incoming) void {
        replies[taken] = incoming.reply;
        taken += 1;
        // Nobody waits for a third one: what changes is that nobody waits for anything.
        holds(incoming.reply.item(brings) == .go and incoming.reply.item(brings) == .wait, "two items");
        incoming.reply.changed(left, null, null);
    }
    fn left(_: ?*anyopaque) callconv(.c) void {
        bell.ring();
    }
};

/// Who leaves a stream makes no other call: the server hears of it all the same, and what waits behind the stream goes on.
fn leaving(folder: []const u8, comptime name: []const u8) !void {
    const endpoint = path(folder, name);
    Held.bell = system.Bell.init();
    defer Held.bell.deinit();
    Held.taken = 0;
    const arena = memory.allocator();
    var writer: echo.mp.Writer = .{ .allocator = arena };
    try types.EchoResponseCodec.encode(&writer, .{ .count_item = .{ .value = 5 } });
    const running = try Running.start(endpoint, serving, Held.take);
    defer running.end();
    var client = try Client.open(endpoint, calling);
    defer client.close();
    var waiting = Waiting.init(arena, &client);
    for ([_]bool{ true, false }) |is_read| {
        Held.brings = if (is_read) writer.written() else "nonsense";
        client.with(.{ .credit = 2 });
        const items = try waiting.count(.{ .first = 0, .last = 9 });
        if (is_read) {
            holds((try items.next(arena)).item.value == 5, "an item");
            items.close();
        } else {
            fails(items.next(arena), error.WrongType, "an item that cannot be read");
        }
        const heard = Held.bell.heard(10_000);
        holds(heard and Held.replies[Held.taken - 1].cancelled(), "that the server hears that a stream was left");
        items.close();
    }
    // A stream that was left by another call has no say in the next one.
    Held.brings = writer.written();
    client.with(.{ .credit = 2 });
    const before = try waiting.count(.{ .first = 0, .last = 9 });
    client.with(.{ .credit = 2 });
    const items = try waiting.count(.{ .first = 0, .last = 9 });
    before.close();
    holds((try items.next(arena)).item.value == 5, "an item of the stream that was not left");
    items.close();
    for (Held.replies[0..Held.taken]) |reply| reply.drop();
    holds(client.state().in_flight == 0, "nothing is under way");
}

/// Makes what is left to the server's loop at once.
fn dispatchToTheEnd(service: *EchoService, incoming: thalweg.Incoming) void {
    dispatch(service, incoming);
    while (service.goOn()) {}
}

/// Two streams that are waited for on one client: the second has the place of the first, which says so.
fn meeting(folder: []const u8) !void {
    const endpoint = path(folder, "meeting.sock");
    const running = try Running.start(endpoint, serving, dispatchToTheEnd);
    defer running.end();
    var client = try Client.open(endpoint, calling);
    defer client.close();
    const arena = memory.allocator();
    var waiting = Waiting.init(arena, &client);
    const first = try waiting.count(.{ .first = 10, .last = 19 });
    holds((try first.next(arena)).item.value == 10, "an item of the first stream");
    const second = try waiting.count(.{ .first = 20, .last = 21 });
    fails(first.next(arena), error.Cancelled, "a stream whose place another took");
    holds(std.mem.indexOf(u8, thalweg.detail(), "another call was made") != null, "why, in the words");
    for (20..22) |value| holds((try second.next(arena)).item.value == value, "the second stream's own items");
    holds((try second.next(arena)).end.count == 2, "the second stream's end");

    // What is said for one call is said for no other, though it could not be written.
    client.with(.{ .deadline_ms = 0 });
    fails(waiting.fail(arena, .{ .reason = "caf\xe9" }), error.NotUtf8, "words that nobody could read");
    holds(serves(&client), "that the next call has all the time");

    const unread = thalweg.faultOf(error.Truncated);
    holds(unread != null and unread.? == .bad_answer, "the fault of what cannot be read");
    holds(thalweg.faultOf(error.OutOfMemory) == null, "that memory is no call's fault");
}

/// A stream that ends while it could be woken.
const Woken = struct {
    var woken: usize = 0;
    var released: usize = 0;
    var released_by_then: usize = 0;
    var item: []const u8 = undefined;
    var end: []const u8 = undefined;

    fn wake(_: ?*anyopaque) callconv(.c) void {
        woken += 1;
    }
    fn release(_: ?*anyopaque) callconv(.c) void {
        released += 1;
    }
    fn take(_: *EchoService, incoming: thalweg.Incoming) void {
        while (incoming.reply.item(item) == .go) {}
        incoming.reply.changed(wake, null, release);
        incoming.reply.end(end);
        released_by_then = released;
    }
};

fn waking(folder: []const u8) !void {
    const endpoint = path(folder, "waking.sock");
    const arena = memory.allocator();
    var item: echo.mp.Writer = .{ .allocator = arena };
    try types.EchoResponseCodec.encode(&item, .{ .count_item = .{ .value = 5 } });
    var end: echo.mp.Writer = .{ .allocator = arena };
    try types.EchoResponseCodec.encode(&end, .{ .count_response = .{ .count = 1 } });
    Woken.item = item.written();
    Woken.end = end.written();
    const running = try Running.start(endpoint, serving, Woken.take);
    var client = try Client.open(endpoint, calling);
    var waiting = Waiting.init(arena, &client);
    client.with(.{ .credit = 1 });
    const items = try waiting.count(.{ .first = 0, .last = 9 });
    holds((try items.next(arena)).item.value == 5, "an item before the end");
    while (try items.next(arena) == .item) {}
    client.close();
    running.end();
    holds(Woken.woken == 0, "that who has answered is not woken");
    holds(Woken.released == 1 and Woken.released_by_then == 1, "that the answer released what was to be woken");
}

/// Is answered by another thread while its method still asks, and has itself woken.
const Shared = struct {
    var passed_on: echo.server.CountResponder = undefined;

    pub fn count(_: Shared, request: types.EchoCount, responder: echo.server.CountResponder) !void {
        passed_on = responder;
        if (request.first > 1) return Asked.about(responder, @enumFromInt(request.first));
        const thread = system.Thread.start(answer, null);
        while (!responder.cancelled()) responder.changed(wake, null, null);
        thread.join();
    }
    fn answer(_: ?*anyopaque) callconv(.c) ?*anyopaque {
        passed_on.ok(.{ .count = 7 }) catch holds(false, "an answer of another thread");
        return null;
    }
    fn wake(_: ?*anyopaque) callconv(.c) void {}

    pub const bytes = neither;
    pub const put = neither;
    pub const peek = neither;
    pub const peekCommitted = neither;
    pub const fields = neither;
    pub const nested = neither;
    pub const aliases = neither;
    pub const blobs = neither;
    pub const fail = neither;
    pub const numbers = neither;
    pub const places = neither;

    fn neither(_: Shared, _: anytype, _: anytype) !void {
        return error.Unasked;
    }
    fn take(_: *EchoService, incoming: thalweg.Incoming) void {
        thalweg.Dispatcher(echo).dispatchUnordered(std.heap.c_allocator, Shared{}, incoming);
    }
};

fn sharing(folder: []const u8) !void {
    const running = try Running.start(path(folder, "shared.sock"), serving, Shared.take);
    defer running.end();
    var client = try Client.open(path(folder, "shared.sock"), calling);
    defer client.close();
    const arena = memory.allocator();
    var waiting = Waiting.init(arena, &client);
    var answered: usize = 0;
    for (0..1_000) |_| {
        const items = try waiting.count(.{ .first = 1, .last = 1 });
        if ((try items.next(arena)).end.count == 7) answered += 1;
    }
    holds(answered == 1_000, "that a reply is taken away from no thread that uses it");
}

/// What a `wake` and a `released` may do: each runs where nothing of the call is locked.
const Asked = struct {
    var watched: std.heap.DebugAllocator(.{}) = .init;
    var failing: std.testing.FailingAllocator = undefined;
    var responder: echo.server.CountResponder = undefined;
    var bell: system.Bell = undefined;
    var threads: [4]system.Thread = undefined;
    var begun: usize = 0;
    var answered: usize = 0;

    const Test = enum(u32) { waits = 1_000, answers, has_no_memory };

    fn about(of: echo.server.CountResponder, what: Test) !void {
        responder = of;
        switch (what) {
            .waits => return waits(),
            .answers => of.changed(answer, null, null),
            .has_no_memory => return hasNoMemory(),
        }
    }

    /// Has another thread ask about the call, at each place where the library calls back at once.
    fn waits() !void {
        responder.changed(ask, null, ask);
        holds(answered == 2, "that a wake and its release may wait for a thread that uses the responder");
        while (try responder.item(.{ .value = 1 }) == .go) {}
        responder.changed(nothing, null, ask);
        responder.changed(nothing, null, ask);
        holds(answered == 3, "the same of the release of a wake that another replaced");
        try responder.ok(.{ .count = 1 });
        holds(answered == 4, "the same of a release by the answer");
        for (threads[0..begun]) |thread| thread.join();
    }
    fn ask(_: ?*anyopaque) callconv(.c) void {
        threads[begun] = system.Thread.start(asks, null);
        begun += 1;
        if (bell.heard(10_000)) answered += 1;
    }
    fn asks(_: ?*anyopaque) callconv(.c) ?*anyopaque {
        _ = responder.cancelled();
        bell.ring();
        return null;
    }
    fn nothing(_: ?*anyopaque) callconv(.c) void {}

    fn answer(_: ?*anyopaque) callconv(.c) void {
        responder.ok(.{ .count = 2 }) catch holds(false, "an answer by a wake");
    }

    /// A stream that would wait, but for the memory that this takes.
    fn hasNoMemory() !void {
        while (try responder.item(.{ .value = 1 }) == .go) {}
        failing.fail_index = failing.alloc_index;
        responder.changed(count, null, count);
        failing.fail_index = std.math.maxInt(usize);
        holds(counted == 2, "that without memory a stream is woken and released at once");
        try responder.ok(.{ .count = 3 });
        holds(counted == 2, "that it is so once");
    }
    var counted: usize = 0;
    fn count(_: ?*anyopaque) callconv(.c) void {
        counted += 1;
    }

    fn take(_: *EchoService, incoming: thalweg.Incoming) void {
        thalweg.Dispatcher(echo).dispatchUnordered(failing.allocator(), Shared{}, incoming);
    }
};

fn callingBack(folder: []const u8) !void {
    Asked.bell = system.Bell.init();
    defer Asked.bell.deinit();
    Asked.failing = .init(Asked.watched.allocator(), .{});
    const arena = memory.allocator();
    {
        const running = try Running.start(path(folder, "asked.sock"), serving, Asked.take);
        defer running.end();
        var client = try Client.open(path(folder, "asked.sock"), calling);
        defer client.close();
        var waiting = Waiting.init(arena, &client);
        for ([_]Asked.Test{ .waits, .answers, .has_no_memory }, 1..) |what, number| {
            client.with(.{ .credit = 2 });
            const items = try waiting.count(.{ .first = @intFromEnum(what), .last = 0 });
            const end = while (true) {
                const next = try items.next(arena);
                if (next == .end) break next.end;
            };
            holds(end.count == number, "the end of a stream that was asked about");
        }
    }
    holds(Asked.watched.deinit() == .ok, "that all memory of these calls is freed once");
}

/// Calls at one fork, and an executor that has ended.
const Ending = struct {
    var ended: usize = 0;
    var first: ?*echo.Forks.Job = null;

    fn post(_: ?*anyopaque, job: *echo.Forks.Job) void {
        job.abandon();
    }
    fn begun(job: *echo.Forks.Job) void {
        first = job;
    }
    fn item(_: *anyopaque, _: []const u8) echo.service.Flow {
        return .gone;
    }
    fn end(_: *anyopaque, _: []const u8) void {
        ended += 1;
    }
};

/// Calls whose memory ends at any one of the allocations that each takes.
const Poor = struct {
    var watched: std.heap.DebugAllocator(.{}) = .init;
    var failing: std.testing.FailingAllocator = undefined;
    var forks: echo.Forks = undefined;
    var is_ordered = false;

    fn take(service: *EchoService, incoming: thalweg.Incoming) void {
        const To = thalweg.Dispatcher(echo);
        if (is_ordered) {
            To.dispatch(failing.allocator(), service, &forks, incoming);
        } else {
            To.dispatchUnordered(failing.allocator(), service, incoming);
        }
        while (service.goOn()) {}
    }

    /// Makes a call again and again, until none of its allocations has failed.
    fn each(waiting: *Waiting) !void {
        const arena = memory.allocator();
        for (0..1_000) |allocations| {
            failing.has_induced_failure = false;
            failing.fail_index = failing.alloc_index + allocations;
            const answer = waiting.put(arena, .{ .fork = "main", .value = "of a length that takes memory" });
            failing.fail_index = std.math.maxInt(usize);
            if (answer) |_| {} else |problem| holds(problem == error.Abandoned, "a call without memory");
            if (!failing.has_induced_failure) return holds(allocations > 0, "that a call takes memory");
        }
        holds(false, "that a call takes only some memory");
    }
};

/// Every call ends, whichever allocation fails, and keeps no memory.
fn poverty(folder: []const u8) !void {
    Poor.failing = .init(Poor.watched.allocator(), .{});
    {
        const running = try Running.start(path(folder, "poor.sock"), serving, Poor.take);
        defer running.end();
        Poor.forks = echo.Forks.init(Poor.failing.allocator(), .{ .post = EchoService.post, .context = &running.service });
        var client = try Client.open(path(folder, "poor.sock"), calling);
        defer client.close();
        var waiting = Waiting.init(memory.allocator(), &client);
        for ([_]bool{ false, true }) |is_ordered| {
            Poor.is_ordered = is_ordered;
            try Poor.each(&waiting);
        }
        holds(serves(&client), "that the service serves on");
    }
    Poor.forks.deinit();
    holds(Poor.watched.deinit() == .ok, "that calls without memory keep none");
}

fn ending() !void {
    const waiting = 100_000;
    var forks = echo.Forks.init(std.heap.c_allocator, .{ .post = Ending.post });
    const jobs = try memory.allocator().alloc(echo.Forks.Job, waiting + 1);
    for (jobs) |*job| {
        const reply: echo.service.Reply = .{ .context = job, .ways = &.{ .item = Ending.item, .end = Ending.end } };
        job.* = .{ .call = Ending.begun, .reply = reply };
        try forks.order(.write, .{ .number = 1 }, job);
    }
    holds(Ending.first == &jobs[0] and Ending.ended == 0, "one has its turn, and the others wait");
    jobs[0].abandon();
    holds(Ending.ended == jobs.len, "that what an executor does not take ends");
    forks.deinit();
}

/// No deadline is none, and any other is one.
fn deadlines() void {
    holds((thalweg.CallOptions{}).inC().deadline_ms == 0, "no deadline");
    holds((thalweg.CallOptions{ .deadline_ms = 0 }).inC().deadline_ms == 1, "a deadline that has passed");
    holds((thalweg.CallOptions{ .deadline_ms = 50 }).inC().deadline_ms == 50, "a deadline");
}

/// Answers at once, one by one.
fn serially(folder: []const u8) !void {
    const endpoint = path(folder, "serial.sock");
    var server = try thalweg.Server.open(&.{endpoint}, serving);
    defer server.close();
    const Asking = struct {
        endpoint: [:0]const u8,
        stopper: thalweg.Stopper,

        fn work(context: ?*anyopaque) callconv(.c) ?*anyopaque {
            const self: *@This() = @ptrCast(@alignCast(context.?));
            self.ask() catch holds(false, "a serial server's answer");
            self.stopper.stop();
            return null;
        }

        fn ask(self: *@This()) !void {
            var client = try Client.open(self.endpoint, .{ .schema = types.schema_hash, .plain = true });
            defer client.close();
            holds(std.mem.eql(u8, try client.receive(try client.send("abc")), "abc!"), "a serial server's answer");
        }
    };
    var asking: Asking = .{ .endpoint = endpoint, .stopper = try server.stopper() };
    defer asking.stopper.free();
    var thread = system.Thread.start(Asking.work, &asking);
    try server.run({}, struct {
        fn handle(_: void, request: []const u8, answer: thalweg.Answer) void {
            answer.write(request);
            answer.write("!");
        }
    }.handle);
    thread.join();
    holds(server.isStopped() and server.statistics().answers == 1, "the end of a serial server");
}

/// Programs of the shell's.
fn spawning(folder: []const u8) !void {
    const endpoint = path(folder, "spawned.sock");
    const log = path(folder, "spawned.log");
    fails(thalweg.Spawned.start("/no/such/program", endpoint, .{}), error.BadArgument, "no such program");
    fails(thalweg.Spawned.start("/etc/passwd", endpoint, .{}), error.PermissionDenied, "no program at all");
    const dying = [_][*:0]const u8{ "-c", "echo it is broken >&2; exit 3" };
    fails(thalweg.Spawned.start("sh", endpoint, .{ .arguments = &dying, .log = log }), error.NoServer, "a death");
    holds(std.mem.indexOf(u8, thalweg.detail(), "code 3") != null, "how it ended, in the words");
    holds(std.mem.indexOf(u8, thalweg.detail(), "it is broken") != null, "what it said, in the words");

    for ([_]bool{ false, true }) |pipes| {
        // What it makes of a request is a fine answer.
        const words = [_][*:0]const u8{ "-c", "test \"$WORD\" = said && exec cat" };
        const variables = [_][*:0]const u8{"WORD=said"};
        const options: thalweg.SpawnOptions = .{ .arguments = &words, .environment = &variables, .pipes = pipes };
        var spawned = try thalweg.Spawned.start("sh", "-", options);
        defer spawned.close();
        var client = try spawned.connect(.{ .plain = true });
        defer client.close();
        holds(std.mem.eql(u8, try client.receive(try client.send("hello")), "hello"), "an answer of a program that was started");
        fails(spawned.connect(.{ .plain = true }), error.NoServer, "a second connection");
        holds(try spawned.tend() == null and spawned.process() != 0, "a program that runs");
        const exit = try spawned.stop();
        holds(exit != null and exit.? == .signal and exit.?.signal == system.SIGTERM, "how it was ended");
        fails(spawned.tend(), error.Closed, "a program that was stopped");
    }
}

fn remotely() !void {
    fails(thalweg.Rpc.open("nowhere at all", null), error.BadArgument, "an address that is none");
    var nobody = try thalweg.Rpc.open("http://127.0.0.1:1/rpc/none", thalweg.Rpc.defaults());
    defer nobody.close();
    fails(nobody.call("Knock", "{}"), error.NoServer, "a call of nobody");
    holds(std.mem.indexOf(u8, thalweg.detail(), "127.0.0.1:1") != null, "who does not answer the call, in the words");
    fails(nobody.expectSchema(&@as([32]u8, @splat(0))), error.NoServer, "a schema of nobody");
    holds((try nobody.next()) == null, "nothing else came");
    fails(nobody.answerAt(0), error.BadArgument, "an answer there is not");
    const calls = [_]thalweg.Rpc.Call{.{ .method = "Knock", .params = null }};
    const call = try nobody.begin(&calls, .{ .target = try nobody.target("http://127.0.0.1:1/rpc/other") });
    try nobody.cancel(call);
    _ = try nobody.turn(.poll);
    holds((try nobody.next()) == null, "nothing comes of what was cancelled");
    holds(try nobody.descriptor() >= 0 and nobody.statistics().connections == 0, "nothing is left open");

    // Two calls of nobody, each of which is told by its own number why it has no answer.
    var begun = [_]u64{ try nobody.begin(&calls, .{}), try nobody.begin(&calls, .{}) };
    holds(nobody.statistics().in_flight == begun.len, "calls under way are counted");
    for (0..begun.len) |_| {
        const done = while (true) {
            if (try nobody.next()) |came| break came;
            _ = try nobody.turn(.block);
        };
        holds(done.fault != null and done.fault.? == .no_server and done.answers == 0, "why there is no answer");
        holds(std.mem.indexOf(u8, done.detail, "127.0.0.1:1") != null, "who does not answer, in the words");
        const place = std.mem.indexOfScalar(u64, &begun, done.call);
        holds(place != null, "a fault's own call");
        if (place) |found| begun[found] = 0;
    }
    holds((try nobody.next()) == null and nobody.statistics().in_flight == 0, "every call has ended");
}

fn everything(folder: []const u8) !void {
    try connecting(folder);
    try nonsense(folder, "nonsense.sock");
    try nonsense(folder, "nonsense.shm");
    try limits(folder);
    try carelessness(folder);
    try haste(folder);
    try leaving(folder, "leaving.sock");
    try leaving(folder, "leaving.shm");
    try meeting(folder);
    try waking(folder);
    try sharing(folder);
    try callingBack(folder);
    try poverty(folder);
    try ending();
    deadlines();
    try serially(folder);
    try spawning(folder);
    try remotely();
}

pub export fn main(count: c_int, arguments: [*]const [*:0]const u8) c_int {
    if (count != 2) {
        system.complain("usage: face FOLDER");
        return 2;
    }
    everything(std.mem.span(arguments[1])) catch |problem| {
        system.complain(@errorName(problem));
        system.complain(thalweg.detail());
        failed += 1;
    };
    memory.deinit();
    var text: [64]u8 = undefined;
    const summary = "face-zig: {d} passed, {d} failed\n";
    system.say(std.fmt.bufPrint(&text, summary, .{ passed, failed }) catch unreachable);
    return if (failed == 0) 0 else 1;
}
