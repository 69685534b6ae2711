// `client ENDPOINT`: calls everything that an echo server answers; `client ENDPOINT MILLISECONDS STEP...` takes single steps. What
// is expected of it: conformance/matrix/README.md. ECHO_GOLDEN is the folder of the golden frames.

#include "probe.hpp"

#include <echo_client.hpp>
#include <thalweg/client.hpp>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <thread>

namespace {

using thalweg::Fault;
using thalweg::Frame;
using thalweg::FrameView;
using thalweg::Task;
using namespace std::chrono_literals;

int passed = 0;

void holds(bool what, std::string_view name) {
    if (!what) throw std::runtime_error(std::string(name) + " is not as expected");
    passed++;
}

Frame golden(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path.string() + " is missing");
    return Frame(std::istreambuf_iterator<char>(file), {});
}

Frame golden(const std::string& name) { return golden(std::filesystem::path(ECHO_GOLDEN) / (name + ".bin")); }

template <class T> T golden_request(const std::string& name) {
    const Frame frame = golden(name);
    return thalweg::own(std::get<typename thalweg::Codec<T>::View>(echo::decode_request(frame)));
}

// What is said back, by either client: the waiting one's answer, or the other's Pending.

auto said(auto& client, const echo::EchoBytesView& of) { return client.bytes(of); }
auto said(auto& client, const echo::EchoFieldsView& of) { return client.fields(of); }
auto said(auto& client, const echo::EchoNestedView& of) { return client.nested(of); }
auto said(auto& client, const echo::EchoAliasesView& of) { return client.aliases(of); }
auto said(auto& client, const echo::EchoBlobsView& of) { return client.blobs(of); }
auto said(auto& client, const echo::EchoNumbersView& of) { return client.numbers(of); }
auto said(auto& client, const echo::EchoPlacesView& of) { return client.places(of); }

/// A message's fields as they travel: the same for a request and for what says it back.
template <class T> Frame fields(const T& message) {
    Frame frame;
    thalweg::Writer writer(frame);
    thalweg::Codec<T>::write(writer, message);
    return frame;
}

template <class T> constexpr bool is_said_back = requires(echo::EchoClient& client, const T& of) { said(client, of); };

/// The golden requests that are answered with what they ask.
std::vector<Frame> requests() {
    std::vector<Frame> frames;
    for (const auto& entry : std::filesystem::directory_iterator(ECHO_GOLDEN)) {
        if (entry.path().extension() != ".bin") continue;
        Frame frame = golden(entry.path());
        if (frame.empty() || frame[0] != 0x91) continue;
        const bool wanted = std::visit([]<class T>(const T&) { return is_said_back<T>; }, echo::decode_request(frame));
        if (wanted) frames.push_back(std::move(frame));
    }
    return frames;
}

void echoes(echo::EchoClient& client, FrameView request) {
    const auto act = [&]<class T>(const T& of) {
        if constexpr (is_said_back<T>) holds(fields(said(client, of)) == fields(of), thalweg::Codec<T>::tag);
    };
    std::visit(act, echo::decode_request(request));
}

template <class T> Task<> echoes(echo::EchoAsyncClient& client, T of) {
    if constexpr (is_said_back<T>) {
        auto pending = said(client, of);
        const auto back = co_await pending;
        holds(fields(back) == fields(of), thalweg::Codec<T>::tag);
    }
}

Task<> echoed(echo::EchoAsyncClient& client, FrameView request) {
    return std::visit([&](const auto& of) { return echoes(client, of); }, echo::decode_request(request));
}

Task<> forks(echo::EchoAsyncClient& client) {
    const auto put = golden_request<echo::EchoPut>("echo_put_request");
    const std::string fork = "cpp-" + std::to_string(std::random_device{}()) + std::to_string(std::random_device{}());
    // Requests have names: g++ 12 destroys temporaries beside a co_await twice.
    const echo::EchoPut here{.fork = fork, .value = put.value};
    const echo::EchoPeek peek{.fork = fork};
    const echo::EchoPeekCommitted peek_committed{.fork = fork};
    holds(!(co_await client.peek(peek)).value, "a fork before it was put to");
    holds((co_await client.put(here)).version == 1, "the first version");
    holds((co_await client.put(here)).version == 2, "the second version");
    holds((co_await client.peek(peek)).value == put.value, "what was put");
    holds((co_await client.peek_committed(peek_committed)).value == put.value, "what was committed");
}

/// 64 calls in flight at once.
void many(thalweg::Client& client, echo::EchoAsyncClient& calls, const std::vector<Frame>& frames) {
    std::vector<Task<>> tasks;
    for (std::size_t n = 0; n < 64; n++) tasks.push_back(echoed(calls, frames[n % frames.size()]));
    for (auto& task : tasks) task.start();
    holds(client.in_flight() == 64, "64 calls in flight");
    for (auto& task : tasks) {
        while (!task.done()) client.turn(thalweg::Wait::block());
        task.result();
    }
}

Task<> stream(thalweg::Client& client, echo::EchoAsyncClient& calls) {
    const auto wanted = golden_request<echo::EchoCount>("echo_count_request");
    client.with({.credit = 16});
    auto items = calls.count(wanted);
    std::uint32_t expected = wanted.first;
    while (const auto item = co_await items.next()) {
        if (item->value != expected++) throw std::runtime_error("a stream out of order");
    }
    holds(expected == wanted.last + 1 && items.response().count == 1'000, "a stream");
}

template <class F> Fault fault_of(F&& act) {
    try {
        act();
    } catch (const thalweg::Error& error) {
        return error.fault();
    }
    return Fault{};
}

void refused(thalweg::Client& client, echo::EchoAsyncClient& calls) {
    const auto request = golden_request<echo::EchoFail>("echo_fail_request");
    try {
        client.wait(calls.fail(request));
        holds(false, "a refusal");
    } catch (const thalweg::Refused& refused) {
        holds(refused.what() == request.reason, refused.what());
    }
}

/// A request that no service knows: an error frame, or the fault.
void unknown(thalweg::Client& client) {
    Frame frame;
    thalweg::Writer writer(frame);
    writer.array(1);
    writer.array(2);
    writer.string("EchoNoSuchThing");
    writer.map(0);
    const std::uint64_t call = client.send(frame);
    const Fault fault = fault_of([&] {
        const FrameView answer = client.receive(call);
        const auto response = echo::decode_response(answer);
        holds(std::holds_alternative<echo::EchoErrorResponseView>(response), "an unknown command's answer");
    });
    holds(fault == Fault{} || fault == Fault::unknown_command, "an unknown command");
}

constexpr echo::EchoCount endless{.first = 0, .last = 0xffff'ffff};

Task<> cancelled(thalweg::Client& client, echo::EchoAsyncClient& calls) {
    client.with({.credit = 4});
    auto items = calls.count(endless);
    const auto first = co_await items.next();
    holds(first && first->value == 0, "the first item");
    items.cancel();
    try {
        while (co_await items.next()) {
        }
        holds(false, "a cancelled call");
    } catch (const thalweg::Error& error) {
        holds(error.fault() == Fault::cancelled, "a cancelled call");
    }
}

/// Nobody takes the items, so the stream waits until its deadline.
void overdue(thalweg::Client& client, echo::EchoAsyncClient& calls) {
    client.with({.deadline = 50ms, .credit = 1});
    auto items = calls.count(endless);
    while (client.in_flight() > 0) client.turn(thalweg::Wait::block());
    const Fault fault = fault_of([&] {
        while (items.take()) {
        }
    });
    holds(fault == Fault::deadline_exceeded, "a deadline");
}

void everything(const std::string& endpoint) {
    const std::vector<Frame> frames = requests();
    thalweg::Client client(endpoint, thalweg::ClientOptions(echo::schema_hash));
    holds(client.is_shared() == endpoint.ends_with(".shm"), "shared memory");
    echo::EchoAsyncClient calls(client);
    for (const Frame& frame : frames) client.run(echoed(calls, frame));
    client.run(forks(calls));
    many(client, calls, frames);
    client.run(stream(client, calls));
    refused(client, calls);
    unknown(client);
    client.run(cancelled(client, calls));
    overdue(client, calls);
    client.run(echoed(calls, frames.front()));

    echo::EchoClient waiting(client);
    for (const Frame& frame : frames) echoes(waiting, frame);
    std::uint32_t items = 0;
    const auto end = waiting.count(golden_request<echo::EchoCount>("echo_count_request"), [&](const auto& item) {
        if (item.value != ++items) throw std::runtime_error("a stream out of order");
    });
    holds(end.count == 1'000, "a stream that was waited for");
}

} // namespace

int main(int count, char** arguments) {
    if (count < 2) {
        std::cerr << "usage: client ENDPOINT [MILLISECONDS STEP...]\n";
        return 2;
    }
    try {
        if (count > 2) {
            probe::run(arguments[1], arguments[2], std::span(arguments + 3, arguments + count));
            return 0;
        }
        everything(arguments[1]);
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    std::cout << "ok " << passed << '\n';
    return 0;
}
