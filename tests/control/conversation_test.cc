// The conversation of worker and coordinator over real gRPC, with both ends in one process.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/random.h"
#include "base/text.h"
#include "control/server.h"
#include "ir/text.h"
#include "protocol/client.h"
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

// A wait of this length has failed, even on a busy machine.
constexpr Duration kLimit = std::chrono::minutes(3);

// A plan of two workers, with this name of its order, as JSON.
std::string plan_text(const std::string& order) {
  Plan plan;
  plan.order = order;
  plan.stages = {{0, 1, {{0}}}};
  plan.schedule.lists.resize(2);
  return to_json(plan);
}

// A server and what it has heard.
class Coordinator {
 public:
  explicit Coordinator(const std::string& listen = "127.0.0.1:0") {
    ServerSettings settings{.listen = listen,
                            .job = "choir",
                            .token = "secret",
                            .worker_count = 2,
                            .job_toml = "# settings"};
    auto made = start_server(settings, [this] {
      const std::lock_guard lock(mutex_);
      news_ = true;
      changed_.notify_all();
    });
    EXPECT_TRUE(made.ok()) << made.error().message;
    server = std::move(made).value();
  }

  // Waits for a report of `worker` with at least `version`, or for the end of its stream. Returns
  // false if it does not come within kLimit.
  bool hears(int32_t worker, bool end, int64_t version = -1) {
    const Duration until = monotonic_clock().now() + kLimit;
    while (monotonic_clock().now() < until) {
      for (const auto& heard : server->take()) {
        if (const auto* report = std::get_if<Report>(&heard)) last[report->worker.value] = *report;
        if (const auto* ended = std::get_if<StreamEnded>(&heard)) gone[ended->worker.value] = true;
      }
      if (end ? gone[worker] : last.contains(worker) && last[worker].version >= version)
        return true;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return news_; });
      news_ = false;
    }
    return false;
  }

  std::map<int32_t, Report> last;
  std::map<int32_t, bool> gone;
  std::unique_ptr<Server> server;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;
};

ClientSettings settings_for(const Coordinator& of, int32_t worker) {
  return {.coordinator = of.server->address(),
          .job = "choir",
          .token = "secret",
          .self = {worker},
          .connect_limit = kLimit,
          .heartbeat = std::chrono::milliseconds(50),
          .silence_limit = std::chrono::minutes(1)};
}

// A worker's end with its mailbox.
struct Singer {
  explicit Singer(const ClientSettings& settings, const Report& first = {}) {
    auto made = connect_client(settings, first, mailbox, [this](const Error& error) {
      const std::lock_guard lock(mutex);
      ended = error.message;
    });
    EXPECT_TRUE(made.ok()) << made.error().message;
    if (made.ok()) client = std::move(made).value();
  }
  // Waits until `question` is true. Returns false if that takes too long.
  template <class Question>
  bool until(const Question& question) {
    const Duration end = monotonic_clock().now() + kLimit;
    while (!question()) {
      if (monotonic_clock().now() >= end) return false;
      (void)mailbox.wait(std::chrono::milliseconds(50));
    }
    return true;
  }
  std::string end() {
    const std::lock_guard lock(mutex);
    return ended;
  }
  QueueMailbox mailbox;
  std::mutex mutex;
  std::string ended;
  std::unique_ptr<Client> client;
};

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
                           .evaluation = {{{8}, 2.5}},
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
                                      {{{1}, {2}, OpKind::BackwardInput, 4, Duration(12)}}},
                           .events = "{}\n"}},
                .shards = {{5, "stage-1.safetensors", 100, "0badcafe"}},
                .plan = 7,
                .lost_peers = {{0}},
                .repairs = {{1, {0}, 7, 12345}, {2, {3}, 8, 1}},
                .resumes = true,
                .held = {{4, 2, {{kSome[0], kSome[1], kSome[2], kSome[3]}, {{1}, {3}}}, {0, 7}},
                         {5, 3, {}, {}}},
                .failure = "it broke",
                .failure_code = Code::Exhausted};
  EXPECT_EQ(from_wire(to_wire(report, {"choir", "secret"})), report);
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

TEST(Conversation, WorkersOfOtherJobsAreRefused) {
  Coordinator coordinator;
  const auto refused = [&](const ClientSettings& settings) {
    Singer singer(settings);
    EXPECT_TRUE(singer.until([&] { return !singer.client->state().ok(); }));
    singer.until([&] { return !singer.end().empty(); });
    return singer.end();
  };
  ClientSettings settings = settings_for(coordinator, 0);
  settings.token = "guess!";
  EXPECT_EQ(refused(settings),
            "the token of worker 0 is not the one of job 'choir': give it the "
            "coordinator's with --token-file, or as TENUTO_TOKEN");
  settings = settings_for(coordinator, 0);
  settings.job = "band";
  EXPECT_EQ(refused(settings),
            "worker belongs to job 'band', this is the coordinator of 'choir': give it the address "
            "of its own coordinator");
  EXPECT_EQ(refused(settings_for(coordinator, 2)),
            "there is no worker 2 in job 'choir': it has 2, numbered from 0");
  EXPECT_TRUE(coordinator.server->take().empty());  // none of this is heard
}

// Messages of clients that do not speak gRPC, that send more than a message may have, or that
// change from the right token to a wrong one: the run ignores them and goes on.
TEST(Conversation, GarbageAndOversizedMessagesAreHarmless) {
  Coordinator coordinator;
  Singer singer(settings_for(coordinator, 1), {.version = 1});
  ASSERT_TRUE(coordinator.hears(1, false, 1));
  const std::string address = coordinator.server->address();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    std::string garbage = round % 2 == 0 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "";
    for (int i = 0; i < 5000; ++i) garbage += static_cast<char>(random.below(256));
    (void)send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    close(socket);
  }
  grpc::ChannelArguments large;
  large.SetMaxSendMessageSize(-1);
  const auto stub = wire::Coordinator::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), large));
  wire::Report report = to_wire(Report{.worker = {0}, .version = 7}, {"choir", "secret"});
  wire::Instruction order;
  {
    grpc::ClientContext context;
    const auto stream = stub->Converse(&context);
    report.set_failure(std::string((64 << 20) + 1, 'x'));
    (void)stream->Write(report);
    EXPECT_FALSE(stream->Read(&order));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_FALSE(coordinator.last.contains(0));
  report.set_failure("");
  {
    grpc::ClientContext context;
    const auto stream = stub->Converse(&context);
    ASSERT_TRUE(stream->Write(report));
    ASSERT_TRUE(coordinator.hears(0, false, 7));
    report.set_token("guess!");
    report.set_version(8);
    ASSERT_TRUE(stream->Write(report));
    ASSERT_TRUE(stream->Read(&order));
    EXPECT_NE(order.refusal().find("the token of worker 0"), std::string::npos);
    (void)stream->Finish();
  }
  EXPECT_TRUE(coordinator.hears(0, true));
  EXPECT_EQ(coordinator.last[0].version, 7);
  singer.client->report({.version = 2});
  EXPECT_TRUE(coordinator.hears(1, false, 2));
}

TEST(Conversation, AWorkerNumberIsTakenOnce) {
  Coordinator coordinator;
  Singer first(settings_for(coordinator, 0));
  ASSERT_TRUE(coordinator.hears(0, false));
  Singer second(settings_for(coordinator, 0));
  EXPECT_TRUE(second.until([&] { return !second.end().empty(); }));
  EXPECT_EQ(second.end(),
            "worker 0 of job 'choir' is already connected: start each worker number once");
  EXPECT_TRUE(first.client->state().ok());
}

TEST(Conversation, AnotherVersionIsRefused) {
  Coordinator coordinator;
  const auto channel =
      grpc::CreateChannel(coordinator.server->address(), grpc::InsecureChannelCredentials());
  const auto stub = wire::Coordinator::NewStub(channel);
  grpc::ClientContext context;
  const auto stream = stub->Converse(&context);
  wire::Report report = to_wire(Report{.worker = {0}}, {"choir", "secret"});
  report.set_protocol(99);
  ASSERT_TRUE(stream->Write(report));
  wire::Instruction order;
  ASSERT_TRUE(stream->Read(&order));
  EXPECT_EQ(order.refusal(),
            "worker speaks protocol 99, the coordinator 7: install the same version of tenuto on "
            "every host");
  EXPECT_FALSE(stream->Read(&order));
  (void)stream->Finish();
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
  coordinator->server->repeat();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(singer.client->told()->instruction.directive.committed, 10);
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
  wire::Report report = to_wire(Report{.worker = {0}, .version = 1}, {"choir", "secret"});
  report.set_instance(7);
  grpc::ClientContext first, second, third;
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
  ASSERT_TRUE(stranger->Read(&order));
  EXPECT_EQ(order.refusal(),
            "worker 0 of job 'choir' is already connected: start each worker number once");
  EXPECT_FALSE(stranger->Read(&order));
  (void)stranger->Finish();
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
