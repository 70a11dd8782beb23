// The ledger in a file: several jobs of one played host, jobs that die, and files that are none.
#include "run/host_ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "run/descriptor.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// A host whose clock and processes a test moves.
class PlayedHost : public testing::Test {
 protected:
  PlayedHost() {
    char name[] = "/tmp/tenuto-ledger-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/ledger";
  }
  ~PlayedHost() override { fs::remove_all(folder_); }

  // The job of process `number`, which was started at `started`.
  SharedLedger job(int32_t number, int64_t started = 1) {
    lives_[number] = started;
    LedgerFileSettings settings;
    settings.path = path_;
    settings.host = host_;
    settings.boot = boot_;
    settings.capacity = {capacity_, network_, network_};
    settings.job = {number};
    settings.started = started;
    settings.lock_limit = std::chrono::milliseconds(20);
    settings.now = [this] { return now_; };
    settings.started_of = [this](HostJob one) -> std::optional<int64_t> {
      const auto found = lives_.find(one.value);
      return found == lives_.end() ? std::nullopt : std::optional(found->second);
    };
    return SharedLedger(settings);
  }

  LedgerNews say(const SharedLedger& to, const LedgerCall& call) {
    const auto news = to.exchange(call);
    EXPECT_TRUE(news.ok()) << (news.ok() ? "" : news.error().message);
    return news.ok() ? news.value() : LedgerNews{};
  }

  std::string content() const { return read_file(path_).value(); }
  bool has_entry_of(int32_t number) const {
    return content().find(cat("job ", number, " ")) != std::string::npos;
  }
  std::string refusal() {
    const Status looked = job(1).look();
    return looked.ok() ? "" : looked.error().message;
  }

  std::string folder_, path_, host_ = "a", boot_ = "b-1";
  int64_t capacity_ = 8000, network_ = 0;
  Duration now_ = seconds(100);
  std::map<int32_t, int64_t> lives_;  // processes, and when each was started
};

LedgerCall uses(int64_t cores, int64_t slack = 0) {
  LedgerCall call;
  call.use = {{cores, 0, 0}, {slack, 0, 0}, {0.00025, 0, 0}};
  return call;
}

LedgerCall asks(int64_t cores, int64_t more, int64_t slack = 0) {
  LedgerCall call = uses(cores, slack);
  call.options.push_back({{more, 0, 0}, 0});
  call.length = seconds(60);
  return call;
}

TEST_F(PlayedHost, TwoJobsShareIt) {
  const SharedLedger first = job(10), second = job(20);
  EXPECT_EQ(say(first, uses(2000)).allowed[0], 2000);
  EXPECT_EQ(say(second, uses(4000, 1000)).allowed[0], 4000);
  const LedgerNews granted = say(first, asks(2000, 3000));
  ASSERT_TRUE(granted.answer.has_value());
  EXPECT_TRUE(granted.answer->granted) << granted.answer->reason;
  ASSERT_TRUE(granted.lease.has_value());
  EXPECT_EQ(granted.lease->until, seconds(160));
  EXPECT_EQ(granted.now, seconds(100));
  EXPECT_EQ(granted.allowed[0], 5000);
  const LedgerNews giver = say(second, uses(4000, 1000));
  EXPECT_EQ(giver.lends[0], 1000);
  EXPECT_EQ(giver.allowed[0], 3000);
  EXPECT_FALSE(giver.lease.has_value());
  EXPECT_EQ(giver.granted[0], 8000) << "of both";
  EXPECT_EQ(giver.jobs, (std::vector<HostJob>{{10}, {20}}));
  // A refusal says why.
  const LedgerNews refused = say(second, asks(4000, 1000, 1000));
  ASSERT_TRUE(refused.answer.has_value());
  EXPECT_FALSE(refused.answer->granted);
  EXPECT_NE(refused.answer->reason.find("lends to others"), std::string::npos);
  LedgerCall back = uses(2000);
  back.gives_back = true;
  EXPECT_FALSE(say(first, back).lease.has_value());
  EXPECT_EQ(say(second, uses(4000, 1000)).lends[0], 0);
}

// One rule for all resources.
TEST_F(PlayedHost, TheNetworkIsLeasedLikeCores) {
  network_ = 10'000'000;
  const SharedLedger first = job(10), second = job(20);
  LedgerCall quiet;
  quiet.use = {{1000, 1'000'000, 0}, {0, 0, 0}, {0.001, 1e-6, 0}};
  LedgerCall busy;
  busy.use = {{1000, 6'000'000, 0}, {0, 1'000'000, 0}, {0.001, 2e-7, 0}};
  say(first, quiet);
  say(second, busy);
  LedgerCall wants = quiet;
  wants.options.push_back({{1000, 4'000'000, 0}, 0.5});
  wants.length = seconds(60);
  const LedgerNews granted = say(first, wants);
  ASSERT_TRUE(granted.lease.has_value()) << granted.answer->reason;
  EXPECT_EQ(granted.allowed, (HostAmounts{2000, 5'000'000, 0}));
  const LedgerNews giver = say(second, busy);
  EXPECT_EQ(giver.lends, (HostAmounts{0, 1'000'000, 0})) << "3 MB/s were unused";
  EXPECT_EQ(giver.allowed, (HostAmounts{1000, 5'000'000, 0}));
  // Cores alone do not help a job that would send more than there is.
  wants.options = {{{1000, 9'000'000, 0}, 0.5}};
  const LedgerNews refused = say(first, wants);
  ASSERT_TRUE(refused.answer.has_value());
  EXPECT_FALSE(refused.answer->granted);
  EXPECT_NE(refused.answer->reason.find("MB/s of sending"), std::string::npos)
      << refused.answer->reason;
}

// The other job reads it later, once.
TEST_F(PlayedHost, WhyALeaseHasEndedIsTold) {
  const SharedLedger first = job(10), second = job(20);
  say(first, asks(2000, 6000));
  say(second, uses(4000));
  const LedgerNews told = say(first, uses(2000));
  ASSERT_EQ(told.ended.size(), 1u);
  EXPECT_EQ(told.ended[0], "job 20 of host a announced another use");
  EXPECT_FALSE(told.lease.has_value());
  EXPECT_TRUE(say(first, uses(2000)).ended.empty());
  // Its own time is over.
  say(first, asks(2000, 1000));
  now_ += seconds(25);
  say(first, uses(2000));
  say(second, uses(4000));
  now_ += seconds(25);
  say(first, uses(2000));
  now_ += seconds(25);
  const LedgerNews over = say(first, uses(2000));
  ASSERT_EQ(over.ended.size(), 1u);
  EXPECT_EQ(over.ended[0], "its time was over at 160.0 s");
}

TEST_F(PlayedHost, NothingIsLeftWhenAllHaveEnded) {
  const SharedLedger first = job(10), second = job(20);
  say(first, uses(2000));
  say(second, asks(2000, 1000));
  EXPECT_TRUE(has_entry_of(10) && has_entry_of(20));
  EXPECT_TRUE(first.leave().ok());
  EXPECT_FALSE(has_entry_of(10));
  EXPECT_TRUE(has_entry_of(20));
  EXPECT_TRUE(second.leave().ok());
  EXPECT_EQ(content(),
            "tenuto host ledger 1\nboot b-1\nhost a\ncapacity 8000 0 0\nmoment 0\nend\n");
}

TEST_F(PlayedHost, JobsThatHaveDiedAreRemovedAtOnce) {
  const SharedLedger first = job(10), second = job(20);
  say(first, asks(2000, 4000));
  EXPECT_EQ(say(second, uses(2000)).allowed[0], 2000);
  lives_.erase(10);
  EXPECT_TRUE(say(second, asks(2000, 6000)).answer->granted);
  EXPECT_FALSE(has_entry_of(10));
  // Another process has the number of a dead one: its entry is no job of this one.
  const SharedLedger third = job(20, 2);
  const LedgerNews fresh = say(third, uses(1000));
  EXPECT_FALSE(fresh.lease.has_value());
  EXPECT_EQ(fresh.allowed[0], 1000);
  EXPECT_NE(content().find("process 20 2\n"), std::string::npos);
}

TEST_F(PlayedHost, TheCapacityIsThatOfTheFirstJob) {
  say(job(10), uses(2000));
  capacity_ = 1000;
  EXPECT_TRUE(say(job(20), asks(0, 6000)).answer->granted);
  lives_.erase(10);
  lives_.erase(20);
  EXPECT_FALSE(say(job(30), asks(0, 6000)).answer->granted);
}

// Moments begin anew with the host.
TEST_F(PlayedHost, AStartOfTheHostEndsAllEntries) {
  say(job(10), uses(2000));
  boot_ = "b-2";
  now_ = seconds(1);
  say(job(20), uses(1000));
  EXPECT_FALSE(has_entry_of(10));
  EXPECT_TRUE(has_entry_of(20));
}

// A job is killed while it writes: what it has written has no name of the ledger yet.
TEST_F(PlayedHost, APartOfANewFileIsNoLedger) {
  const SharedLedger first = job(10), second = job(20);
  say(first, uses(2000));
  const std::string before = content();
  ASSERT_TRUE(write_file(folder_ + "/.tenuto-10-1.tmp", before.substr(0, 30)).ok());
  EXPECT_EQ(say(second, uses(1000)).allowed[0], 1000);
  EXPECT_TRUE(has_entry_of(10) && has_entry_of(20));
}

TEST_F(PlayedHost, AnEmptyFileIsALedgerWithoutJobs) {
  ASSERT_TRUE(write_file(path_, "").ok());
  EXPECT_EQ(say(job(10), uses(2000)).allowed[0], 2000);
}

TEST_F(PlayedHost, OtherFilesAreRefusedWithTheLine) {
  const std::string title = "tenuto host ledger 1\n";
  const auto refused = [&](const std::string& text) {
    EXPECT_TRUE(write_file(path_, text).ok());
    const std::string sentence = refusal();
    EXPECT_EQ(content(), text) << "it is not changed";
    return sentence;
  };
  EXPECT_EQ(refused("[job]\n"),
            cat(path_,
                ": line 1: expected \"tenuto host ledger 1\", found \"[job]\": end all jobs "
                "of this host, and remove the file"));
  EXPECT_NE(refused(title).find("line 2: expected \"boot ID\""), std::string::npos);
  EXPECT_NE(refused(title + "boot b-1\n").find("line 3: expected \"host NAME\""),
            std::string::npos);
  for (const char* line : {"process x 1", "process 1", "process -1 1", "process 1 x", "ended 1"}) {
    EXPECT_NE(refused(cat(title, "boot b-1\n", line, "\nhost a\n")).find("line 3: expected"),
              std::string::npos)
        << line;
  }
  EXPECT_NE(refused(cat(title, "boot b-1\nprocess 1 1\nhost a\ncapacity 1\n")).find("line 5"),
            std::string::npos);
  fs::remove(path_);
  fs::create_directories(path_);
  EXPECT_NE(refusal().find("it is a folder"), std::string::npos);
}

TEST_F(PlayedHost, ALedgerOfAnotherHostIsRefused) {
  host_ = "c";
  say(job(10), uses(2000));
  host_ = "a";
  EXPECT_EQ(refusal(), cat(path_,
                           ": the ledger is of host c, and this host is a: name a file in "
                           "sync.ledger that only this host has"));
}

TEST_F(PlayedHost, WhoeverHoldsTheLockIsNotWaitedForLong) {
  const SharedLedger first = job(10);
  say(first, uses(2000));
  {
    const Descriptor other(open((path_ + ".lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(other.number(), LOCK_EX), 0);
    const auto news = first.exchange(uses(2000));
    ASSERT_FALSE(news.ok());
    EXPECT_EQ(news.error().code, Code::Timeout);
    EXPECT_NE(news.error().message.find("another process holds it"), std::string::npos);
    EXPECT_FALSE(first.leave().ok());
  }
  EXPECT_EQ(say(first, uses(1000)).allowed[0], 1000);
}

// Two real processes: one is killed while it holds the lock.
TEST_F(PlayedHost, AKilledProcessLeavesTheLedgerUsable) {
  const SharedLedger own(ledger_file_here(path_));
  ASSERT_TRUE(own.exchange(uses(500)).ok());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);  // if the test ends before it kills this process
    const SharedLedger other(ledger_file_here(path_));
    const bool is_well = other.exchange(uses(400)).ok();
    const int lock = open((path_ + ".lock").c_str(), O_RDWR | O_CLOEXEC);
    const char said = is_well && flock(lock, LOCK_EX) == 0 ? '1' : '0';
    if (write(ready[1], &said, 1) != 1) _exit(1);
    while (true) ::pause();
  }
  char told = '0';
  ASSERT_EQ(read(ready[0], &told, 1), 1);
  EXPECT_EQ(told, '1');
  EXPECT_TRUE(has_entry_of(child));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(own.exchange(uses(500)).ok());
  EXPECT_FALSE(has_entry_of(child));
  EXPECT_TRUE(own.leave().ok());
  EXPECT_EQ(content().find("job "), std::string::npos);
  close(ready[0]);
  close(ready[1]);
}

TEST(HostLedgerFile, ThisHost) {
  const LedgerFileSettings here = ledger_file_here("file");
  EXPECT_EQ(here.job.value, getpid());
  EXPECT_GE(here.capacity[0], 1000);
  EXPECT_EQ(here.capacity[0] % 1000, 0);
  EXPECT_EQ(here.capacity[1], 0) << "the network is not governed";
  EXPECT_EQ(ledger_file_here("file", 5000).capacity[1], 5000);
  EXPECT_EQ(ledger_file_here("file", 5000).capacity[2], 5000);
  EXPECT_EQ(here.started_of(here.job), here.started);
  EXPECT_EQ(here.boot.find_first_of(" \n"), std::string::npos);
  EXPECT_FALSE(here.boot.empty());
  const Duration before = here.now();
  EXPECT_LE(before, here.now());
}

}  // namespace
}  // namespace tenuto
