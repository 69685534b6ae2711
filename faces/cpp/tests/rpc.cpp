// A client of JSON-RPC, before a server that answers every call with its own parameters, and says no to "Refuse".

#include "support.hpp"

#include <thalweg/rpc.hpp>

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <iomanip>
#include <set>
#include <sstream>

namespace tests {
namespace {

class Door {
public:
    /// Answers a body, the first, second … that comes; nothing is an empty answer.
    using Says = std::function<std::string(const std::string& body, int number)>;

    explicit Door(Says says = [](const std::string& body, int) { return answer(body); })
        : listener_(socket(AF_INET, SOCK_STREAM, 0)), says_(std::move(says)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        holds(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener_, 8) == 0);
        holds(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port_ = ntohs(address.sin_port);
        url_ = "http://127.0.0.1:" + std::to_string(port_) + "/rpc/door";
        thread_ = std::thread([this] { serve(); });
    }
    /// Once every client is gone.
    ~Door() {
        shutdown(listener_, SHUT_RDWR);
        thread_.join();
        close(listener_);
    }
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;
    [[nodiscard]] const std::string& url() const { return url_; }
    [[nodiscard]] int port() const { return port_; }
    [[nodiscard]] int asked() const { return asked_; }
    /// Closes the connection instead.
    static constexpr const char* closes = "closes";

    static std::string id_of(const std::string& call) {
        const auto id = call.find("\"id\":");
        return id == std::string::npos ? std::string() : std::to_string(std::stoull(call.substr(id + 5)));
    }

private:
    void serve() {
        for (int peer = accept(listener_, nullptr, nullptr); peer >= 0; peer = accept(listener_, nullptr, nullptr)) {
            std::string came;
            char chunk[4096];
            for (ssize_t count = 0; (count = recv(peer, chunk, sizeof(chunk), 0)) > 0;) {
                came.append(chunk, static_cast<std::size_t>(count));
                const auto head = came.find("\r\n\r\n");
                if (head == std::string::npos) continue;
                const auto length = std::stoul(came.substr(came.find("Content-Length:") + 15));
                if (came.size() < head + 4 + length) continue;
                const std::string text = says_(came.substr(head + 4, length), ++asked_);
                came.clear();
                if (text == closes) break;
                const auto said = text.empty() ? "HTTP/1.1 204 No Content\r\n\r\n"
                                               : "HTTP/1.1 200 OK\r\nContent-Length: " +
                                                     std::to_string(text.size()) + "\r\n\r\n" + text;
                send(peer, said.data(), said.size(), MSG_NOSIGNAL);
            }
            close(peer);
        }
    }

    static std::string answer(const std::string& body) {
        if (body.front() != '[') return one(body);
        std::string all = "[";
        for (std::size_t at = 1; at < body.size();) {
            const auto end = body.find("},{", at);
            all += (at > 1 ? "," : "") + one(body.substr(at, end == std::string::npos ? end : end + 1 - at));
            at = end == std::string::npos ? body.size() : end + 2;
        }
        return all + "]";
    }

    static std::string one(const std::string& call) {
        const auto number = id_of(call);
        if (number.empty()) return {};
        const auto params = call.find("\"params\":");
        const auto given = params == std::string::npos
                               ? "null"
                               : call.substr(params + 9, call.find(']', params) + 1 - (params + 9));
        const bool refused = call.find("\"Refuse\"") != std::string::npos;
        const auto outcome =
            refused ? R"("error":{"code":-32000,"message":"no","data":{"fault":"refused"}})"
                    : "\"result\":" + given;
        return "{\"jsonrpc\":\"2.0\"," + outcome + ",\"id\":" + number + "}";
    }

    int listener_;
    Says says_;
    std::atomic<int> asked_ = 0;
    int port_ = 0;
    std::string url_;
    std::thread thread_;
};

void waiting() {
    const Door door;
    thalweg::RpcClient client(door.url());
    holds(client.call("Same", "[1,\"two\"]") == "[1,\"two\"]");
    client.notify("Same", "[3]");
    const std::string cut(std::string_view("[1]\0,2]", 7));
    holds(fault_of([&] { client.call("Same", cut); }) == Fault::bad_argument);
    holds(fault_of([&] { client.call(cut); }) == Fault::bad_argument);
    holds(fault_of([&] { client.target(door.url() + cut); }) == Fault::bad_argument);
    holds(fault_of([&] { thalweg::RpcClient(door.url() + cut); }) == Fault::bad_argument);
    const auto answers = client.batch({{"Same", "[4]"}, {"Refuse", ""}, {"Same", "[5]"}});
    holds(answers.size() == 3 && answers[0].json == "[4]" && answers[2].json == "[5]");
    holds(answers[1].is_error && answers[1].code == -32000 && answers[1].fault == Fault::refused);
    try {
        client.call("Refuse");
        holds(false);
    } catch (const thalweg::RpcError& error) {
        holds(std::string_view(error.what()) == "no" &&
              error.answer().json.find(R"({"fault":"refused"})") != std::string::npos);
    }
    holds(fault_of([&] { client.call("Same", "7"); }) == Fault::bad_argument);
    holds(client.statistics().opened == 1 && client.statistics().reused == 3);
}

void of_a_schema() {
    const Door door([](const std::string& body, int) {
        return R"({"jsonrpc":"2.0","result":{"schema":")" + std::string(64, '0') + R"("},"id":)" + Door::id_of(body) + "}";
    });
    thalweg::RpcClient client(door.url());
    std::array<std::uint8_t, 32> hash{};
    client.expect_schema(hash);
    hash[0] = 1;
    holds(fault_of([&] { client.expect_schema(hash); }) == Fault::schema_mismatch);
}

void by_turns() {
    const Door door;
    std::vector<std::string> came;
    Fault ended{};
    {
        thalweg::RpcClient client(door.url());
        for (const char* params : {"[1]", "[2]"}) {
            client.begin({{"Same", params}}, [&](std::vector<thalweg::RpcAnswer> answers, const thalweg::Error* why) {
                holds(why == nullptr && answers.size() == 1);
                came.push_back(answers.front().json);
            }, {});
            // One connection at a time is all that this server takes.
            client.turn(Wait::poll());
            pollfd ready{.fd = client.descriptor(), .events = POLLIN, .revents = 0};
            while (came.empty() || came.back() != params) {
                poll(&ready, 1, -1);
                client.turn(Wait::poll());
            }
        }
        const auto cancelled = client.begin({{"Same", "[3]"}}, [](auto, auto) { holds(false); });
        client.cancel(cancelled);
        client.begin({{"Same", "[4]"}}, [&](auto, const thalweg::Error* why) { ended = why->fault(); });
    }
    holds(came == std::vector<std::string>{"[1]", "[2]"});
    holds(ended == Fault::closed);
}

/// Who hears of a client's end may use it, to no avail, and throw.
void told_of_the_end() {
    const Door door;
    auto client = std::make_unique<thalweg::RpcClient>(door.url());
    auto& calls = *client;
    std::uint64_t first = 0, second = 0;
    int heard = 0;
    const auto listener = [&](auto, const thalweg::Error* why) {
        holds(why != nullptr && why->fault() == Fault::closed);
        heard++;
        holds(fault_of([&] { calls.begin({{"Same", "[2]"}}, [](auto, auto) { holds(false); }); }) == Fault::closed);
        holds(fault_of([&] { calls.call("Same"); }) == Fault::closed);
        calls.cancel(first);
        calls.cancel(second);
        throw *why;
    };
    first = client->begin({{"Same", "[1]"}}, listener);
    second = client->begin({{"Same", "[1]"}}, listener);
    client.reset();
    // Whichever was told first has cancelled the other.
    holds(heard == 1);
}

/// Of two that are told in one turn both throw: each is told, before what the first threw comes out, and then the other's.
void listeners_that_throw() {
    const int nobody = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    // Bound, and not listened on: connections are refused at once.
    holds(bind(nobody, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    holds(getsockname(nobody, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    thalweg::RpcClient client("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/rpc/nobody");
    int heard = 0;
    int thrown = 0;
    for (int n = 0; n < 2; n++) {
        client.begin({{"Any", ""}}, [&](auto, const thalweg::Error* why) {
            heard++;
            throw *why;
        });
    }
    pollfd ready{.fd = client.descriptor(), .events = POLLIN, .revents = 0};
    for (int turns = 0; heard < 2; turns++) {
        holds(turns == 0 || poll(&ready, 1, 60'000) == 1);
        thrown += fault_of([&] { client.turn(Wait::poll()); }) == Fault::no_server ? 1 : 0;
    }
    while (fault_of([&] { client.turn(Wait::poll()); }) == Fault::no_server) thrown++;
    holds(thrown == 2);
    close(nobody);
}

std::string right(const std::string& id) { return R"({"jsonrpc":"2.0","result":"right","id":)" + id + "}"; }

/// An answer with another id is not taken, and its connection closed.
void other_ids() {
    const Door door([](const std::string& body, int number) {
        const auto id = Door::id_of(body);
        const std::string ids[] = {"99", "null", "\"" + id + "\"", id + ".0", id};
        return right(ids[number - 1]);
    });
    thalweg::RpcClient client(door.url());
    for (unsigned closed = 1; closed < 5; closed++) {
        holds(fault_of([&] { client.call("Any"); }) == Fault::bad_answer);
        holds(client.statistics().closed == closed);
    }
    holds(client.call("Any") == "\"right\"");
}

/// Where a kept connection ends, only what may be repeated is repeated, and once.
void repeated() {
    const Door door([](const std::string& body, int number) {
        return number == 1 || number == 3 || number == 5 ? right(Door::id_of(body)) : Door::closes;
    });
    thalweg::RpcClient client(door.url());
    thalweg_rpc_ask again{};
    again.idempotent = true;
    holds(client.call("Pay") == "\"right\"");
    holds(fault_of([&] { client.call("Pay"); }) == Fault::disconnected);
    holds(door.asked() == 2 && client.statistics().retried == 0);
    holds(client.call("Pay") == "\"right\"");
    holds(client.call("Look", "", again) == "\"right\"");
    holds(door.asked() == 5 && client.statistics().retried == 1);
    holds(fault_of([&] { client.call("Look", "", again); }) == Fault::disconnected);
    holds(door.asked() == 7 && client.statistics().retried == 2);
}

/// Of a call whose request has left, a deadline that passes says nothing of what became of it.
void in_time() {
    std::promise<void> given_up;
    const Door door([&](const std::string& body, int number) {
        // However late the caller gets to it: no answer is there by then.
        if (number == 2) given_up.get_future().wait();
        return right(Door::id_of(body));
    });
    thalweg::RpcClient client(door.url());
    // The connection is there, so the deadline is not one of connecting.
    holds(client.call("Any") == "\"right\"");
    thalweg_rpc_ask soon{};
    soon.deadline_ms = 2'000;
    holds(fault_of([&] { client.call("Any", "", soon); }) == Fault::deadline_exceeded);
    holds(client.statistics().connections == 0);
    given_up.set_value();
}

/// The connections at a port that wait until its address may be used again.
std::set<std::string> waiting_at(int port) {
    std::ostringstream mark;
    mark << ':' << std::uppercase << std::hex << std::setw(4) << std::setfill('0') << port << ' ';
    std::set<std::string> found;
    std::ifstream table("/proc/net/tcp");
    for (std::string line; std::getline(table, line);) {
        std::string place, local, remote, state;
        std::istringstream(line) >> place >> local >> remote >> state;
        // 06 is TIME_WAIT.
        if (line.find(mark.str()) != std::string::npos && state == "06") found.insert(local + ' ' + remote);
    }
    return found;
}

/// A thousand connections leave no address that cannot be used again.
void nothing_left() {
    const Door door([](const std::string& body, int) { return right(Door::id_of(body)); });
    // The port may be one that somebody else had a moment ago, whose clients left some.
    const auto before = waiting_at(door.port());
    thalweg::RpcOptions options;
    options.idle_max = 0;
    thalweg::RpcClient client(door.url(), options);
    for (int number = 0; number < 1'000; number++) holds(client.call("Any") == "\"right\"");
    holds(client.statistics().opened == 1'000 && client.statistics().closed == 1'000);
    const auto after = waiting_at(door.port());
    holds(std::includes(before.begin(), before.end(), after.begin(), after.end()));
}

} // namespace

void remote() {
    waiting();
    of_a_schema();
    by_turns();
    told_of_the_end();
    listeners_that_throw();
    other_ids();
    repeated();
    in_time();
    nothing_left();
}

} // namespace tests
