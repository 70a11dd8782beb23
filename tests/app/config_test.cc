#include "app/config.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/doctor.h"
#include "base/text.h"
#include "plan/make_plan.h"
#include "world/keys.h"

namespace tenuto {
namespace {

Result<LoadedJob> load(std::vector<std::string> flags) {
  flags.push_back("device.kind=paced");
  return load_effective_job("", flags);
}

TEST(Config, TheOrderSetsTheDefaultOfSplitBackward) {
  for (const OrderCard& card : order_cards()) {
    const auto loaded = load({cat("parallel.order=", card.name)});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded.value().job.parallel.split_backward, card.splits_backward) << card.name;
    EXPECT_EQ(loaded.value().origin.at("parallel.split_backward"), "order " + card.name);
    const auto given = load({cat("parallel.order=", card.name), "parallel.split_backward=false"});
    ASSERT_TRUE(given.ok());
    EXPECT_FALSE(given.value().job.parallel.split_backward) << card.name;
  }
}

TEST(Config, RefusesAnUnknownOrderWithTheNearestName) {
  const auto loaded = load({"parallel.order=1f1c"});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().message,
            "--parallel.order=1f1c: parallel.order \"1f1c\" is unknown, did you mean 1f1b?; "
            "tenuto schedule list shows all");
}

TEST(Config, JsonHoldsEveryKeyWithItsOrigin) {
  const auto loaded = load({"job.trace_steps=3,4"});
  ASSERT_TRUE(loaded.ok());
  const auto json = nlohmann::json::parse(config_json(loaded.value()));
  EXPECT_EQ(json.size(), job_keys().size());
  EXPECT_EQ(json["job.trace_steps"]["value"], nlohmann::json({3, 4}));
  EXPECT_EQ(json["job.trace_steps"]["origin"], "flag");
  EXPECT_EQ(json["job.steps"]["value"], 100);
  EXPECT_EQ(json["job.steps"]["origin"], "default");
}

// A schedule file sets the number of stages and, unless the job does, the dispatch.
TEST(Config, AScheduleFileIsRunAsItIsListed) {
  const std::string path = testing::TempDir() + "config_test_schedule.csv";
  std::ofstream(path) << "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n";
  const std::string flag = "parallel.schedule=" + path;
  const auto loaded = load({flag});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded.value().job.parallel.stages, 2);
  EXPECT_EQ(loaded.value().job.parallel.dispatch, "listed");
  EXPECT_EQ(loaded.value().origin.at("parallel.dispatch"), "schedule " + path);
  const auto told = load({flag, "parallel.dispatch=ready"});
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_EQ(told.value().job.parallel.dispatch, "ready");
  std::remove(path.c_str());
}

// A sum in fixed point holds a limited number of terms.
TEST(Config, TooManyMicrosForReproducibleSumsAreRefused) {
  const std::string numerics = "resilience.numerics=reproducible",
                    pipelines = "parallel.pipelines=4";
  EXPECT_TRUE(load({numerics, pipelines, "parallel.micros=2048"}).ok());
  EXPECT_TRUE(load({pipelines, "parallel.micros=2049"}).ok());
  const auto refused = load({numerics, pipelines, "parallel.micros=2049"});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(
      refused.error().message.find("sums up to 8192 micro-batches a step, found 4 pipelines of "
                                   "2049"),
      std::string::npos)
      << refused.error().message;
}

TEST(Config, HelpNamesEveryKey) {
  const std::string help = key_help();
  for (const Key& key : job_keys()) {
    EXPECT_NE(help.find(cat("--", key.name, " ")), std::string::npos) << key.name;
  }
}

TEST(Doctor, LooksAtEverything) {
  const std::vector<Finding> findings = examine("/nowhere/at/all");
  const auto json = nlohmann::json::parse(findings_json(findings));
  ASSERT_EQ(json["checks"].size(), findings.size());
  std::map<std::string, std::string> states;
  for (const auto& check : json["checks"]) states[check["name"]] = check["state"];
  for (const char* name : {"machine", "devices", "transport", "tcp", "control", "ccache", "disk"}) {
    EXPECT_TRUE(states.count(name)) << name;
  }
  EXPECT_EQ(states["loopback"], "ok");
  EXPECT_EQ(json["ok"], all_there(findings));
}

TEST(Doctor, SaysWhatToDo) {
  const std::vector<Finding> findings = {
      {"disk", Finding::State::Good, "enough", ""},
      {"devices", Finding::State::Missing, "none", "install one"}};
  EXPECT_EQ(findings_table(findings),
            "disk       ok       enough\ndevices    missing  none\n"
            "what to do\n  devices: install one\n");
  EXPECT_FALSE(all_there(findings));
  EXPECT_EQ(findings_table({findings[0]}), "disk       ok       enough\nno problem found\n");
}

TEST(Output, IsWholeOrAnError) {
  const Duration limit = std::chrono::seconds(20);
  const auto printed = output_of({"sh", "-c", "printf 'a\\nb'; echo c >&2"}, limit);
  ASSERT_TRUE(printed.ok()) << printed.error().message;
  EXPECT_EQ(printed.value(), "a\nb");
  EXPECT_EQ(output_of({"/nowhere/program"}, limit).error().code, Code::Invalid);
  EXPECT_EQ(output_of({"sh", "-c", "exit 3"}, limit).error().message, "sh ended with exit code 3");
  EXPECT_EQ(output_of({"sh", "-c", "kill -9 $$"}, limit).error().message,
            "sh was ended by signal 9");
  EXPECT_EQ(output_of({"sleep", "30"}, std::chrono::milliseconds(50)).error().code, Code::Timeout);
  // A process that closes its output and lives on.
  const std::vector<std::string> silent{"sh", "-c", "exec sleep 30 >&-"};
  EXPECT_EQ(output_of(silent, std::chrono::milliseconds(50)).error().code, Code::Timeout);
}

}  // namespace
}  // namespace tenuto
