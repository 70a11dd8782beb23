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

std::string percent(double share) { return cat(fixed(100 * share, 0), " %"); }

std::string milliseconds(Duration time) { return cat(short_number(to_milliseconds(time)), " ms"); }

std::string host_text(const Verdict& verdict) {
  return verdict.host.empty() ? "its host" : cat("its host ", verdict.host);
}

// Why the kernel does not tell a figure. `file`: where it would be; `setting`: what a kernel that
// has it was built with.
std::string reason_text(Figure figure, const std::string& file, const std::string& setting) {
  switch (figure) {
    case Figure::NotThere:
      return cat(file, " is not there: the kernel was built without ", setting);
    case Figure::Forbidden:
      return cat(file, " may not be read by this user");
    case Figure::NotCounted:
      return cat(file, " is there, but the kernel was told not to count");
    default:
      return cat(file, " cannot be read");
  }
}

std::string unmeasured_text(const Verdict& verdict) {
  const bool delay = verdict.run_delay_is == Figure::Known;
  const bool pressure = verdict.pressure_is == Figure::Known;
  std::string text =
      cat("worker ", verdict.from, ": the kernel of ", host_text(verdict), " does not tell ");
  if (!delay) {
    text += cat(
        "how long threads wait for a processor (",
        reason_text(verdict.run_delay_is, "/proc/self/task/*/schedstat", "CONFIG_SCHED_INFO"), ")");
  }
  if (!delay && !pressure) text += ", nor ";
  if (!pressure) {
    text += cat("the pressure on its processors (",
                reason_text(verdict.pressure_is, "/proc/pressure/cpu", "CONFIG_PSI"), ")");
  }
  if (delay) return text + "; causes of slow workers are told without it";
  const std::string unknown = "whether others take a slow worker's processors";
  return text + (pressure ? cat("; there, pressure alone tells ", unknown)
                          : cat("; it stays unknown there ", unknown));
}

}  // namespace

std::string cause_text(const Verdict& verdict) {
  if (!verdict.cause) return {};
  const SlowCause& why = *verdict.cause;
  if (why.cause == StragglerCause::Link) {
    return cat("most of what each of its steps loses is on its link: messages arrive ",
               milliseconds(why.messages_later), " later, ops last ", milliseconds(why.ops_longer),
               " longer");
  }
  std::string figures;
  if (why.waited) {
    figures = cat("it waited for one in ", percent(*why.waited), " of its steps' time");
  }
  if (why.pressure) {
    figures += why.waited ? cat(" (pressure ", percent(*why.pressure), ")")
                          : cat("pressure on them is ", percent(*why.pressure));
  }
  return cat(why.cause == StragglerCause::Cpu
                 ? cat("other processes take the processors of ", host_text(verdict))
                 : cat("its device is slow; waiting for the processors of ", host_text(verdict),
                       " explains less than half of it"),
             ": ", figures);
}

std::string scope_text(const std::string& scope) {
  return scope.empty() ? scope : cat("all links of ", scope, " are slow");
}

std::string sentence_of(const Verdict& verdict) {
  if (verdict.kind == VerdictKind::Unmeasured) return unmeasured_text(verdict);
  // Round down and stop at 0.99: 1.00 would claim certainty.
  const std::string sure = fixed(std::floor(std::min(verdict.sure, 0.99) * 100 + 1e-9) / 100, 2);
  const std::string rest = cat(" since step ", verdict.since_step, ": ");
  if (verdict.kind == VerdictKind::SlowWorker || verdict.kind == VerdictKind::WorkerHealed) {
    const std::string cause = cause_text(verdict);
    return cat("worker ", verdict.from,
               verdict.kind == VerdictKind::SlowWorker ? " is slow" : " is healed", rest,
               "its ops last ", short_number(verdict.factor),
               " times as long as they should, planned with speed ", verdict.speed, ", sure ", sure,
               cause.empty() ? "" : "; ", cause);
  }
  return cat("link ", verdict.from, "-", verdict.to, " (worker ", verdict.from, " to worker ",
             verdict.to, ")", verdict.kind == VerdictKind::SlowLink ? " is slow" : " is healed",
             rest, "round trip ", short_number(to_milliseconds(verdict.before)), " -> ",
             short_number(to_milliseconds(verdict.after)), " ms, sure ", sure,
             verdict.scope.empty() ? "" : "; ", scope_text(verdict.scope));
}

}  // namespace tenuto
