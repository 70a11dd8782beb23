#include "transport/memory.h"

#include <gtest/gtest.h>

#include "party.h"

namespace tenuto {
namespace {

TEST(Memory, ALostWorkerIsReportedAndEndsEveryCall) {
  MemoryNetwork network;
  const Party::Make make = [&](Hello hello, Mailbox& mailbox) {
    return make_memory_transport(network, std::move(hello), mailbox);
  };
  Party left(make, hello_of(0)), right(make, hello_of(1)), third(make, hello_of(2));
  ASSERT_TRUE(left.connect(right).ok());
  ASSERT_TRUE(left.connect(third).ok());
  std::vector<std::byte> bytes(8), other(8);
  const Ticket sending = left.send(1, 1, bytes), receiving = left.recv(1, 2, other);
  const Ticket unharmed = left.recv(2, 1, other), own = right.recv(0, 5, bytes);
  network.lose(WorkerId{1});
  EXPECT_EQ(left.next_loss().peer, WorkerId{1});
  for (const Ticket ticket : {sending, receiving}) {
    const Done done = left.end_of(ticket);
    ASSERT_FALSE(done.status.ok());
    EXPECT_EQ(done.status.error().code, Code::Disconnected);
    EXPECT_EQ(done.status.error().reach, Reach::Worker);
  }
  EXPECT_FALSE(right.end_of(own).status.ok());
  third.send(0, 1, bytes);
  EXPECT_TRUE(left.end_of(unharmed).status.ok());
  EXPECT_TRUE(left.losses.empty());
  EXPECT_TRUE(third.losses.empty());
  Party again(make, hello_of(1));
  EXPECT_TRUE(again.connect(left).ok()) << "a restarted worker may come back";
}

TEST(Memory, ConnectingToAnAbsentWorkerFails) {
  MemoryNetwork network;
  QueueMailbox mailbox;
  const auto wire = make_memory_transport(network, hello_of(0), mailbox);
  ASSERT_TRUE(wire->connect(WorkerId{1}, {"worker-1"}, Ticket{1}).ok());
  const auto done = mailbox.wait(kPatience);
  ASSERT_TRUE(done.ok());
  ASSERT_FALSE(done.value().status.ok());
  EXPECT_NE(done.value().status.error().message.find("'worker-1'"), std::string::npos);
}

}  // namespace
}  // namespace tenuto
