// Layouts by other, simpler or published rules, to compare with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapt/layout/block_schedule.h"
#include "adapt/layout/device_order.h"
#include "adapt/layout/problem.h"
#include "base/result.h"

namespace tenuto {

// A layout with its schedule.
struct PricedLayout {
  Layout layout;
  LayoutLoads loads;
  BlockSchedule schedule;
};

// Which rule makes the layout.
enum class Planner : uint8_t {
  Tenuto,        // search_layout()
  MinCut,        // the published program on the min-cut order, best number of stages, best of five
                 // policies (SPP)
  Dapple,        // warm-up, steady part and tail with exposed all-reduces; at most 4 stages
  PipeDream,     // least slowest stage with an all-reduce for every micro-batch
  Gpipe,         // one device a stage, balanced times, all forwards first
  OneFOneB,      // one device a stage, equal numbers of layers, 1F1B
  DataParallel,  // one stage on all devices
  HetPipe,       // virtual workers, each a pipeline over devices of unequal speed
};

// A planner as users see it.
struct PlannerCard {
  Planner planner = Planner::Tenuto;
  std::string name;     // of --planner
  std::string summary;  // two sentences
  std::string source;
};

// One card for each planner.
const std::vector<PlannerCard>& planner_cards();
// The card of a name; Invalid/Call with the nearest name.
Result<PlannerCard> find_planner(const std::string& name);

// The layout that a baseline makes, and its step by its own order of ops.
//
// Requires: not Planner::Tenuto
// Errors:   Infeasible/Job  no layout of this rule fits into memory, with the stage and the bytes
//           missing
Result<PricedLayout> baseline_layout(const LayoutProblem& problem, Planner planner);

// What Planner::MinCut makes of any order of the devices: for each number of stages the layout with
// the least bottleneck that uses all of them; of these the one whose step is shortest by the best
// of five policies. More than 64 devices, or very many layers, are counted in groups; devices that
// do not fill a group are idle then.
//
// Errors: as baseline_layout()
Result<PricedLayout> least_bottleneck_layout(const LayoutProblem& problem, DeviceOrder order);

}  // namespace tenuto
