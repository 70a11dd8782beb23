// tenuto collective: figures, refusals, exit codes, the picture.
#include "app/collective.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "collective/algorithm.h"

namespace tenuto {
namespace {

using Run = int (*)(const CollectiveOptions&, std::ostream&, std::ostream&);

nlohmann::json told(Run run, CollectiveOptions options, int code = 0) {
  options.json = true;
  std::ostringstream out, errors;
  EXPECT_EQ(run(options, out, errors), code) << errors.str();
  return nlohmann::json::parse(out.str());
}

// Refused with `code`: one sentence on stderr, nothing on stdout.
std::string refused(Run run, const CollectiveOptions& options, int code) {
  std::ostringstream out, errors;
  EXPECT_EQ(run(options, out, errors), code);
  EXPECT_EQ(out.str(), "");
  return errors.str();
}

// A file of this test's own, removed at its end.
class Scratch {
 public:
  explicit Scratch(const std::string& name)
      : path_(testing::TempDir() + "tenuto-" + std::to_string(::getpid()) + name) {}
  ~Scratch() { std::filesystem::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(CollectiveCommand, ListsTheTable) {
  CollectiveOptions options;
  options.json = true;
  std::ostringstream out;
  EXPECT_EQ(run_collective_list(options, out), 0);
  const auto tree = nlohmann::json::parse(out.str());
  ASSERT_EQ(tree["algorithms"].size(), algorithms().size());
  EXPECT_EQ(tree["algorithms"][4]["name"], "late-one");
  EXPECT_EQ(tree["algorithms"][4]["late_members"], true);
}

TEST(CollectiveCommand, CheckReadsWhatShowPrints) {
  CollectiveOptions options;
  options.algorithm = "late-one";
  options.late = "2";
  const Scratch file("collective.txt"), picture("collective.svg");
  options.picture = picture.path();
  std::ostringstream out, errors;
  ASSERT_EQ(run_collective_show(options, out, errors), 0) << errors.str();
  std::ofstream(file.path()) << out.str();
  CollectiveOptions read;
  read.file = file.path();
  const auto right = told(run_collective_check, read);
  EXPECT_EQ(right["ok"], true);
  EXPECT_EQ(right["rounds"], 15);
  EXPECT_EQ(right["port_messages"], 1);
  const std::string svg = read_file(picture.path()).value();
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("2 late"), std::string::npos);
  // Without its last round it is refused.
  std::string text = out.str();
  text.resize(text.rfind("  round"));
  std::ofstream(file.path()) << text;
  EXPECT_EQ(told(run_collective_check, read, 3)["ok"], false);
  EXPECT_NE(refused(run_collective_check, read, 3).find(" is refused: worker "), std::string::npos);
}

TEST(CollectiveCommand, Prices) {
  CollectiveOptions options;
  options.members = 8;
  options.bytes = 1 << 20;
  const auto ring = told(run_collective_price, options);
  EXPECT_EQ(ring["algorithm"], "ring");
  EXPECT_EQ(ring["rounds"], 14);
  EXPECT_EQ(ring["bytes_per_member"], (1 << 20) / 8 * 14);
  EXPECT_NEAR(ring["finish_ms"].get<double>(), 0.287, 0.001);
  options.algorithm = "auto";
  EXPECT_EQ(told(run_collective_price, options)["algorithm"], "halving");
  options.late = "3:20";
  const auto late = told(run_collective_price, options);
  EXPECT_EQ(late["algorithm"], "late-one");
  EXPECT_NEAR(late["after_last_arrival_ms"].get<double>(), 0.186, 0.001);
  EXPECT_EQ(late["chunks"], 4);
  options.algorithm = "ring";
  options.slow_link = "0-1:0.5";
  EXPECT_GT(told(run_collective_price, options)["finish_ms"].get<double>(), 20.3);
  // All links of a member at half their rate.
  options.slow_link = "5:0.5";
  options.late = "";
  options.bytes = 256 << 20;
  EXPECT_NEAR(told(run_collective_price, options)["finish_ms"].get<double>(), 75.3, 0.1);
  options.algorithm = "auto";
  const auto slow = told(run_collective_price, options);
  EXPECT_EQ(slow["algorithm"], "slow-one");
  EXPECT_LT(slow["finish_ms"].get<double>(), 48);
}

TEST(CollectiveCommand, Refusals) {
  CollectiveOptions options;
  options.algorithm = "late-one";
  EXPECT_EQ(refused(run_collective_show, options, 3),
            "tenuto collective: late-one of 8 members takes 1 late one, found 0\n");
  options.late = "8";
  EXPECT_EQ(refused(run_collective_show, options, 2),
            "tenuto collective: --late 8: expected RANK, separated by commas, with ranks of 0 to "
            "7, found '8'\n");
  options.late = "3";
  EXPECT_EQ(
      refused(run_collective_price, options, 2),
      "tenuto collective: --late 3: expected RANK:MS with 0 to 1e9 ms, separated by commas, with "
      "ranks of 0 to 7, found '3'\n");
  options = {};
  options.algorithm = "rings";
  EXPECT_EQ(refused(run_collective_check, options, 2),
            "tenuto collective: there is no algorithm 'rings': did you mean 'ring'?\n");
  options = {};
  options.members = 0;
  EXPECT_EQ(refused(run_collective_price, options, 2),
            "tenuto collective: --members 0: expected 1 to 4096\n");
  options = {};
  options.slow_link = "1-1:2";
  EXPECT_EQ(
      refused(run_collective_price, options, 2),
      "tenuto collective: --slow-link 1-1:2: expected RANK-RANK:FACTOR, or RANK:FACTOR for all "
      "links of a member, separated by commas, with a factor of 1e-6 to 1, found '1-1:2'\n");
  for (const char* wrong : {"1", "9:0.5", "1-:0.5", ":0.5", "1:", "1:0-5"}) {
    options.slow_link = wrong;
    EXPECT_NE(refused(run_collective_price, options, 2), "") << wrong;
  }
  options = {};
  options.file = "/nowhere/mine.txt";
  EXPECT_NE(refused(run_collective_check, options, 2), "");
}

}  // namespace
}  // namespace tenuto
