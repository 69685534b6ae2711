// What can go wrong with a call. Written by `cargo xtask faults` from crates/wire/src/fault.rs. Do not edit.
#include "runtime.hpp"

#ifndef THALWEG_FAULTS_HPP
#define THALWEG_FAULTS_HPP

#include <cstdint>
#include <string_view>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// What went wrong. Codes are never reused; a newer library may know more of them.
enum class Fault : std::uint16_t {
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
};

/// Whether the same call may be made again: never (it would go wrong again), safe (it was not carried out),
/// unknown (it may have been).
enum class Retry : std::uint8_t { never, safe, unknown };

/// Its name.
constexpr std::string_view word(Fault fault) {
    switch (fault) {
    case Fault::refused: return "refused";
    case Fault::bad_request: return "bad_request";
    case Fault::unknown_command: return "unknown_command";
    case Fault::bad_frame: return "bad_frame";
    case Fault::frame_too_large: return "frame_too_large";
    case Fault::duplicate_id: return "duplicate_id";
    case Fault::schema_mismatch: return "schema_mismatch";
    case Fault::version_mismatch: return "version_mismatch";
    case Fault::no_shared_memory: return "no_shared_memory";
    case Fault::cancelled: return "cancelled";
    case Fault::deadline_exceeded: return "deadline_exceeded";
    case Fault::abandoned: return "abandoned";
    case Fault::overloaded: return "overloaded";
    case Fault::draining: return "draining";
    case Fault::overrun: return "overrun";
    case Fault::disconnected: return "disconnected";
    case Fault::not_sent: return "not_sent";
    case Fault::no_server: return "no_server";
    case Fault::connect_timeout: return "connect_timeout";
    case Fault::permission_denied: return "permission_denied";
    case Fault::address_in_use: return "address_in_use";
    case Fault::closed: return "closed";
    case Fault::bad_answer: return "bad_answer";
    case Fault::broken_peer: return "broken_peer";
    case Fault::bad_argument: return "bad_argument";
    case Fault::system: return "system";
    }
    return "unknown";
}

/// One sentence for people.
constexpr std::string_view says(Fault fault) {
    switch (fault) {
    case Fault::refused: return "the service refused";
    case Fault::bad_request: return "the request does not fit the schema";
    case Fault::unknown_command: return "the service has no such command";
    case Fault::bad_frame: return "the bytes are no frame";
    case Fault::frame_too_large: return "the frame is longer than is allowed";
    case Fault::duplicate_id: return "a call with this id has not ended yet";
    case Fault::schema_mismatch: return "client and server were made from different schemas";
    case Fault::version_mismatch: return "client and server speak different versions";
    case Fault::no_shared_memory: return "shared memory was not agreed on";
    case Fault::cancelled: return "the call was cancelled";
    case Fault::deadline_exceeded: return "the deadline passed";
    case Fault::abandoned: return "the handler gave no answer";
    case Fault::overloaded: return "a limit was reached: try again later";
    case Fault::draining: return "the server is ending";
    case Fault::overrun: return "the stream ran ahead of its reader";
    case Fault::disconnected: return "the connection ended before the answer came";
    case Fault::not_sent: return "the request was not sent";
    case Fault::no_server: return "nobody listens there";
    case Fault::connect_timeout: return "the server did not take the connection in time";
    case Fault::permission_denied: return "this user may not use the endpoint";
    case Fault::address_in_use: return "another server has the endpoint";
    case Fault::closed: return "this end was closed";
    case Fault::bad_answer: return "the answer does not fit the schema";
    case Fault::broken_peer: return "the peer broke the rules of shared memory";
    case Fault::bad_argument: return "an argument cannot be right";
    case Fault::system: return "the operating system failed";
    }
    return "a fault of a newer version";
}

/// Whether the same call may be made again.
constexpr Retry retry(Fault fault) {
    switch (fault) {
    case Fault::refused: return Retry::never;
    case Fault::bad_request: return Retry::never;
    case Fault::unknown_command: return Retry::never;
    case Fault::bad_frame: return Retry::never;
    case Fault::frame_too_large: return Retry::never;
    case Fault::duplicate_id: return Retry::never;
    case Fault::schema_mismatch: return Retry::never;
    case Fault::version_mismatch: return Retry::never;
    case Fault::no_shared_memory: return Retry::never;
    case Fault::cancelled: return Retry::unknown;
    case Fault::deadline_exceeded: return Retry::unknown;
    case Fault::abandoned: return Retry::unknown;
    case Fault::overloaded: return Retry::safe;
    case Fault::draining: return Retry::safe;
    case Fault::overrun: return Retry::unknown;
    case Fault::disconnected: return Retry::unknown;
    case Fault::not_sent: return Retry::safe;
    case Fault::no_server: return Retry::safe;
    case Fault::connect_timeout: return Retry::safe;
    case Fault::permission_denied: return Retry::never;
    case Fault::address_in_use: return Retry::never;
    case Fault::closed: return Retry::never;
    case Fault::bad_answer: return Retry::unknown;
    case Fault::broken_peer: return Retry::unknown;
    case Fault::bad_argument: return Retry::never;
    case Fault::system: return Retry::unknown;
    }
    return Retry::unknown;
}

/// The HTTP status that says the same.
constexpr int http_status(Fault fault) {
    switch (fault) {
    case Fault::refused: return 422;
    case Fault::bad_request: return 400;
    case Fault::unknown_command: return 404;
    case Fault::bad_frame: return 400;
    case Fault::frame_too_large: return 413;
    case Fault::duplicate_id: return 400;
    case Fault::schema_mismatch: return 409;
    case Fault::version_mismatch: return 505;
    case Fault::no_shared_memory: return 503;
    case Fault::cancelled: return 499;
    case Fault::deadline_exceeded: return 504;
    case Fault::abandoned: return 500;
    case Fault::overloaded: return 503;
    case Fault::draining: return 503;
    case Fault::overrun: return 500;
    case Fault::disconnected: return 502;
    case Fault::not_sent: return 502;
    case Fault::no_server: return 502;
    case Fault::connect_timeout: return 504;
    case Fault::permission_denied: return 403;
    case Fault::address_in_use: return 409;
    case Fault::closed: return 410;
    case Fault::bad_answer: return 502;
    case Fault::broken_peer: return 502;
    case Fault::bad_argument: return 400;
    case Fault::system: return 500;
    }
    return 500;
}

/// The JSON-RPC code that says the same.
constexpr int rpc_code(Fault fault) {
    switch (fault) {
    case Fault::refused: return -32000;
    case Fault::bad_request: return -32602;
    case Fault::unknown_command: return -32601;
    case Fault::bad_frame: return -32019;
    case Fault::frame_too_large: return -32020;
    case Fault::duplicate_id: return -32021;
    case Fault::schema_mismatch: return -32001;
    case Fault::version_mismatch: return -32002;
    case Fault::no_shared_memory: return -32003;
    case Fault::cancelled: return -32004;
    case Fault::deadline_exceeded: return -32005;
    case Fault::abandoned: return -32006;
    case Fault::overloaded: return -32007;
    case Fault::draining: return -32008;
    case Fault::overrun: return -32009;
    case Fault::disconnected: return -32010;
    case Fault::not_sent: return -32011;
    case Fault::no_server: return -32012;
    case Fault::connect_timeout: return -32013;
    case Fault::permission_denied: return -32014;
    case Fault::address_in_use: return -32015;
    case Fault::closed: return -32016;
    case Fault::bad_answer: return -32017;
    case Fault::broken_peer: return -32018;
    case Fault::bad_argument: return -32602;
    case Fault::system: return -32603;
    }
    return -32603;
}

} // namespace thalweg

#endif
