#include "bench/all_reduce_member.h"

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/text.h"
#include "communicator/communicator.h"
#include "transport/process/process_wire.h"

namespace tenuto {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);
// The latency of a message between processes of this machine; it only matters relative to the time
// of a slice.
constexpr Duration kAlpha = std::chrono::microseconds(300);

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "all_reduce_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void require(const Status& status) {
  if (!status.ok()) die(status.error().message);
}

// A whole number for each member and place, so that sums are exact in any order.
float number_of(int32_t member, size_t place) {
  return static_cast<float>((static_cast<size_t>(member) * 31 + place * 7) % 64);
}

// A request: `repeats` times `calls` all-reduces of floats, one after the other.
struct Request {
  int32_t members = 0;
  int64_t bytes = 0, repeats = 0, calls = 0;
  int64_t late_us = 0;  // this member's
  int64_t slice = 0;
  bool survives = false;  // the group survives deaths
  CallWay way;
};

class BenchMember {
 public:
  explicit BenchMember(const MemberPlace& place) : place_(place) {}

  void open() {
    ProcessWireSettings settings;
    settings.choice = wire_choice(place_.wire);
    settings.progress = wire_progress(place_.progress);
    settings.device = place_.device;
    settings.listen_host = place_.host;
    settings.sends_end_there = true;
    Hello hello;
    hello.job = hello.token = "bench";
    hello.version = kWireVersion;
    hello.self = {place_.self};
    auto made = make_process_wire(settings, hello, mailbox_);
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
      Request request;
      int32_t late = -1;
      words >> request.members >> request.bytes >> request.repeats >> request.late_us >>
          request.way.algorithm >> request.way.chunks >> late >> request.slice >> request.calls >>
          request.survives;
      if (!words) die(cat("expected a request, found '", line, "'"));
      if (place_.self >= request.members) {
        std::cout << "0" << std::endl;
        continue;
      }
      if (late < 0) late = request.members - 1;
      if (request.way.algorithm.starts_with("late")) request.way.late = {{late}};
      if (late != place_.self) request.late_us = 0;
      serve(request);
    }
  }

 private:
  Communicator& group_of(int32_t members, int64_t slice, bool survives) {
    auto& group = groups_[{members, slice, survives}];
    if (group) return *group;
    CommunicatorSettings settings;
    for (int32_t member = 0; member < members; ++member) settings.members.push_back({member});
    settings.self = {place_.self};
    // All members of the group get the same number, even if they are in other groups too.
    settings.number =
        2 * (members * 64 + std::bit_width(static_cast<uint64_t>(slice))) + (survives ? 1 : 0);
    settings.survive_deaths = survives;
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

  static void wait_for_all(Communicator& group) {
    std::array<float, 1> one{};
    CallWay barrier;
    barrier.algorithm = "halving";
    run(group, one, barrier);
  }

  void serve(const Request& request) {
    Communicator& group = group_of(request.members, request.slice, request.survives);
    std::vector<float> own(static_cast<size_t>(request.bytes) / sizeof(float));
    for (size_t e = 0; e < own.size(); ++e) own[e] = number_of(place_.self, e);
    std::string answer;
    for (int64_t i = 0; i < request.repeats; ++i) {
      values_ = own;
      wait_for_all(group);
      std::this_thread::sleep_for(std::chrono::microseconds(request.late_us));
      const Duration begun = monotonic_clock().now();
      for (int64_t call = 0; call < request.calls; ++call) run(group, values_, request.way);
      const Duration ended = monotonic_clock().now();
      answer += cat(answer.empty() ? "" : " ", begun.count(), " ", ended.count());
      // A member that ends early must not take processor time from the others.
      wait_for_all(group);
      look(request);
    }
    std::cout << answer << std::endl;
  }

  // Checks a thousand sums, spread over the tensor. Repeated sums may be too large for exact
  // floats, so these are compared with a tolerance.
  void look(const Request& request) const {
    const double again = std::pow(static_cast<double>(request.members), request.calls - 1);
    const double slack = request.calls > 1 ? 1e-6 * static_cast<double>(request.calls) : 0;
    const size_t step = std::max<size_t>(1, values_.size() / 1000);
    for (size_t e = 0; e < values_.size(); e += step) {
      double sum = 0;
      for (int32_t member = 0; member < request.members; ++member) sum += number_of(member, e);
      if (std::abs(values_[e] - sum * again) > slack * sum * again) {
        die(cat("member ", place_.self, " has a wrong sum at ", e));
      }
    }
  }

  MemberPlace place_;
  QueueMailbox mailbox_;
  std::unique_ptr<Transport> wire_;
  std::map<std::tuple<int32_t, int64_t, bool>, std::unique_ptr<Communicator>> groups_;
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
