// Calls under way: many at once on one connection, each a Pending or an Items of its own that a coroutine awaits, a
// callback hears of, or somebody asks whether it is ready. The transport is driven by its owner, and everything here
// happens on the thread that drives it: nothing is locked.
#include "runtime.hpp"

#ifndef THALWEG_PENDING_HPP
#define THALWEG_PENDING_HPP

#include "service.hpp"

#include <coroutine>
#include <deque>
#include <exception>
#include <functional>
#include <memory>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// Hears of one call, in order: items, then one end or failure. Frames are lent until the method returns.
class Listener {
public:
    virtual ~Listener() = default;
    /// Whether one frame answers the call: an item of a stream is none.
    [[nodiscard]] virtual bool unary() const { return false; }
    virtual void item(FrameView frame) = 0;
    virtual void end(FrameView frame) = 0;
    virtual void failed(std::exception_ptr why) = 0;
};

/// A call that has begun: its number, and how many items a stream may bring before it is granted more.
struct Begun {
    std::uint64_t call;
    std::uint32_t credit;
};

/// Carries many requests at once.
class AsyncTransport {
public:
    virtual ~AsyncTransport() = default;
    /// Begins a call, of which `listener` hears until it has ended. The request is copied; it leaves when the transport is
    /// driven. Throws Error.
    virtual Begun begin(FrameView request, std::shared_ptr<Listener> listener) = 0;
    /// Nobody waits for the call any more. It still ends.
    virtual void cancel(std::uint64_t call) = 0;
    /// The call's stream may send so many items more.
    virtual void grant(std::uint64_t call, std::uint32_t items) = 0;
    /// How many items a new stream may bring before it is granted more; 0 where streams know no credit, and as long as it is
    /// not known yet.
    [[nodiscard]] virtual std::uint32_t credit() const { return 0; }
    /// The next request could not be written: what was said for it alone is said for none.
    virtual void unsent() noexcept {}
};

/// Who is told when something came: a coroutine, or a callback.
class Waiting {
public:
    void resume_later(std::coroutine_handle<> coroutine) { coroutine_ = coroutine; }
    void call_later(std::function<void()> call) { call_ = std::move(call); }
    void tell() {
        if (const auto coroutine = std::exchange(coroutine_, nullptr)) coroutine.resume();
        if (const auto call = std::exchange(call_, nullptr)) call();
    }

private:
    std::coroutine_handle<> coroutine_;
    std::function<void()> call_;
};

/// What a coroutine awaits: something that is `ready` once, and then has something to `take`. It lives where the coroutine
/// waits, so a coroutine that is destroyed there is not gone on with.
template <class T> class Awaiter {
public:
    Awaiter(T& of, Waiting& waiting) : of_(of), waiting_(waiting) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() { waiting_.resume_later(nullptr); }

    [[nodiscard]] bool await_ready() const { return of_.ready(); }
    void await_suspend(std::coroutine_handle<> coroutine) { waiting_.resume_later(coroutine); }
    auto await_resume() { return of_.take(); }

private:
    T& of_;
    Waiting& waiting_;
};

/// A call with one answer, an owned R, that will be there. Dropped before that, it goes on and nobody hears of it.
template <class R> class Pending {
public:
    Pending(AsyncTransport& transport, FrameView request, std::string_view error)
        : transport_(transport), state_(std::make_shared<State>(error)), begun_(transport.begin(request, state_)) {}

    /// Whether the answer, or why there is none, is there.
    [[nodiscard]] bool ready() const { return state_->outcome.index() != 0; }
    /// The answer, once it is ready; throws what went wrong. To be taken once.
    R take() {
        if (auto* why = std::get_if<std::exception_ptr>(&state_->outcome)) std::rethrow_exception(*why);
        return std::move(std::get<R>(state_->outcome));
    }
    /// Tells the server that nobody waits for the answer. The call still ends, usually as cancelled.
    void cancel() { transport_.cancel(begun_.call); }
    /// Has `act` called with this when it is ready, by the transport's driver, or at once.
    template <class F> void then(F act) && {
        const auto state = state_;
        const auto kept = std::make_shared<Pending>(std::move(*this));
        auto call = [kept, act = std::move(act)]() mutable { act(*kept); };
        if (kept->ready()) call();
        else state->waiting.call_later(std::move(call));
    }

    Awaiter<Pending> operator co_await() { return {*this, state_->waiting}; }

private:
    using Outcome = std::variant<std::monostate, R, std::exception_ptr>;

    struct State : Listener {
        explicit State(std::string_view tag) : error(tag) {}
        [[nodiscard]] bool unary() const override { return true; }
        void item(FrameView) override { failed(std::make_exception_ptr(Error(Fault::bad_answer, "an item of a stream"))); }
        void end(FrameView frame) override { settle(read(frame)); }
        void failed(std::exception_ptr why) override { settle(Outcome(std::move(why))); }
        Outcome read(FrameView frame) const {
            try {
                return Outcome(std::in_place_type<R>, own(answer<typename Codec<R>::View>(frame, error)));
            } catch (...) {
                return Outcome(std::current_exception());
            }
        }
        void settle(Outcome with) {
            if (outcome.index() != 0) return;
            outcome = std::move(with);
            // What a callback throws is no outcome: it is for the transport's driver.
            waiting.tell();
        }

        std::string_view error;
        Outcome outcome;
        Waiting waiting;
    };

    AsyncTransport& transport_;
    std::shared_ptr<State> state_;
    Begun begun_;
};

/// A stream of owned items that an owned R ends. The server sends as many as were granted; what is taken is granted anew.
template <class I, class R> class Items {
public:
    Items(AsyncTransport& transport, FrameView request, std::string_view error)
        : transport_(transport), state_(std::make_shared<State>(error)), begun_(transport.begin(request, state_)) {}
    Items(Items&&) noexcept = default;
    Items(const Items&) = delete;
    Items& operator=(const Items&) = delete;
    Items& operator=(Items&&) = delete;
    ~Items() {
        if (state_) leave();
    }

    /// Whether `take` has something to say.
    [[nodiscard]] bool ready() const { return !state_->items.empty() || state_->ended(); }
    /// The next item once it is ready; nothing when the stream has ended; throws what went wrong.
    std::optional<I> take() {
        if (state_->items.empty()) {
            if (!state_->why) return std::nullopt;
            leave();
            std::rethrow_exception(state_->why);
        }
        std::optional<I> item(std::move(state_->items.front()));
        state_->items.pop_front();
        taken_++;
        if (!state_->ended()) grant();
        return item;
    }
    /// What ended the stream, once it has.
    [[nodiscard]] const R& response() const { return state_->response.value(); }
    /// Tells the server that nobody waits for more. The call still ends, usually as cancelled.
    void cancel() { transport_.cancel(begun_.call); }

    /// `while (auto item = co_await items.next())`.
    Awaiter<Items> next() { return {*this, state_->waiting}; }

private:
    /// Half at a time: the server goes on while the other half is on its way.
    void grant() {
        // Of a stream that was begun while there was no connection it is known since there is one.
        if (begun_.credit == 0) begun_.credit = transport_.credit();
        if (taken_ > begun_.credit / 2) transport_.grant(begun_.call, std::exchange(taken_, 0));
    }
    /// Nobody reads on, be it that something that came could not be read: the call does not stay open for that.
    void leave() {
        if (!state_->is_over && !std::exchange(has_left_, true)) transport_.cancel(begun_.call);
    }

    struct State : Listener {
        explicit State(std::string_view tag) : error(tag) {}
        void item(FrameView frame) override {
            hear([&] { items.push_back(own(answer<typename Codec<I>::View>(frame, error))); });
        }
        void end(FrameView frame) override {
            is_over = true;
            hear([&] { response = own(answer<typename Codec<R>::View>(frame, error)); });
        }
        void failed(std::exception_ptr reason) override {
            is_over = true;
            hear([&] { std::rethrow_exception(reason); });
        }
        /// Whether nothing more is read.
        [[nodiscard]] bool ended() const { return response || why; }
        template <class F> void hear(F&& read) {
            if (ended()) return;
            try {
                read();
            } catch (...) {
                why = std::current_exception();
            }
            waiting.tell();
        }

        std::string_view error;
        std::deque<I> items;
        std::optional<R> response;
        std::exception_ptr why;
        /// Whether the call has ended, and not only reading.
        bool is_over = false;
        Waiting waiting;
    };

    AsyncTransport& transport_;
    std::shared_ptr<State> state_;
    Begun begun_;
    std::uint32_t taken_ = 0;
    bool has_left_ = false;
};

} // namespace thalweg

#endif
