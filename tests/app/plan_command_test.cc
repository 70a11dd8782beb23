// tenuto plan: figures, output, refusals, exit codes.
#include "app/plan_command.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "adapt/layout/baseline.h"
#include "app/plan_calls.h"
#include "app/simulate.h"
#include "base/text.h"
#include "ir/golden.h"
#include "ir/text.h"
#include "source_tree.h"
#include "world/load.h"

namespace tenuto {
namespace {

// The path of one of the planner's examples.
std::string example(const std::string& name) { return source_tree() + "/examples/planner/" + name; }

// Two layers that take 3 ms each, and send 1 ms to each other over a link of 1 GB/s.
class PlanCommand : public testing::Test {
 protected:
  PlanOptions options(const std::string& planner = "tenuto") const {
    PlanOptions options;
    options.chain = chain_.path();
    options.cluster = cluster_.path();
    options.cut.micros = 4;
    options.planner = planner;
    return options;
  }

  const Scratch chain_{"two.chain", "1 2 1000000 8000000 first\n1 2 1000000 8000000 second\n"};
  const Scratch cluster_{"two.json",
                         "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], "
                         "\"memory_bytes\": 1e9}"};
};

// All figures follow by hand: one device takes 4 x 6 = 24 ms; two replicas 12 ms and 16 ms for the
// all-reduce of 16 MB; two stages 12 ms, before which one forward and a transfer pass, and after
// which a transfer and a backward do.
TEST_F(PlanCommand, Figures) {
  const Json tree = planned(options());
  EXPECT_EQ(tree["makespan_ms"], 17.0);
  EXPECT_LE(tree["lower_bound_ms"], 17.0);
  EXPECT_GE(tree["lower_bound_ms"], 12.0);
  EXPECT_EQ(tree["planner"], "tenuto");
  EXPECT_EQ(tree["execution_model"], "rows-split");
  EXPECT_GE(tree["plan_ms"], 0.0);
  ASSERT_EQ(tree["stages"].size(), 2U);
  for (int n = 0; n < 2; ++n) {
    const Json& stage = tree["stages"][static_cast<size_t>(n)];
    EXPECT_EQ(stage["first_layer"], n);
    EXPECT_EQ(stage["end_layer"], n + 1);
    ASSERT_EQ(stage["devices"].size(), 1U);
    EXPECT_EQ(stage["forward_ms"], 1.0);
    EXPECT_EQ(stage["backward_ms"], 2.0);
    EXPECT_EQ(stage["reduction_ms"], 0.0);
    EXPECT_EQ(stage["memory_bytes"], 4 * 8'000'000 + stage["in_flight"].get<int>() * 1'000'000);
    EXPECT_EQ(stage["ops"].get<std::string>().size(), 8U);
  }
  EXPECT_NE(tree["stages"][0]["devices"], tree["stages"][1]["devices"]);
  ASSERT_EQ(tree["links"].size(), 1U);
  EXPECT_EQ(tree["links"][0]["transfer_ms"], 1.0);
  EXPECT_EQ(tree["bottleneck"]["kind"], "stage");
  EXPECT_EQ(tree["bottleneck"]["busy_ms"], 12.0);
  EXPECT_NEAR(tree["bubble_fraction"].get<double>(), 5.0 / 17, 1e-12);
  EXPECT_GE(tree["runner_up"]["makespan_ms"], 24.0);
  EXPECT_EQ(tree["runner_up"]["why"].get<std::string>().find("its stage 0 is busy for 2"), 0U);
  EXPECT_EQ(planned(options("data-parallel"))["makespan_ms"], 28.0);
  EXPECT_EQ(planned(options("gpipe"))["makespan_ms"], 17.0);
}

// With half-duplex links each transfer waits for those of the other direction, and is shown so.
TEST_F(PlanCommand, HalfDuplex) {
  PlanOptions half = options("1f1b");
  half.duplex = "half";
  const Json tree = planned(half);
  EXPECT_EQ(tree["duplex"], "half");
  EXPECT_EQ(tree["links"][0]["busy_ms"], 8.0);
  EXPECT_EQ(planned(options("1f1b"))["links"][0]["busy_ms"], 4.0);
}

// The cluster file says it, and the flag replaces what the file says.
TEST_F(PlanCommand, DuplexOfTheFile) {
  const Scratch file(
      "half.json", "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], \"duplex\": \"half\"}");
  PlanOptions half = options("1f1b");
  half.cluster = file.path();
  EXPECT_EQ(planned(half)["links"][0]["busy_ms"], 8.0);
  half.duplex = "full";
  EXPECT_EQ(planned(half)["links"][0]["busy_ms"], 4.0);
}

// A transfer of 1 MB takes 2 ms through a port of 0.5 GB/s. The text names the ports.
TEST_F(PlanCommand, Ports) {
  const Scratch file(
      "ports.json",
      "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], \"ports\": [{\"name\": "
      "\"card 1\", \"devices\": [1], \"bandwidth_gbps\": 0.5, \"duplex\": \"half\"}]}");
  const Scratch plan("plan.json", "");
  PlanOptions ports = options("1f1b");
  ports.cluster = file.path();
  EXPECT_EQ(planned(ports)["links"][0]["transfer_ms"], 2.0);
  const Answer text = answer(ports);
  EXPECT_NE(text.out.find("card 1 (device 1, 0.5 GB/s in both directions together)"),
            std::string::npos)
      << text.out;
  ports.plan = plan.path();
  const Json found = planned(ports)["plan"];
  SimulateOptions again;
  again.file = plan.path();
  again.chain = ports.chain;
  again.cluster = ports.cluster;
  again.json = true;
  std::ostringstream out, errors;
  ASSERT_EQ(run_simulate(again, out, errors), 0) << errors.str();
  EXPECT_EQ(Json::parse(out.str())["makespan_ms"], found["makespan_ms"]);
}

TEST_F(PlanCommand, GoldenText) {
  const Answer text = answer(options("1f1b"));
  EXPECT_EQ(text.code, 0) << text.errors;
  expect_golden("app/golden/plan.txt", text.out);
}

TEST_F(PlanCommand, GoldenJson) {
  Json tree = planned(options("1f1b"));
  for (const char* field : {"plan_ms", "lower_bound_ms"}) tree.erase(field);  // not whole numbers
  expect_golden("app/golden/plan.json", tree.dump(1) + "\n");
}

TEST_F(PlanCommand, EveryPlannerHasALayout) {
  for (const PlannerCard& card : planner_cards()) {
    const Json tree = planned(options(card.name));
    EXPECT_EQ(tree["planner"], card.name);
    EXPECT_GE(tree["makespan_ms"], 17.0) << card.name;
    EXPECT_GE(tree["makespan_ms"], tree["lower_bound_ms"]) << card.name;
  }
}

// The written plan has the step that was told: the simulator prices it again on the same files, and
// a job can name it.
TEST_F(PlanCommand, WritesAPlanThatIsPricedAsItSays) {
  const Scratch file("trained.json", "");
  PlanOptions both;
  both.chain = example("gpt.chain");
  both.cluster = example("two-nodes.json");
  both.cut.micros = 16;
  both.plan = file.path();
  const Json plan = planned(both)["plan"];
  EXPECT_EQ(plan["execution_model"], "micros-in-turn");
  EXPECT_GE(plan["makespan_ms"], plan["lower_bound_ms"]);
  SimulateOptions again;
  again.file = file.path();
  again.chain = both.chain;
  again.cluster = both.cluster;
  again.json = true;
  std::ostringstream out, errors;
  ASSERT_EQ(run_simulate(again, out, errors), 0) << errors.str();
  EXPECT_EQ(Json::parse(out.str())["makespan_ms"], plan["makespan_ms"]);
  const auto job = load_job("", {"parallel.plan=" + file.path(), "device.kind=paced"});
  ASSERT_TRUE(job.ok()) << job.error().message;
  std::set<int> workers;
  for (const Json& stage : plan["stages"]) workers.insert(stage["devices"][0].get<int>());
  EXPECT_EQ(job.value().job.parallel.stages, static_cast<int32_t>(workers.size()));
  EXPECT_EQ(job.value().job.micro_count(), 16);
  both.json = false;
  const Answer text = answer(both);
  EXPECT_NE(text.out.find("whole micro-batches in turn"), std::string::npos) << text.out;
}

// With two stages of four layers, the first one holds 16 MB of state and two stashes of 4 MB, and
// no other layout needs less than 24 MB; but one stash and no input fit into 21 MB.
TEST_F(PlanCommand, SaysWhichStagesRecompute) {
  std::string layers;
  for (int i = 0; i < 8; ++i) layers += cat("1 2 1000000 1000000 layer ", i, "\n");
  const Scratch chain("eight.chain", layers), file("again.json", "");
  const auto cluster = [](const char* memory) {
    return cat("{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], \"memory_bytes\": ", memory,
               "}");
  };
  const Scratch small("small.json", cluster("21e6")), large("large.json", cluster("24e6"));
  PlanOptions options;
  options.chain = chain.path();
  options.cluster = large.path();
  options.cut.micros = 8;
  options.plan = file.path();
  EXPECT_FALSE(planned(options)["stages"][0].contains("recompute"));
  options.cluster = small.path();
  const Json tree = planned(options);
  ASSERT_EQ(tree["stages"].size(), 2U);
  EXPECT_EQ(tree["stages"][0]["recompute"], true);
  EXPECT_EQ(tree["stages"][0]["backward_ms"], 4 * (2.0 + 1.0));
  EXPECT_EQ(tree["stages"][0]["memory_bytes"], 20'000'000);
  EXPECT_FALSE(tree["stages"][1].contains("recompute"));
  const auto plan = plan_from_json(file.text(), "again.json");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(recomputing(plan.value().stages), std::vector<StageId>{{0}});
  EXPECT_EQ(tree["plan"]["stages"][0]["recompute"], true);
  SimulateOptions again;
  again.file = file.path();
  again.chain = options.chain;
  again.cluster = options.cluster;
  again.json = true;
  std::ostringstream out, errors;
  ASSERT_EQ(run_simulate(again, out, errors), 0) << errors.str();
  EXPECT_EQ(Json::parse(out.str())["makespan_ms"], tree["plan"]["makespan_ms"]);
  EXPECT_EQ(Json::parse(out.str())["recompute"], Json::array({0}));
  options.json = false;
  const std::string text = answer(options).out;
  const std::string line = "recomputes  stage 0: only the input is kept";
  EXPECT_EQ(text.find(line) == text.rfind(line), false) << text;  // of both models of a step
}

// Each replica takes the constant of a pass in full, and the updates of its layers once a step.
TEST_F(PlanCommand, CountsConstantsAndUpdates) {
  const Scratch model("constants.json", R"({"rows": [1], "op_ms": 0.5, "layers": [
    {"name": "first", "forward_ms": [1], "backward_input_ms": [1], "backward_weight_ms": [1],
     "update_ms": 3, "activation_bytes": 1000000, "stash_bytes": 1000000,
     "parameter_bytes": 8000000},
    {"name": "second", "forward_ms": [1], "backward_input_ms": [1], "backward_weight_ms": [1],
     "update_ms": 2, "activation_bytes": 1000000, "stash_bytes": 1000000,
     "parameter_bytes": 8000000}]})"),
      file("constants-plan.json", "");
  PlanOptions options = this->options("data-parallel");
  options.chain.clear();
  options.model = model.path();
  options.plan = file.path();
  const Json replicas = planned(options)["stages"][0];
  EXPECT_EQ(replicas["forward_ms"], 2.0 / 2 + 0.5);
  EXPECT_EQ(replicas["backward_ms"], 4.0 / 2 + 0.5);
  EXPECT_EQ(replicas["reduction_ms"], 16.0 + 3 + 2);
  options.planner = "tenuto";
  const Json tree = planned(options);
  ASSERT_EQ(tree["stages"].size(), 2U);
  EXPECT_EQ(tree["stages"][0]["forward_ms"], 1.5);
  EXPECT_EQ(tree["stages"][0]["backward_ms"], 2.5);
  EXPECT_EQ(tree["stages"][0]["reduction_ms"], 3.0);
  // One forward and a transfer; all work of the second stage; a transfer, a backward, an update.
  EXPECT_EQ(tree["makespan_ms"], 1.5 + 1 + 4 * 4 + 1 + 2.5 + 3);
  EXPECT_LE(tree["lower_bound_ms"], tree["makespan_ms"]);
  SimulateOptions again;
  again.file = file.path();
  again.chain = model.path();
  again.cluster = options.cluster;
  again.json = true;
  std::ostringstream out, errors;
  ASSERT_EQ(run_simulate(again, out, errors), 0) << errors.str();
  EXPECT_EQ(Json::parse(out.str())["makespan_ms"], tree["plan"]["makespan_ms"]);
}

// Two layers whose passes cost 1 ms beside 0.5 ms for each row: few large micro-batches cost less
// time, and many small ones fill the pipeline better.
constexpr char kModel[] = R"({"rows": [1, 2, 4, 8], "layers": [
  {"name": "first", "forward_ms": [1.5, 2, 3, 5], "backward_input_ms": [1.5, 2, 3, 5],
   "backward_weight_ms": [1.5, 2, 3, 5], "activation_bytes": 1000, "stash_bytes": 1000000,
   "parameter_bytes": 100000000},
  {"name": "second", "forward_ms": [1.5, 2, 3, 5], "backward_input_ms": [1.5, 2, 3, 5],
   "backward_weight_ms": [1.5, 2, 3, 5], "activation_bytes": 1000, "stash_bytes": 1000000,
   "parameter_bytes": 100000000}]})";

TEST_F(PlanCommand, ChoosesTheRowsOfAMicroBatch) {
  const Scratch model("model.json", kModel), file("chosen.json", "");
  PlanOptions chosen;
  chosen.model = model.path();
  chosen.cluster = cluster_.path();
  chosen.cut.rows = 32;
  chosen.plan = file.path();
  const Json tree = planned(chosen);
  ASSERT_EQ(tree["cuts"].size(), 4U);
  const int rows = tree["micro_rows"].get<int>();
  EXPECT_EQ(rows * tree["micros"].get<int>(), 32);
  const double step = tree["plan"]["makespan_ms"].get<double>();
  for (const Json& cut : tree["cuts"]) {
    EXPECT_EQ(cut["micro_rows"].get<int>() * cut["micros"].get<int>(), 32);
    if (cut.contains("why_not")) continue;
    EXPECT_GE(cut["micros_in_turn_ms"].get<double>(), step);
    // The same cut by itself has the same step.
    PlanOptions alone = chosen;
    alone.cut.micro_rows = cut["micro_rows"].get<int>();
    const Json single = planned(alone);
    EXPECT_FALSE(single.contains("cuts"));
    EXPECT_EQ(single["plan"]["makespan_ms"], cut["micros_in_turn_ms"]);
    EXPECT_EQ(single["micros"], cut["micros"]);
  }
  // The simulator prices the written plan at these rows to the same step.
  planned(chosen);
  SimulateOptions again;
  again.file = file.path();
  again.chain = model.path();
  again.micro_rows = rows;
  again.cluster = cluster_.path();
  again.json = true;
  std::ostringstream out, errors;
  ASSERT_EQ(run_simulate(again, out, errors), 0) << errors.str();
  EXPECT_EQ(Json::parse(out.str())["makespan_ms"], tree["plan"]["makespan_ms"]);
  const Answer text = answer(chosen);
  EXPECT_NE(text.out.find(cat("micro-batch ", rows, " rows, ", 32 / rows, " of them a step")),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find(cat("job         parallel.micro_rows = ", rows)), std::string::npos);
}

TEST_F(PlanCommand, RowsThatFitNowhereOrDoNotDivide) {
  const Scratch model("model.json", kModel),
      small("small.json",
            "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], \"memory_bytes\": 402e6}");
  PlanOptions wrong;
  wrong.model = model.path();
  wrong.cluster = cluster_.path();
  wrong.cut.rows = 37;
  wrong.cut.micro_rows = 2;
  EXPECT_EQ(refused(wrong, 2),
            "--micro-rows 2: expected a number that divides the 37 rows of a step (--rows)\n");
  wrong.cut = {37, std::nullopt, 5};
  EXPECT_EQ(refused(wrong, 2),
            "--micros 5: expected a number that divides the 37 rows of a step (--rows)\n");
  wrong.cut = {32, 8, 8};
  EXPECT_EQ(refused(wrong, 2),
            "--micros 8: 32 rows in micro-batches of 8 rows make 4: leave one of the three flags "
            "out\n");
  const Scratch large("large.json",
                      "{\"rows\": [4], \"layers\": [{\"name\": \"a\", "
                      "\"forward_ms\": [1], \"backward_input_ms\": [1], "
                      "\"backward_weight_ms\": [1], \"activation_bytes\": 0, "
                      "\"stash_bytes\": 0, \"parameter_bytes\": 0}]}");
  wrong.model = large.path();
  wrong.cut = {37, std::nullopt, std::nullopt};
  EXPECT_EQ(refused(wrong, 2),
            "--rows 37: no micro-batch of 4 to 4 rows, which the model file has times for, divides "
            "them; give another number of rows, or --micro-rows\n");
  wrong.model = model.path();
  wrong.chain = chain_.path();
  EXPECT_EQ(refused(wrong, 2), "expected either --chain FILE or --model FILE\n");
  wrong.model.clear();
  EXPECT_EQ(refused(wrong, 2),
            "--rows belongs to a model file, which has times for several numbers of rows: give "
            "--model FILE in place of --chain\n");
  // Beside its state a stage has memory for what two rows leave: two micro-batches of one row, or
  // one of two rows if the others are made again.
  wrong = {};
  wrong.model = model.path();
  wrong.cluster = small.path();
  wrong.cut.rows = 32;
  const Json tree = planned(wrong);
  EXPECT_EQ(tree["micro_rows"], 2);
  EXPECT_EQ(tree["cuts"][2]["why_not"], "does not fit into the memory");
}

TEST_F(PlanCommand, APlanThatCannotBeWrittenIsAnError) {
  PlanOptions full = options();
  full.plan = "/dev/full";
  refused(full, 1);
}

TEST_F(PlanCommand, WritesTheJsonToAFile) {
  const Scratch file("plan.json", "");
  PlanOptions both = options("gpipe");
  both.out = file.path();
  const Answer text = answer(both);
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_EQ(text.out.substr(0, 6), "gpipe:");
  Json written = Json::parse(file.text()), printed = planned(options("gpipe"));
  written.erase("plan_ms");
  printed.erase("plan_ms");
  EXPECT_EQ(written, printed);
  both.out = "/dev/full";
  EXPECT_NE(refused(both, 1).find("/dev/full"), std::string::npos);
  both.out = "/tmp";
  EXPECT_NE(refused(both, 1).find("/tmp"), std::string::npos);
}

// A search whose time is over returns the best layout so far.
TEST_F(PlanCommand, TimeLimit) {
  PlanOptions brief = options();
  brief.seconds = 1e-6;
  const Json tree = planned(brief);
  EXPECT_GE(tree["makespan_ms"], 17.0);
  EXPECT_FALSE(tree["stages"].empty());
}

TEST_F(PlanCommand, UnequalDevices) {
  const Scratch chain("eight.chain", "1 1 10 0 a\n1 1 10 0 b\n1 1 10 0 c\n1 1 10 0 d\n");
  const Scratch cluster("unequal.json",
                        "{\"devices\": 2, \"speed\": [1, 3], "
                        "\"bandwidth_gbps\": [[0, 10], [10, 0]]}");
  PlanOptions unequal = options();
  unequal.chain = chain.path();
  unequal.cluster = cluster.path();
  unequal.cut.micros = 100;
  const Json tree = planned(unequal);
  for (const auto& stage : tree["stages"]) {
    const int layers = stage["end_layer"].get<int>() - stage["first_layer"].get<int>();
    ASSERT_EQ(stage["devices"].size(), 1U);
    EXPECT_EQ(layers, stage["devices"][0] == 0 ? 1 : 3);
  }
}

TEST_F(PlanCommand, RefusesInOneSentence) {
  PlanOptions wrong = options("dapple2");
  EXPECT_NE(refused(wrong, 2).find("did you mean dapple?"), std::string::npos);
  wrong = options();
  wrong.duplex = "double";
  EXPECT_EQ(refused(wrong, 2),
            "--duplex double: expected full, or half where both directions of a link share its "
            "rate\n");
  wrong = options();
  wrong.cut.micros = 50'000'000;
  EXPECT_EQ(refused(wrong, 2),
            "--micros 50000000: with up to 2 stages a step has 200000000 ops, expected 100000000 "
            "at most; give fewer micro-batches\n");
  const Scratch layer("bad.chain", "1 2 3 4 a\n1 2 nan 4 b\n"),
      devices("bad.json", "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [0, 0]]}");
  wrong = options();
  wrong.chain = layer.path();
  EXPECT_EQ(refused(wrong, 2),
            cat(layer.path(),
                ":2:5: expected activation_bytes, bytes from 0 to 9007199254740992, "
                "found 'nan'\n"));
  wrong = options();
  wrong.cluster = devices.path();
  EXPECT_EQ(refused(wrong, 2),
            cat(devices.path(),
                ": bandwidth_gbps[1][0]: expected a number from 1e-09 to 1e+06 (gigabytes per "
                "second; every two devices need a connection), found 0\n"));
  for (const std::string path : {"/dev/zero", "/tmp", "/tmp/tenuto-there-is-no-such-file"}) {
    wrong = options();
    wrong.chain = path;
    EXPECT_NE(refused(wrong, 2).find(path), std::string::npos);
    wrong = options();
    wrong.cluster = path;
    EXPECT_NE(refused(wrong, 2).find(path), std::string::npos);
  }
}

TEST_F(PlanCommand, RefusesWhatFitsNowhere) {
  const Scratch small("small.json",
                      "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], "
                      "\"memory_bytes\": 1e6}");
  for (const PlannerCard& card : planner_cards()) {
    PlanOptions wrong = options(card.name);
    wrong.cluster = small.path();
    const std::string sentence = refused(wrong, 3);
    for (const char* part : {"no layout", "stage 0", "bytes more than"}) {
      EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    }
  }
}

// Whatever the memory is, a layout fits into it by the order of ops that is shown, or is refused.
TEST_F(PlanCommand, KeepsWithinMemory) {
  std::array<int, 2> count{};  // refused, planned
  for (int megabytes = 30; megabytes <= 70; ++megabytes) {
    const Scratch limited("limited.json",
                          cat("{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], ",
                              "\"memory_bytes\": ", megabytes, "e6}"));
    for (const PlannerCard& card : planner_cards()) {
      PlanOptions tight = options(card.name);
      tight.cluster = limited.path();
      tight.json = true;
      const Answer it = answer(tight);
      ASSERT_TRUE(it.code == 0 || it.code == 3) << it.errors;
      ++count[it.code == 0 ? 1 : 0];
      if (it.code != 0) continue;
      const Json tree = Json::parse(it.out);
      for (const Json& stage : tree["stages"]) {
        EXPECT_LE(stage["memory_bytes"], megabytes * 1'000'000) << card.name;
      }
    }
  }
  EXPECT_GT(count[0], 20);
  EXPECT_GT(count[1], 20);
}

// A page does not change what is printed. If it cannot be written, nothing is printed.
TEST_F(PlanCommand, WritesAPage) {
  const Scratch page("plan.html", "before");
  PlanOptions drawn = options();
  drawn.html = page.path();
  const Answer plain = answer(options()), it = answer(drawn);
  EXPECT_EQ(it.code, 0) << it.errors;
  EXPECT_EQ(it.out, plain.out);
  const std::string text = page.text();
  EXPECT_EQ(text.find("<!doctype html>"), 0u);
  EXPECT_NE(text.find("<svg class=\"map\""), std::string::npos);
  EXPECT_EQ(text.find("Whole micro-batches in turn: the plan"), std::string::npos);
  const Scratch plan("plan.json", "");
  drawn.plan = plan.path();
  EXPECT_EQ(answer(drawn).code, 0);
  EXPECT_NE(page.text().find("Whole micro-batches in turn: the plan"), std::string::npos);
  for (const std::string path : {"/tmp", "/dev/full", "/tmp/tenuto-there-is-no-folder/page.html"}) {
    PlanOptions wrong = options();
    wrong.html = path;
    EXPECT_NE(refused(wrong, 1).find(path), std::string::npos);
  }
}

TEST(PlanFlags, AreReadStrictly) {
  const std::vector<std::string> files = {"--chain", "a", "--cluster", "b"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), files.begin(), files.end());
    return refused_flags(more);
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({"--seconds", "0.5", "--micros", "64", "--json", "--out", "x"}), "");
  EXPECT_EQ(with({"--seconds", "0"}),
            "--seconds: expected a number from 1e-06 to 1e+06, found '0'; tenuto plan --help lists "
            "what is possible");
  EXPECT_EQ(with({"--micros", "0"}),
            "--micros: expected a whole number from 1 to 1000000, found '0'; tenuto plan --help "
            "lists what is possible");
  EXPECT_NE(with({"--micros", "2.5"}).find("found '2.5'"), std::string::npos);
  EXPECT_NE(with({"--out", ""}).find("--out: expected a name"), std::string::npos);
  EXPECT_NE(with({"--html", ""}).find("--html: expected a name"), std::string::npos);
  EXPECT_EQ(with({"--html", "x"}), "");
  EXPECT_EQ(with({"--page", "x"}), "");
  EXPECT_NE(with({"--planer", "spp"}).find("did you mean --planner?"), std::string::npos);
  EXPECT_NE(refused_flags({"--chain", "a"}).find("--cluster is required"), std::string::npos);
}

// The example of docs/planning.md.
TEST(PlanExample, CoversTheModel) {
  PlanOptions options;
  options.chain = example("gpt.chain");
  options.cluster = example("two-nodes.json");
  options.cut.micros = 16;
  const Json tree = planned(options);
  int next = 0;
  std::vector<bool> used(8);
  for (const Json& stage : tree["stages"]) {
    EXPECT_EQ(stage["first_layer"], next);
    next = stage["end_layer"];
    EXPECT_FALSE(stage["devices"].empty());
    for (const int device : stage["devices"]) {
      ASSERT_TRUE(device >= 0 && device < 8 && !used[static_cast<size_t>(device)]);
      used[static_cast<size_t>(device)] = true;
    }
    EXPECT_LE(stage["memory_bytes"], 8'000'000'000);
  }
  EXPECT_EQ(next, 18);
  EXPECT_GE(tree["makespan_ms"], tree["lower_bound_ms"]);
  options.json = true;
  for (const PlannerCard& card : planner_cards()) {
    if (card.planner == Planner::Tenuto) continue;
    options.planner = card.name;
    const Answer other = answer(options);
    EXPECT_TRUE(other.code == 0 || other.code == 3) << other.errors;
    if (other.code != 0) continue;
    EXPECT_GE(Json::parse(other.out)["makespan_ms"], tree["makespan_ms"]) << card.name;
  }
}

}  // namespace
}  // namespace tenuto
