// What happens where there is no memory: a call may end for it, and nothing that others wait for is lost.

#include "support.hpp"

#include <thalweg/forks.hpp>

#include <cstdlib>
#include <new>
#include <vector>

namespace {

/// How many allocations of this thread succeed before one fails; less than none is all of them.
thread_local int left = -1;

void* allocated(std::size_t size) {
    if (left == 0) {
        left = -1;
        throw std::bad_alloc();
    }
    if (left > 0) left--;
    if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
    throw std::bad_alloc();
}

} // namespace

void* operator new(std::size_t size) { return allocated(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tests {

namespace {

/// More than any step below allocates.
constexpr int allocations = 40;

class Ended : public thalweg::Reply {
public:
    explicit Ended(int& count) : count_(count) {}
    ~Ended() override { count_++; }
    thalweg::Flow item(FrameView) override { return thalweg::Flow::gone; }
    void end(FrameView) override {}

private:
    int& count_;
};

/// A fork whose first call is under way, and what is done with it.
struct Turns {
    int begun = 0;
    int ended = 0;
    std::unique_ptr<thalweg::Reply> first;
    std::vector<thalweg::Forks::Job> jobs;
    thalweg::Forks forks{[this](thalweg::Forks::Job job) { jobs.push_back(std::move(job)); }};

    Turns() { order(thalweg::Access::write); }

    void order(thalweg::Access access) {
        auto reply = std::make_unique<Ended>(ended);
        begun++;
        forks.order(
            {access, thalweg::Fork()}, std::move(reply), [&](std::unique_ptr<thalweg::Reply> call) { first = std::move(call); },
            [] { return [](std::unique_ptr<thalweg::Reply>) {}; }
        );
    }

    /// Whether each call has ended, and the fork serves on.
    bool goes_on() {
        first.reset();
        for (std::size_t n = 0; n < jobs.size(); n++) std::exchange(jobs[n], {})();
        if (ended != begun) return false;
        order(thalweg::Access::write);
        return first != nullptr;
    }
};

/// A turn that ends lets others begin, or ends them: it happens where an exception would end the process.
void turns_end() {
    for (int n = 0; n < allocations; n++) {
        Turns turns;
        for (const auto access : {thalweg::Access::read, thalweg::Access::read, thalweg::Access::write}) turns.order(access);
        left = n;
        turns.first.reset();
        left = -1;
        holds(turns.goes_on());
    }
}

/// A call that there is no memory for does not come to its turn, and is in nobody's way.
void turns_are_waited_for() {
    bool failed_once = false;
    for (int n = 0; n < allocations; n++) {
        Turns turns;
        turns.order(thalweg::Access::read);
        left = n;
        try {
            turns.order(thalweg::Access::write);
        } catch (const std::bad_alloc&) {
            failed_once = true;
        }
        left = -1;
        holds(turns.goes_on());
    }
    holds(failed_once);
}

/// A request that there is no memory to hand out ends, and its caller hears of that.
void requests_are_handed_out() {
    const Path path("memory.sock");
    thalweg::Server server({path}, server_options());
    std::thread serving([&server] {
        while (!server.is_stopped()) {
            left = 0;
            try {
                server.turn(Wait::block(), [](thalweg::Incoming request) { request.reply->end(Frame{1}); });
            } catch (const std::bad_alloc&) {
            }
            left = -1;
        }
    });
    thalweg::Client client(path, client_options());
    const Fault fault = fault_of([&] {
        client.with({.deadline = std::chrono::seconds(60)});
        client.receive(client.send(Frame{1}));
    });
    holds(fault == Fault::abandoned);
    server.stopper().stop();
    serving.join();
}

} // namespace

void memory() {
    turns_end();
    turns_are_waited_for();
    requests_are_handed_out();
}

} // namespace tests
