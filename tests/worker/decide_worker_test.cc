// The story of one worker, as decide_worker() tells it: what it hears and what it does, line by
// line.
#include "worker/decide_worker.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

// Worker 0 of two pipelines of two stages; it runs stage 0 beside worker 2.
class Story {
 public:
  Story() {
    Shape shape;
    shape.stages = shape.layers = 2;
    shape.pipelines = 2;
    shape.micros = 1;
    shape.order = "1f1b";
    auto plan = make_plan(shape);
    CHECK(plan.ok(), "a small plan");
    told_.plan = std::make_shared<const Plan>(std::move(plan).value());
    told_.job_toml = std::make_shared<const std::string>();
    auto of = std::make_shared<Job>();
    of->validate_every = 0;
    of->validate_micros = 0;
    job = std::move(of);
    Directive& directive = told.directive;
    directive.term = directive.epoch = 1;
    directive.stop_at = 4;
    directive.members = {{0}, {1}, {2}, {3}};
    told.addresses = {"a", "b", "c", "d"};
    told.incarnations = {0, 0, 0, 0};
    told.save_directory = "runs/x";
    state = begin_worker({.job = "small",
                          .coordinator = "here",
                          .self = {0},
                          .process = 7,
                          .host = "host",
                          .answer_limit = std::chrono::seconds(20),
                          .mend_limit = std::chrono::seconds(5)},
                         {});
  }

  // Feeds an input; returns the actions, each on a line of its own.
  std::string feed(WorkerInput::What what) {
    WorkerDecision decision =
        decide_worker(std::move(state), {now, {version, {.version = version}}, std::move(what)});
    state = std::move(decision.state);
    std::string text;
    for (const WorkerAction& action : decision.actions) text += cat(to_text(action), "\n");
    return text;
  }
  // The worker hears the instruction in `told`.
  std::string hear() {
    told.sequence += 1;
    told_.instruction = told;
    return feed(Heard{std::make_shared<const Told>(told_)});
  }
  // Up to the report that it is connected.
  void get_ready() {
    hear();
    feed(Prepared{ok(), job, "a"});
    version = 0;
    feed(DeviceMade{ok(), true});
    feed(Connected{{1}, 1});
    feed(Connected{{2}, 1});
    feed(Loaded{});
  }
  // Up to the first step.
  void begin_running() {
    get_ready();
    told.directive.phase = Phase::Running;
    hear();
    feed(TransferMoved{ok(), true});
  }
  // The worker ends a step.
  std::string step() {
    const int64_t done = version++;
    return feed(StepEnded{.summary = {.step = done}});
  }

  Instruction told;
  std::shared_ptr<const Job> job;
  WorkerState state;
  Duration now{};
  int64_t version = -1;

 private:
  Told told_;
};

TEST(DecideWorker, PreparesConnectsAndLoads) {
  Story story;
  EXPECT_EQ(story.hear(), "prepare stages 0\n");
  EXPECT_EQ(story.hear(), "") << "nothing else before the outcome";
  EXPECT_EQ(story.feed(Prepared{ok(), story.job, "a"}),
            "tell frozen epoch 1 version -1 plan 1\n"
            "make device\n");
  story.version = 0;
  EXPECT_EQ(story.feed(DeviceMade{ok(), true}),
            "say worker 0: stage 0 of job small, process 7\n"
            "connect to 1 at b\n"
            "connect to 2 at c\n");
  EXPECT_EQ(story.feed(Connected{{2}, 1}), "");
  EXPECT_EQ(story.feed(Connected{{1}, 1}), "load version 0 from 0 shards\n");
  EXPECT_EQ(story.feed(Loaded{}), "tell frozen epoch 1 version 0 plan 1 connected\n");
  EXPECT_EQ(story.feed(Idle{}), "");
}

TEST(DecideWorker, RunsStepsSavesAndLeaves) {
  Story story;
  story.get_ready();
  story.told.directive.phase = Phase::Running;
  EXPECT_EQ(story.hear(),
            "tell running epoch 1 version 0 plan 1 connected\n"
            "transfer state\n");
  EXPECT_EQ(story.feed(TransferMoved{ok(), true}), "run step 0\n");
  EXPECT_EQ(story.step(),
            "tell running epoch 1 version 1 plan 1 connected step 0\n"
            "transfer state\n");
  story.feed(TransferMoved{ok(), true});
  story.told.directive.committed = 1;
  story.told.directive.stop_at = story.told.save_version = 2;
  story.told.savers = {{0}, {1}};
  EXPECT_EQ(story.hear(), "") << "the step goes on";
  EXPECT_EQ(story.step(), "save version 2 stages 0 in runs/x\n") << "it reports what is saved";
  EXPECT_EQ(story.feed(Saved{ok(), {{2, "stage-0", 1, "", {0}}}}),
            "tell running epoch 1 version 2 plan 1 connected step 1 saved 2\n");
  story.told.directive.phase = Phase::Out;
  EXPECT_EQ(story.hear(),
            "say worker 0: the coordinator told this worker to leave\n"
            "leave 0\n");
}

TEST(DecideWorker, EvaluatesTheVersionThatItLoads) {
  Story story;
  auto job = std::make_shared<Job>(*story.job);
  job->evaluate = "runs/x";
  story.job = std::move(job);
  story.told.resume_shards = {"runs/x/checkpoint-6/stage-0.safetensors"};
  Directive& directive = story.told.directive;
  directive.first_step = directive.stop_at = 6;
  directive.committed = 5;
  story.hear();
  story.feed(Prepared{ok(), story.job, "a"});
  story.version = 0;
  story.feed(DeviceMade{ok(), true});
  story.feed(Connected{{1}, 1});
  EXPECT_EQ(story.feed(Connected{{2}, 1}), "load version 6 from 1 shards\n");
  story.version = 6;
  EXPECT_EQ(story.feed(Loaded{}), "tell frozen epoch 1 version 6 plan 1 connected\n");
  directive.phase = Phase::Running;
  EXPECT_EQ(story.hear(),
            "tell running epoch 1 version 5 plan 1 connected\n"
            "evaluate\n");
  EXPECT_EQ(story.feed(Evaluated{ok(), {{{0}, 2.0}}}),
            "tell running epoch 1 version 6 plan 1 connected step 5\n");
  EXPECT_EQ(story.feed(Idle{}), "") << "there is no step to do";
}

TEST(DecideWorker, APassThatWasInterruptedBeginsAgain) {
  Story story;
  auto job = std::make_shared<Job>(*story.job);
  job->evaluate = "runs/x";
  story.job = std::move(job);
  Directive& directive = story.told.directive;
  directive.first_step = directive.stop_at = 6;
  directive.committed = 5;
  story.get_ready();
  story.version = 6;
  directive.phase = Phase::Running;
  story.hear();
  story.feed(LostPeer{{2}, 1, "lost"});
  const std::string broken =
      story.feed(Evaluated{Error{Code::Disconnected, Reach::Worker, "the pass is over"}, {}});
  EXPECT_NE(broken.find("tell running epoch 1 version 5"), std::string::npos) << broken;
  directive.epoch = 2;
  directive.phase = Phase::Frozen;
  directive.members = {{0}, {1}, {3}};
  story.told.addresses = {"a", "b", "d"};
  story.told.incarnations = {0, 0, 0};
  EXPECT_EQ(story.hear(), "renew transport for epoch 2\n");
  story.feed(Renewed{ok(), "a2", {}});
  directive.phase = Phase::Running;
  const std::string again = story.hear();
  EXPECT_NE(again.find("tell running epoch 2 version 5 plan 1 connected\n"), std::string::npos)
      << again << "what it had reported of the pass is dropped";
}

// A worker that copies version 2, in a run that goes on.
Story story_of_a_copy() {
  Story story;
  auto job = std::make_shared<Job>(*story.job);
  job->checkpoint_asynchronous = true;
  story.job = std::move(job);
  story.begin_running();
  story.step();
  story.feed(TransferMoved{ok(), true});
  story.told.directive.committed = 1;
  story.told.save_version = 2;
  story.told.savers = {{0}, {1}};
  story.hear();
  EXPECT_EQ(story.step(), "copy version 2 stages 0 for runs/x\n");
  EXPECT_EQ(story.feed(Saved{ok(), {}, true}),
            "tell running epoch 1 version 2 plan 1 connected step 1\n"
            "transfer state\n");
  EXPECT_EQ(story.feed(TransferMoved{ok(), true}), "run step 2\n");
  return story;
}

TEST(DecideWorker, ACopyIsWrittenOnceItsVersionIsCommitted) {
  Story story = story_of_a_copy();
  story.told.directive.committed = 2;
  story.told.save_version = 4;  // the version to stop at
  EXPECT_EQ(story.hear(), "write copy\n") << "in the middle of the step";
  EXPECT_EQ(story.hear(), "");
  EXPECT_EQ(story.step(),
            "tell running epoch 1 version 3 plan 1 connected step 2\n"
            "transfer state\n");
  story.feed(TransferMoved{ok(), true});
  EXPECT_EQ(story.feed(CopyWritten{2, ok(), {{2, "stage-0", 1, "", {0}}}}),
            "tell running epoch 1 version 3 plan 1 connected step 2 saved 2\n");
  story.told.directive.committed = 3;
  story.hear();
  EXPECT_EQ(story.step(), "save version 4 stages 0 in runs/x\n") << "the run ends with it";
  EXPECT_EQ(story.feed(Saved{ok(), {{4, "stage-0", 1, "", {0}}}}),
            "tell running epoch 1 version 4 plan 1 connected step 3 saved 2 saved 4\n")
      << "the coordinator may not have heard of version 2 yet";
}

TEST(DecideWorker, ACopyOfAStepThatIsUndoneIsNotWritten) {
  Story story = story_of_a_copy();
  EXPECT_NE(story.feed(LostPeer{{2}, 1, "lost"}), "");
  story.feed(StepEnded{Error{Code::Disconnected, Reach::Worker, "the step is over"}});
  Directive& directive = story.told.directive;
  directive.epoch = 2;
  directive.phase = Phase::Frozen;
  directive.members = {{0}, {1}, {3}};
  story.told.addresses = {"a", "b", "d"};
  story.told.incarnations = {0, 0, 0};
  story.told.save_version = -1;
  EXPECT_EQ(story.hear(), "renew transport for epoch 2\n");
  story.feed(Renewed{ok(), "a2", {}});
  directive.phase = Phase::Running;
  EXPECT_EQ(story.hear(), "undo\n") << "version 1 is committed";
  story.version = 1;
  EXPECT_NE(story.feed(Undone{}).find("drop copy\n"), std::string::npos);
  directive.committed = 2;
  EXPECT_EQ(story.hear().find("write copy"), std::string::npos);
}

TEST(DecideWorker, ACopyThatCannotBeWrittenEndsTheRunAsASaveDoes) {
  Story story = story_of_a_copy();
  story.told.directive.committed = 2;
  story.hear();
  const Error full{Code::Exhausted, Reach::Job, "cannot write runs/x: the disk is full"};
  EXPECT_EQ(story.feed(CopyWritten{2, full}),
            "say worker 0: cannot write runs/x: the disk is full\n"
            "tell running epoch 1 version 2 plan 1 connected step 1 failed: on host host: cannot "
            "write runs/x: the disk is full\n");
  EXPECT_EQ(story.feed(CopyWritten{2, Error{Code::Cancelled, Reach::Call, "late"}}), "")
      << "a later checkpoint is complete";
}

TEST(DecideWorker, APeerDiesAndTheStepIsUndone) {
  Story story;
  story.begin_running();
  story.step();  // version 1: not every member has taken this step
  story.feed(TransferMoved{ok(), true});
  EXPECT_EQ(story.feed(LostPeer{{2}, 1, "worker 0: worker 2 is lost"}),
            "say worker 0: worker 2 is lost\n");
  EXPECT_EQ(story.feed(StepEnded{Error{Code::Disconnected, Reach::Worker, "the step is over"}}),
            "say the step is over\n"
            "tell running epoch 1 version 1 plan 1 connected step 0 lost 2\n");
  Directive& directive = story.told.directive;
  directive.epoch = 2;
  directive.phase = Phase::Frozen;
  directive.members = {{0}, {1}};
  story.told.addresses = {"", ""};
  story.told.incarnations = {0, 0};
  EXPECT_EQ(story.hear(), "renew transport for epoch 2\n");
  EXPECT_EQ(story.feed(Renewed{ok(), "a2", {{.step = 0}}}),
            "tell frozen epoch 2 version 1 plan 1 connected step 0 holds 0\n");
  directive.phase = Phase::Running;
  story.told.plan_serial = 2;
  story.told.addresses = {"a2", "b2"};
  EXPECT_EQ(story.hear(), "undo\n");
  story.version = 0;
  EXPECT_EQ(story.feed(Undone{}),
            "tell running epoch 2 version 0 plan 1 connected\n"
            "connect to 1 at b2\n");
  EXPECT_EQ(story.feed(Connected{{1}, 2}), "") << "the plan of this test still has worker 2";
}

TEST(DecideWorker, ANewEpochAbandonsTheRunningStep) {
  Story story;
  story.begin_running();
  EXPECT_FALSE(standing_of(story.state).abandon);
  story.told.directive.epoch = 2;
  story.told.directive.phase = Phase::Frozen;
  EXPECT_EQ(story.hear(), "");
  EXPECT_TRUE(standing_of(story.state).abandon);
  EXPECT_EQ(story.feed(StepEnded{
                Error{Code::Cancelled, Reach::Call, "the coordinator told this worker to leave"}}),
            "renew transport for epoch 2\n");
}

// A peer that enters an epoch closes its transport, which the others may notice before they hear of
// the epoch themselves, and take up after they have.
TEST(DecideWorker, WhatAnEarlierTransportHasSaidDoesNotCount) {
  Story story;
  story.begin_running();
  story.told.directive.epoch = 2;
  story.told.directive.phase = Phase::Frozen;
  story.told.addresses = {"", "", "", ""};
  story.hear();
  EXPECT_EQ(story.feed(StepEnded{Error{Code::Cancelled, Reach::Call, "abandoned"}}),
            "renew transport for epoch 2\n");
  EXPECT_EQ(story.feed(LostPeer{{2}, 1}), "");
  EXPECT_EQ(story.feed(Connected{{2}, 1}), "");
  EXPECT_EQ(story.feed(Renewed{ok(), "a2", {}}),
            "tell frozen epoch 2 version 0 plan 1 connected\n");
  EXPECT_EQ(story.feed(LostPeer{{2}, 1}), "");
  EXPECT_EQ(story.feed(LostPeer{{2}, 2}),
            "tell frozen epoch 2 version 0 plan 1 connected lost 2\n");
}

TEST(DecideWorker, APeerWhoseHostDoesNotAnswerIsLost) {
  Story story;
  story.begin_running();
  story.step();
  story.told.plan_serial = 2;
  story.told.plan_from = -1;
  story.state.connected.clear();
  EXPECT_EQ(story.feed(TransferMoved{ok(), true}), "run step 1\n");
  story.hear();
  EXPECT_EQ(story.step(),
            "tell running epoch 1 version 2 plan 1 connected step 0 step 1\n"
            "connect to 1 at b\n"
            "connect to 2 at c\n");
  story.feed(Connected{{1}, 1});
  story.now = std::chrono::seconds(4);
  EXPECT_EQ(story.feed(Idle{}), "probe 2 at c\n");
  EXPECT_EQ(story.feed(Probed{{2}, "c", false}), "");
  story.now = std::chrono::seconds(5);
  EXPECT_EQ(story.feed(Probed{{2}, "c", false}),
            "say worker 0: worker 2 cannot be reached: its host has not answered at c for 5 s\n"
            "tell running epoch 1 version 2 plan 1 connected step 0 step 1 lost 2\n");
}

TEST(DecideWorker, AWorkerThatIsNoMemberLeaves) {
  Story story;
  story.get_ready();
  story.told.directive.epoch = 2;
  story.told.incarnations = {1, 0, 0, 0};
  EXPECT_EQ(
      story.hear(),
      "leave 75 left out: worker 0: the run continues without this process, which was silent or "
      "unreachable for too long; a new process may join in its place\n");
  EXPECT_EQ(story.feed(Idle{}), "") << "its part is over";
}

}  // namespace
}  // namespace tenuto
