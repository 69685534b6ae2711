//! MessagePack as typed services use it. A codec is a type with `T`, `bytes_min`, `optional`, `read` and `write`, put
//! together at compile time. Integers of any width are read where the value fits, and written in the fewest bytes; a
//! field nobody declared is refused, and so is one that comes twice.
//!
//! Strings and bytes borrow from the frame. Lists and maps come from the reader's allocator: give it an arena, since
//! what was read before an error is not given back one by one.

const std = @import("std");
const reading = @import("reader.zig");
const writing = @import("writer.zig");
const Allocator = std.mem.Allocator;

pub const DecodeError = reading.DecodeError;
pub const EncodeError = writing.EncodeError;
pub const Reader = reading.Reader;
pub const Writer = writing.Writer;
pub const readable = writing.readable;

pub const Boolean = struct {
    pub const T = bool;
    pub const bytes_min = 1;
    pub const optional = false;

    pub fn read(reader: *Reader) DecodeError!bool {
        return switch (try reader.byte()) {
            0xc2 => false,
            0xc3 => true,
            else => reader.wrongType(),
        };
    }

    pub fn write(writer: *Writer, value: bool) EncodeError!void {
        return writer.byte(if (value) 0xc3 else 0xc2);
    }
};

pub fn Integer(comptime Of: type) type {
    return struct {
        pub const T = Of;
        pub const bytes_min = 1;
        pub const optional = false;

        pub fn read(reader: *Reader) DecodeError!Of {
            const at = reader.at;
            return std.math.cast(Of, try reader.integer()) orelse reader.refuse(error.OutOfRange, at);
        }

        pub fn write(writer: *Writer, value: Of) EncodeError!void {
            return if (@typeInfo(Of).int.signedness == .signed) writer.signed(value) else writer.unsigned(value);
        }
    };
}

pub const F32 = struct {
    pub const T = f32;
    pub const bytes_min = 5;
    pub const optional = false;

    pub fn read(reader: *Reader) DecodeError!f32 {
        if (try reader.byte() != 0xca) return reader.wrongType();
        return @bitCast(@as(u32, @truncate(try reader.number(4))));
    }

    /// There is one NaN on the wire, since not every language can tell two apart.
    pub fn write(writer: *Writer, value: f32) EncodeError!void {
        return writer.tagged(0xca, u32, if (std.math.isNan(value)) 0x7fc00000 else @bitCast(value));
    }
};

pub const F64 = struct {
    pub const T = f64;
    pub const bytes_min = 5;
    pub const optional = false;

    pub fn read(reader: *Reader) DecodeError!f64 {
        return switch (try reader.byte()) {
            0xca => @as(f32, @bitCast(@as(u32, @truncate(try reader.number(4))))),
            0xcb => @bitCast(try reader.number(8)),
            else => reader.wrongType(),
        };
    }

    pub fn write(writer: *Writer, value: f64) EncodeError!void {
        return writer.tagged(0xcb, u64, if (std.math.isNan(value)) 0x7ff8000000000000 else @bitCast(value));
    }
};

pub const String = struct {
    pub const T = []const u8;
    pub const bytes_min = 1;
    pub const optional = false;

    pub fn read(reader: *Reader) DecodeError![]const u8 {
        const text = try reader.key();
        return if (std.unicode.utf8ValidateSlice(text)) text else reader.refuse(error.NotUtf8, reader.at - text.len);
    }

    pub fn write(writer: *Writer, value: []const u8) EncodeError!void {
        if (!std.unicode.utf8ValidateSlice(value)) return error.NotUtf8;
        return writer.string(value);
    }
};

pub const Bytes = struct {
    pub const T = []const u8;
    pub const bytes_min = 1;
    pub const optional = false;

    pub fn read(reader: *Reader) DecodeError![]const u8 {
        const length = switch (try reader.byte()) {
            0xc4 => try reader.number(1),
            0xc5 => try reader.number(2),
            0xc6 => try reader.number(4),
            else => return reader.wrongType(),
        };
        return reader.take(@intCast(length));
    }

    pub fn write(writer: *Writer, value: []const u8) EncodeError!void {
        try writer.counted(0xc4, value.len);
        return writer.append(value);
    }
};

pub const Bin32 = struct {
    pub const T = [32]u8;
    pub const bytes_min = 34;
    pub const optional = false;

    pub fn read(reader: *Reader) DecodeError![32]u8 {
        const at = reader.at;
        const bytes = try Bytes.read(reader);
        return if (bytes.len == 32) bytes[0..32].* else reader.refuse(error.WrongLength, at);
    }

    pub fn write(writer: *Writer, value: [32]u8) EncodeError!void {
        return Bytes.write(writer, &value);
    }
};

/// A declared 32-byte type: a struct with `bytes`.
pub fn Nominal(comptime Of: type) type {
    return struct {
        pub const T = Of;
        pub const bytes_min = 34;
        pub const optional = false;

        pub fn read(reader: *Reader) DecodeError!Of {
            return .{ .bytes = try Bin32.read(reader) };
        }

        pub fn write(writer: *Writer, value: Of) EncodeError!void {
            return Bin32.write(writer, value.bytes);
        }
    };
}

pub fn Optional(comptime Codec: type) type {
    return struct {
        pub const T = ?Codec.T;
        pub const bytes_min = 1;
        pub const optional = true;

        pub fn read(reader: *Reader) DecodeError!T {
            if (reader.at < reader.frame.len and reader.frame[reader.at] == 0xc0) {
                reader.at += 1;
                return null;
            }
            return try Codec.read(reader);
        }

        pub fn write(writer: *Writer, value: T) EncodeError!void {
            return if (value) |present| Codec.write(writer, present) else writer.byte(0xc0);
        }
    };
}

pub fn List(comptime Codec: type) type {
    return struct {
        pub const T = []const Codec.T;
        pub const bytes_min = 1;
        pub const optional = false;

        pub fn read(reader: *Reader) DecodeError!T {
            const count = try reader.believed(try reader.several(0x90, 0xdc), Codec.bytes_min);
            const values = try reader.hold(Codec.T, count);
            for (values) |*value| value.* = try Codec.read(reader);
            return values;
        }

        pub fn write(writer: *Writer, values: T) EncodeError!void {
            try writer.several(0x90, 0xdc, values.len);
            for (values) |value| try Codec.write(writer, value);
        }
    };
}

pub fn Array(comptime Codec: type, comptime count: usize) type {
    return struct {
        pub const T = [count]Codec.T;
        pub const bytes_min = 1 + count * Codec.bytes_min;
        pub const optional = false;

        pub fn read(reader: *Reader) DecodeError!T {
            try reader.exactly(count);
            var values: T = undefined;
            for (&values) |*value| value.* = try Codec.read(reader);
            return values;
        }

        pub fn write(writer: *Writer, values: T) EncodeError!void {
            try writer.several(0x90, 0xdc, count);
            for (values) |value| try Codec.write(writer, value);
        }
    };
}

/// A key and its value.
pub fn Entry(comptime Value: type) type {
    return struct {
        key: []const u8,
        value: Value,

        fn before(_: void, left: @This(), right: @This()) bool {
            return std.mem.order(u8, left.key, right.key) == .lt;
        }
    };
}

/// Entries, sorted by the bytes of their keys when they were read; in any order to be written.
pub fn Map(comptime Codec: type) type {
    return struct {
        const Of = Entry(Codec.T);
        pub const T = []const Of;
        pub const bytes_min = 1;
        pub const optional = false;

        /// Sorts entries by their keys. The first key that is there twice, as it comes again.
        fn sort(entries: []Of) ?[]const u8 {
            std.mem.sort(Of, entries, {}, Of.before);
            if (entries.len < 2) return null;
            var again: ?[]const u8 = null;
            for (entries[0 .. entries.len - 1], entries[1..]) |entry, next| {
                if (!std.mem.eql(u8, entry.key, next.key)) continue;
                if (again == null or @intFromPtr(next.key.ptr) < @intFromPtr(again.?.ptr)) again = next.key;
            }
            return again;
        }

        pub fn read(reader: *Reader) DecodeError!T {
            const count = try reader.believed(try reader.several(0x80, 0xde), 1 + Codec.bytes_min);
            const entries = try reader.hold(Of, count);
            const place = reader.place;
            var keys: usize = 0;
            var problem: ?DecodeError = null;
            fill(reader, entries, &keys) catch |wrong| {
                problem = wrong;
            };
            // A key that came twice came before what is wrong behind it.
            if (sort(entries[0..keys])) |again| {
                reader.place = place;
                return reader.refuse(error.Duplicate, reader.beginOf(again));
            }
            return problem orelse entries;
        }

        /// Reads entries, and counts the keys that were read.
        fn fill(reader: *Reader, entries: []Of, keys: *usize) DecodeError!void {
            for (entries) |*entry| {
                entry.key = try String.read(reader);
                keys.* += 1;
                entry.value = try Codec.read(reader);
            }
        }

        pub fn write(writer: *Writer, values: T) EncodeError!void {
            const sorted = try writer.allocator.dupe(Of, values);
            defer writer.allocator.free(sorted);
            if (sort(sorted) != null) return error.Duplicate;
            try writer.fields(sorted.len);
            for (sorted) |entry| {
                try String.write(writer, entry.key);
                try Codec.write(writer, entry.value);
            }
        }
    };
}

/// How many branches it may take to go through a table at compile time.
fn quota(comptime count: usize) u32 {
    return 1_000 + 10 * count;
}

/// An enum and its words, in the order of its members.
pub fn Words(comptime Of: type, comptime words: []const []const u8) type {
    return struct {
        const branches = quota(words.len);
        pub const T = Of;
        pub const optional = false;
        pub const bytes_min = shortest: {
            @setEvalBranchQuota(branches);
            var least = words[0].len;
            for (words) |word| least = @min(least, word.len);
            break :shortest 1 + least;
        };

        pub fn read(reader: *Reader) DecodeError!Of {
            @setEvalBranchQuota(branches);
            const at = reader.at;
            const found = try reader.key();
            inline for (words, 0..) |word, n| {
                if (std.mem.eql(u8, found, word)) return @enumFromInt(n);
            }
            return reader.refuse(error.UnknownWord, at);
        }

        pub fn write(writer: *Writer, value: Of) EncodeError!void {
            return writer.string(words[@intFromEnum(value)]);
        }
    };
}

/// A struct: of each field its name on the wire, its name here and its codec.
pub fn Struct(comptime Of: type, comptime name: []const u8, comptime table: anytype) type {
    return struct {
        const branches = quota(table.len);
        pub const T = Of;
        pub const tag = name;
        pub const optional = false;
        pub const bytes_min = least: {
            @setEvalBranchQuota(branches);
            var sum = 1;
            for (table) |field| {
                if (!field[2].optional) sum += 1 + field[0].len + field[2].bytes_min;
            }
            break :least sum;
        };

        pub fn read(reader: *Reader) DecodeError!Of {
            @setEvalBranchQuota(branches);
            var value: Of = undefined;
            var seen: [table.len]bool = @splat(false);
            const outer = reader.place;
            reader.place = name;
            const count = try reader.believed(try reader.several(0x80, 0xde), 2);
            next: for (0..count) |_| {
                const found = try reader.key();
                inline for (table, 0..) |field, n| {
                    if (std.mem.eql(u8, found, field[0])) {
                        reader.place = name ++ "." ++ field[0];
                        if (seen[n]) return error.Duplicate;
                        seen[n] = true;
                        @field(value, field[1]) = try field[2].read(reader);
                        reader.place = name;
                        continue :next;
                    }
                }
                return error.UnknownField;
            }
            inline for (table, 0..) |field, n| {
                if (!seen[n]) {
                    if (!field[2].optional) {
                        reader.place = name ++ "." ++ field[0];
                        return error.Missing;
                    }
                    if (field[2].optional) @field(value, field[1]) = null;
                }
            }
            reader.place = outer;
            return value;
        }

        pub fn write(writer: *Writer, value: Of) EncodeError!void {
            @setEvalBranchQuota(branches);
            const outer = writer.place;
            try writer.fields(table.len);
            inline for (table) |field| {
                try writer.string(field[0]);
                writer.place = name ++ "." ++ field[0];
                try field[2].write(writer, @field(value, field[1]));
            }
            writer.place = outer;
        }
    };
}

/// A union of messages, in its order: of each its name here and its codec.
pub fn Sum(comptime Of: type, comptime kind: enum { request, response }, comptime table: anytype) type {
    return struct {
        const branches = quota(table.len);
        /// Reads a whole frame, which has to outlive what is returned.
        pub fn decode(arena: Allocator, frame: []const u8) DecodeError!Of {
            var reader: Reader = .{ .frame = frame, .allocator = arena };
            return read(&reader);
        }

        /// Reads a whole frame; after an error the reader says where.
        pub fn read(reader: *Reader) DecodeError!Of {
            @setEvalBranchQuota(branches);
            const tag = if (kind == .request) try reader.request() else try reader.response();
            inline for (table) |message| {
                if (std.mem.eql(u8, tag, message[1].tag)) {
                    const value = @unionInit(Of, message[0], try message[1].read(reader));
                    try reader.finish();
                    return value;
                }
            }
            return error.UnknownMessage;
        }

        /// Writes a whole frame behind what the writer holds.
        pub fn encode(writer: *Writer, value: Of) EncodeError!void {
            @setEvalBranchQuota(branches);
            switch (value) {
                // The table has the union's order.
                inline else => |message, which| return frameOf(kind == .request, table[@intFromEnum(which)][1], writer, message),
            }
        }
    };
}

/// Writes the frame of one message: a request's, or a response's, item's or error's.
pub fn frameOf(comptime is_request: bool, comptime Codec: type, writer: *Writer, value: Codec.T) EncodeError!void {
    try writer.append(if (is_request) "\x91\x92" else "\x92");
    try writer.string(Codec.tag);
    return Codec.write(writer, value);
}
