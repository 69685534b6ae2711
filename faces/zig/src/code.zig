//! The C interface's codes, as errors.

const std = @import("std");
const c = @import("c.zig");
const faults = @import("faults.zig");

/// What went wrong last on this thread, if it did here and not behind the C interface.
threadlocal var own: ?[:0]const u8 = null;

pub fn check(code: u16) faults.Error!void {
    if (code != 0) return behind(@enumFromInt(code));
}

/// The error of a fault that the C interface handed out, and has the words of.
pub fn behind(fault: faults.Fault) faults.Error {
    forgetOwn();
    return faults.errorOf(fault);
}

/// What went wrong last came about behind the C interface.
pub fn forgetOwn() void {
    own = null;
}

/// An error that the face finds itself, with its words.
pub fn failure(comptime problem: faults.Error, comptime words: [:0]const u8) faults.Error {
    own = words;
    return problem;
}

/// What went wrong last on this thread.
pub fn detail() [:0]const u8 {
    return own orelse std.mem.span(c.thalweg_error_detail());
}
