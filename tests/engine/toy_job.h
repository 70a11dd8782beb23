// What the tests of the engine train: small models on text that each test writes itself.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/text.h"
#include "world/job.h"

namespace tenuto {

// A test with a folder of its own, which is removed when the test ends.
class ToyTest : public testing::Test {
 protected:
  ToyTest() {
    const std::string suite =
        testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
    folder_ = std::filesystem::temp_directory_path() / cat("tenuto-", suite, "-", getpid());
    std::filesystem::create_directories(folder_);
  }
  ~ToyTest() override { std::filesystem::remove_all(folder_); }
  std::string folder() const { return folder_.string(); }
  std::string place(const std::string& name) const { return (folder_ / name).string(); }
  // Writes `count` lines into a file of the folder; line(out, i) writes line i.
  template <class Line>
  void write_lines(const std::string& name, int count, const Line& line) const {
    std::ofstream out(place(name));
    for (int i = 0; i < count; ++i) line(out, i);
  }
  // Two layers, cut into `stages`, which learn from a.txt.
  Job toy_job(int32_t stages, int32_t micros) const {
    Job job;
    job.data.paths = {place("a.txt")};
    job.model.layers = 2;
    job.model.width = 32;
    job.model.heads = 2;
    job.model.sequence = 16;
    job.optimizer.warm_up_steps = 1;
    job.parallel.stages = stages;
    job.parallel.micros = micros;
    job.parallel.micro_rows = 2;
    return job;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace tenuto
