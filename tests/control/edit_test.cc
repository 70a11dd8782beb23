// A decision's edits: what they tell, and that they are all that changes a state.
#include "control/edit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/survival.h"

namespace tenuto {
namespace {

// True for an edit that comes with every report or step.
bool is_routine(const Edit& edit) {
  return std::holds_alternative<ClockAdvanced>(edit) || std::holds_alternative<WorkerHeard>(edit) ||
         std::holds_alternative<ReportReceived>(edit) ||
         std::holds_alternative<JoinerReported>(edit) ||
         std::holds_alternative<StepMeasured>(edit) ||
         std::holds_alternative<InstructionTold>(edit);
}

Rules story_rules() {
  Rules rules = surviving_rules();
  rules.steps = 100;
  rules.treatments.slow_links = Treatment::Adapt;
  return rules;
}

// A run in which much happens; `edits` has all edits of it.
class Story : public Survival {
 public:
  Story() : Survival(story_rules()) {}

  // All live workers take a step, save what they are asked to, and know the newest plan. Messages
  // between workers 0 and 1 take `delay` one way.
  void all_step() {
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!state.members[i].alive || reports[i].phase != Phase::Running) continue;
      reports[i].plan = state.told.plan_serial;
      if (state.told.save_version == reports[i].version + 1) save(i);
      const Decision decision = take_measured(i);
      if (decision.checkpoint) hear(Stored{decision.checkpoint->version, ""});
      if (decision.wanted) hear(Planned{decision.wanted->request, nullptr, "", 0});
    }
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) all_step();
  }
  // Worker 3 dies, and the others continue without it.
  void lose() {
    die();
    freeze();
    run();
    steps(3);
  }
  // Another process takes its place, and has the whole state after some steps.
  void come_back() {
    Report& of = reports[3] = {};
    of.worker = kDead;
    of.incarnation = 1;
    report(3);
    of.epoch = state.epoch;
    of.address = "127.0.0.1:9000";
    of.connected = true;
    report(3);
    know_plan();
    while (state.committed + 1 < state.planning.from) all_step();
    of.phase = Phase::Running;
    of.version = state.planning.from;
    report(3);
    steps(2);
    of.received = state.committed;
    report(3);
    know_plan();
    steps(5);
  }

  Duration delay = kMillisecond;

 private:
  void know_plan() {
    for (size_t i = 0; i < reports.size(); ++i) {
      reports[i].plan = state.planning.serial;
      if (state.members[i].alive) report(i);
    }
  }
  Decision take_measured(size_t i) {
    const auto self = static_cast<int32_t>(i);
    Report& of = reports[i];
    StepSummary summary{.step = of.version, .start_ns = 1, .finish_ns = 2};
    for (int32_t micro = 0; micro < 2; ++micro) summary.losses.push_back({{micro}, 3.0});
    summary.sample = {{self}, summary.step, {}, {}};
    const Duration way = i < 2 ? delay : kMillisecond;
    const WorkerId peer{self % 2 == 0 ? self + 1 : self - 1};
    if (state.members[static_cast<size_t>(peer.value)].alive) {
      summary.sample.links = {steady_link(peer, {self}, way)};
    }
    of.steps = {summary};
    of.version += 1;
    return report(i);
  }
};

// The edits of one run: a death, a return, a slow link, a checkpoint and a stop.
EditList play_story() {
  Story run;
  run.steps(2);
  run.lose();
  run.come_back();
  Fault slow;
  slow.link = 0;
  slow.latency_ms = 40;
  run.hear(Request{.kind = Request::Kind::Fault, .fault = slow});
  run.delay = 41 * kMillisecond;
  run.steps(8);
  run.hear(Request{.kind = Request::Kind::Checkpoint});
  run.steps(3);
  run.hear(Request{.kind = Request::Kind::Stop, .number = 15});
  run.steps(2);
  return run.edits;
}

TEST(Edit, EditsPrintWhatHappenedInARun) {
  std::string story;
  for (const Edit& edit : play_story()) {
    if (!is_routine(edit)) story += to_text(edit) + "\n";
  }
  EXPECT_EQ(story, R"(the run begins
version 1 is committed
version 2 is committed
the process of worker 3 has ended
worker 3 is declared dead
recovery begins without worker 3: worker 3 (stage 1 of pipeline 1) was killed by signal 9 in step 2
the planner is asked for a plan in the place of 1f1b, with routing
all run again, and the step is done again
the first worker runs again
version 3 is committed
the planner is asked for a plan in the place of 1f1b, with routing
the planner has answered
version 4 is committed
version 5 is committed
a process for worker 3 is invited, incarnation 1
an interim plan is proposed: 1f1b
joiners receive the state: 3
the plan is in force from step 7
joiner 3 is needed for versions above 7
version 6 is committed
version 7 is committed
version 8 is committed
worker 3 has joined
an interim plan is proposed: 1f1b
the plan is in force from step 10
version 9 is committed
version 10 is committed
version 11 is committed
no other plan is needed
version 12 is committed
version 13 is committed
a fault from step 15 on: 40 ms more each way on link 0
version 14 is committed
version 15 is committed
version 16 is committed
the planner is asked for a plan in the place of 1f1b
the planner has answered
version 17 is committed
version 18 is committed
version 19 is committed
version 20 is committed
version 21 is committed
a checkpoint is asked for: version 23
version 22 is committed
stage 0 of version 23 is in stage-0.safetensors
stage 1 of version 23 is in stage-1.safetensors
version 23 is committed
all shards of version 23 are saved
the checkpoint of version 23 is complete
version 24 is committed
a stop is asked for by signal 15: at version 25
stage 0 of version 25 is in stage-0.safetensors
stage 1 of version 25 is in stage-1.safetensors
version 25 is committed
all shards of version 25 are saved
the checkpoint of version 25 is complete
the run ends with exit code 143: stopped by signal 15 after step 24
)");
}

// A state that has had the same edits is the same state.
TEST(Edit, ApplyingAllEditsGivesTheSameState) {
  Story run;
  run.steps(2);
  run.lose();
  run.come_back();
  State state = begin(story_rules(), {});
  for (const Edit& edit : run.edits) apply_edit(edit, state);
  EXPECT_EQ(facts_of(state), facts_of(run.state));
  EXPECT_EQ(state.told, run.state.told);
  EXPECT_EQ(state.situation, run.state.situation);
  EXPECT_EQ(state.planning.stale, run.state.planning.stale);
  EXPECT_EQ(state.planning.request, run.state.planning.request);
  EXPECT_EQ(state.listened_at, run.state.listened_at);
  for (size_t worker = 0; worker < state.members.size(); ++worker) {
    EXPECT_EQ(state.members[worker].report, run.state.members[worker].report);
    EXPECT_EQ(state.members[worker].since, run.state.members[worker].since);
    EXPECT_EQ(state.members[worker].heard_at, run.state.members[worker].heard_at);
  }
}

// One edit of each kind.
template <size_t... kinds>
std::vector<Edit> one_of_each(std::index_sequence<kinds...>) {
  return {Edit(std::in_place_index<kinds>)...};
}

TEST(Edit, EachKindHasATextOfItsOwn) {
  std::set<std::string> texts;
  for (Edit& edit : one_of_each(std::make_index_sequence<std::variant_size_v<Edit>>())) {
    if (auto* of = std::get_if<RestFound>(&edit)) of->rest = std::make_shared<RestOfStep>();
    if (auto* of = std::get_if<InstructionTold>(&edit)) {
      of->instruction = std::make_shared<Instruction>();
    }
    const std::string text = to_text(edit);
    EXPECT_FALSE(text.empty()) << "kind " << edit.index();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_TRUE(texts.insert(text).second) << text;
  }
}

}  // namespace
}  // namespace tenuto
