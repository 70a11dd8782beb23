#include "sync/baselines.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/number.h"
#include "base/sentence.h"
#include "base/text.h"

namespace tenuto {

namespace {

enum class Baseline : uint8_t { LbBsp, SyncSwitch, GradientCoding, ZenoPlusPlus, NoGrace };

constexpr std::array<std::string_view, 5> kNames = {"lb-bsp", "sync-switch", "gradient-coding",
                                                    "zeno++", "no-grace"};

// A name and what stands behind its colon.
struct Named {
  std::string_view name, figure;
  bool has_figure = false;
};

Named named(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {text, {}, false};
  return {text.substr(0, colon), text.substr(colon + 1), true};
}

std::optional<Baseline> find_baseline(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return {};
  return static_cast<Baseline>(found - kNames.begin());
}

Error expected(const std::string& what, std::string_view found) {
  return invalid(cat("baseline '", excerpt(found), "': expected ", what));
}

void set_mode(SyncKind kind, int32_t count, MethodKind method, TrialSetting& trial) {
  trial.policy = SyncPolicy::Fixed;
  trial.mode = {};
  trial.mode.kind = kind;
  trial.mode.count = count;
  trial.method = method;
}

}  // namespace

const std::vector<std::string>& usual_baselines() {
  // The shares are two of those in the data of Sync-Switch's authors; gradient coding waits for all
  // but two.
  static const std::vector<std::string> all = {
      "lb-bsp", "sync-switch:6.25", "sync-switch:50", "gradient-coding:2", "zeno++", "no-grace"};
  return all;
}

bool is_baseline(std::string_view name) { return find_baseline(named(name).name).has_value(); }

Status set_baseline(std::string_view name, TrialSetting& trial) {
  const Named of = named(name);
  const std::optional<Baseline> baseline = find_baseline(of.name);
  if (!baseline) {
    return expected("lb-bsp, sync-switch:P, gradient-coding:S, zeno++ or no-grace", name);
  }
  const bool figure = baseline == Baseline::SyncSwitch || baseline == Baseline::GradientCoding;
  if (of.has_figure && !figure) return expected(cat("nothing behind ", of.name), name);
  switch (*baseline) {
    case Baseline::LbBsp:
      trial.policy = SyncPolicy::Balanced;
      break;
    case Baseline::SyncSwitch: {
      const auto percent = number_in<double>(of.figure);
      if (!percent || !(*percent >= 0 && *percent <= 100)) {
        return expected("the percentage of the run that is synchronous, from 0 to 100", name);
      }
      trial.policy = SyncPolicy::Switched;
      trial.synchronous_share = *percent / 100;
      break;
    }
    case Baseline::GradientCoding: {
      const auto spare = number_in<int32_t>(of.figure);
      const int32_t replicas = trial.scenario.replicas;
      if (!spare || *spare < 0 || *spare >= replicas) {
        return expected(cat("the replicas that an update does without, from 0 to ", replicas - 1,
                            " of ", replicas),
                        name);
      }
      set_mode(SyncKind::Count, replicas - *spare, MethodKind::Coded, trial);
      break;
    }
    case Baseline::ZenoPlusPlus:
      set_mode(SyncKind::Asynchronous, 0, MethodKind::Scored, trial);
      break;
    case Baseline::NoGrace:
      trial.policy = SyncPolicy::LookAhead;
      trial.grace = false;
      break;
  }
  return ok();
}

}  // namespace tenuto
