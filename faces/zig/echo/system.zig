//! What the echo programs need of the system, by the C library: the standard library spells it differently in each Zig.

/// As large as the C library's.
pub const SignalSet = extern struct { words: [16]c_ulong };
pub const Poll = extern struct { fd: c_int, events: c_short = 1, revents: c_short = 0 };

pub const SIGINT = 2;
pub const SIGTERM = 15;
const SIG_BLOCK = 0;

extern fn sigemptyset(set: *SignalSet) c_int;
extern fn sigaddset(set: *SignalSet, signal: c_int) c_int;
extern fn sigprocmask(how: c_int, set: *const SignalSet, old: ?*SignalSet) c_int;
extern fn signalfd(fd: c_int, set: *const SignalSet, flags: c_int) c_int;
pub extern fn poll(fds: [*]Poll, count: c_ulong, timeout_ms: c_int) c_int;
extern fn write(fd: c_int, bytes: [*]const u8, length: usize) isize;
extern fn getentropy(buffer: *anyopaque, length: usize) c_int;

/// A descriptor that is readable once the program was asked to end.
pub fn endings() c_int {
    var set: SignalSet = undefined;
    _ = sigemptyset(&set);
    _ = sigaddset(&set, SIGTERM);
    _ = sigaddset(&set, SIGINT);
    _ = sigprocmask(SIG_BLOCK, &set, null);
    return signalfd(-1, &set, 0);
}

pub fn say(text: []const u8) void {
    _ = write(1, text.ptr, text.len);
}

pub fn complain(text: []const u8) void {
    _ = write(2, text.ptr, text.len);
    _ = write(2, "\n", 1);
}

/// A number that nobody else has.
pub fn random() u64 {
    var number: u64 = 0;
    _ = getentropy(&number, @sizeOf(u64));
    return number;
}

extern fn eventfd(count: c_uint, flags: c_int) c_int;
extern fn read(fd: c_int, buffer: *anyopaque, length: usize) isize;

/// Rung from any thread, and waited for.
pub const Bell = struct {
    fd: c_int,

    pub fn init() Bell {
        return .{ .fd = eventfd(0, 0) };
    }

    pub fn deinit(self: Bell) void {
        _ = close(self.fd);
    }

    pub fn ring(self: Bell) void {
        const one: u64 = 1;
        _ = write(self.fd, @ptrCast(&one), @sizeOf(u64));
    }

    /// Whether it was rung, within so long.
    pub fn heard(self: Bell, within_ms: c_int) bool {
        var watched = [_]Poll{.{ .fd = self.fd }};
        if (poll(&watched, watched.len, within_ms) != 1) return false;
        var count: u64 = 0;
        return read(self.fd, &count, @sizeOf(u64)) == @sizeOf(u64);
    }
};

extern fn pthread_create(thread: *c_ulong, attributes: ?*anyopaque, start: Thread.Start, of: ?*anyopaque) c_int;
extern fn pthread_join(thread: c_ulong, result: ?*?*anyopaque) c_int;

/// A thread of the C library's.
pub const Thread = struct {
    handle: c_ulong = 0,

    pub const Start = *const fn (?*anyopaque) callconv(.c) ?*anyopaque;

    pub fn start(work: Start, of: ?*anyopaque) Thread {
        var self: Thread = .{};
        if (pthread_create(&self.handle, null, work, of) != 0) @panic("no thread");
        return self;
    }

    pub fn join(self: Thread) void {
        _ = pthread_join(self.handle, null);
    }
};

const Address = extern struct { family: c_ushort = 1, path: [108]u8 = @splat(0) };

extern fn socket(domain: c_int, kind: c_int, protocol: c_int) c_int;
extern fn bind(fd: c_int, address: *const Address, length: c_uint) c_int;
extern fn listen(fd: c_int, backlog: c_int) c_int;
extern fn connect(fd: c_int, address: *const Address, length: c_uint) c_int;

pub extern fn close(fd: c_int) c_int;

fn address(path: []const u8) Address {
    var at: Address = .{};
    @memcpy(at.path[0..path.len], path);
    return at;
}

/// A Unix socket at a path, which nobody listens on; negative where that fails.
pub fn bound(path: []const u8) c_int {
    const fd = socket(1, 1, 0);
    return if (bind(fd, &address(path), @sizeOf(Address)) == 0) fd else -1;
}

/// Has as many wait before a socket at a path as may: one.
pub fn crowd(listener: c_int, path: []const u8) c_int {
    const waits = socket(1, 1, 0);
    const is_full = listen(listener, 0) == 0 and connect(waits, &address(path), @sizeOf(Address)) == 0;
    return if (is_full) waits else -1;
}
