// MessagePack as typed services use it. Codecs are found by type. Integers of any width are read where the value fits,
// and written in the fewest bytes; a field nobody declared is refused, and so is one that comes twice. Views borrow from
// the frame they were read from.
#include "runtime.hpp"

#ifndef THALWEG_MESSAGEPACK_HPP
#define THALWEG_MESSAGEPACK_HPP

#include "reader.hpp"
#include "writer.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

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
            if (values.contains(key)) throw reader.error(DecodeErrorKind::duplicate, at);
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
