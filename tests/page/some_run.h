// A small run for the tests of the page: three workers, one of them dead, one slow link.
#pragma once

#include <optional>

#include "page/snapshot.h"

namespace tenuto::page {

// The run in step 2 of 10.
inline Snapshot some_run() {
  Snapshot run;
  run.job = "tale";
  run.situation = "running";
  run.step = 2;
  run.steps = 10;
  run.epoch = 3;
  run.saved = 1;
  run.plan = "1f1b";
  run.serial = 4;
  run.in_force = 1;
  run.why = "a link is slow";
  run.treatment = "act";
  run.slow_links = "adapt";
  run.slow_workers = "observe";
  ShownWorker worker;
  worker.worker = 0;
  worker.stages = {0, 1};
  worker.pipeline = 0;
  worker.state = "healthy";
  worker.times = WorkerTimes{1, 0.25, 0.5, 0.125, 0};
  run.workers.push_back(worker);
  worker.worker = 1;
  worker.stages = {};
  worker.pipeline = -1;
  worker.state = "dead";
  worker.reason = "it said \"no\"";
  worker.times.reset();
  run.workers.push_back(worker);
  ShownLink link;
  link.first = 0;
  link.second = 1;
  link.slow = true;
  link.round_trip = 0.5;
  link.rate = {2000, 0};
  run.links.push_back(link);
  ShownAlternative alternative;
  alternative.name = "move layers";
  alternative.step = 0.25;
  alternative.total = 40;
  alternative.chosen = true;
  run.alternatives.push_back(alternative);
  run.compared_in = 1;
  run.cpu_seconds = 0.75;
  run.history.add_event("start", 1, 0, "all are connected");
  run.history.add_event("death", 3, 1, "worker 1 was killed");
  run.history.add_change();
  run.history.add_step({0, 2.5, 0.5});
  run.history.add_step({1, std::nullopt, 0.25});
  run.history.add_validation({1, 2.75, 0.5});
  return run;
}

}  // namespace tenuto::page
