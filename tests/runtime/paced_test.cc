// The paced device by itself: lengths, lag, taking a Step back, files.
#include "runtime/paced.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "test_cluster.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tenuto-paced-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Paced, LengthsAreThoseOfTheStage) {
  DeviceSettings device;
  device.forward_ms = {1, 2};
  device.backward_input_ms = {3};
  device.backward_weight_ms = {0.5, 4};
  EXPECT_EQ(paced_length(device, true, OpKind::Forward, {1}), milliseconds(2));
  EXPECT_EQ(paced_length(device, true, OpKind::Evaluate, {0}), milliseconds(1));
  EXPECT_EQ(paced_length(device, true, OpKind::BackwardInput, {1}), milliseconds(3));
  EXPECT_EQ(paced_length(device, true, OpKind::BackwardWeight, {0}), Duration(500'000));
  EXPECT_EQ(paced_length(device, false, OpKind::BackwardInput, {1}), milliseconds(7));
  EXPECT_EQ(paced_length(device, false, OpKind::BackwardWeight, {1}), Duration(0));
  EXPECT_EQ(paced_length(device, false, OpKind::Step, {1}), Duration(0));
}

TEST(Paced, UndoTakesTheLastStepBackExactly) {
  const Job job = instant_job(2, 2, 3);
  TestCluster cluster(job, plan_of(job));
  cluster.connect();
  ASSERT_TRUE(cluster.run(0, 2)[0].status.ok());
  std::vector<std::vector<float>> before;
  for (int32_t w = 0; w < 4; ++w) before.push_back(cluster.device(w).weights());
  ASSERT_TRUE(cluster.run(2, 1)[0].status.ok());
  for (int32_t w = 0; w < 4; ++w) {
    PacedCompute& device = cluster.device(w);
    EXPECT_NE(device.weights(), before[static_cast<size_t>(w)]);
    ASSERT_TRUE(device.undo().ok());
    EXPECT_EQ(device.weights(), before[static_cast<size_t>(w)]);
    EXPECT_EQ(device.version(), 2);
    const Status again = device.undo();
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, Code::Invalid);
  }
}

TEST(Paced, FilesContinueTheRun) {
  const Folder folder;
  const Job job = instant_job(2, 1, 3);
  const Plan plan = plan_of(job);
  PlainRun plain(job);
  std::vector<StepOutcome> outcomes;
  for (int step = 0; step < 4; ++step) outcomes.push_back(plain.step());
  const std::vector<std::string> files{folder.file("b"), folder.file("a")};
  {
    TestCluster first(job, plan);
    first.connect();
    ASSERT_TRUE(first.run(0, 2)[0].status.ok());
    ASSERT_TRUE(first.device(0).save(files[0]).ok());
    ASSERT_TRUE(first.device(1).save(files[1]).ok());
  }
  TestCluster second(job, plan);
  second.connect();
  for (int32_t w = 0; w < 2; ++w) ASSERT_TRUE(second.device(w).load(files, 2).ok());
  outcomes.erase(outcomes.begin(), outcomes.begin() + 2);
  expect_equal_runs(second, second.run(2, 2), outcomes, plain);
}

TEST(Paced, DamagedFilesAreRefused) {
  const Folder folder;
  const Job job = instant_job(2, 1, 1);
  QueueMailbox mailbox;
  const auto device = make_paced(job, plan_of(job), {1}, monotonic_clock(), mailbox);
  const std::string path = folder.file("shard");
  ASSERT_TRUE(device->save(path).ok());
  EXPECT_FALSE(fs::exists(path + ".part"));
  const std::vector<float> weights = device->weights();
  const std::string whole = read_all(path);
  const auto refused = [&](const std::vector<std::string>& paths, int64_t version) {
    const Status status = device->load(paths, version);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(device->weights(), weights);
    return status.ok() ? std::string() : status.error().message;
  };
  ASSERT_TRUE(device->load({path}, 0).ok());
  EXPECT_NE(refused({path}, 3).find("expected version 3 and 2 stages"), std::string::npos);
  EXPECT_NE(refused({}, 0).find("none of 0 files holds stage.1.weight"), std::string::npos);
  EXPECT_NE(refused({folder.file("none")}, 0).find("cannot read"), std::string::npos);
  for (const size_t length : {size_t{0}, size_t{5}, size_t{20}, whole.size() - 1}) {
    write_all(path, whole.substr(0, length));
    EXPECT_NE(refused({path}, 0).find("cut off"), std::string::npos) << length;
  }
  for (size_t at = 0; at < 8; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    write_all(path, damaged);
    refused({path}, 0);
  }
  const Job other = instant_job(4, 1, 1);
  const auto stranger = make_paced(other, plan_of(other), {1}, monotonic_clock(), mailbox);
  write_all(path, whole);
  EXPECT_FALSE(stranger->load({path}, 0).ok());
  const Status nowhere = device->save(folder.file("no/such/folder"));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("cannot create"), std::string::npos);
}

TEST(Paced, ABeginOnAnotherVersionIsRefused) {
  const Job job = instant_job(1, 1, 1);
  QueueMailbox mailbox;
  const auto device = make_paced(job, plan_of(job), {0}, monotonic_clock(), mailbox);
  const Status status = device->begin(3);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "step 3 begins on version 0 of the parameters");
}

TEST(Paced, APauseBetweenStepsSetsTheClock) {
  HandClock clock;
  Job job = instant_job(1, 1, 1);
  job.device.clock = "nominal";
  job.device.forward_ms = {5};
  TestCluster cluster(job, plan_of(job), clock);
  cluster.connect();
  const auto first_start = [&](int64_t step) {
    const std::vector<WorkerRun> runs = cluster.run(step, 1);
    EXPECT_TRUE(runs[0].status.ok());
    return runs[0].status.ok() ? runs[0].events[0].front().start : Duration(-1);
  };
  EXPECT_EQ(first_start(0), milliseconds(0));
  clock.advance(milliseconds(9));  // 4 ms behind: no pause, the nominal clock goes on at 5
  EXPECT_EQ(first_start(1), milliseconds(5));
  clock.advance(milliseconds(20));  // 19 ms behind: a pause
  EXPECT_EQ(first_start(2), milliseconds(29));
}

TEST(Lag, IsJudgedByTheTypicalOp) {
  LagRecord record;
  EXPECT_TRUE(record.summary().valid());
  for (int i = 1; i <= 100; ++i) record.note(Duration(i * 10), milliseconds(1));
  for (int i = 0; i < 50; ++i) record.note(Duration(-5), Duration(0));
  const Lag lag = record.summary();
  EXPECT_EQ(lag.ops, 150);
  EXPECT_EQ(lag.typical_op, milliseconds(1));
  EXPECT_EQ(lag.median, Duration(250));
  EXPECT_EQ(lag.worst, Duration(1000));
  EXPECT_TRUE(lag.valid());
  for (int i = 0; i < 5; ++i) record.note(milliseconds(1), milliseconds(1));
  EXPECT_FALSE(record.summary().valid());
}

}  // namespace
}  // namespace tenuto
