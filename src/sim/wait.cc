#include "sim/wait.h"

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "ir/walk.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The key under which a value is looked up: one for all partials and one for all totals of a stage,
// because an op reads all of them.
Value whole(Value value) {
  if (means_every({value.kind, -1, value.stage, {}})) value.part = -1, value.micro = {};
  return value;
}

// A value that appeared in a worker's store, or (`sent`) was sent to it.
struct Maker {
  WorkerId worker;
  Value value;
  bool sent = false;
  Duration finish{};
  int32_t span = -1;
  bool operator<(const Maker& other) const {
    return std::tie(worker, value, sent, finish, span) <
           std::tie(other.worker, other.value, other.sent, other.finish, other.span);
  }
};

// Which span made a value, looked up by value and time.
class Makers {
 public:
  Makers(const std::vector<Span>& spans, int32_t stage_count) {
    for (size_t i = 0; i < spans.size(); ++i) {
      const Span& span = spans[i];
      const auto number = static_cast<int32_t>(i);
      if (span.op.kind == OpKind::Send) {
        all_.push_back({span.op.peer, moved_value(span.op), true, span.finish, number});
      }
      for (const Value& value : effect_of(span.op, stage_count).write) {
        all_.push_back({span.worker, whole(value), false, span.finish, number});
      }
    }
    std::sort(all_.begin(), all_.end());
  }

  // The last span that made the value by `time`; if none did, the first that made it later; -1 = no
  // span made it.
  int32_t find(WorkerId worker, const Value& value, bool sent, Duration time) const {
    const auto same = [&](const Maker& maker) {
      return maker.worker == worker && maker.value == value && maker.sent == sent;
    };
    const Maker last{worker, value, sent, time, INT32_MAX};
    const auto behind = std::upper_bound(all_.begin(), all_.end(), last);
    if (behind != all_.begin() && same(*(behind - 1))) return (behind - 1)->span;
    return behind != all_.end() && same(*behind) ? behind->span : -1;
  }

 private:
  std::vector<Maker> all_;
};

// The messages of each worker, sorted by the times of their starts and ends. In a device queue, an
// op that waits behind a message starts at the very moment at which the message starts or ends.
class QueueMoments {
 public:
  explicit QueueMoments(const std::vector<Span>& spans) {
    for (size_t i = 0; i < spans.size(); ++i) {
      const Span& span = spans[i];
      if (span.op.kind != OpKind::Send && span.op.kind != OpKind::Recv) continue;
      all_.push_back({span.worker, span.finish, static_cast<int32_t>(i)});
      if (span.start != span.finish) {
        all_.push_back({span.worker, span.start, static_cast<int32_t>(i)});
      }
    }
    std::sort(all_.begin(), all_.end());
  }

  // A message of the span's worker that ends or starts when the span starts, or -1.
  int32_t find(const Span& span) const {
    const Moment first{span.worker, span.start, -1};
    const auto found = std::lower_bound(all_.begin(), all_.end(), first);
    return found != all_.end() && found->worker == span.worker && found->time == span.start
               ? found->span
               : -1;
  }

 private:
  struct Moment {
    WorkerId worker;
    Duration time{};
    int32_t span = -1;
    bool operator<(const Moment& other) const {
      return std::tie(worker, time, span) < std::tie(other.worker, other.time, other.span);
    }
  };
  std::vector<Moment> all_;
};

// A message of one worker to another: "activation 1.%m".
std::string moved_name(const Op& op) {
  switch (op.moved) {
    case ValueKind::Activation:
      return cat("activation ", op.stage, ".%m");
    case ValueKind::Gradient:
      return cat("gradient ", op.stage, ".%m");
    case ValueKind::Norm:
      return cat("the norm of stage ", op.stage);
    default:
      return cat("the clip decision of stage ", op.stage);
  }
}

// The span's name in the sentence about a waiting worker.
std::string awaited_name(const Span& span, WorkerId waiting) {
  const Op& op = span.op;
  switch (op.kind) {
    case OpKind::Recv:
      return cat(moved_name(op), " from worker ", op.peer, " (link ", op.peer, " -> ", span.worker,
                 ")");
    case OpKind::Send:
      return cat(moved_name(op), " to leave for worker ", op.peer);
    case OpKind::Reduce:
      return cat("the sum of stage ", op.stage, "'s weight gradients");
    default:
      return cat(letter_of(op), op.stage, op.micro.value < 0 ? "" : ".%m",
                 span.worker == waiting ? std::string() : cat(" at worker ", span.worker));
  }
}

bool computes(const Span& span) { return lane_of(span.op) == LaneKind::Compute; }

Use use_of(const Span& span) {
  switch (span.op.kind) {
    case OpKind::Send:
      return Use::Sending;
    case OpKind::Recv:
      return span.op.moved == ValueKind::Activation ? Use::Activation
             : span.op.moved == ValueKind::Gradient ? Use::Gradient
                                                    : Use::Update;
    case OpKind::Reduce:
      return Use::Update;
    default:
      return Use::Other;
  }
}

// For sentences: to the microsecond, shorter times to the nanosecond.
std::string milliseconds(Duration time) {
  if (time >= std::chrono::microseconds(1))
    time = std::chrono::round<std::chrono::microseconds>(time);
  return cat(to_milliseconds(time), " ms");
}

void replace(std::string& text, const char* mark, const std::string& by) {
  const size_t found = text.find(mark);
  if (found != std::string::npos) text.replace(found, 2, by);
}

}  // namespace

std::vector<Wait> waits_of(const std::vector<Span>& spans, const Plan& plan) {
  const auto stage_count = static_cast<int32_t>(plan.stages.size());
  const Makers makers(spans, stage_count);
  const QueueMoments queue(spans);
  std::vector<Wait> waits(spans.size());
  int32_t before = -1;  // the op before on the compute lane
  Duration free_at{};
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    Wait& wait = waits[i];
    if (i == 0 || spans[i - 1].worker != span.worker) before = -1, free_at = {};
    wait.after = span.after;
    const auto offer = [&](int32_t maker) {
      if (span.after >= 0 || maker < 0 || maker == static_cast<int32_t>(i)) return;
      if (wait.after < 0 || spans[at(maker)].finish > spans[at(wait.after)].finish) {
        wait.after = maker;
      }
    };
    if (computes(span)) offer(before);  // first: on a tie the lane is the reason
    for (const Value& value : effect_of(span.op, stage_count).read) {
      offer(makers.find(span.worker, whole(value), false, span.start));
    }
    if (span.op.kind == OpKind::Recv) {
      offer(makers.find(span.worker, moved_value(span.op), true, span.start));
    }
    // The weight half of a whole backward takes no time: if the op waited for one, use what that
    // half waited for.
    while (!plan.split_backward && wait.after >= 0 && wait.after < static_cast<int32_t>(i) &&
           spans[at(wait.after)].op.kind == OpKind::BackwardWeight) {
      wait.after = waits[at(wait.after)].after;
    }
    if (!computes(span)) continue;
    if ((wait.after < 0 ? free_at : spans[at(wait.after)].finish) < span.start) {
      offer(queue.find(span));
    }
    const Duration there = wait.after < 0 ? free_at : spans[at(wait.after)].finish;
    wait.idle = std::max(Duration{}, std::min(there, span.start) - free_at);
    wait.late = std::max(Duration{}, span.start - free_at - wait.idle);
    before = static_cast<int32_t>(i);
    free_at = std::max(free_at, span.finish);
  }
  return waits;
}

std::string reason_form(const std::vector<Span>& spans, const Wait& wait, size_t index) {
  if (wait.after < 0) {
    return wait.late.count() > 0 ? "its worker began %l after the first"
                                 : "started as early as its worker began";
  }
  const Span& awaited = spans[at(wait.after)];
  const std::string name = awaited_name(awaited, spans[index].worker);
  const bool own = computes(awaited) && awaited.worker == spans[index].worker;
  return cat(own                     ? cat("worker busy with ", name)
             : wait.idle.count() > 0 ? cat("waited %t for ", name)
                                     : cat("started as soon as it had ", name),
             wait.late.count() > 0 ? ", then %l until it started" : "");
}

std::string reason_of(const std::vector<Span>& spans, const Wait& wait, size_t index) {
  std::string text = reason_form(spans, wait, index);
  if (wait.after >= 0) replace(text, "%m", piece(spans[at(wait.after)].op.micro.value));
  replace(text, "%t", milliseconds(wait.idle));
  replace(text, "%l", milliseconds(wait.late));
  return text;
}

const char* name_of(Use use) {
  static constexpr std::array<const char*, kUseCount> kNames = {
      "busy", "activation", "gradient", "update", "sending", "other", "done"};
  return kNames[static_cast<size_t>(use)];
}

std::vector<std::array<Duration, kUseCount>> uses_of(const std::vector<Span>& spans,
                                                     const std::vector<Wait>& waits, Duration end,
                                                     size_t worker_count) {
  std::vector<std::array<Duration, kUseCount>> uses(worker_count);
  std::vector<Duration> free_at(worker_count);
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    if (!computes(span)) continue;
    auto& mine = uses[at(span.worker.value)];
    Duration& free = free_at[at(span.worker.value)];
    const Use reason = waits[i].after < 0 ? Use::Other : use_of(spans[at(waits[i].after)]);
    mine[static_cast<size_t>(reason)] += waits[i].idle;
    mine[static_cast<size_t>(Use::Other)] += waits[i].late;
    mine[static_cast<size_t>(Use::Busy)] +=
        std::max(Duration{}, span.finish - std::max(span.start, free));
    free = std::max(free, span.finish);
  }
  for (size_t w = 0; w < worker_count; ++w) {
    uses[w][static_cast<size_t>(Use::Done)] += end - free_at[w];
  }
  return uses;
}

}  // namespace tenuto
