// Run directories: one holder, nothing lost silently.
#include "app/run_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

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
    const Result<RunDirectory> run = RunDirectory::open(path_, beginning);
    return run.ok() ? std::string() : run.error().message;
  }
  std::string folder_, path_;
};

TEST_F(Runs, OneHolderAtATime) {
  {
    const Result<RunDirectory> first = RunDirectory::open(path_, Beginning::Fresh);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(refusal(Beginning::Fresh),
              cat(path_, " is in use by process ", getpid(),
                  ": wait for it, or give this run another name with --job.name=NAME"));
    EXPECT_NE(refusal(Beginning::Overwrite), "");
  }
  EXPECT_EQ(refusal(Beginning::Fresh), "");  // nothing was written: the name is free again
}

TEST_F(Runs, ARunIsNotReplacedUnasked) {
  write("metrics.jsonl", "{\"step\":0}\n");
  EXPECT_EQ(refusal(Beginning::Fresh),
            cat(path_,
                " already holds a run (metrics): continue it with --resume, replace it with "
                "--overwrite, or choose another name with --job.name=NAME"));
  write("checkpoint-5/manifest.json", "{}");
  EXPECT_NE(refusal(Beginning::Fresh).find("(the checkpoint of step 5)"), std::string::npos);
  EXPECT_EQ(refusal(Beginning::Resume), "");
}

TEST_F(Runs, NothingToResume) {
  EXPECT_NE(refusal(Beginning::Resume).find("does not exist"), std::string::npos);
  EXPECT_FALSE(fs::exists(path_));
  fs::create_directories(path_);
  EXPECT_NE(refusal(Beginning::Resume).find("holds no checkpoint"), std::string::npos);
}

TEST_F(Runs, OverwritingTakesOnlyWhatARunWrites) {
  write("metrics.jsonl", "{\"step\":0}\n");
  write("checkpoint-5/manifest.json", "{}");
  write("plan-1.json", "{}");
  write("notes.txt", "mine");
  const Result<RunDirectory> run = RunDirectory::open(path_, Beginning::Overwrite);
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(fs::exists(path_ + "/checkpoint-5"));  // until the new run has its first step
  ASSERT_TRUE(run.value().clear(0).ok());
  EXPECT_FALSE(fs::exists(path_ + "/checkpoint-5"));
  EXPECT_FALSE(fs::exists(path_ + "/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(path_ + "/plan-1.json"));
  EXPECT_TRUE(fs::exists(path_ + "/notes.txt"));
  EXPECT_EQ(run.value().next_epoch(), 1);
}

TEST_F(Runs, ResumingDropsTheMetricsThatWillComeAgain) {
  write("metrics.jsonl", "{\"step\":3}\n{\"step\":4}\n{\"step\":5}\n{\"st");
  write("checkpoint-5/manifest.json", "{}");
  write("plan-1.json", "{}");
  write("plan-12.json", "{}");
  const Result<RunDirectory> run = RunDirectory::open(path_, Beginning::Resume);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run.value().next_epoch(), 13);
  ASSERT_TRUE(run.value().clear(5).ok());
  EXPECT_EQ(read_file(path_ + "/metrics.jsonl").value(), "{\"step\":3}\n{\"step\":4}\n");
}

TEST_F(Runs, ARunIsFoundByItsFolder) {
  EXPECT_FALSE(find_run(path_).ok());
  write("checkpoint-5/manifest.json", "{}");
  const Result<std::string> found = find_run(path_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value(), path_);
}

}  // namespace
}  // namespace tenuto
