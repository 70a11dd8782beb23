#include "analysis/trace_rows.h"

#include <cmath>
#include <unordered_map>
#include <utility>

#include "base/sentence.h"
#include "base/text.h"
#include "base/trace_events.h"

namespace tenuto::analysis {

namespace {

bool is_sensible(bool has, double value) {
  return has && std::isfinite(value) && std::abs(value) < kMostTraceMicroseconds;
}

// Why an op cannot be used; empty: it can.
std::string fault_of(const TraceEvent& event) {
  const auto said = [&](const std::string& what) {
    return cat("event ", event.number, " (", excerpt(event.name), "): expected ", what);
  };
  if (!is_sensible(event.has_start, event.start) ||
      !is_sensible(event.has_duration, event.duration)) {
    return said(cat("\"ts\" and \"dur\" in microseconds, found ",
                    event.has_start && event.has_duration ? "a time of more than 30 years" : "none",
                    ": record the trace again"));
  }
  if (event.duration < 0) {
    return said(cat("a duration of 0 or more, found one that ends ", -event.duration,
                    " us before it starts: the clock of its worker was set back, record the trace "
                    "again"));
  }
  return {};
}

}  // namespace

Result<TraceRows> read_trace_rows(std::string_view text, const std::string& source) {
  TraceRows found;
  std::unordered_map<std::string, int32_t> numbers;
  const auto rank = read_trace_events(text, source, [&](const TraceEvent& event) -> std::string {
    if (event.phase == "M" && event.name == "thread_name") {
      found.threads.push_back({event.process, event.thread, event.label});
    }
    if (event.phase != "X") return {};
    if (std::string fault = fault_of(event); !fault.empty()) {
      // Profilers record much else, some of it without an end; the names of ops say what they are.
      const bool op =
          event.name.starts_with("PP:") || event.category.empty() || event.category == event.name;
      return op ? fault : std::string();
    }
    const auto [known, fresh] =
        numbers.try_emplace(event.name, static_cast<int32_t>(found.names.size()));
    if (fresh) found.names.push_back(event.name);
    found.rows.push_back({.name = known->second,
                          .process = event.process,
                          .thread = event.thread,
                          .start = event.start,
                          .duration = event.duration,
                          .device = event.category == "gpu_user_annotation",
                          .promised = event.category == "promised",
                          .step = event.step,
                          .micro = event.micro,
                          .chunk = event.chunk,
                          .sequence = event.sequence});
    return {};
  });
  if (!rank.ok()) return rank.error();
  found.rank = rank.value();
  return found;
}

}  // namespace tenuto::analysis
