// A thread that does what it is told, in order.
#ifndef ECHO_DESK_HPP
#define ECHO_DESK_HPP

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

class Desk {
public:
    Desk() : thread_([this](const std::stop_token& stopped) { work(stopped); }) {}

    void post(std::function<void()> act) {
        const std::scoped_lock lock(mutex_);
        acts_.push_back(std::move(act));
        posted_.notify_one();
    }

private:
    void work(const std::stop_token& stopped) {
        for (std::unique_lock lock(mutex_); posted_.wait(lock, stopped, [this] { return !acts_.empty(); });) {
            const std::function<void()> act = std::move(acts_.front());
            acts_.pop_front();
            lock.unlock();
            act();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable_any posted_;
    std::deque<std::function<void()>> acts_;
    /// Last: it is joined before what it uses goes.
    std::jthread thread_;
};

#endif
