// Programs that are started: real ones, of the shell's.

#include "support.hpp"

#include <thalweg/spawned.hpp>

#include <csignal>

#include <poll.h>

namespace tests {
namespace {

thalweg::SpawnOptions shell(const std::string& script) {
    thalweg::SpawnOptions options;
    options.arguments = {"-c", script};
    return options;
}

void streams(bool pipes) {
    thalweg::SpawnOptions options;
    options.pipes = pipes;
    // What it makes of a request is a fine answer.
    thalweg::Spawned spawned("cat", "-", options);
    thalweg::ClientOptions plain;
    plain.plain = true;
    {
        thalweg::Client client = spawned.connect(plain);
        const Frame request(100'000, 7);
        const FrameView answer = client.receive(client.send(request));
        holds(std::equal(answer.begin(), answer.end(), request.begin(), request.end()));
        holds(fault_of([&] { spawned.connect(plain); }) == Fault::no_server);
        holds(spawned.process() != 0 && !spawned.tend());
    }
    // Its input has ended, and so does it.
    pollfd ended{.fd = spawned.descriptor(), .events = POLLIN, .revents = 0};
    holds(poll(&ended, 1, 30'000) == 1);
    holds(fault_of([&] { spawned.tend(); }) == Fault::no_server);
    holds(spawned.process() == 0);
}

void failing() {
    const Path path("spawned.sock");
    const Path log("spawned.log");
    holds(fault_of([&] { thalweg::Spawned("/no/such/program", path); }) == Fault::bad_argument);
    holds(fault_of([&] { thalweg::Spawned("/etc/passwd", path); }) == Fault::permission_denied);
    auto dying = shell("echo it is broken >&2; exit 3");
    dying.log = log;
    try {
        thalweg::Spawned("sh", path, dying);
        holds(false);
    } catch (const thalweg::Error& error) {
        const std::string_view words = error.what();
        holds(error.fault() == Fault::no_server);
        holds(words.find("code 3") != words.npos && words.find("it is broken") != words.npos);
    }
    dying.environment = {"no value"};
    holds(fault_of([&] { thalweg::Spawned("sh", path, dying); }) == Fault::bad_argument);
    // What C would end at a NUL is refused as a whole.
    const std::string cut(std::string_view("true\0; exit 3", 12));
    holds(fault_of([&] { thalweg::Spawned("sh", path, shell(cut)); }) == Fault::bad_argument);
    holds(fault_of([&] { thalweg::Spawned(cut, path); }) == Fault::bad_argument);
    auto elsewhere = shell("true");
    elsewhere.directory = std::string(std::string_view("/\0tmp", 5));
    holds(fault_of([&] { thalweg::Spawned("sh", path, elsewhere); }) == Fault::bad_argument);
    // One that never answers is late, and ended.
    auto mute = shell("sleep 1000");
    mute.ready_within = std::chrono::milliseconds(50);
    holds(fault_of([&] { thalweg::Spawned("sh", path, mute); }) == Fault::connect_timeout);
    // A time that has passed already is no longer than none.
    mute.ready_within = mute.end_within = std::chrono::milliseconds(-1);
    holds(fault_of([&] { thalweg::Spawned("sh", path, mute); }) == Fault::connect_timeout);
}

void respawning() {
    auto options = shell("test \"$WORD\" = said && exec cat");
    options.environment = {"WORD=said"};
    options.respawn_most = 1;
    thalweg::Spawned spawned("sh", "-", options);
    const std::uint32_t before = spawned.process();
    kill(pid_t(before), SIGKILL);
    pollfd ended{.fd = spawned.descriptor(), .events = POLLIN, .revents = 0};
    holds(poll(&ended, 1, 30'000) == 1);
    const auto exit = spawned.tend();
    holds(exit && exit->by_signal && exit->number == SIGKILL);
    holds(spawned.process() != before);
    spawned.restart();
    const auto stopped = spawned.stop();
    holds(stopped && stopped->by_signal && stopped->number == SIGTERM);
    holds(fault_of([&] { spawned.tend(); }) == Fault::closed);
}

void unknown_end() {
    // The kernel keeps no exit codes then.
    const auto before = std::signal(SIGCHLD, SIG_IGN);
    thalweg::Spawned spawned("cat", "-");
    const auto stopped = spawned.stop();
    std::signal(SIGCHLD, before);
    holds(stopped && stopped->is_unknown && !stopped->by_signal && stopped->number == -1);
}

} // namespace

void spawning() {
    streams(false);
    streams(true);
    failing();
    respawning();
    unknown_end();
}

} // namespace tests
