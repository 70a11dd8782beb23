#include "analysis/trace_rows.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/check.h"
#include "base/sentence.h"
#include "base/text.h"

namespace tenuto::analysis {

namespace {

using TreeOfJson = nlohmann::json;

constexpr double kMostMicroseconds = 1e15;  // 30 years

// The fields of one event.
struct Event {
  std::string name, phase, category, label;  // label: "name" in "args"
  double start = 0, duration = 0;
  bool has_start = false, has_duration = false;
  TraceRow row;
};

// Receives the parser's callbacks and keeps one event at a time. Events are the objects of the
// outermost array, or of the array "traceEvents" of the outermost object.
class Listener : public nlohmann::json_sax<TreeOfJson> {
 public:
  TraceRows found;
  std::string fault;    // the first event that cannot be used
  size_t fault_at = 0;  // byte of the error if the text is not JSON, 1-based; else 0
  bool has_events = false;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override {
    if (in_events_ && depth_ == event_depth_) {
      if (key_ == "name") event_.name = value;
      if (key_ == "ph") event_.phase = value;
      if (key_ == "cat") event_.category = value;
    } else if (in_arguments() && argument_ == "name") {
      event_.label = value;
    }
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    ++depth_;
    if (in_events_ && depth_ == event_depth_) event_ = {};
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1) outer_ = value;
    if (in_events_ && depth_ == event_depth_) key_ = value;
    if (depth_ == event_depth_ + 1 || depth_ == 2) argument_ = value;
    return true;
  }
  bool end_object() override {
    if (in_events_ && depth_ == event_depth_) {
      ++count_;
      take();
    }
    --depth_;
    return fault.empty();
  }
  bool start_array(size_t) override {
    ++depth_;
    const bool bare = depth_ == 1;
    if (bare || (depth_ == 2 && !bare_ && outer_ == "traceEvents")) {
      bare_ = bare_ || bare;
      has_events = true;
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
  bool parse_error(size_t position, const std::string&, const TreeOfJson::exception&) override {
    fault_at = std::max<size_t>(position, 1);
    return false;
  }

 private:
  bool in_arguments() const { return in_events_ && depth_ == event_depth_ + 1 && key_ == "args"; }

  bool number(double value) {
    if (in_events_ && depth_ == event_depth_) {
      if (key_ == "ts") {
        event_.start = value;
        event_.has_start = true;
      } else if (key_ == "dur") {
        event_.duration = value;
        event_.has_duration = true;
      } else if (key_ == "pid") {
        event_.row.process = whole(value);
      } else if (key_ == "tid") {
        event_.row.thread = whole(value);
      }
    } else if (in_arguments()) {
      if (argument_ == "step") event_.row.step = whole(value);
      if (argument_ == "mb_id" || argument_ == "micro") event_.row.micro = whole(value);
      if (argument_ == "model_chunk") event_.row.chunk = whole(value);
      if (argument_ == "seq_id") event_.row.sequence = whole(value);
    } else if (!in_events_ && depth_ == 2 && outer_ == "distributedInfo" && argument_ == "rank") {
      found.rank = whole(value);
    }
    return true;
  }

  static int64_t whole(double value) {
    return std::isfinite(value) && std::abs(value) < kMostMicroseconds ? static_cast<int64_t>(value)
                                                                       : -1;
  }

  void take() {
    if (event_.phase == "M" && event_.name == "thread_name") {
      found.threads.push_back({event_.row.process, event_.row.thread, event_.label});
    }
    if (event_.phase != "X") return;
    // Profilers record much else, some of it without an end; the names of ops say what they are.
    const bool op =
        event_.name.starts_with("PP:") || event_.category.empty() || event_.category == event_.name;
    const auto sensible = [](bool has, double value) {
      return has && std::isfinite(value) && std::abs(value) < kMostMicroseconds;
    };
    if (!sensible(event_.has_start, event_.start) ||
        !sensible(event_.has_duration, event_.duration)) {
      if (!op) return;
      fault = cat("event ", count_, " (", excerpt(event_.name),
                  "): expected \"ts\" and \"dur\" in microseconds, found ",
                  event_.has_start && event_.has_duration ? "a time of more than 30 years" : "none",
                  ": record the trace again");
      return;
    }
    if (event_.duration < 0) {
      if (!op) return;
      fault = cat("event ", count_, " (", excerpt(event_.name),
                  "): expected a duration of 0 or more, found one that ends ", -event_.duration,
                  " us before it starts: the clock of its worker was set back, record the trace "
                  "again");
      return;
    }
    const auto [known, fresh] =
        numbers_.try_emplace(event_.name, static_cast<int32_t>(found.names.size()));
    if (fresh) found.names.push_back(event_.name);
    TraceRow row = event_.row;
    row.name = known->second;
    row.start = event_.start;
    row.duration = event_.duration;
    row.device = event_.category == "gpu_user_annotation";
    found.rows.push_back(row);
  }

  int32_t depth_ = 0, event_depth_ = 0;
  int64_t count_ = 0;
  bool in_events_ = false, bare_ = false;
  std::string outer_, key_, argument_;
  Event event_;
  std::unordered_map<std::string, int32_t> numbers_;
};

}  // namespace

Result<TraceRows> read_trace_rows(std::string_view text, const std::string& source) {
  Listener listener;
  const bool whole = TreeOfJson::sax_parse(text.begin(), text.end(), &listener);
  if (listener.fault_at > 0) {
    return invalid(cat(source, ":", line_and_column(text, listener.fault_at),
                       ": expected a Chrome trace as JSON, found text that is not JSON or that is "
                       "cut off: copy the file again"));
  }
  if (!listener.fault.empty()) return invalid(cat(source, ": ", listener.fault));
  CHECK(whole, "a parse ends early only with a fault");
  if (!listener.has_events) {
    return invalid(cat(source,
                       ": expected a Chrome trace (a list of events, or an object with the list "
                       "traceEvents), found other JSON: give the trace of a run"));
  }
  return std::move(listener.found);
}

}  // namespace tenuto::analysis
