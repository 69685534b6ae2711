// A server: it hands requests to generated dispatchers and carries what responders say, and has no thread of its own.
#include "runtime.hpp"

#ifndef THALWEG_SERVER_HPP
#define THALWEG_SERVER_HPP

#include "code.hpp"
#include "reply.hpp"

#include <initializer_list>
#include <type_traits>
#include <vector>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// As `thalweg.h` says; made with the defaults.
struct ServerOptions : thalweg_server_options {
    ServerOptions() : thalweg_server_options(thalweg_server_defaults()) {}
    /// Of one schema: pass the `schema_hash` and `error_tag` that were generated with the types.
    ServerOptions(const std::array<std::uint8_t, 32>& hash, std::string_view error)
        : ServerOptions() {
        std::copy(hash.begin(), hash.end(), schema);
        // A generated tag is a literal, so a NUL ends it.
        error_tag = error.data();
    }
};

/// What stops a server, from any thread, and may outlive it.
class Stopper {
public:
    explicit Stopper(const thalweg_server* server) {
        thalweg_stopper* stopper = nullptr;
        check(thalweg_server_stopper(server, &stopper));
        stopper_.reset(stopper, thalweg_stopper_free);
    }
    /// The server takes nothing new; what has begun is answered, then its `run` returns.
    void stop() const { thalweg_stopper_stop(stopper_.get()); }

private:
    std::shared_ptr<thalweg_stopper> stopper_;
};

/// A request that came, with what else is known of it.
struct Incoming {
    std::uint64_t client = 0;
    /// Lent: until the next turn, or until the handler returns.
    FrameView frame;
    /// How long the answer is still wanted, if there is a limit.
    std::optional<std::chrono::milliseconds> deadline;
    /// Nothing else waits or is in flight, and no other client asked within the last millisecond: to answer
    /// at once delays no other call.
    bool alone = false;
    std::unique_ptr<Reply> reply;
};

/// Serves at endpoints. To be used from one thread at a time; stoppers and replies from any.
class Server {
public:
    /// Listens. A path is taken over only from a server that is dead. Throws Error.
    explicit Server(const std::vector<std::string>& endpoints, const ServerOptions& options = ServerOptions()) {
        if (options.error_tag != nullptr) error_tag_ = options.error_tag;
        std::vector<const char*> paths;
        for (const std::string& endpoint : endpoints) paths.push_back(c_string(endpoint));
        thalweg_server* server = nullptr;
        check(thalweg_server_open(paths.data(), paths.size(), &options, &server));
        server_.reset(server);
    }

    /// Answers one request after the other until the server is stopped: `handle(FrameView request, Frame& answer)`. What it
    /// throws stops the server, and the first of that comes out of here; each caller gets the service's error with its words.
    template <class F> void run(F&& handle) {
        SerialCall<F> call{{handle, stopper(), {}}, error_tag_};
        const auto answer = [](void* context, const std::uint8_t* request, std::size_t length, thalweg_answer* out) {
            auto& self = *static_cast<SerialCall<F>*>(context);
            self.guard([&] { self.answer(FrameView(request, length), out); });
        };
        check(thalweg_server_run(server_.get(), answer, &call));
        call.thrown.rethrow();
    }

    /// Hands requests out as they come, until the server is stopped: `handle(Incoming)`, whose reply may be answered now or
    /// later, from any thread. Returns when everything that was handed out has been answered. What it throws stops the
    /// server, and the first of that comes out of here; generated dispatchers throw nothing.
    template <class F> void run_reactor(F&& handle) {
        HandlerCall<F> call{handle, stopper(), {}};
        const auto take = [](void* context, const thalweg_request* request) {
            auto& self = *static_cast<HandlerCall<F>*>(context);
            self.guard([&] { self.call(taken(*request)); });
        };
        check(thalweg_server_run_reactor(server_.get(), take, &call));
        call.thrown.rethrow();
    }

    /// Reads, writes, waits; then hands what came to `handle(Incoming)`. Says how many requests that were. What it throws
    /// comes out of here, once the others were handed out; where it throws several times, each next turn throws one of those
    /// that are left before it does anything.
    template <class F> std::size_t turn(Wait wait, F&& handle) {
        thrown_.rethrow();
        // Of a turn that a handler takes: what came with its own request.
        const std::size_t left = hand_out(handle);
        check(thalweg_server_turn(server_.get(), (left > 0 ? Wait::poll() : wait).ms(), nullptr));
        return left + hand_out(handle);
    }

    /// Whether it was stopped and everything that was begun is answered: the end of a loop of turns.
    [[nodiscard]] bool is_stopped() const { return thalweg_server_is_stopped(server_.get()); }
    [[nodiscard]] Stopper stopper() const { return Stopper(server_.get()); }
    /// For a foreign loop: readable whenever a turn with `Wait::poll()` has something to do.
    [[nodiscard]] int descriptor() const { return thalweg_server_descriptor(server_.get()); }
    [[nodiscard]] thalweg_server_statistics statistics() const { return thalweg_server_statistics_of(server_.get()); }

private:
    /// A call's reply over the C interface. Destroyed unanswered it ends the call as abandoned.
    class Answer : public Reply {
    public:
        explicit Answer(thalweg_reply* reply) : reply_(reply) {}
        Answer(const Answer&) = delete;
        Answer& operator=(const Answer&) = delete;
        ~Answer() override { thalweg_reply_drop(reply_); }

        Flow item(FrameView frame) override {
            switch (thalweg_reply_item(reply_, frame.data(), frame.size())) {
            case THALWEG_FLOW_GO: return Flow::go;
            case THALWEG_FLOW_WAIT: return Flow::wait;
            case THALWEG_FLOW_GONE: break;
            }
            return Flow::gone;
        }
        void end(FrameView frame) override {
            check(thalweg_reply_end(std::exchange(reply_, nullptr), frame.data(), frame.size()));
        }
        void fail(Fault fault, std::string_view error, std::string_view message) override {
            // The service's own error is an answer like any other.
            if (fault == Fault::refused) return Reply::fail(fault, error, message);
            const auto* bytes = reinterpret_cast<const std::uint8_t*>(message.data());
            check(thalweg_reply_fail(std::exchange(reply_, nullptr), std::uint16_t(fault), bytes, message.size()));
        }
        bool cancelled() override { return thalweg_reply_cancelled(reply_); }
        void changed(std::function<void()> wake) override {
            auto kept = std::make_unique<std::function<void()>>(std::move(wake));
            // What it throws ends the process here, where its words are still known, and not in the library.
            const auto call = [](void* context) noexcept { (*static_cast<std::function<void()>*>(context))(); };
            const auto release = [](void* context) { delete static_cast<std::function<void()>*>(context); };
            check(thalweg_reply_changed(reply_, call, kept.release(), release));
        }

    private:
        thalweg_reply* reply_;
    };

    /// A handler that C calls: what it throws is kept until C has returned.
    template <class F> struct HandlerCall {
        std::remove_reference_t<F>& call;
        Stopper stopper;
        Exceptions thrown;

        template <class G> void guard(G&& act) noexcept {
            if (!thrown.keep(act)) stopper.stop();
        }
    };

    /// Where a serial handler's error goes.
    class SerialReply : public Reply {
    public:
        explicit SerialReply(thalweg_answer* out) : out_(out) {}
        Flow item(FrameView) override { return Flow::gone; }
        void end(FrameView frame) override { check(thalweg_answer_write(out_, frame.data(), frame.size())); }

    private:
        thalweg_answer* out_;
    };

    template <class F> struct SerialCall : HandlerCall<F> {
        std::string_view error;

        void answer(FrameView request, thalweg_answer* out) {
            Scratch frame;
            // An answer without a word of it would be taken for a success.
            try {
                this->call(request, frame.bytes);
            } catch (...) {
                SerialReply(out).fail(Fault::refused, error, thrown_words());
                throw;
            }
            SerialReply(out).end(frame.bytes);
        }
    };

    template <class F> std::size_t hand_out(F& handle) {
        // To the end, whatever is thrown: only then do answers leave, and does the descriptor tell of what comes. Kept here
        // until then: a turn that a handler takes meanwhile does not throw what other handlers threw.
        Exceptions thrown;
        std::size_t count = 0;
        for (;; count++) {
            thalweg_request request{};
            check(thalweg_server_next(server_.get(), &request));
            if (request.reply == nullptr) break;
            thrown.keep([&] { handle(taken(request)); });
        }
        thrown_.take(std::move(thrown));
        thrown_.rethrow();
        return count;
    }

    static Incoming taken(const thalweg_request& request) {
        Incoming incoming;
        incoming.client = request.client;
        incoming.frame = FrameView(request.frame, request.length);
        if (request.deadline_ms >= 0) incoming.deadline = std::chrono::milliseconds(request.deadline_ms);
        incoming.alone = request.alone;
        // Dropped where there is no memory for what holds it: its caller is to hear of that.
        std::unique_ptr<thalweg_reply, Drop> reply(request.reply);
        incoming.reply = std::make_unique<Answer>(reply.get());
        static_cast<void>(reply.release());
        return incoming;
    }

    struct Drop {
        void operator()(thalweg_reply* reply) const { thalweg_reply_drop(reply); }
    };
    struct Close {
        void operator()(thalweg_server* server) const { thalweg_server_close(server); }
    };
    std::unique_ptr<thalweg_server, Close> server_;
    /// What handlers threw beside what came out of a turn.
    Exceptions thrown_;
    /// The library's own where none is given.
    std::string error_tag_ = "ErrorResponse";
};

} // namespace thalweg

#endif
