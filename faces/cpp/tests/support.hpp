// What the face's tests share: counting, a folder of their own, and a server beside them.
#ifndef TESTS_SUPPORT_HPP
#define TESTS_SUPPORT_HPP

#include "service.hpp"

#include <echo_client.hpp>
#include <thalweg/client.hpp>
#include <thalweg/server.hpp>

#include <atomic>
#include <filesystem>
#include <functional>
#include <iostream>
#include <source_location>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace tests {

using thalweg::Fault;
using thalweg::Frame;
using thalweg::FrameView;
using thalweg::Wait;

inline std::atomic<int> passed = 0;
inline std::atomic<int> failed = 0;

/// One check.
inline void holds(bool what, std::source_location at = std::source_location::current()) {
    (what ? passed : failed)++;
    if (!what) std::cerr << at.file_name() << ":" << at.line() << ": does not hold\n";
}

/// What went wrong; no fault's code when nothing did.
template <class F> Fault fault_of(F&& act) {
    try {
        act();
    } catch (const thalweg::Error& error) {
        return error.fault();
    }
    return Fault{};
}

/// A path of this process's own, which is removed at the end.
class Path {
public:
    explicit Path(const std::string& name) : text_(folder() / name) {
        address_.sun_family = AF_UNIX;
        text_.copy(address_.sun_path, sizeof(address_.sun_path) - 1);
    }
    ~Path() { std::filesystem::remove(text_); }
    Path(const Path&) = delete;
    Path& operator=(const Path&) = delete;
    operator const std::string&() const { return text_; }
    /// For those who do without a client.
    [[nodiscard]] const sockaddr_un& address() const { return address_; }

private:
    static std::filesystem::path folder() {
        const auto path = std::filesystem::temp_directory_path() / ("thalweg-cpp-" + std::to_string(getpid()));
        std::filesystem::create_directories(path);
        return path;
    }
    std::string text_;
    sockaddr_un address_{};
};

inline thalweg::ServerOptions server_options() { return {echo::schema_hash, echo::error_tag}; }
inline thalweg::ClientOptions client_options() { return thalweg::ClientOptions(echo::schema_hash); }

/// A server that runs on a thread until this goes.
class Running {
public:
    using Take = std::function<void(thalweg::Incoming)>;

    Running(const std::string& path, Take take, const thalweg::ServerOptions& options = server_options())
        : server_({path}, options), stopper_(server_.stopper()), take_(std::move(take)),
          thread_([this] { server_.run_reactor(take_); }) {}
    ~Running() {
        stopper_.stop();
        thread_.join();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

private:
    thalweg::Server server_;
    thalweg::Stopper stopper_;
    Take take_;
    std::thread thread_;
};

/// What hands requests to a handler.
inline Running::Take to(echo::EchoHandler& handler) {
    return [&handler](thalweg::Incoming request) {
        echo::dispatch_unordered(handler, request.frame, std::move(request.reply));
    };
}

/// Whether the connection still serves.
inline bool serves(thalweg::Client& client) {
    echo::EchoClient waiting(client);
    const echo::EchoBytes request{.data = {1, 2, 3}};
    return thalweg::own(waiting.bytes(request).data) == request.data;
}

void calls();
void meetings();
void memory();
void serving();
void spawning();
void remote();

} // namespace tests

#endif
