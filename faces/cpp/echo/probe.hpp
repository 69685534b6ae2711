// The client that takes single steps and says how each ended: what is wrong is at the other end, and told by the program that started
// this. The steps stand in conformance/matrix/README.md.
#ifndef ECHO_PROBE_HPP
#define ECHO_PROBE_HPP

#include <echo_client.hpp>
#include <thalweg/client.hpp>

#include <charconv>
#include <iostream>
#include <span>

namespace probe {

/// More than a frame may have unless said otherwise.
constexpr std::size_t large_bytes = (16U << 20U) + 1;

inline std::string said(const thalweg::Error& error) {
    constexpr std::array retries{"never", "safe", "unknown"};
    const std::string name(thalweg::word(error.fault()));
    return name + " " + retries.at(static_cast<std::size_t>(error.retry()));
}

/// Runs a step: nothing, or what the answer is instead.
template <class F> std::string outcome(F&& step) {
    try {
        step();
        return "ok";
    } catch (const thalweg::DecodeError&) {
        return "decode";
    } catch (const thalweg::Error& error) {
        return said(error);
    }
}

inline echo::EchoFields request() { return {.count = 7, .total = 9, .name = "step"}; }

inline void asked(thalweg::Client& client, thalweg::CallOptions options) {
    client.with(options);
    echo::EchoClient waiting(client);
    const auto answer = waiting.fields(request());
    if (answer.count != 7 || answer.total != 9 || answer.name != "step") throw std::runtime_error("another answer");
}

/// Begins a call and gives it up.
inline void cancelled(thalweg::Client& client) {
    echo::EchoAsyncClient calls(client);
    auto pending = calls.fields(request());
    client.flush();
    pending.cancel();
    client.wait(std::move(pending));
}

inline void sent(thalweg::Client& client, const thalweg::Frame& frame) {
    client.receive(client.send(frame));
}

inline thalweg::Frame bytes(std::string_view hex) {
    thalweg::Frame frame;
    for (std::size_t at = 0; at + 2 <= hex.size(); at += 2) {
        std::uint8_t byte = 0;
        std::from_chars(hex.data() + at, hex.data() + at + 2, byte, 16);
        frame.push_back(byte);
    }
    return frame;
}

inline void take(thalweg::Client& client, std::string_view step) {
    using namespace std::chrono_literals;
    if (step == "echo") return asked(client, {});
    if (step == "late") return asked(client, {.deadline = 50ms});
    if (step == "cancel") return cancelled(client);
    if (step == "large") return sent(client, thalweg::Frame(large_bytes));
    return sent(client, bytes(step.substr(1)));
}

/// Takes the steps.
inline void run(const std::string& endpoint, const std::string& within_ms, std::span<char*> steps) {
    thalweg::ClientOptions options(echo::schema_hash);
    options.connect_within_ms = std::stoul(within_ms);
    std::unique_ptr<thalweg::Client> client;
    const std::string connected = outcome([&] { client = std::make_unique<thalweg::Client>(endpoint, options); });
    if (!client) return void(std::cout << connected << '\n');
    for (const std::string_view step : steps) {
        std::cout << outcome([&] { take(*client, step); }) << '\n';
    }
}

} // namespace probe

#endif
