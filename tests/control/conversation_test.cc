// The conversation of worker and coordinator over real gRPC, with both ends in one process.
#include "control/conversation.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "control/server.h"
#include "ir/text.h"
#include "protocol/addresses.h"
#include "protocol/client.h"
#include "protocol/credentials.h"
#include "protocol/message.grpc.pb.h"
#include "protocol/wire.h"

// gRPC and protobuf are not built with the sanitizer, so it cannot see how they pass memory between
// threads; ignore reports from them. The project's own code is checked in full.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }

namespace tenuto {
namespace {

// Values with and without a micro-batch, sorted.
const std::vector<Value> kSome = {{ValueKind::Activation, -1, {0}, {0}},
                                  {ValueKind::Activation, -1, {0}, {6}},
                                  {ValueKind::Total, 1, {2}, {}},
                                  {ValueKind::ClipDecision, -1, {0}, {}}};

// A plan of two workers, with this name of its order, as JSON.
std::string plan_text(const std::string& order) {
  Plan plan;
  plan.order = order;
  plan.stages = {{0, 1, {{0}}}};
  plan.schedule.lists.resize(2);
  return to_json(plan);
}

TEST(Conversation, ReportsAndInstructionsArrive) {
  Coordinator coordinator;
  Instruction instruction;
  instruction.sequence = 1;
  instruction.directive.members = {{0}, {1}};
  instruction.addresses = {"", "here:1"};
  instruction.incarnations = {-1, 2};
  instruction.joiners = {{{0}, 3, {{0}, {2}}, {{4}, {5}}, 6}};
  coordinator.server->tell(instruction, plan_text("1f1b"));
  Singer singer(settings_for(coordinator, 1), {.version = 3, .address = "here:1"});
  ASSERT_TRUE(coordinator.hears(1, false, 3));
  EXPECT_EQ(coordinator.last[1].address, "here:1");
  ASSERT_TRUE(singer.until([&] { return singer.client->told() != nullptr; }));
  const auto first = singer.client->told();
  EXPECT_EQ(first->instruction, instruction);
  ASSERT_TRUE(first->plan);
  EXPECT_EQ(first->plan->order, "1f1b");
  EXPECT_EQ(*first->job_toml, "# settings");
  instruction.sequence = 2;
  instruction.directive.committed = 7;
  instruction.save_version = 8;
  instruction.savers = {{1}};
  instruction.save_directory = "runs/choir/checkpoint-8.tmp";
  coordinator.server->tell(instruction);
  ASSERT_TRUE(singer.until([&] { return singer.client->told()->instruction.sequence == 2; }));
  EXPECT_EQ(singer.client->told()->instruction, instruction);
  EXPECT_EQ(singer.client->told()->plan, first->plan);  // kept, not sent again
  instruction.sequence = 3;
  instruction.plan_serial = 2;
  instruction.plan_from = -1;
  Fault fault;
  fault.link = 3;
  fault.latency_ms = 12.5;
  fault.at_step = 9;
  fault.until_step = 11;
  instruction.faults = {fault};
  instruction.trace_from = 9;
  instruction.trace_until = 12;
  coordinator.server->tell(instruction, plan_text("gpipe"));
  ASSERT_TRUE(singer.until([&] { return singer.client->told()->instruction.sequence == 3; }));
  EXPECT_EQ(singer.client->told()->instruction, instruction);
  EXPECT_EQ(singer.client->told()->plan->order, "gpipe");
  // A worker that comes later gets only the newest plan.
  Singer late(settings_for(coordinator, 0), {});
  ASSERT_TRUE(late.until([&] { return late.client->told() != nullptr; }));
  EXPECT_EQ(late.client->told()->plan->order, "gpipe");
}

// A plan of many micro-batches is longer than gRPC's default limit, and than a worker's message may
// be.
TEST(Conversation, ALongPlanArrives) {
  Coordinator coordinator;
  Instruction instruction;
  instruction.sequence = 1;
  instruction.directive.members = {{0}, {1}};
  const std::string plan = plan_text("1f1b");
  const std::string space(size_t{80} << 20, ' ');  // the text is as long as one of very many ops
  coordinator.server->tell(instruction, plan + space);
  Singer singer(settings_for(coordinator, 1), {.version = 3});
  ASSERT_TRUE(singer.until([&] { return singer.client->told() != nullptr; })) << singer.end();
  ASSERT_TRUE(singer.client->told()->plan);
  EXPECT_EQ(to_json(*singer.client->told()->plan), plan);
}

TEST(Conversation, QuestionsAreAnswered) {
  Coordinator coordinator;
  const std::string address = coordinator.server->address();
  std::atomic<bool> over = false;
  std::thread answering([&] {
    while (!over) {
      for (const Question& question : coordinator.server->take_questions()) {
        const bool known = question.text == "status";
        coordinator.server->answer(question.id, known ? "all is well" : "",
                                   known ? "" : "nobody knows");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < 3; ++i) {
    const auto answer = ask_coordinator(address, "choir", "secret", "status", kLimit);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer.value(), "all is well");
  }
  EXPECT_EQ(ask_coordinator(address, "choir", "secret", "sing", kLimit).error().message,
            "nobody knows");
  // The coordinator has moved to the last of its addresses.
  const auto moved =
      ask_coordinator("127.0.0.1:1,127.0.0.1:2," + address, "choir", "secret", "status", kLimit);
  ASSERT_TRUE(moved.ok()) << moved.error().message;
  EXPECT_EQ(moved.value(), "all is well");
  const auto stranger = ask_coordinator(address, "choir", "guessed", "status", kLimit);
  EXPECT_NE(stranger.error().message.find("token"), std::string::npos);
  over = true;
  answering.join();
  const auto nobody =
      ask_coordinator("127.0.0.1:1", "choir", "secret", "status", std::chrono::milliseconds(300));
  EXPECT_EQ(nobody.error().code, Code::Disconnected);
}

TEST(Conversation, EveryFieldOfAReportArrives) {
  Report report{.worker = {1},
                .incarnation = 0,
                .term = 2,
                .epoch = 3,
                .phase = Phase::Running,
                .version = 5,
                .seen = 4,
                .address = "a:1",
                .connected = true,
                .steps = {{.step = 4,
                           .losses = {{{0}, 1.5}, {{2}, 0.1}},
                           .evaluation = {{{8}, 2.5, 0.75}},
                           .gradient_norm = 3.25,
                           .learning_rate = 1e-3,
                           .finite = false,
                           .broken_off = true,
                           .start_ns = 10,
                           .finish_ns = 20,
                           .lag_p99_ns = 30,
                           .lag_valid = false,
                           .to_host_ns = 40,
                           .to_device_ns = 50,
                           .staged_messages = 6,
                           .direct_messages = 7,
                           .sample = {{1},
                                      4,
                                      {{.from = {0},
                                        .to = {1},
                                        .messages = 3,
                                        .least = Duration(-5),
                                        .median = Duration(6),
                                        .upper = Duration(7),
                                        .smallest = {8},
                                        .largest = {9},
                                        .of_smallest = Duration(10),
                                        .of_largest = Duration(11)}},
                                      {{{1}, {2}, OpKind::BackwardInput, 4, Duration(12)}},
                                      {{{0}, Duration(13), Duration(14), 1.5e9, 15}},
                                      ProcessorSample{.steps = 3,
                                                      .step = Duration(16),
                                                      .cpu = Duration(17),
                                                      .run_delay = Duration(18),
                                                      .pressure = 0.25,
                                                      .run_delay_is = Figure::Known,
                                                      .pressure_is = Figure::Forbidden}},
                           .events = "{}\n"}},
                .shards = {{5, "stage-1.safetensors", 100, "0badcafe"}},
                .plan = 7,
                .lost_peers = {{0}},
                .repairs = {{1, {0}, 7, 12345}, {2, {3}, 8, 1}},
                .resumes = true,
                .held = {{4, 2, {{kSome[0], kSome[1], kSome[2], kSome[3]}, {{1}, {3}}}, {0, 7}},
                         {5, 3, {}, {}}},
                .elements = 4096,
                .said = {{3, std::string("\0\xff", 2)}, {4, ""}},
                .obeyed = 6,
                .failure = "it broke",
                .failure_code = Code::Exhausted,
                .host = "node7"};
  EXPECT_EQ(from_wire(to_wire(report)), report);
  for (const Figure figure : {Figure::NotThere, Figure::NotCounted, Figure::Unreadable}) {
    report.steps[0].sample.processor->run_delay_is = figure;
    EXPECT_EQ(from_wire(to_wire(report)), report);
  }
}

// Workers of earlier versions do not tell of their processors. Numbers that cannot be are limited.
TEST(Conversation, ProcessorFiguresAreOptionalAndLimited) {
  Report report{.worker = {1}};
  report.steps = {{.step = 4}};
  wire::Report message = to_wire(report);
  EXPECT_FALSE(message.steps(0).has_processor());
  EXPECT_FALSE(from_wire(message).steps[0].sample.processor);
  wire::ProcessorSample* processor = message.mutable_steps(0)->mutable_processor();
  EXPECT_EQ(
      from_wire(message).steps[0].sample.processor,
      (ProcessorSample{.run_delay_is = Figure::Unreadable, .pressure_is = Figure::Unreadable}));
  processor->set_steps(-5);
  processor->set_step_ns(-1);
  processor->set_cpu_ns(std::numeric_limits<int64_t>::max());
  processor->set_run_delay_ns(std::numeric_limits<int64_t>::min());
  processor->set_run_delay_is(static_cast<wire::Figure>(99));  // of a later version
  for (const auto& [told, taken] :
       {std::pair(7.0, 1.0), std::pair(-1.0, 0.0), std::pair(std::nan(""), 0.0)}) {
    processor->set_pressure(told);
    EXPECT_EQ(from_wire(message).steps[0].sample.processor,
              (ProcessorSample{.cpu = Duration(int64_t{1} << 60),
                               .pressure = taken,
                               .run_delay_is = Figure::Unreadable,
                               .pressure_is = Figure::Unreadable}));
  }
}

// Each worker is told its own part of the rest of a step.
TEST(Conversation, EachWorkerGetsItsPartOfTheRest) {
  RestOfStep rest{3, 7, 2, {}, {{{kSome[2]}, {}}, {{kSome[0], kSome[1], kSome[3]}, {{2}, {4}}}}};
  for (const int32_t worker : {0, 1}) {
    wire::Rest message;
    write_rest(rest, {worker}, &message);
    const RestOfStep read = from_wire(message);
    EXPECT_EQ(read.epoch, 3);
    EXPECT_EQ(read.step, 7);
    EXPECT_EQ(read.attempt, 2);
    EXPECT_EQ(read.parts, (std::vector<RestPart>{rest.parts[static_cast<size_t>(worker)]}));
  }
}

TEST(Conversation, OnlyTheNewestOfManyReportsMatters) {
  Coordinator coordinator;
  Singer singer(settings_for(coordinator, 0));
  for (int64_t version = 0; version < 500; ++version) singer.client->report({.version = version});
  ASSERT_TRUE(coordinator.hears(0, false, 499));
  EXPECT_EQ(coordinator.last[0].sequence, 501);
}

TEST(Conversation, TheEndOfAStreamIsHeardOnBothSides) {
  auto coordinator = std::make_unique<Coordinator>();
  auto leaving = std::make_unique<Singer>(settings_for(*coordinator, 0));
  Singer staying(settings_for(*coordinator, 1));
  ASSERT_TRUE(coordinator->hears(0, false));
  ASSERT_TRUE(coordinator->hears(1, false));
  leaving->client->report({.version = 42});  // the last report is not lost
  leaving.reset();
  EXPECT_TRUE(coordinator->hears(0, true));
  EXPECT_EQ(coordinator->last[0].version, 42);
  coordinator.reset();
  EXPECT_TRUE(staying.until([&] { return !staying.end().empty(); }));
  EXPECT_NE(staying.end().find("worker 1: the coordinator at 127.0.0.1:"), std::string::npos);
}

// An instruction of a coordinator of this term.
Instruction instruction_of(int64_t term, int64_t committed) {
  Instruction instruction;
  instruction.sequence = 1;
  instruction.directive.term = term;
  instruction.directive.committed = committed;
  instruction.directive.phase = Phase::Running;
  return instruction;
}

TEST(Conversation, AWorkerComesBackToTheNextCoordinator) {
  auto coordinator = std::make_unique<Coordinator>();
  const std::string address = coordinator->server->address();
  coordinator->server->tell(instruction_of(1, 10), plan_text("1f1b"));
  ClientSettings settings = settings_for(*coordinator, 1);
  settings.return_limit = kLimit;
  Singer singer(settings, {.version = 3});
  ASSERT_TRUE(singer.until([&] { return singer.client->told() != nullptr; }));
  for (int64_t term = 2; term <= 4; ++term) {
    coordinator.reset();
    singer.client->report({.version = term + 10});  // while there is no coordinator
    coordinator = std::make_unique<Coordinator>(address);
    coordinator->server->tell(instruction_of(term, 10), plan_text("1f1b"));
    ASSERT_TRUE(coordinator->hears(1, false, term + 10));
    EXPECT_TRUE(
        singer.until([&] { return singer.client->told()->instruction.directive.term == term; }));
    EXPECT_EQ(coordinator->last[1].version, term + 10);
    EXPECT_FALSE(coordinator->gone[1]);
  }
  EXPECT_TRUE(singer.client->state().ok());
  // The worker ignores the instructions of a coordinator of an earlier term.
  coordinator.reset();
  coordinator = std::make_unique<Coordinator>(address);
  coordinator->server->tell(instruction_of(2, 99), plan_text("1f1b"));
  ASSERT_TRUE(coordinator->hears(1, false));
  EXPECT_EQ(coordinator->last[1].term, 4);
  coordinator->server->repeat({});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(singer.client->told()->instruction.directive.committed, 10);
}

TEST(Conversation, AddressesAreSeparatedByCommas) {
  EXPECT_EQ(addresses_in("a:1"), std::vector<std::string>{"a:1"});
  EXPECT_EQ(addresses_in("a:1,b:2"), (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(addresses_in("a:1,"), (std::vector<std::string>{"a:1", ""}));
  EXPECT_EQ(addresses_in(""), std::vector<std::string>{""});
}

TEST(Conversation, AWorkerFindsACoordinatorThatHasMoved) {
  auto here = std::make_unique<Coordinator>();
  auto there = std::make_unique<Coordinator>();
  ClientSettings settings = settings_for(*here, 1);
  const std::string second = there->server->address();
  settings.coordinator += "," + second;
  settings.return_limit = kLimit;
  there.reset();
  here->server->tell(instruction_of(1, 10), plan_text("1f1b"));
  Singer singer(settings, {.version = 3});
  ASSERT_TRUE(singer.until([&] { return singer.client->told() != nullptr; }));
  here.reset();
  singer.client->report({.version = 12});  // while there is no coordinator
  there = std::make_unique<Coordinator>(second);
  there->server->tell(instruction_of(2, 10), plan_text("1f1b"));
  ASSERT_TRUE(there->hears(1, false, 12));
  EXPECT_TRUE(singer.until([&] { return singer.client->told()->instruction.directive.term == 2; }));
  EXPECT_TRUE(singer.client->state().ok());
}

TEST(Conversation, AWorkerDoesNotReconnectAfterTheEnd) {
  auto coordinator = std::make_unique<Coordinator>();
  Instruction last = instruction_of(1, 10);
  last.directive.phase = Phase::Out;
  coordinator->server->tell(last, plan_text("1f1b"));
  ClientSettings settings = settings_for(*coordinator, 1);
  settings.return_limit = std::chrono::hours(1);
  Singer singer(settings);
  ASSERT_TRUE(singer.until([&] { return singer.client->told() != nullptr; }));
  coordinator.reset();
  EXPECT_TRUE(singer.until([&] { return !singer.end().empty(); }));
}

// A process may open another stream before the coordinator knows that its first one has ended. It
// does not count as a second process with the same number.
TEST(Conversation, AProcessMayOpenASecondStream) {
  Coordinator coordinator;
  const auto channel =
      grpc::CreateChannel(coordinator.server->address(), grpc::InsecureChannelCredentials());
  const auto stub = wire::Coordinator::NewStub(channel);
  wire::Report report = to_wire(Report{.worker = {0}, .version = 1});
  report.set_instance(7);
  grpc::ClientContext first, second, third;
  for (auto* context : {&first, &second, &third}) show({"choir", "secret"}, {0}, *context);
  const auto early = stub->Converse(&first);
  ASSERT_TRUE(early->Write(report));
  ASSERT_TRUE(coordinator.hears(0, false, 1));
  report.set_version(2);
  const auto late = stub->Converse(&second);
  ASSERT_TRUE(late->Write(report));
  ASSERT_TRUE(coordinator.hears(0, false, 2));
  wire::Instruction order;
  EXPECT_FALSE(early->Read(&order));  // the coordinator has ended it
  (void)early->Finish();
  EXPECT_FALSE(coordinator.gone[0]);
  report.set_instance(8);
  const auto stranger = stub->Converse(&third);
  ASSERT_TRUE(stranger->Write(report));
  EXPECT_FALSE(stranger->Read(&order));
  const auto refusal = refusal_in(stranger->Finish());
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->message,
            "worker 0 of job 'choir' is already connected: start each worker number once");
  EXPECT_EQ(refusal->code, Code::Timeout);  // it may try again
  late->WritesDone();
  EXPECT_TRUE(coordinator.hears(0, true));
  (void)late->Finish();
}

TEST(Conversation, AnAbsentCoordinatorIsReported) {
  QueueMailbox mailbox;
  const ClientSettings settings{.coordinator = "127.0.0.1:1",
                                .job = "choir",
                                .token = "secret",
                                .self = {4},
                                .connect_limit = std::chrono::milliseconds(300),
                                .heartbeat = std::chrono::milliseconds(50),
                                .silence_limit = kLimit};
  const auto client = connect_client(settings, {}, mailbox, [](const Error&) {});
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().message,
            "worker 4: no coordinator answers at 127.0.0.1:1: check that it is running, that "
            "the port is right, and that it does not require certificates (--tls)");
}

}  // namespace
}  // namespace tenuto
