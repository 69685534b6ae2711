// A server's side: who answers, when, and from where.

#include "support.hpp"

#include <future>
#include <set>

#include <poll.h>

namespace tests {
namespace {

/// Sixteen requests that are answered by as many threads, the last first.
class Backwards : public EchoService {
public:
    static constexpr std::uint8_t count = 16;

    void bytes(echo::EchoBytesView request, thalweg::Responder<echo::EchoBytesResponse> responder) override {
        waiting_.emplace_back(thalweg::own(request), std::move(responder));
        if (waiting_.size() < count) return;
        std::thread([waiting = std::move(waiting_)]() mutable {
            while (!waiting.empty()) {
                std::thread([&] {
                    auto& [asked, answers] = waiting.back();
                    answers.ok(echo::EchoBytesResponse{.data = asked.data});
                }).join();
                waiting.pop_back();
            }
        }).detach();
        waiting_.clear();
    }

private:
    std::vector<std::pair<echo::EchoBytes, thalweg::Responder<echo::EchoBytesResponse>>> waiting_;
};

void answers_from_other_threads(bool plain) {
    Backwards service;
    const Path path("threads.sock");
    const Running server(path, to(service));
    auto options = client_options();
    options.plain = plain;
    thalweg::Client client(path, options);
    echo::EchoAsyncClient calls(client);
    std::vector<std::uint8_t> order;
    for (std::uint8_t n = 0; n < Backwards::count; n++) {
        const echo::EchoBytes request{.data = {n}};
        calls.bytes(request).then([&](auto& pending) { order.push_back(pending.take().data.at(0)); });
    }
    while (order.size() < Backwards::count) client.turn(Wait::block());
    // Plain connections keep the requests' order, others that of the answers.
    for (std::uint8_t n = 0; n < Backwards::count; n++) holds(order[n] == (plain ? n : Backwards::count - 1 - n));
}

/// Nothing to say.
struct Wordless : std::exception {
    explicit Wordless(const char* words) : words_(words) {}
    [[nodiscard]] const char* what() const noexcept override { return words_; }

private:
    const char* words_;
};

constexpr std::string_view wordless = "the handler threw a std::exception without words";

/// Handlers that do not answer as they should.
class Careless : public EchoService {
public:
    void bytes(echo::EchoBytesView, thalweg::Responder<echo::EchoBytesResponse>) override {}
    void fields(echo::EchoFieldsView request, thalweg::Responder<echo::EchoFieldsResponse>) override {
        if (request.count == 0) throw Wordless("");
        if (request.count == 2) throw Wordless(nullptr);
        if (request.count == 3) throw 3;
        throw std::runtime_error("cannot " + std::string(request.name));
    }
    void blobs(echo::EchoBlobsView, thalweg::Responder<echo::EchoBlobsResponse> responder) override {
        kept_.push_back(std::move(responder));
        throw std::runtime_error("somebody else answers");
    }
    void numbers(echo::EchoNumbers, thalweg::Responder<echo::EchoNumbersResponse> responder) override {
        for (auto& kept : kept_) kept.ok(echo::EchoBlobsResponse{});
        kept_.clear();
        responder.fail(Fault::overloaded, "come back later");
    }

private:
    std::vector<thalweg::Responder<echo::EchoBlobsResponse>> kept_;
};

void carelessness() {
    Careless service;
    const Path path("careless.sock");
    const Running server(path, to(service));
    thalweg::Client client(path, client_options());
    echo::EchoAsyncClient calls(client);
    holds(fault_of([&] { client.wait(calls.bytes(echo::EchoBytes{})); }) == Fault::abandoned);
    const std::string_view says[] = {wordless, "cannot do it", wordless, "the handler threw something that is no std::exception"};
    for (std::uint32_t n = 0; n < std::size(says); n++) {
        const echo::EchoFields fields{.count = n, .total = 2, .name = "do it"};
        try {
            client.wait(calls.fields(fields));
            holds(false);
        } catch (const thalweg::Refused& refused) {
            holds(refused.what() == says[n]);
        }
    }
    auto kept = calls.blobs(echo::EchoBlobs{});
    holds(fault_of([&] { client.wait(calls.numbers(echo::EchoNumbers{})); }) == Fault::overloaded);
    holds(!client.wait(std::move(kept)).extra);
}

void serially() {
    const Path path("serial.sock");
    thalweg::Server server({path}, server_options());
    const thalweg::Stopper stopper = server.stopper();
    std::thread asking([&] {
        thalweg::Client client(path, client_options());
        const FrameView answer = client.receive(client.send(Frame{1, 2, 3}));
        holds(Frame(answer.begin(), answer.end()) == Frame{1, 2, 3, 3});
        stopper.stop();
    });
    server.run([](FrameView request, Frame& answer) {
        answer.assign(request.begin(), request.end());
        answer.push_back(static_cast<std::uint8_t>(request.size()));
    });
    asking.join();
    holds(server.is_stopped() && !std::filesystem::exists(static_cast<const std::string&>(path)));
}

/// What a callback throws crosses no C, stops the server and comes out.
void throwing() {
    const Path path("throwing.sock");
    thalweg::Server server({path}, server_options());
    std::thread asking([&] {
        thalweg::Client client(path, client_options());
        holds(fault_of([&] {
            client.receive(client.send(Frame{1}));
        }) == Fault::abandoned);
    });
    try {
        server.run_reactor([](const thalweg::Incoming&) { throw std::runtime_error("not a dispatcher"); });
        holds(false);
    } catch (const std::runtime_error& error) {
        holds(error.what() == std::string("not a dispatcher"));
    }
    asking.join();
}

/// Who asked is told of it: an answer without a word would be taken for a success.
void throwing_serially() {
    const Path path("throwing-serially.sock");
    thalweg::Server server({path}, server_options());
    std::thread asking([&] {
        thalweg::Client client(path, client_options());
        try {
            client.wait(echo::EchoAsyncClient(client).bytes(echo::EchoBytes{}));
            holds(false);
        } catch (const thalweg::Refused& refused) {
            holds(refused.what() == std::string("not a dispatcher"));
        }
    });
    try {
        server.run([](FrameView, Frame& answer) {
            answer = {1};
            throw std::runtime_error("not a dispatcher");
        });
        holds(false);
    } catch (const std::runtime_error& error) {
        holds(error.what() == std::string("not a dispatcher"));
    }
    asking.join();
}

/// A turn that a handler takes throws nothing that another handler threw.
void throwing_beside_a_turn() {
    EchoService service;
    const Path path("throwing-beside-a-turn.sock");
    thalweg::Server server({path}, server_options());
    std::atomic<bool> is_over = false;
    std::thread asking([&] {
        thalweg::Client client(path, client_options());
        echo::EchoAsyncClient calls(client);
        auto first = calls.bytes(echo::EchoBytes{});
        auto second = calls.bytes(echo::EchoBytes{});
        holds(fault_of([&] { client.wait(std::move(first)); }) == Fault::abandoned);
        holds(fault_of([&] { client.wait(std::move(second)); }) == Fault{});
        is_over = true;
    });
    int came = 0;
    std::string thrown;
    const auto take = [&](thalweg::Incoming request) {
        if (++came == 1) throw std::runtime_error("at the first");
        // It is lent until the server is turned.
        const Frame frame(request.frame.begin(), request.frame.end());
        server.turn(Wait::poll(), [](thalweg::Incoming) { holds(false); });
        echo::dispatch_unordered(service, frame, std::move(request.reply));
    };
    while (!is_over) {
        try {
            server.turn(Wait::within(std::chrono::milliseconds(10)), take);
        } catch (const std::runtime_error& error) {
            thrown += error.what();
        }
    }
    asking.join();
    holds(thrown == "at the first");
}

/// Of three requests that came in one turn the handler throws at two. The third is handed out all the same, because no
/// descriptor tells of what is left, what was thrown first comes out of the turn, and what was thrown then out of the next.
void throwing_by_turns() {
    EchoService service;
    const Path path("throwing-by-turns.sock");
    thalweg::Server server({path}, server_options());
    std::promise<void> connected, may_ask, asked;
    std::thread asking([&] {
        thalweg::Client client(path, client_options());
        connected.set_value();
        may_ask.get_future().wait();
        echo::EchoAsyncClient calls(client);
        auto first = calls.bytes(echo::EchoBytes{});
        auto second = calls.bytes(echo::EchoBytes{});
        client.with({.deadline = std::chrono::seconds(600)});
        auto third = calls.bytes(echo::EchoBytes{});
        client.flush();
        asked.set_value();
        holds(fault_of([&] { client.wait(std::move(first)); }) == Fault::abandoned);
        holds(fault_of([&] { client.wait(std::move(second)); }) == Fault::abandoned);
        holds(fault_of([&] { client.wait(std::move(third)); }) == Fault{});
    });
    int came = 0;
    bool answered = false;
    const auto take = [&](thalweg::Incoming request) {
        if (++came < 3) throw std::runtime_error("at request " + std::to_string(came));
        echo::dispatch_unordered(service, request.frame, std::move(request.reply));
        answered = true;
    };
    auto connects = connected.get_future();
    while (connects.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        server.turn(Wait::within(std::chrono::milliseconds(10)), take);
    }
    server.turn(Wait::poll(), take);
    may_ask.set_value();
    asked.get_future().wait();
    pollfd watched{.fd = server.descriptor(), .events = POLLIN, .revents = 0};
    std::string thrown;
    const auto turn = [&] {
        try {
            server.turn(Wait::poll(), take);
        } catch (const std::runtime_error& error) {
            thrown += std::string(error.what()) + ",";
        }
    };
    while (!answered) {
        holds(poll(&watched, 1, 60'000) == 1);
        turn();
    }
    for (int more = 0; more < 2; more++) turn();
    holds(thrown == "at request 1,at request 2,");
    asking.join();
}

/// Two clients and a server in one thread's loop.
void in_a_foreign_loop() {
    EchoService service;
    const Path path("loop.sock");
    thalweg::Server server({path}, server_options());
    std::set<std::uint64_t> clients;
    std::thread asking([&path, stopper = server.stopper()] {
        thalweg::Client one(path, client_options());
        thalweg::Client two(path, client_options());
        holds(serves(one) && serves(two));
        stopper.stop();
    });
    pollfd watched{.fd = server.descriptor(), .events = POLLIN, .revents = 0};
    const auto take = [&](thalweg::Incoming request) {
        clients.insert(request.client);
        holds(!request.deadline);
        echo::dispatch_unordered(service, request.frame, std::move(request.reply));
    };
    server.turn(Wait::poll(), take);
    while (!server.is_stopped()) {
        poll(&watched, 1, 100);
        server.turn(Wait::poll(), take);
    }
    asking.join();
    holds(clients.size() == 2);
    const thalweg_server_statistics statistics = server.statistics();
    holds(statistics.requests == 2 && statistics.answers == 2 && statistics.in_flight == 0);
}

} // namespace

void serving() {
    answers_from_other_threads(false);
    answers_from_other_threads(true);
    carelessness();
    serially();
    throwing();
    throwing_serially();
    throwing_by_turns();
    throwing_beside_a_turn();
    in_a_foreign_loop();
}

} // namespace tests
