//! `server ENDPOINT`: the echo service in a loop of its own, until TERM or INT.

const std = @import("std");
const echo = @import("echo");
const thalweg = @import("thalweg");
const system = @import("system");
const Service = @import("service").Service;

const Dispatcher = thalweg.Dispatcher(echo);

fn serve(endpoint: [*:0]const u8) !void {
    const ending = system.endings();
    var server = try thalweg.Server.open(&.{endpoint}, .{
        .schema = echo.types.schema_hash,
        .error_tag = echo.types.error_tag,
    });
    defer server.close();
    const stopper = try server.stopper();
    defer stopper.free();
    var service: Service = .{ .allocator = std.heap.c_allocator };
    var forks = echo.Forks.init(service.allocator, .{ .context = &service, .post = Service.post });
    defer forks.deinit();
    system.say("ready\n");
    var watched = [_]system.Poll{ .{ .fd = server.descriptor() }, .{ .fd = ending } };
    while (true) {
        _ = try server.turn(.poll);
        while (try server.next()) |incoming| {
            Dispatcher.dispatch(service.allocator, &service, &forks, incoming);
        }
        if (server.isStopped()) return;
        // What went on may have something to send.
        if (service.goOn()) continue;
        // Once it is ending it looks now and then whether clients have used up their time.
        _ = system.poll(&watched, watched.len, if (watched[1].fd < 0) 100 else -1);
        if (watched[1].revents != 0) {
            stopper.stop();
            watched[1].fd = -1;
        }
    }
}

pub export fn main(count: c_int, arguments: [*]const [*:0]const u8) c_int {
    if (count != 2) {
        system.complain("usage: server ENDPOINT");
        return 2;
    }
    serve(arguments[1]) catch |problem| {
        system.complain(@errorName(problem));
        system.complain(thalweg.detail());
        return 1;
    };
    return 0;
}
