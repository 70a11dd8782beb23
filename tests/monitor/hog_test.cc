// A real worker beside real processes that take its processor.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "monitor/monitor.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

constexpr int kHogs = 3, kSteps = 4, kOps = 2;
constexpr Duration kOp = milliseconds(8);

Duration processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

// Computes until this thread has had the processor for so long.
void compute(Duration processor) {
  const Duration end = processor_time() + processor;
  while (processor_time() < end) {
  }
}

// Binds this process to the first processor that it may use; its children are bound to it, too.
class OneProcessor {
 public:
  OneProcessor() {
    if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
    int first = 0;
    while (first < CPU_SETSIZE && !CPU_ISSET(first, &before_)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    bound_ = sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  ~OneProcessor() {
    if (bound_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  bool bound() const { return bound_; }

 private:
  cpu_set_t before_{};
  bool bound_ = false;
};

// Processes that compute until the end of the test.
class Hogs {
 public:
  Hogs() {
    for (int i = 0; i < kHogs; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);  // if the parent has died before
        for (;;) compute(kOp);
      }
      if (child > 0) children_.push_back(child);
    }
  }
  ~Hogs() {
    for (const pid_t child : children_) kill(child, SIGKILL);
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
  }

 private:
  std::vector<pid_t> children_;
};

// Whether the worker is told slow depends on the machine. If its cause is told, it is the
// processor's, whatever else the machine does.
TEST(Hog, OfTheProcessorIsTheCause) {
  const OneProcessor bound;
  if (!bound.bound()) GTEST_SKIP() << "this system binds no process to a processor";
  MonitorState state = make_monitor(uniform_cluster(1, {}));
  set_profiled(state, {0}, OpKind::Forward, kOp);
  const Hogs hogs;
  const ProcessorUse first = processor_use();
  std::vector<Verdict> verdicts;
  ProcessorUse before = first;
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<Event> events;
    const Duration start = monotonic_clock().now();
    for (int op = 0; op < kOps; ++op) {
      Event event;
      event.worker = {0};
      event.step = step;
      event.op.kind = OpKind::Forward;
      event.op.stage = {0};
      event.start = monotonic_clock().now();
      compute(kOp);
      event.finish = monotonic_clock().now();
      events.push_back(event);
    }
    StepSample sample = make_samples(events).at(0);
    ProcessorUse after = processor_use();
    sample.processor = processor_sample(before, after, 1, monotonic_clock().now() - start);
    before = std::move(after);
    Detection found = detect(std::move(state), {&sample, 1}, step);
    state = std::move(found.state);
    for (Verdict& verdict : found.verdicts) verdicts.push_back(std::move(verdict));
  }
  for (const Verdict& verdict : verdicts) {
    if (verdict.kind != VerdictKind::SlowWorker || !verdict.cause) continue;
    EXPECT_EQ(verdict.cause->cause, StragglerCause::Cpu) << verdict.sentence;
  }
  if (before.run_delay_is != Figure::Known) GTEST_SKIP() << "this kernel counts no run delay";
  const auto self = static_cast<int64_t>(gettid());
  EXPECT_GT(before.run_delay.at(self), first.run_delay.at(self)) << "others had the processor, too";
}

}  // namespace
}  // namespace tenuto
