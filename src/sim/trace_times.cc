#include "sim/trace_times.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/longest_time.h"
#include "base/quantile.h"
#include "base/text.h"
#include "base/trace_events.h"

namespace tenuto {

namespace {

// An op by its name in a trace.
struct Named {
  int32_t stage = 0;
  TraceSamples::Kind kind = TraceSamples::Forward;
};

// PP:2F4 and the like; nothing for other names.
std::optional<Named> named(std::string_view name) {
  constexpr int32_t kMostStages = 1'000'000;
  if (name.substr(0, 3) != "PP:") return {};
  size_t at = 3;
  const auto number = [&](int32_t& value) {
    const size_t first = at;
    int64_t sum = 0;
    while (at < name.size() && name[at] >= '0' && name[at] <= '9' && sum < kMostStages) {
      sum = sum * 10 + (name[at++] - '0');
    }
    value = static_cast<int32_t>(sum);
    return at > first && sum < kMostStages;
  };
  Named found;
  if (!number(found.stage) || at == name.size()) return {};
  constexpr std::string_view kLetters = "FBIW";
  const size_t kind = kLetters.find(name[at++]);
  if (kind == std::string_view::npos) return {};
  found.kind = static_cast<TraceSamples::Kind>(kind);
  int32_t micro = 0;
  if (!number(micro) || at != name.size()) return {};
  return found;
}

}  // namespace

Status add_trace(std::string_view text, std::string_view source, TraceSamples& samples) {
  std::map<int32_t, std::array<std::vector<Duration>, TraceSamples::kKindCount>> host, device;
  const auto read = read_trace_events(text, source, [&](const TraceEvent& event) -> std::string {
    const auto op = named(event.name);
    if (!op || event.phase != "X") return {};
    const double time = event.duration;
    if (!event.has_duration || !std::isfinite(time) || time < 0 || time > kMostTraceMicroseconds) {
      return cat("event ", event.number, " (", event.name.substr(0, 40),
                 "): expected \"dur\" with microseconds from 0, found ",
                 event.has_duration ? cat(time) : std::string("none"));
    }
    auto& seen = event.category == "gpu_user_annotation" ? device : host;
    seen[op->stage][op->kind].push_back(from_nanoseconds(time * 1000));
    return {};
  });
  if (!read.ok()) return read.error();
  for (auto* seen : {&device, &host}) {
    for (auto& [stage, kinds] : *seen) {
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        if (seen == &host && device.count(stage) > 0 && !device[stage][kind].empty()) {
          continue;
        }
        auto& all = samples.of[stage][kind];
        all.insert(all.end(), kinds[kind].begin(), kinds[kind].end());
      }
    }
  }
  return ok();
}

Result<TraceTimes> times_of_traces(const TraceSamples& samples) {
  if (samples.of.empty()) {
    return invalid(
        "no op is in these traces: expected events named PP:0F0 (forward of stage 0), PP:0B0 or "
        "PP:0I0 and PP:0W0 (backward)");
  }
  const auto median = [](std::vector<Duration> seen) { return quantile(seen, 0.5); };
  TraceTimes times;
  int32_t next = 0;
  for (const auto& [stage, kinds] : samples.of) {
    if (stage != next++) {
      return invalid(cat("no op of stage ", next - 1,
                         " is in these traces: give the traces of all "
                         "workers"));
    }
    const bool split = !kinds[TraceSamples::Input].empty() && !kinds[TraceSamples::Weight].empty();
    if (kinds[TraceSamples::Forward].empty() || (!split && kinds[TraceSamples::Whole].empty())) {
      return invalid(cat("stage ", stage, " has no ",
                         kinds[TraceSamples::Forward].empty() ? "forward" : "whole backward",
                         " in these traces: expected every kind of op at least once"));
    }
    times.forward.push_back(median(kinds[TraceSamples::Forward]));
    times.backward_input.push_back(
        median(kinds[split ? TraceSamples::Input : TraceSamples::Whole]));
    times.backward_weight.push_back(split ? median(kinds[TraceSamples::Weight]) : Duration{});
    times.splits |= split;
    for (const auto& seen : kinds) times.ops += static_cast<int64_t>(seen.size());
  }
  return times;
}

Result<TraceTimes> times_from_trace(std::string_view text, std::string_view source) {
  TraceSamples samples;
  if (const Status status = add_trace(text, source, samples); !status.ok()) return status.error();
  auto times = times_of_traces(samples);
  if (times.ok()) return times;
  Error error = times.error();
  error.message = cat(source, ": ", error.message);
  return error;
}

}  // namespace tenuto
