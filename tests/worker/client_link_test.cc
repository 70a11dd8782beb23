// The link of a process of a run with server shards to the coordinator, over a client that repeats
// and loses what a stream can repeat and lose.
#include "worker/client_link.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "parameter_server/message_bytes.h"

namespace tenuto {
namespace {

using servers::BeginCommand;
using servers::HostCommand;
using servers::HostReport;
using servers::PlacedReport;

constexpr WorkerId kWorker{3}, kProcess{5};

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

HostReport report_of(const Numbered& said) {
  const auto report = servers::decode_report(std::as_bytes(std::span(said.bytes)));
  CHECK(report.ok(), report.error().message);
  return report.value();
}

// A client without a stream: a test reads what is reported, and says what is heard.
class FakeClient : public Client {
 public:
  void report(Report newest) override { reported = std::move(newest); }
  void cut_off(Duration) override {}
  std::shared_ptr<const Told> told() const override { return heard; }
  Status state() const override { return standing; }

  Report reported;
  std::shared_ptr<const Told> heard;
  Status standing = ok();
};

// The coordinator's end for one worker.
struct FakeCoordinator {
  // The worker hears the instruction as it is now.
  void instruct(FakeClient& client) {
    Told newest;
    newest.instruction = instruction;
    newest.instruction.sequence = ++sequence;
    newest.instruction.hosted = {hosted};
    client.heard = std::make_shared<const Told>(std::move(newest));
  }
  void command(const HostCommand& one) {
    hosted.commands.push_back({++commands, text_of(servers::encode_command(one))});
  }
  // The worker's newest report is here.
  void take(const Report& report) {
    for (const Numbered& one : report.said) {
      if (one.serial <= hosted.heard) continue;
      EXPECT_EQ(one.serial, hosted.heard + 1);
      hosted.heard = one.serial;
      said.push_back(report_of(one));
    }
    std::erase_if(hosted.commands,
                  [&](const Numbered& one) { return one.serial <= report.obeyed; });
  }

  Instruction instruction;
  Hosted hosted{kWorker, 0, kProcess, 0, {}};
  int64_t sequence = 0, commands = 0;
  std::vector<HostReport> said;
};

struct Linked {
  Linked() { coordinator.instruct(client); }
  // The number in the next command; -1 = there is none.
  int64_t next() {
    const auto command = link.next({});
    EXPECT_TRUE(command.ok());
    if (!command.ok() || !command.value()) return -1;
    return std::get<BeginCommand>(*command.value()).moment.count();
  }
  void command(int64_t number) { coordinator.command(BeginCommand{Duration{number}}); }
  Status placed(int64_t epoch) { return link.report(PlacedReport{epoch}); }

  FakeClient client;
  FakeCoordinator coordinator;
  ClientLink link{client, {kWorker, 0, "here"}};
};

TEST(ClientLink, TheCoordinatorSaysWhichProcessItIs) {
  Linked linked;
  const auto number = linked.link.process();
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(number.value(), std::optional(kProcess));
  linked.link.tell_elements(64);
  EXPECT_EQ(linked.client.reported.elements, 64);
  linked.coordinator.hosted.process = {6};
  linked.coordinator.instruct(linked.client);
  const auto next = linked.link.next({});
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, Code::Corrupt);
}

TEST(ClientLink, CommandsAreTakenOnceAndInOrder) {
  Linked linked;
  EXPECT_EQ(linked.next(), -1);
  for (const int64_t number : {7, 8}) linked.command(number);
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), 7);
  EXPECT_EQ(linked.client.reported.obeyed, 1);
  // Before the coordinator knows that, it repeats both, and adds another one.
  linked.command(9);
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), 8);
  EXPECT_EQ(linked.next(), 9);
  EXPECT_EQ(linked.next(), -1);
  EXPECT_EQ(linked.client.reported.obeyed, 3);
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), -1);
}

TEST(ClientLink, ACommandThatIsMissingEndsTheProcess) {
  Linked linked;
  linked.coordinator.commands = 1;
  linked.command(7);
  linked.coordinator.instruct(linked.client);
  const auto next = linked.link.next({});
  ASSERT_FALSE(next.ok());
  EXPECT_NE(next.error().message.find("expected command 1, found command 2"), std::string::npos)
      << next.error().message;
}

TEST(ClientLink, ReportsAreRepeatedUntilTheyAreHeard) {
  Linked linked;
  for (const int64_t epoch : {1, 2}) EXPECT_TRUE(linked.placed(epoch).ok());
  ASSERT_EQ(linked.client.reported.said.size(), 2u);
  EXPECT_EQ(linked.client.reported.said[0].serial, 1);
  linked.coordinator.hosted.heard = 1;
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), -1);
  ASSERT_EQ(linked.client.reported.said.size(), 1u);
  const Numbered& left = linked.client.reported.said.front();
  EXPECT_EQ(left.serial, 2);
  EXPECT_EQ(std::get<PlacedReport>(report_of(left)).epoch, 2);
  linked.coordinator.hosted.heard = 2;
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), -1);
  EXPECT_TRUE(linked.client.reported.said.empty());
}

TEST(ClientLink, AReportHasALimitedNumberOfThem) {
  Linked linked;
  const auto all = static_cast<int64_t>(kMostSaid) + 4;
  for (int64_t epoch = 1; epoch <= all; ++epoch) EXPECT_TRUE(linked.placed(epoch).ok());
  EXPECT_EQ(linked.client.reported.said.size(), kMostSaid);
  linked.coordinator.take(linked.client.reported);
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), -1);
  EXPECT_EQ(linked.client.reported.said.size(), 4u);
  linked.coordinator.take(linked.client.reported);
  ASSERT_EQ(std::ssize(linked.coordinator.said), all);
  for (int64_t i = 0; i < all; ++i) {
    EXPECT_EQ(std::get<PlacedReport>(linked.coordinator.said[static_cast<size_t>(i)]).epoch, i + 1);
  }
}

// Both directions lose most messages, at different times, and repeat others.
TEST(ClientLink, NothingIsLostOrDoubledOverABadStream) {
  constexpr int64_t kRounds = 200;
  Linked linked;
  std::vector<int64_t> taken;
  for (int64_t round = 0; round < kRounds + 50; ++round) {
    if (round < kRounds) {
      linked.command(round);
      EXPECT_TRUE(linked.placed(round).ok());
    }
    if (round % 3 == 1) linked.coordinator.take(linked.client.reported);
    if (round % 5 < 2) linked.coordinator.instruct(linked.client);
    for (int i = 0; i < 2; ++i) {
      const int64_t number = linked.next();
      if (number >= 0) taken.push_back(number);
    }
  }
  ASSERT_EQ(std::ssize(taken), kRounds);
  ASSERT_EQ(std::ssize(linked.coordinator.said), kRounds);
  for (int64_t i = 0; i < kRounds; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(taken[at], i);
    EXPECT_EQ(std::get<PlacedReport>(linked.coordinator.said[at]).epoch, i);
  }
  EXPECT_TRUE(linked.coordinator.hosted.commands.empty());
}

TEST(ClientLink, TheEntryOfAnotherIncarnationIsNotItsOwn) {
  Linked linked;
  linked.command(7);
  linked.coordinator.hosted.incarnation = 1;
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), -1);
  EXPECT_FALSE(linked.link.is_left_out());
}

TEST(ClientLink, AProcessThatHasNoEntryAnyMoreIsLeftOut) {
  Linked linked;
  EXPECT_EQ(linked.next(), -1);
  linked.coordinator.hosted.incarnation = 1;
  linked.coordinator.instruct(linked.client);
  const auto next = linked.link.next({});
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, Code::Cancelled);
  EXPECT_TRUE(linked.link.is_left_out());
}

TEST(ClientLink, ItEndsWithTheRunAndWithTheConversation) {
  Linked linked;
  linked.client.standing = Error{Code::Disconnected, Reach::Job, "the coordinator is gone"};
  const auto next = linked.link.next({});
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().message, "the coordinator is gone");
  EXPECT_FALSE(linked.link.has_ended());
  // The run was over before.
  linked.coordinator.instruction.directive.phase = Phase::Out;
  linked.coordinator.instruct(linked.client);
  EXPECT_EQ(linked.next(), -1);
  EXPECT_TRUE(linked.link.has_ended());
}

TEST(ClientLink, AProcessThatCannotGoOnSaysWhy) {
  Linked linked;
  EXPECT_EQ(linked.next(), -1);
  linked.link.fail(invalid("no memory"));
  linked.link.fail(invalid("another reason"));
  EXPECT_EQ(linked.placed(1).error().message, "no memory");
  const auto next = linked.link.next({});
  ASSERT_FALSE(next.ok());
  linked.link.tell_failure(next.error(), {});
  EXPECT_EQ(linked.client.reported.failure, "on host here: no memory");
  EXPECT_EQ(linked.client.reported.failure_code, Code::Invalid);
  ASSERT_EQ(linked.client.reported.said.size(), 1u);
  const HostReport said = report_of(linked.client.reported.said.front());
  EXPECT_EQ(std::get<servers::FailedReport>(said).why, "no memory");
}

}  // namespace
}  // namespace tenuto
