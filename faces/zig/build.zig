const std = @import("std");

pub fn build(b: *std.Build) void {
    _ = b.addModule("thalweg", .{ .root_source_file = b.path("src/thalweg.zig"), .link_libc = true });
}
