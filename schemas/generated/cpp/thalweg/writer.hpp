// Values as bytes, each in the fewest that say it. A Writer appends to a frame; it throws EncodeError for text that nobody
// could read.
#include "runtime.hpp"

#ifndef THALWEG_WRITER_HPP
#define THALWEG_WRITER_HPP

#include "bytes.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// A value that nobody could read: nothing of its message leaves.
class EncodeError : public std::invalid_argument {
public:
    explicit EncodeError(std::string_view where)
        : std::invalid_argument(std::string(where) + ": a string that is not UTF-8"), place(where) {}

    /// The field being written, as `Type.field`; "message" outside of any. Lives as long as the program.
    std::string_view place;
};

/// Appends values.
class Writer {
public:
    explicit Writer(Frame& out) : out_(out) {}

    void byte(std::uint8_t value) { out_.push_back(value); }

    void append(const void* from, std::size_t count) {
        const auto* bytes = static_cast<const std::uint8_t*>(from);
        out_.insert(out_.end(), bytes, bytes + count);
    }

    template <std::unsigned_integral T> void tagged(std::uint8_t tag, T value) {
        std::array<std::uint8_t, sizeof(T) + 1> bytes{tag};
        for (std::size_t n = sizeof(T); n > 0; n--) {
            bytes[n] = static_cast<std::uint8_t>(value);
            if constexpr (sizeof(T) > 1) value = static_cast<T>(value >> 8);
        }
        append(bytes.data(), bytes.size());
    }

    void u64(std::uint64_t value) {
        if (value < 0x80) byte(static_cast<std::uint8_t>(value));
        else if (value <= 0xff) tagged(0xcc, static_cast<std::uint8_t>(value));
        else if (value <= 0xffff) tagged(0xcd, static_cast<std::uint16_t>(value));
        else if (value <= 0xffffffff) tagged(0xce, static_cast<std::uint32_t>(value));
        else tagged(0xcf, value);
    }

    void i64(std::int64_t value) {
        if (value >= 0) u64(static_cast<std::uint64_t>(value));
        else if (value >= -32) byte(static_cast<std::uint8_t>(value));
        else if (value >= std::numeric_limits<std::int8_t>::min()) tagged(0xd0, static_cast<std::uint8_t>(value));
        else if (value >= std::numeric_limits<std::int16_t>::min()) tagged(0xd1, static_cast<std::uint16_t>(value));
        else if (value >= std::numeric_limits<std::int32_t>::min()) tagged(0xd2, static_cast<std::uint32_t>(value));
        else tagged(0xd3, static_cast<std::uint64_t>(value));
    }

    /// The caller's text, as the wire wants it. Throws EncodeError.
    void text(std::string_view value) {
        if (!is_utf8(value)) throw EncodeError(place_);
        string(value);
    }

    /// A name that was declared.
    void string(std::string_view value) {
        if (value.size() < 32) byte(static_cast<std::uint8_t>(0xa0 | value.size()));
        else counted(0xd9, value.size());
        append(value.data(), value.size());
    }

    void bytes(FrameView value) {
        counted(0xc4, value.size());
        append(value.data(), value.size());
    }

    void array(std::size_t count) { several(0x90, 0xdc, count); }
    void map(std::size_t count) { several(0x80, 0xde, count); }

    /// A value. Behind it, the place is that of the whole again.
    template <class T> void value(const T& of) {
        const std::string_view outer = place_;
        Codec<T>::write(*this, of);
        place_ = outer;
    }

    /// A field; `place` is what an error says of it.
    template <class T> void field(std::string_view name, const T& of, std::string_view place) {
        place_ = place;
        string(name);
        value(of);
    }

private:
    void counted(std::uint8_t first, std::size_t length) {
        if (length <= 0xff) tagged(first, static_cast<std::uint8_t>(length));
        else if (length <= 0xffff) tagged(static_cast<std::uint8_t>(first + 1), static_cast<std::uint16_t>(length));
        else tagged(static_cast<std::uint8_t>(first + 2), static_cast<std::uint32_t>(length));
    }

    void several(std::uint8_t few, std::uint8_t many, std::size_t count) {
        if (count < 16) byte(static_cast<std::uint8_t>(few | count));
        else if (count <= 0xffff) tagged(many, static_cast<std::uint16_t>(count));
        else tagged(static_cast<std::uint8_t>(many + 1), static_cast<std::uint32_t>(count));
    }

    Frame& out_;
    std::string_view place_ = "message";
};

} // namespace thalweg

#endif
