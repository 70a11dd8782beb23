#include "adapt/mesh_bound.h"

#include <algorithm>
#include <queue>

namespace tenuto {

namespace {

constexpr Duration kNever = Duration::max();

size_t at(int32_t index) { return static_cast<size_t>(index); }

}  // namespace

MeshBound::MeshBound(const Mesh& mesh) : mesh_(mesh) {
  const int32_t depth = mesh.depth();
  std::vector<std::vector<Duration>> up(mesh.stages.size());  // to the end of the micro-batch
  update_ = kNever;
  for (int32_t s = 0; s < depth; ++s) {
    ways_.emplace_back(at(mesh.width(s)));
    up[at(s)].assign(at(mesh.width(s)), kNever);
    for (int32_t j = 0; j < mesh.width(s); ++j) {
      const Holder& own = mesh.holder(s, j);
      Duration head = s == 0 ? Duration{} : kNever;
      if (s == 0) up[0][at(j)] = own.weight;
      for (int32_t i = 0; s > 0 && i < mesh.width(s - 1); ++i) {
        const Holder& before = mesh.holder(s - 1, i);
        const Way& way = mesh.way(s - 1, i, j);
        head = std::min(head, ways_[at(s) - 1][at(i)].head + before.forward + way.there());
        up[at(s)][at(j)] =
            std::min(up[at(s)][at(j)], way.back() + before.backward + up[at(s) - 1][at(i)]);
      }
      ways_[at(s)][at(j)].head = head;
      update_ = std::min(update_, own.update);
    }
  }
  for (int32_t s = depth; s-- > 0;) {
    for (int32_t i = 0; i < mesh.width(s); ++i) {
      Ways& own = ways_[at(s)][at(i)];
      own.around = s + 1 < depth ? kNever : Duration{};
      for (int32_t j = 0; s + 1 < depth && j < mesh.width(s + 1); ++j) {
        const Holder& behind = mesh.holder(s + 1, j);
        const Way& way = mesh.way(s, i, j);
        own.around =
            std::min(own.around, way.there() + behind.forward + ways_[at(s) + 1][at(j)].around +
                                     behind.backward + way.back());
      }
      // If a stage's workers do not start together, the next forward may come from a worker that
      // finished long before.
      if (s > 0 && mesh.pace != Pace::Apart) own.turn = up[at(s)][at(i)];
      if (s > 0 && mesh.pace == Pace::Joint) own.turn += own.head;
      if (mesh.pace != Pace::Barrier) own.head = {};
    }
  }
}

Duration MeshBound::of(int32_t stage, int32_t holder, int32_t micros) const {
  if (micros == 0) return {};
  const Holder& it = mesh_.holder(stage, holder);
  const Ways& ways = ways_[at(stage)][at(holder)];
  const int64_t whole = it.memory.most_whole(micros), late = it.memory.most_late(micros);
  const Duration alone = it.forward + ways.around + it.backward;
  const Duration fill = std::max(Duration{}, ways.around - (whole - 1) * it.forward);
  const Duration drain = std::max(Duration{}, ways.turn - late * it.weight);
  const Duration work = micros * (it.forward + it.backward + it.weight) + fill + drain;
  // A place is free again after the weight gradient. If a micro-batch takes less memory while it
  // waits for its weight gradient, part of the place is free before.
  const Duration freed = it.memory.late == it.memory.whole ? it.weight : Duration{};
  const int64_t turns = (micros + whole - 1) / whole;
  const Duration hold = (turns - 1) * (alone + freed) + alone + std::max(it.weight, ways.turn);
  return ways.head + std::max(work, hold) + update_;
}

int32_t MeshBound::most_within(int32_t stage, int32_t holder, Duration time) const {
  int32_t low = 0, high = mesh_.micros;
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    if (of(stage, holder, middle) <= time) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::vector<int32_t> MeshBound::balanced(int32_t stage) const {
  return balanced(stage, mesh_.width(stage));
}

std::vector<int32_t> MeshBound::balanced(int32_t stage, int32_t holders) const {
  using Next = std::pair<Duration, int32_t>;  // time with one more, holder
  std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
  for (int32_t i = 0; i < holders; ++i) open.emplace(of(stage, i, 1), i);
  std::vector<int32_t> counts(at(holders), 0);
  for (int32_t m = 0; m < mesh_.micros; ++m) {
    const int32_t i = open.top().second;
    open.pop();
    open.emplace(of(stage, i, ++counts[at(i)] + 1), i);
  }
  return counts;
}

Duration MeshBound::least_of(int32_t stage, int32_t holders) const {
  const std::vector<int32_t> counts = balanced(stage, holders);
  Duration longest{};
  for (int32_t i = 0; i < holders; ++i) longest = std::max(longest, of(stage, i, counts[at(i)]));
  return longest;
}

Duration MeshBound::least() const {
  Duration least{};
  for (int32_t s = 0; s < mesh_.depth(); ++s) least = std::max(least, least_of(s, mesh_.width(s)));
  return least;
}

}  // namespace tenuto
