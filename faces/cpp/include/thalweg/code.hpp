// The C interface's codes, as exceptions.
#include "runtime.hpp"

#ifndef THALWEG_CODE_HPP
#define THALWEG_CODE_HPP

#include "service.hpp"

#include <thalweg.h>

#include <chrono>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thalweg::inline THALWEG_RUNTIME_NAMESPACE {

/// Throws Error when a function of the C interface has answered with a fault.
inline void check(std::uint16_t code) {
    if (code != THALWEG_OK) throw Error(Fault(code), thalweg_error_detail());
}

/// A string as C takes it, lent. One with a NUL in it would end there, and mean something else: throws Error.
inline const char* c_string(const std::string& text) {
    if (text.find('\0') == std::string::npos) return text.c_str();
    throw Error(Fault::bad_argument, "a NUL is in \"" + text.substr(0, text.find('\0')) + "...\": C would end the text there");
}

/// A time as C takes it; less than nothing is nothing.
constexpr std::uint64_t c_milliseconds(std::chrono::milliseconds time) {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

/// What was thrown by calls that are all made, whichever of them throws: it comes out afterwards, one by one.
class Exceptions {
public:
    /// Makes a call. Whether it threw nothing.
    template <class F> bool keep(F&& act) {
        try {
            std::forward<F>(act)();
            return true;
        } catch (...) {
            put(std::current_exception());
            return false;
        }
    }
    /// Takes over what others keep, behind its own.
    void take(Exceptions&& others) {
        if (others.first_) put(std::exchange(others.first_, nullptr));
        for (auto& thrown : others.rest_) put(std::move(thrown));
        others.rest_.clear();
    }
    /// Throws the first of those that are left, if one is.
    void rethrow() {
        if (!first_) return;
        const std::exception_ptr thrown = std::exchange(first_, nullptr);
        if (!rest_.empty()) {
            first_ = std::move(rest_.front());
            rest_.erase(rest_.begin());
        }
        std::rethrow_exception(thrown);
    }

private:
    void put(std::exception_ptr thrown) noexcept {
        if (!first_) {
            first_ = std::move(thrown);
            return;
        }
        try {
            rest_.push_back(std::move(thrown));
        } catch (...) {
            // Without memory for another, the first of them has to do.
        }
    }

    std::exception_ptr first_;
    std::vector<std::exception_ptr> rest_;
};

/// How long a turn may wait: not at all, so long, or as long as it takes.
class Wait {
public:
    static constexpr Wait poll() { return Wait(0); }
    static constexpr Wait block() { return Wait(-1); }
    /// Rounded up, so that a short wait is one. More than the milliseconds of 64 bits is as long as it takes.
    template <class R, class P> static constexpr Wait within(std::chrono::duration<R, P> time) {
        constexpr auto most = static_cast<double>(std::numeric_limits<std::int64_t>::max());
        const double approximate = std::chrono::duration<double, std::milli>(time).count();
        if (approximate >= most) return block();
        // What is no number is not waited for.
        if (!(approximate > 0)) return poll();
        return Wait(static_cast<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(time).count()));
    }
    [[nodiscard]] constexpr std::int64_t ms() const { return ms_; }

private:
    explicit constexpr Wait(std::int64_t ms) : ms_(ms) {}
    std::int64_t ms_;
};

} // namespace thalweg

#endif
