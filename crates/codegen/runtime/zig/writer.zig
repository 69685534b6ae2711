//! Values as bytes, each in the fewest that say it: a `Writer` appends to a buffer of its own.

const std = @import("std");
const Allocator = std.mem.Allocator;

/// Why a value could not be written: two entries with one key, text that no peer would read, or memory.
pub const EncodeError = error{ Duplicate, NotUtf8, OutOfMemory };

/// Appends values to a buffer of its own. After an error, `place` says where.
pub const Writer = struct {
    allocator: Allocator,
    buffer: []u8 = &.{},
    length: usize = 0,
    place: []const u8 = "message",

    pub fn deinit(self: *Writer) void {
        self.allocator.free(self.buffer);
        self.* = .{ .allocator = self.allocator };
    }

    /// What was written so far.
    pub fn written(self: *const Writer) []const u8 {
        return self.buffer[0..self.length];
    }

    /// Begins anew in the same buffer.
    pub fn clear(self: *Writer) void {
        self.length = 0;
        self.place = "message";
    }

    pub fn append(self: *Writer, bytes: []const u8) EncodeError!void {
        const end = self.length + bytes.len;
        if (end > self.buffer.len) {
            self.buffer = try self.allocator.realloc(self.buffer, @max(end, self.buffer.len * 2, 64));
        }
        @memcpy(self.buffer[self.length..end], bytes);
        self.length = end;
    }

    pub fn byte(self: *Writer, value: u8) EncodeError!void {
        return self.append(&.{value});
    }

    pub fn tagged(self: *Writer, tag: u8, comptime T: type, value: T) EncodeError!void {
        var bytes: [1 + @sizeOf(T)]u8 = undefined;
        bytes[0] = tag;
        std.mem.writeInt(T, bytes[1..], value, .big);
        return self.append(&bytes);
    }

    pub fn unsigned(self: *Writer, value: u64) EncodeError!void {
        if (value < 0x80) return self.byte(@intCast(value));
        if (value <= 0xff) return self.tagged(0xcc, u8, @intCast(value));
        if (value <= 0xffff) return self.tagged(0xcd, u16, @intCast(value));
        if (value <= 0xffffffff) return self.tagged(0xce, u32, @intCast(value));
        return self.tagged(0xcf, u64, value);
    }

    pub fn signed(self: *Writer, value: i64) EncodeError!void {
        if (value >= 0) return self.unsigned(@intCast(value));
        if (value >= -32) return self.byte(@bitCast(@as(i8, @intCast(value))));
        if (value >= std.math.minInt(i8)) return self.tagged(0xd0, i8, @intCast(value));
        if (value >= std.math.minInt(i16)) return self.tagged(0xd1, i16, @intCast(value));
        if (value >= std.math.minInt(i32)) return self.tagged(0xd2, i32, @intCast(value));
        return self.tagged(0xd3, i64, value);
    }

    pub fn counted(self: *Writer, first: u8, length: usize) EncodeError!void {
        if (length <= 0xff) return self.tagged(first, u8, @intCast(length));
        if (length <= 0xffff) return self.tagged(first + 1, u16, @intCast(length));
        return self.tagged(first + 2, u32, @intCast(length));
    }

    pub fn several(self: *Writer, few: u8, many: u8, count: usize) EncodeError!void {
        if (count < 16) return self.byte(few | @as(u8, @intCast(count)));
        if (count <= 0xffff) return self.tagged(many, u16, @intCast(count));
        return self.tagged(many + 1, u32, @intCast(count));
    }

    /// A name that was declared; what a caller says goes through `String`.
    pub fn string(self: *Writer, value: []const u8) EncodeError!void {
        if (value.len < 32) {
            try self.byte(0xa0 | @as(u8, @intCast(value.len)));
        } else {
            try self.counted(0xd9, value.len);
        }
        return self.append(value);
    }

    /// Begins a struct.
    pub fn fields(self: *Writer, count: usize) EncodeError!void {
        return self.several(0x80, 0xde, count);
    }
};

/// Words for people, with U+FFFD for each byte that is no UTF-8, behind what the writer holds.
pub fn readable(writer: *Writer, words: []const u8) EncodeError!void {
    var at: usize = 0;
    while (at < words.len) {
        const size = characterSize(words[at..]);
        try writer.append(if (size == 0) "\u{fffd}" else words[at..][0..size]);
        at += @max(size, 1);
    }
}

/// How many bytes the first character takes; none where they are no UTF-8.
fn characterSize(text: []const u8) usize {
    const size = std.unicode.utf8ByteSequenceLength(text[0]) catch return 0;
    return if (size <= text.len and std.unicode.utf8ValidateSlice(text[0..size])) size else 0;
}
