// A coroutine that returns a T: what `co_await`s Pendings has to be one. It starts when it is awaited or run, and goes on
// on the thread that drives the transport.
#include "runtime.hpp"

#ifndef THALWEG_TASK_HPP
#define THALWEG_TASK_HPP

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// Work that may wait. Destroyed before it has ended, it ends where it waits.
template <class T = void> class Task;

namespace tasks {

/// What every task has: the coroutine that goes on after it, and what it threw.
struct Promise {
    struct Last {
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <class P> std::coroutine_handle<> await_suspend(std::coroutine_handle<P> ended) noexcept {
            const std::coroutine_handle<> next = ended.promise().continuation;
            return next ? next : std::noop_coroutine();
        }
        void await_resume() const noexcept {}
    };

    std::suspend_always initial_suspend() noexcept { return {}; }
    Last final_suspend() noexcept { return {}; }
    void unhandled_exception() noexcept { thrown = std::current_exception(); }

    std::coroutine_handle<> continuation;
    std::exception_ptr thrown;
};

template <class T> struct Returned : Promise {
    template <class U> void return_value(U&& with) { value.emplace(std::forward<U>(with)); }
    T result() {
        if (thrown) std::rethrow_exception(thrown);
        return std::move(*value);
    }
    std::optional<T> value;
};

template <> struct Returned<void> : Promise {
    void return_void() noexcept {}
    void result() const {
        if (thrown) std::rethrow_exception(thrown);
    }
};

} // namespace tasks

template <class T> class [[nodiscard]] Task {
public:
    struct promise_type : tasks::Returned<T> {
        Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    };

    Task(Task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    Task& operator=(Task&&) = delete;
    ~Task() {
        if (coroutine_) coroutine_.destroy();
    }

    /// Runs it until it waits for something. Once.
    void start() { coroutine_.resume(); }
    [[nodiscard]] bool done() const { return coroutine_.done(); }
    /// What it returned, once it is done; throws what it threw.
    T result() { return coroutine_.promise().result(); }

    [[nodiscard]] bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiting) noexcept {
        coroutine_.promise().continuation = waiting;
        return coroutine_;
    }
    T await_resume() { return result(); }

private:
    explicit Task(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
    std::coroutine_handle<promise_type> coroutine_;
};

} // namespace thalweg

#endif
