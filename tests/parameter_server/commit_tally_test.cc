// What a decider has committed, and the age of its gradients: by hand, and as the audit of a run
// measures it.
#include "parameter_server/commit_tally.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/random.h"
#include "parameter_server/account.h"

namespace tenuto::servers {
namespace {

constexpr Mass kIteration{4};

// A work of this replica that has read the version.
Work work_on(int64_t version, int32_t replica, int64_t mass = kIteration.micros) {
  Work work;
  work.offer = {{replica}, {0}, {version}, {mass}};
  return work;
}

// A decider's record, and what happens to it.
struct Decisions {
  void open(int64_t version, int32_t replica) {
    record.open.push_back({work_on(version, replica), false, false});
  }
  void decide(const std::vector<Work>& works) {
    DecidedUpdate one;
    one.update.number = record.updates_decided++;
    one.update.version = record.version;
    one.works = works;
    for (const Work& work : works) {
      one.update.members.push_back(work.offer);
      record.applied += work.offer.mass;
    }
    record.updates.push_back(one);
    record.version = record.version + 1;
  }
  void commit(int64_t version) {
    record.committed = {version};
    std::erase_if(record.updates,
                  [&](const DecidedUpdate& one) { return one.update.version < record.committed; });
  }

  Record record;
};

TEST(CommitTally, AgesAreThoseOfTheWorksSinceTheReportBefore) {
  Decisions run;
  CommitTally tally(kIteration);
  run.open(0, 2);
  tally.look(run.record);
  EXPECT_FALSE(tally.take().has_value());
  // Each of two has half of the other one's mass as its age.
  run.decide({work_on(0, 0), work_on(0, 1)});
  tally.look(run.record);
  EXPECT_FALSE(tally.take().has_value()) << "nothing is committed yet";
  run.record.dropped = {3};
  run.commit(1);
  tally.look(run.record);
  auto report = tally.take();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->version, Version{1});
  EXPECT_EQ(report->applied, Mass{8});
  EXPECT_EQ(report->dropped, Mass{3});
  EXPECT_EQ(report->works, 2);
  EXPECT_DOUBLE_EQ(report->age, 0.5);
  EXPECT_FALSE(tally.take().has_value());
  // The third one has read the version before; what is not committed is not applied yet.
  run.decide({work_on(0, 2)});
  tally.look(run.record);
  run.record.open.clear();
  run.commit(2);
  run.decide({work_on(2, 0)});
  tally.look(run.record);
  report = tally.take();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->version, Version{2});
  EXPECT_EQ(report->applied, Mass{12});
  EXPECT_EQ(report->works, 2);
  EXPECT_DOUBLE_EQ(report->age, (2.0 + 0.0) / 2);
}

// What another decider has decided is not counted again, but it is said how far the run is.
TEST(CommitTally, ADeciderThatTakesOverSaysWhereTheRunIs) {
  Decisions run;
  for (int64_t version = 0; version < 5; ++version) run.decide({work_on(version, 0)});
  run.commit(3);
  CommitTally tally(kIteration);
  tally.look(run.record);
  auto report = tally.take();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->version, Version{3});
  EXPECT_EQ(report->applied, Mass{12});
  EXPECT_EQ(report->works, 0);
  EXPECT_EQ(report->age, 0);
  run.decide({work_on(5, 1)});
  tally.look(run.record);
  run.commit(6);
  tally.look(run.record);
  report = tally.take();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->applied, Mass{24});
  EXPECT_EQ(report->works, 1);
}

// When only the epoch of full keepers is newer, that is said, and no work is said too early.
TEST(CommitTally, AnEpochWhoseKeepersHaveTheirRangesIsSaidOnce) {
  Decisions run;
  CommitTally tally(kIteration);
  tally.look(run.record);
  tally.note_filled(1);
  auto report = tally.take();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->filled, 1);
  EXPECT_EQ(report->version, Version{0});
  EXPECT_FALSE(tally.take().has_value());
  run.decide({work_on(0, 0), work_on(0, 1)});
  tally.look(run.record);
  tally.note_filled(3);
  tally.note_filled(2);
  report = tally.take();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->filled, 3);
  EXPECT_EQ(report->version, Version{0});
  EXPECT_EQ(report->works, 0);
  EXPECT_EQ(report->age, 0);
  run.commit(1);
  tally.look(run.record);
  report = tally.take();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->filled, 3);
  EXPECT_EQ(report->version, Version{1});
  EXPECT_EQ(report->works, 2);
  EXPECT_DOUBLE_EQ(report->age, 0.5);
  EXPECT_FALSE(tally.take().has_value());
}

// A long run of works that read one of the last four versions.
TEST(CommitTally, AgesAreThoseOfTheAudit) {
  Random random(3);
  Decisions run;
  CommitTally tally(kIteration);
  std::vector<AppliedLine> lines;
  double sum = 0;
  int64_t mass = 0;
  for (int64_t version = 0; version < 500; ++version) {
    const int64_t oldest = std::max<int64_t>(0, version - 3);
    run.record.open.clear();
    run.open(oldest, 9);
    tally.look(run.record);
    std::vector<Work> works;
    int64_t own = 0;
    const auto replicas = static_cast<int32_t>(1 + random.below(3));
    for (int32_t replica = 0; replica < replicas; ++replica) {
      const int64_t read = oldest + random.below(version - oldest + 1);
      works.push_back(work_on(read, replica, 1 + random.below(8)));
      own += works.back().offer.mass.micros;
    }
    run.decide(works);
    lines.push_back({{0}, {version}, version, std::chrono::milliseconds(version), works});
    tally.look(run.record);
    run.commit(version + 1);
    tally.look(run.record);
    const auto report = tally.take();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->version, Version{version + 1});
    EXPECT_EQ(report->works, std::ssize(works));
    if (version == 0) continue;  // there the audit begins to measure
    sum += report->age * static_cast<double>(own);
    mass += own;
  }
  const SyncMeasure measure = measure_updates(lines, std::chrono::seconds(9), kIteration);
  EXPECT_NEAR(sum / static_cast<double>(mass), measure.mean_age, 1e-9);
}

}  // namespace
}  // namespace tenuto::servers
