// A client's side: how it fails, and that what may serve afterwards does.

#include "support.hpp"

#include <fstream>
#include <future>
#include <iterator>
#include <mutex>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace tests {
namespace {

/// A socket at a path, which nobody listens on.
int bound(const Path& path) {
    const int made = socket(AF_UNIX, SOCK_STREAM, 0);
    holds(bind(made, reinterpret_cast<const sockaddr*>(&path.address()), sizeof(sockaddr_un)) == 0);
    return made;
}

void connecting() {
    auto once = client_options();
    once.connect_within_ms = 0;
    const Path nothing("nothing.sock");
    holds(fault_of([&] { thalweg::Client(nothing, once); }) == Fault::no_server);
    holds(fault_of([&] { thalweg::Client("no-endpoint", once); }) == Fault::bad_argument);
    // The C interface would end it at the NUL, and connect elsewhere.
    const std::string behind(std::string_view("\0.sock", 6));
    holds(fault_of([&] { thalweg::Client(std::string(nothing) + behind, once); }) == Fault::bad_argument);
    holds(fault_of([&] { thalweg::Server({std::string(nothing) + behind}, server_options()); }) == Fault::bad_argument);
    try {
        thalweg::Client(nothing, once);
    } catch (const thalweg::Error& error) {
        holds(error.retry() == thalweg::Retry::safe);
        holds(std::string_view(error.what()).find("nothing.sock") != std::string_view::npos);
    }

    // A path that a dead server left.
    const Path stale("stale.sock");
    close(bound(stale));
    holds(fault_of([&] { thalweg::Client(stale, once); }) == Fault::no_server);

    // A server that takes nobody, before whom as many wait as may.
    const Path crowded("crowded.sock");
    const int listener = bound(crowded);
    holds(listen(listener, 0) == 0);
    const int first = socket(AF_UNIX, SOCK_STREAM, 0);
    holds(connect(first, reinterpret_cast<const sockaddr*>(&crowded.address()), sizeof(sockaddr_un)) == 0);
    auto patient = client_options();
    patient.connect_within_ms = 50;
    holds(fault_of([&] { thalweg::Client(crowded, patient); }) == Fault::connect_timeout);
    close(first);
    close(listener);

    EchoService service;
    const Path path("connecting.sock");
    const Running server(path, to(service));
    auto other = client_options();
    other.schema[0] ^= 1;
    holds(fault_of([&] { thalweg::Client(path, other); }) == Fault::schema_mismatch);
    holds(fault_of([&] { thalweg::Server({path}, server_options()); }) == Fault::address_in_use);
    // Nobody was disturbed.
    thalweg::Client client(path, client_options());
    holds(serves(client));
}

/// Frames that no client would write: each is answered with a fault of its own, and the connection serves on.
void nonsense(const std::string& endpoint) {
    EchoService service;
    const Path path(endpoint);
    const Running server(path, to(service));
    thalweg::Client client(path, client_options());
    const auto answer_to = [&](FrameView frame) {
        return fault_of([&] {
            client.receive(client.send(frame));
        });
    };
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(ECHO_GOLDEN "/refused")) {
        std::ifstream file(entry.path(), std::ios::binary);
        const Frame frame(std::istreambuf_iterator<char>(file), {});
        const Fault fault = answer_to(frame);
        holds(fault == Fault::bad_request || fault == Fault::unknown_command);
        count++;
    }
    holds(count > 20);
    holds(answer_to({}) == Fault::bad_request);
    holds(serves(client));
}

void limits() {
    EchoService service;
    const Path path("limits.sock");
    const Running server(path, to(service));
    auto few = client_options();
    few.in_flight_max = 4;
    few.frame_bytes_max = 1'000;
    thalweg::Client client(path, few);
    echo::EchoAsyncClient calls(client);
    const echo::EchoBytes large{.data = thalweg::Bytes(2'000)};
    holds(fault_of([&] { calls.bytes(large); }) == Fault::frame_too_large);
    const echo::EchoBytes small{.data = {1}};
    std::vector<thalweg::Pending<echo::EchoBytesResponse>> pending;
    for (int n = 0; n < 4; n++) pending.push_back(calls.bytes(small));
    holds(fault_of([&] { calls.bytes(small); }) == Fault::overloaded);
    for (auto& call : pending) holds(client.wait(std::move(call)).data == small.data);
    holds(serves(client));
}

/// More than the server takes: refused and skipped.
void too_large_for_the_server() {
    EchoService service;
    const Path path("large.sock");
    auto options = server_options();
    options.frame_bytes_max = 1'000;
    const Running server(path, to(service), options);
    thalweg::Client client(path, client_options());
    echo::EchoClient waiting(client);
    const echo::EchoBytes large{.data = thalweg::Bytes(100'000)};
    holds(fault_of([&] { waiting.bytes(large); }) == Fault::frame_too_large);
    holds(serves(client));
}

void endings() {
    EchoService service;
    const Path path("endings.sock");
    auto client = [&] {
        const Running server(path, to(service));
        auto connected = std::make_unique<thalweg::Client>(path, client_options());
        holds(serves(*connected));
        return connected;
    }();
    // The server is gone.
    const Fault fault = fault_of([&] { serves(*client); });
    holds(fault == Fault::not_sent || fault == Fault::disconnected || fault == Fault::draining);

    const Running again(path, to(service));
    std::optional<thalweg::Pending<echo::EchoBytesResponse>> left;
    {
        thalweg::Client second(path, client_options());
        left.emplace(echo::EchoAsyncClient(second).bytes(echo::EchoBytes{}));
        holds(!left->ready());
    }
    holds(left->ready() && fault_of([&] { left->take(); }) == Fault::closed);
}

thalweg::Task<int> throws() {
    throw std::runtime_error("out of a task");
    co_return 1;
}

thalweg::Task<std::string> awaits() {
    try {
        co_await throws();
    } catch (const std::runtime_error& error) {
        co_return error.what();
    }
    co_return "nothing";
}

void waiting_in_other_ways() {
    EchoService service;
    const Path path("waiting.shm");
    const Running server(path, to(service));
    thalweg::Client client(path, client_options());
    holds(client.is_shared() && client.is_connected());
    holds(client.run(awaits()) == "out of a task");

    // A callback, in a foreign loop.
    echo::EchoAsyncClient calls(client);
    int heard = 0;
    const echo::EchoBytes request{.data = {7}};
    pollfd watched{.fd = client.descriptor(), .events = POLLIN, .revents = 0};
    for (int n = 0; n < 3; n++) {
        calls.bytes(request).then([&](auto& pending) { heard += pending.take().data == request.data ? 1 : 0; });
    }
    client.turn(Wait::poll());
    while (heard < 3 && poll(&watched, 1, 5'000) == 1) client.turn(Wait::poll());
    holds(heard == 3 && client.in_flight() == 0);

    // A stream that somebody left: the next call is not disturbed.
    echo::EchoClient one_by_one(client);
    try {
        one_by_one.count(echo::EchoCount{.first = 0, .last = 0xffff'ffff}, [](const auto& item) {
            if (item.value == 200) throw std::runtime_error("enough");
        });
        holds(false);
    } catch (const std::runtime_error& error) {
        holds(error.what() == std::string("enough"));
    }
    holds(serves(client));
}

/// Answers nothing until it is told to, and everything at once from then on.
class Silent : public EchoService {
public:
    using Bytes = thalweg::Responder<echo::EchoBytesResponse>;
    using Count = thalweg::Responder<echo::EchoCountResponse, echo::EchoCountItem>;

    void bytes(echo::EchoBytesView, Bytes responder) override {
        keep([responder = std::make_shared<Bytes>(std::move(responder))] { responder->ok(echo::EchoBytesResponse{}); });
    }
    void count(echo::EchoCountView, Count responder) override {
        keep([responder = std::make_shared<Count>(std::move(responder))] { responder->ok(echo::EchoCountResponse{}); });
    }
    void answer() {
        const std::lock_guard lock(mutex_);
        speaks_ = true;
        for (const auto& act : std::exchange(kept_, {})) act();
    }
    [[nodiscard]] std::size_t asked() {
        const std::lock_guard lock(mutex_);
        return kept_.size();
    }

private:
    void keep(std::function<void()> act) {
        const std::lock_guard lock(mutex_);
        if (speaks_) act();
        else kept_.push_back(std::move(act));
    }

    std::mutex mutex_;
    bool speaks_ = false;
    std::vector<std::function<void()>> kept_;
};

const echo::EchoBytes one_byte{.data = {1}};
const echo::EchoCount ten{.first = 0, .last = 9};

thalweg::Task<> waits_for_an_answer(echo::EchoAsyncClient& calls, bool& went_on) {
    auto pending = calls.bytes(one_byte);
    co_await pending;
    went_on = true;
}

thalweg::Task<> waits_for_an_item(echo::EchoAsyncClient& calls, bool& went_on) {
    auto items = calls.count(ten);
    co_await items.next();
    went_on = true;
}

/// Waits for what belongs to somebody else.
thalweg::Task<> waits_for_lent(thalweg::Pending<echo::EchoBytesResponse>& pending, bool& went_on) {
    co_await pending;
    went_on = true;
}

/// Coroutines that are destroyed where they wait are not gone on with: not by an answer, and not by the client's end.
void destroyed_tasks() {
    Silent service;
    const Path path("destroyed.sock");
    const Running server(path, to(service));
    bool went_on = false;
    {
        thalweg::Client client(path, client_options());
        echo::EchoAsyncClient calls(client);
        auto lent = calls.bytes(one_byte);
        // What it asks for leaves before it is destroyed: a request that nobody wants any more does not.
        const auto start = [&client](thalweg::Task<> task) {
            task.start();
            client.flush();
        };
        start(waits_for_an_answer(calls, went_on));
        start(waits_for_an_item(calls, went_on));
        start(waits_for_lent(lent, went_on));
        while (service.asked() < 3) std::this_thread::yield();
        service.answer();
        while (client.in_flight() > 0) client.turn(Wait::block());
        holds(lent.ready());

        start(waits_for_an_answer(calls, went_on));
        start(waits_for_an_item(calls, went_on));
    }
    holds(!went_on);
}

/// Leaves a stream when a call fails, and calls again.
thalweg::Task<Fault> insists(echo::EchoAsyncClient& calls, std::optional<Fault>& again) {
    auto pending = calls.bytes(one_byte);
    try {
        auto items = calls.count(ten);
        co_await pending;
    } catch (const thalweg::Error& error) {
        again = fault_of([&] { calls.bytes(one_byte); });
        co_return error.fault();
    }
    co_return Fault{};
}

/// Who hears of a client's end may use it, to no avail.
void told_of_the_end() {
    Silent service;
    const Path path("told.sock");
    const Running server(path, to(service));
    auto client = std::make_unique<thalweg::Client>(path, client_options());
    echo::EchoAsyncClient calls(*client);
    std::optional<Fault> again;
    auto task = insists(calls, again);
    task.start();
    int heard = 0;
    for (int n = 0; n < 2; n++) {
        calls.bytes(one_byte).then([&](auto& pending) {
            heard++;
            pending.cancel();
            pending.take();
        });
    }
    client.reset();
    service.answer();
    holds(task.done() && task.result() == Fault::closed && again == Fault::closed);
    holds(heard == 2);
}

/// Of what came in one turn, two callbacks throw: everybody is told all the same, because no descriptor tells of what is
/// left, what was thrown first comes out of the turn, and what was thrown then out of the next one.
void callbacks_that_throw() {
    Frame answer;
    thalweg::response_frame(echo::EchoBytesResponse{.data = one_byte.data}, answer);
    int asked = 0;
    const Path path("callbacks.sock");
    // What leaves together is answered in one turn, and those answers leave together.
    const Running server(path, [&](thalweg::Incoming request) {
        if (++asked % 3 == 2) request.reply->fail(Fault::overloaded, echo::error_tag, "no");
        else request.reply->end(answer);
    });
    thalweg::Client client(path, client_options());
    echo::EchoAsyncClient calls(client);
    pollfd watched{.fd = client.descriptor(), .events = POLLIN, .revents = 0};
    for (int round = 0; round < 2; round++) {
        std::string heard;
        std::string thrown;
        calls.bytes(one_byte).then([&](auto& pending) {
            heard += pending.take().data == one_byte.data ? "first," : "";
            throw std::runtime_error("out of a callback");
        });
        // What was asked and has no answer: its callback is told why, and throws it on.
        calls.bytes(one_byte).then([&](auto& pending) {
            heard += "second,";
            pending.take();
        });
        calls.bytes(one_byte).then([&](auto& pending) { heard += pending.take().data == one_byte.data ? "third," : ""; });
        for (int turns = 0; heard.size() < std::string_view("first,second,third,").size(); turns++) {
            holds(turns == 0 || poll(&watched, 1, 60'000) == 1);
            try {
                client.turn(Wait::poll());
            } catch (const thalweg::Error& error) {
                thrown += error.fault() == Fault::overloaded ? ", overloaded" : "";
            } catch (const std::runtime_error& error) {
                thrown += error.what();
            }
        }
        holds(heard == "first,second,third," && thrown.starts_with("out of a callback"));
        for (int turns = 0; turns < 2; turns++) {
            try {
                client.turn(Wait::poll());
            } catch (const thalweg::Error& error) {
                thrown += error.fault() == Fault::overloaded ? ", overloaded" : "";
            }
        }
        holds(thrown == "out of a callback, overloaded");
    }
}

/// Sends as many of one item, be it one or not, as there is credit for, and says when nobody waits for more.
class Garbled {
public:
    explicit Garbled(Frame item = {0xc1}) : item_(std::move(item)) {}
    void operator()(thalweg::Incoming request) {
        reply_ = std::move(request.reply);
        // Nobody waits for one more: what changes is that nobody waits for anything.
        while (reply_->item(item_) == thalweg::Flow::go) {}
        reply_->changed([this] { left_.set_value(); });
    }
    /// Waits for that, and ends the call.
    [[nodiscard]] bool is_left() {
        const bool changed = left_.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
        const bool left = changed && reply_->cancelled();
        reply_.reset();
        return left;
    }

private:
    Frame item_;
    std::promise<void> left_;
    std::unique_ptr<thalweg::Reply> reply_;
};

/// A call of which something cannot be read is not left open, whether or not anybody hears of that.
void items_that_are_none(bool takes) {
    Garbled garbled;
    const Path path("garbled.sock");
    const Running server(path, std::ref(garbled));
    thalweg::Client client(path, client_options());
    echo::EchoAsyncClient calls(client);
    client.with({.credit = 1});
    std::optional items(calls.count(ten));
    while (!items->ready()) client.turn(Wait::block());
    if (takes) {
        try {
            items->take();
            holds(false);
        } catch (const thalweg::DecodeError&) {
        }
    } else {
        items.reset();
    }
    client.flush();
    holds(garbled.is_left());
}

/// Who waits for a stream's items and leaves makes no other call: the server hears of it all the same.
void left_while_waiting() {
    for (const bool is_read : {true, false}) {
        Frame item;
        if (is_read) thalweg::response_frame(echo::EchoCountItem{.value = 5}, item);
        else item = {0xc1};
        Garbled garbled(item);
        const Path path("left.sock");
        const Running server(path, std::ref(garbled));
        thalweg::Client client(path, client_options());
        echo::EchoClient waiting(client);
        client.with({.credit = 2});
        try {
            waiting.count(ten, [](const auto& came) {
                holds(came.value == 5);
                throw std::runtime_error("enough");
            });
            holds(false);
        } catch (const thalweg::DecodeError&) {
            holds(!is_read);
        } catch (const std::runtime_error& error) {
            holds(is_read && error.what() == std::string("enough"));
        }
        holds(garbled.is_left() && client.in_flight() == 0);
    }
}

/// A call of another kind between the items of a stream that is waited for.
void between_items(const std::string& endpoint, std::uint32_t credit) {
    EchoService service;
    const Path path(endpoint);
    const Running server(path, to(service));
    thalweg::Client client(path, client_options());
    echo::EchoClient waiting(client);
    echo::EchoAsyncClient calls(client);
    std::vector<std::uint32_t> values;
    client.with({.credit = credit});
    const auto end = waiting.count(ten, [&](const auto& item) {
        values.push_back(item.value);
        if (item.value % 3 == 0) holds(client.wait(calls.bytes(one_byte)).data == one_byte.data);
    });
    holds(values == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9} && end.count == 10);

    // Left with some of it kept: the next call is not disturbed.
    try {
        waiting.count(ten, [&](const auto&) {
            client.wait(calls.bytes(one_byte));
            throw std::runtime_error("enough");
        });
        holds(false);
    } catch (const std::runtime_error& error) {
        holds(error.what() == std::string("enough"));
    }
    holds(serves(client));
}

/// No deadline is none, and any other is one.
void deadlines() {
    Silent service;
    const Path path("deadlines.sock");
    const Running server(path, to(service));
    auto options = client_options();
    options.deadline_ms = 60'000;
    thalweg::Client client(path, options);
    echo::EchoAsyncClient calls(client);
    using std::chrono::nanoseconds;
    for (const nanoseconds deadline : {nanoseconds(1), nanoseconds(0), nanoseconds(std::chrono::milliseconds(-50))}) {
        client.with({.deadline = deadline});
        auto pending = calls.bytes(one_byte);
        for (int n = 0; n < 20 && !pending.ready(); n++) client.turn(Wait::within(std::chrono::milliseconds(100)));
        holds(pending.ready() && fault_of([&] { pending.take(); }) == Fault::deadline_exceeded);
    }
    service.answer();
}

void plainly() {
    EchoService service;
    const Path path("plain.sock");
    const Running server(path, to(service));
    auto plain = client_options();
    plain.plain = true;
    thalweg::Client client(path, plain);
    echo::EchoAsyncClient calls(client);
    std::vector<thalweg::Pending<echo::EchoBytesResponse>> pending;
    for (std::uint8_t n = 0; n < 16; n++) pending.push_back(calls.bytes(echo::EchoBytes{.data = {n}}));
    for (std::uint8_t n = 0; n < 16; n++) holds(client.wait(std::move(pending[n])).data == thalweg::Bytes{n});
    const echo::EchoFail fail{.reason = "no"};
    holds(fault_of([&] { client.wait(calls.fail(fail)); }) == Fault::refused);
    holds(serves(client));
}

void handles_that_are_null() {
    thalweg_event event{};
    holds(thalweg_client_next(nullptr, &event) == THALWEG_BAD_ARGUMENT);
    holds(std::string_view(thalweg_error_detail()).find("null") != std::string_view::npos);
    holds(thalweg_client_open("a.sock", nullptr, nullptr) == THALWEG_BAD_ARGUMENT);
    holds(thalweg_server_turn(nullptr, 0, nullptr) == THALWEG_BAD_ARGUMENT);
    holds(thalweg_server_descriptor(nullptr) == -1);
    holds(thalweg_reply_end(nullptr, nullptr, 0) == THALWEG_BAD_ARGUMENT);
    holds(thalweg_reply_item(nullptr, nullptr, 0) == THALWEG_FLOW_GONE);
    thalweg_client_close(nullptr);
    thalweg_server_close(nullptr);
    thalweg_reply_drop(nullptr);
    thalweg_stopper_free(nullptr);
}

} // namespace

void calls() {
    connecting();
    nonsense("nonsense.sock");
    nonsense("nonsense.shm");
    limits();
    too_large_for_the_server();
    endings();
    waiting_in_other_ways();
    destroyed_tasks();
    told_of_the_end();
    callbacks_that_throw();
    left_while_waiting();
    items_that_are_none(true);
    items_that_are_none(false);
    between_items("between.sock", 0);
    between_items("between.shm", 2);
    deadlines();
    plainly();
    handles_that_are_null();
}

} // namespace tests
