#include "rehearsal/paced_parts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/text.h"
#include "rehearsal/paced.h"

namespace tenuto {

namespace {

struct Label {
  float kind = 0, stage = 0, micro = 0, sum = 0;
  bool operator==(const Label&) const = default;
};
static_assert(sizeof(Label) == kLabel * sizeof(float));

Label label_of(std::span<const float> numbers, const Value& whose) {
  return {static_cast<float>(whose.kind), static_cast<float>(whose.stage.value),
          static_cast<float>(whose.micro.value),
          std::accumulate(numbers.begin(), numbers.end(), 0.0F)};
}

double length_of(const std::vector<double>& lengths, int32_t place) {
  CHECK(!lengths.empty(), "a paced device needs op lengths");
  const auto wanted = static_cast<size_t>(place);
  return lengths[std::min(wanted, lengths.size() - 1)];
}

}  // namespace

void write_label(Floats& message, std::span<const float> numbers, const Value& whose) {
  write_form(message, label_of(numbers, whose));
}

Status check_label(const Floats& message, std::span<const float> numbers, const Value& whose) {
  const auto is = read_form<Label>(message);
  const Label expected = label_of(numbers, whose);
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

void PacedCommon::begin(int64_t next) {
  kept.begin(next, [this](std::map<Value, Floats>& values) { give_up(values); });
  give_up(store);
}

void PacedCommon::give_up(std::map<Value, Floats>& values) {
  for (auto& [value, numbers] : values) {
    const bool travels = value.kind == ValueKind::Activation || value.kind == ValueKind::Gradient;
    if (travels) spare.push_back(std::move(numbers));
  }
  values.clear();
}

Duration paced_length(const DeviceSettings& device, bool split_backward, OpKind kind, int32_t place,
                      int32_t chunks) {
  const auto part = [&](const std::vector<double>& lengths) {
    return from_milliseconds(length_of(lengths, place) / chunks);
  };
  const Duration input = part(device.backward_input_ms);
  const Duration weight = part(device.backward_weight_ms);
  switch (kind) {
    case OpKind::Forward:
    case OpKind::Evaluate:
      return part(device.forward_ms);
    case OpKind::BackwardInput:
      return split_backward ? input : input + weight;
    case OpKind::BackwardWeight:
      return split_backward ? weight : Duration{};
    default:
      return {};
  }
}

}  // namespace tenuto
