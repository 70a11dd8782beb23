// A run whose workers are played by a test.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "control/decide.h"
#include "world/sample.h"

namespace tenuto {

inline constexpr Duration kSecond = std::chrono::seconds(1);

inline Rules small_rules() {
  Rules rules;
  rules.steps = 10;
  rules.checkpoint_every = 4;
  rules.micro_count = 2;
  rules.evaluation_count = 1;
  rules.stages = {{0, 1, {{0}, {2}}}, {1, 2, {{1}, {3}}}};  // two pipelines of two stages
  rules.directory = "runs/small";
  rules.start_limit = 30 * kSecond;
  rules.silence_limit = 60 * kSecond;
  rules.explain_limit = kSecond / 2;
  rules.stop_limit = 10 * kSecond;
  rules.salvage_limit = 10 * kSecond;
  return rules;
}

// Eight messages of 64 bytes from `from` to `to`, each of which took `way`.
inline LinkSample steady_link(WorkerId from, WorkerId to, Duration way) {
  return {.from = from,
          .to = to,
          .messages = 8,
          .least = way,
          .median = way,
          .upper = way,
          .smallest = {64},
          .largest = {64},
          .of_smallest = way,
          .of_largest = way};
}

// A user's request to treat what `key` names as `how` says.
inline Request request_for(TreatmentKey key, Treatment how) {
  return {.kind = Request::Kind::Treat, .key = key, .how = how};
}

// A run whose workers are played by the test, on a clock that it turns.
class Play {
 public:
  explicit Play(const Rules& rules = small_rules()) : state(begin(rules, {})) {
    reports.resize(state.members.size());
    for (size_t i = 0; i < reports.size(); ++i) {
      reports[i].worker = {static_cast<int32_t>(i)};
      reports[i].epoch = rules.epoch;
    }
  }

  Decision hear(decltype(Input::what) what) {
    Decision decision = decide(state, {now, std::move(what)});
    state = decision.state;
    edits.append(decision.edits);
    return decision;
  }
  Decision report(size_t worker) {
    reports[worker].sequence += 1;
    return hear(reports[worker]);
  }
  // Lets time pass; all live workers keep reporting, unless `mute`. Returns the last decision.
  Decision pass(Duration time) {
    constexpr int kMoments = 16;
    Decision last;
    for (int moment = 0; moment < kMoments; ++moment) {
      now += time / kMoments;
      for (size_t i = 0; i < reports.size(); ++i) {
        if (state.members[i].heard && state.members[i].alive && !mute) hear(reports[i]);
      }
      last = hear(Tick{});
    }
    return last;
  }
  void connect() {
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!state.members[i].alive) continue;
      reports[i].address = cat("127.0.0.1:", 7000 + i);
      reports[i].connected = true;
      reports[i].version = state.committed;
      report(i);
    }
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!state.members[i].alive) continue;
      reports[i].phase = Phase::Running;
      report(i);
    }
  }
  // Worker `i` takes a step, and saves it if it was asked to.
  Decision step(size_t i) {
    Report& of = reports[i];
    StepSummary summary{.step = of.version, .start_ns = 100, .finish_ns = 100 + int64_t(i)};
    if (i % 2 == 1) {
      summary.losses = {{{static_cast<int32_t>(i / 2)}, 2.0 + static_cast<double>(i)}};
      summary.learning_rate = 0.5;
    }
    of.steps = {summary};
    of.version += 1;
    if (state.told.save_version == of.version) save(i);
    return report(i);
  }
  void save(size_t i) {
    for (const WorkerId saver : state.told.savers) {
      if (saver.value != static_cast<int32_t>(i)) continue;
      const auto stage = static_cast<int32_t>(i % 2);
      reports[i].shards = {
          {state.told.save_version, cat("stage-", stage, ".safetensors"), 7, "00", {stage}}};
    }
  }
  // All workers take steps until `version` should be committed, or the run ends.
  void advance_to(int64_t version) {
    for (int64_t left = version - state.committed; left > 0 && !state.ending; --left) {
      for (size_t i = 0; i < reports.size(); ++i) {
        const Decision decision = step(i);
        if (decision.checkpoint) hear(Stored{decision.checkpoint->version, ""});
      }
    }
  }
  // All live workers answer the newest directive: they report that they are frozen, in its epoch.
  Decision freeze() {
    Decision last;
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!state.members[i].alive) continue;
      reports[i].epoch = state.told.directive.epoch;
      reports[i].phase = Phase::Frozen;
      reports[i].lost_peers.clear();
      reports[i].failure.clear();
      last = report(i);
    }
    return last;
  }
  // The savers go to the requested version and save it. Returns the decision with the checkpoint.
  Decision save_all() {
    Decision last;
    for (const WorkerId saver : std::vector<WorkerId>(state.told.savers)) {
      const size_t i = static_cast<size_t>(saver.value);
      reports[i].version = state.told.save_version;
      save(i);
      Decision decision = report(i);
      if (decision.checkpoint) last = std::move(decision);
    }
    return last;
  }

  State state;
  EditList edits;  // of all decisions
  std::vector<Report> reports;
  Duration now{};
  bool mute = false;
};

}  // namespace tenuto
