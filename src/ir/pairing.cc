#include "ir/pairing.h"

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "ir/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// One end of a message. Sorted, the two ends of a message stand side by side.
struct End {
  WorkerId from, to;
  Value value;
  bool receives = false;
  int32_t number = 0;

  auto message() const { return std::tie(from, to, value); }
  bool operator<(const End& other) const {
    return std::tie(from, to, value, receives, number) <
           std::tie(other.from, other.to, other.value, other.receives, other.number);
  }
};

std::vector<End> ends_of(const Schedule& schedule, const Pairing& pairing) {
  std::vector<End> ends;
  for (size_t worker = 0; worker < schedule.lists.size(); ++worker) {
    const WorkerId self{static_cast<int32_t>(worker)};
    for (size_t i = 0; i < schedule.lists[worker].size(); ++i) {
      const Op& op = schedule.lists[worker][i];
      const int32_t number = pairing.number(self, static_cast<int32_t>(i));
      if (op.kind == OpKind::Send) ends.push_back({self, op.peer, moved_value(op), false, number});
      if (op.kind == OpKind::Recv) ends.push_back({op.peer, self, moved_value(op), true, number});
    }
  }
  std::sort(ends.begin(), ends.end());
  return ends;
}

Error fault(const Schedule& schedule, const Pairing& pairing, const End& end,
            const std::string& what) {
  const WorkerId worker = pairing.worker_of(end.number);
  const int32_t index = pairing.index_of(end.number);
  const Op& op = schedule.lists[at(worker.value)][at(index)];
  return {Code::Invalid, Reach::Job,
          cat("worker ", worker, ", op ", index, " (", to_text(op), "): ", what, "\n",
              table(schedule, {{worker, index}}))};
}

}  // namespace

WorkerId Pairing::worker_of(int32_t number) const {
  const auto behind = std::upper_bound(first.begin(), first.end(), number);
  return {static_cast<int32_t>(behind - first.begin()) - 1};
}

Result<Pairing> pair_messages(const Schedule& schedule) {
  Pairing pairing;
  pairing.first.push_back(0);
  for (const auto& list : schedule.lists) {
    pairing.first.push_back(pairing.first.back() + static_cast<int32_t>(list.size()));
  }
  pairing.partner.assign(at(pairing.first.back()), -1);
  const std::vector<End> ends = ends_of(schedule, pairing);
  for (size_t i = 0; i < ends.size();) {
    size_t end = i;
    while (end < ends.size() && ends[end].message() == ends[i].message()) ++end;
    const std::string name = to_text(ends[i].value);
    if (end - i == 1) {
      return fault(schedule, pairing, ends[i],
                   ends[i].receives
                       ? cat("worker ", ends[i].from, " never sends ", name, " to worker ",
                             ends[i].to, ": add the send or drop the receive")
                       : cat("worker ", ends[i].to, " never receives ", name, " from worker ",
                             ends[i].from, ": add the receive or drop the send"));
    }
    if (end - i > 2 || ends[i].receives == ends[i + 1].receives) {
      const bool sends_twice = !ends[i + 1].receives;
      return fault(schedule, pairing, sends_twice ? ends[i + 1] : ends[i + 2 < end ? i + 2 : i + 1],
                   cat(name, " is ", sends_twice ? "sent" : "received", " twice between worker ",
                       ends[i].from, " and worker ", ends[i].to, ": once is enough"));
    }
    pairing.partner[at(ends[i].number)] = ends[i + 1].number;
    pairing.partner[at(ends[i + 1].number)] = ends[i].number;
    i = end;
  }
  return pairing;
}

}  // namespace tenuto
