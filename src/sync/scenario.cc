#include "sync/scenario.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tenuto {

namespace {

// What each number is drawn for.
enum class Draw : uint64_t { Compute = 1, Transfer, Luck, Sample };

uint64_t key_of(uint64_t seed, int32_t replica, int64_t iteration, Draw draw) {
  return mix(seed, static_cast<uint64_t>(replica), static_cast<uint64_t>(iteration),
             static_cast<uint64_t>(draw));
}

// Uniform in (0, 1].
double uniform(uint64_t key) { return static_cast<double>((key >> 11) + 1) * 0x1.0p-53; }

Duration scaled(Duration time, double factor) {
  return Duration(std::llround(static_cast<double>(time.count()) * factor));
}

// nullptr = the scenario has no phases.
const SlowPhase* phase_at(const SyncScenario& scenario, Duration now) {
  if (scenario.phases.empty()) return nullptr;
  const PhaseRound round = round_of(scenario);
  Duration rest = round.repeats ? now % round.length : now;
  for (const SlowPhase& phase : scenario.phases) {
    if (!phase.length || rest < *phase.length) return &phase;
    rest -= *phase.length;
  }
  return nullptr;
}

SyncScenario scenario_of(std::string name, std::vector<SlowPhase> phases, int32_t replicas = 8,
                         double apply_ms = 1) {
  SyncScenario scenario;
  scenario.name = std::move(name);
  scenario.replicas = replicas;
  scenario.base = {from_milliseconds(80), from_milliseconds(20)};
  scenario.apply = from_milliseconds(apply_ms);
  scenario.phases = std::move(phases);
  return scenario;
}

std::optional<Duration> length_of(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  return from_milliseconds(1000 * *seconds);
}

SlowPhase slow(std::vector<SlowReplica> replicas, std::optional<double> seconds = std::nullopt) {
  return {length_of(seconds), std::move(replicas)};
}

SlowPhase transient(double chance, double transfer, std::optional<double> seconds = std::nullopt,
                    bool in_pairs = false) {
  return {length_of(seconds), {}, chance, transfer, in_pairs};
}

std::vector<SlowReplica> slow_links(int32_t count, double transfer) {
  std::vector<SlowReplica> replicas;
  for (int32_t i = 0; i < count; ++i) replicas.push_back({i, 1, transfer});
  return replicas;
}

// Transfer times of 1, 2, 3, ... times the base.
std::vector<SlowReplica> spread_links(int32_t count) {
  std::vector<SlowReplica> replicas;
  for (int32_t i = 0; i < count; ++i) replicas.push_back({i, 1, 1.0 + i});
  return replicas;
}

}  // namespace

const std::vector<SyncScenario>& sync_scenarios() {
  static const std::vector<SyncScenario> all = {
      scenario_of("none", {}),
      scenario_of("slow-compute", {slow({{0, 2, 1}})}),
      scenario_of("slow-link", {slow(slow_links(1, 16))}),
      scenario_of("three-links", {slow(slow_links(3, 8.5))}),
      scenario_of("random", {transient(0.1, 16)}),
      scenario_of("phases", {slow({}, 6), slow(slow_links(1, 16), 6), slow(slow_links(2, 8.5), 6),
                             slow({}, 6), transient(0.1, 16, 6)}),
      scenario_of("busy-server", {slow(slow_links(1, 8.5))}, 8, 22),
      scenario_of("spread", {slow(spread_links(8))}),
      // New shapes, on which nothing was tuned.
      scenario_of("four-slow-link", {slow(slow_links(1, 10))}, 4),
      scenario_of("sixteen-links", {slow(slow_links(4, 6))}, 16),
      scenario_of("mixed", {slow({{0, 1.6, 1}, {5, 1, 5}})}),
      scenario_of("pairs", {transient(0.08, 12, std::nullopt, true)}),
  };
  return all;
}

const SyncScenario* find_sync_scenario(std::string_view name) {
  for (const SyncScenario& scenario : sync_scenarios()) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

PhaseRound round_of(const SyncScenario& scenario) {
  PhaseRound round;
  for (const SlowPhase& phase : scenario.phases) {
    if (!phase.length) {
      round.repeats = false;
      break;
    }
    round.length += *phase.length;
  }
  return round;
}

bool has_right_phases(const SyncScenario& scenario) {
  const bool below_zero = std::any_of(
      scenario.phases.begin(), scenario.phases.end(),
      [](const SlowPhase& phase) { return phase.length && *phase.length < Duration{}; });
  if (below_zero) return false;
  const PhaseRound round = round_of(scenario);
  return scenario.phases.empty() || !round.repeats || round.length > Duration{};
}

double normal(uint64_t key) {
  const double first = uniform(key), second = uniform(mix(key, 1));
  return std::sqrt(-2 * std::log(first)) * std::cos(2 * std::numbers::pi * second);
}

double lognormal(double deviation, uint64_t key) {
  if (deviation <= 0) return 1;
  const double sigma = std::sqrt(std::log1p(deviation * deviation));
  return std::exp(sigma * normal(key) - sigma * sigma / 2);
}

IterationTimes times_of(const SyncScenario& scenario, uint64_t seed) {
  CHECK(has_right_phases(scenario), "a scenario has a phase that lasts, and no length below zero");
  return [scenario, seed](int32_t replica, int64_t iteration, Duration now) {
    double compute =
        lognormal(scenario.compute_jitter, key_of(seed, replica, iteration, Draw::Compute));
    double transfer =
        lognormal(scenario.transfer_jitter, key_of(seed, replica, iteration, Draw::Transfer));
    if (const SlowPhase* phase = phase_at(scenario, now)) {
      for (const SlowReplica& of : phase->slow) {
        if (of.replica != replica) continue;
        compute *= of.compute;
        transfer *= of.transfer;
      }
      const int32_t lucky = phase->in_pairs ? replica / 2 : replica;
      if (uniform(key_of(seed, lucky, iteration, Draw::Luck)) <= phase->chance) {
        transfer *= phase->transfer;
      }
    }
    return IterationTime{scaled(scenario.base.compute, compute),
                         scaled(scenario.base.transfer, transfer)};
  };
}

IterationTimes times_of(std::vector<std::vector<IterationTime>> samples, uint64_t seed) {
  return [samples = std::move(samples), seed](int32_t replica, int64_t iteration, Duration) {
    const auto& own = samples[static_cast<size_t>(replica)];
    return own[key_of(seed, replica, iteration, Draw::Sample) % own.size()];
  };
}

}  // namespace tenuto
