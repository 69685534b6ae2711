// A service's program: started, waited for, tended and ended. The kernel kills it when the thread that started it ends.
#include "runtime.hpp"

#ifndef THALWEG_SPAWNED_HPP
#define THALWEG_SPAWNED_HPP

#include "client.hpp"

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// How a program is started, and what happens when it does not do as it should.
struct SpawnOptions {
    /// What it is told.
    std::vector<std::string> arguments;
    /// Variables it gets beside those of this process, `NAME=VALUE` each.
    std::vector<std::string> environment;
    /// Where it runs; empty for where this process does.
    std::string directory;
    /// Where its output and its errors are appended, to be quoted when it fails; empty for where those of this process go.
    std::string log;
    /// How long it may take until its endpoint answers.
    std::chrono::milliseconds ready_within{thalweg_spawn_defaults().ready_within_ms};
    /// How long it may take to end when it is asked to, before it is killed.
    std::chrono::milliseconds end_within{thalweg_spawn_defaults().end_within_ms};
    /// How often it is started anew when it ended unasked, in any such stretch of time; 0 for never.
    std::uint32_t respawn_most = 0;
    std::chrono::milliseconds respawn_within{thalweg_spawn_defaults().respawn_within_ms};
    /// It speaks plain frames only.
    bool plain = false;
    /// Over `-` it gets two pipes, and not a socket.
    bool pipes = false;
};

/// How a program ended.
struct Exit {
    /// By a signal of this number, and not with this code.
    bool by_signal = false;
    int number = 0;
    /// Nobody knows how, and the number is -1: this process ignores SIGCHLD, or waits elsewhere for all its children.
    bool is_unknown = false;
};

/// A program that serves an endpoint. Destroyed, it is ended.
class Spawned {
public:
    /// Starts a program and waits until its endpoint answers. Throws Error, with how it ended and the end of its log.
    Spawned(const std::string& program, const std::string& endpoint, const SpawnOptions& options = SpawnOptions()) {
        const Texts arguments(options.arguments);
        const Texts environment(options.environment);
        thalweg_spawn_options plain = thalweg_spawn_defaults();
        plain.arguments = arguments.list.data();
        plain.arguments_count = arguments.list.size();
        plain.environment = environment.list.data();
        plain.environment_count = environment.list.size();
        plain.directory = text(options.directory);
        plain.log = text(options.log);
        plain.ready_within_ms = c_milliseconds(options.ready_within);
        plain.end_within_ms = c_milliseconds(options.end_within);
        plain.respawn_within_ms = c_milliseconds(options.respawn_within);
        plain.respawn_most = options.respawn_most;
        plain.plain = options.plain;
        plain.pipes = options.pipes;
        thalweg_spawned* spawned = nullptr;
        check(thalweg_spawned_start(c_string(program), c_string(endpoint), &plain, &spawned));
        spawned_.reset(spawned);
    }

    /// Starts it anew if it ended and may be started: then how it had ended. Throws Error when it stays ended.
    std::optional<Exit> tend() {
        thalweg_exit exit{};
        check(thalweg_spawned_tend(spawned_.get(), &exit));
        return exit_of(exit);
    }
    /// Tends it, then connects. Over `-`, once.
    Client connect(const ClientOptions& options = ClientOptions()) {
        thalweg_client* client = nullptr;
        check(thalweg_spawned_connect(spawned_.get(), &options, &client));
        return Client(client);
    }
    /// Ends one that does not do as it should, and starts it anew.
    void restart() { check(thalweg_spawned_restart(spawned_.get())); }
    /// Asks it to end, then makes it; how it ended.
    std::optional<Exit> stop() {
        thalweg_exit exit{};
        check(thalweg_spawned_stop(spawned_.get(), &exit));
        return exit_of(exit);
    }
    /// Readable when it ended; another one after it was started anew. -1 while there is none.
    [[nodiscard]] int descriptor() const { return thalweg_spawned_descriptor(spawned_.get()); }
    /// Its process; 0 while there is none.
    [[nodiscard]] std::uint32_t process() const { return thalweg_spawned_process(spawned_.get()); }

private:
    /// Strings as C has them, as long as this lives.
    struct Texts {
        explicit Texts(const std::vector<std::string>& of) {
            for (const std::string& each : of) list.push_back(c_string(each));
        }
        std::vector<const char*> list;
    };
    struct Close {
        void operator()(thalweg_spawned* spawned) const { thalweg_spawned_close(spawned); }
    };

    static const char* text(const std::string& of) { return of.empty() ? nullptr : c_string(of); }
    static std::optional<Exit> exit_of(const thalweg_exit& of) {
        if (of.kind == THALWEG_EXIT_KIND_RUNNING) return std::nullopt;
        return Exit{
            .by_signal = of.kind == THALWEG_EXIT_KIND_SIGNAL,
            .number = of.number,
            .is_unknown = of.kind == THALWEG_EXIT_KIND_UNKNOWN,
        };
    }

    std::unique_ptr<thalweg_spawned, Close> spawned_;
};

} // namespace thalweg

#endif
