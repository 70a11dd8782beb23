#include "sync/servers/micros.h"

#include <algorithm>
#include <tuple>

namespace tenuto::servers {

std::vector<MicroRange> deal(std::vector<MicroRange>& returned, Stream& own, ReplicaId replica,
                             Mass mass) {
  std::vector<MicroRange> dealt;
  int64_t missing = mass.micros;
  while (missing > 0 && !returned.empty()) {
    MicroRange& first = returned.front();
    const int64_t taken = std::min(missing, first.end - first.begin);
    dealt.push_back({first.stream, first.begin, first.begin + taken});
    first.begin += taken;
    missing -= taken;
    if (first.begin == first.end) returned.erase(returned.begin());
  }
  if (missing > 0) {
    dealt.push_back({replica, own.fresh, own.fresh + missing});
    own.fresh += missing;
  }
  return dealt;
}

void give_back(std::vector<MicroRange>& returned, const Work& work) {
  returned.insert(returned.end(), work.micros.begin(), work.micros.end());
  std::sort(returned.begin(), returned.end(), [](const MicroRange& left, const MicroRange& right) {
    return std::tie(left.stream, left.begin) < std::tie(right.stream, right.begin);
  });
  std::vector<MicroRange> joined;
  for (const MicroRange& range : returned) {
    if (!joined.empty() && joined.back().stream == range.stream &&
        joined.back().end == range.begin) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  returned = std::move(joined);
}

}  // namespace tenuto::servers
