// A client: one connection, many calls at once, no thread of its own. Generated code calls through it, waiting
// (`EchoClient`) or not (`EchoAsyncClient`); both may share one.
#include "runtime.hpp"

#ifndef THALWEG_CLIENT_HPP
#define THALWEG_CLIENT_HPP

#include "code.hpp"
#include "pending.hpp"
#include "task.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// As `thalweg.h` says; made with the defaults.
struct ClientOptions : thalweg_client_options {
    ClientOptions() : thalweg_client_options(thalweg_client_defaults()) {}
    /// Of one schema: pass the `schema_hash` that was generated with the types.
    explicit ClientOptions(const std::array<std::uint8_t, 32>& hash) : ClientOptions() {
        std::copy(hash.begin(), hash.end(), schema);
    }
};

/// What one call may be given, instead of what the client's options, and the server, say.
struct CallOptions {
    /// How long the answer is wanted; at 0 or less that time has passed already.
    std::optional<std::chrono::nanoseconds> deadline{};
    /// Of a stream: how many items may come before more are granted, which reading them does. 0 is what the server says.
    std::uint32_t credit = 0;
};

/// Calls a service. To be used from one thread at a time. Every call that was begun ends, at the
/// latest as Fault::closed when the client is destroyed. That may be in a callback of `turn`, but not in what a waiting call
/// hands a stream's items to.
class Client : public Transport, public AsyncTransport {
public:
    /// Connects to `*.sock` or `*.shm`, trying again for as long as the options say. Throws Error.
    explicit Client(const std::string& endpoint, const ClientOptions& options = ClientOptions()) {
        check(thalweg_client_open(c_string(endpoint), &options, &client_));
    }
    /// Takes over one that the C interface opened.
    explicit Client(thalweg_client* client) : client_(client) {}
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    /// What a callback throws here is not heard of.
    ~Client() override {
        *alive_ = false;
        // A listener may go on to call, cancel and grant: the client is closed by then.
        thalweg_client_close(std::exchange(client_, nullptr));
        for (const auto& [call, listener] : std::exchange(listeners_, {})) {
            try {
                listener->failed(std::make_exception_ptr(destroyed()));
            } catch (...) {
            }
        }
    }

    // Waiting, one call at a time.

    std::uint64_t send(FrameView request) override { return wait_for(request, false); }

    std::uint64_t ask(FrameView request) override { return wait_for(request, true); }

    FrameView receive(std::uint64_t call) override {
        if (call == 0 || call != waited_.call) throw Error(Fault::cancelled, "another call was made on this client");
        thalweg_event event{};
        if (kept_.empty()) {
            check(thalweg_client_wait(client_, call, &event));
        } else {
            // Lent until the next one is received.
            received_ = std::move(kept_.front());
            kept_.pop_front();
            kept_bytes_ -= received_->item_bytes();
            event = received_->event();
        }
        if (event.kind == THALWEG_EVENT_KIND_ITEM) {
            // Of a stream that was begun while there was no connection it is known since there is one.
            if (waited_.credit == 0) waited_.credit = credit();
            if (++taken_ > waited_.credit / 2) grant(call, std::exchange(taken_, 0));
            return frame(event);
        }
        waited_ = {};
        if (has_failed(event)) throw failure(event);
        return frame(event);
    }

    void leave(std::uint64_t call) noexcept override {
        if (call == 0 || call != waited_.call) return;
        forget_waited();
        if (client_ == nullptr) return;
        // A connection that cannot be written to shows in the next call. What lay behind the stream, the descriptor tells of.
        static_cast<void>(thalweg_client_forget(client_, call));
        static_cast<void>(thalweg_client_flush(client_));
    }

    // Many at once.

    Begun begin(FrameView request, std::shared_ptr<Listener> listener) override {
        const Begun begun = call(request, listener->unary());
        listeners_.emplace(begun.call, std::move(listener));
        return begun;
    }
    void cancel(std::uint64_t call) override {
        if (client_ != nullptr) check(thalweg_client_cancel(client_, call));
    }
    void grant(std::uint64_t call, std::uint32_t items) override {
        if (client_ != nullptr) check(thalweg_client_grant(client_, call, items));
    }

    [[nodiscard]] std::uint32_t credit() const override {
        return client_ == nullptr ? 0 : thalweg_client_state_of(client_).credit;
    }
    void unsent() noexcept override { next_call_ = {}; }

    /// Gives the next call, and no other, what it says here instead of what the client's options say. A call whose request
    /// cannot be written was the next one, too.
    Client& with(CallOptions options) {
        next_call_ = options;
        return *this;
    }

    /// Writes what is queued, as far as it can be now.
    void flush() { check(thalweg_client_flush(client_)); }

    /// Writes, waits, reads, and tells those who wait what came, by callback or by going on with a coroutine. Says of how
    /// many things. What a callback throws comes out of here, once the others were told; where several throw, each next turn
    /// throws one of those that are left before it does anything. A callback may destroy this client. A plain stream that is
    /// waited for meanwhile is kept up to a bound, then this throws Fault::overrun.
    std::size_t turn(Wait wait) {
        thrown_.rethrow();
        std::size_t told = tell();
        if (told > 0) return told;
        check(thalweg_client_turn(client_, wait.ms(), nullptr));
        return tell();
    }

    /// Takes turns until the task has ended, and returns what it did. What an earlier turn has left to throw comes out of here
    /// before the task begins.
    template <class T> T run(Task<T> task) {
        const auto alive = alive_;
        thrown_.rethrow();
        task.start();
        while (!task.done()) turn_of(*alive);
        return task.result();
    }

    /// Takes turns until one call is answered. What an earlier turn has left to throw comes out of here first.
    template <class R> R wait(Pending<R> pending) {
        const auto alive = alive_;
        while (!pending.ready()) turn_of(*alive);
        return pending.take();
    }

    /// For a foreign loop: readable whenever `turn(Wait::poll())` has something to do. One such turn comes first, and one
    /// after each round of calls.
    [[nodiscard]] int descriptor() {
        int descriptor = -1;
        check(thalweg_client_descriptor(client_, &descriptor));
        return descriptor;
    }
    [[nodiscard]] std::size_t in_flight() const { return thalweg_client_state_of(client_).in_flight; }
    /// Whether frames go through shared memory.
    [[nodiscard]] bool is_shared() const { return thalweg_client_state_of(client_).shared; }
    [[nodiscard]] bool is_connected() const { return thalweg_client_state_of(client_).connected; }

private:
    /// An event that outlives the next function of the C interface.
    struct KeptEvent {
        explicit KeptEvent(const thalweg_event& came)
            : said(came), bytes(came.frame, came.frame + came.length), detail(came.detail) {}
        [[nodiscard]] thalweg_event event() const {
            thalweg_event event = said;
            event.frame = bytes.data();
            event.detail = detail.c_str();
            return event;
        }
        /// What ends a stream does not count: nothing more is kept of it.
        [[nodiscard]] std::size_t item_bytes() const { return said.kind == THALWEG_EVENT_KIND_ITEM ? bytes.size() : 0; }

        thalweg_event said;
        Frame bytes;
        std::string detail;
    };

    /// As much of a plain stream, which has no credit and ends nowhere, is kept beside the bound of the library's own.
    static constexpr std::size_t kept_bytes_max = 4 << 20;

    static Error destroyed() { return {Fault::closed, "the client was destroyed"}; }

    /// A turn of a caller that goes on as long as the client does.
    void turn_of(const bool& alive) {
        if (!alive) throw destroyed();
        turn(Wait::block());
    }

    std::uint64_t wait_for(FrameView request, bool unary) {
        // A stream that was not read to its end is not wanted any more.
        if (waited_.call != 0) check(thalweg_client_forget(client_, waited_.call));
        forget_waited();
        waited_ = call(request, unary);
        return waited_.call;
    }

    void forget_waited() noexcept {
        waited_ = {};
        taken_ = 0;
        kept_.clear();
        kept_bytes_ = 0;
    }

    Begun call(FrameView request, bool unary) {
        if (client_ == nullptr) throw destroyed();
        const CallOptions given = std::exchange(next_call_, {});
        // 0 is none to C: one that has passed already is as short as one can be.
        std::chrono::milliseconds::rep ms = 0;
        if (given.deadline) {
            ms = std::max<decltype(ms)>(std::chrono::ceil<std::chrono::milliseconds>(*given.deadline).count(), 1);
        }
        const thalweg_call_options options{
            .deadline_ms = static_cast<std::uint64_t>(ms), .credit = given.credit, .unary = unary};
        Begun begun{.call = 0, .credit = given.credit};
        check(thalweg_client_call(client_, request.data(), request.size(), &options, &begun.call));
        if (begun.credit == 0) begun.credit = credit();
        return begun;
    }

    /// A refusal is the service's own answer: its words are in the frame.
    static bool has_failed(const thalweg_event& event) {
        const bool refused = event.fault == THALWEG_REFUSED && event.length > 0;
        return event.kind == THALWEG_EVENT_KIND_FAILED && !refused;
    }
    static FrameView frame(const thalweg_event& event) { return {event.frame, event.length}; }
    static Error failure(const thalweg_event& event) { return {Fault(event.fault), event.detail}; }

    std::size_t tell() {
        // A listener may destroy this client.
        const auto alive = alive_;
        // All are told, whichever throws: the descriptor says nothing of what was read and is left here.
        Exceptions thrown;
        std::size_t told = 0;
        for (bool comes = true; comes && *alive;) {
            thrown.keep([&] {
                // What throws before a listener is told is the end.
                comes = false;
                keep_no_more();
                thalweg_event event{};
                check(thalweg_client_next(client_, &event));
                if (event.kind == THALWEG_EVENT_KIND_NOTHING) return;
                comes = true;
                told++;
                tell(event);
            });
        }
        if (*alive) {
            thrown_.take(std::move(thrown));
            thrown_.rethrow();
        }
        thrown.rethrow();
        return told;
    }

    /// A caller that takes turns between the items of a plain stream has them kept here, up to a bound.
    void keep_no_more() const {
        if (kept_bytes_ < kept_bytes_max) return;
        const thalweg_client_state state = thalweg_client_state_of(client_);
        if (state.connected && state.credit == 0) {
            throw Error(Fault::overrun, "items of the stream that is waited for lie here: take those, or leave it, first");
        }
    }

    void tell(const thalweg_event& event) {
        // Of the stream that `receive` reads, while its reader makes other calls between the items.
        if (event.call == waited_.call) {
            kept_bytes_ += kept_.emplace_back(event).item_bytes();
            return;
        }
        const auto found = listeners_.find(event.call);
        if (found == listeners_.end()) return;
        // Held while it is told, and forgotten before: it may begin calls.
        const std::shared_ptr<Listener> listener = found->second;
        if (event.kind == THALWEG_EVENT_KIND_ITEM) return listener->item(frame(event));
        listeners_.erase(found);
        if (has_failed(event)) return listener->failed(std::make_exception_ptr(failure(event)));
        listener->end(frame(event));
    }

    thalweg_client* client_ = nullptr;
    /// The call that `receive` is about, and how many of its stream's items were taken and not granted anew.
    Begun waited_{};
    std::uint32_t taken_ = 0;
    /// What came of that call while others were told, and what `receive` lent of it.
    std::deque<KeptEvent> kept_;
    std::size_t kept_bytes_ = 0;
    std::optional<KeptEvent> received_;
    CallOptions next_call_;
    /// What callbacks threw beside what came out of a turn.
    Exceptions thrown_;
    std::unordered_map<std::uint64_t, std::shared_ptr<Listener>> listeners_;
    /// Falls with the client, for code that goes on after a callback.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

} // namespace thalweg

#endif
