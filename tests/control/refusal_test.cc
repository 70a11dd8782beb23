// Processes that the coordinator refuses, and messages that are too many or too large.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "control/conversation.h"
#include "control/http2_stranger.h"
#include "protocol/credentials.h"
#include "protocol/message.grpc.pb.h"
#include "protocol/wire.h"
#include "sanitized.h"

namespace tenuto {
namespace {

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
            "worker 0 belongs to job 'band', this is the coordinator of 'choir': give it the "
            "address of its own coordinator");
  EXPECT_EQ(refused(settings_for(coordinator, 2)),
            "there is no worker 2 in job 'choir': it has 2, numbered from 0");
  EXPECT_TRUE(coordinator.server->take().empty());  // none of this is heard
}

// Messages of clients that do not speak gRPC, or that send more than a message may have: the run
// ignores them and goes on.
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
  wire::Report report = to_wire(Report{.worker = {0}, .version = 7});
  wire::Instruction order;
  {
    grpc::ClientContext context;
    show({"choir", "secret"}, {0}, context);
    const auto stream = stub->Converse(&context);
    report.set_failure(std::string((64 << 20) + 1, 'x'));
    (void)stream->Write(report);
    EXPECT_FALSE(stream->Read(&order));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_FALSE(coordinator.last.contains(0));
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
  const auto refused = [&](grpc::ClientContext& context) {
    const auto stream = stub->Converse(&context);
    wire::Instruction order;
    EXPECT_FALSE(stream->Read(&order));
    const auto refusal = refusal_in(stream->Finish());
    return refusal ? refusal->message : std::string("not refused");
  };
  grpc::ClientContext newer, without;
  show({"choir", "secret"}, {0}, newer, 99);
  EXPECT_EQ(refused(newer),
            "worker 0 speaks protocol 99, the coordinator 12: install the same version of tenuto "
            "on every host");
  EXPECT_EQ(refused(without),
            "the other end does not speak protocol 12 of the coordinator: install the same version "
            "of tenuto on every host");
}

// The resident memory of this process, in bytes.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// The coordinator refuses a stranger by the metadata of its call, and reads none of its messages.
TEST(Conversation, NothingOfAStrangerIsRead) {
  Coordinator coordinator;
  Singer singer(settings_for(coordinator, 1), {.version = 1});
  ASSERT_TRUE(coordinator.hears(1, false, 1));
  constexpr int64_t kLarge = 40 << 20;
  constexpr int kStrangers = 24;
  grpc::ChannelArguments large;
  large.SetMaxSendMessageSize(-1);
  wire::Question question;
  question.set_text(std::string(kLarge, 'x'));
  const int64_t before = resident_bytes();
  for (int i = 0; i < kStrangers; ++i) {
    const auto stub = wire::Coordinator::NewStub(grpc::CreateCustomChannel(
        coordinator.server->address(), grpc::InsecureChannelCredentials(), large));
    grpc::ClientContext context;
    show({"choir", i % 2 == 0 ? "guess!" : ""}, {}, context);
    wire::Answer answer;
    const auto asking = stub->Ask(&context, &answer);
    (void)asking->WriteLast(question, grpc::WriteOptions());
    const grpc::Status status = asking->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(status.error_message(),
              "the token of this command is not the one of job 'choir': give it the coordinator's "
              "with --token-file, or as TENUTO_TOKEN");
  }
  // This process is also the strangers: one message, written and not read.
  EXPECT_TRUE(kSanitized || resident_bytes() - before < 4 * kLarge);
  EXPECT_TRUE(coordinator.server->take_questions().empty());
  singer.client->report({.version = 2});
  EXPECT_TRUE(coordinator.hears(1, false, 2));
}

// Strangers that admit no byte of an answer, with more calls than the coordinator takes questions:
// each call is ended all the same, and keeps no place from a question of the job or a worker.
TEST(Conversation, StrangersThatDoNotReadKeepNoPlace) {
  Coordinator coordinator;
  constexpr int kStrangers = 20, kCallsOfEach = 16;  // 320 calls, and 256 questions at most
  std::vector<std::unique_ptr<Http2Stranger>> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(std::make_unique<Http2Stranger>(coordinator.server->address()));
  }
  for (const char* method : {"Ask", "Converse"}) {
    for (const auto& stranger : strangers) {
      for (int k = 0; k < kCallsOfEach; ++k) stranger->call(method);
    }
    for (const auto& stranger : strangers) ASSERT_EQ(stranger->ended(kCallsOfEach), kCallsOfEach);
  }
  Singer singer(settings_for(coordinator, 1), {.version = 1});
  EXPECT_TRUE(coordinator.hears(1, false, 1));
  std::atomic<bool> over = false;
  std::thread asker([&] {
    const auto answer = ask_coordinator(coordinator.server->address(), "choir", "secret", "status",
                                        kLimit, nullptr);
    EXPECT_TRUE(answer.ok() && answer.value() == "all is well");
    over = true;
  });
  while (!over) {
    for (const Question& question : coordinator.server->take_questions()) {
      EXPECT_EQ(question.text, "status");
      coordinator.server->answer(question.id, "all is well", "");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  asker.join();
}

// The user of a command reads the coordinator's sentence.
TEST(Conversation, ACommandOfAnotherJobIsRefusedWithASentence) {
  Coordinator coordinator;
  const auto answer =
      ask_coordinator(coordinator.server->address(), "band", "secret", "status", kLimit, nullptr);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message,
            "this command belongs to job 'band', this is the coordinator of 'choir': give it the "
            "address of its own coordinator");
}

// More questions at the same time than the coordinator takes: the others wait, and each gets its
// answer.
TEST(Conversation, QuestionsBeyondTheLimitWait) {
  Coordinator coordinator;
  constexpr size_t kLimitOfQuestions = 256, kAskers = 300;
  std::atomic<size_t> right = 0, over = 0;
  std::vector<std::thread> askers;
  for (size_t a = 0; a < kAskers; ++a) {
    askers.emplace_back([&, text = cat("question ", a)] {
      const auto answer =
          ask_coordinator(coordinator.server->address(), "choir", "secret", text, kLimit, nullptr);
      if (answer.ok() && answer.value() == text) ++right;
      ++over;
    });
  }
  std::vector<Question> taken;
  const auto take = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (Question& question : coordinator.server->take_questions()) taken.push_back(question);
  };
  while (taken.size() < kLimitOfQuestions && over == 0) take();
  for (int i = 0; i < 10; ++i) take();
  EXPECT_EQ(taken.size(), kLimitOfQuestions);
  while (over < kAskers) {
    for (const Question& question : taken) {
      coordinator.server->answer(question.id, question.text, "");
    }
    taken.clear();
    take();
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(right, kAskers);
}

}  // namespace
}  // namespace tenuto
