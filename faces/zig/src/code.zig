//! The C interface's codes, as errors.

const faults = @import("faults.zig");

pub fn check(code: u16) faults.Error!void {
    if (code != 0) return faults.errorOf(@enumFromInt(code));
}
