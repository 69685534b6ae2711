// The face's tests: each check counted, every access watched when built with ECHO_SANITIZE.

#include "support.hpp"

int main() {
    try {
        tests::calls();
        tests::meetings();
        tests::memory();
        tests::serving();
        tests::spawning();
        tests::remote();
    } catch (const std::exception& error) {
        tests::failed++;
        std::cerr << "nobody caught: " << error.what() << '\n';
    }
    std::cout << "face-cpp: " << tests::passed << " passed, " << tests::failed << " failed\n";
    return tests::failed == 0 ? 0 : 1;
}
