// What stands between generated code and whoever carries its frames: a Transport under a client, a Reply under a
// server. Generated code speaks these words, transports execute them, neither sees the other.
#pragma once

#include "messagepack.hpp"

#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>

namespace thalweg {

/// Carries one request at a time and waits.
class Transport {
public:
    virtual ~Transport() = default;
    /// Sends a request.
    virtual void send(FrameView request) = 0;
    /// Waits for the next frame that answers it; valid until the next call.
    virtual FrameView receive() = 0;
};

/// The server answered with its error.
class Refused : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Reads the error of a frame whose tag was read already.
inline Refused refused(Reader& reader, std::string_view place) {
    std::string_view message;
    std::bitset<1> seen;
    for (std::size_t left = reader.fields(place); left > 0; left--) {
        if (reader.key() != "message") throw reader.refuse(Wrong::unknown_field, place);
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
    if (tag != Codec<R>::tag) throw reader.refuse(Wrong::unknown_message, "frame");
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

/// Where a server's frames for one request go.
class Reply {
public:
    virtual ~Reply() = default;
    /// Sends one item of a stream. False says that nobody waits for more.
    virtual bool item(FrameView frame) = 0;
    /// Sends the frame that ends the call. Called once.
    virtual void end(FrameView frame) = 0;
};

/// One call being answered, shared by its responder and the dispatcher that may have to answer for it.
class Answering {
public:
    Answering(std::unique_ptr<Reply> reply, std::string_view error)
        : reply_(std::move(reply)), error_(error), dispatcher_(std::this_thread::get_id()) {}

    bool item(FrameView frame) {
        const std::scoped_lock lock(mutex_);
        return reply_ && reply_->item(frame);
    }

    /// Ends the call, unless it has ended.
    void end(FrameView frame) {
        const std::scoped_lock lock(mutex_);
        if (const std::unique_ptr<Reply> reply = std::move(reply_)) reply->end(frame);
    }

    void fail(std::string_view message) {
        Frame frame;
        Writer writer(frame);
        writer.array(2);
        writer.string(error_);
        writer.map(1);
        writer.field("message", message);
        end(frame);
    }

    /// Whether the dispatcher is about to say better why there is no answer.
    [[nodiscard]] bool dispatcher_unwinds() const {
        return std::uncaught_exceptions() > 0 && std::this_thread::get_id() == dispatcher_;
    }

private:
    std::mutex mutex_;
    std::unique_ptr<Reply> reply_;
    std::string_view error_;
    std::thread::id dispatcher_;
};

/// Answers one request, once, now or later, from any thread. Dropped unanswered it answers with the error.
template <class R, class I = void> class Responder {
public:
    explicit Responder(std::shared_ptr<Answering> answering) : answering_(std::move(answering)) {}
    Responder(Responder&&) noexcept = default;
    Responder& operator=(Responder&&) = delete;
    Responder(const Responder&) = delete;
    Responder& operator=(const Responder&) = delete;

    ~Responder() {
        if (answering_ && !answering_->dispatcher_unwinds()) answering_->fail("the handler gave no answer");
    }

    /// Answers; a stream ends with it. Views are as good as what they borrow from, until this returns.
    template <class T>
        requires(Codec<T>::tag == Codec<R>::tag)
    void ok(const T& response) {
        Frame frame;
        response_frame(response, frame);
        if (const auto answering = std::move(answering_)) answering->end(frame);
    }

    /// Answers with the service's error.
    void error(std::string_view message) {
        if (const auto answering = std::move(answering_)) answering->fail(message);
    }

    /// Sends one item of a stream. False says that nobody waits for more.
    template <class T>
        requires(!std::is_void_v<I> && Codec<T>::tag == Codec<I>::tag)
    bool item(const T& item) {
        Frame frame;
        response_frame(item, frame);
        return answering_ && answering_->item(frame);
    }

private:
    std::shared_ptr<Answering> answering_;
};

/// Runs a handler; what it throws is answered with the error.
template <class F> void answering(const std::shared_ptr<Answering>& call, F&& handle) {
    try {
        handle();
    } catch (const std::exception& error) {
        call->fail(error.what());
    } catch (...) {
        call->fail("the handler threw something that is no std::exception");
    }
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
