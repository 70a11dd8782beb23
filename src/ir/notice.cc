// Warnings about correct plans: notices of ir/check.h.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"

namespace tenuto {

namespace {

// Names the first weight gradient that a list has after one of a later micro-batch, and says how
// many more pairs of worker and stage have such a gradient; empty if none has.
std::string sum_order(const Plan& plan) {
  std::string first;
  int64_t others = -1;
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    struct Last {
      Op op;
      bool told = false;
    };
    std::map<StageId, Last> last;
    for (const Op& op : plan.schedule.lists[w]) {
      if (op.kind != OpKind::BackwardWeight) continue;
      Last& before = last.try_emplace(op.stage, Last{op}).first->second;
      if (op.micro < before.op.micro && !before.told) {
        before.told = true;
        if (++others == 0) {
          first = cat("worker ", w, " adds ", to_text(before.op), " before ", to_text(op));
        }
      }
      before.op = op;
    }
  }
  if (first.empty()) return first;
  return cat(first, others > 0 ? cat(", as it does in ", others, " more stages") : std::string(),
             ": sums of weight gradients are made in list order, so a run repeats bit for bit and "
             "differs in the last bits from one in micro-batch order");
}

}  // namespace

std::vector<std::string> notices(const Plan& plan) {
  std::vector<std::string> all;
  if (std::string found = sum_order(plan); !found.empty()) all.push_back(std::move(found));
  return all;
}

}  // namespace tenuto
