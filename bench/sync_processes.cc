#include "bench/sync_processes.h"

#include <cmath>
#include <cstdio>

namespace tenuto {

namespace {

// How far the real run may be from the virtual clock: its rate, and its age in W.
constexpr double kRateTarget = 0.10, kAgeTarget = 0.05;

}  // namespace

Status print_processes(const ProcessesQuestion& question) {
  std::printf("%-15s %-17s | %7s %7s %6s | %6s %6s %7s | %7s %7s %6s | %s\n", "scenario", "mode",
              "grad/s", "virtual", "ratio", "age", "virtual", "diff/W", "updates", "changes",
              "epochs", "accuracy");
  for (const ProcessesCase& one : question.cases) {
    TrialSetting endless = one.setting;
    endless.target = 2;  // no accuracy ends the trial
    const auto simulated = run_trial(endless);
    if (!simulated.ok()) return simulated.error();
    const auto ran = run_sync_processes({one.setting, question.servers, question.kills});
    if (!ran.ok()) return ran.error();
    const SyncMeasure& real = ran.value().measure;
    const SyncMeasure& virtual_clock = simulated.value().measure;
    const double ratio = real.gradients_per_second / virtual_clock.gradients_per_second;
    const double difference =
        (real.mean_age - virtual_clock.mean_age) / one.setting.scenario.replicas;
    const bool is_near = std::abs(ratio - 1) <= kRateTarget && std::abs(difference) <= kAgeTarget;
    std::printf(
        "%-15s %-17s | %7.1f %7.1f %6.3f | %6.2f %6.2f %+7.3f | %7lld %7lld %6lld | "
        "%.1f %% and %.1f %%%s\n",
        one.setting.scenario.name.c_str(), one.mode.c_str(), real.gradients_per_second,
        virtual_clock.gradients_per_second, ratio, real.mean_age, virtual_clock.mean_age,
        difference, static_cast<long long>(ran.value().updates),
        static_cast<long long>(ran.value().changes), static_cast<long long>(ran.value().epochs),
        100 * ran.value().accuracy, 100 * simulated.value().accuracy,
        question.kills.empty() && !is_near ? "  (above the target)" : "");
    std::fflush(stdout);
  }
  std::printf(
      "audited: each micro-batch is in one update, was dropped by name or waits; all keepers "
      "of a range have the same bits; the version is the number of updates\n");
  return ok();
}

}  // namespace tenuto
