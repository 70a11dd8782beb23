// What `tenuto simulate` prices: a plan, a model and a cluster, made from its flags. A part of
// simulate.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapt/adapt.h"
#include "adapt/layout/problem.h"
#include "adapt/report/worker_memory.h"
#include "app/iterations.h"
#include "app/simulate.h"
#include "base/result.h"
#include "ir/plan.h"
#include "remedy/rehearse.h"
#include "sim/price.h"
#include "sim/timeline.h"
#include "world/cluster.h"
#include "world/fault.h"
#include "world/model.h"

namespace tenuto {

// What a job's [resilience] lets its run do: reorder ops, give micro-batches to other workers, and
// move layers.
struct AllowedRemedies {
  bool order = false, routes = false, layers = false;
};

// A rehearsal of a job's run, with a lower bound on it.
struct RehearsedJob {
  Rehearsed run;
  std::vector<Duration> bounds;  // on a step of each part of `run`: over all orders and over all
                                 // routes among the live holders of the part's stages; where layers
                                 // have moved, over all orders alone
  double bound_ms = 0;           // on all steps: each bound as often as its part has steps
};

// What is to be priced.
struct SimulationCase {
  Plan plan;
  Model model;
  Cluster cluster;
  bool update = false;
  std::string reason;
  bool routed = false;  // the search could choose which worker runs which micro-batch
  std::vector<StageMove> moves{};
  std::string send = "offloaded";
  std::vector<Fault> faults;  // injected, on top of the cluster
  Seats seats{1};
  std::vector<Stretch> stretches{};           // of the iterations of a job, if they are several,
                                              // or if there are faults
  std::optional<AllowedRemedies> remedies{};  // of a job
  std::optional<RehearsedJob> rehearsed{};    // the iterations with what the run would do
  std::optional<LayoutSettings> kept{};  // with the layers of a file: what devices keep of them
  std::vector<WorkerMemory> memory{};    // of workers whose memory and layers are known
};

// The case that the flags describe. Where they leave the order or the all-reduces open, it has the
// best that were found.
//
// Errors: Invalid/Call  wrong flags or an unreadable file
//         others        the plan is refused, or as the search says
Result<SimulationCase> case_of(const SimulateOptions& options, Watch& watch);

// How a step of the case is priced.
PriceOptions price_options_of(const SimulateOptions& options, const SimulationCase& it);

// How steps of the case are priced that follow each other. Unless a flag says otherwise, those of a
// job as its run takes them (options_of_run).
PriceOptions stretch_options_of(const SimulateOptions& options, const SimulationCase& it);

// The price of a step; if the search could choose the routing, with a lower bound that holds for
// every routing.
Result<Timeline> priced(const SimulateOptions& options, const SimulationCase& it);

}  // namespace tenuto
