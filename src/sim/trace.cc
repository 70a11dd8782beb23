#include "sim/trace.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "ir/effect.h"
#include "ir/walk.h"
#include "sim/timeline.h"

namespace tenuto {

namespace {

constexpr Duration kGrain = Duration(1);  // of the times in a trace
constexpr std::string_view kFileStart = "trace-", kFileEnd = ".json";

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Microseconds with all nanoseconds.
std::string microseconds(Duration time) {
  const int64_t part = time.count() % 1000;
  return cat(time.count() / 1000, part < 100 ? (part < 10 ? ".00" : ".0") : ".", part);
}

// A text as JSON, with its quotes.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The threads of a trace: the lanes of a worker in a fixed order.
struct Lane {
  WorkerId worker;
  LaneKind kind = LaneKind::Compute;
  WorkerId peer;
  auto operator<=>(const Lane&) const = default;
};

Lane lane_key(const Span& span) {
  const LaneKind kind = lane_of(span.op);
  const bool has_peer = kind != LaneKind::Compute && kind != LaneKind::Reduce;
  return {span.worker, kind, has_peer ? span.op.peer : WorkerId{}};
}

bool computes(const Span& span) { return lane_of(span.op) == LaneKind::Compute; }

std::string lane_name(const Lane& lane) {
  switch (lane.kind) {
    case LaneKind::Compute:
      return "compute";
    case LaneKind::Reduce:
      return "reduce";
    case LaneKind::SendForward:
      return cat("send forward to ", lane.peer);
    case LaneKind::SendBackward:
      return cat("send backward to ", lane.peer);
    case LaneKind::RecvForward:
      return cat("receive forward from ", lane.peer);
    case LaneKind::RecvBackward:
      return cat("receive backward from ", lane.peer);
  }
  return "";
}

// Writes the rows of a trace one after the other.
class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {
    out_ << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  }
  ~Writer() { out_ << "\n]}\n"; }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // One event: its kind, its place, and the rest as JSON fields.
  void row(char phase, int32_t process, int32_t thread, const std::string& fields) {
    out_ << (first_ ? "\n" : ",\n")
         << cat("{\"ph\": \"", phase, "\", \"pid\": ", process, ", \"tid\": ", thread, ", ", fields,
                "}");
    first_ = false;
  }

  // Names a process or a thread.
  void name(const char* what, int32_t process, int32_t thread, const std::string& text) {
    row('M', process, thread,
        cat("\"name\": \"", what, "\", \"args\": {\"name\": \"", text, "\"}"));
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

// How a span is drawn.
struct Slice {
  int32_t thread = -1;  // -1 = not at all
  Duration start{}, finish{};
  bool has_length() const { return thread >= 0 && finish > start; }
};

// Where the slice of each span ends. Slices of one thread must not overlap, but a send may still be
// under way when the next one starts: it is cut there, since its start matters more than its end.
std::vector<Duration> drawn_ends(const std::vector<Span>& spans) {
  std::vector<Duration> ends(spans.size());
  std::map<Lane, Duration> next;  // start of the next send of the lane
  for (size_t i = spans.size(); i-- > 0;) {
    ends[i] = spans[i].finish;
    if (spans[i].op.kind != OpKind::Send) continue;
    const auto [behind, last] = next.try_emplace(lane_key(spans[i]), spans[i].finish);
    ends[i] = std::min(spans[i].finish, std::max(behind->second, spans[i].start));
    behind->second = spans[i].start;
  }
  return ends;
}

std::vector<Slice> slices_of(const std::vector<Span>& spans, const Plan& plan,
                             const std::map<Lane, int32_t>& threads) {
  std::vector<Slice> slices(spans.size());
  const std::vector<Duration> ends = drawn_ends(spans);
  std::map<Lane, Duration> drawn;  // until when each lane is drawn so far
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const bool nothing = span.op.kind == OpKind::BackwardWeight && span.start == span.finish;
    if (nothing && !plan.split_backward) continue;
    const Lane lane = lane_key(span);
    Duration& until = drawn[lane];
    // Receives are posted ahead and overlap; slices of one thread must not.
    slices[i] = {threads.at(lane), std::min(std::max(span.start, until), ends[i]), ends[i]};
    until = std::max(until, ends[i]);
  }
  return slices;
}

// What happens to a message, as places in the spans; -1 = it was not recorded.
struct Journey {
  int32_t maker = -1;  // the op that made the value
  int32_t send = -1, receive = -1;
  int32_t reader = -1;  // the first op that reads it and has a length
};

// A message has the same name at both ends; a value has one at each worker.
using Message = std::tuple<Value, WorkerId, WorkerId>;
using Held = std::pair<WorkerId, Value>;

// The journeys of all messages that have both ends here, in the order of their receives.
std::vector<Journey> journeys_of(const std::vector<Span>& spans, const std::vector<Slice>& slices,
                                 const Plan& plan) {
  const int32_t stages = plan.schedule.stage_count;
  std::map<Message, int32_t> sends;
  std::map<Held, int32_t> makers;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const auto place = static_cast<int32_t>(i);
    if (span.op.kind == OpKind::Send) {
      sends.emplace(Message{moved_value(span.op), span.worker, span.op.peer}, place);
    } else if (computes(span) && slices[i].has_length()) {
      const Effect effect = effect_of(span.op, stages);
      for (const Value& value : effect.write) {
        makers.emplace(Held{span.worker, value}, place);
      }
    }
  }
  std::vector<Journey> journeys;
  std::map<Held, size_t> arrived;  // those that no op has read yet
  std::set<Message> seen;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    if (span.op.kind != OpKind::Recv) continue;
    const Value value = moved_value(span.op);
    const Message message{value, span.op.peer, span.worker};
    const auto sent = sends.find(message);
    if (sent == sends.end() || !seen.insert(message).second) continue;
    const auto made = makers.find(Held{span.op.peer, value});
    arrived[Held{span.worker, value}] = journeys.size();
    journeys.push_back(
        {made == makers.end() ? -1 : made->second, sent->second, static_cast<int32_t>(i), -1});
  }
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!computes(spans[i]) || !slices[i].has_length()) continue;
    const Effect effect = effect_of(spans[i].op, stages);
    for (const Value& value : effect.read) {
      const auto found = arrived.find(Held{spans[i].worker, value});
      if (found == arrived.end()) continue;
      journeys[found->second].reader = static_cast<int32_t>(i);
      arrived.erase(found);
    }
  }
  return journeys;
}

// A point of an arrow: when, in the slice of which span.
struct Point {
  int32_t span = -1;
  Duration at{};
  char phase = 's';  // begin, a point on the way ('t'), end ('f')
  int32_t arrow = 0;
};

// The points of all arrows, by span. A viewer attaches a point to the slice that it lies in, and a
// slice does not contain its own end.
std::vector<Point> points_of(const std::vector<Journey>& journeys,
                             const std::vector<Slice>& slices) {
  const auto drawn = [&slices](int32_t span) { return span >= 0 && slices[at(span)].has_length(); };
  std::vector<Point> points;
  int32_t arrow = 0;
  for (const Journey& journey : journeys) {
    std::vector<Point> way;
    if (drawn(journey.send)) {
      way.push_back({journey.send, slices[at(journey.send)].start, 't', arrow});
    } else if (drawn(journey.maker)) {
      way.push_back({journey.maker, slices[at(journey.maker)].finish - kGrain, 't', arrow});
    } else {
      continue;
    }
    if (drawn(journey.receive)) {
      way.push_back({journey.receive, slices[at(journey.receive)].finish - kGrain, 't', arrow});
    }
    if (drawn(journey.reader)) {
      way.push_back({journey.reader, slices[at(journey.reader)].start, 't', arrow});
    }
    if (way.size() < 2) continue;
    way.front().phase = 's';
    way.back().phase = 'f';
    points.insert(points.end(), way.begin(), way.end());
    ++arrow;
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const Point& a, const Point& b) { return a.span < b.span; });
  return points;
}

// The fields of a slice; `name` and `category` (may be empty) need no quoting.
std::string slice_fields(const std::string& name, std::string_view category, Duration start,
                         Duration finish, const std::string& arguments) {
  return cat("\"name\": \"", name, "\", ",
             category.empty() ? std::string() : cat("\"cat\": \"", category, "\", "),
             "\"ts\": ", microseconds(start), ", \"dur\": ", microseconds(finish - start),
             ", \"args\": {", arguments, "}");
}

// The arguments of the slice of an op.
std::string arguments_of(const Op& op) {
  const std::string stage = cat("\"stage\": ", op.stage.value);
  return op.micro.value < 0 ? stage : cat(stage, ", \"micro\": ", op.micro.value);
}

// A trace of one step that is being written.
class StepTrace {
 public:
  StepTrace(std::ostream& out, const std::vector<Span>& spans, const Plan& plan)
      : writer_(out), spans_(spans), plan_(plan), workers_(stages_by_worker(plan)) {
    for (const Span& span : spans) threads_[lane_key(span)] = 0;
    for (auto& [lane, number] : threads_) number = thread_count_[lane.worker]++;
    slices_ = slices_of(spans, plan, threads_);
    journeys_ = journeys_of(spans, slices_, plan);
  }

  // The names of workers and lanes.
  void name_lanes() {
    WorkerId last;
    for (const auto& [lane, thread] : threads_) {
      if (lane.worker != last) {
        writer_.name("process_name", lane.worker.value, 0, row_name(lane.worker, workers_));
        last = lane.worker;
      }
      writer_.name("thread_name", lane.worker.value, thread, lane_name(lane));
    }
  }

  void write_ops() {
    const std::vector<Point> points = points_of(journeys_, slices_);
    size_t next = 0;
    for (size_t i = 0; i < spans_.size(); ++i) {
      const Slice& slice = slices_[i];
      if (slice.thread < 0) continue;
      const Span& span = spans_[i];
      writer_.row('X', span.worker.value, slice.thread,
                  slice_fields(trace_name(span.op, plan_.split_backward), "", slice.start,
                               slice.finish, arguments_of(span.op)));
      for (; next < points.size() && at(points[next].span) == i; ++next) {
        const Point& point = points[next];
        writer_.row(
            point.phase, span.worker.value, slice.thread,
            cat("\"name\": \"message\", \"cat\": \"message\", \"id\": ", point.arrow,
                point.phase == 'f' ? ", \"bp\": \"e\"" : "", ", \"ts\": ", microseconds(point.at)));
      }
    }
  }

  // The times in which a worker runs no op. The name says which message the next op waited for.
  void write_waits() {
    std::map<int32_t, int32_t> last_input;  // by reader: the receive that ended last
    for (const Journey& journey : journeys_) {
      if (journey.reader < 0) continue;
      const auto [place, fresh] = last_input.try_emplace(journey.reader, journey.receive);
      if (!fresh && slices_[at(journey.receive)].finish > slices_[at(place->second)].finish) {
        place->second = journey.receive;
      }
    }
    std::map<WorkerId, Duration> until;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (!computes(spans_[i]) || !slices_[i].has_length()) continue;
      const WorkerId worker = spans_[i].worker;
      Duration& before = until[worker];
      const auto input = last_input.find(static_cast<int32_t>(i));
      const bool waited = input != last_input.end() && slices_[at(input->second)].finish > before;
      if (slices_[i].start > before) {
        const std::string name =
            waited ? cat("wait ", short_name(spans_[at(input->second)].op)) : std::string("idle");
        writer_.row('X', worker.value, extra_thread(worker, kWaiting),
                    slice_fields(name, kWaitCategory, before, slices_[i].start,
                                 arguments_of(spans_[i].op)));
      }
      before = std::max(before, slices_[i].finish);
    }
  }

  void write_promised(const std::vector<Span>& promised) {
    std::map<WorkerId, Duration> until;
    for (const Span& span : promised) {
      if (!computes(span) || span.finish <= span.start) continue;
      Duration& before = until[span.worker];
      const Duration start = std::max(span.start, before);
      if (start >= span.finish) continue;
      before = span.finish;
      writer_.row('X', span.worker.value, extra_thread(span.worker, kPromised),
                  slice_fields(short_name(span.op), kPromisedCategory, start, span.finish,
                               arguments_of(span.op)));
    }
  }

  // How many micro-batches each worker keeps from the end of a forward to that of its backward.
  void write_kept() {
    struct Change {
      WorkerId worker;
      Duration at{};
      int32_t by = 0;
      auto operator<=>(const Change&) const = default;
    };
    std::vector<Change> changes;
    for (size_t i = 0; i < spans_.size(); ++i) {
      const OpKind kind = spans_[i].op.kind;
      if (kind != OpKind::Forward && kind != OpKind::BackwardInput) continue;
      changes.push_back({spans_[i].worker, slices_[i].finish, kind == OpKind::Forward ? 1 : -1});
    }
    std::sort(changes.begin(), changes.end());
    std::map<WorkerId, int32_t> kept;
    for (const Change& change : changes) {
      const int32_t now = kept[change.worker] += change.by;
      count("micro-batches kept", change.worker.value, change.at, cat(now));
    }
  }

  // What the coordinator found and decided: one more process of the trace, after the workers.
  void write_run(const TraceDetails& details) {
    const auto run = static_cast<int32_t>(workers_.size());
    writer_.name("process_name", run, 0, "run");
    writer_.name("thread_name", run, 0, "events");
    for (const TraceMark& mark : details.marks) {
      writer_.row(
          'i', run, 0,
          cat("\"name\": ", quoted(mark.kind), ", \"cat\": \"event\", \"s\": \"p\", \"ts\": ",
              microseconds(std::max(mark.at, Duration{})), ", \"args\": {\"reason\": ",
              quoted(mark.sentence), ", \"epoch\": ", mark.epoch, ", \"step\": ", mark.step, "}"));
    }
    Duration end{};
    for (const Span& span : spans_) end = std::max(end, span.finish);
    if (details.has_loss) count("loss", run, end, nlohmann::json(details.loss).dump());
  }

  // The names of the threads beside the lanes, and the order in which all are shown: promised ops
  // below those that were measured.
  void name_extra_threads(const std::vector<Span>& promised) {
    std::set<WorkerId> shown;
    for (const auto& [lane, thread] : threads_) {
      const int32_t order = lane.kind == LaneKind::Compute ? 0 : thread + kExtraThreads;
      sort(lane.worker, thread, order);
      shown.insert(lane.worker);
    }
    for (const Span& span : promised) {
      if (shown.insert(span.worker).second) {
        writer_.name("process_name", span.worker.value, 0, row_name(span.worker, workers_));
      }
    }
    for (const WorkerId worker : shown) {
      const int32_t first = extra_thread(worker, kPromised);
      writer_.name("thread_name", worker.value, first, "promised compute");
      sort(worker, first, kPromised);
      writer_.name("thread_name", worker.value, first + 1, "waiting");
      sort(worker, first + 1, kWaiting);
      const std::string pipeline = pipeline_of(worker);
      if (pipeline.empty()) continue;
      writer_.row(
          'M', worker.value, 0,
          cat("\"name\": \"process_labels\", \"args\": {\"labels\": \"pipeline ", pipeline, "\"}"));
    }
  }

 private:
  static constexpr int32_t kPromised = 1, kWaiting = 2, kExtraThreads = 3;

  // Threads beside the lanes have the numbers behind them.
  int32_t extra_thread(WorkerId worker, int32_t which) const {
    const auto lanes = thread_count_.find(worker);
    return (lanes == thread_count_.end() ? 0 : lanes->second) + which - kPromised;
  }

  void sort(WorkerId worker, int32_t thread, int32_t place) {
    writer_.row('M', worker.value, thread,
                cat("\"name\": \"thread_sort_index\", \"args\": {\"sort_index\": ", place, "}"));
  }

  void count(const std::string& name, int32_t process, Duration time, const std::string& value) {
    writer_.row('C', process, 0,
                cat("\"name\": \"", name, "\", \"ts\": ", microseconds(std::max(time, Duration{})),
                    ", \"args\": {\"value\": ", value, "}"));
  }

  // Without "PP:", by which readers know ops that happened.
  std::string short_name(const Op& op) const {
    return trace_name(op, plan_.split_backward).substr(std::string_view("PP:").size());
  }

  // The worker's place among the holders of its first stage; empty if it holds none.
  std::string pipeline_of(WorkerId worker) const {
    if (at(worker.value) >= workers_.size() || workers_[at(worker.value)].empty()) return {};
    const std::vector<WorkerId>& holders =
        plan_.stages[at(workers_[at(worker.value)].front())].holders;
    return cat(std::find(holders.begin(), holders.end(), worker) - holders.begin());
  }

  Writer writer_;
  const std::vector<Span>& spans_;
  const Plan& plan_;
  const std::vector<std::vector<int32_t>> workers_;  // the stages of each
  std::map<Lane, int32_t> threads_;
  std::map<WorkerId, int32_t> thread_count_;
  std::vector<Slice> slices_;
  std::vector<Journey> journeys_;
};

}  // namespace

void write_trace(std::ostream& out, const std::vector<Span>& spans, const Plan& plan) {
  StepTrace trace(out, spans, plan);
  trace.name_lanes();
  trace.write_ops();
}

void write_trace(std::ostream& out, const std::vector<Span>& spans, const Plan& plan,
                 const TraceDetails& details) {
  StepTrace trace(out, spans, plan);
  trace.name_lanes();
  trace.name_extra_threads(details.promised);
  trace.write_ops();
  trace.write_promised(details.promised);
  trace.write_waits();
  trace.write_kept();
  trace.write_run(details);
}

std::string trace_file_name(int64_t step) { return cat(kFileStart, step, kFileEnd); }

int64_t step_of_trace(std::string_view name) {
  if (!name.starts_with(kFileStart) || !name.ends_with(kFileEnd) ||
      name.size() < kFileStart.size() + kFileEnd.size()) {
    return -1;
  }
  name = name.substr(kFileStart.size(), name.size() - kFileStart.size() - kFileEnd.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 ? step : -1;
}

}  // namespace tenuto
