"use strict"

// Generated from crates/log/src/files/layout.rs by `cargo xtask faces-format`. Do not edit.

exports.FORMAT_VERSION = 5
exports.SEGMENT_HEADER_BYTES = 64
exports.BATCH_MAGIC = 1950512980
exports.BATCH_HEADER_BYTES = 48
exports.TOUCHED_BYTES = 16
exports.FRAME_HEADER_BYTES = 32
exports.FLAG_LAST = 1
exports.KIND_DATA = 1
exports.KIND_CLOSE = 3
exports.KIND_DELETE = 4
exports.WORD_SEGMENTS = 3
exports.WORD_FILE_END = 8
exports.WORD_DURABLE = 16
exports.WORD_VISIBLE = 24
exports.WORD_LATENESS = 32
exports.INDEX_BLOCK_BYTES = 1024
exports.INDEX_ENTRIES = 8
exports.INDEX_NONE = 255
