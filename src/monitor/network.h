// Joins what the messages of a link show with what the kernels of its two hosts know of the
// network between them.
//
// Messages wait for processes, too: on a busy machine they arrive later although the network is as
// fast as ever. The kernel's figures come from packets and their acknowledgements. So when messages
// take longer, the figures must account for at least half of the growth, by a longer round trip or
// by a lower rate; otherwise it is not the link that is slow. Of the round trip only the part
// counts that does not vary: acknowledgements, too, may wait for a process that reads late, but
// such waits are irregular.
// Where both say the same, two steps are enough to be certain (change.h). The kernel alone changes
// nothing: what it sees may not matter to the messages.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/unit.h"
#include "world/sample.h"

namespace tenuto {

// The medians of a link's figures over some steps.
struct NetworkLevel {
  int32_t readings = 0;  // the steps that had figures; all else is zero if there were none
  Duration round_trip{}, variation{};
  Duration steady{};  // the part of the round trip that does not vary
  // What a MiB takes, to the higher-numbered worker and back; zero = not known, because too little
  // was sent for the network to set the pace.
  std::array<Duration, 2> mebibyte{};
  double repeated = 0;  // packets that were sent again, by step; the mean
};

// The figures of one link in the newest steps, from both of its ends. A value; memory is bounded.
class NetworkHistory {
 public:
  // Adds the figures of one end in `step`. `way`: 0 = the lower-numbered worker's.
  void add(const NetworkSample& sample, size_t way, int64_t step);
  // The level of the steps from `first` on, before `end`.
  //
  // Cost: O(1), as at most 64 steps are kept
  NetworkLevel between(int64_t first, int64_t end) const;
  // The level of the newest eight steps that have figures.
  NetworkLevel newest() const;
  // Steps from one that has figures to the next that has some, on average over those that are kept;
  // 0 with fewer than two.
  double mean_gap() const;
  // Packets that were sent again, in all.
  int64_t repeated() const { return repeated_; }

 private:
  struct Entry {
    int64_t step = 0;
    Duration round_trip{}, variation{};  // of the end where the steady part is shorter
    std::array<Duration, 2> mebibyte{};
    int64_t repeated = 0;
  };
  static NetworkLevel level_of(const std::vector<const Entry*>& entries);
  std::vector<Entry> entries_;  // by step
  int64_t repeated_ = 0;
};

// What the network says of a growth that messages show.
enum class Witness : uint8_t {
  Unknown,    // nothing: there are no figures, or they could mean either
  Unchanged,  // the network is as fast as before
  Slower,     // the network has become slower, too
};

// Judges whether the network has become slower by what messages show: `growth` of the round trip,
// above zero, with messages of `bytes` each way.
Witness judge_growth(const NetworkLevel& before, const NetworkLevel& after, Duration growth,
                     const std::array<double, 2>& bytes);

}  // namespace tenuto
