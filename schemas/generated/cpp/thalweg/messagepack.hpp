// MessagePack as typed services use it. Codecs are found by type. Integers of any width are read where the value fits,
// and written in the fewest bytes; a field nobody declared is refused, and so is one that comes twice. Reading throws
// nothing but DecodeError, also where memory does not suffice, and views borrow from the frame they were read from.
#include "runtime.hpp"

#ifndef THALWEG_MESSAGEPACK_HPP
#define THALWEG_MESSAGEPACK_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

/// What is wrong with bytes.
enum class Wrong {
    truncated,
    trailing,
    kind,
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

inline std::string_view words(Wrong wrong) {
    switch (wrong) {
    case Wrong::truncated: return "the frame ends too early";
    case Wrong::trailing: return "bytes behind the message";
    case Wrong::kind: return "a value of another kind";
    case Wrong::range: return "an integer out of range";
    case Wrong::utf8: return "a string that is not UTF-8";
    case Wrong::length: return "another length than is fixed";
    case Wrong::memory: return "values that take too much memory for such a frame";
    case Wrong::unknown_field: return "a field nobody declared";
    case Wrong::duplicate: return "a field or key that is there twice";
    case Wrong::missing: return "a field is missing";
    case Wrong::unknown_word: return "a word the enum does not have";
    case Wrong::unknown_message: return "a message nobody declared";
    }
    return "";
}

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

/// Bytes that are not the value they should be.
class DecodeError : public std::runtime_error {
public:
    DecodeError(std::string_view where, Wrong what, std::size_t byte)
        : std::runtime_error(std::string(where) + ": " + std::string(words(what)) + " at byte " + std::to_string(byte)),
          wrong(what), at(byte), place(where) {}

    Wrong wrong;
    /// Where in the frame.
    std::size_t at;
    /// The field or message being read; "frame" outside of any. Lives as long as the program.
    std::string_view place;
};

/// A value that nobody could read: nothing of its message leaves.
class EncodeError : public std::invalid_argument {
public:
    explicit EncodeError(std::string_view where)
        : std::invalid_argument(std::string(where) + ": " + std::string(words(Wrong::utf8))), place(where) {}

    /// The field being written. Lives as long as the program.
    std::string_view place;
};

/// How values of a type travel: `bytes_min`, `read`, `write`; for messages also `tag`.
template <class T> struct Codec;

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

    template <class T> void field(std::string_view name, const T& of) {
        place_ = name;
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

/// Walks one frame.
class Reader {
public:
    explicit Reader(FrameView frame) : frame_(frame) {}

    [[nodiscard]] DecodeError refuse(Wrong wrong, std::string_view place) const { return {place, wrong, at_}; }

    /// Ends the frame.
    void finish() const {
        if (at_ < frame_.size()) throw refuse(Wrong::trailing, "frame");
    }

    std::uint8_t byte() {
        if (at_ == frame_.size()) throw error(Wrong::truncated, at_);
        return frame_[at_++];
    }

    FrameView take(std::size_t count) {
        if (count > frame_.size() - at_) throw error(Wrong::truncated, frame_.size());
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
        if (tag != 0xc2 && tag != 0xc3) throw kind();
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
        if (tag < 0xe0) throw kind();
        return fits<T>(static_cast<std::int8_t>(tag), at);
    }

    float f32() {
        if (byte() != 0xca) throw kind();
        return std::bit_cast<float>(static_cast<std::uint32_t>(number(4)));
    }

    double f64() {
        const std::uint8_t tag = byte();
        if (tag == 0xcb) return std::bit_cast<double>(number(8));
        if (tag != 0xca) throw kind();
        return std::bit_cast<float>(static_cast<std::uint32_t>(number(4)));
    }

    /// A string's bytes, to be compared with what is declared.
    std::string_view key() {
        const std::uint8_t tag = byte();
        std::size_t length = 0;
        if (tag >= 0xa0 && tag <= 0xbf) length = tag & 31U;
        else if (tag >= 0xd9 && tag <= 0xdb) length = number(std::size_t{1} << (tag - 0xd9));
        else throw kind();
        const FrameView raw = take(length);
        return {reinterpret_cast<const char*>(raw.data()), raw.size()};
    }

    std::string_view string() {
        const std::string_view text = key();
        if (!is_utf8(text)) throw error(Wrong::utf8, at_ - text.size());
        return text;
    }

    FrameView bytes() {
        const std::uint8_t tag = byte();
        if (tag < 0xc4 || tag > 0xc6) throw kind();
        return take(number(std::size_t{1} << (tag - 0xc4)));
    }

    Bin32 bin32() {
        const std::size_t at = at_;
        const FrameView raw = bytes();
        if (raw.size() != 32) throw error(Wrong::length, at);
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
        if (several(0x90, 0xdc) != expected) throw error(Wrong::length, at);
    }

    std::size_t map(std::size_t bytes_min) { return believed(several(0x80, 0xde), bytes_min + 1); }

    /// Counts the memory of as many values, before any of them is read: more than a fixed multiple of the frame and a
    /// fixed rest is refused. Returns for how many of them it may be reserved at once, as the bytes that are left say.
    template <class T> std::size_t hold(std::size_t count) {
        if (count > room_ / sizeof(T)) throw error(Wrong::memory, at_);
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
        if (seen.test(which)) throw error(Wrong::duplicate, at_);
        seen.set(which);
        try {
            into = Codec<T>::read(*this);
        } catch (const std::bad_alloc&) {
            throw error(Wrong::memory, at_);
        }
        place_ = outer;
    }

    template <std::size_t N>
    void required(const std::bitset<N>& seen, std::size_t which, std::string_view place) const {
        if (!seen.test(which)) throw refuse(Wrong::missing, place);
    }

    /// The byte that comes next.
    [[nodiscard]] std::size_t at() const { return at_; }

    /// An error about what begins at a byte, and was read last.
    [[nodiscard]] DecodeError error(Wrong wrong, std::size_t at) const { return {place_, wrong, at}; }

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
    [[nodiscard]] DecodeError kind() const { return error(Wrong::kind, at_ - 1); }

    template <class T, class V> T fits(V value, std::size_t at) const {
        if (!std::in_range<T>(value)) throw error(Wrong::range, at);
        return static_cast<T>(value);
    }

    std::size_t several(std::uint8_t few, std::uint8_t many) {
        const std::uint8_t tag = byte();
        if (tag >= few && tag < few + 16) return tag & 15U;
        if (tag == many) return number(2);
        if (tag == many + 1) return number(4);
        throw kind();
    }

    [[nodiscard]] std::size_t believed(std::size_t count, std::size_t bytes_min) const {
        if (count > (frame_.size() - at_) / bytes_min) throw error(Wrong::truncated, frame_.size());
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

template <> struct Codec<bool> {
    static constexpr std::size_t bytes_min = 1;
    static bool read(Reader& reader) { return reader.boolean(); }
    static void write(Writer& writer, bool value) { writer.byte(value ? 0xc3 : 0xc2); }
};

template <std::integral T> struct Codec<T> {
    static constexpr std::size_t bytes_min = 1;
    static T read(Reader& reader) { return reader.integer<T>(); }
    static void write(Writer& writer, T value) {
        if constexpr (std::is_signed_v<T>) writer.i64(value);
        else writer.u64(value);
    }
};

template <> struct Codec<float> {
    static constexpr std::size_t bytes_min = 5;
    static float read(Reader& reader) { return reader.f32(); }
    // There is one NaN on the wire, since not every language can tell two apart.
    static void write(Writer& writer, float value) {
        writer.tagged(0xca, std::isnan(value) ? std::uint32_t{0x7fc00000} : std::bit_cast<std::uint32_t>(value));
    }
};

template <> struct Codec<double> {
    static constexpr std::size_t bytes_min = 5;
    static double read(Reader& reader) { return reader.f64(); }
    static void write(Writer& writer, double value) {
        constexpr std::uint64_t nan = 0x7ff8000000000000;
        writer.tagged(0xcb, std::isnan(value) ? nan : std::bit_cast<std::uint64_t>(value));
    }
};

template <> struct Codec<std::string_view> {
    static constexpr std::size_t bytes_min = 1;
    static std::string_view read(Reader& reader) { return reader.string(); }
    static void write(Writer& writer, std::string_view value) { writer.text(value); }
};

template <> struct Codec<std::string> {
    static constexpr std::size_t bytes_min = 1;
    static std::string read(Reader& reader) { return std::string(reader.string()); }
    static void write(Writer& writer, std::string_view value) { writer.text(value); }
};

template <> struct Codec<BytesView> {
    static constexpr std::size_t bytes_min = 1;
    static BytesView read(Reader& reader) { return reader.bytes(); }
    static void write(Writer& writer, BytesView value) { writer.bytes(value); }
};

template <> struct Codec<Bytes> {
    static constexpr std::size_t bytes_min = 1;
    static Bytes read(Reader& reader) {
        const FrameView raw = reader.bytes();
        return Bytes(raw.begin(), raw.end());
    }
    static void write(Writer& writer, const Bytes& value) { writer.bytes(value); }
};

template <> struct Codec<Bin32> {
    static constexpr std::size_t bytes_min = 34;
    static Bin32 read(Reader& reader) { return reader.bin32(); }
    static void write(Writer& writer, const Bin32& value) { writer.bytes(value.bytes); }
};

/// Declared 32-byte types derive from Bin32.
template <std::derived_from<Bin32> T> struct Codec<T> {
    static constexpr std::size_t bytes_min = 34;
    static T read(Reader& reader) { return T{reader.bin32()}; }
    static void write(Writer& writer, const T& value) { writer.bytes(value.bytes); }
};

template <class T> struct Codec<std::optional<T>> {
    static constexpr std::size_t bytes_min = 1;
    static std::optional<T> read(Reader& reader) {
        if (reader.nil()) return std::nullopt;
        return Codec<T>::read(reader);
    }
    static void write(Writer& writer, const std::optional<T>& value) {
        if (value) writer.value(*value);
        else writer.byte(0xc0);
    }
};

template <class T> struct Codec<std::vector<T>> {
    static constexpr std::size_t bytes_min = 1;
    static std::vector<T> read(Reader& reader) {
        const std::size_t count = reader.list(Codec<T>::bytes_min);
        std::vector<T> values;
        values.reserve(reader.hold<T>(count));
        for (std::size_t n = 0; n < count; n++) values.push_back(reader.value<T>());
        return values;
    }
    static void write(Writer& writer, const std::vector<T>& values) {
        writer.array(values.size());
        for (const T& value : values) writer.value(value);
    }
};

template <class T, std::size_t N> struct Codec<std::array<T, N>> {
    static constexpr std::size_t bytes_min = 1 + N * Codec<T>::bytes_min;
    static std::array<T, N> read(Reader& reader) {
        reader.array(N);
        std::array<T, N> values{};
        for (T& value : values) value = reader.value<T>();
        return values;
    }
    static void write(Writer& writer, const std::array<T, N>& values) {
        writer.array(N);
        for (const T& value : values) writer.value(value);
    }
};

template <class K, class T> struct Codec<std::map<K, T>> {
    static constexpr std::size_t bytes_min = 1;
    static std::map<K, T> read(Reader& reader) {
        std::map<K, T> values;
        std::size_t left = reader.map(Codec<T>::bytes_min);
        reader.hold<std::pair<const K, T>>(left);
        for (; left > 0; left--) {
            const std::size_t at = reader.at();
            K key = Codec<K>::read(reader);
            if (values.contains(key)) throw reader.error(Wrong::duplicate, at);
            values.emplace(std::move(key), reader.value<T>());
        }
        return values;
    }
    // A map is ordered by bytes, as the wire wants it.
    static void write(Writer& writer, const std::map<K, T>& values) {
        writer.map(values.size());
        for (const auto& [key, value] : values) {
            writer.text(key);
            writer.value(value);
        }
    }
};

/// The same value, without borrowing from a frame.
inline std::string own(std::string_view value) { return std::string(value); }
inline Bytes own(BytesView value) { return Bytes(value.begin(), value.end()); }

// Declared before they are defined, since each may hold any other.
template <class T> auto own(const T& value);
template <class T> auto own(const std::optional<T>& value);
template <class T> auto own(const std::vector<T>& values);
template <class T, std::size_t N> auto own(const std::array<T, N>& values);
template <class K, class T> auto own(const std::map<K, T>& values);

template <class T> auto own(const T& value) {
    if constexpr (requires { Codec<T>::own(value); }) return Codec<T>::own(value);
    else return value;
}

template <class T> auto own(const std::optional<T>& value) {
    using U = decltype(own(std::declval<const T&>()));
    return value ? std::optional<U>(own(*value)) : std::nullopt;
}

template <class T> auto own(const std::vector<T>& values) {
    std::vector<decltype(own(std::declval<const T&>()))> owned;
    owned.reserve(values.size());
    for (const T& value : values) owned.push_back(own(value));
    return owned;
}

template <class T, std::size_t N> auto own(const std::array<T, N>& values) {
    std::array<decltype(own(std::declval<const T&>())), N> owned{};
    for (std::size_t n = 0; n < N; n++) owned[n] = own(values[n]);
    return owned;
}

template <class K, class T> auto own(const std::map<K, T>& values) {
    std::map<std::string, decltype(own(std::declval<const T&>()))> owned;
    for (const auto& [key, value] : values) owned.emplace(std::string(key), own(value));
    return owned;
}

/// Writes a request's frame, `[[tag, fields]]`, behind what `out` holds.
template <class T> void request_frame(const T& message, Frame& out) {
    Writer writer(out);
    writer.array(1);
    writer.array(2);
    writer.string(Codec<T>::tag);
    writer.value(message);
}

/// Writes the frame of a response, an item or an error, `[tag, fields]`, behind what `out` holds.
template <class T> void response_frame(const T& message, Frame& out) {
    Writer writer(out);
    writer.array(2);
    writer.string(Codec<T>::tag);
    writer.value(message);
}

} // namespace thalweg

#endif
