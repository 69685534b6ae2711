/* What can go wrong, by code. Written by `cargo xtask faults` from crates/wire/src/fault.rs. Do not edit. */
#ifndef THALWEG_FAULTS_H
#define THALWEG_FAULTS_H

/** What a function of thalweg.h answers. Codes are never reused; a newer library may know more of them. */
enum thalweg_fault {
    /** Nothing went wrong. */
    THALWEG_OK = 0,
    /** The service refused, in its own words. */
    THALWEG_REFUSED = 1,
    /** The frame is no request of this service: not MessagePack, or fields that are wrong, missing or too many. */
    THALWEG_BAD_REQUEST = 2,
    /** No command has this name. */
    THALWEG_UNKNOWN_COMMAND = 3,
    /** The bytes are no frames of the protocol; the connection ends. */
    THALWEG_BAD_FRAME = 4,
    /** The frame is longer than its reader allows. */
    THALWEG_FRAME_TOO_LARGE = 5,
    /** A call was begun under the id of one that has not ended. */
    THALWEG_DUPLICATE_ID = 6,
    /** The two ends were generated from different schemas. */
    THALWEG_SCHEMA_MISMATCH = 7,
    /** The two ends speak different versions of the protocol. */
    THALWEG_VERSION_MISMATCH = 8,
    /** The endpoint offers shared memory only, or none, or has none left. */
    THALWEG_NO_SHARED_MEMORY = 9,
    /** The call was cancelled. */
    THALWEG_CANCELLED = 10,
    /** The call's deadline passed. */
    THALWEG_DEADLINE_EXCEEDED = 11,
    /** The handler ended without an answer. */
    THALWEG_ABANDONED = 12,
    /** A bound was reached before any work was done. */
    THALWEG_OVERLOADED = 13,
    /** The server is ending and takes nothing new. */
    THALWEG_DRAINING = 14,
    /** A stream's producer went on although nobody took what it made. */
    THALWEG_OVERRUN = 15,
    /** The connection ended before the answer came. */
    THALWEG_DISCONNECTED = 16,
    /** The request was not sent: the connection ended before, or its deadline passed. */
    THALWEG_NOT_SENT = 17,
    /** Nobody listens at the endpoint. */
    THALWEG_NO_SERVER = 18,
    /** The endpoint did not take the connection in time. */
    THALWEG_CONNECT_TIMEOUT = 19,
    /** The endpoint may not be used by this user. */
    THALWEG_PERMISSION_DENIED = 20,
    /** Another server has the endpoint. */
    THALWEG_ADDRESS_IN_USE = 21,
    /** This end was closed. */
    THALWEG_CLOSED = 22,
    /** The answer does not fit the schema. */
    THALWEG_BAD_ANSWER = 23,
    /** The peer wrote what no peer may write into shared memory. */
    THALWEG_BROKEN_PEER = 24,
    /** An argument that can never be right. */
    THALWEG_BAD_ARGUMENT = 25,
    /** The operating system failed. */
    THALWEG_SYSTEM = 26,
};

#endif
