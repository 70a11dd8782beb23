#include "control/store.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/random.h"
#include "base/text.h"
#include "control/etcd.grpc.pb.h"
#include "control/etcd.h"
#include "control/journal.h"
#include "held_port.h"
#include "temporary_folder.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

Facts facts_of(int64_t number) {
  return {.run = "this one",
          .term = number,
          .epoch = number + 1,
          .committed = number + 2,
          .members = {{0}, {3}},
          .incarnations = {0, 1}};
}

TEST(Facts, ReadBackAsWritten) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto any = [&] { return random.below(1 << 30) - (1 << 29); };
    Facts facts{.run = cat("run ", any()),
                .term = any(),
                .epoch = any(),
                .committed = any(),
                .target = any(),
                .rest = random.below(2) == 0,
                .begun = random.below(2) == 0,
                .first_plan = any(),
                .plan = any(),
                .plan_from = any(),
                .plan_name = cat(any()),
                .previous_plan = cat(any(), "-\n\"")};
    for (int32_t member = 0; member < 5; ++member) {
      if (random.below(2) == 0) continue;
      facts.members.push_back({member});
      facts.incarnations.push_back(static_cast<int32_t>(random.below(100)));
    }
    if (random.below(2) == 0) facts.last_resort = LastResort{"it broke", 75, 1, any()};
    if (random.below(2) == 0) facts.ending = Ending{143, "stopped"};
    if (random.below(2) == 0) {
      facts.treatments =
          Treatments{Treatment::Off, Treatment::Adapt, Treatment::Adapt, Treatment::Observe};
    }
    const Result<Facts> back = facts_from_json(to_json(facts), "here");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back.value(), facts);
  }
  EXPECT_EQ(facts_from_json("[]", "here").error().message, "here: expected a JSON object");
  EXPECT_EQ(facts_from_json("{\"run\": \"a\", \"term\": 1.5}", "here").error().message,
            "here: expected the whole number 'term'");
  for (const std::string members : {"", ",\"members\":3", ",\"members\":[-1]", ",\"members\":[1e9]",
                                    ",\"members\":[99999999999]"}) {
    const std::string text =
        "{\"run\":\"\",\"term\":1,\"epoch\":1,\"committed\":1,\"target\":1" + members + "}";
    const Result<Facts> facts = facts_from_json(text, "here");
    ASSERT_FALSE(facts.ok()) << text;
    EXPECT_NE(facts.error().message.find("members"), std::string::npos);
  }
}

TEST(Facts, TheTypeOfEachFieldIsChecked) {
  Facts facts = facts_of(1);
  facts.last_resort = LastResort{"it broke"};
  facts.ending = Ending{1, "it broke"};
  facts.treatments.emplace();
  const std::string text = to_json(facts);
  ASSERT_TRUE(facts_from_json(text, "here").ok());
  const auto wrong = [&](const std::string& part, const std::string& instead) {
    std::string changed = text;
    const size_t place = changed.find(part);
    EXPECT_NE(place, std::string::npos) << part;
    changed.replace(place, part.size(), instead);
    const Result<Facts> read = facts_from_json(changed, "here");
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_EQ(wrong("\"incarnations\":[0,1]", "\"incarnations\":[0]"),
            "here: expected an incarnation for each of 'members'");
  EXPECT_EQ(wrong("\"begun\":false", "\"begun\":0"), "here: expected true or false 'begun'");
  EXPECT_EQ(wrong("\"exit_code\":1", "\"exit_code\":1000"),
            "here: expected the whole number 'exit_code'");
  EXPECT_EQ(wrong("\"cause\":\"it broke\"", "\"cause\":null"), "here: expected the text 'cause'");
  EXPECT_EQ(wrong("\"plan_from\":0", "\"plan_from\":18446744073709551615"),
            "here: expected the whole number 'plan_from'");
  EXPECT_EQ(wrong("\"slow_workers\":\"observe\"", "\"slow_workers\":\"off\""),
            "here: 'slow_workers' expects a treatment, found 'off'");
  EXPECT_EQ(wrong("\"mode\":\"act\"", "\"mode\":3"), "here: expected the text 'mode'");
}

TEST(Facts, FactsOfAnEarlierFormatAreRead) {
  Facts facts = facts_of(1);
  facts.joiners = {{1}};
  std::string text = to_json(facts);
  text.replace(text.find("\"joiners\""), 9, "\"learners\"");
  const Result<Facts> read = facts_from_json(text, "here");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value(), facts);
}

TEST(Journal, KeepsWhatWasWritten) {
  const TemporaryFolder folder;
  const std::string path = folder / "journal";
  for (int64_t round = 0; round < 3; ++round) {
    auto store = open_journal(path);
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_EQ(store.value()->read(), round == 0 ? Facts{} : facts_of(10 * round));
    for (int64_t i = 1; i <= 10; ++i) {
      ASSERT_TRUE(store.value()->write(facts_of(10 * round + i)).ok());
      EXPECT_EQ(store.value()->read(), facts_of(10 * round + i));
    }
  }
}

TEST(Journal, OnlyOneProcessCanOpenIt) {
  const TemporaryFolder folder;
  auto first = open_journal(folder / "journal");
  ASSERT_TRUE(first.ok());
  const auto second = open_journal(folder / "journal");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            cat(folder / "journal", ": another coordinator has it open; two cannot lead one run"));
  first.value().reset();
  EXPECT_TRUE(open_journal(folder / "journal").ok());
}

// A journal that is cut off at any byte of its last line: the line before counts, and the next line
// is written whole.
TEST(Journal, AHalfWrittenLineIsRemoved) {
  const TemporaryFolder folder;
  const std::string path = folder / "journal";
  {
    auto store = open_journal(path);
    ASSERT_TRUE(store.value()->write(facts_of(1)).ok());
    ASSERT_TRUE(store.value()->write(facts_of(2)).ok());
  }
  const std::string whole = text_of(path);
  const size_t last = whole.find('\n') + 1;
  for (size_t cut = last; cut < whole.size(); ++cut) {
    put(path, whole.substr(0, cut));
    {
      auto store = open_journal(path);
      ASSERT_TRUE(store.ok()) << store.error().message;
      EXPECT_EQ(store.value()->read(), facts_of(1)) << cut;
      ASSERT_TRUE(store.value()->write(facts_of(2)).ok());
    }
    EXPECT_EQ(text_of(path), whole) << cut;
  }
}

TEST(Journal, ADamagedLineIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "journal";
  {
    auto store = open_journal(path);
    for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE(store.value()->write(facts_of(i)).ok());
  }
  std::string text = text_of(path);
  const size_t place = text.find('\n') + 20;
  text[place] = text[place] == 'x' ? 'y' : 'x';
  put(path, text);
  const auto store = open_journal(path);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, Code::Corrupt);
  EXPECT_NE(store.error().message.find(cat(path, ", line 2: its checksum")), std::string::npos)
      << store.error().message;
}

TEST(Journal, StaysSmall) {
  const TemporaryFolder folder;
  const std::string path = folder / "journal";
  auto store = open_journal(path);
  for (int64_t i = 0; i < 100; ++i) ASSERT_TRUE(store.value()->write(facts_of(i)).ok());
  store.value().reset();
  // A journal as long as after twenty thousand steps.
  std::string line = text_of(path);
  line = line.substr(line.rfind('\n', line.size() - 2) + 1);
  std::string many;
  while (many.size() <= 1 << 20) many += line;
  put(path, many);
  store = open_journal(path);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(store.value()->write(facts_of(1000)).ok());
  EXPECT_LT(fs::file_size(path), 400U);
  EXPECT_FALSE(open_journal(path).ok()) << "the lock goes over to the new file";
  ASSERT_TRUE(store.value()->write(facts_of(1001)).ok());
  store.value().reset();
  EXPECT_EQ(open_journal(path).value()->read(), facts_of(1001));
}

// As on a full disk: the old lines stay, and the next line that fits is written.
TEST(Journal, AFullDiskIsReported) {
  const TemporaryFolder folder;
  const std::string path = folder / "journal";
  auto store = open_journal(path);
  ASSERT_TRUE(store.value()->write(facts_of(1)).ok());
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = fs::file_size(path) + 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status written = store.value()->write(facts_of(2));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::Exhausted);
  EXPECT_EQ(store.value()->read(), facts_of(1));
  ASSERT_TRUE(store.value()->write(facts_of(3)).ok());
  store.value().reset();
  EXPECT_EQ(open_journal(path).value()->read(), facts_of(3));
}

// A real etcd server with one member.
class EtcdServer {
 public:
  EtcdServer() : client_(client_port_.address()), peer_(peer_port_.address()) {}
  ~EtcdServer() { stop(); }

  void start() {
    process_ = fork();
    if (process_ != 0) return;
    const std::string log = folder_ / "log", data = folder_ / "data";
    const std::string client = "http://" + client_, peer = "http://" + peer_;
    freopen(log.c_str(), "a", stdout);
    freopen(log.c_str(), "a", stderr);
    execlp("etcd", "etcd", "--data-dir", data.c_str(), "--listen-client-urls", client.c_str(),
           "--advertise-client-urls", client.c_str(), "--listen-peer-urls", peer.c_str(),
           "--initial-advertise-peer-urls", peer.c_str(), "--initial-cluster",
           cat("default=", peer).c_str(), "--unsafe-no-fsync", static_cast<char*>(nullptr));
    _exit(127);
  }
  void stop() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  // Ends a coordinator's leadership: revokes the lease that its key is bound to.
  void end_office(const std::string& key) const {
    const auto channel = grpc::CreateChannel(client_, grpc::InsecureChannelCredentials());
    etcdserverpb::RangeRequest range;
    range.set_key(key);
    etcdserverpb::RangeResponse found;
    grpc::ClientContext looks, ends;
    ASSERT_TRUE(etcdserverpb::KV::NewStub(channel)->Range(&looks, range, &found).ok());
    ASSERT_EQ(found.kvs_size(), 1);
    etcdserverpb::LeaseRevokeRequest revoke;
    revoke.set_id(found.kvs(0).lease());
    etcdserverpb::LeaseRevokeResponse revoked;
    ASSERT_TRUE(etcdserverpb::Lease::NewStub(channel)->LeaseRevoke(&ends, revoke, &revoked).ok());
  }
  EtcdSettings settings(const std::string& holder) const {
    return {.endpoints = {"127.0.0.1:1", client_},  // nobody listens at the first
            .job = "test",
            .holder = holder,
            .lease = std::chrono::seconds(5),
            .take_limit = {}};
  }

 private:
  const TemporaryFolder folder_;
  const HeldPort client_port_, peer_port_;
  const std::string client_, peer_;
  pid_t process_ = -1;
};

bool has_etcd() { return std::system("command -v etcd >/dev/null 2>&1") == 0; }

TEST(Etcd, KeepsFactsAndOneHolder) {
  if (!has_etcd()) GTEST_SKIP() << "no etcd on this machine (package etcd-server)";
  EtcdServer server;
  server.start();
  auto first = open_etcd(server.settings("the first"));
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first.value()->read(), Facts{});
  ASSERT_TRUE(first.value()->write(facts_of(1)).ok());
  ASSERT_TRUE(first.value()->write(facts_of(2)).ok());

  const auto second = open_etcd(server.settings("the second"));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            "another coordinator still leads the job 'test': the first (etcd, "
            "/tenuto/test/office)");
  first.value().reset();
  auto third = open_etcd(server.settings("the third"));
  ASSERT_TRUE(third.ok()) << third.error().message;
  EXPECT_EQ(third.value()->read(), facts_of(2));
}

TEST(Etcd, SurvivesARestartOfTheServer) {
  if (!has_etcd()) GTEST_SKIP() << "no etcd on this machine (package etcd-server)";
  EtcdServer server;
  server.start();
  auto store = open_etcd(server.settings("somebody"));
  ASSERT_TRUE(store.ok()) << store.error().message;
  ASSERT_TRUE(store.value()->write(facts_of(1)).ok());
  server.stop();
  server.start();
  const Status written = store.value()->write(facts_of(2));
  ASSERT_TRUE(written.ok()) << written.error().message;
  store.value().reset();
  store = open_etcd(server.settings("somebody else"));
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ(store.value()->read(), facts_of(2));
}

// A coordinator stalls for longer than its lease: it can write no more.
TEST(Etcd, WithoutItsLeaseACoordinatorCannotWrite) {
  if (!has_etcd()) GTEST_SKIP() << "no etcd on this machine (package etcd-server)";
  EtcdServer server;
  server.start();
  auto late = open_etcd(server.settings("the late one"));
  ASSERT_TRUE(late.ok()) << late.error().message;
  ASSERT_TRUE(late.value()->write(facts_of(1)).ok());
  server.end_office("/tenuto/test/office");
  auto next = open_etcd(server.settings("the next"));
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next.value()->read(), facts_of(1));
  ASSERT_TRUE(next.value()->write(facts_of(5)).ok());
  const Status refused = late.value()->write(facts_of(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "this coordinator's lease in etcd has expired (/tenuto/test/office): "
            "another coordinator may lead the run now");
  late.value().reset();  // does not end the leadership of the next one
  ASSERT_TRUE(next.value()->write(facts_of(6)).ok());
}

// A coordinator's leadership ends when its lease expires. A successor that knows that it is dead
// need not wait for that.
TEST(Etcd, ASuccessorReplacesADeadCoordinatorAtOnce) {
  if (!has_etcd()) GTEST_SKIP() << "no etcd on this machine (package etcd-server)";
  EtcdServer server;
  server.start();
  auto stalled = open_etcd(server.settings("the dead one"));
  ASSERT_TRUE(stalled.ok()) << stalled.error().message;
  ASSERT_TRUE(stalled.value()->write(facts_of(1)).ok());
  EtcdSettings settings = server.settings("the next");
  settings.before = "somebody else";
  EXPECT_FALSE(open_etcd(settings).ok());
  settings.before = "the dead one";
  auto next = open_etcd(settings);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next.value()->read(), facts_of(1));
  ASSERT_TRUE(next.value()->write(facts_of(2)).ok());
  EXPECT_EQ(stalled.value()->write(facts_of(3)).error().code, Code::Disconnected);
  EXPECT_EQ(next.value()->read(), facts_of(2));
}

TEST(Etcd, AnUnreachableServerIsReported) {
  const auto store = open_etcd({.endpoints = {"127.0.0.1:1"},
                                .job = "test",
                                .holder = "somebody",
                                .lease = std::chrono::seconds(1),
                                .take_limit = {}});
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.error().message.find("etcd does not answer at 127.0.0.1:1 (no connection)"),
            std::string::npos);
  EXPECT_FALSE(open_etcd({}).ok());
}

}  // namespace
}  // namespace tenuto
