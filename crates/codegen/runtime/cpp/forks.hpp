// Calls that touch one fork, in their turn: a read waits behind the writes that came before it, a write is alone, and reads of
// what is committed wait for nobody. A call keeps its turn until it is answered, on whatever thread that is.
#include "runtime.hpp"

#ifndef THALWEG_FORKS_HPP
#define THALWEG_FORKS_HPP

#include "reply.hpp"

#include <list>
#include <map>
#include <mutex>
#include <string>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// Orders calls per fork. Outlives the server whose calls it orders; nothing is kept for a fork that nobody uses.
class Forks {
public:
    using Job = std::function<void()>;
    /// Runs jobs, any number at once, and not before it has returned where that would be in the middle of an answer. A job that
    /// it destroys instead of running it, as a pool that stops may, ends its call as abandoned, and the next call has its turn.
    /// So does one at which it throws: nobody is there to hear of that.
    using Executor = std::function<void(Job)>;

    /// A call whose turn has come when it arrives runs where it arrived; one that had to wait runs by the executor.
    explicit Forks(Executor executor) : state_(std::make_shared<State>()) { state_->executor = std::move(executor); }
    Forks(const Forks&) = delete;
    Forks& operator=(const Forks&) = delete;
    ~Forks() { state_->end(); }

    /// Calls `now(reply)` if it is the call's turn. Else `later()` makes what takes along whatever the call needs, to be
    /// called with the reply in its turn.
    template <class Now, class Later>
    void order(std::pair<Access, Fork> call, std::unique_ptr<Reply> reply, Now&& now, Later&& later) {
        const auto [access, fork] = call;
        if (access != Access::read && access != Access::write) return now(std::move(reply));
        auto held = std::make_unique<Held>(std::move(reply), state_, key_of(fork), access == Access::write);
        if (held->enters()) return now(std::move(held));
        state_->wait(std::move(held), later());
    }

private:
    using Key = std::variant<std::monostate, std::uint64_t, std::string>;
    class Held;
    using Run = std::function<void(std::unique_ptr<Reply>)>;

    struct Waiting {
        std::unique_ptr<Held> held;
        Run run;
    };

    /// Calls go from list to list by their nodes, so nothing but an arrival needs memory: a turn ends in a destructor, where
    /// nobody could be told that there is none.
    using Calls = std::list<Waiting>;

    /// Who is at one fork, and who waits for it.
    struct Line {
        bool writing = false;
        std::size_t reads = 0;
        Calls waiting;

        [[nodiscard]] bool may(bool writes) const { return !writing && !(writes && reads > 0); }
        void begin(bool writes) { writes ? void(writing = true) : void(reads++); }
        [[nodiscard]] bool is_idle() const { return !writing && reads == 0 && waiting.empty(); }
    };

    struct State {
        std::mutex mutex;
        std::map<Key, Line> lines;
        Executor executor;

        void wait(std::unique_ptr<Held> held, Run run) {
            Calls call;
            call.push_back({std::move(held), std::move(run)});
            std::unique_lock lock(mutex);
            Line& line = lines[call.front().held->key_];
            // The calls that were in the way may have ended meanwhile.
            line.waiting.splice(line.waiting.end(), call);
            go_on(line, std::move(lock));
        }

        void leave(const Key& key, bool writes) noexcept {
            std::unique_lock lock(mutex);
            const auto at = lines.find(key);
            if (at == lines.end()) return;
            writes ? void(at->second.writing = false) : void(at->second.reads--);
            if (at->second.is_idle()) return void(lines.erase(at));
            go_on(at->second, std::move(lock));
        }

        /// Begins the calls that may begin.
        void go_on(Line& line, std::unique_lock<std::mutex> lock) noexcept {
            Calls begun;
            while (!line.waiting.empty() && line.may(line.waiting.front().held->writes_)) {
                Held& next = *line.waiting.front().held;
                line.begin(next.writes_);
                next.entered_ = true;
                begun.splice(begun.end(), line.waiting, line.waiting.begin());
            }
            lock.unlock();
            hand_out(std::move(begun));
        }

        /// Gives calls to their executors. What one does not take ends within this, and lets others begin: those are given from
        /// the same queue, and not from the depth of the stack.
        static void hand_out(Calls begun) noexcept {
            static thread_local Calls* under_way = nullptr;
            if (under_way != nullptr) return under_way->splice(under_way->end(), begun);
            under_way = &begun;
            while (!begun.empty()) {
                Waiting next = std::move(begun.front());
                begun.pop_front();
                give(std::move(next));
            }
            under_way = nullptr;
        }

        static void give(Waiting next) noexcept {
            const std::shared_ptr<State> state = next.held->state_;
            try {
                const auto call = std::make_shared<Waiting>(std::move(next));
                state->executor([call] {
                    // Nobody may wait any more by the time its turn has come.
                    if (call->held->cancelled()) return call->held.reset();
                    call->run(std::move(call->held));
                });
            } catch (...) {
                // The call ends as abandoned with its job, or as it was if there was no memory for one.
            }
        }

        /// Nobody's turn comes any more: who waits is answered as abandoned.
        void end() noexcept {
            Calls left;
            const std::scoped_lock lock(mutex);
            for (auto& [key, line] : lines) left.splice(left.end(), line.waiting);
        }
    };

    /// A reply that keeps its call's turn until it is gone.
    class Held : public Reply {
    public:
        Held(std::unique_ptr<Reply> reply, std::shared_ptr<State> state, Key key, bool writes)
            : reply_(std::move(reply)), state_(std::move(state)), key_(std::move(key)), writes_(writes) {}
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;
        ~Held() override {
            // The answer leaves before the turn does.
            reply_.reset();
            if (entered_) state_->leave(key_, writes_);
        }

        bool enters() {
            const std::scoped_lock lock(state_->mutex);
            Line& line = state_->lines[key_];
            if (!line.waiting.empty() || !line.may(writes_)) return false;
            line.begin(writes_);
            return entered_ = true;
        }

        Flow item(FrameView frame) override { return reply_->item(frame); }
        void end(FrameView frame) override { reply_->end(frame); }
        void fail(Fault fault, std::string_view error, std::string_view message) override {
            reply_->fail(fault, error, message);
        }
        bool cancelled() override { return reply_->cancelled(); }
        void changed(std::function<void()> wake) override { reply_->changed(std::move(wake)); }

    private:
        friend State;
        std::unique_ptr<Reply> reply_;
        std::shared_ptr<State> state_;
        Key key_;
        bool writes_;
        bool entered_ = false;
    };

    static Key key_of(const Fork& fork) {
        if (const auto* number = std::get_if<std::uint64_t>(&fork)) return *number;
        const auto* bytes = std::get_if<BytesView>(&fork);
        return bytes == nullptr ? Key() : Key(std::string(bytes->begin(), bytes->end()));
    }

    std::shared_ptr<State> state_;
};

} // namespace thalweg

#endif
