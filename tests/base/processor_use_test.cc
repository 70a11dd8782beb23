// What the kernel tells of processors: its texts, files that are missing, and this process.
#include "base/processor_use.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/host.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

TEST(ProcessorUse, ReadsTheKernelsTexts) {
  EXPECT_EQ(run_delay_in("3176581 48213 17\n"), Duration(48213));
  EXPECT_EQ(run_delay_in("0 0 0\n"), Duration(0));
  for (const char* text : {"", "\n", "1 2\n", "1 2 3 4\n", "1 -2 3\n", "1 2.5 3\n", "a b c\n",
                           "1 99999999999999999999 3\n"}) {
    EXPECT_EQ(run_delay_in(text), std::nullopt) << text;
  }
  EXPECT_EQ(cpu_pressure_in("some avg10=16.11 avg60=7.55 avg300=9.20 total=21700347162\n"
                            "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
            microseconds(21700347162));
  // Kernels before 5.13 have no second line.
  EXPECT_EQ(cpu_pressure_in("some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n"), microseconds(12));
  for (const char* text :
       {"", "full avg10=0.00 total=7\n", "some avg10=0.00\nfull total=7\n", "some total=\n",
        "some total=-1\n", "some total=1x\n", "some total=9999999999999999\n"}) {
    EXPECT_EQ(cpu_pressure_in(text), std::nullopt) << text;
  }
}

TEST(ProcessorUse, TheHostOfAnAddress) {
  EXPECT_EQ(host_of("10.77.0.2:7000"), "10.77.0.2");
  EXPECT_EQ(host_of("[fe80::1]:7000"), "[fe80::1]");
  EXPECT_EQ(host_of("node-7"), "node-7");
  EXPECT_EQ(host_of(""), "");
}

TEST(ProcessorUse, ADeviceWithoutAPortHasNoRate) {
  for (const char* device : {"", "lo", "no-such-device", "../net/lo"}) {
    EXPECT_EQ(port_rate_of_device(device), 0) << device;
  }
}

// A folder with the kernel's files as the test wants them.
class ImitatedKernel : public testing::Test {
 protected:
  ImitatedKernel() {
    char name[] = "/tmp/tenuto-proc-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ImitatedKernel() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    const fs::path path = cat(folder_, "/", name);
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  ProcessorUse use() const { return processor_use(folder_); }

  std::string folder_;
};

TEST_F(ImitatedKernel, AllThreadsAndThePressure) {
  write("self/task/12/schedstat", "1000 200 3\n");
  write("self/task/7/schedstat", "0 0 0\n");             // has not run yet
  fs::create_directories(cat(folder_, "/self/task/8"));  // ends at this moment
  write("pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=55\n");
  const ProcessorUse all = use();
  EXPECT_EQ(all.run_delay_is, Figure::Known);
  EXPECT_EQ(all.run_delay, (std::map<int64_t, Duration>{{7, Duration(0)}, {12, Duration(200)}}));
  EXPECT_EQ(all.pressure_is, Figure::Known);
  EXPECT_EQ(all.pressure, microseconds(55));
}

TEST_F(ImitatedKernel, SaysWhyAFigureIsNotKnown) {
  EXPECT_EQ(use().run_delay_is, Figure::NotThere);
  EXPECT_EQ(use().pressure_is, Figure::NotThere);
  fs::create_directories(cat(folder_, "/self/task/7"));
  EXPECT_EQ(use().run_delay_is, Figure::NotThere);
  write("self/task/7/schedstat", "0 0 0\n");
  EXPECT_EQ(use().run_delay_is, Figure::NotCounted);
  write("self/task/7/schedstat", "no numbers\n");
  write("pressure/cpu", "no numbers\n");
  EXPECT_EQ(use().run_delay_is, Figure::Unreadable);
  EXPECT_EQ(use().pressure_is, Figure::Unreadable);
  fs::remove(cat(folder_, "/pressure/cpu"));
  fs::create_directories(cat(folder_, "/pressure/cpu"));
  EXPECT_EQ(use().pressure_is, Figure::Unreadable);
  if (geteuid() == 0) return;  // root may read everything
  fs::permissions(cat(folder_, "/self/task/7/schedstat"), fs::perms::none);
  EXPECT_EQ(use().run_delay_is, Figure::Forbidden);
}

// The real kernel's figures only grow.
TEST(ProcessorUse, OfThisProcess) {
  const ProcessorUse before = processor_use();
  double sum = 0;
  while (processor_use().cpu < before.cpu + std::chrono::milliseconds(2)) sum += 1;
  const ProcessorUse after = processor_use();
  EXPECT_GT(sum, 0);
  EXPECT_GT(after.at, before.at);
  EXPECT_EQ(after.run_delay_is, before.run_delay_is);
  EXPECT_EQ(after.pressure_is, before.pressure_is);
  EXPECT_GE(after.pressure, before.pressure);
  if (before.run_delay_is != Figure::Known) GTEST_SKIP() << "this kernel counts no run delay";
  const auto own = static_cast<int64_t>(gettid());
  ASSERT_TRUE(before.run_delay.contains(own));
  EXPECT_GE(after.run_delay.at(own), before.run_delay.at(own));
}

}  // namespace
}  // namespace tenuto
