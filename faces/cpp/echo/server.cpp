// `server ENDPOINT`: the echo service, until TERM or INT.

#include "service.hpp"

#include <thalweg/server.hpp>

#include <csignal>
#include <iostream>

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: server ENDPOINT\n";
        return 2;
    }
    // Blocked before any thread starts, so that only the one that waits for them is told.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    try {
        EchoService service;
        thalweg::Server server({arguments[1]}, {echo::schema_hash, echo::error_tag});
        std::thread([signals, stopper = server.stopper()] {
            int signal = 0;
            sigwait(&signals, &signal);
            stopper.stop();
        }).detach();
        std::cout << "ready" << std::endl;
        server.run_reactor([&](thalweg::Incoming request) { service.take(std::move(request)); });
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
