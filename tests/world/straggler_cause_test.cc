#include "world/straggler_cause.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenuto {
namespace {

TEST(StragglerCauses, AreWhatAddsMost) {
  struct Case {
    TimeParts own, best;
    std::optional<StragglerCause> cause;
    std::string why;
  };
  const auto cpu = StragglerCause::Cpu, device = StragglerCause::Device,
             link = StragglerCause::Link;
  const TimeParts best{80, 20, 80, 0, 0};
  const std::vector<Case> cases = {
      {{160, 99, 80, 80, 1}, best, cpu, "compute adds 80, transfer 79"},
      {{160, 100, 80, 80, 1}, best, link, "both add 80"},
      {{160, 20, 80, 40, 0}, best, cpu, "run delay explains half"},
      {{160, 20, 80, 39, 1}, best, device, "less than half, whatever the pressure"},
      {{160, 20, 80, 40, 0}, {80, 20, 80, 1, 0}, device, "it had some of the run delay before"},
      {{160, 20, 80, 40, 0}, {80, 20, 80, {}, 0}, cpu, "none is known from before"},
      {{160, 20, 120, {}, 0.1}, best, cpu, "pressure, and half of what is added is no CPU time"},
      {{160, 20, 121, {}, 0.1}, best, device, "pressure alone"},
      {{160, 20, 80, {}, 0.09}, best, device, "idle alone"},
      {{160, 20, 80, {}, 0.59}, {80, 20, 80, {}, 0.5}, device, "it had the pressure before"},
      {{160, 20, 80, {}, {}}, best, std::nullopt, "nothing is known"},
      {{160, 120, 80, {}, {}}, best, link, "of the link all is known"},
  };
  for (const Case& it : cases) EXPECT_EQ(cause_of(it.own, it.best), it.cause) << it.why;
}

}  // namespace
}  // namespace tenuto
