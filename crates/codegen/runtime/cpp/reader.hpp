// Bytes as values. A Reader walks one frame; it throws nothing but DecodeError, also where memory does not suffice, and
// what it lends is part of the frame.
#include "runtime.hpp"

#ifndef THALWEG_READER_HPP
#define THALWEG_READER_HPP

#include "bytes.hpp"

#include <algorithm>
#include <bit>
#include <bitset>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// Why bytes are not the value they should be.
enum class DecodeErrorKind {
    truncated,
    trailing,
    type,
    range,
    utf8,
    length,
    memory,
    unknown_field,
    duplicate,
    missing,
    unknown_word,
    unknown_message,
};

inline std::string_view words(DecodeErrorKind kind) {
    switch (kind) {
    case DecodeErrorKind::truncated: return "the frame ends too early";
    case DecodeErrorKind::trailing: return "bytes behind the message";
    case DecodeErrorKind::type: return "a value of another type";
    case DecodeErrorKind::range: return "an integer out of range";
    case DecodeErrorKind::utf8: return "a string that is not UTF-8";
    case DecodeErrorKind::length: return "another length than is fixed";
    case DecodeErrorKind::memory: return "values that take too much memory for such a frame";
    case DecodeErrorKind::unknown_field: return "a field nobody declared";
    case DecodeErrorKind::duplicate: return "a field or key that is there twice";
    case DecodeErrorKind::missing: return "a field is missing";
    case DecodeErrorKind::unknown_word: return "a word the enum does not have";
    case DecodeErrorKind::unknown_message: return "a message nobody declared";
    }
    return "";
}

/// Bytes that are not the value they should be.
class DecodeError : public std::runtime_error {
public:
    DecodeError(std::string_view where, DecodeErrorKind what, std::size_t byte)
        : std::runtime_error(std::string(where) + ": " + std::string(words(what)) + " at byte " + std::to_string(byte)),
          kind(what), at(byte), place(where) {}

    DecodeErrorKind kind;
    /// Where in the frame.
    std::size_t at;
    /// The field or message being read; "frame" outside of any. Lives as long as the program.
    std::string_view place;
};

/// Walks one frame.
class Reader {
public:
    explicit Reader(FrameView frame) : frame_(frame) {}

    [[nodiscard]] DecodeError refuse(DecodeErrorKind kind, std::string_view place) const { return {place, kind, at_}; }

    /// Ends the frame.
    void finish() const {
        if (at_ < frame_.size()) throw refuse(DecodeErrorKind::trailing, "frame");
    }

    std::uint8_t byte() {
        if (at_ == frame_.size()) throw error(DecodeErrorKind::truncated, at_);
        return frame_[at_++];
    }

    FrameView take(std::size_t count) {
        if (count > frame_.size() - at_) throw error(DecodeErrorKind::truncated, frame_.size());
        const FrameView taken = frame_.subspan(at_, count);
        at_ += count;
        return taken;
    }

    std::uint64_t number(std::size_t count) {
        std::uint64_t value = 0;
        for (const std::uint8_t byte : take(count)) value = value << 8 | byte;
        return value;
    }

    bool boolean() {
        const std::uint8_t tag = byte();
        if (tag != 0xc2 && tag != 0xc3) throw wrong_type();
        return tag == 0xc3;
    }

    /// An integer of any width that fits this one.
    template <std::integral T> T integer() {
        const std::size_t at = at_;
        const std::uint8_t tag = byte();
        if (tag < 0x80) return static_cast<T>(tag);
        if (tag >= 0xcc && tag <= 0xcf) return fits<T>(number(std::size_t{1} << (tag - 0xcc)), at);
        switch (tag) {
        case 0xd0: return fits<T>(static_cast<std::int8_t>(number(1)), at);
        case 0xd1: return fits<T>(static_cast<std::int16_t>(number(2)), at);
        case 0xd2: return fits<T>(static_cast<std::int32_t>(number(4)), at);
        case 0xd3: return fits<T>(static_cast<std::int64_t>(number(8)), at);
        default: break;
        }
        if (tag < 0xe0) throw wrong_type();
        return fits<T>(static_cast<std::int8_t>(tag), at);
    }

    float f32() {
        if (byte() != 0xca) throw wrong_type();
        return std::bit_cast<float>(static_cast<std::uint32_t>(number(4)));
    }

    double f64() {
        const std::uint8_t tag = byte();
        if (tag == 0xcb) return std::bit_cast<double>(number(8));
        if (tag != 0xca) throw wrong_type();
        return std::bit_cast<float>(static_cast<std::uint32_t>(number(4)));
    }

    /// A string's bytes, to be compared with what is declared.
    std::string_view key() {
        const std::uint8_t tag = byte();
        std::size_t length = 0;
        if (tag >= 0xa0 && tag <= 0xbf) length = tag & 31U;
        else if (tag >= 0xd9 && tag <= 0xdb) length = number(std::size_t{1} << (tag - 0xd9));
        else throw wrong_type();
        const FrameView raw = take(length);
        return {reinterpret_cast<const char*>(raw.data()), raw.size()};
    }

    std::string_view string() {
        const std::string_view text = key();
        if (!is_utf8(text)) throw error(DecodeErrorKind::utf8, at_ - text.size());
        return text;
    }

    FrameView bytes() {
        const std::uint8_t tag = byte();
        if (tag < 0xc4 || tag > 0xc6) throw wrong_type();
        return take(number(std::size_t{1} << (tag - 0xc4)));
    }

    Bin32 bin32() {
        const std::size_t at = at_;
        const FrameView raw = bytes();
        if (raw.size() != 32) throw error(DecodeErrorKind::length, at);
        Bin32 value;
        std::copy(raw.begin(), raw.end(), value.bytes.begin());
        return value;
    }

    /// Passes a nil, if there is one.
    bool nil() {
        if (at_ == frame_.size() || frame_[at_] != 0xc0) return false;
        at_++;
        return true;
    }

    /// A count of values of at least so many bytes each; believed only as far as bytes are left.
    std::size_t list(std::size_t bytes_min) { return believed(several(0x90, 0xdc), bytes_min); }

    void array(std::size_t expected) {
        const std::size_t at = at_;
        if (several(0x90, 0xdc) != expected) throw error(DecodeErrorKind::length, at);
    }

    std::size_t map(std::size_t bytes_min) { return believed(several(0x80, 0xde), bytes_min + 1); }

    /// Counts the memory of as many values, before any of them is read: more than a fixed multiple of the frame and a
    /// fixed rest is refused. Returns for how many of them it may be reserved at once, as the bytes that are left say.
    template <class T> std::size_t hold(std::size_t count) {
        if (count > room_ / sizeof(T)) throw error(DecodeErrorKind::memory, at_);
        room_ -= count * sizeof(T);
        return std::min(count, (frame_.size() - at_) * held_per_byte / sizeof(T));
    }

    std::size_t fields(std::string_view place) {
        place_ = place;
        return believed(several(0x80, 0xde), 2);
    }

    /// A value. Behind it, the place is that of the whole again.
    template <class T> T value() {
        const std::string_view outer = place_;
        T value = Codec<T>::read(*this);
        place_ = outer;
        return value;
    }

    template <class T, std::size_t N>
    void field(T& into, std::bitset<N>& seen, std::size_t which, std::string_view place) {
        const std::string_view outer = std::exchange(place_, place);
        if (seen.test(which)) throw error(DecodeErrorKind::duplicate, at_);
        seen.set(which);
        try {
            into = Codec<T>::read(*this);
        } catch (const std::bad_alloc&) {
            throw error(DecodeErrorKind::memory, at_);
        }
        place_ = outer;
    }

    template <std::size_t N>
    void required(const std::bitset<N>& seen, std::size_t which, std::string_view place) const {
        if (!seen.test(which)) throw refuse(DecodeErrorKind::missing, place);
    }

    /// The byte that comes next.
    [[nodiscard]] std::size_t at() const { return at_; }

    /// An error about what begins at a byte, and was read last.
    [[nodiscard]] DecodeError error(DecodeErrorKind kind, std::size_t at) const { return {place_, kind, at}; }

    /// Begins a request's envelope and returns its tag.
    std::string_view request() {
        array(1);
        return response();
    }

    /// Begins the envelope of a response, an item or an error, and returns its tag.
    std::string_view response() {
        array(2);
        return key();
    }

private:
    [[nodiscard]] DecodeError wrong_type() const { return error(DecodeErrorKind::type, at_ - 1); }

    template <class T, class V> T fits(V value, std::size_t at) const {
        if (!std::in_range<T>(value)) throw error(DecodeErrorKind::range, at);
        return static_cast<T>(value);
    }

    std::size_t several(std::uint8_t few, std::uint8_t many) {
        const std::uint8_t tag = byte();
        if (tag >= few && tag < few + 16) return tag & 15U;
        if (tag == many) return number(2);
        if (tag == many + 1) return number(4);
        throw wrong_type();
    }

    [[nodiscard]] std::size_t believed(std::size_t count, std::size_t bytes_min) const {
        if (count > (frame_.size() - at_) / bytes_min) throw error(DecodeErrorKind::truncated, frame_.size());
        return count;
    }

    /// What the values of lists and maps may take in memory for each byte of the frame, and besides.
    static constexpr std::size_t held_per_byte = 64;
    static constexpr std::size_t held_besides = 16U << 20U;

    FrameView frame_;
    std::size_t at_ = 0;
    std::size_t room_ = frame_.size() * held_per_byte + held_besides;
    std::string_view place_ = "frame";
};

} // namespace thalweg

#endif
