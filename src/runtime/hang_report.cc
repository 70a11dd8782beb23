#include "runtime/hang_report.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "ir/text.h"

namespace tenuto {

namespace {

constexpr int32_t kAround = 4;       // ops shown before the first and after the last waiting one
constexpr size_t kMostValues = 4;    // named in one line
constexpr size_t kMostReasons = 12;  // lines of reasons: enough for every lane of a worker

std::string reason(const Walk& walk, int32_t index, bool under_way) {
  const Op& op = walk.op(index);
  std::string text = cat("  ", to_text(op));
  if (under_way) {
    if (op.kind == OpKind::Recv) return cat(text, " is posted and waits for worker ", op.peer);
    if (op.kind == OpKind::Send) return cat(text, " waits for worker ", op.peer, " to take it");
    if (op.kind == OpKind::Reduce) return cat(text, " waits for messages of its group");
    return text + " is computing";
  }
  const std::vector<Value> missing = walk.missing(index);
  if (missing.empty()) {
    if (op.kind == OpKind::Recv) return text + " waits for its turn to be posted";
    if (is_step(op.kind)) return text + " waits until the previous step is committed";
    return text + " waits for its turn";
  }
  text += " misses";
  for (size_t i = 0; i < missing.size(); ++i) {
    if (i == kMostValues) return cat(text, " and ", missing.size() - i, " more");
    const Value& value = missing[i];
    text += cat(" ", to_text(value));
    for (const Op& other : walk.list()) {
      if (other.kind == OpKind::Recv && moved_value(other) == value) {
        text += cat(" (from worker ", other.peer, ")");
        break;
      }
    }
  }
  return text;
}

}  // namespace

std::string hang_report(const Walk& walk, std::span<const uint8_t> done,
                        std::span<const uint8_t> under_way, std::span<const int32_t> held_back) {
  const auto count = static_cast<int32_t>(walk.list().size());
  std::vector<int32_t> waiting = walk.waiting();
  waiting.insert(waiting.end(), held_back.begin(), held_back.end());
  for (int32_t i = 0; i < count; ++i) {
    if (under_way[static_cast<size_t>(i)]) waiting.push_back(i);
  }
  std::sort(waiting.begin(), waiting.end());
  waiting.erase(std::unique(waiting.begin(), waiting.end()), waiting.end());
  std::erase_if(waiting, [&](int32_t i) { return done[static_cast<size_t>(i)] != 0; });
  if (waiting.empty()) return "  no op of the list waits";
  const int32_t first = std::max(0, waiting.front() - kAround);
  const size_t shown = std::min(waiting.size(), kMostReasons);
  const int32_t end = std::min(count, waiting[shown - 1] + kAround + 1);
  std::string text = first > 0 ? "  ..." : " ";
  for (int32_t i = first; i < end; ++i) {
    const bool waits = std::binary_search(waiting.begin(), waiting.end(), i);
    text += cat(waits ? " => " : " ", to_text(walk.op(i)));
  }
  if (end < count) text += " ...";
  for (size_t i = 0; i < shown; ++i) {
    text += cat("\n", reason(walk, waiting[i], under_way[static_cast<size_t>(waiting[i])] != 0));
  }
  if (waiting.size() > shown) text += cat("\n  and ", waiting.size() - shown, " more");
  return text;
}

}  // namespace tenuto
