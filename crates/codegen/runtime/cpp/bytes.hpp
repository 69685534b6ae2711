// What frames and fields are made of: bytes, owned or borrowed, and text, which is UTF-8; what is read and written is found
// by its type.
#include "runtime.hpp"

#ifndef THALWEG_BYTES_HPP
#define THALWEG_BYTES_HPP

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

using Frame = std::vector<std::uint8_t>;
using FrameView = std::span<const std::uint8_t>;

/// Any bytes, owned. A type of its own: a list of u8 is something else on the wire.
struct Bytes : std::vector<std::uint8_t> {
    using std::vector<std::uint8_t>::vector;
};

/// Any bytes, borrowed.
struct BytesView : std::span<const std::uint8_t> {
    using std::span<const std::uint8_t>::span;
    BytesView(FrameView bytes) : std::span<const std::uint8_t>(bytes) {}
    friend bool operator==(BytesView left, BytesView right) {
        return std::equal(left.begin(), left.end(), right.begin(), right.end());
    }
};

/// Exactly 32 bytes.
struct Bin32 {
    std::array<std::uint8_t, 32> bytes{};
    auto operator<=>(const Bin32&) const = default;
};

/// What a struct's strings and bytes are made of.
struct Owned {
    using string = std::string;
    using bytes = Bytes;
};

/// As Owned, borrowed from a frame that has to outlive the struct.
struct Borrowed {
    using string = std::string_view;
    using bytes = BytesView;
};

/// How values of a type travel: `bytes_min`, `read`, `write`; for messages also `tag`.
template <class T> struct Codec;

/// How many bytes the first character of a text takes that is not empty; none where they are no UTF-8.
inline std::size_t character_size(std::string_view text) {
    const auto byte = [text](std::size_t n) { return static_cast<std::uint8_t>(text[n]); };
    const std::uint8_t first = byte(0);
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (text.size() < size) return 0;
    // What the second byte may be rules out overlong forms, surrogates and what lies beyond Unicode.
    const std::uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const std::uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(1) < least || byte(1) > most) return 0;
    for (std::size_t n = 2; n < size; n++) {
        if ((byte(n) & 0xc0) != 0x80) return 0;
    }
    return size;
}

inline bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t size = character_size(text);
        if (size == 0) return false;
        text.remove_prefix(size);
    }
    return true;
}

/// Words for people, with U+FFFD for each byte that is no UTF-8.
inline std::string readable(std::string_view words) {
    std::string text;
    while (!words.empty()) {
        const std::size_t size = character_size(words);
        text += size == 0 ? std::string_view("\xef\xbf\xbd") : words.substr(0, size);
        words.remove_prefix(std::max(size, std::size_t{1}));
    }
    return text;
}

} // namespace thalweg

#endif
