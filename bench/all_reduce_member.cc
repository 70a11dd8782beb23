#include "bench/all_reduce_member.h"

#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/text.h"
#include "runtime/communicator.h"
#include "transport/ucx.h"

namespace tenuto {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);
// Of a message between processes of this machine: it only matters against the time of a slice.
constexpr Duration kAlpha = std::chrono::microseconds(300);

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "all_reduce_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void require(const Status& status) {
  if (!status.ok()) die(status.error().message);
}

// A whole number of each member and place, so that sums are exact in whatever order.
float number_of(int32_t member, size_t place) {
  return static_cast<float>((static_cast<size_t>(member) * 31 + place * 7) % 64);
}

class BenchMember {
 public:
  explicit BenchMember(const MemberPlace& place) : place_(place) {}

  void open() {
    UcxSettings settings;
    settings.device = place_.device;
    settings.listen_host = place_.host;
    settings.sends_end_there = true;
    Hello hello;
    hello.job = hello.token = "bench";
    hello.version = kWireVersion;
    hello.self = {place_.self};
    auto made = make_ucx_transport(settings, hello, mailbox_);
    if (!made.ok()) die(made.error().message);
    wire_ = std::move(made).value();
    std::cout << "address " << wire_->address().text << std::endl;
    std::string line, address;
    std::getline(std::cin, line);
    std::istringstream addresses(line);
    int32_t asked = 0;
    for (int32_t peer = 0; addresses >> address; ++peer) {
      if (peer <= place_.self) continue;
      require(wire_->connect({peer}, {address}, Ticket{1}));
      ++asked;
    }
    for (; asked > 0; --asked) {
      const auto done = mailbox_.wait(kLimit);
      if (!done.ok()) die(done.error().message);
      require(done.value().status);
    }
    std::cout << "ready" << std::endl;
  }

  void serve() {
    std::string line;
    while (std::getline(std::cin, line)) {
      std::istringstream words(line);
      int64_t bytes = 0, repeats = 0, late_us = 0, slice = 0;
      int32_t members = 0, late = -1;
      CallWay way;
      words >> members >> bytes >> repeats >> late_us >> way.algorithm >> way.chunks >> late >>
          slice;
      if (!words) die(cat("expected a request, found '", line, "'"));
      if (place_.self >= members) {
        std::cout << "0" << std::endl;
        continue;
      }
      if (late < 0) late = members - 1;
      if (way.algorithm.starts_with("late")) way.late = {{late}};
      serve(members, bytes, repeats, late == place_.self ? late_us : 0, way, slice);
    }
  }

 private:
  Communicator& group_of(int32_t members, int64_t slice) {
    auto& group = groups_[{members, slice}];
    if (group) return *group;
    CommunicatorSettings settings;
    for (int32_t member = 0; member < members; ++member) settings.members.push_back({member});
    settings.self = {place_.self};
    // The same at all its members, whatever other groups they are in.
    settings.number = members * 64 + std::bit_width(static_cast<uint64_t>(slice));
    settings.slice_bytes = slice;
    settings.sends_at_once = place_.sends;
    settings.receives_at_once = place_.receives;
    if (place_.megabits > 0) settings.link = {kAlpha, payload_rate(place_.megabits)};
    settings.way.algorithm = "ring";
    auto made = Communicator::make({wire_.get(), &mailbox_}, settings);
    if (!made.ok()) die(made.error().message);
    group = std::move(made).value();
    return *group;
  }

  static void run(Communicator& group, std::span<float> values, const CallWay& way) {
    CallRequest request;
    request.own = std::as_bytes(values);
    request.total = std::as_writable_bytes(values);
    request.way = way;
    require(group.run(request));
  }

  void serve(int32_t members, int64_t bytes, int64_t repeats, int64_t late_us, const CallWay& way,
             int64_t slice) {
    Communicator& group = group_of(members, slice);
    const size_t count = static_cast<size_t>(bytes) / sizeof(float);
    values_.resize(count);
    std::string answer;
    for (int64_t i = 0; i < repeats; ++i) {
      for (size_t e = 0; e < count; ++e) values_[e] = number_of(place_.self, e);
      std::array<float, 1> all{};
      CallWay barrier;
      barrier.algorithm = "halving";
      run(group, all, barrier);
      std::this_thread::sleep_for(std::chrono::microseconds(late_us));
      const Duration begun = monotonic_clock().now();
      run(group, values_, way);
      const Duration ended = monotonic_clock().now();
      answer += cat(answer.empty() ? "" : " ", begun.count(), " ", ended.count());
      look(members);
    }
    std::cout << answer << std::endl;
  }

  // A thousand of the sums, spread over all.
  void look(int32_t members) const {
    const size_t step = std::max<size_t>(1, values_.size() / 1000);
    for (size_t e = 0; e < values_.size(); e += step) {
      float sum = 0;
      for (int32_t member = 0; member < members; ++member) sum += number_of(member, e);
      if (values_[e] != sum) die(cat("member ", place_.self, " has a wrong sum at ", e));
    }
  }

  MemberPlace place_;
  QueueMailbox mailbox_;
  std::unique_ptr<UcxTransport> wire_;
  std::map<std::pair<int32_t, int64_t>, std::unique_ptr<Communicator>> groups_;
  std::vector<float> values_;
};

}  // namespace

int run_member(const MemberPlace& place) {
  BenchMember member(place);
  member.open();
  member.serve();
  return 0;
}

}  // namespace tenuto
