// tenuto simulate and tenuto schedule: figures, refusals, exit codes.
#include "app/simulate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/schedule.h"
#include "app/waiting_line.h"
#include "base/text.h"
#include "ir/text.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

SimulateOptions flags(int32_t stages, int32_t micros, const std::string& order) {
  SimulateOptions options;
  options.stages = stages;
  options.micros = micros;
  options.order = order;
  return options;
}

nlohmann::json simulated(SimulateOptions options) {
  options.json = true;
  std::ostringstream out, errors;
  EXPECT_EQ(run_simulate(options, out, errors), 0) << errors.str();
  return nlohmann::json::parse(out.str());
}

// Refused with `code`: one sentence on stderr, nothing on stdout.
std::string refused(const SimulateOptions& options, int code) {
  std::ostringstream out, errors;
  EXPECT_EQ(run_simulate(options, out, errors), code) << errors.str();
  EXPECT_EQ(out.str(), "");
  return errors.str();
}

// A file of this test's own, removed at its end.
class Scratch {
 public:
  Scratch(const std::string& name, const std::string& text)
      : path_(testing::TempDir() + "tenuto-" + std::to_string(::getpid()) + name) {
    std::ofstream(path_) << text;
  }
  ~Scratch() { std::filesystem::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Simulate, Figures) {
  const auto tree = simulated(flags(4, 12, "zb-h1"));
  EXPECT_EQ(tree["makespan_ms"], 390.0);
  EXPECT_EQ(tree["period_ms"], 390.0);
  EXPECT_EQ(tree["lower_bound_ms"], 390.0);
  EXPECT_EQ(tree["peak_micros"], (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(tree["order"], "zb-h1");
  EXPECT_NEAR(tree["bubble_fraction"].get<double>(), 30.0 / 390, 1e-12);
  for (const char* field : {"plan_ms", "ops", "reason"}) EXPECT_TRUE(tree.contains(field)) << field;
}

TEST(Simulate, SyncModes) {
  SimulateOptions options;
  options.sync.mode = "synchronous";
  options.sync.replicas = 4;
  options.sync.iteration_ms = {100, 100, 100, 190};
  options.sync.apply_ms = 10;
  const auto tree = simulated(options);
  EXPECT_NEAR(tree["gradients_per_second"].get<double>(), 20, 1e-9);
  EXPECT_NEAR(tree["updates_per_second"].get<double>(), 5, 1e-9);
  EXPECT_EQ(tree["mean_age"], 1.5);
  EXPECT_EQ(tree["dropped_fraction"], 0.0);
  options.sync.mode = "backup:4";
  EXPECT_EQ(refused(options, 2),
            "tenuto simulate: sync mode backup:4: expected a count from 1 to 3 with 4 replicas, "
            "found 4\n");
}

TEST(Simulate, LinksAndWorkers) {
  SimulateOptions options = flags(4, 12, "gpipe");
  options.link_ms = 2;
  EXPECT_EQ(simulated(options)["makespan_ms"], 450.0 + 2 * 3 * 2);
  options.slow_links = {"1:20"};
  EXPECT_EQ(simulated(options)["makespan_ms"], 450.0 + 2 * 3 * 2 + 2 * 20);
  options = flags(1, 5, "gpipe");
  options.forward_ms = {1};
  options.backward_input_ms = {2};
  options.backward_weight_ms = {3};
  options.slow_workers = {"0.0:0.5"};
  options.iterations = 3;
  EXPECT_EQ(simulated(options)["makespan_ms"], 60.0);
  EXPECT_EQ(simulated(options)["total_ms"], 180.0);
  options.split_backward = "yes";
  EXPECT_EQ(simulated(options)["makespan_ms"], 60.0);
}

// Workers with several stages: op times are given per worker, and links and workers are counted
// once.
TEST(Simulate, Chunks) {
  SimulateOptions options = flags(4, 8, "interleaved");
  EXPECT_EQ(simulated(options)["makespan_ms"], 8 * 30.0 + 3 * 15.0);
  EXPECT_EQ(simulated(options)["peak_micros"], (std::vector<double>{5.5, 4.5, 3.5, 2.5}));
  options.chunks = 4;
  EXPECT_EQ(simulated(options)["makespan_ms"], 8 * 30.0 + 3 * 7.5);
  options.slow_workers = {"0.2:0.5"};
  EXPECT_GE(simulated(options)["makespan_ms"], 8 * 60.0);
  options.slow_links = {"2:1"};
  EXPECT_EQ(simulated(options)["critical_path"][0]["what"], "worker 2");
  options.slow_links = {"3:1"};
  EXPECT_NE(refused(options, 2).find("3 links, 0 to 2"), std::string::npos);
}

// Each worker begins its next step when its own list is done: not slower than with a barrier, not
// faster than with steps ahead of the norm.
TEST(Simulate, StepsInTurn) {
  SimulateOptions options = flags(4, 12, "zb-h2");
  options.memory = 7;
  const double alone = simulated(options)["makespan_ms"];
  options.optimizer = "in-turn";
  const auto tree = simulated(options);
  EXPECT_EQ(tree["makespan_ms"], alone);
  EXPECT_EQ(tree["optimizer"], "in-turn");
  EXPECT_LE(tree["period_ms"], alone);
  options.optimizer = "staggered";
  const auto staggered = simulated(options);
  EXPECT_GE(tree["period_ms"], staggered["period_ms"]);
  EXPECT_EQ(tree["lower_bound_ms"], staggered["lower_bound_ms"]);
}

TEST(Simulate, BlockingAndStaggered) {
  SimulateOptions options = flags(4, 12, "zb-h2");
  options.slow_links = {"0:20"};
  EXPECT_EQ(simulated(options)["makespan_ms"], 440.0);
  options.send = "blocking";
  EXPECT_GT(simulated(options)["makespan_ms"], 440.0);
  options.optimizer = "staggered";
  EXPECT_NE(refused(options, 2).find("take one"), std::string::npos);
  options.update = "yes";
  EXPECT_NE(refused(options, 2).find("add --update no"), std::string::npos);
  options = flags(4, 12, "zb-h2");
  options.memory = 7;
  options.optimizer = "staggered";
  options.iterations = 10;
  const auto tree = simulated(options);
  EXPECT_EQ(tree["makespan_ms"], 390.0);
  EXPECT_EQ(tree["period_ms"], 360.0);
  EXPECT_EQ(tree["lower_bound_ms"], 360.0);
  EXPECT_EQ(tree["total_ms"], 390.0 + 9 * 360.0);
  EXPECT_EQ(tree["peak_micros"], (std::vector<double>{7, 7, 7, 7}));
  options.weight_memory = 0.5;
  EXPECT_EQ(simulated(options)["peak_micros"][3], 1 + 6 * 0.5);
}

TEST(Simulate, MeasuredTimes) {
  std::string events;
  for (int stage = 0; stage < 2; ++stage) {
    const std::string tail = std::to_string(stage);
    events += (stage == 0 ? "" : ",") + ("{\"ph\":\"X\",\"name\":\"PP:" + tail) +
              "F0\",\"ts\":0,\"dur\":4000},{\"ph\":\"X\",\"name\":\"PP:" + tail +
              "B0\",\"ts\":9,\"dur\":6000}";
  }
  const Scratch trace("times.json", "{\"traceEvents\":[" + events + "]}");
  SimulateOptions options = flags(2, 3, "1f1b");
  options.times = {trace.path()};
  EXPECT_EQ(simulated(options)["makespan_ms"], 4 * 10.0);
  options.stages = 3;
  EXPECT_NE(refused(options, 2).find("times of 2 stages, expected 3"), std::string::npos);
  options.forward_ms = {1};
  EXPECT_NE(refused(options, 2).find("give one of the two"), std::string::npos);
}

// The delay of a slow link is paid once, and 1.5 times the memory of 1F1B is enough for that.
TEST(Simulate, TheAutomaticOrderAbsorbsASlowLink) {
  SimulateOptions options = flags(8, 24, "auto");
  options.forward_ms = options.backward_input_ms = options.backward_weight_ms = {10};
  options.slow_links = {"6:40"};
  auto tree = simulated(options);
  EXPECT_EQ(tree["makespan_ms"], 830.0);
  EXPECT_EQ(tree["lower_bound_ms"], 830.0);
  EXPECT_EQ(tree["order"], "auto");
  EXPECT_EQ(tree["dispatch"], "ready");
  options.memory = 12;
  options.weight_memory = 0.5;
  tree = simulated(options);
  EXPECT_EQ(tree["makespan_ms"], 830.0);
  for (const double peak : tree["peak_micros"]) EXPECT_LE(peak, 12);
  options.memory = 8;
  tree = simulated(options);
  EXPECT_LE(tree["makespan_ms"], 970.0);
  EXPECT_GE(tree["makespan_ms"], tree["lower_bound_ms"]);
  options.dispatch = "listed";
  EXPECT_EQ(simulated(options)["dispatch"], "listed");
}

// The peers of a dead worker run its micro-batches: with a whole backward, with a split one, and
// without a barrier between steps, where the step lasts no longer than that of 1F1B with all
// workers.
TEST(Simulate, LostWorkers) {
  SimulateOptions options = flags(4, 6, "1f1b");
  options.pipelines = 3;
  EXPECT_EQ(simulated(options)["makespan_ms"], 270);
  options.lost = {"0.2"};
  auto tree = simulated(options);
  EXPECT_EQ(tree["makespan_ms"], 330);
  EXPECT_EQ(tree["lower_bound_ms"], 330);  // of all routings
  EXPECT_EQ(tree["peak_micros"][2], 0);
  EXPECT_NE(tree["reason"].get<std::string>().find("new routing"), std::string::npos);
  options.split_backward = "yes";
  EXPECT_EQ(simulated(options)["makespan_ms"], 290);
  options.optimizer = "staggered";
  options.memory = 8;
  EXPECT_EQ(simulated(options)["period_ms"], 270);
  options.slow_workers = {"2.1:0.5"};
  EXPECT_LT(simulated(options)["period_ms"], 330);
  EXPECT_FALSE(simulated(options).contains("moves"));
  // All holders of one stage are lost: workers of other stages move there.
  options.slow_workers.clear();
  options.lost = {"0.2", "1.2", "2.2"};
  tree = simulated(options);
  ASSERT_EQ(tree["moves"].size(), 2U);
  EXPECT_EQ(tree["moves"][0]["to"], 2);
  EXPECT_NE(tree["reason"].get<std::string>().find(" holds stage 2 instead of "),
            std::string::npos);
  EXPECT_EQ(tree["period_ms"], 270);
  EXPECT_EQ(tree["lower_bound_ms"], 270);
  for (const char* stage : {"0", "1", "3"}) {
    for (const char* pipeline : {"0", "1"}) options.lost.push_back(cat(pipeline, ".", stage));
  }
  EXPECT_NE(refused(options, 3).find("only 3 workers are alive for 4 stages"), std::string::npos);
}

TEST(Simulate, WeightMemoryCountsByItsShare) {
  SimulateOptions options = flags(4, 12, "zb-h1");
  options.memory = 3;
  EXPECT_NE(refused(options, 3).find("raise memory to 4"), std::string::npos);
  options.memory = 4;
  options.weight_memory = 0.5;
  EXPECT_EQ(simulated(options)["makespan_ms"], 390.0);
}

TEST(Simulate, Refusals) {
  SimulateOptions options = flags(4, 12, "gpipe");
  options.memory = 4;
  EXPECT_NE(refused(options, 3).find("raise memory to 12"), std::string::npos);
  EXPECT_NE(refused(flags(4, 12, "1f1c"), 2).find("did you mean 1f1b?"), std::string::npos);
  EXPECT_NE(refused(flags(0, 12, "1f1b"), 2).find("stages is 0"), std::string::npos);
  const auto with = [](auto set) {
    SimulateOptions changed;
    set(changed);
    return refused(changed, 2);
  };
  using O = SimulateOptions;
  EXPECT_NE(with([](O& o) { o.lost = {"0:1"}; }).find("--lost 0:1"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.lost = {"1.0"}; }).find("no such worker"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.send = "slow"; }).find("--send slow"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.optimizer = "none"; }).find("--optimizer none"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.duplex = "no"; }).find("--duplex no"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.chunks = 2; }).find("hold 1 stage each"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.chunks = 0; }).find("--chunks 0"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.weight_memory = 2; }).find("--weight-memory 2"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.per_op_ms = -1; }).find("--per-op-ms -1"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.times = {"none.json"}; }).find("none.json"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.memory = 0; }).find("--memory 0"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.dispatch = "fast"; }).find("--dispatch fast"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.forward_ms = {1, 2}; }).find("2 numbers for 4"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.forward_ms = {-1}; }).find("--forward-ms -1"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.link_ms = -1; }).find("--link-ms -1"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.slow_links = {"3:1"}; }).find("3 links, 0 to 2"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.slow_links = {"1"}; }).find("LINK:MILLI"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.slow_workers = {"0.4:1"}; }).find("no such"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.slow_workers = {"0.1:0"}; }).find("FACTOR"), std::string::npos);
  EXPECT_NE(with([](O& o) { o.file = "none.json"; }).find("none.json"), std::string::npos);
}

// The steps of a job are those of its run: the next one begins while the clip decision is under
// way. With and without what the run would do about a fault they take the same time under the same
// plan.
TEST(Simulate, StepsOfAJobFollowEachOtherAsInItsRun) {
  const std::string text =
      "[parallel]\nstages = 3\npipelines = 1\nmicros = 6\norder = '1f1b'\n"
      "[device]\nkind = 'paced'\nforward_ms = [4]\nbackward_input_ms = [4]\n"
      "backward_weight_ms = [4]\n[network]\nlatency_ms = 2\n";
  const Scratch job("steps.toml", text);
  SimulateOptions options;
  options.file = job.path();
  const auto alone = simulated(options);
  EXPECT_FALSE(alone.contains("stretches"));
  const double step = alone["makespan_ms"].get<double>() - 2 * 2;
  options.iterations = 10;
  const auto tree = simulated(options);
  EXPECT_EQ(tree["makespan_ms"], alone["makespan_ms"]);
  ASSERT_EQ(tree["stretches"].size(), 1);
  EXPECT_EQ(tree["stretches"][0]["step_ms"], step);
  EXPECT_EQ(tree["total_ms"], 10 * step);
  options.optimizer = "barrier";
  EXPECT_EQ(simulated(options)["total_ms"], 10 * alone["makespan_ms"].get<double>());

  const Scratch faulty("faulty.toml", text +
                                          "[[fault]]\nkind = 'slow-link'\nlink = 1\n"
                                          "latency_ms = 30\nat_step = 4\nuntil_step = 8\n");
  options.file = faulty.path();
  options.optimizer.reset();
  const auto faults = simulated(options);
  ASSERT_EQ(faults["stretches"].size(), 3);
  EXPECT_EQ(faults["stretches"][0]["step_ms"], step);
  const auto& parts = faults["with_remedies"]["parts"];
  EXPECT_EQ(parts[0]["step_ms"], step);
  EXPECT_EQ(parts[1]["remedy"], "the present plan");
  EXPECT_EQ(parts[1]["step_ms"], faults["stretches"][1]["step_ms"]);
  options.optimizer = "in-turn";
  EXPECT_EQ(simulated(options)["stretches"], faults["stretches"]);
  options.optimizer = "staggered";
  EXPECT_NE(refused(options, 2).find("--optimizer staggered lets steps overlap"),
            std::string::npos);
}

TEST(Simulate, AJobWithServersIsRefused) {
  const Scratch job("servers.toml",
                    "[data]\npaths = ['a']\n[parallel]\npipelines = 3\n"
                    "[sync]\narchitecture = 'servers'\n");
  SimulateOptions options;
  options.file = job.path();
  const std::string said = refused(options, 2);
  EXPECT_NE(said.find("only synchronous steps of a job can be priced"), std::string::npos) << said;
  EXPECT_NE(said.find("--sync MODE --replicas 3"), std::string::npos) << said;
}

TEST(Simulate, AJobInAnotherModeThanSynchronousIsRefused) {
  const Scratch job("mode.toml",
                    "[data]\npaths = ['a']\n[parallel]\npipelines = 3\n[sync]\nmode = 'x:2'\n");
  SimulateOptions options;
  options.file = job.path();
  const std::string said = refused(options, 2);
  EXPECT_NE(said.find(" has sync.mode = \"x:2\", and only synchronous steps of a job can be "),
            std::string::npos)
      << said;
}

TEST(Simulate, PlansAndTraces) {
  Shape shape;
  shape.stages = shape.layers = 2;
  Plan plan = make_plan(shape).value();
  const Scratch good("plan.json", to_json(plan));
  SimulateOptions options;
  options.file = good.path();
  const Scratch trace("trace.json", "");
  options.trace = trace.path();
  EXPECT_EQ(simulated(options)["makespan_ms"], 60.0);
  std::ifstream file(trace.path());
  EXPECT_GT(nlohmann::json::parse(file)["traceEvents"].size(), 10u);
  options.trace = trace.path() + "/not/there";
  EXPECT_NE(refused(options, 1).find("cannot write "), std::string::npos);
  options.trace.clear();
  options.stages = 3;
  EXPECT_NE(refused(options, 2).find("leave those flags out"), std::string::npos);
  plan.schedule.lists[0].pop_back();
  const Scratch bad("bad.json", to_json(plan));
  options.stages.reset();
  options.file = bad.path();
  EXPECT_NE(refused(options, 3).find("has no Step of it"), std::string::npos);
}

TEST(Schedule, ShowAndCheckAgree) {
  ScheduleOptions options;
  options.order = "zb-h1";
  options.micros = 3;
  std::ostringstream shown, errors;
  ASSERT_EQ(run_schedule_show(options, shown, errors), 0) << errors.str();
  const std::string text = shown.str().substr(0, shown.str().find("\n\n"));
  const Scratch good("good.sched", text);
  options.file = good.path();
  std::ostringstream verdict;
  EXPECT_EQ(run_schedule_check(options, verdict, errors), 0) << errors.str();
  EXPECT_NE(verdict.str().find("is right: 4 stages, 4 workers, 3 micro-batches"),
            std::string::npos);
  std::ostringstream again;
  EXPECT_EQ(run_schedule_show(options, again, errors), 0);
  EXPECT_EQ(again.str().substr(0, text.size()), text);
}

TEST(Schedule, ExitCodes) {
  const auto code = [](const std::string& text, std::string& message) {
    const Scratch file("x.sched", text);
    ScheduleOptions options;
    options.file = file.path();
    std::ostringstream out, errors;
    const int result = run_schedule_check(options, out, errors);
    EXPECT_EQ(out.str(), "");
    message = errors.str();
    return result;
  };
  std::string message;
  EXPECT_EQ(code("stages 1 micros 1\nw0: F0.0 F0.0 B0.0 W0.0", message), 3);
  EXPECT_NE(message.find("F0.0 runs twice"), std::string::npos) << message;
  EXPECT_NE(message.find("\nw0: F0.0 F0.0 B0.0 W0.0\n         ^"), std::string::npos) << message;
  EXPECT_EQ(code("stages 1 micros 1\nw0: F0.0 Q", message), 2);
  EXPECT_NE(message.find("x.sched:2:10: expected an op"), std::string::npos) << message;
  EXPECT_EQ(code("stages 2000000000 micros 1\nw0: F0.0", message), 2);
  EXPECT_EQ(code("", message), 2);
  EXPECT_EQ(code("{", message), 2);
}

// A step that is too long to be counted is refused, and the error names the figure that makes it
// so. The total of the iterations may be of any length.
TEST(Simulate, StepsTooLongToCountAreRefused) {
  SimulateOptions options = flags(4, 3100, "1f1b");
  options.forward_ms = options.backward_input_ms = options.backward_weight_ms = {1e9};
  EXPECT_NE(refused(options, 2).find("longer than 73 years, more than is counted: forward_ms"),
            std::string::npos);
  options = flags(4, 8, "1f1b");
  options.forward_ms = {1e9};
  options.iterations = 1'000'000'000;
  const auto priced = simulated(options);
  EXPECT_GT(priced["total_ms"].get<double>(), 1e18);
  options = flags(4, 4, "interleaved");
  options.chunks = 1'000'000;
  EXPECT_NE(refused(options, 2).find("chunks is 1000000: expected 0 to 1000"), std::string::npos);
}

// Figures of a job that are just out of range, or far: each is refused with the range.
TEST(Simulate, FiguresOutOfRangeAreRefused) {
  const std::string path = testing::TempDir() + cat("figures_", getpid(), ".toml");
  const auto refusal = [&](const std::string& section, const std::string& figure) {
    std::ofstream(path) << "[parallel]\nstages = 2\n[device]\nkind = \"paced\"\n"
                        << (section == "device" ? "" : "[" + section + "]\n") << figure << "\n";
    SimulateOptions options;
    options.file = path;
    return refused(options, 2);
  };
  const int line = 5;
  for (const char* key : {"forward_ms", "backward_input_ms", "backward_weight_ms"}) {
    for (const char* value : {"1.1e9", "1e13", "1e300", "-1"}) {
      const std::string text = refusal("device", cat(key, " = ", value));
      EXPECT_NE(text.find(cat(path, ":", line, ":")), std::string::npos) << text;
      EXPECT_NE(text.find("[0, 1e+09]"), std::string::npos) << text;
    }
  }
  for (const char* value : {"1.1e9", "1e13", "1e300"}) {
    EXPECT_NE(refusal("network", cat("latency_ms = ", value)).find("[0, 1e+09]"),
              std::string::npos);
  }
  for (const char* value : {"1e-300", "9e-7", "1e300"}) {
    EXPECT_NE(refusal("network", cat("megabytes_per_second = ", value))
                  .find("expects 0, or a number in [1e-06, 1e+12]"),
              std::string::npos);
  }
  std::filesystem::remove(path);
}

// If the time limit ended a search, the reason says so.
TEST(Simulate, ASearchEndsAtItsTimeLimit) {
  SimulateOptions options = flags(16, 512, "auto");
  options.memory = 9;
  options.slow_links = {"3:17", "9:31"};
  options.seconds = 1e-6;
  const auto priced = simulated(options);
  EXPECT_NE(priced["reason"].get<std::string>().find("the limit of 1e-06 s (--seconds) ended"),
            std::string::npos)
      << priced["reason"];
  EXPECT_GE(priced["makespan_ms"], priced["lower_bound_ms"]);
  options.seconds = 0;
  EXPECT_NE(refused(options, 2).find("--seconds 0: expected more than 0"), std::string::npos);
}

// The files of tenuto plan describe the layers and the devices of a plan's file, and of nothing
// else.
TEST(Simulate, RefusesFilesThatDoNotBelongToThePlan) {
  const Scratch chain("layers.chain", "1 2 1000 1000 one\n1 2 1000 1000 two\n");
  const Scratch cluster("cluster.json",
                        R"({"devices": 1, "bandwidth_gbps": {"inside": 1, "between": 1,
                            "per_node": 1}})");
  SimulateOptions options;
  options.chain = chain.path();
  EXPECT_NE(refused(options, 2).find("--chain and --cluster belong to a plan's file"),
            std::string::npos);
  Shape shape;
  shape.stages = 3;
  const Scratch made("made.json", to_json(make_plan(shape).value()));
  options.file = made.path();
  EXPECT_NE(refused(options, 2).find("has 2 layers and"), std::string::npos);
  options.chain = "";
  options.cluster = cluster.path();
  EXPECT_NE(refused(options, 2).find("has 1 device and"), std::string::npos);
  options.link_ms = 1;
  EXPECT_NE(refused(options, 2).find("--cluster replaces --link-ms"), std::string::npos);
}

TEST(WaitingLine, Text) {
  EXPECT_EQ(waiting_text("trying orders", 37, std::chrono::seconds(12)),
            "trying orders: 37 so far, 12 s");
  EXPECT_EQ(waiting_text("making the plan", 0, std::chrono::milliseconds(5400)),
            "making the plan, 5 s");
  Duration shown{};
  int lines = 0;
  while (next_plain_line(shown) < std::chrono::hours(1)) shown = next_plain_line(shown), ++lines;
  EXPECT_EQ(lines, 10);
}

}  // namespace
}  // namespace tenuto
