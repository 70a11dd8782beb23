// The texts made of a snapshot: JSON for the page's script, metrics for Prometheus, and whether the
// dashboard of Grafana asks only for metrics that there are.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "page/metrics.h"
#include "page/state_json.h"
#include "some_run.h"
#include "source_tree.h"

namespace tenuto::page {
namespace {

const std::vector<Promise>& promises() {
  static const std::vector<Promise> all = {{0, 0.5, "zb-h1"}, {1, 0.25, "1f1b"}};
  return all;
}

TEST(StateJson, HasWhatTheScriptReads) {
  const Snapshot run = some_run();
  const std::string text = with_events(state_text(run, promises()), run.history, 1);
  EXPECT_EQ(
      text,
      "{\"job\":\"tale\",\"situation\":\"running\",\"step\":2,\"steps\":10,\"epoch\":3,"
      "\"saved\":1,\"mode\":\"synchronous\","
      "\"plan\":{\"order\":\"1f1b\",\"serial\":4,\"from\":1,\"why\":\"a link is slow\"},"
      "\"treatment\":\"act\","
      "\"slow_links\":\"adapt\",\"slow_workers\":\"observe\",\"layers\":\"\",\"mass\":null,\"age\":"
      "null,\"coordinator_cpu_seconds\":0.75,"
      "\"plan_changes\":1,\"faults\":1,"
      "\"workers\":[{\"worker\":0,\"kind\":\"worker\",\"stages\":[0,1],\"pipeline\":0,"
      "\"state\":\"healthy\",\"reason\":\"\",\"ranges\":0,\"seconds\":{\"whole\":1.0,"
      "\"forward\":0.25,\"backward\":0.5,\"weight\":0.125,\"copies\":0.0,\"waiting\":0.125}},"
      "{\"worker\":1,\"kind\":\"worker\",\"stages\":[],\"pipeline\":null,\"state\":\"dead\","
      "\"reason\":\"it said \\\"no\\\"\",\"ranges\":0,\"seconds\":null}],"
      "\"links\":[{\"first\":0,\"second\":1,\"slow\":true,\"round_trip_seconds\":0.5,"
      "\"network_round_trip_seconds\":null,\"bytes_per_second\":[2000.0,null],\"repeated\":0}],"
      "\"links_left_out\":0,"
      "\"alternatives\":[{\"name\":\"move layers\",\"step_seconds\":0.25,"
      "\"change_seconds\":null,\"total_seconds\":40.0,\"progress\":null,\"chosen\":true}],"
      "\"compared_in\":1,"
      "\"promises\":[{\"from\":0,\"seconds\":0.5,\"plan\":\"zb-h1\"},"
      "{\"from\":1,\"seconds\":0.25,\"plan\":\"1f1b\"}],"
      "\"history\":[{\"step\":0,\"loss\":2.5,\"seconds\":0.5},"
      "{\"step\":1,\"loss\":null,\"seconds\":0.25}],"
      "\"validations\":[{\"step\":1,\"loss\":2.75,\"accuracy\":0.5}],\"serial\":2,"
      "\"events\":[{\"serial\":2,\"event\":\"death\",\"epoch\":3,\"step\":1,"
      "\"reason\":\"worker 1 was killed\"}]}");
}

TEST(StateJson, IsJsonWhateverBytesASentenceHas) {
  Snapshot run = some_run();
  run.why = "\xff\xfe \x01 </script>";
  run.history.add_step({2, std::nan(""), 0});
  run.history.add_validation({2, std::nan(""), std::nullopt});
  const std::string text = with_events(state_text(run, {}), run.history, 0);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_TRUE(json["history"][2]["loss"].is_null());
  EXPECT_TRUE(json["validations"][1]["loss"].is_null());
  EXPECT_EQ(json["events"].size(), 2u);
}

TEST(Metrics, AreTheTextOfPrometheus) {
  Snapshot run = some_run();
  run.mass = 64;
  run.age = 1.5;
  std::string values;
  std::istringstream lines(metrics_text(run, promises()));
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      last = line.substr(7, line.rfind(' ') - 7);
    } else if (!line.starts_with("# HELP ")) {
      EXPECT_EQ(line.substr(0, line.find_first_of("{ ")), last) << "its type comes before it";
      values += line + "\n";
    }
  }
  EXPECT_EQ(values,
            "tenuto_run_info{job=\"tale\",situation=\"running\",mode=\"synchronous\","
            "plan=\"1f1b\"} 1\n"
            "tenuto_step 2\n"
            "tenuto_steps 10\n"
            "tenuto_epoch 3\n"
            "tenuto_checkpoint_step 1\n"
            "tenuto_loss 2.5\n"
            "tenuto_validation_loss 2.75\n"
            "tenuto_validation_accuracy 0.5\n"
            "tenuto_step_seconds 0.25\n"
            "tenuto_training_seconds_total 0.75\n"
            "tenuto_promised_step_seconds 0.25\n"
            "tenuto_workers{state=\"healthy\"} 1\n"
            "tenuto_workers{state=\"slow\"} 0\n"
            "tenuto_workers{state=\"joining\"} 0\n"
            "tenuto_workers{state=\"dead\"} 1\n"
            "tenuto_workers{state=\"absent\"} 0\n"
            "tenuto_worker_step_seconds{worker=\"0\",stage=\"0,1\",pipeline=\"0\"} 1\n"
            "tenuto_worker_busy_seconds{worker=\"0\",stage=\"0,1\",pipeline=\"0\"} 0.875\n"
            "tenuto_link_round_trip_seconds{first=\"0\",second=\"1\"} 0.5\n"
            "tenuto_link_bytes_per_second{first=\"0\",second=\"1\",to=\"1\"} 2000\n"
            "tenuto_link_slow{first=\"0\",second=\"1\"} 1\n"
            "tenuto_plan_changes_total 1\n"
            "tenuto_faults_total 1\n"
            "tenuto_mass_micro_batches 64\n"
            "tenuto_gradient_age 1.5\n"
            "tenuto_coordinator_cpu_seconds_total 0.75\n");
}

TEST(Metrics, EscapeLabelsAndWriteNumbersThatAreNone) {
  Snapshot run = some_run();
  run.job = "a\"b\\c\nd";
  run.history.add_step({2, std::nan(""), 0});
  const std::string text = metrics_text(run, {});
  EXPECT_NE(text.find("job=\"a\\\"b\\\\c\\nd\""), std::string::npos) << text;
  EXPECT_NE(text.find("tenuto_loss NaN\n"), std::string::npos) << text;
}

TEST(Metrics, OfTheDashboardAreThere) {
  const auto text = read_file(source_tree() + "/docs/grafana-dashboard.json");
  ASSERT_TRUE(text.ok()) << text.error().message;
  ASSERT_TRUE(nlohmann::json::parse(text.value(), nullptr, false).is_object());
  const std::vector<std::string> names = metric_names();
  const std::set<std::string> known(names.begin(), names.end());
  const std::regex name("tenuto_[a-z_]+");
  std::set<std::string> asked;
  for (std::sregex_iterator found(text.value().begin(), text.value().end(), name), end;
       found != end; ++found) {
    asked.insert(found->str());
    EXPECT_EQ(known.count(found->str()), 1u) << found->str();
  }
  EXPECT_GE(asked.size(), 10u);
}

}  // namespace
}  // namespace tenuto::page
