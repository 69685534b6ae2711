// Where calls meet: other calls of the same client, what destroys their client, an executor that takes none.

#include "support.hpp"

#include <echo_server.hpp>

namespace tests {
namespace {

const echo::EchoBytes one_byte{.data = {1}};
const echo::EchoCount ten{.first = 0, .last = 9};

/// A callback may destroy the client that calls it: what else was begun hears of that, and the turn returns.
void destroyed_in_a_callback() {
    EchoService service;
    const Path path("suicide.sock");
    const Running server(path, to(service));
    auto client = std::make_unique<thalweg::Client>(path, client_options());
    echo::EchoAsyncClient calls(*client);
    int answered = 0;
    int closed = 0;
    for (int n = 0; n < 8; n++) {
        calls.bytes(one_byte).then([&](auto& pending) {
            const Fault fault = fault_of([&] { pending.take(); });
            answered += fault == Fault{} ? 1 : 0;
            closed += fault == Fault::closed ? 1 : 0;
            client.reset();
        });
    }
    while (client) client->turn(Wait::block());
    holds(answered == 1 && closed == 7);

    // One that waits for a call, or a task, is told instead of going on.
    client = std::make_unique<thalweg::Client>(path, client_options());
    echo::EchoAsyncClient others(*client);
    others.bytes(one_byte).then([&](auto&) { client.reset(); });
    holds(fault_of([&] { client->wait(others.bytes(one_byte)); }) == Fault::closed);

    // What it throws beside comes out of the turn, which tells nobody more.
    client = std::make_unique<thalweg::Client>(path, client_options());
    echo::EchoAsyncClient last(*client);
    last.bytes(one_byte).then([&](auto&) {
        client.reset();
        throw std::runtime_error("after the end");
    });
    try {
        while (client) client->turn(Wait::block());
        holds(false);
    } catch (const std::runtime_error& error) {
        holds(error.what() == std::string("after the end"));
    }
}

/// A call that waits takes the place of a stream that is waited for: the stream is left, and says so.
void another_call_in_a_stream() {
    EchoService service;
    const Path path("another.sock");
    const Running server(path, to(service));
    thalweg::Client client(path, client_options());
    echo::EchoClient waiting(client);
    int items = 0;
    try {
        waiting.count(ten, [&](const auto&) {
            items++;
            holds(serves(client));
        });
        holds(false);
    } catch (const thalweg::Error& error) {
        holds(error.fault() == Fault::cancelled && error.what() == std::string("another call was made on this client"));
    }
    holds(items == 1 && client.in_flight() == 0 && serves(client));

    // Nor does the outer stream take what belongs to an inner one.
    std::vector<std::uint32_t> inner;
    holds(fault_of([&] {
              waiting.count(ten, [&](const auto&) {
                  waiting.count(ten, [&](const auto& item) { inner.push_back(item.value); });
              });
          }) == Fault::cancelled);
    holds(inner == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

/// What is said for one call is said for no other, though it could not be written.
void options_of_a_call_that_cannot_be_written() {
    EchoService service;
    const Path path("unwritten.sock");
    const Running server(path, to(service));
    thalweg::Client client(path, client_options());
    echo::EchoClient waiting(client);
    echo::EchoAsyncClient calls(client);
    const echo::EchoFail unreadable{.reason = "caf\xe9"};
    const auto throws = [](auto&& act) {
        try {
            act();
            return false;
        } catch (const std::exception&) {
            return true;
        }
    };
    client.with({.deadline = std::chrono::nanoseconds(0)});
    holds(throws([&] { waiting.fail(unreadable); }) && serves(client));
    client.with({.deadline = std::chrono::nanoseconds(0)});
    holds(throws([&] { calls.fail(unreadable); }) && serves(client));
}

/// Who waits for a call between the items of a plain stream keeps them up to a bound, and can go on behind it.
void a_plain_stream_is_kept_up_to_a_bound() {
    constexpr std::size_t item_bytes = 64 * 1024;
    constexpr int items = 200;
    const std::string_view tag = "EchoCountItem";
    Frame item{0x92, static_cast<std::uint8_t>(0xa0 + tag.size())};
    item.insert(item.end(), tag.begin(), tag.end());
    // A value of 64 KiB.
    for (const int byte : {0xc6, 0x00, 0x01, 0x00, 0x00}) item.push_back(static_cast<std::uint8_t>(byte));
    item.resize(item.size() + item_bytes);
    Frame end;
    thalweg::response_frame(echo::EchoCountResponse{.count = items}, end);
    Frame answer;
    thalweg::response_frame(echo::EchoBytesResponse{.data = {1}}, answer);

    const Path path("kept.sock");
    auto options = server_options();
    options.unsent_bytes_max = 64 << 20;
    options.stream_credit = 1'000;
    bool first = true;
    const Running server(
        path,
        [&](thalweg::Incoming request) {
            if (!std::exchange(first, false)) return request.reply->end(answer);
            for (int n = 0; n < items; n++) request.reply->item(item);
            request.reply->end(end);
        },
        options
    );
    auto plain = client_options();
    plain.plain = true;
    thalweg::Client client(path, plain);
    echo::EchoAsyncClient calls(client);
    Frame request;
    thalweg::request_frame(ten, request);
    const std::uint64_t stream = client.send(request);
    client.receive(stream);
    std::optional<thalweg::Retry> retry;
    try {
        client.wait(calls.bytes(one_byte));
    } catch (const thalweg::Error& error) {
        holds(error.fault() == Fault::overrun);
        retry = error.retry();
    }
    holds(retry == thalweg::Retry::unknown);
    int taken = 1;
    while (client.receive(stream).size() > item_bytes) taken++;
    holds(taken == items);
    holds(client.wait(calls.bytes(one_byte)).data == one_byte.data);
}

void waits() {
    static_assert(Wait::within(std::chrono::seconds::max()).ms() == Wait::block().ms());
    static_assert(Wait::within(std::chrono::hours::max()).ms() == Wait::block().ms());
    static_assert(Wait::within(std::chrono::nanoseconds(1)).ms() == 1);
    static_assert(Wait::within(std::chrono::hours(24)).ms() == 86'400'000);
    static_assert(Wait::within(std::chrono::seconds(-1)).ms() == 0);
    using Seconds = std::chrono::duration<double>;
    static_assert(Wait::within(Seconds(0.0001)).ms() == 1 && Wait::within(Seconds(-1e300)).ms() == 0);
    static_assert(Wait::within(Seconds(std::numeric_limits<double>::quiet_NaN())).ms() == 0);
    holds(Wait::within(std::chrono::seconds::max()).ms() != 0);
}

/// Counts how calls end.
class Ended : public thalweg::Reply {
public:
    explicit Ended(int& count) : count_(count) {}
    ~Ended() override { count_++; }
    thalweg::Flow item(FrameView) override { return thalweg::Flow::gone; }
    void end(FrameView) override {}

private:
    int& count_;
};

/// Calls that an executor does not take end, one after the other, and the fork goes on.
void executors_that_take_nothing() {
    constexpr int waiting = 100'000;
    for (const bool throws : {true, false}) {
        bool stops = true;
        thalweg::Forks forks([&](const thalweg::Forks::Job& job) {
            if (!stops) return job();
            if (throws) throw std::runtime_error("the pool has ended");
        });
        int ended = 0;
        int ran = 0;
        std::unique_ptr<thalweg::Reply> first;
        const auto order = [&](thalweg::Access access) {
            forks.order(
                {access, thalweg::Fork()}, std::make_unique<Ended>(ended),
                [&](std::unique_ptr<thalweg::Reply> call) { first = std::move(call); },
                [&] { return [&](std::unique_ptr<thalweg::Reply>) { ran++; }; }
            );
        };
        order(thalweg::Access::write);
        for (int n = 0; n < waiting; n++) order(thalweg::Access::write);
        holds(ended == 0);
        first.reset();
        holds(ended == waiting + 1 && ran == 0);
        stops = false;
        order(thalweg::Access::write);
        order(thalweg::Access::read);
        first.reset();
        holds(ended == waiting + 3 && ran == 1);
    }
}

/// What a stream gave to be woken by goes with its answer.
void wakes_end_with_the_answer() {
    std::atomic<bool> released = false;
    const Path path("woken.sock");
    Frame item;
    thalweg::response_frame(echo::EchoCountItem{.value = 5}, item);
    Frame end;
    thalweg::response_frame(echo::EchoCountResponse{.count = 1}, end);
    const Running server(path, [&](thalweg::Incoming request) {
        while (request.reply->item(item) == thalweg::Flow::go) {}
        const auto token = std::make_shared<int>();
        request.reply->changed([token] {});
        holds(token.use_count() == 2);
        request.reply->end(end);
        released = token.use_count() == 1;
    });
    thalweg::Client client(path, client_options());
    echo::EchoClient waiting(client);
    client.with({.credit = 1});
    holds(waiting.count(ten, [](const auto&) {}).count == 1 && released);
}

/// A transport that learns what credit streams have once they have begun.
class Dialling : public thalweg::AsyncTransport {
public:
    thalweg::Begun begin(FrameView, std::shared_ptr<thalweg::Listener> listener) override {
        heard = std::move(listener);
        return {.call = 1, .credit = 0};
    }
    void cancel(std::uint64_t) override {}
    void grant(std::uint64_t, std::uint32_t items) override {
        grants++;
        granted += items;
    }
    [[nodiscard]] std::uint32_t credit() const override { return 64; }

    std::shared_ptr<thalweg::Listener> heard;
    int grants = 0;
    std::uint32_t granted = 0;
};

/// A stream that began while there was no connection is granted by halves, too, and not item by item.
void credit_that_is_known_later() {
    Dialling transport;
    echo::EchoAsyncClient calls(transport);
    auto items = calls.count(ten);
    Frame item;
    thalweg::response_frame(echo::EchoCountItem{.value = 5}, item);
    for (int n = 0; n < 64; n++) transport.heard->item(item);
    for (int n = 0; n < 64; n++) holds(items.take().has_value());
    holds(transport.grants == 1 && transport.granted == 33);
}

} // namespace

void meetings() {
    destroyed_in_a_callback();
    another_call_in_a_stream();
    options_of_a_call_that_cannot_be_written();
    a_plain_stream_is_kept_up_to_a_bound();
    waits();
    executors_that_take_nothing();
    wakes_end_with_the_answer();
    credit_that_is_known_later();
}

} // namespace tests
