#include "sim/trace_times.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/longest_time.h"
#include "base/quantile.h"
#include "base/text.h"

namespace tenuto {

namespace {

using Json = nlohmann::json;

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

// The fields of an event that are used.
struct Event {
  std::string name, phase, category;
  double duration = -1;  // microseconds
  bool has_duration = false;
};

// Receives the parser's callbacks and keeps one event at a time. Events are the objects of the
// outermost array, or of the array "traceEvents" of the outermost object.
class Listener : public nlohmann::json_sax<Json> {
 public:
  std::map<int32_t, std::array<std::vector<Duration>, TraceSamples::kKindCount>> host, device;
  std::string fault;    // the first event that cannot be used
  size_t fault_at = 0;  // byte of the error if the text is not JSON, 1-based; else 0
  int64_t rows = 0;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(double(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(double(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override {
    if (depth_ != event_depth_ || depth_ == 0) return true;
    if (key_ == "name") event_.name = value;
    if (key_ == "ph") event_.phase = value;
    if (key_ == "cat") event_.category = value;
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    ++depth_;
    if (in_events_ && depth_ == event_depth_) event_ = {};
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1 || depth_ == event_depth_) key_ = value;
    return true;
  }
  bool end_object() override {
    if (in_events_ && depth_ == event_depth_) {
      ++rows;
      take();
    }
    --depth_;
    return fault.empty();
  }
  bool start_array(size_t) override {
    ++depth_;
    const bool bare = depth_ == 1;
    const bool inside = depth_ == 2 && !bare_ && key_ == "traceEvents";
    if (bare) bare_ = true;
    if (bare || inside) {
      in_events_ = true;
      event_depth_ = depth_ + 1;
    }
    return true;
  }
  bool end_array() override {
    if (in_events_ && depth_ == event_depth_ - 1) {
      in_events_ = false;
      event_depth_ = 0;
    }
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    fault_at = std::max<size_t>(position, 1);
    return false;
  }

 private:
  bool number(double value) {
    if (depth_ != event_depth_ || depth_ == 0 || key_ != "dur") return true;
    event_.duration = value;
    event_.has_duration = true;
    return true;
  }
  void take() {
    constexpr double kMost = 1e15;  // microseconds; 30 years
    const auto op = named(event_.name);
    if (!op || event_.phase != "X") return;
    const double time = event_.duration;
    if (!event_.has_duration || !std::isfinite(time) || time < 0 || time > kMost) {
      fault = cat("event ", rows, " (", event_.name.substr(0, 40),
                  "): expected \"dur\" with microseconds from 0, found ",
                  event_.has_duration ? cat(time) : std::string("none"));
      return;
    }
    auto& seen = event_.category == "gpu_user_annotation" ? device : host;
    seen[op->stage][op->kind].push_back(from_nanoseconds(time * 1000));
  }

  int32_t depth_ = 0, event_depth_ = 0;
  bool in_events_ = false, bare_ = false;
  std::string key_;
  Event event_;
};

}  // namespace

Status add_trace(std::string_view text, std::string_view source, TraceSamples& samples) {
  Listener listener;
  const bool whole = Json::sax_parse(text.begin(), text.end(), &listener);
  if (listener.fault_at > 0) {
    return invalid(
        cat(source, ":", line_and_column(text, listener.fault_at),
            ": expected a trace as JSON, found text that is not JSON (is the file cut off, or "
            "still packed?)"));
  }
  if (!listener.fault.empty()) return invalid(cat(source, ": ", listener.fault));
  CHECK(whole, "a parse ends early only with a fault");
  for (auto* seen : {&listener.device, &listener.host}) {
    for (auto& [stage, kinds] : *seen) {
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        if (seen == &listener.host && listener.device.count(stage) > 0 &&
            !listener.device[stage][kind].empty()) {
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
