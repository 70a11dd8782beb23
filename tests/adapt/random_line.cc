#include "adapt/random_line.h"

namespace tenuto {

namespace {

double between(Random& random, double low, double high) {
  return low + (high - low) * random.uniform();
}

void slow_down(Leg& leg, double by) {
  for (Duration* time : {&leg.forward, &leg.backward, &leg.weight}) {
    *time = from_milliseconds(to_milliseconds(*time) * by);
  }
}

}  // namespace

const std::vector<LineKind>& line_kinds() {
  static const std::vector<LineKind> kinds = {{3, 6, false},  {4, 12, false}, {6, 18, false},
                                              {8, 16, false}, {8, 32, false}, {16, 48, false},
                                              {4, 12, true},  {6, 18, true},  {8, 16, true},
                                              {8, 32, true},  {16, 48, true}};
  return kinds;
}

const std::vector<LineKind>& tiny_kinds(bool limited) {
  static const std::vector<LineKind> wide = {{2, 3}, {2, 4}, {2, 5}, {3, 3}, {3, 4}, {4, 3}};
  static const std::vector<LineKind> narrow = {{2, 3, true}, {2, 4, true}, {2, 5, true},
                                               {3, 3, true}, {3, 4, true}, {4, 3, true}};
  return limited ? narrow : wide;
}

Line random_line(Random& random, const LineKind& kind) {
  Line line;
  line.micros = kind.micros;
  line.legs.resize(static_cast<size_t>(kind.stages));
  const auto any = [&](int64_t bound) { return static_cast<size_t>(random.below(bound)); };
  const double forward = between(random, 10, 20) * between(random, 0.8, 1.2);
  const double backward = forward * between(random, 0.9, 1.3);
  const double weight = forward * between(random, 0.6, 1.1);
  for (Leg& leg : line.legs) {
    const double size = between(random, 0.8, 1.2);
    leg.forward = from_milliseconds(forward * size * between(random, 0.95, 1.05));
    leg.backward = from_milliseconds(backward * size * between(random, 0.95, 1.05));
    leg.weight = from_milliseconds(weight * size * between(random, 0.95, 1.05));
  }
  if (random.below(3) == 0) slow_down(line.legs[any(kind.stages)], between(random, 1.1, 1.6));
  for (int64_t slow = 1 + random.below(3); slow > 0; --slow) {
    const size_t link = any(kind.stages - 1);
    const double delay = between(random, 5, 60);
    line.legs[link].down = from_milliseconds(delay);
    line.legs[link + 1].up = from_milliseconds(delay * between(random, 0.3, 1.5));
  }
  if (random.below(2) == 0) {
    for (size_t link = 0; link + 1 < line.legs.size(); ++link) {
      const Duration busy = from_milliseconds(between(random, 0, 5));
      line.legs[link].down_busy = line.legs[link + 1].up_busy = busy;
    }
  }
  if (kind.limited) {
    for (Leg& leg : line.legs) {
      const double most = 1000 * kind.stages * between(random, 1, 2.5);
      leg.memory = {static_cast<int64_t>(most), 1000, 200 + random.below(801)};
    }
  }
  return line;
}

Line equal_line(int32_t stages, int32_t micros, Duration op) {
  Leg leg;
  leg.forward = leg.backward = leg.weight = op;
  return {std::vector<Leg>(static_cast<size_t>(stages), leg), micros};
}

void delay_link(Line& line, int32_t stage, Duration delay) {
  line.legs[static_cast<size_t>(stage)].down = delay;
  line.legs[static_cast<size_t>(stage) + 1].up = delay;
}

void limit_memory(Line& line, int32_t micros) {
  for (Leg& leg : line.legs) leg.memory = {2 * int64_t{micros}, 2, 1};
}

}  // namespace tenuto
