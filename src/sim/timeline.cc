#include "sim/timeline.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <tuple>

#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "ir/walk.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

using StagesOf = std::vector<std::vector<int32_t>>;

// "w3 s1": the worker and the stages that it holds.
std::string row_name(WorkerId worker, const StagesOf& stages_of) {
  constexpr size_t kNamed = 4;
  const auto& stages = stages_of[at(worker.value)];
  std::string name = cat("w", worker);
  if (stages.size() > kNamed) return cat(name, " s", stages.front(), "..s", stages.back());
  for (const int32_t stage : stages) name += cat(" s", stage);
  return name;
}

// The least 1, 2 or 5 times a power of ten that is not below `time`.
Duration round_step(Duration time) {
  for (int64_t ten = 1;; ten *= 10) {
    for (const int64_t step : {ten, 2 * ten, 5 * ten}) {
      if (step >= time.count()) return Duration(step);
    }
  }
}

// The op's letter, small for every second stage of its worker, and its whole name.
std::pair<char, std::string> name_in_row(const Span& span, const StagesOf& stages_of) {
  const auto& stages = stages_of[at(span.worker.value)];
  const auto place = std::find(stages.begin(), stages.end(), span.op.stage.value) - stages.begin();
  // The norm is a part of the update.
  const bool update = lane_of(span.op) == LaneKind::Compute && is_update(span.op);
  const char capital = update ? 'U' : letter_of(span.op);
  const char letter = place % 2 == 0 ? capital : static_cast<char>(capital - 'A' + 'a');
  std::string name(1, letter);
  if (span.op.micro.value < 0) return {letter, name};
  if (stages.size() > 2) name += cat(span.op.stage, ".");
  return {letter, name + piece(span.op.micro.value)};
}

void draw(std::string& row, const Span& span, Duration column, const StagesOf& stages_of) {
  const auto first = static_cast<size_t>(span.start / column);
  const auto end = std::min(static_cast<size_t>(span.finish / column), row.size());
  if (first >= row.size() || span.finish == span.start) return;
  const auto [letter, name] = name_in_row(span, stages_of);
  if (end <= first) {  // shorter than a column: shown where nothing else is
    if (row[first] == '.') row[first] = letter;
    return;
  }
  // A number that is cut off would read as another number.
  const bool fits = name.size() <= end - first;
  for (size_t i = first; i < end; ++i) {
    row[i] = !fits ? letter : i - first < name.size() ? name[i - first] : '-';
  }
}

// Microseconds with all nanoseconds.
std::string microseconds(Duration time) {
  const int64_t part = time.count() % 1000;
  return cat(time.count() / 1000, part < 100 ? (part < 10 ? ".00" : ".0") : ".", part);
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
  void row(char phase, int32_t worker, int32_t thread, const std::string& fields) {
    out_ << (first_ ? "\n" : ",\n")
         << cat("{\"ph\": \"", phase, "\", \"pid\": ", worker, ", \"tid\": ", thread, ", ", fields,
                "}");
    first_ = false;
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

void write_names(Writer& writer, const std::map<Lane, int32_t>& threads, const Plan& plan) {
  const StagesOf stages_of = stages_by_worker(plan);
  WorkerId last;
  for (const auto& [lane, thread] : threads) {
    if (lane.worker != last) {
      writer.row('M', lane.worker.value, 0,
                 cat("\"name\": \"process_name\", \"args\": {\"name\": \"",
                     row_name(lane.worker, stages_of), "\"}"));
      last = lane.worker;
    }
    writer.row('M', lane.worker.value, thread,
               cat("\"name\": \"thread_name\", \"args\": {\"name\": \"", lane_name(lane), "\"}"));
  }
}

// The name of a message, the same at both ends.
using Message = std::tuple<Value, WorkerId, WorkerId>;

Message message_of(const Span& span) {
  const bool sends = span.op.kind == OpKind::Send;
  return {moved_value(span.op), sends ? span.worker : span.op.peer,
          sends ? span.op.peer : span.worker};
}

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

}  // namespace

std::vector<Span> spans_of(const std::vector<Event>& events) {
  std::vector<Span> spans;
  for (const Event& event : events) {
    // A receive is posted early; its span begins when its message was sent instead.
    const bool stamped = event.op.kind == OpKind::Recv && event.sent.count() > 0;
    const Duration start = stamped ? std::min(event.sent, event.finish) : event.start;
    spans.push_back({event.worker, event.op, start, event.finish});
  }
  Duration first = spans.empty() ? Duration{} : spans.front().start;
  for (const Span& span : spans) first = std::min(first, span.start);
  for (Span& span : spans) {
    span.start -= first;
    span.finish = std::max(span.finish - first, span.start);
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.worker, a.start) < std::tie(b.worker, b.start);
  });
  return spans;
}

std::vector<std::vector<int32_t>> stages_by_worker(const Plan& plan) {
  StagesOf stages_of(plan.schedule.lists.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (const WorkerId holder : plan.stages[s].holders) {
      auto& mine = stages_of[at(holder.value)];
      const auto stage = static_cast<int32_t>(s);
      if (mine.empty() || mine.back() != stage) mine.push_back(stage);
    }
  }
  return stages_of;
}

std::string gantt(const std::vector<Span>& spans, const Plan& plan, size_t width) {
  const StagesOf stages_of = stages_by_worker(plan);
  std::map<WorkerId, std::string> rows;
  Duration last{};
  size_t widest = 0;
  for (const Span& span : spans) {
    if (lane_of(span.op) != LaneKind::Compute) continue;
    last = std::max(last, span.finish);
    if (rows.emplace(span.worker, "").second) {
      widest = std::max(widest, row_name(span.worker, stages_of).size());
    }
  }
  if (last.count() == 0) return "nothing takes time\n";
  const size_t chart = width > widest + 12 ? width - widest - 2 : 10;
  const Duration column = round_step(
      Duration((last.count() + static_cast<int64_t>(chart) - 1) / static_cast<int64_t>(chart)));
  const auto columns = static_cast<size_t>((last + column - Duration(1)) / column);
  for (auto& [worker, row] : rows) row.assign(columns, '.');
  for (const Span& span : spans) {
    if (lane_of(span.op) == LaneKind::Compute) draw(rows[span.worker], span, column, stages_of);
  }
  size_t most = 0;
  for (const auto& stages : stages_of) most = std::max(most, stages.size());
  std::string text =
      cat("one column = ", to_milliseconds(column), " ms, end at ", to_milliseconds(last), " ms",
          most < 2    ? ""
          : most == 2 ? "; small letters: second stage"
                      : "; small letters: every second stage",
          "\n");
  for (const auto& [worker, row] : rows) {
    std::string name = row_name(worker, stages_of);
    name.resize(widest, ' ');
    text += cat(name, " |", row, "\n");
  }
  return text;
}

std::string trace_name(const Op& op, bool split_backward) {
  const auto of_micro = [&](const char* verb) {
    return cat("PP:", op.stage, verb, op.micro.value < 0 ? std::string() : piece(op.micro.value));
  };
  const bool sends = op.kind == OpKind::Send;
  switch (op.kind) {
    case OpKind::Forward:
      return of_micro("F");
    case OpKind::BackwardInput:
      return of_micro(split_backward ? "I" : "B");
    case OpKind::BackwardWeight:
      return of_micro("W");
    case OpKind::Evaluate:
      return of_micro("E");
    case OpKind::Reduce:
      return cat("PP:", op.stage, "REDUCE", op.part < 0 ? std::string() : cat("/", op.part));
    case OpKind::Measure:
    case OpKind::MeasureAhead:
      return of_micro("NORM");
    case OpKind::Step:
    case OpKind::StepAhead:
      return of_micro("STEP");
    case OpKind::Validate:
      return of_micro("VALID");
    case OpKind::Send:
    case OpKind::Recv:
      break;
  }
  switch (op.moved) {
    case ValueKind::Activation:
      return of_micro(sends ? "SEND_F" : "RECV_F");
    case ValueKind::Gradient:
      return of_micro(sends ? "SEND_B" : "RECV_B");
    case ValueKind::Norm:
      return of_micro(sends ? "SEND_N" : "RECV_N");
    default:
      return of_micro(sends ? "SEND_V" : "RECV_V");
  }
}

void write_trace(std::ostream& out, const std::vector<Span>& spans, const Plan& plan) {
  std::map<Lane, int32_t> threads;
  std::map<Message, int32_t> arrows;  // only messages of which both ends are here
  for (const Span& span : spans) {
    threads[lane_key(span)] = 0;
    if (span.op.kind == OpKind::Send) arrows.emplace(message_of(span), -1);
  }
  WorkerId worker;
  int32_t thread = 0;
  for (auto& [lane, number] : threads) {
    if (lane.worker != worker) thread = 0;
    worker = lane.worker;
    number = thread++;
  }
  int32_t arrow = 0;
  for (const Span& span : spans) {
    if (span.op.kind != OpKind::Recv) continue;
    const auto found = arrows.find(message_of(span));
    if (found != arrows.end() && found->second < 0) found->second = arrow++;
  }
  Writer writer(out);
  write_names(writer, threads, plan);
  std::vector<Duration> lane_end;  // of the lanes of the worker at hand: what is drawn so far
  worker = {};
  const std::vector<Duration> ends = drawn_ends(spans);
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const bool nothing = span.op.kind == OpKind::BackwardWeight && span.start == span.finish;
    if (nothing && !plan.split_backward) continue;
    if (span.worker != worker) lane_end.assign(threads.size(), Duration{});
    worker = span.worker;
    const int32_t tid = threads[lane_key(span)];
    // Receives are posted ahead and overlap; slices of one thread must not.
    const Duration start = std::min(std::max(span.start, lane_end[at(tid)]), ends[i]);
    lane_end[at(tid)] = std::max(lane_end[at(tid)], ends[i]);
    std::string fields =
        cat("\"name\": \"", trace_name(span.op, plan.split_backward),
            "\", \"ts\": ", microseconds(start), ", \"dur\": ", microseconds(ends[i] - start),
            ", \"args\": {\"stage\": ", span.op.stage.value);
    if (span.op.micro.value >= 0) fields += cat(", \"micro\": ", span.op.micro.value);
    writer.row('X', span.worker.value, tid, fields + "}");
    const bool sends = span.op.kind == OpKind::Send;
    if (!sends && span.op.kind != OpKind::Recv) continue;
    const auto found = arrows.find(message_of(span));
    if (found == arrows.end() || found->second < 0) continue;
    writer.row(sends ? 's' : 'f', span.worker.value, tid,
               cat("\"name\": \"message\", \"cat\": \"message\", \"id\": ", found->second,
                   sends ? "" : ", \"bp\": \"e\"",
                   ", \"ts\": ", microseconds(sends ? start : span.finish)));
  }
}

}  // namespace tenuto
