//! What can go wrong with a call. Written by `cargo xtask faults` from crates/wire/src/fault.rs. Do not edit.

/// Whether the same call may be made again: never (it would go wrong again), safe (it was not carried out),
/// unknown (it may have been).
pub const Retry = enum { never, safe, unknown };

/// What went wrong. Codes are never reused; a newer library may know more of them.
pub const Fault = enum(u16) {
    /// The service refused, in its own words.
    refused = 1,
    /// The frame is no request of this service: not MessagePack, or fields that are wrong, missing or too many.
    bad_request = 2,
    /// No command has this name.
    unknown_command = 3,
    /// The bytes are no frames of the protocol; the connection ends.
    bad_frame = 4,
    /// The frame is longer than its reader allows.
    frame_too_large = 5,
    /// A call was begun under the id of one that has not ended.
    duplicate_id = 6,
    /// The two ends were generated from different schemas.
    schema_mismatch = 7,
    /// The two ends speak different versions of the protocol.
    version_mismatch = 8,
    /// The endpoint offers shared memory only, or none, or has none left.
    no_shared_memory = 9,
    /// The call was cancelled.
    cancelled = 10,
    /// The call's deadline passed.
    deadline_exceeded = 11,
    /// The handler ended without an answer.
    abandoned = 12,
    /// A bound was reached before any work was done.
    overloaded = 13,
    /// The server is ending and takes nothing new.
    draining = 14,
    /// A stream's producer went on although nobody took what it made.
    overrun = 15,
    /// The connection ended before the answer came.
    disconnected = 16,
    /// The request was not sent: the connection ended before, or its deadline passed.
    not_sent = 17,
    /// Nobody listens at the endpoint.
    no_server = 18,
    /// The endpoint did not take the connection in time.
    connect_timeout = 19,
    /// The endpoint may not be used by this user.
    permission_denied = 20,
    /// Another server has the endpoint.
    address_in_use = 21,
    /// This end was closed.
    closed = 22,
    /// The answer does not fit the schema.
    bad_answer = 23,
    /// The peer wrote what no peer may write into shared memory.
    broken_peer = 24,
    /// An argument that can never be right.
    bad_argument = 25,
    /// The operating system failed.
    system = 26,
    _,

    /// One sentence for people.
    pub fn says(self: Fault) []const u8 {
        return switch (self) {
            .refused => "the service refused",
            .bad_request => "the request does not fit the schema",
            .unknown_command => "the service has no such command",
            .bad_frame => "the bytes are no frame",
            .frame_too_large => "the frame is longer than is allowed",
            .duplicate_id => "a call with this id has not ended yet",
            .schema_mismatch => "client and server were made from different schemas",
            .version_mismatch => "client and server speak different versions",
            .no_shared_memory => "shared memory was not agreed on",
            .cancelled => "the call was cancelled",
            .deadline_exceeded => "the deadline passed",
            .abandoned => "the handler gave no answer",
            .overloaded => "a limit was reached: try again later",
            .draining => "the server is ending",
            .overrun => "the stream ran ahead of its reader",
            .disconnected => "the connection ended before the answer came",
            .not_sent => "the request was not sent",
            .no_server => "nobody listens there",
            .connect_timeout => "the server did not take the connection in time",
            .permission_denied => "this user may not use the endpoint",
            .address_in_use => "another server has the endpoint",
            .closed => "this end was closed",
            .bad_answer => "the answer does not fit the schema",
            .broken_peer => "the peer broke the rules of shared memory",
            .bad_argument => "an argument cannot be right",
            .system => "the operating system failed",
            _ => "a fault of a newer version",
        };
    }

    /// Whether the same call may be made again.
    pub fn retry(self: Fault) Retry {
        return switch (self) {
            .refused => .never,
            .bad_request => .never,
            .unknown_command => .never,
            .bad_frame => .never,
            .frame_too_large => .never,
            .duplicate_id => .never,
            .schema_mismatch => .never,
            .version_mismatch => .never,
            .no_shared_memory => .never,
            .cancelled => .unknown,
            .deadline_exceeded => .unknown,
            .abandoned => .unknown,
            .overloaded => .safe,
            .draining => .safe,
            .overrun => .unknown,
            .disconnected => .unknown,
            .not_sent => .safe,
            .no_server => .safe,
            .connect_timeout => .safe,
            .permission_denied => .never,
            .address_in_use => .never,
            .closed => .never,
            .bad_answer => .unknown,
            .broken_peer => .unknown,
            .bad_argument => .never,
            .system => .unknown,
            _ => .unknown,
        };
    }

    /// The HTTP status that says the same.
    pub fn httpStatus(self: Fault) u16 {
        return switch (self) {
            .refused => 422,
            .bad_request => 400,
            .unknown_command => 404,
            .bad_frame => 400,
            .frame_too_large => 413,
            .duplicate_id => 400,
            .schema_mismatch => 409,
            .version_mismatch => 505,
            .no_shared_memory => 503,
            .cancelled => 499,
            .deadline_exceeded => 504,
            .abandoned => 500,
            .overloaded => 503,
            .draining => 503,
            .overrun => 500,
            .disconnected => 502,
            .not_sent => 502,
            .no_server => 502,
            .connect_timeout => 504,
            .permission_denied => 403,
            .address_in_use => 409,
            .closed => 410,
            .bad_answer => 502,
            .broken_peer => 502,
            .bad_argument => 400,
            .system => 500,
            _ => 500,
        };
    }
};

/// The same, as errors. `NewerFault` stands for codes that this version does not know.
pub const Error = error{
    Refused,
    BadRequest,
    UnknownCommand,
    BadFrame,
    FrameTooLarge,
    DuplicateId,
    SchemaMismatch,
    VersionMismatch,
    NoSharedMemory,
    Cancelled,
    DeadlineExceeded,
    Abandoned,
    Overloaded,
    Draining,
    Overrun,
    Disconnected,
    NotSent,
    NoServer,
    ConnectTimeout,
    PermissionDenied,
    AddressInUse,
    Closed,
    BadAnswer,
    BrokenPeer,
    BadArgument,
    System,
    NewerFault,
};

/// The error of a fault.
pub fn errorOf(fault: Fault) Error {
    return switch (fault) {
        .refused => error.Refused,
        .bad_request => error.BadRequest,
        .unknown_command => error.UnknownCommand,
        .bad_frame => error.BadFrame,
        .frame_too_large => error.FrameTooLarge,
        .duplicate_id => error.DuplicateId,
        .schema_mismatch => error.SchemaMismatch,
        .version_mismatch => error.VersionMismatch,
        .no_shared_memory => error.NoSharedMemory,
        .cancelled => error.Cancelled,
        .deadline_exceeded => error.DeadlineExceeded,
        .abandoned => error.Abandoned,
        .overloaded => error.Overloaded,
        .draining => error.Draining,
        .overrun => error.Overrun,
        .disconnected => error.Disconnected,
        .not_sent => error.NotSent,
        .no_server => error.NoServer,
        .connect_timeout => error.ConnectTimeout,
        .permission_denied => error.PermissionDenied,
        .address_in_use => error.AddressInUse,
        .closed => error.Closed,
        .bad_answer => error.BadAnswer,
        .broken_peer => error.BrokenPeer,
        .bad_argument => error.BadArgument,
        .system => error.System,
        _ => error.NewerFault,
    };
}

/// The fault of whatever a call fails with: an answer that cannot be read is a bad one. Nothing for what is no
/// fault of a call, as `error.OutOfMemory` is none.
pub fn faultOf(err: anyerror) ?Fault {
    return switch (err) {
        error.Refused => .refused,
        error.BadRequest => .bad_request,
        error.UnknownCommand => .unknown_command,
        error.BadFrame => .bad_frame,
        error.FrameTooLarge => .frame_too_large,
        error.DuplicateId => .duplicate_id,
        error.SchemaMismatch => .schema_mismatch,
        error.VersionMismatch => .version_mismatch,
        error.NoSharedMemory => .no_shared_memory,
        error.Cancelled => .cancelled,
        error.DeadlineExceeded => .deadline_exceeded,
        error.Abandoned => .abandoned,
        error.Overloaded => .overloaded,
        error.Draining => .draining,
        error.Overrun => .overrun,
        error.Disconnected => .disconnected,
        error.NotSent => .not_sent,
        error.NoServer => .no_server,
        error.ConnectTimeout => .connect_timeout,
        error.PermissionDenied => .permission_denied,
        error.AddressInUse => .address_in_use,
        error.Closed => .closed,
        error.BadAnswer => .bad_answer,
        error.BrokenPeer => .broken_peer,
        error.BadArgument => .bad_argument,
        error.System => .system,
        error.NewerFault => @enumFromInt(0xffff),
        error.Truncated,
        error.Trailing,
        error.WrongType,
        error.OutOfRange,
        error.NotUtf8,
        error.WrongLength,
        error.UnknownField,
        error.Duplicate,
        error.Missing,
        error.UnknownWord,
        error.UnknownMessage,
        error.TooMuchMemory,
        => .bad_answer,
        else => null,
    };
}
