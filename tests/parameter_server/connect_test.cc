// Who connects to whom, in every order in which addresses can come, and over a transport.
#include "parameter_server/connect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "transport/memory.h"

namespace tenuto::servers {
namespace {

// What each command says: "2: 0 1" tells process 2 to connect to 0 and 1.
std::vector<std::string> texts_of(const std::vector<Connections::Task>& tasks) {
  std::vector<std::string> texts;
  for (const Connections::Task& task : tasks) {
    std::string text = cat(task.process, ":");
    for (const ProcessAddress& one : task.command.processes) {
      EXPECT_EQ(one.address, cat("host:", one.process));
      text += cat(" ", one.process);
    }
    texts.push_back(text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

void listen(Connections& connections, int32_t process) {
  connections.set_address({process}, cat("host:", process));
}

TEST(Connect, EachConnectsToThoseBeforeIt) {
  std::vector<int32_t> order = {0, 1, 2, 3};
  do {
    SCOPED_TRACE(cat(order[0], " ", order[1], " ", order[2], " ", order[3]));
    Connections connections;
    for (int32_t i = 0; i < 4; ++i) connections.add({i});
    EXPECT_EQ(texts_of(connections.take_tasks()), Texts{});
    Texts all;
    for (const int32_t process : order) {
      listen(connections, process);
      for (const std::string& text : texts_of(connections.take_tasks())) all.push_back(text);
    }
    EXPECT_EQ(all, (Texts{"0:", "1: 0", "2: 0 1", "3: 0 1 2"}));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Connect, NobodyWaitsForALostProcess) {
  Connections connections;
  for (int32_t i = 0; i < 4; ++i) connections.add({i});
  for (const int32_t process : {0, 2, 3}) listen(connections, process);
  EXPECT_EQ(texts_of(connections.take_tasks()), Texts{"0:"});
  connections.lose({1});
  EXPECT_EQ(texts_of(connections.take_tasks()), (Texts{"2: 0", "3: 0 2"}));
  // Its address comes late.
  listen(connections, 1);
  EXPECT_EQ(texts_of(connections.take_tasks()), Texts{});
}

TEST(Connect, OneThatComesLaterConnectsToThoseThatLive) {
  Connections connections;
  for (int32_t i = 0; i < 3; ++i) connections.add({i});
  for (int32_t i = 0; i < 3; ++i) listen(connections, i);
  EXPECT_EQ(connections.take_tasks().size(), 3u);
  connections.lose({1});
  connections.add({3});
  EXPECT_EQ(texts_of(connections.take_tasks()), Texts{});
  listen(connections, 3);
  EXPECT_EQ(texts_of(connections.take_tasks()), Texts{"3: 0 2"});
}

// A process of one run, over the transport within a process.
struct Process {
  Process(MemoryNetwork& network, int32_t number) {
    Hello hello;
    hello.job = "test";
    hello.self = {number};
    transport = make_memory_transport(network, hello, mailbox);
  }
  QueueMailbox mailbox;
  std::unique_ptr<Transport> transport;
};

TEST(Connect, AProcessReachesAllButThoseThatAreGone) {
  MemoryNetwork network;
  Process first(network, 0), second(network, 1);
  const std::vector<ProcessAddress> others = {{{0}, first.transport->address().text},
                                              {{7}, "worker-7"}};
  const Status connected =
      connect(*second.transport, second.mailbox, others, std::chrono::seconds(60));
  EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
  // The two can talk.
  std::vector<std::byte> sent(8, std::byte{3}), received(8);
  ASSERT_TRUE(first.transport->recv({1}, {0, 0, 1}, received, Ticket{1}).ok());
  ASSERT_TRUE(second.transport->send({0}, {0, 0, 1}, sent, {}, Ticket{1}).ok());
  const auto arrived = first.mailbox.wait(std::chrono::seconds(60));
  ASSERT_TRUE(arrived.ok()) << arrived.error().message;
  EXPECT_TRUE(arrived.value().status.ok());
  EXPECT_EQ(received, sent);
}

// A report without ticket and peer is nobody's end.
TEST(Connect, OthersMayWakeTheMailbox) {
  MemoryNetwork network;
  Process first(network, 0), second(network, 1);
  second.mailbox.post(Done{});
  const Status connected =
      connect(*second.transport, second.mailbox, {{{0}, first.transport->address().text}},
              std::chrono::seconds(60));
  EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
  EXPECT_FALSE(second.mailbox.wait(Duration{}).ok()) << "the end of the attempt was left";
}

TEST(Connect, NobodyToConnectToIsNoWait) {
  MemoryNetwork network;
  Process alone(network, 0);
  EXPECT_TRUE(connect(*alone.transport, alone.mailbox, {}, Duration{}).ok());
}

}  // namespace
}  // namespace tenuto::servers
