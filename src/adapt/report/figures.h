// Figures as text, for all reports about plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// A line of a report: its subject, in a word or two, and what it says about it.
struct Fact {
  std::string name, text;
};
// Facts as lines: "makespan    3 ms".
std::string lines_of(const std::vector<Fact>& facts);

// A time in nanoseconds as milliseconds.
double milliseconds(double nanoseconds);
// The same as text, with three decimals and without the unit.
std::string ms_text(double nanoseconds);
// "12.5 %"
std::string percent(double share);
// The part divided by the whole; 0 if the whole is 0.
double share_of(double part, double whole);
// "1 stage", "3 stages"
std::string counted(size_t count, const char* what);
// "2.21 GiB"
std::string bytes_text(double bytes);
// "0-3,6": the numbers, given in any order, as ranges. A long text is cut.
std::string ranges_text(std::vector<int32_t> numbers);
// "3-12: block 2 to block 11": the layers of a stage. `names`: of all layers.
std::string layers_text(const std::vector<std::string>& names, const Stage& stage);

// How long a stage or a link is busy during a step, in nanoseconds.
struct Busy {
  bool link = false;
  size_t index = 0;
  double time = 0;
};
// A stage is busy with its micro-batches and its reduction.
double busy_time(const LayoutLoads& loads, const StageLoad& stage);
// A link: the time of both directions with half duplex, else that of the busier direction.
double busy_time(const LayoutLoads& loads, const LinkLoad& link);
// The busiest stage or link. If several are equally busy: the first one, stages before links.
Busy busiest(const LayoutLoads& loads);
// "stage 3", "link 0-1"
std::string name_of(const Busy& busy);

}  // namespace tenuto
