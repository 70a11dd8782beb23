// The processes of a run with server shards: who is in which place, and what each is told.
#include "run/served_processes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "parameter_server/message_bytes.h"

namespace tenuto {
namespace {

using servers::ProcessKind;

Job two_and_two() {
  Job job;
  job.parallel.pipelines = 2;
  job.sync.architecture = "servers";
  job.sync.servers = 2;
  return job;
}

Report report_of(int32_t worker, int32_t incarnation, int64_t elements = 0) {
  Report report;
  report.worker = {worker};
  report.incarnation = incarnation;
  report.elements = elements;
  return report;
}

class ServedProcessesTest : public testing::Test {
 protected:
  // All come, with their first process.
  void let_all_come() {
    for (const int32_t worker : {0, 1}) places.hear(report_of(worker, 0, 100), {});
    for (const int32_t worker : {2, 3}) places.hear(report_of(worker, 0), {});
  }

  Job job = two_and_two();
  ServedProcesses places{job};
};

TEST_F(ServedProcessesTest, PartsComeBeforeServers) {
  ASSERT_EQ(places.all().size(), 4u);
  EXPECT_EQ(places.all()[1].process.kind, ProcessKind::Part);
  EXPECT_EQ(places.all()[1].process.replica, ReplicaId{1});
  EXPECT_EQ(places.all()[1].process.stage, StageId{0});
  EXPECT_EQ(places.all()[2].process.kind, ProcessKind::Server);
  EXPECT_EQ(name_of(places.all()[1]), "worker 1 (replica 1)");
  EXPECT_EQ(name_of(places.all()[3]), "worker 3 (server)");
}

TEST_F(ServedProcessesTest, AllAreHereWhenPartsKnowTheirParameters) {
  EXPECT_TRUE(places.elements().empty());
  for (const int32_t worker : {0, 1, 2, 3}) places.hear(report_of(worker, 0), {});
  EXPECT_FALSE(places.are_all_here());
  EXPECT_EQ(places.missing(), "worker 0 (replica 0), worker 1 (replica 1)");
  places.hear(report_of(0, 0, 100), {});
  EXPECT_EQ(places.elements(), std::vector<int64_t>{100});
  EXPECT_FALSE(places.are_all_here());
  places.hear(report_of(1, 0, 100), {});
  EXPECT_TRUE(places.are_all_here());
  EXPECT_EQ(places.missing(), "");
}

TEST_F(ServedProcessesTest, StrangersHaveNoPlace) {
  EXPECT_EQ(places.hear(report_of(4, 0), {}), nullptr);
  EXPECT_EQ(places.hear(report_of(-1, 0), {}), nullptr);
}

TEST_F(ServedProcessesTest, CommandsStayUntilTheyAreObeyed) {
  let_all_come();
  EXPECT_TRUE(places.hosted().empty());
  places.host(*places.at({2}), {0});
  places.command({0}, servers::StopCommand{});
  places.command({0}, servers::FinishCommand{});
  places.command({9}, servers::StopCommand{});  // a process that is not there
  std::vector<Hosted> hosted = places.hosted();
  ASSERT_EQ(hosted.size(), 1u);
  EXPECT_EQ(hosted[0].worker, WorkerId{2});
  EXPECT_EQ(hosted[0].process, WorkerId{0});
  ASSERT_EQ(hosted[0].commands.size(), 2u);
  EXPECT_EQ(hosted[0].commands[0].serial, 1);
  EXPECT_EQ(hosted[0].commands[1].serial, 2);
  Report obeys = report_of(2, 0);
  obeys.obeyed = 1;
  places.hear(obeys, {});
  hosted = places.hosted();
  ASSERT_EQ(hosted[0].commands.size(), 1u);
  const std::string& bytes = hosted[0].commands[0].bytes;
  const auto command =
      servers::decode_command(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())));
  ASSERT_TRUE(command.ok());
  EXPECT_TRUE(std::holds_alternative<servers::FinishCommand>(command.value()));
}

TEST_F(ServedProcessesTest, EachReportIsTakenOnce) {
  let_all_come();
  ServedPlace& place = *places.at({0});
  places.host(place, {2});
  Report report = report_of(0, 0, 100);
  report.said = {{1, "a"}, {2, "b"}};
  EXPECT_EQ(ServedProcesses::take_said(place, report), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(places.hosted()[0].heard, 2);
  report.said = {{1, "a"}, {2, "b"}, {3, "c"}};
  EXPECT_EQ(ServedProcesses::take_said(place, report), std::vector<std::string>{"c"});
  report.said = {{5, "e"}};
  EXPECT_TRUE(ServedProcesses::take_said(place, report).empty());
  EXPECT_EQ(places.hosted()[0].heard, 3);
}

TEST_F(ServedProcessesTest, ALostProcessDoesNotComeBack) {
  let_all_come();
  ServedPlace& place = *places.at({0});
  places.host(place, {2});
  places.command({2}, servers::StopCommand{});
  places.lose(place);
  EXPECT_FALSE(place.is_taken());
  EXPECT_EQ(place.deaths, 1);
  EXPECT_EQ(places.at_process({2}), nullptr);
  EXPECT_TRUE(places.hosted().empty());
  EXPECT_EQ(places.hear(report_of(0, 0, 100), {}), nullptr);
  EXPECT_EQ(places.hear(report_of(0, 1, 100), {}), &place);
  EXPECT_EQ(place.incarnation, 1);
  places.host(place, {4});
  EXPECT_TRUE(places.hosted()[0].commands.empty());
  EXPECT_EQ(places.hosted()[0].heard, 0);
  EXPECT_EQ(places.at_process({4}), &place);
}

// A process that another one has lost stays suspect; one whose stream has ended may open another.
TEST_F(ServedProcessesTest, AReportEndsASuspicion) {
  let_all_come();
  ServedPlace& place = *places.at({0});
  place.suspect_since = Duration{};
  places.hear(report_of(0, 0, 100), {});
  EXPECT_FALSE(place.suspect_since.has_value());
  place.suspect_since = Duration{};
  place.is_declared_lost = true;
  places.hear(report_of(0, 0, 100), {});
  EXPECT_TRUE(place.suspect_since.has_value());
}

TEST_F(ServedProcessesTest, WhatWasMissedInSleepIsForgiven) {
  places.hear(report_of(0, 0), std::chrono::seconds(3));
  places.forgive(std::chrono::seconds(2));
  EXPECT_EQ(places.all()[0].heard_at, std::chrono::seconds(5));
}

// In other modes than synchronous a job needs no servers.
TEST(ProcessesWithoutServers, AllAreParts) {
  Job job = two_and_two();
  job.sync.architecture = "all-reduce";
  job.sync.mode = "asynchronous";
  ServedProcesses places(job);
  ASSERT_EQ(places.all().size(), 2u);
  for (const ServedPlace& place : places.all()) {
    EXPECT_EQ(place.process.kind, ProcessKind::Part);
    EXPECT_EQ(place.process.replica.value, place.worker.value);
  }
  EXPECT_EQ(places.hear(report_of(2, 0), {}), nullptr) << "there is no server";
  for (const int32_t worker : {0, 1}) places.hear(report_of(worker, 0, 100), {});
  EXPECT_TRUE(places.are_all_here());
}

// Worker w is stage w mod 2 of replica w / 2.
TEST(StagedProcesses, EachStageHasAPlace) {
  Job job = two_and_two();
  job.parallel.stages = 2;
  ServedProcesses places(job);
  ASSERT_EQ(places.all().size(), 6u);
  EXPECT_EQ(places.all()[3].process.replica, ReplicaId{1});
  EXPECT_EQ(places.all()[3].process.stage, StageId{1});
  EXPECT_EQ(name_of(places.all()[3]), "worker 3 (replica 1, stage 1)");
  EXPECT_EQ(name_of(places.all()[4]), "worker 4 (server)");
  places.hear(report_of(0, 0, 100), {});
  EXPECT_TRUE(places.elements().empty()) << "nobody has stage 1";
  places.hear(report_of(3, 0, 60), {});
  EXPECT_EQ(places.elements(), (std::vector<int64_t>{100, 60}));
}

TEST(StagedProcesses, AReplicaNeedsAllItsStages) {
  Job job = two_and_two();
  job.parallel.stages = 2;
  ServedProcesses places(job);
  const auto nobody = [](const ServedPlace&) { return false; };
  EXPECT_FALSE(places.may_have_replica(nobody));
  places.hear(report_of(0, 0, 100), {});
  places.hear(report_of(3, 0, 60), {});
  EXPECT_FALSE(places.may_have_replica(nobody)) << "each replica has one of two stages";
  EXPECT_TRUE(places.may_have_replica(
      [](const ServedPlace& place) { return place.worker == WorkerId{2}; }));
  places.hear(report_of(1, 0, 60), {});
  EXPECT_TRUE(places.may_have_replica(nobody));
}

}  // namespace
}  // namespace tenuto
