// What follows from the settings of a job alone.
#include "world/job.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tenuto {
namespace {

TEST(Job, ValidatesAfterMultiplesAndAtTheEnd) {
  Job job;
  job.steps = 25;
  job.validate_every = 10;
  std::vector<int64_t> validated;
  for (int64_t steps_done = 1; steps_done <= job.steps; ++steps_done) {
    if (job.validates_after(steps_done)) validated.push_back(steps_done);
    EXPECT_EQ(job.last_validation(steps_done), validated.empty() ? 0 : validated.back());
  }
  EXPECT_EQ(validated, (std::vector<int64_t>{10, 20, 25}));
  EXPECT_EQ(job.last_validation(0), 0);
  EXPECT_EQ(job.last_validation(31), 25);
}

TEST(Job, ValidatesOnlyAtTheEnd) {
  Job job;
  job.steps = 25;
  job.validate_every = 0;
  EXPECT_FALSE(job.validates_after(24));
  EXPECT_TRUE(job.validates_after(25));
  EXPECT_EQ(job.last_validation(24), 0);
  EXPECT_EQ(job.last_validation(25), 25);
}

TEST(Job, ValidatesNever) {
  Job job;
  job.steps = 25;
  job.validate_every = 5;
  job.validate_micros = 0;
  EXPECT_FALSE(job.validates_after(5));
  EXPECT_FALSE(job.validates_after(25));
  EXPECT_EQ(job.last_validation(24), 0);
  EXPECT_EQ(job.last_validation(25), 0);
}

}  // namespace
}  // namespace tenuto
