#include "rehearsal/paced_parts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "ir/text.h"

namespace tenuto {

namespace {

constexpr size_t kLeastElements = 16;

struct Label {
  float kind = 0, stage = 0, micro = 0, sum = 0;
  bool operator==(const Label&) const = default;
};
static_assert(sizeof(Label) == kLabel * sizeof(float));

Label label_of(const Floats& message, const Value& whose) {
  const std::span<const float> numbers = numbers_of(message);
  return {static_cast<float>(whose.kind), static_cast<float>(whose.stage.value),
          static_cast<float>(whose.micro.value),
          std::accumulate(numbers.begin(), numbers.end(), 0.0F)};
}

QueueMailbox& queue_of(Mailbox& mailbox) {
  QueueMailbox* queue = mailbox.drivable();
  CHECK(queue != nullptr, "a paced device reports to the mailbox in which its worker waits");
  return *queue;
}

}  // namespace

void write_label(Floats& message, const Value& whose) {
  write_form(message, label_of(message, whose));
}

Status check_label(const Floats& message, const Value& whose) {
  const auto is = read_form<Label>(message);
  const Label expected = label_of(message, whose);
  if (is == expected) return ok();
  return Error{
      Code::Corrupt, Reach::Link,
      cat(to_text(whose), " arrived with the label kind ", is.kind, " stage ", is.stage, " micro ",
          is.micro, " and the sum ", is.sum, ", its numbers add up to ", expected.sum)};
}

std::vector<Bucket> buckets_of(const Plan& plan, StageId stage, size_t weights) {
  std::map<int16_t, StageId> parts;
  for (const std::vector<Op>& list : plan.schedule.lists) {
    for (const Op& op : list) {
      if (op.kind != OpKind::Reduce || op.stage != stage) continue;
      const auto group = static_cast<size_t>(op.group.value);
      const bool tied =
          group < plan.schedule.groups.size() && plan.schedule.groups[group].stages.size() > 1;
      parts[op.part] = tied ? plan.schedule.groups[group].stages.front() : stage;
    }
  }
  if (parts.empty()) parts[-1] = stage;
  std::vector<Bucket> buckets;
  for (const auto& [part, owner] : parts) {
    const size_t b = buckets.size();
    buckets.push_back({part, owner, b * weights / parts.size(), (b + 1) * weights / parts.size()});
  }
  return buckets;
}

PacedCommon::PacedCommon(const Job& job, const Clock& its_clock, Mailbox& its_mailbox,
                         const PacedOptions& its_options)
    : options(its_options),
      virtual_clock(job.device.clock == "virtual"),
      sleeps(dynamic_cast<const MonotonicClock*>(&its_clock) != nullptr),
      clock(its_clock),
      mailbox(queue_of(its_mailbox)),
      elements(std::max(kLeastElements,
                        static_cast<size_t>(job.device.message_bytes) / sizeof(float))) {}

void PacedCommon::begin(int64_t next) {
  const auto give_up = [this](std::map<Value, Floats>& values) {
    for (auto& [value, numbers] : values) recycle(numbers);
    values.clear();
  };
  kept.begin(next, give_up);
  give_up(store);
}

Floats* PacedCommon::make(const Value& value, size_t size) {
  Floats& buffer = store[value];
  if (size == elements && !spare.empty()) {
    buffer = std::move(spare.back());
    spare.pop_back();
  }
  buffer.resize(size);
  return &buffer;
}

void PacedCommon::keep(const Value& value) {
  const auto found = store.find(value);
  if (found == store.end()) return;
  kept.keep(value, std::move(found->second));
  store.erase(found);
}

void PacedCommon::discard(const Value& value) {
  const auto found = store.find(value);
  if (found == store.end()) return;
  recycle(found->second);
  store.erase(found);
}

void PacedCommon::recycle(Floats& numbers) {
  if (numbers.size() == elements) spare.push_back(std::move(numbers));
}

Duration paced_length(const StageCost& cost, bool split_backward, OpKind kind) {
  switch (kind) {
    case OpKind::Forward:
    case OpKind::Evaluate:
      return cost.forward;
    case OpKind::BackwardInput:
      return split_backward ? cost.backward_input : plus(cost.backward_input, cost.backward_weight);
    case OpKind::BackwardWeight:
      return split_backward ? cost.backward_weight : Duration{};
    case OpKind::Step:
    case OpKind::StepAhead:
      return cost.update;
    default:
      return {};
  }
}

}  // namespace tenuto
