// The echo service. Answers at once on the server's thread; streams that have to wait, and calls whose turn came later, go on
// at a desk, a thread beside it.
#ifndef ECHO_SERVICE_HPP
#define ECHO_SERVICE_HPP

#include "desk.hpp"

#include <echo_server.hpp>
#include <thalweg/server.hpp>

#include <map>
#include <mutex>

/// A stream of numbers, made as fast as they are taken and no faster.
class Counting : public std::enable_shared_from_this<Counting> {
public:
    using Responder = thalweg::Responder<echo::EchoCountResponse, echo::EchoCountItem>;

    Counting(const echo::EchoCount& request, Responder responder, Desk& desk)
        : next_(request.first), last_(request.last), responder_(std::move(responder)), desk_(desk) {}

    /// Goes on as far as it may.
    void go() {
        for (std::uint32_t turn = 0; turn < turn_items_max; turn++) {
            if (next_ > last_) return end();
            const thalweg::Flow flow = responder_.item(echo::EchoCountItem{.value = std::uint32_t(next_++)});
            count_++;
            if (flow == thalweg::Flow::gone) return end();
            if (flow == thalweg::Flow::wait) {
                return responder_.changed([self = shared_from_this()] { self->later(); });
            }
        }
        later();
    }

private:
    /// Items at a stretch, so that others have their turn.
    static constexpr std::uint32_t turn_items_max = 1'000;

    void later() {
        desk_.post([self = shared_from_this()] { self->go(); });
    }
    void end() { responder_.ok(echo::EchoCountResponse{.count = count_}); }

    std::uint64_t next_;
    std::uint64_t last_;
    std::uint32_t count_ = 0;
    Responder responder_;
    Desk& desk_;
};

/// Says back what it was asked.
class EchoService : public echo::EchoHandler {
public:
    void bytes(echo::EchoBytesView request, thalweg::Responder<echo::EchoBytesResponse> responder) override {
        responder.ok(echo::EchoBytesResponseView{.data = request.data});
    }
    void fields(echo::EchoFieldsView request, thalweg::Responder<echo::EchoFieldsResponse> responder) override {
        responder.ok(echo::EchoFieldsResponseView{
            .count = request.count, .total = request.total, .name = request.name
        });
    }
    void nested(echo::EchoNestedView request, thalweg::Responder<echo::EchoNestedResponse> responder) override {
        responder.ok(echo::EchoNestedResponseView{.inner = std::move(request.inner)});
    }
    void aliases(echo::EchoAliasesView request, thalweg::Responder<echo::EchoAliasesResponse> responder) override {
        responder.ok(echo::EchoAliasesResponse{
            .sequence_number = request.sequence_number,
            .digest = request.digest,
            .parent = request.parent,
            .chain = std::move(request.chain),
        });
    }
    void blobs(echo::EchoBlobsView request, thalweg::Responder<echo::EchoBlobsResponse> responder) override {
        responder.ok(echo::EchoBlobsResponseView{.extra = request.extra, .parts = request.parts});
    }
    void fail(echo::EchoFailView request, thalweg::Responder<echo::EchoFailResponse> responder) override {
        responder.error(request.reason);
    }
    void numbers(echo::EchoNumbers request, thalweg::Responder<echo::EchoNumbersResponse> responder) override {
        responder.ok(echo::EchoNumbersResponse{
            .tiny = request.tiny,
            .small = request.small,
            .medium = request.medium,
            .large = request.large,
            .signed_tiny = request.signed_tiny,
            .signed_small = request.signed_small,
            .signed_medium = request.signed_medium,
            .signed_large = request.signed_large,
            .single = request.single,
            .precise = request.precise,
        });
    }
    void places(echo::EchoPlacesView request, thalweg::Responder<echo::EchoPlacesResponse> responder) override {
        responder.ok(echo::EchoPlacesResponseView{
            .places = std::move(request.places),
            .counts = std::move(request.counts),
            .grid = request.grid,
            .mood = request.mood,
            .named = std::move(request.named),
        });
    }
    void count(echo::EchoCount request, Counting::Responder responder) override {
        std::make_shared<Counting>(request, std::move(responder), desk_)->go();
    }
    void put(echo::EchoPutView request, thalweg::Responder<echo::EchoPutResponse> responder) override {
        const std::scoped_lock lock(mutex_);
        Fork& fork = forks_[std::string(request.fork)];
        Put put{thalweg::own(request.value), std::move(responder)};
        if (put.value == thalweg::Bytes{'h', 'o', 'l', 'd'}) fork.held.push_back(std::move(put));
        else fork.take(std::move(put));
    }
    void peek(echo::EchoPeekView request, thalweg::Responder<echo::EchoPeekResponse> responder) override {
        last(request.fork, responder);
    }
    void peek_committed(
        echo::EchoPeekCommittedView request, thalweg::Responder<echo::EchoPeekResponse> responder
    ) override {
        last(request.fork, responder);
        const std::scoped_lock lock(mutex_);
        Fork& fork = forks_[std::string(request.fork)];
        for (Put& put : std::exchange(fork.held, {})) fork.take(std::move(put));
    }

    /// Hands a request out when it is its turn.
    void take(thalweg::Incoming request) { echo::dispatch(*this, order_, request.frame, std::move(request.reply)); }

private:
    struct Put {
        thalweg::Bytes value;
        thalweg::Responder<echo::EchoPutResponse> responder;
    };

    struct Fork {
        std::optional<thalweg::Bytes> value;
        std::uint64_t version = 0;
        /// What waits until somebody asks for what is committed.
        std::vector<Put> held;

        void take(Put put) {
            value = std::move(put.value);
            put.responder.ok(echo::EchoPutResponse{.version = ++version});
        }
    };

    void last(std::string_view of, thalweg::Responder<echo::EchoPeekResponse>& responder) {
        const std::scoped_lock lock(mutex_);
        const auto fork = forks_.find(std::string(of));
        echo::EchoPeekResponse response{};
        if (fork != forks_.end()) response.value = fork->second.value;
        responder.ok(response);
    }

    std::mutex mutex_;
    std::map<std::string, Fork> forks_;
    Desk desk_;
    thalweg::Forks order_{[this](thalweg::Forks::Job job) { desk_.post(std::move(job)); }};
};

#endif
