// What generated code of either side knows of calls: what they answer with, how they fail, how they are ordered, and the
// Transport under a client that waits. Sockets and rings are the transport's business.
#include "runtime.hpp"

#ifndef THALWEG_SERVICE_HPP
#define THALWEG_SERVICE_HPP

#include "faults.hpp"
#include "messagepack.hpp"

#include <variant>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// Why a call has no response. `what()` says it in words.
class Error : public std::runtime_error {
public:
    Error(Fault fault, const std::string& detail) : std::runtime_error(detail), fault_(fault) {}
    [[nodiscard]] Fault fault() const noexcept { return fault_; }
    /// Whether the same call may be made again.
    [[nodiscard]] Retry retry() const noexcept { return thalweg::retry(fault_); }

private:
    Fault fault_;
};

/// The server answered with its error.
class Refused : public Error {
public:
    explicit Refused(const std::string& message) : Error(Fault::refused, message) {}
};

/// A frame being written, in memory that its thread keeps for the next one.
struct Scratch {
    Frame bytes = std::exchange(kept, {});

    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
        bytes.clear();
        if (bytes.capacity() <= kept_bytes_max && bytes.capacity() > kept.capacity()) kept.swap(bytes);
    }

private:
    static constexpr std::size_t kept_bytes_max = 64 * 1024;
    static inline thread_local Frame kept;
};

/// Carries one request at a time and waits. Sending and receiving throw Error.
class Transport {
public:
    virtual ~Transport() = default;
    /// Sends a request, and names the call, which takes the place of the one before.
    virtual std::uint64_t send(FrameView request) = 0;
    /// Sends a request that one frame answers: an item of a stream is none.
    virtual std::uint64_t ask(FrameView request) { return send(request); }
    /// Waits for the call's next frame; valid until the next call. One whose place another took is Fault::cancelled.
    virtual FrameView receive(std::uint64_t call) = 0;
    /// Nobody waits for more of the call: if it has not ended, it is left at once.
    virtual void leave(std::uint64_t call) noexcept { static_cast<void>(call); }
    /// The next request could not be written: what was said for it alone is said for none.
    virtual void unsent() noexcept {}
};

/// Writes a request's frame for a transport, which hears of a request that cannot be written.
template <class Carrier, class T> void request_for(Carrier& transport, const T& request, Frame& frame) {
    try {
        request_frame(request, frame);
    } catch (...) {
        transport.unsent();
        throw;
    }
}

/// A stream being read: left, however reading it ends.
class Reading {
public:
    Reading(Transport& transport, std::uint64_t call) : transport_(transport), call_(call) {}
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() { transport_.leave(call_); }

    /// Waits for what comes next.
    FrameView next() { return transport_.receive(call_); }

private:
    Transport& transport_;
    std::uint64_t call_;
};

/// Reads the error of a frame whose tag was read already.
inline Refused refused(Reader& reader, std::string_view place) {
    std::string_view message;
    std::bitset<1> seen;
    for (std::size_t left = reader.fields(place); left > 0; left--) {
        if (reader.key() != "message") throw reader.refuse(DecodeErrorKind::unknown_field, place);
        reader.field(message, seen, 0, place);
    }
    reader.required(seen, 0, place);
    reader.finish();
    return Refused(std::string(message));
}

/// Reads a frame that has to be an R.
template <class R> R answer(FrameView frame, std::string_view error) {
    Reader reader(frame);
    const std::string_view tag = reader.response();
    if (tag == error) throw refused(reader, error);
    if (tag != Codec<R>::tag) throw reader.refuse(DecodeErrorKind::unknown_message, "frame");
    R value = Codec<R>::read(reader);
    reader.finish();
    return value;
}

/// Reads a frame of a stream: an item, or the response that ends it.
template <class I, class R> std::variant<I, R> next(FrameView frame, std::string_view error) {
    Reader reader(frame);
    if (reader.response() == Codec<I>::tag) return answer<I>(frame, error);
    return answer<R>(frame, error);
}

/// What a call does to its fork, for servers that order calls per fork.
enum class Access { unordered, read_committed, read, write };

/// Which fork: none, by number (a negative one as its two's complement), or by text or bytes.
using Fork = std::variant<std::monostate, std::uint64_t, BytesView>;

inline Fork fork_of(std::string_view text) {
    return BytesView(FrameView(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}
inline Fork fork_of(BytesView bytes) { return bytes; }
inline Fork fork_of(const Bytes& bytes) { return BytesView(FrameView(bytes)); }
inline Fork fork_of(const Bin32& bytes) { return BytesView(FrameView(bytes.bytes)); }
inline Fork fork_of(std::integral auto number) { return static_cast<std::uint64_t>(number); }

} // namespace thalweg

#endif
