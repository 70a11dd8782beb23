// Run directories: one holder, nothing lost silently.
#include "run/run_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

class Runs : public testing::Test {
 protected:
  Runs() {
    char name[] = "/tmp/tenuto-runs-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/small";
  }
  ~Runs() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name) << text;
  }
  std::string refusal(Beginning beginning) {
    const Result<RunDirectory> run = RunDirectory::open(path_, beginning, {});
    return run.ok() ? std::string() : run.error().message;
  }
  std::string folder_, path_;
};

TEST_F(Runs, OnlyOneProcessHoldsIt) {
  {
    const Result<RunDirectory> first = RunDirectory::open(path_, Beginning::Fresh, {});
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(refusal(Beginning::Fresh),
              cat(path_, " is in use by process ", getpid(),
                  ": wait for it, or give this run another name with --job.name=NAME"));
    EXPECT_NE(refusal(Beginning::Overwrite), "");
    EXPECT_TRUE(is_held(path_));
  }
  EXPECT_FALSE(is_held(path_));
  EXPECT_EQ(refusal(Beginning::Fresh), "");  // nothing was written: the name is free again
}

TEST_F(Runs, ARunIsReplacedOnlyOnRequest) {
  write("metrics.jsonl", "{\"step\":0}\n");
  EXPECT_EQ(refusal(Beginning::Fresh),
            cat(path_,
                " already holds a run (without a checkpoint): replace it with --overwrite, or "
                "choose another name with --job.name=NAME"));
  EXPECT_EQ(refusal(Beginning::Resume),
            cat(path_,
                " holds no checkpoint, so there is nothing to resume: begin again with --overwrite "
                "instead"));
  write("checkpoint-5/manifest.json", "{}");
  EXPECT_NE(refusal(Beginning::Fresh).find("(the checkpoint of step 5): continue it with --resume"),
            std::string::npos);
  EXPECT_EQ(refusal(Beginning::Resume), "");
}

// A run that has begun is continued, with or without a checkpoint, and still counts as begun.
TEST_F(Runs, ARunThatHasBegunIsResumed) {
  {
    const Result<RunDirectory> first = RunDirectory::open(path_, Beginning::Fresh, {});
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_FALSE(has_begun_in(path_));
    ASSERT_TRUE(first.value().clear(0).ok());
  }
  write("metrics.jsonl", "{\"step\":0}\n");
  for (const Beginning beginning : {Beginning::Fresh, Beginning::Resume}) {
    EXPECT_NE(refusal(beginning), "");
    EXPECT_TRUE(has_begun_in(path_));  // the refusal has changed nothing
    const Result<RunDirectory> run = RunDirectory::open(path_, beginning, {}, true);
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_TRUE(run.value().has_begun());
  }
  EXPECT_TRUE(has_begun_in(path_));
}

TEST_F(Runs, NothingToResume) {
  EXPECT_NE(refusal(Beginning::Resume).find("does not exist"), std::string::npos);
  EXPECT_FALSE(fs::exists(path_));
  fs::create_directories(path_);
  EXPECT_NE(refusal(Beginning::Resume).find("nothing to resume: leave --resume out"),
            std::string::npos);
}

TEST_F(Runs, OverwritingRemovesOnlyFilesOfARun) {
  write("metrics.jsonl", "{\"step\":0}\n");
  write("checkpoint-5/manifest.json", "{}");
  write("plan-1.json", "{}");
  write("notes.txt", "mine");
  const Result<RunDirectory> run = RunDirectory::open(path_, Beginning::Overwrite, {});
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(fs::exists(path_ + "/checkpoint-5"));  // until the new run has its first step
  ASSERT_TRUE(run.value().clear(0).ok());
  EXPECT_FALSE(fs::exists(path_ + "/checkpoint-5"));
  EXPECT_FALSE(fs::exists(path_ + "/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(path_ + "/plan-1.json"));
  EXPECT_TRUE(fs::exists(path_ + "/notes.txt"));
  EXPECT_EQ(run.value().next_epoch(), 1);
}

TEST_F(Runs, ResumingDropsMetricsOfStepsToRepeat) {
  write("metrics.jsonl", "{\"step\":3}\n{\"step\":4}\n{\"step\":5}\n{\"st");
  write("checkpoint-5/manifest.json", "{}");
  write("plan-1.json", "{}");
  write("plan-12.json", "{}");
  const Result<RunDirectory> run = RunDirectory::open(path_, Beginning::Resume, {});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run.value().next_epoch(), 13);
  ASSERT_TRUE(run.value().clear(5).ok());
  EXPECT_EQ(read_file(path_ + "/metrics.jsonl").value(), "{\"step\":3}\n{\"step\":4}\n");
}

TEST_F(Runs, ARunIsFoundByItsFolder) {
  const auto sentence = [](const std::string& name) { return find_run(name).error().message; };
  EXPECT_EQ(sentence(path_).substr(0, 19 + path_.size()), cat("there is no run at ", path_));
  fs::create_directories(path_);
  EXPECT_EQ(sentence(path_),
            cat(path_, " is not the folder of a run (it has no config.toml): give the one that ",
                "`tenuto train` has written, such as ", path_, "/NAME"));
  EXPECT_EQ(sentence("").substr(0, 28), "the name of the run is empty");
  write("checkpoint-5/manifest.json", "{}");
  const Result<std::string> found = find_run(path_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value(), path_);
}

// A process that takes the lock and reports that it has it. The test ends it and waits for it.
class Holder {
 public:
  // `says`: the process number to write into the lock file; 0 = the holder's own.
  Holder(const std::string& path, int says) {
    int ready[2];
    CHECK(pipe(ready) == 0 && pipe(go_) == 0, "two pipes");
    process_ = fork();
    if (process_ == 0) {
      close(go_[1]);
      const Result<RunDirectory> run = RunDirectory::open(path, Beginning::Fresh, {});
      if (says != 0) std::ofstream(path + "/lock") << says << "\n";
      char byte = run.ok() ? 1 : 0;
      [[maybe_unused]] ssize_t count = write(ready[1], &byte, 1);
      count = read(go_[0], &byte, 1);  // until the test closes its end
      _exit(0);
    }
    close(go_[0]);
    char byte = 0;
    CHECK(read(ready[0], &byte, 1) == 1 && byte == 1, "the lock is held");
    close(ready[0]);
    close(ready[1]);
  }
  ~Holder() { end(); }
  int process() const { return process_; }
  void end() {
    if (process_ < 0) return;
    close(go_[1]);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  int go_[2];
  pid_t process_ = -1;
};

// A process number that is not in use.
constexpr int kNobody = 0x7ffffff0;

TEST_F(Runs, ALiveHolderIsNotWaitedFor) {
  const Holder holder(path_, 0);
  const Duration limit = std::chrono::hours(1);
  const Result<RunDirectory> run = RunDirectory::open(path_, Beginning::Overwrite, limit);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().message,
            cat(path_, " is in use by process ", holder.process(),
                ": wait for it, or give this run another name with --job.name=NAME"));
  EXPECT_EQ(live_holder(path_), cat(holder.process()));
  EXPECT_TRUE(is_held(path_));
}

TEST_F(Runs, AHolderThatIsEndingIsWaitedFor) {
  Holder holder(path_, kNobody);
  EXPECT_EQ(live_holder(path_), "");
  EXPECT_TRUE(is_held(path_));  // as far as is known, by a process of another host
  const Result<RunDirectory> late = RunDirectory::open(path_, Beginning::Fresh, {});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().message.find(cat(path_, " is still locked 0.0 s after process ", kNobody,
                                          ", which held the lock, has ended")),
            0u);
  std::thread ends([&] { holder.end(); });
  const Result<RunDirectory> run =
      RunDirectory::open(path_, Beginning::Fresh, std::chrono::hours(1));
  ends.join();
  EXPECT_TRUE(run.ok());
}

// clear() removes the files of the earlier run, but not one that the new run has written already.
TEST_F(Runs, OverwritingKeepsTheNewRunsAddressFile) {
  write("checkpoint-5/manifest.json", "{}");
  const Result<RunDirectory> run = RunDirectory::open(path_, Beginning::Overwrite, {});
  ASSERT_TRUE(run.ok());
  write("coordinator.json", "{}");
  EXPECT_FALSE(run.value().has_begun());
  EXPECT_TRUE(run.value().spares_earlier_run());
  EXPECT_EQ(run.value().checkpoints(), std::vector<int64_t>());  // 5 is the earlier run's
  ASSERT_TRUE(run.value().clear(0).ok());
  EXPECT_TRUE(fs::exists(path_ + "/coordinator.json"));
  EXPECT_TRUE(run.value().has_begun());
  EXPECT_FALSE(run.value().spares_earlier_run());
  write("checkpoint-7/manifest.json", "{}");
  EXPECT_EQ(run.value().checkpoints(), std::vector<int64_t>{7});
  EXPECT_EQ(refusal(Beginning::Fresh).find(cat(path_, " is in use by process ", getpid(), ":")),
            0u);
}

}  // namespace
}  // namespace tenuto
