// What `tenuto status` tells of slow workers.
#include "run/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "control/play.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

Json worker_in(const State& state, size_t worker) {
  return Json::parse(status_text(state))["workers"][worker];
}

TEST(Status, NamesTheCauseOfASlowWorkerAndItsHost) {
  Play play;
  play.connect();
  MonitorState monitor = *play.state.planning.monitor;
  Verdict verdict;
  verdict.kind = VerdictKind::SlowWorker;
  verdict.from = {2};
  StepLoad load{9, 2e6, 1e6, 0, {.step = Duration(4'000'000), .run_delay = Duration(1'000'000)}};
  load.processor.run_delay_is = load.processor.pressure_is = Figure::Known;
  monitor.loads[{2}].add(load);
  monitor.loads[{2}].judge(verdict);
  verdict.from = {3};
  monitor.loads[{3}].judge(verdict);  // its kernel has told nothing yet
  play.state.planning.present = std::make_shared<const Plan>();
  play.state.planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
  const Json named = worker_in(play.state, 2);
  EXPECT_EQ(named["host"], "127.0.0.1");
  EXPECT_EQ(named["cause"], "cpu");
  EXPECT_EQ(
      named["reason"],
      "other processes take the processors of its host 127.0.0.1: it waited for one in 25 % of "
      "its steps' time (pressure 0 %)");
  for (const size_t other : {size_t{0}, size_t{1}, size_t{3}}) {
    EXPECT_FALSE(worker_in(play.state, other).contains("cause")) << other;
  }
}

}  // namespace
}  // namespace tenuto
