// The governor over a folder that stands for the kernel's control groups.
#include "run/governor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

class PlayedGroups : public testing::Test {
 protected:
  PlayedGroups() {
    char name[] = "/tmp/tenuto-groups-XXXXXX";
    folder_ = mkdtemp(name);
    root_ = folder_ + "/cgroup";
    fs::create_directories(root_);
    write(folder_ + "/own", "");
  }
  ~PlayedGroups() override { fs::remove_all(folder_); }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string text_of(const std::string& path) {
    const auto text = read_file(path);
    return text.ok() ? text.value() : "";
  }
  // A kernel with version 2, or with version 1, whose groups this process may divide.
  void have_version_2() const { write(root_ + "/cgroup.controllers", "cpu memory\n"); }
  void have_version_1() const { fs::create_directories(root_ + "/cpu,cpuacct"); }

  std::unique_ptr<Governor> governor() {
    lives_[7] = 70;
    GovernorSettings settings;
    settings.groups = root_;
    settings.own = folder_ + "/own";
    settings.job = {7};
    settings.started = 70;
    settings.started_of = [this](HostJob job) -> std::optional<int64_t> {
      const auto found = lives_.find(job.value);
      return found == lives_.end() ? std::nullopt : std::optional(found->second);
    };
    settings.remove_folder = [](const std::string& path) { fs::remove_all(path); };
    return std::make_unique<Governor>(std::move(settings));
  }

  std::string folder_, root_;
  std::map<int32_t, int64_t> lives_;
};

TEST_F(PlayedGroups, Version2) {
  have_version_2();
  const auto one = governor();
  const std::string group = root_ + "/tenuto-7-70";
  // Without a limit there is no group.
  EXPECT_TRUE(one->hold(0, {11}));
  EXPECT_FALSE(fs::exists(group));
  EXPECT_EQ(one->outcome(), "");
  EXPECT_TRUE(one->hold(1.5, {11, 12}));
  EXPECT_EQ(text_of(group + "/cpu.max"), "150000 100000\n");
  EXPECT_EQ(text_of(group + "/cgroup.procs"), "11\n12\n");
  EXPECT_EQ(one->outcome(),
            "the job is held to what the ledger allows it by the control group " + group);
  // One process is new, one has ended.
  EXPECT_TRUE(one->hold(2, {12, 13}));
  EXPECT_EQ(text_of(group + "/cpu.max"), "200000 100000\n");
  EXPECT_EQ(text_of(group + "/cgroup.procs"), "11\n12\n13\n");
  EXPECT_TRUE(one->hold(0, {12, 13}));
  EXPECT_EQ(text_of(group + "/cpu.max"), "max 100000\n");
  // The kernel takes no less than a hundredth of a core.
  EXPECT_TRUE(one->hold(0.0001, {12, 13}));
  EXPECT_EQ(text_of(group + "/cpu.max"), "1000 100000\n");
  one->remove();
  EXPECT_FALSE(fs::exists(group));
  EXPECT_EQ(text_of(root_ + "/cgroup.procs"), "12\n13\n");
}

TEST_F(PlayedGroups, Version1) {
  have_version_1();
  const auto one = governor();
  const std::string group = root_ + "/cpu,cpuacct/tenuto-7-70";
  EXPECT_TRUE(one->hold(2.5, {11}));
  EXPECT_EQ(text_of(group + "/cpu.cfs_period_us"), "100000\n");
  EXPECT_EQ(text_of(group + "/cpu.cfs_quota_us"), "250000\n");
  EXPECT_EQ(text_of(group + "/cgroup.procs"), "11\n");
  EXPECT_TRUE(one->hold(0, {11}));
  EXPECT_EQ(text_of(group + "/cpu.cfs_quota_us"), "-1\n");
}

// A group that was given to this process comes first.
TEST_F(PlayedGroups, TheOwnGroupComesFirst) {
  have_version_2();
  fs::create_directories(root_ + "/user/me");
  write(folder_ + "/own", "5:memory:/elsewhere\n0::/user/me\n");
  const auto one = governor();
  EXPECT_TRUE(one->hold(1, {11}));
  EXPECT_TRUE(fs::exists(root_ + "/user/me/tenuto-7-70/cpu.max"));
  EXPECT_FALSE(fs::exists(root_ + "/tenuto-7-70"));
}

TEST_F(PlayedGroups, TheOwnGroupOfVersion1) {
  fs::create_directories(root_ + "/cpu/batch");
  write(folder_ + "/own", "9:name=systemd:/\n3:cpuset:/no\n2:cpuacct,cpu:/batch\n0::/\n");
  const auto one = governor();
  EXPECT_TRUE(one->hold(1, {11}));
  EXPECT_TRUE(fs::exists(root_ + "/cpu/batch/tenuto-7-70/cpu.cfs_quota_us"));
}

TEST_F(PlayedGroups, WithoutGroupsItSaysSoOnce) {
  const auto one = governor();
  EXPECT_FALSE(one->hold(1, {11}));
  EXPECT_FALSE(one->hold(2, {11}));
  EXPECT_TRUE(one->hold(0, {11}));
  EXPECT_EQ(
      one->outcome(),
      cat("the job is held to what the ledger allows it by pauses of its replicas, because no "
          "control group can be made: ",
          root_, " has no groups for processors"));
}

// What is in the way is not the test's rights: it may run as root.
TEST_F(PlayedGroups, AGroupThatCannotBeMade) {
  have_version_2();
  const auto one = governor();
  write(root_ + "/tenuto-7-70", "a file");
  EXPECT_FALSE(one->hold(1, {11}));
  EXPECT_NE(one->outcome().find("would have no limit of processors"), std::string::npos)
      << one->outcome();
}

TEST_F(PlayedGroups, GroupsOfDeadJobsAreRemoved) {
  have_version_2();
  lives_[8] = 80;
  for (const char* name :
       {"tenuto-5-50", "tenuto-8-80", "tenuto-8-79", "tenuto-x-1", "other-5-50"}) {
    fs::create_directories(cat(root_, "/", name));
  }
  const auto one = governor();
  for (const auto& [name, stays] : std::map<std::string, bool>{{"tenuto-5-50", false},
                                                               {"tenuto-8-80", true},
                                                               {"tenuto-8-79", false},
                                                               {"tenuto-x-1", true},
                                                               {"other-5-50", true}}) {
    EXPECT_EQ(fs::exists(cat(root_, "/", name)), stays) << name;
  }
}

TEST_F(PlayedGroups, ItsEndRemovesTheGroup) {
  have_version_2();
  EXPECT_TRUE(governor()->hold(1, {}));
  EXPECT_FALSE(fs::exists(root_ + "/tenuto-7-70"));
}

}  // namespace
}  // namespace tenuto
