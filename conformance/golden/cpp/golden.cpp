// The generated C++ against the golden frames; `crates/codegen/tests/golden.rs` says what is judged and why.
// Arguments: the directory of frames, and the file that takes what became of each frame.

#include "echo_client.hpp"
#include "echo_server.hpp"

#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <thread>

namespace {

namespace fs = std::filesystem;
using thalweg::Frame;
using thalweg::FrameView;

int passed = 0;
int failed = 0;

struct Broken : std::logic_error {
    using std::logic_error::logic_error;
};

void holds(bool what, const std::string& says) {
    if (!what) throw Broken(says);
}

void check(const std::string& name, const std::function<void()>& judge) {
    try {
        judge();
        passed++;
    } catch (const std::exception& error) {
        failed++;
        std::cerr << "  FAILED: " << name << ": " << error.what() << '\n';
    }
}

template <class E> void throws(const std::string& says, const std::function<void()>& act) {
    try {
        act();
    } catch (const E&) {
        return;
    }
    throw Broken(says);
}

std::map<std::string, Frame> frames(const fs::path& directory) {
    std::map<std::string, Frame> found;
    for (const auto& entry : fs::directory_iterator(directory)) {
        if (entry.path().extension() != ".bin") continue;
        std::ifstream file(entry.path(), std::ios::binary);
        found[entry.path().stem().string()] = Frame(std::istreambuf_iterator<char>(file), {});
    }
    return found;
}

Frame again(FrameView given) {
    // On a heap of its own, so that a sanitizer sees a byte too far.
    const Frame frame(given.begin(), given.end());
    Frame out;
    if (!frame.empty() && frame[0] == 0x91) echo::encode_request(echo::decode_request(frame), out);
    else echo::encode_response(echo::decode_response(frame), out);
    return out;
}

std::string hex(FrameView frame) {
    std::string text;
    for (const std::uint8_t byte : frame) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

struct Random {
    std::uint32_t state = 0x7ea19e65;
    std::size_t below(std::size_t bound) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        return state % bound;
    }
};

Frame mutate(Random& random, const std::vector<Frame>& all) {
    Frame frame = all[random.below(all.size())];
    const std::size_t edits = random.below(2) + 1;
    for (std::size_t n = 0; n < edits; n++) {
        const std::size_t what = random.below(8);
        const std::size_t at = random.below(frame.size());
        const auto byte = static_cast<std::uint8_t>(random.below(256));
        const auto place = frame.begin() + static_cast<std::ptrdiff_t>(at);
        if (what == 0) frame.erase(place);
        else if (what == 1) frame.insert(place, byte);
        else if (what == 2) *place = byte;
        else *place = static_cast<std::uint8_t>(*place ^ (1U << (byte & 7U)));
    }
    return frame;
}

void outcome(FrameView frame, std::ostream& out) {
    try {
        const Frame back = again(frame);
        holds(again(back) == back, hex(frame));
        out << hex(back) << '\n';
    } catch (const thalweg::DecodeError& error) {
        out << "- " << error.place << ' ' << error.at << '\n';
    }
}

void mutations(const std::map<std::string, Frame>& golden, const std::map<std::string, Frame>& refused,
               const fs::path& outcomes) {
    std::vector<Frame> all;
    for (const auto& [name, frame] : golden) all.push_back(frame);
    std::ofstream file(outcomes);
    for (const auto& [name, frame] : refused) outcome(frame, file);
    Random random;
    for (int n = 0; n < 10'000; n++) outcome(mutate(random, all), file);
}

void values(std::map<std::string, Frame>& golden) {
    const echo::EchoNumbersResponse numbers{
        .tiny = 127,
        .small = 128,
        .medium = 256,
        .large = 65'536,
        .signed_tiny = std::numeric_limits<std::int8_t>::min(),
        .signed_small = std::numeric_limits<std::int16_t>::min(),
        .signed_medium = std::numeric_limits<std::int32_t>::min(),
        .signed_large = std::numeric_limits<std::int64_t>::min(),
        .single = -1.5F,
        .precise = -3.141592653589793,
    };
    Frame out;
    thalweg::response_frame(numbers, out);
    holds(out == golden["echo_numbers_min"], hex(out));
    Frame frame = golden["echo_places_request"];
    const auto view = std::get<echo::EchoPlacesView>(echo::decode_request(frame));
    const echo::EchoPlaces places = thalweg::own(view);
    // What is owned stays when the frame goes.
    std::fill(frame.begin(), frame.end(), std::uint8_t{0});
    holds(places.places.at(0).moods.at("tuesday") == echo::Mood::in_a_hurry, "moods");
    holds(places.places.at(0).inner->values.at(0) == thalweg::Bytes{7}, "values");
    holds(places.grid[1][0] == std::numeric_limits<std::int16_t>::min() && !places.grid[0][1], "grid");
    holds(places.counts.at("\U00010000") == 256, "counts");
    holds(places.named->at("b").at(1) == thalweg::Bytes{255}, "named");
    out.clear();
    thalweg::request_frame(places, out);
    holds(out == golden["echo_places_request"], hex(out));
}

/// Text that nobody could read does not leave, wherever it stands.
void misfits(std::map<std::string, Frame>& golden) {
    const auto refused = [](const auto& request, const std::string& place) {
        try {
            Frame out;
            thalweg::request_frame(request, out);
        } catch (const thalweg::EncodeError& wrong) {
            return holds(wrong.place == place, wrong.what());
        }
        throw Broken(place + " was taken");
    };
    const std::vector<std::string> broken{"\xff", "caf\xe9", "\xed\xa0\x80", "\xc3"};
    for (const std::string& text : broken) {
        refused(echo::EchoFail{.reason = text}, "EchoFail.reason");
        refused(echo::EchoFailView{.reason = text}, "EchoFail.reason");
        echo::EchoPlaces places = thalweg::own(std::get<echo::EchoPlacesView>(echo::decode_request(golden["echo_places_request"])));
        places.counts.emplace(text, 1);
        refused(places, "EchoPlaces.counts");
        // By the type that declares the field, however deep it stands; behind a value that is a struct, by the outer field.
        echo::EchoPlaces deep;
        deep.places.resize(2);
        deep.places[1].name = text;
        refused(deep, "Place.name");
        deep.places[1].name = "";
        deep.places[1].moods.emplace(text, echo::Mood::calm);
        refused(deep, "Place.moods");
        // Behind a value that is a struct, too.
        const std::map<std::string, echo::Inner> named{{"a", {}}, {text, {}}};
        try {
            Frame out;
            thalweg::Writer(out).field("named", named, "Several.named");
            throw Broken("a key was taken");
        } catch (const thalweg::EncodeError& wrong) {
            holds(wrong.place == "Several.named", wrong.what());
        }
    }
}

class Service : public echo::EchoHandler {
public:
    void bytes(echo::EchoBytesView request, thalweg::Responder<echo::EchoBytesResponse> responder) override {
        responder.ok(echo::EchoBytesResponseView{.data = request.data});
    }
    void fields(echo::EchoFieldsView, thalweg::Responder<echo::EchoFieldsResponse>) override {}
    void nested(echo::EchoNestedView request, thalweg::Responder<echo::EchoNestedResponse> responder) override {
        // From another thread, as a handler with a pool would.
        std::thread([owned = thalweg::own(request), responder = std::move(responder)]() mutable {
            responder.ok(echo::EchoNestedResponse{.inner = std::move(owned.inner)});
        }).join();
    }
    void aliases(echo::EchoAliasesView, thalweg::Responder<echo::EchoAliasesResponse>) override { throw 7; }
    void blobs(echo::EchoBlobsView, thalweg::Responder<echo::EchoBlobsResponse> responder) override {
        responder.error("refused by hand");
    }
    void fail(echo::EchoFailView request, thalweg::Responder<echo::EchoFailResponse>) override {
        throw std::runtime_error(std::string(request.reason));
    }
    void numbers(echo::EchoNumbersView, thalweg::Responder<echo::EchoNumbersResponse>) override {
        throw std::runtime_error("caf\xc3\xa9, caf\xe9, \xed\xa0\x80");
    }
    void places(echo::EchoPlacesView, thalweg::Responder<echo::EchoPlacesResponse> responder) override {
        echo::EchoPlacesResponse response{};
        response.counts.emplace("caf\xe9", 1);
        responder.ok(response);
    }
    void count(
        echo::EchoCountView request, thalweg::Responder<echo::EchoCountResponse, echo::EchoCountItem> responder
    ) override {
        std::uint32_t count = 0;
        for (std::uint32_t value = request.first; value <= request.last; value++) {
            if (responder.item(echo::EchoCountItem{.value = value}) == thalweg::Flow::gone) break;
            count++;
        }
        responder.ok(echo::EchoCountResponse{.count = count});
    }
    void put(echo::EchoPutView, thalweg::Responder<echo::EchoPutResponse>) override {}
    void peek(echo::EchoPeekView, thalweg::Responder<echo::EchoPeekResponse>) override {}
    void peek_committed(echo::EchoPeekCommittedView, thalweg::Responder<echo::EchoPeekResponse>) override {}
};

using Queue = std::deque<Frame>;

class Sink : public thalweg::Reply {
public:
    explicit Sink(Queue& queue) : queue_(queue) {}
    thalweg::Flow item(FrameView frame) override {
        queue_.emplace_back(frame.begin(), frame.end());
        return queue_.size() < 5 ? thalweg::Flow::go : thalweg::Flow::gone;
    }
    void end(FrameView frame) override { queue_.emplace_back(frame.begin(), frame.end()); }

private:
    Queue& queue_;
};

class Wire : public thalweg::Transport {
public:
    std::uint64_t send(FrameView request) override {
        echo::dispatch_unordered(service_, request, std::make_unique<Sink>(queue_));
        return 1;
    }
    FrameView receive(std::uint64_t) override {
        frame_ = std::move(queue_.front());
        queue_.pop_front();
        return frame_;
    }

private:
    Service service_;
    Queue queue_;
    Frame frame_;
};

std::string refusal(const std::function<void()>& act) {
    try {
        act();
    } catch (const thalweg::Refused& refused) {
        return refused.what();
    }
    return "nothing";
}

void calls() {
    Wire wire;
    echo::EchoClient client(wire);
    holds(client.bytes(echo::EchoBytes{.data = {1, 2}}).data == thalweg::BytesView(Frame{1, 2}), "bytes");
    const echo::EchoNested nested{.inner = {.values = {{3}}, .flag = false}};
    holds(thalweg::own(client.nested(nested)).inner == nested.inner, "nested");
    holds(refusal([&] { client.fail(echo::EchoFail{.reason = "because"}); }) == "because", "thrown");
    holds(refusal([&] { client.blobs(echo::EchoBlobs{}); }) == "refused by hand", "by hand");
    holds(refusal([&] { client.fields(echo::EchoFields{}); }) == "the handler gave no answer", "silence");
    holds(refusal([&] { client.aliases(echo::EchoAliases{}); }).starts_with("the handler threw"), "an int");
    const std::string readable = "caf\u00e9, caf\ufffd, \ufffd\ufffd\ufffd";
    holds(refusal([&] { client.numbers(echo::EchoNumbers{}); }) == readable, "words that are no UTF-8");
    const std::string wrong = "EchoPlacesResponse.counts: a string that is not UTF-8";
    holds(refusal([&] { client.places(echo::EchoPlaces{}); }) == wrong, "an answer that nobody could read");
    throws<thalweg::EncodeError>("taken", [&] { client.fail(echo::EchoFail{.reason = "caf\xe9"}); });
    const Frame answer = thalweg::own(thalweg::BytesView(wire.receive(wire.send(Frame{1, 2, 3}))));
    holds(std::holds_alternative<echo::EchoErrorResponseView>(echo::decode_response(answer)), "nonsense");
}

void streams() {
    Wire wire;
    echo::EchoClient client(wire);
    std::vector<std::uint32_t> taken;
    const auto take = [&](const echo::EchoCountItem& item) { taken.push_back(item.value); };
    holds(client.count(echo::EchoCount{.first = 7, .last = 9}, take).count == 3, "count");
    holds(taken == std::vector<std::uint32_t>{7, 8, 9}, "items");
    holds(client.count(echo::EchoCount{.first = 0, .last = 0xffffffff}, take).count == 4, "the reader went away");
}

void order() {
    const auto [access, fork] = echo::access_of(echo::EchoPutView{.fork = "main", .value = {}});
    holds(access == thalweg::Access::write, "access");
    holds(std::get<thalweg::BytesView>(fork).size() == 4, "fork");
    holds(echo::access_of(echo::EchoFailView{}).first == thalweg::Access::unordered, "unordered");
}

/// A reply that nobody may wait for.
struct Left : thalweg::Reply {
    bool left;
    explicit Left(bool is_left) : left(is_left) {}
    thalweg::Flow item(FrameView) override { return thalweg::Flow::gone; }
    void end(FrameView) override {}
    bool cancelled() override { return left; }
};

void turns() {
    std::deque<thalweg::Forks::Job> jobs;
    thalweg::Forks forks([&](thalweg::Forks::Job job) { jobs.push_back(std::move(job)); });
    std::vector<int> ran;
    std::unique_ptr<thalweg::Reply> first;
    const auto write = [&](int number, bool left) {
        const auto later = [&ran, number] { return [&ran, number](std::unique_ptr<thalweg::Reply>) { ran.push_back(number); }; };
        const auto now = [&first](std::unique_ptr<thalweg::Reply> reply) { first = std::move(reply); };
        forks.order({thalweg::Access::write, std::uint64_t(1)}, std::make_unique<Left>(left), now, later);
    };
    write(0, false);
    for (int number = 1; number <= 3; number++) write(number, number == 2);
    holds(first != nullptr && jobs.empty(), "one at a time");
    for (first.reset(); !jobs.empty(); jobs.pop_front()) jobs.front()();
    holds(ran == std::vector<int>{1, 3}, "a call that nobody waits for was begun");
}

/// What lies behind a message is no field's fault.
void behind(std::map<std::string, Frame> golden) {
    for (auto& [name, frame] : golden) {
        frame.push_back(0xc0);
        try {
            again(frame);
            holds(false, name + " was taken");
        } catch (const thalweg::DecodeError& error) {
            holds(error.place == "frame", name + ": " + error.what());
        }
    }
}

Frame bytes(std::string_view text) { return Frame(text.begin(), text.end()); }

/// What is wrong is placed by its name on the wire, and where it begins.
void placed() {
    using namespace std::string_literals;
    const auto refused = [](const std::string& frame, std::string_view place, std::size_t at) {
        try {
            again(bytes(frame));
        } catch (const thalweg::DecodeError& error) {
            return holds(error.place == place && error.at == at, error.what());
        }
        throw Broken(frame + " was taken");
    };
    refused("\x91\x92\xab" "EchoAliases\x80", "EchoAliases.sequenceNumber", 15);
    refused("\x91\x92\xab" "EchoAliases\x81\xae" "sequenceNumber\xc0", "EchoAliases.sequenceNumber", 30);
    const std::string head = "\x91\x92\xaa" "EchoPlaces\x82\xa6places\x91\x83\xa4name\xa0";
    // An enum's word, by its field and where it begins; text, where that begins; a key, where it comes again.
    refused(head + "\xa5moods\x81\xa1" "a\xa4glad", "Place.moods", 38);
    refused(head + "\xa5moods\x81\xa2" "a\xff\xa4" "calm", "Place.moods", 37);
    refused(head + "\xa5moods\x82\xa1" "a\xa4" "calm\xa1" "a\xa4" "calm", "Place.moods", 43);
    // The struct, behind a field that holds another.
    refused(head + "\xa5inner\x81\xa6values\x90\x07", "Place", 44);
    // A map's key, behind a value that is a struct.
    const Frame frame = bytes("\x82\xa1" "a\x81\xa6values\x90\x07          "s);
    thalweg::Reader reader(frame);
    try {
        thalweg::Codec<std::map<std::string_view, echo::InnerView>>::read(reader);
    } catch (const thalweg::DecodeError& error) {
        return holds(error.place == "frame" && error.at == 12, error.what());
    }
    throw Broken("a key that is a number was taken");
}

} // namespace

int main(int count, char** arguments) {
    if (count != 3) return 2;
    const fs::path directory = arguments[1];
    std::map<std::string, Frame> golden = frames(directory);
    for (const auto& [name, frame] : golden) {
        check(name, [&] { holds(again(frame) == frame, hex(again(frame))); });
        check("every prefix of " + name, [&] {
            for (std::size_t length = 0; length < frame.size(); length++) {
                throws<thalweg::DecodeError>("taken", [&] { again(FrameView(frame).first(length)); });
            }
        });
    }
    for (const auto& [name, frame] : frames(directory / "accepted")) {
        check(name, [&] { holds(again(frame) == golden.at(name.substr(0, name.find('.'))), hex(again(frame))); });
    }
    for (const auto& [name, frame] : frames(directory / "refused")) {
        check("refused " + name, [&] { throws<thalweg::DecodeError>("taken", [&] { again(frame); }); });
    }
    check("mutations", [&] { mutations(golden, frames(directory / "refused"), arguments[2]); });
    check("values are what the frames say", [&] { values(golden); });
    check("text that is not UTF-8 is not written", [&] { misfits(golden); });
    check("what is wrong is placed by its name on the wire", placed);
    check("bytes behind a message are the frame's", [&] { behind(golden); });
    check("calls are answered", calls);
    check("streams bring items and then their end", streams);
    check("requests say how they are ordered", order);
    check("calls of one fork begin in turn, but for those that nobody waits for", turns);
    std::cout << "golden-cpp: " << passed << " passed, " << failed << " failed\n";
    return failed == 0 ? 0 : 1;
}
