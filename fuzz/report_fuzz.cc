// A worker's report as it comes over the network, from a malicious or broken worker that knows the
// token: it is read, given twice to a run under way, and followed by reports of all workers that
// they have done a step.
#include <memory>

#include "base/text.h"
#include "control/decide.h"
#include "plan/make_plan.h"
#include "protocol/wire.h"
#include "target.h"

using namespace tenuto;

namespace {

constexpr int32_t kStages = 2, kPipelines = 2, kWorkers = kStages * kPipelines;

Rules rules_of_run() {
  Shape shape;
  shape.stages = shape.layers = kStages;
  shape.pipelines = kPipelines;
  shape.micros = 2;
  shape.order = "1f1b";
  auto plan = make_plan(shape);
  CHECK(plan.ok(), "a small plan");
  Rules rules;
  rules.steps = 10;
  rules.checkpoint_every = 2;
  rules.micro_count = 4;
  rules.evaluation_count = 2;
  rules.stages = plan.value().stages;
  rules.plan = std::make_shared<const Plan>(std::move(plan).value());
  rules.model.layers.resize(kStages);
  rules.cluster = uniform_cluster(kWorkers, {});
  rules.treatments.slow_links = rules.treatments.slow_workers = Treatment::Adapt;
  rules.survive = rules.chooses_update = true;
  rules.directory = "run";
  rules.start_limit = rules.silence_limit = rules.explain_limit = std::chrono::minutes(1);
  rules.stop_limit = rules.salvage_limit = std::chrono::minutes(1);
  return rules;
}

// The report of a correct worker at `version`.
Report report_of(int32_t worker, int64_t version) {
  Report report{.worker = {worker}, .sequence = version + 1, .epoch = 1, .phase = Phase::Running};
  report.version = report.seen = version;
  report.address = "127.0.0.1:7000";
  report.connected = true;
  for (int64_t step = 0; step < version; ++step) {
    StepSummary summary{.step = step, .start_ns = 1000, .finish_ns = 2000};
    summary.losses = {{{worker}, 1.5}};
    report.steps.push_back(summary);
  }
  return report;
}

// A run in its first step.
const State& run_under_way() {
  static const State kState = [] {
    State state = begin(rules_of_run(), {});
    for (int32_t worker = 0; worker < kWorkers; ++worker) {
      state = decide(state, {{}, report_of(worker, 0)}).state;
    }
    CHECK(state.situation == Situation::Running, "all are there");
    return state;
  }();
  return kState;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  wire::Report message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const Report report = from_wire(message);
  const std::string said = to_wire(report).SerializeAsString();
  wire::Report again;
  CHECK(again.ParseFromString(said), "what was written is not read");
  CHECK(to_wire(from_wire(again)).SerializeAsString() == said, "another report comes back");
  // The coordinator refuses reports with other numbers.
  if (report.worker.value < 0 || report.worker.value >= kWorkers) return 0;
  State state = run_under_way();
  const auto hear = [&](decltype(Input::what) what) {
    const Decision decision = decide(state, {std::chrono::seconds(1), std::move(what)});
    CHECK(decision.state.epoch >= state.epoch, "an epoch is taken back");
    CHECK(decision.state.committed >= state.committed, "a commit is taken back");
    CHECK(decision.state.committed <= 1, "a step is committed that nobody else has done");
    state = decision.state;
  };
  hear(report);
  hear(report);
  for (int32_t worker = 0; worker < kWorkers; ++worker) hear(report_of(worker, 1));
  hear(Tick{});
  (void)to_json(facts_of(state));
  return 0;
}
