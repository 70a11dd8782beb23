#include "runtime/holding.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tenuto {

void Holding::begin(int64_t step, int64_t attempt) {
  if (now_.step == step - 1) {
    before_ = std::move(now_);
  } else if (now_.step != step) {
    before_.reset();
  }
  now_ = {};
  now_.step = step;
  now_.attempt = attempt;
}

void Holding::resume(int64_t step, int64_t attempt, const std::vector<Value>& stored,
                     const std::vector<StageId>& back) {
  if (is_behind(step)) now_ = std::move(*before_);
  before_.reset();
  if (now_.step != step) now_ = {};
  if (attempt >= 0 && now_.attempt != attempt) {
    now_.kept.clear();
    now_.bytes = 0;
    now_.attempt = attempt;
  }
  now_.step = step;
  const std::set<Value> taken(stored.begin(), stored.end());
  std::erase_if(now_.kept, [&](const Kept& each) {
    if (!taken.contains(each.value)) return false;
    now_.bytes -= each.bytes;
    return true;
  });
  for (const StageId stage : back) std::erase(now_.stepped, stage);
  now_.stored = stored;
}

std::vector<Value> Holding::keep(const Value& value, int64_t bytes) {
  const auto same = [&](const Kept& each) { return each.value == value; };
  if (std::any_of(now_.kept.begin(), now_.kept.end(), same)) return {};
  now_.kept.push_back({value, bytes});
  now_.bytes += bytes;
  std::vector<Value> gone;
  // Only values of a micro-batch can be made again: totals and clip decisions stay.
  const auto may_go = [](const Kept& each) { return each.value.micro.value >= 0; };
  while (now_.bytes > limit_) {
    const auto oldest = std::find_if(now_.kept.begin(), now_.kept.end(), may_go);
    if (oldest == now_.kept.end()) break;
    gone.push_back(oldest->value);
    now_.bytes -= oldest->bytes;
    now_.kept.erase(oldest);
    ++dropped_;
  }
  most_ = std::max(most_, this->bytes());
  return gone;
}

void Holding::end(std::vector<Value> stored, const std::vector<StageId>& stepped) {
  now_.stored = std::move(stored);
  std::set<StageId> all(now_.stepped.begin(), now_.stepped.end());
  all.insert(stepped.begin(), stepped.end());
  now_.stepped.assign(all.begin(), all.end());
}

const Holding::OfStep* Holding::of_step(int64_t step) const {
  return now_.step == step ? &now_ : is_behind(step) ? &*before_ : nullptr;
}

int64_t Holding::attempt(int64_t step) const {
  const OfStep* of = of_step(step);
  return of == nullptr ? -1 : of->attempt;
}

Inventory Holding::inventory(int64_t step, bool whole_backward) const {
  const OfStep* of = of_step(step);
  if (of == nullptr) return {};
  std::set<Value> all(of->stored.begin(), of->stored.end());
  for (const Kept& each : of->kept) all.insert(each.value);
  Inventory inventory;
  for (Value value : all) {
    if (whole_backward && value.kind == ValueKind::WeightWork) value.kind = ValueKind::Partial;
    inventory.values.push_back(value);
  }
  inventory.stepped = of->stepped;
  return inventory;
}

}  // namespace tenuto
