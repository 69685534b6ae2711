// A client of JSON-RPC: JSON goes in, JSON comes out, over connections that are kept.
#include "runtime.hpp"

#ifndef THALWEG_RPC_HPP
#define THALWEG_RPC_HPP

#include "code.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// As `thalweg.h` says; made with the defaults.
struct RpcOptions : thalweg_rpc_options {
    RpcOptions() : thalweg_rpc_options(thalweg_rpc_defaults()) {}
};

/// A method, and its parameters: a JSON array or object, or nothing.
struct RpcCall {
    std::string method;
    std::string params;
};

/// What the server said of one call.
struct RpcAnswer {
    /// The result; of an error what it holds beside its words, if anything.
    std::string json;
    /// Of an error: its number in JSON-RPC, its words, and its fault if the server is one of ours.
    std::int64_t code = 0;
    std::string message;
    Fault fault{};
    bool is_error = false;
};

/// The server answered a call with an error.
class RpcError : public std::runtime_error {
public:
    explicit RpcError(RpcAnswer answer) : std::runtime_error(answer.message), answer_(std::move(answer)) {}
    [[nodiscard]] const RpcAnswer& answer() const { return answer_; }

private:
    RpcAnswer answer_;
};

/// Calls services by JSON-RPC. To be used from one thread at a time.
class RpcClient {
public:
    /// Told once: what was answered, in the order of the calls, or why nothing was.
    using Listener = std::function<void(std::vector<RpcAnswer>, const Error*)>;

    /// Of the service at `http://host:port/rpc/name`. Connects with the first call. Throws Error.
    explicit RpcClient(const std::string& url, const RpcOptions& options = RpcOptions()) {
        check(thalweg_rpc_open(c_string(url), &options, &client_));
    }
    RpcClient(const RpcClient&) = delete;
    RpcClient& operator=(const RpcClient&) = delete;
    /// What was begun and has not ended is told so. What a listener throws here is not heard of.
    ~RpcClient() {
        *alive_ = false;
        // A listener may go on to call and cancel: the client is closed by then.
        thalweg_rpc_close(std::exchange(client_, nullptr));
        const Error closed = destroyed();
        while (!listeners_.empty()) {
            // One at a time: a call that is cancelled meanwhile is not told.
            const auto told = listeners_.extract(listeners_.begin());
            try {
                told.mapped()({}, &closed);
            } catch (...) {
            }
        }
    }

    /// Another service, or the same at another address, for `thalweg_rpc_ask::target`.
    std::uint32_t target(const std::string& url) {
        std::uint32_t number = 0;
        check(thalweg_rpc_target(handle(), c_string(url), &number));
        return number;
    }

    /// Calls and waits for the result, as JSON. Throws RpcError, or Error.
    std::string call(const std::string& method, const std::string& params = {}, thalweg_rpc_ask ask = {}) {
        auto answers = wait(put({{method, params}}, ask));
        if (answers.empty()) return {};
        if (answers.front().is_error) throw RpcError(std::move(answers.front()));
        return std::move(answers.front().json);
    }

    /// Has something done that has no answer; waits until the server has it.
    void notify(const std::string& method, const std::string& params = {}, thalweg_rpc_ask ask = {}) {
        ask.notifies = true;
        wait(put({{method, params}}, ask));
    }

    /// Makes calls together; their answers come in the order of the calls. Throws Error.
    std::vector<RpcAnswer> batch(const std::vector<RpcCall>& calls, thalweg_rpc_ask ask = {}) {
        ask.batch = true;
        return wait(put(calls, ask));
    }

    /// Asks whether the client's own service was made from the schema with this hash, as generated code has it. Throws Error.
    void expect_schema(const std::array<std::uint8_t, 32>& hash) { check(thalweg_rpc_expect_schema(handle(), hash.data())); }

    /// Begins calls, which leave with the next turn. Throws Error: then nothing was begun.
    std::uint64_t begin(const std::vector<RpcCall>& calls, Listener listener, thalweg_rpc_ask ask = {}) {
        const std::uint64_t number = put(calls, ask);
        listeners_.emplace(number, std::move(listener));
        return number;
    }

    /// What was begun is not awaited any more; its listener is not told.
    void cancel(std::uint64_t call) {
        listeners_.erase(call);
        if (client_ != nullptr) check(thalweg_rpc_cancel(client_, call));
    }

    /// Writes, waits, reads, and tells listeners what came; of how many calls. What a listener throws comes out of here, once
    /// the others were told; where several throw, each next turn throws one of those that are left before it does anything. A
    /// listener may destroy this client.
    std::size_t turn(Wait wait) {
        thrown_.rethrow();
        check(thalweg_rpc_turn(handle(), wait.ms(), nullptr));
        const auto alive = alive_;
        Exceptions thrown;
        std::size_t told = 0;
        for (thalweg_rpc_done done{}; *alive; told++) {
            check(thalweg_rpc_next(handle(), &done));
            if (done.call == 0) break;
            thrown.keep([&] { tell(done); });
        }
        if (*alive) {
            thrown_.take(std::move(thrown));
            thrown_.rethrow();
        }
        thrown.rethrow();
        return told;
    }

    /// For a foreign loop: readable whenever `turn(Wait::poll())` has something to do. One such turn comes first, and one
    /// after each round of calls.
    [[nodiscard]] int descriptor() {
        int descriptor = -1;
        check(thalweg_rpc_descriptor(handle(), &descriptor));
        return descriptor;
    }
    [[nodiscard]] thalweg_rpc_statistics statistics() const { return thalweg_rpc_statistics_of(client_); }

private:
    static Error destroyed() { return {Fault::closed, "the client was destroyed"}; }

    thalweg_rpc* handle() {
        if (client_ == nullptr) throw destroyed();
        return client_;
    }

    std::uint64_t put(const std::vector<RpcCall>& calls, const thalweg_rpc_ask& ask) {
        std::vector<thalweg_rpc_call> list;
        list.reserve(calls.size());
        for (const auto& call : calls) {
            list.push_back({.method = c_string(call.method), .params = c_string(call.params)});
        }
        std::uint64_t number = 0;
        check(thalweg_rpc_begin(handle(), list.data(), list.size(), &ask, &number));
        return number;
    }

    void tell(const thalweg_rpc_done& done) {
        const auto found = listeners_.extract(done.call);
        if (found.empty()) return;
        if (done.fault == 0) return found.mapped()(answers(done), nullptr);
        const Error error(Fault(done.fault), done.detail);
        found.mapped()({}, &error);
    }

    std::vector<RpcAnswer> wait(std::uint64_t call) {
        thalweg_rpc_done done{};
        check(thalweg_rpc_wait(client_, call, &done));
        if (done.fault != 0) throw Error(Fault(done.fault), done.detail);
        return answers(done);
    }

    std::vector<RpcAnswer> answers(const thalweg_rpc_done& done) {
        std::vector<RpcAnswer> all(done.answers);
        for (std::size_t place = 0; place < all.size(); place++) {
            thalweg_rpc_answer found{};
            check(thalweg_rpc_answer_at(client_, place, &found));
            all[place] = {.json = {reinterpret_cast<const char*>(found.json), found.length},
                          .code = found.code,
                          .message = found.message,
                          .fault = Fault(found.fault),
                          .is_error = found.is_error};
        }
        return all;
    }

    thalweg_rpc* client_ = nullptr;
    std::unordered_map<std::uint64_t, Listener> listeners_;
    /// What listeners threw beside what came out of a turn.
    Exceptions thrown_;
    /// Falls with the client, for a turn whose listener destroyed it.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

} // namespace thalweg

#endif
