// What the kernel says of processes: its texts, a family of processes, and this one.
#include "base/process_stat.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// As the kernel writes it, with so many ticks of processor time.
std::string stat_of(int process, int parent, const std::string& name, int64_t ticks,
                    const std::string& state = "S") {
  return cat(process, " (", name, ") ", state, " ", parent, " 1 1 0 -1 4194560 100 0 0 0 ", ticks,
             " 0 0 0 20 0 1 0 8800 1000 20 18446744073709551615 0 0 0\n");
}

TEST(ProcessStat, ReadsTheKernelsText) {
  const auto one = process_stat_in(stat_of(71, 5, "a (b) c", sysconf(_SC_CLK_TCK) * 3));
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->process, 71);
  EXPECT_EQ(one->parent, 5);
  EXPECT_EQ(one->started, 8800);
  EXPECT_EQ(one->cpu, std::chrono::seconds(3));
  EXPECT_FALSE(one->has_ended);
  const auto ended = process_stat_in(stat_of(71, 5, "sh", 0, "Z"));
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->has_ended);
}

TEST(ProcessStat, OtherTextsAreNone) {
  const std::string whole = stat_of(71, 5, "sh", 3);
  for (const std::string& text :
       {std::string(), std::string("71"), std::string("71 sh S 5\n"), std::string("x") + whole,
        whole.substr(0, whole.size() / 2), stat_of(71, 5, "sh", -3)}) {
    EXPECT_FALSE(process_stat_in(text).has_value()) << text;
  }
}

TEST(ProcessStat, AFamilyIsFoundInAnyOrder) {
  char name[] = "/tmp/tenuto-proc-XXXXXX";
  const std::string folder = mkdtemp(name);
  const auto write = [&](int process, int parent) {
    fs::create_directories(cat(folder, "/", process));
    std::ofstream(cat(folder, "/", process, "/stat")) << stat_of(process, parent, "sh", 1);
  };
  // 10 has started 30 and 12, 12 has started 11, and 11 has started 9.
  write(10, 1);
  write(30, 10);
  write(12, 10);
  write(11, 12);
  write(9, 11);
  write(13, 1);
  fs::create_directories(folder + "/sys");
  fs::create_directories(folder + "/14");  // has ended
  std::set<int32_t> found;
  for (const ProcessStat& one : descendants_of(10, folder)) found.insert(one.process);
  EXPECT_EQ(found, (std::set<int32_t>{9, 11, 12, 30}));
  EXPECT_TRUE(descendants_of(13, folder).empty());
  fs::remove_all(folder);
}

TEST(ProcessStat, OfThisProcess) {
  const auto self = process_stat(getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self->process, getpid());
  EXPECT_EQ(self->parent, getppid());
  EXPECT_FALSE(self->has_ended);
  EXPECT_FALSE(process_stat(-1).has_value());
}

}  // namespace
}  // namespace tenuto
