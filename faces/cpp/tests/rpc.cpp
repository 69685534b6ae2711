// A client of JSON-RPC, before a server that answers every call with its own parameters, and says no to "Refuse".

#include "support.hpp"

#include <thalweg/rpc.hpp>

#include <netinet/in.h>
#include <poll.h>

namespace tests {
namespace {

class Door {
public:
    Door() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        holds(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener_, 8) == 0);
        holds(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/rpc/door";
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
                const std::string text = answer(came.substr(head + 4, length));
                came.clear();
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
        const auto id = call.find("\"id\":");
        if (id == std::string::npos) return {};
        const auto number = std::to_string(std::stoull(call.substr(id + 5)));
        const auto params = call.find("\"params\":");
        const auto given = params == std::string::npos
                               ? "null"
                               : call.substr(params + 9, call.find(']', params) + 1 - (params + 9));
        const bool refused = call.find("\"Refuse\"") != std::string::npos;
        const auto outcome =
            refused ? R"("error":{"code":-32000,"message":"no","data":{"fault":"refused","retry":"never"}})"
                    : "\"result\":" + given;
        return "{\"jsonrpc\":\"2.0\"," + outcome + ",\"id\":" + number + "}";
    }

    int listener_;
    std::string url_;
    std::thread thread_;
};

void waiting() {
    const Door door;
    thalweg::RpcClient client(door.url());
    holds(client.call("Same", "[1,\"two\"]") == "[1,\"two\"]");
    client.notify("Same", "[3]");
    const auto answers = client.batch({{"Same", "[4]"}, {"Refuse", ""}, {"Same", "[5]"}});
    holds(answers.size() == 3 && answers[0].json == "[4]" && answers[2].json == "[5]");
    holds(answers[1].is_error && answers[1].code == -32000 && answers[1].fault == Fault::refused);
    try {
        client.call("Refuse");
        holds(false);
    } catch (const thalweg::RpcError& error) {
        holds(std::string_view(error.what()) == "no" && error.answer().json.find("never") != std::string::npos);
    }
    holds(fault_of([&] { client.call("Same", "7"); }) == Fault::bad_argument);
    holds(client.statistics().opened == 1 && client.statistics().reused == 3);
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

} // namespace

void remote() {
    waiting();
    by_turns();
}

} // namespace tests
