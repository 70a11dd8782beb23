// What a wire over TCP reads from its sockets. The first byte says which reader gets the rest: that
// of a listener's greeting, of a dialler's, of an introduction, or else a link with calls open; the
// second byte, how the rest is split. Nobody proves anything without the token, no byte is written
// beside the posted buffers, and each call ends at most once.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "target.h"
#include "transport/tcp/greeting.h"
#include "transport/tcp/link.h"

using namespace tenuto;
using namespace tenuto::tcp;

namespace {

// Counts the ends of calls.
class Ends : public Mailbox {
 public:
  void post(Done done) override {
    CHECK(done.ticket != kNoTicket && ++ended_[done.ticket] == 1, "a call ended twice");
    if (!done.status.ok()) CHECK(!done.status.error().message.empty(), "an error without words");
  }
  Result<Done> wait(Duration) override { return invalid("nobody waits here"); }
  size_t count() const { return ended_.size(); }

 private:
  std::map<Ticket, int> ended_;
};

void zero(std::span<std::byte> bytes) { std::fill(bytes.begin(), bytes.end(), std::byte{0}); }

void read_greeting(Greeting greeting, std::span<const std::byte> input, size_t most) {
  while (!input.empty()) {
    const auto landing = greeting.landing();
    CHECK(!landing.empty() && landing.size() <= kLongestGreeting, "a greeting expects nothing");
    const size_t count = std::min({most, landing.size(), input.size()});
    std::memcpy(landing.data(), input.data(), count);
    input = input.subspan(count);
    const Greeting::Step step = greeting.take(count);
    CHECK(step != Greeting::Step::Proven && step != Greeting::Step::Welcomed &&
              step != Greeting::Step::Refused,
          "a stranger has proved that it knows the token");
    if (step != Greeting::Step::More) return;
  }
}

// The peer is one that knows the token and says anything.
void read_messages(std::span<const std::byte> input, size_t most) {
  Ends ends;
  Tally tally;
  const LinkSettings settings{false, 16};
  Link link({0}, {1}, settings, tally, ends);
  std::vector<std::byte> memory(100000);
  uint64_t ticket = 0;
  const std::span<std::byte> all(memory);
  for (const size_t size : {0, 1, 8, 100, 40000}) {
    const Tag tag{0, 0, ++ticket};
    link.recv(tag, all.subspan(50000, size), {}, Ticket{2 * ticket});
    link.send(tag, all.first(size), {}, Ticket{2 * ticket + 1});
  }
  link.opened();
  Status status = ok();
  std::array<std::byte, 512> scratch{};
  for (Duration now{1}; !input.empty() && status.ok() && !link.parted(); ++now) {
    size_t total = 0;
    for (const auto& each : link.gather(now)) total += each.size();
    if (total > 0) link.written(std::min(total, 7 * most), now);
    const auto landing = link.landing();
    const size_t landed = std::min({most, landing.size(), input.size()});
    std::copy_n(input.begin(), landed, landing.begin());
    input = input.subspan(landed);
    const size_t behind = std::min({most, scratch.size(), link.most_behind(), input.size()});
    std::copy_n(input.begin(), behind, scratch.begin());
    input = input.subspan(behind);
    status = link.take(landed, std::span(scratch).first(behind), now);
    link.tick(now);
  }
  if (!status.ok()) expect_sentence(status.error(), "it ");
  if (input.size() % 2 == 0) link.broke();
  link.fail(invalid("the test is over"));
  CHECK(ends.count() == 2 * ticket, "a call has not ended");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  const size_t most = data[1] == 0 ? input.size() : data[1];
  if (data[0] == 'l') {
    read_greeting(Greeting("secret", zero), input, std::max<size_t>(most, 1));
  } else if (data[0] == 'd') {
    read_greeting(Greeting("secret", zero, Introduction{}), input, std::max<size_t>(most, 1));
  } else if (data[0] == 'i') {
    const auto read = read_introduction(input);
    if (!read || read->hello.version != kWireVersion) return 0;
    const std::string again = write_introduction(*read);
    CHECK(again.size() == input.size(), "an introduction is written otherwise than it was read");
  } else {
    read_messages(input, std::max<size_t>(most, 1));
  }
  return 0;
}
