#include "monitor/verdict.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace tenuto {

namespace {

// Three significant digits or more: 0.204, 40.1, 1230.
std::string short_number(double number) {
  const double size = std::abs(number);
  if (size >= 100) return fixed(number, 0);
  const double unit = size >= 10 ? 10 : size >= 1 ? 100 : 1000;
  return cat(std::round(number * unit) / unit);
}

}  // namespace

std::string sentence_of(const Verdict& verdict, double speed) {
  // Round down and stop at 0.99: 1.00 would claim certainty.
  const std::string sure = fixed(std::floor(std::min(verdict.sure, 0.99) * 100 + 1e-9) / 100, 2);
  const std::string rest = cat(" since step ", verdict.since_step, ": ");
  if (verdict.kind == VerdictKind::SlowWorker || verdict.kind == VerdictKind::WorkerHealed) {
    return cat("worker ", verdict.from,
               verdict.kind == VerdictKind::SlowWorker ? " is slow" : " is healed", rest,
               "its ops last ", short_number(verdict.factor),
               " times as long as they should, planned with speed ", speed, ", sure ", sure);
  }
  return cat("link ", verdict.from, "-", verdict.to, " (worker ", verdict.from, " to worker ",
             verdict.to, ")", verdict.kind == VerdictKind::SlowLink ? " is slow" : " is healed",
             rest, "round trip ", short_number(to_milliseconds(verdict.before)), " -> ",
             short_number(to_milliseconds(verdict.after)), " ms, sure ", sure);
}

}  // namespace tenuto
