#include "sim/timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/clock_offsets.h"
#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "ir/walk.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

using StagesOf = std::vector<std::vector<int32_t>>;

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

// By how much the clock of each worker is ahead of worker 0's: zero, unless some message ends
// before it was sent. Then the shortest message in each direction of a pair is taken as equally
// long.
std::vector<Duration> clocks_of(const std::vector<Event>& events) {
  using Message = std::tuple<int64_t, Value, WorkerId, WorkerId>;  // step, what, from, to
  std::map<Message, Duration> sent;
  int32_t workers = 1;
  for (const Event& event : events) {
    workers = std::max({workers, event.worker.value + 1, event.op.peer.value + 1});
    if (event.op.kind != OpKind::Send) continue;
    sent.emplace(Message{event.step, moved_value(event.op), event.worker, event.op.peer},
                 event.start);
  }
  struct Shortest {
    std::optional<Duration> up, down;  // to the higher worker, to the lower one
  };
  std::map<std::pair<WorkerId, WorkerId>, Shortest> between;  // the lower worker first
  bool impossible = false;
  for (const Event& event : events) {
    if (event.op.kind != OpKind::Recv) continue;
    const WorkerId from = event.op.peer, to = event.worker;
    const auto found = sent.find(Message{event.step, moved_value(event.op), from, to});
    if (found == sent.end() || from == to) continue;
    const Duration took = event.finish - found->second;
    impossible = impossible || took.count() < 0;
    Shortest& pair = between[std::minmax(from, to)];
    std::optional<Duration>& shortest = from < to ? pair.up : pair.down;
    shortest = shortest ? std::min(*shortest, took) : took;
  }
  std::vector<Duration> ahead(at(workers));
  if (!impossible) return ahead;
  std::vector<ClockPair> pairs;
  for (const auto& [ends, shortest] : between) {
    if (!shortest.up || !shortest.down) continue;
    const double difference = static_cast<double>((*shortest.up - *shortest.down).count()) / 2;
    pairs.push_back({ends.first.value, ends.second.value, difference});
  }
  const ClockOffsets offsets = join_clocks(workers, pairs);
  for (size_t w = 0; w < ahead.size(); ++w) {
    ahead[w] = Duration(static_cast<int64_t>(offsets.ahead[w]));
  }
  return ahead;
}

}  // namespace

std::vector<Span> spans_of(const std::vector<Event>& events) {
  const std::vector<Duration> ahead = clocks_of(events);
  const auto ahead_of = [&ahead](WorkerId worker) {
    return worker.value < 0 ? Duration{} : ahead[at(worker.value)];
  };
  std::vector<Span> spans;
  for (const Event& event : events) {
    // A receive is posted early; its span begins when its message was sent instead.
    const bool stamped = event.op.kind == OpKind::Recv && event.sent.count() > 0;
    const Duration own = ahead_of(event.worker);
    const Duration finish = event.finish - own;
    const Duration start =
        stamped ? std::min(event.sent - ahead_of(event.op.peer), finish) : event.start - own;
    spans.push_back({event.worker, event.op, start, finish});
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

std::string row_name(WorkerId worker, const std::vector<std::vector<int32_t>>& stages_of) {
  constexpr size_t kNamed = 4;
  const auto& stages = stages_of[at(worker.value)];
  std::string name = cat("w", worker);
  if (stages.size() > kNamed) return cat(name, " s", stages.front(), "..s", stages.back());
  for (const int32_t stage : stages) name += cat(" s", stage);
  return name;
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

}  // namespace tenuto
