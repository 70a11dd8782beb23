#include "bench/virtual_all_reduce.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "collective/slice.h"
#include "runtime/reduction.h"

namespace tenuto {
namespace {

size_t at(int32_t place) { return static_cast<size_t>(place); }

// A whole number for each member and place, so that sums are exact in any order.
float number_of(size_t member, size_t place) {
  return static_cast<float>((member * 31 + place * 7) % 64);
}

class VirtualRun {
 public:
  explicit VirtualRun(const VirtualCall& call)
      : call_(call),
        collective_(sliced(call.procedure->collective, call.slices)),
        members_(collective_.members.size()) {
    const size_t count = static_cast<size_t>(call.real.count) / sizeof(float);
    for (size_t i = 0; i < members_.size(); ++i) {
      members_[i].own.resize(count);
      members_[i].total.resize(count);
      for (size_t e = 0; e < count; ++e) members_[i].own[e] = number_of(i, e);
      place_of_[collective_.members[i]] = static_cast<int32_t>(i);
    }
  }

  Duration finish() {
    Duration now{};
    for (;;) {
      arrive(now);
      while (start_one(now)) {
      }
      const std::optional<Duration> next = next_event(now);
      if (!next) break;
      now = *next;
      end_all(now);
    }
    Duration last{};
    for (size_t i = 0; i < members_.size(); ++i) {
      const Member& it = members_[i];
      CHECK(it.reduction && it.reduction->done(), cat("member ", i, " stands still"));
      last = std::max(last, it.reduction->done_at());
      for (size_t e = 0; e < it.total.size(); ++e) {
        float sum = 0;
        for (size_t m = 0; m < members_.size(); ++m) sum += number_of(m, e);
        CHECK(it.total[e] == sum, cat("member ", i, " has a wrong sum at ", e));
      }
    }
    return last;
  }

 private:
  // The name of a message.
  using Key = std::tuple<int32_t, int32_t, int32_t, int32_t>;  // from, to, round, chunk
  struct Transfer {
    int32_t from = 0, to = 0;
    ReductionCall send, receive;
    Duration end{};
  };
  struct Member {
    std::vector<float> own, total;
    std::unique_ptr<Reduction> reduction;
    std::deque<ReductionCall> sends;  // in the order in which the reduction issued them
    bool sending = false, receiving = false;
  };

  void arrive(Duration now) {
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& it = members_[i];
      if (it.reduction || call_.arrivals[i] > now) continue;
      ReductionSettings settings;
      settings.sends_at_once = call_.sends_at_once;
      settings.receives_at_once = 1;  // as in the price, whose ports take messages in order
      it.reduction = std::make_unique<Reduction>(
          collective_, collective_.members[i], settings,
          ReductionTensor{std::as_bytes(std::span(it.own)),
                          std::as_writable_bytes(std::span(it.total)), now});
      take_calls(static_cast<int32_t>(i));
    }
  }

  void take_calls(int32_t member) {
    Member& it = members_[at(member)];
    for (const ReductionCall& call : it.reduction->startable()) {
      const int32_t peer = place_of_.at(call.peer);
      if (call.send) {
        it.sends.push_back(call);
      } else {
        posted_[{peer, member, call.round, call.chunk.value}] = call;
      }
    }
  }

  // Starts the next message that can start: it is first at its sender's free port, and its receive
  // is posted at a free port.
  bool start_one(Duration now) {
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& it = members_[i];
      if (it.sending || it.sends.empty()) continue;
      const ReductionCall send = it.sends.front();
      const auto from = static_cast<int32_t>(i);
      const int32_t to = place_of_.at(send.peer);
      const auto receive = posted_.find({from, to, send.round, send.chunk.value});
      if (receive == posted_.end() || members_[at(to)].receiving) continue;
      const auto part = static_cast<int64_t>(send.source.size());
      const Duration length = closed_form(1, part, call_.real.count, call_.size, call_.link);
      under_way_.push_back({from, to, send, receive->second, now + length});
      posted_.erase(receive);
      it.sends.pop_front();
      it.sending = members_[at(to)].receiving = true;
      return true;
    }
    return false;
  }

  std::optional<Duration> next_event(Duration now) const {
    std::optional<Duration> next;
    const auto consider = [&](Duration moment) {
      if (!next || moment < *next) next = moment;
    };
    for (const Transfer& it : under_way_) consider(it.end);
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!members_[i].reduction && call_.arrivals[i] > now) consider(call_.arrivals[i]);
    }
    return next;
  }

  void end_all(Duration now) {
    std::vector<Transfer> ended;
    std::erase_if(under_way_, [&](const Transfer& it) {
      if (it.end != now) return false;
      ended.push_back(it);
      return true;
    });
    for (const Transfer& it : ended) {
      std::copy(it.send.source.begin(), it.send.source.end(), it.receive.target.begin());
      members_[at(it.from)].sending = members_[at(it.to)].receiving = false;
    }
    for (const Transfer& it : ended) {
      members_[at(it.from)].reduction->finish(it.send.index, now);
      take_calls(it.from);
      members_[at(it.to)].reduction->finish(it.receive.index, now);
      take_calls(it.to);
    }
  }

  const VirtualCall& call_;
  const Collective collective_;
  std::vector<Member> members_;
  std::map<WorkerId, int32_t> place_of_;
  std::map<Key, ReductionCall> posted_;
  std::vector<Transfer> under_way_;
};

}  // namespace

Duration virtual_finish(const VirtualCall& call) { return VirtualRun(call).finish(); }

}  // namespace tenuto
