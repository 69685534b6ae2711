//! Bytes as values: a `Reader` walks one frame. Strings and bytes borrow from it; lists and maps come from the reader's
//! allocator.

const std = @import("std");
const Allocator = std.mem.Allocator;

/// Why bytes are not the value they should be, `TooMuchMemory` among it: more than such a frame may take. `OutOfMemory` is no
/// fault of theirs: the allocator had none.
pub const DecodeError = error{
    Truncated,
    Trailing,
    WrongType,
    OutOfRange,
    NotUtf8,
    WrongLength,
    UnknownField,
    Duplicate,
    Missing,
    UnknownWord,
    UnknownMessage,
    TooMuchMemory,
    OutOfMemory,
};

/// Walks one frame. After an error, `at` and `place` say where.
pub const Reader = struct {
    frame: []const u8,
    allocator: Allocator,
    at: usize = 0,
    place: []const u8 = "frame",
    /// What the values of lists and maps take in memory.
    held: usize = 0,

    /// What they may take for each byte of the frame, and besides.
    const held_per_byte = 64;
    const held_besides = 16 << 20;

    /// Ends the frame.
    pub fn finish(self: *Reader) DecodeError!void {
        if (self.at < self.frame.len) return error.Trailing;
    }

    /// An error about what begins at a byte.
    pub fn refuse(self: *Reader, problem: DecodeError, at: usize) DecodeError {
        self.at = at;
        return problem;
    }

    /// No value of the type that belongs here begins with the byte that was read last.
    pub fn wrongType(self: *Reader) DecodeError {
        return self.refuse(error.WrongType, self.at - 1);
    }

    pub fn take(self: *Reader, count: usize) DecodeError![]const u8 {
        if (count > self.frame.len - self.at) return self.refuse(error.Truncated, self.frame.len);
        defer self.at += count;
        return self.frame[self.at..][0..count];
    }

    pub fn byte(self: *Reader) DecodeError!u8 {
        return (try self.take(1))[0];
    }

    pub fn number(self: *Reader, count: usize) DecodeError!u64 {
        var value: u64 = 0;
        for (try self.take(count)) |digit| value = value << 8 | digit;
        return value;
    }

    /// An integer of any width; 65 bits hold them all.
    pub fn integer(self: *Reader) DecodeError!i65 {
        const first = try self.byte();
        return switch (first) {
            0x00...0x7f => first,
            0xcc => try self.number(1),
            0xcd => try self.number(2),
            0xce => try self.number(4),
            0xcf => try self.number(8),
            0xd0 => @as(i8, @bitCast(@as(u8, @truncate(try self.number(1))))),
            0xd1 => @as(i16, @bitCast(@as(u16, @truncate(try self.number(2))))),
            0xd2 => @as(i32, @bitCast(@as(u32, @truncate(try self.number(4))))),
            0xd3 => @as(i64, @bitCast(try self.number(8))),
            0xe0...0xff => @as(i8, @bitCast(first)),
            else => self.wrongType(),
        };
    }

    fn textLength(self: *Reader) DecodeError!usize {
        const first = try self.byte();
        return switch (first) {
            0xa0...0xbf => first & 31,
            0xd9 => @intCast(try self.number(1)),
            0xda => @intCast(try self.number(2)),
            0xdb => @intCast(try self.number(4)),
            else => self.wrongType(),
        };
    }

    /// A string's bytes, to be compared with what is declared.
    pub fn key(self: *Reader) DecodeError![]const u8 {
        return self.take(try self.textLength());
    }

    /// Where a string begins whose bytes were read, which is where its length stands. No other header that ends where the bytes
    /// begin says the same length.
    pub fn beginOf(self: *const Reader, text: []const u8) usize {
        const end = @intFromPtr(text.ptr) - @intFromPtr(self.frame.ptr);
        for ([_]usize{ 1, 2, 3, 5 }) |size| {
            var head: Reader = .{ .frame = self.frame[0..end], .allocator = self.allocator, .at = end -| size };
            const length = head.textLength() catch continue;
            if (length == text.len and head.at == end) return end - size;
        }
        unreachable;
    }

    pub fn several(self: *Reader, few: u8, many: u8) DecodeError!usize {
        const first = try self.byte();
        if (first >= few and first < few + 16) return first & 15;
        if (first == many) return @intCast(try self.number(2));
        if (first == many + 1) return @intCast(try self.number(4));
        return self.wrongType();
    }

    /// Believes a count only as far as bytes are left.
    pub fn believed(self: *Reader, count: usize, bytes_min: usize) DecodeError!usize {
        if (count > (self.frame.len - self.at) / bytes_min) return self.refuse(error.Truncated, self.frame.len);
        return count;
    }

    /// Memory for as many values: no more than a fixed multiple of the frame and a fixed rest.
    pub fn hold(self: *Reader, comptime T: type, count: usize) DecodeError![]T {
        const room = self.frame.len *| held_per_byte +| held_besides;
        const held = self.held +| count *| @sizeOf(T);
        if (held > room) return error.TooMuchMemory;
        self.held = held;
        return self.allocator.alloc(T, count);
    }

    pub fn exactly(self: *Reader, expected: usize) DecodeError!void {
        const at = self.at;
        if (try self.several(0x90, 0xdc) != expected) return self.refuse(error.WrongLength, at);
    }

    /// Begins a request's envelope and returns its tag.
    pub fn request(self: *Reader) DecodeError![]const u8 {
        try self.exactly(1);
        return self.response();
    }

    /// Begins the envelope of a response, an item or an error, and returns its tag.
    pub fn response(self: *Reader) DecodeError![]const u8 {
        try self.exactly(2);
        return self.key();
    }
};
