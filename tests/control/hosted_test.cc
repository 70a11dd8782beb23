// What a run with server shards adds to the conversation of worker and coordinator: numbered
// messages in both directions.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "control/conversation.h"
#include "protocol/credentials.h"
#include "protocol/message.grpc.pb.h"
#include "protocol/message_size.h"
#include "protocol/wire.h"

namespace tenuto {
namespace {

// A message whose bytes are no text.
Numbered message_of(int64_t serial) {
  return {serial, std::string("\0\xff", 2) + std::to_string(serial)};
}

// A message of so many bytes.
Numbered message_of_size(int64_t serial, int64_t bytes) {
  return {serial, std::string(static_cast<size_t>(bytes), 'x')};
}

std::vector<int64_t> serials_of(const std::vector<Numbered>& messages) {
  std::vector<int64_t> serials;
  for (const Numbered& message : messages) serials.push_back(message.serial);
  return serials;
}

// Instruction number `sequence`, with these things hosted.
Instruction instruction_with(int64_t sequence, std::vector<Hosted> hosted) {
  Instruction instruction;
  instruction.sequence = sequence;
  instruction.directive.members = {{0}, {1}};
  instruction.hosted = std::move(hosted);
  return instruction;
}

// Waits for instruction number `sequence`; what is hosted in it.
std::vector<Hosted> hosted_in(Singer& singer, int64_t sequence) {
  const auto came = [&] {
    const auto told = singer.client->told();
    return told != nullptr && told->instruction.sequence == sequence;
  };
  EXPECT_TRUE(singer.until(came)) << singer.end();
  return came() ? singer.client->told()->instruction.hosted : std::vector<Hosted>();
}

TEST(Hosted, ReportsWithNewMessagesAreHeard) {
  Coordinator coordinator;
  Singer singer(settings_for(coordinator, 0), {.version = 1});
  ASSERT_TRUE(coordinator.hears(0, false, 1));
  EXPECT_EQ(coordinator.last[0].elements, 0);
  Report report{.version = 1, .elements = 4096, .said = {message_of(1), message_of(2)}};
  singer.client->report(report);
  ASSERT_TRUE(coordinator.until([&] { return coordinator.last[0].said.size() == 2; }));
  EXPECT_EQ(coordinator.last[0].said, report.said);
  EXPECT_EQ(coordinator.last[0].elements, 4096);
  report.said = {message_of(2)};
  singer.client->report(report);
  ASSERT_TRUE(coordinator.until([&] { return coordinator.last[0].said.size() == 1; }));
  EXPECT_EQ(coordinator.last[0].said, report.said);
  report.obeyed = 3;
  singer.client->report(report);
  ASSERT_TRUE(coordinator.until([&] { return coordinator.last[0].obeyed == 3; }));
}

TEST(Hosted, EachProcessIsToldOnlyItsOwn) {
  Coordinator coordinator;
  std::vector<Hosted> hosted = {
      {.worker = {0}, .incarnation = 0, .process = {0}, .heard = 0, .commands = {message_of(1)}},
      {.worker = {1},
       .incarnation = 2,
       .process = {5},
       .heard = 7,
       .commands = {message_of(1), message_of(2)}}};
  coordinator.server->tell(instruction_with(1, hosted));
  Singer zero(settings_for(coordinator, 0));
  ClientSettings settings = settings_for(coordinator, 1);
  settings.incarnation = 2;
  Singer one(settings);
  EXPECT_EQ(hosted_in(zero, 1), std::vector<Hosted>{hosted[0]});
  EXPECT_EQ(hosted_in(one, 1), std::vector<Hosted>{hosted[1]});
  // Nothing else of the instruction changes.
  hosted[1].commands.erase(hosted[1].commands.begin());
  coordinator.server->tell(instruction_with(2, hosted));
  EXPECT_EQ(hosted_in(zero, 2), std::vector<Hosted>{hosted[0]});
  EXPECT_EQ(hosted_in(one, 2), std::vector<Hosted>{hosted[1]});
  hosted[1].heard = 8;
  coordinator.server->tell(instruction_with(3, hosted));
  EXPECT_EQ(hosted_in(one, 3), std::vector<Hosted>{hosted[1]});
}

TEST(Hosted, ALaterProcessIsNotToldWhatWasForAnEarlierOne) {
  Coordinator coordinator;
  const Hosted earlier{
      .worker = {0}, .incarnation = 0, .process = {0}, .heard = 4, .commands = {message_of(1)}};
  const Hosted later{
      .worker = {0}, .incarnation = 1, .process = {6}, .heard = 0, .commands = {message_of(1)}};
  coordinator.server->tell(instruction_with(1, {earlier}));
  ClientSettings settings = settings_for(coordinator, 0);
  settings.incarnation = 1;
  Singer singer(settings);
  EXPECT_EQ(hosted_in(singer, 1), std::vector<Hosted>());
  coordinator.server->tell(instruction_with(2, {earlier, later}));
  EXPECT_EQ(hosted_in(singer, 2), std::vector<Hosted>{later});
}

TEST(Hosted, ALaterStreamOfAProcessIsToldAgain) {
  Coordinator coordinator;
  const Hosted hosted{.worker = {0},
                      .incarnation = 0,
                      .process = {3},
                      .heard = 2,
                      .commands = {message_of(1), message_of(2)}};
  coordinator.server->tell(instruction_with(1, {hosted}));
  const auto channel =
      grpc::CreateChannel(coordinator.server->address(), grpc::InsecureChannelCredentials());
  const auto stub = wire::Coordinator::NewStub(channel);
  wire::Report report = to_wire(Report{.worker = {0}});
  report.set_instance(7);
  grpc::ClientContext first, second;
  for (auto* context : {&first, &second}) show({"choir", "secret"}, {0}, *context);
  const auto early = stub->Converse(&first);
  ASSERT_TRUE(early->Write(report));
  wire::Instruction order;
  ASSERT_TRUE(early->Read(&order));
  EXPECT_EQ(from_wire(order).hosted, std::vector<Hosted>{hosted});
  const auto late = stub->Converse(&second);
  ASSERT_TRUE(late->Write(report));
  ASSERT_TRUE(late->Read(&order));
  EXPECT_EQ(from_wire(order).hosted, std::vector<Hosted>{hosted});
  // The coordinator ends the early one. It may have told it again before it has seen the late one.
  for (int again = 0; early->Read(&order); ++again) ASSERT_LT(again, 2);
  (void)early->Finish();
  late->WritesDone();
  EXPECT_FALSE(late->Read(&order));
  (void)late->Finish();
}

// What is longer goes with the next reports or instructions, once the first messages are
// acknowledged.
TEST(Hosted, OnlyTheFirstOfManyLongMessagesAreSent) {
  const std::vector<Numbered> fit = {message_of_size(5, kMostNumberedBytes / 2),
                                     message_of_size(6, kMostNumberedBytes / 2),
                                     message_of_size(7, 1), message_of_size(8, 0)};
  const std::vector<Numbered> alone = {message_of_size(5, kMostNumberedBytes + 1),
                                       message_of_size(6, 1)};
  Report report{.worker = {0}};
  report.said = fit;
  EXPECT_EQ(serials_of(from_wire(to_wire(report)).said), (std::vector<int64_t>{5, 6}));
  report.said = alone;
  EXPECT_EQ(serials_of(from_wire(to_wire(report)).said), (std::vector<int64_t>{5}));
  wire::Instruction message;
  const std::vector<Hosted> hosted = {
      {.worker = {0}, .incarnation = 0, .process = {0}, .heard = 0, .commands = fit},
      {.worker = {1}, .incarnation = 0, .process = {1}, .heard = 0, .commands = alone}};
  write_hosted(hosted, {0}, 0, &message);
  write_hosted(hosted, {1}, 0, &message);
  const std::vector<Hosted> read = from_wire(message).hosted;
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(serials_of(read[0].commands), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(serials_of(read[1].commands), (std::vector<int64_t>{5}));
}

}  // namespace
}  // namespace tenuto
