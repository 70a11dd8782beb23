// Lines for tests and benchmarks of orders: equal stages, and random ones.
#pragma once

#include <vector>

#include "adapt/line.h"
#include "base/random.h"

namespace tenuto {

// The properties of random lines.
struct LineKind {
  int32_t stages = 2, micros = 2;
  bool limited = false;  // no: memory for all
};

// The kinds for which gaps to the bound are reported: 3 to 16 stages, memory for all or little
// memory.
const std::vector<LineKind>& line_kinds();

// Kinds small enough that the best order can be proved, with memory for all or little memory.
const std::vector<LineKind>& tiny_kinds(bool limited);

// A random line. Its stages take different times; in a third of the lines one stage is 1.1 to 1.6
// times as slow. Ops take 10 to 20 ms. One to three links are delayed by 5 to 60 ms, with another
// delay on the way back. In half of the lines messages occupy their links. Memory limits hold 1
// to 2.5 micro-batches times the number of stages; a postponed weight gradient takes 0.2 to 1 of a
// micro-batch.
Line random_line(Random& random, const LineKind& kind);

// A line of equal stages: every op takes `op`, messages take no time.
Line equal_line(int32_t stages, int32_t micros, Duration op);

// Sets the delay between a stage and the next, both ways.
void delay_link(Line& line, int32_t stage, Duration delay);

// Gives every stage memory for `micros` micro-batches; a postponed weight gradient takes half of
// one.
void limit_memory(Line& line, int32_t micros);

}  // namespace tenuto
