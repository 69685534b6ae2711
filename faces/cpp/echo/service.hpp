// The echo service. Answers at once on the server's thread; streams that have to wait go on at a desk, a thread beside it.
#ifndef ECHO_SERVICE_HPP
#define ECHO_SERVICE_HPP

#include "desk.hpp"

#include <echo_server.hpp>

#include <map>

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
        Fork& fork = forks_[std::string(request.fork)];
        fork.value = thalweg::own(request.value);
        responder.ok(echo::EchoPutResponse{.version = ++fork.version});
    }
    void peek(echo::EchoPeekView request, thalweg::Responder<echo::EchoPeekResponse> responder) override {
        last(request.fork, responder);
    }
    void peek_committed(
        echo::EchoPeekCommittedView request, thalweg::Responder<echo::EchoPeekResponse> responder
    ) override {
        last(request.fork, responder);
    }

private:
    struct Fork {
        thalweg::Bytes value;
        std::uint64_t version = 0;
    };

    void last(std::string_view of, thalweg::Responder<echo::EchoPeekResponse>& responder) {
        const auto fork = forks_.find(std::string(of));
        echo::EchoPeekResponseView response{};
        if (fork != forks_.end()) response.value = thalweg::BytesView(thalweg::FrameView(fork->second.value));
        responder.ok(response);
    }

    std::map<std::string, Fork> forks_;
    Desk desk_;
};

#endif
