// Lines for tests and benchmarks of orders: equal stages, and random ones.
#pragma once

#include <vector>

#include "adapt/line.h"
#include "base/random.h"

namespace tenuto {

// What random lines are like.
struct LineKind {
  int32_t stages = 2, micros = 2;
  bool rooms = false;  // no: room for all
};

// The kinds over which gaps to the bound are told: from 3 stages to 16, room for all or little
// room.
const std::vector<LineKind>& line_kinds();

// Kinds small enough that the best order can be proved, with room for all or little room.
const std::vector<LineKind>& tiny_kinds(bool rooms);

// A random line: stages of different times (a third of the lines with one stage that is 1.1 to 1.6
// times as slow), one to three links slow by 5 to 60 ms where ops take 10 to 20, the way back
// another delay, half of the lines with messages that occupy their links; rooms of 1 to 2.5
// micro-batches times the number of stages, a weight gradient put off taking 0.2 to 1 of a
// micro-batch.
Line random_line(Random& random, const LineKind& kind);

// A line of equal stages, all ops taking `op`, messages no time.
Line equal_line(int32_t stages, int32_t micros, Duration op);

// Sets the delay between a stage and the next, both ways.
void delay_link(Line& line, int32_t stage, Duration delay);

// Gives every stage room for `micros` micro-batches, weight gradients put off taking half of one.
void give_room(Line& line, int32_t micros);

}  // namespace tenuto
