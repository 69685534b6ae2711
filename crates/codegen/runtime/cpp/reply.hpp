// How a server's handler answers: a Reply carries frames to the caller, a Responder writes messages into it. A responder
// owns its call and nothing is shared, so answering takes no lock: its holder answers, on whatever thread.
#include "runtime.hpp"

#ifndef THALWEG_REPLY_HPP
#define THALWEG_REPLY_HPP

#include "service.hpp"

#include <exception>
#include <functional>
#include <memory>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// What a producer of a stream does next: goes on, waits until it hears that something changed, or ends, because nobody
/// waits for more.
enum class Flow { go, wait, gone };

/// Where a server's frames for one request go.
class Reply {
public:
    virtual ~Reply() = default;
    /// Sends one item of a stream.
    virtual Flow item(FrameView frame) = 0;
    /// Sends the frame that ends the call. Nothing is called after it.
    virtual void end(FrameView frame) = 0;
    /// Ends the call with a fault and the service's error, whose tag is `error`. Nothing is called after it.
    virtual void fail([[maybe_unused]] Fault fault, std::string_view error, std::string_view message) {
        Frame frame;
        Writer writer(frame);
        writer.array(2);
        writer.string(error);
        writer.map(1);
        // What a handler throws may quote anything, and a frame with that in it could not be read.
        writer.field("message", readable(message), "message");
        end(frame);
    }
    /// Whether nobody waits for the answer any more.
    virtual bool cancelled() { return false; }
    /// Has `wake` called once, from any thread, when a stream may go on or nobody waits for it any more; at once if it is so
    /// already. It must not throw: nobody is there to hear of it, and the process ends.
    virtual void changed([[maybe_unused]] std::function<void()> wake) {}
};

/// A handler being run. When what it throws destroys its responder, the reply comes back here, so that the error can say
/// what was thrown. One per call on the thread's stack.
class Dispatch {
public:
    explicit Dispatch(const Reply* reply)
        : reply_(reply), outer_(innermost), exceptions_(std::uncaught_exceptions()) {
        innermost = this;
    }
    Dispatch(const Dispatch&) = delete;
    Dispatch& operator=(const Dispatch&) = delete;
    ~Dispatch() { innermost = outer_; }

    /// Takes the reply of a responder that is being destroyed, if an exception of its own handler does that.
    static bool takes_back(std::unique_ptr<Reply>& reply) {
        for (Dispatch* at = innermost; at != nullptr; at = at->outer_) {
            if (at->reply_ == reply.get() && std::uncaught_exceptions() > at->exceptions_) {
                at->returned_ = std::move(reply);
                return true;
            }
        }
        return false;
    }

    void fail(std::string_view error, std::string_view message) {
        if (const auto reply = std::move(returned_)) reply->fail(Fault::refused, error, message);
    }

private:
    static inline thread_local Dispatch* innermost = nullptr;
    const Reply* reply_;
    Dispatch* outer_;
    int exceptions_;
    std::unique_ptr<Reply> returned_;
};

/// Answers one request, once, now or later, from any thread. Dropped unanswered it answers with the error.
template <class R, class I = void> class Responder {
public:
    Responder(std::unique_ptr<Reply> reply, std::string_view error) : reply_(std::move(reply)), error_(error) {}
    Responder(Responder&&) noexcept = default;
    Responder& operator=(Responder&&) = delete;
    Responder(const Responder&) = delete;
    Responder& operator=(const Responder&) = delete;

    ~Responder() {
        if (reply_ && !Dispatch::takes_back(reply_)) fail(Fault::abandoned, "the handler gave no answer");
    }

    /// Answers; a stream ends with it. Views are as good as what they borrow from, until this returns.
    template <class T>
        requires(Codec<T>::tag == Codec<R>::tag)
    void ok(const T& response) {
        Scratch frame;
        response_frame(response, frame.bytes);
        if (const auto reply = std::move(reply_)) reply->end(frame.bytes);
    }

    /// Answers with the service's error.
    void error(std::string_view message) { fail(Fault::refused, message); }

    /// Answers with the service's error for a reason that clients tell apart.
    void fail(Fault fault, std::string_view message) {
        if (const auto reply = std::move(reply_)) reply->fail(fault, error_, message);
    }

    /// Sends one item of a stream.
    template <class T>
        requires(!std::is_void_v<I> && Codec<T>::tag == Codec<I>::tag)
    Flow item(const T& item) {
        Scratch frame;
        response_frame(item, frame.bytes);
        return reply_ ? reply_->item(frame.bytes) : Flow::gone;
    }

    /// Whether nobody waits for the answer any more.
    [[nodiscard]] bool cancelled() const { return !reply_ || reply_->cancelled(); }

    /// Has `wake` called once, when a stream may go on or nobody waits for it any more. If it is so already, that is at once,
    /// on this thread and before this returns: take no lock around it that `wake` takes. Else it is on the thread that runs
    /// the server, which must not be held up: let it set a flag or post to an executor. It must not throw: nobody is there to
    /// hear of it, and the process ends.
    ///
    /// A `wake` that was given before is forgotten, and the answer forgets this one: it is destroyed before the answer
    /// returns, unless another thread has begun to call it by then, which destroys it after that.
    void changed(std::function<void()> wake) {
        if (reply_) reply_->changed(std::move(wake));
    }

private:
    std::unique_ptr<Reply> reply_;
    std::string_view error_;
};

/// What the exception that is being handled says, which lasts as long as that: a handler's, so it is never without words.
inline std::string_view thrown_words() {
    try {
        throw;
    } catch (const std::exception& thrown) {
        const char* const words = thrown.what();
        if (words != nullptr && *words != '\0') return words;
        return "the handler threw a std::exception without words";
    } catch (...) {
        return "the handler threw something that is no std::exception";
    }
}

/// Runs a handler on a reply. What it throws is answered with the error, unless it has passed its responder on.
template <class F> void answering(std::unique_ptr<Reply> reply, std::string_view error, F&& handle) {
    Dispatch dispatch(reply.get());
    try {
        handle(std::move(reply));
    } catch (...) {
        dispatch.fail(error, thrown_words());
    }
}

/// Says why a frame is no request.
inline void refuse(std::unique_ptr<Reply> reply, std::string_view error, const DecodeError& refusal) {
    const bool unknown = refusal.kind == DecodeErrorKind::unknown_message;
    reply->fail(unknown ? Fault::unknown_command : Fault::bad_request, error, refusal.what());
}

} // namespace thalweg

#endif
