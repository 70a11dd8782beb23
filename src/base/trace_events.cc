#include "base/trace_events.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

using TreeOfJson = nlohmann::json;

// Receives the parser's callbacks and keeps one event at a time. Events are the objects of the
// outermost array, or of the array "traceEvents" of the outermost object.
class Listener : public nlohmann::json_sax<TreeOfJson> {
 public:
  explicit Listener(const std::function<std::string(const TraceEvent&)>& each) : each_(each) {}

  std::optional<int64_t> rank;
  std::string fault;    // of the first event that cannot be used
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
    if (in_events_ && depth_ == event_depth_) {
      event_ = TraceEvent();
      event_.number = ++count_;
    }
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1) outer_ = value;
    if (in_events_ && depth_ == event_depth_) key_ = value;
    if (depth_ == event_depth_ + 1 || depth_ == 2) argument_ = value;
    return true;
  }
  bool end_object() override {
    if (in_events_ && depth_ == event_depth_) fault = each_(event_);
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
        event_.process = whole(value);
      } else if (key_ == "tid") {
        event_.thread = whole(value);
      }
    } else if (in_arguments()) {
      if (argument_ == "step") event_.step = whole(value);
      if (argument_ == "mb_id" || argument_ == "micro") event_.micro = whole(value);
      if (argument_ == "model_chunk") event_.chunk = whole(value);
      if (argument_ == "seq_id") event_.sequence = whole(value);
    } else if (!in_events_ && depth_ == 2 && outer_ == "distributedInfo" && argument_ == "rank") {
      rank = whole(value);
    }
    return true;
  }

  static int64_t whole(double value) {
    return std::isfinite(value) && std::abs(value) < kMostTraceMicroseconds
               ? static_cast<int64_t>(value)
               : -1;
  }

  const std::function<std::string(const TraceEvent&)>& each_;
  int32_t depth_ = 0, event_depth_ = 0;
  int64_t count_ = 0;
  bool in_events_ = false, bare_ = false;
  std::string outer_, key_, argument_;
  TraceEvent event_;
};

}  // namespace

Result<std::optional<int64_t>> read_trace_events(
    std::string_view text, std::string_view source,
    const std::function<std::string(const TraceEvent&)>& each) {
  Listener listener(each);
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
  return listener.rank;
}

}  // namespace tenuto
