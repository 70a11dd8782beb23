#include "analysis/trace_dialects.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/text.h"

namespace tenuto::analysis {

namespace {

constexpr double kMicrosecondsInMillisecond = 1000;
constexpr int64_t kMostNumber = 1'000'000;  // of a stage, a rank, a micro-batch

int32_t small(size_t number) { return static_cast<int32_t>(number); }
size_t at(int32_t number) { return static_cast<size_t>(number); }

// An op whose step is still a number of the trace.
struct Draft {
  RecordedOp op;
  int64_t step = 0;
  int64_t chunk = -1;
};

// Sorts the ops by step, worker and start, and numbers the steps.
void take(std::vector<Draft>& drafts, Recording& recording) {
  std::set<int64_t> steps;
  for (const Draft& draft : drafts) steps.insert(draft.step);
  recording.steps.assign(steps.begin(), steps.end());
  std::map<int64_t, int32_t> index;
  for (const int64_t step : steps) index.emplace(step, small(index.size()));
  recording.ops.reserve(drafts.size());
  for (Draft& draft : drafts) {
    draft.op.step = index[draft.step];
    recording.ops.push_back(draft.op);
  }
  std::stable_sort(
      recording.ops.begin(), recording.ops.end(), [](const RecordedOp& a, const RecordedOp& b) {
        return std::tie(a.step, a.worker, a.start) < std::tie(b.step, b.worker, b.start);
      });
}

void take_times(const TraceRow& row, RecordedOp& op) {
  op.start = row.start / kMicrosecondsInMillisecond;
  op.finish = (row.start + row.duration) / kMicrosecondsInMillisecond;
}

// The number behind `word` in a thread's name, as in "PP rank 2, TP rank 0, compute".
std::optional<int32_t> number_behind(std::string_view text, std::string_view word) {
  const size_t place = text.find(word);
  if (place == std::string_view::npos) return {};
  text.remove_prefix(place + word.size());
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() || number < 0 || number > kMostNumber) return {};
  return static_cast<int32_t>(number);
}

std::vector<OpKindSeen> known_phases() {
  const auto message = [](const char* name, OpRole role, bool gradient) {
    return OpKindSeen{name,     gradient ? "backward-pp-comm" : "forward-pp-comm",
                      role,     Scope::Alone,
                      gradient, false};
  };
  const auto group = [](const char* name, Scope scope, bool first) {
    return OpKindSeen{name, name, OpRole::Collective, scope, false, first};
  };
  const auto alone = [](const char* name, OpRole role) {
    return OpKindSeen{name, name, role, Scope::Alone, false, false};
  };
  return {alone("forward-compute", OpRole::Forward),
          alone("backward-compute", OpRole::Backward),
          message("forward-send", OpRole::Send, false),
          message("forward-recv", OpRole::Receive, false),
          message("backward-send", OpRole::Send, true),
          message("backward-recv", OpRole::Receive, true),
          group("params-all-gather", Scope::Stage, true),
          group("grads-reduce-scatter", Scope::Stage, false),
          group("embedding-grads-all-reduce", Scope::Pipeline, false),
          group("layernorm-grads-all-reduce", Scope::Alone, false),
          group("optimizer-clip-main-grad", Scope::All, false),
          alone("optimizer", OpRole::Local),
          alone("gc", OpRole::Local)};
}

// Where a thread of a trace of phases belongs.
struct Seat {
  int32_t stage = 0, tensor = 0;
};

class PhaseReader {
 public:
  Result<Recording> read(const std::vector<TraceSource>& sources) {
    recording_.format = "a Chrome trace with phases";
    recording_.kinds = known_phases();
    recording_.ends_together = true;
    for (size_t k = 0; k < recording_.kinds.size(); ++k) {
      kinds_.emplace(recording_.kinds[k].name, small(k));
    }
    for (const TraceSource& source : sources) add_seats(source);
    if (seats_.empty()) {
      return invalid(cat(sources.front().path,
                         ": expected threads named 'PP rank 2, TP rank 0, compute', found none: "
                         "the stages of its ops are not known"));
    }
    for (const TraceSource& source : sources) {
      if (const Status added = add(source); !added.ok()) return added.error();
    }
    if (const Status whole = check_workers(sources.front().path); !whole.ok()) {
      return whole.error();
    }
    take(drafts_, recording_);
    name_messages();
    return std::move(recording_);
  }

 private:
  using Place = std::pair<int64_t, int64_t>;  // process, thread

  void add_seats(const TraceSource& source) {
    for (const ThreadName& thread : source.rows.threads) {
      const auto stage = number_behind(thread.name, "PP rank ");
      if (!stage) continue;
      const auto tensor = number_behind(thread.name, "TP rank ");
      seats_[{thread.process, thread.thread}] = {*stage, tensor.value_or(0)};
      first_tensor_ = std::min(first_tensor_, tensor.value_or(0));
      recording_.width = std::max(recording_.width, *stage + 1);
      pipelines_.emplace(thread.process, 0);
    }
    int32_t next = 0;
    for (auto& [process, pipeline] : pipelines_) pipeline = next++;
    recording_.pipelines = next;
  }

  Status add(const TraceSource& source) {
    for (const TraceRow& row : source.rows.rows) {
      const auto seat = seats_.find({row.process, row.thread});
      if (seat == seats_.end()) {
        return invalid(cat(source.path, ": thread ", row.thread, " of process ", row.process,
                           " has events but no name with its stage: expected 'PP rank 2, TP rank "
                           "0, compute'"));
      }
      if (seat->second.tensor != first_tensor_) continue;
      Draft draft;
      draft.op.kind = kind_of(source.rows.names[at(row.name)]);
      draft.op.set = pipelines_[row.process];
      draft.op.worker = draft.op.set * recording_.width + seat->second.stage;
      draft.step = row.step;
      draft.chunk = row.chunk;
      const bool micro_fits = row.micro >= 0 && row.micro < kMostNumber;
      draft.op.micro = micro_fits ? static_cast<int32_t>(row.micro) : -1;
      const OpRole role = recording_.kinds[at(draft.op.kind)].role;
      const bool computes = role == OpRole::Forward || role == OpRole::Backward;
      if (computes || row.chunk >= 0) {
        const auto chunk = static_cast<int32_t>(std::clamp<int64_t>(row.chunk, 0, kMostNumber));
        draft.op.stage = std::min(chunk, 1000) * recording_.width + seat->second.stage;
      }
      if (computes) {
        recording_.stages = std::max(recording_.stages, draft.op.stage + 1);
        computing_.insert(draft.op.worker);
      }
      take_times(row, draft.op);
      drafts_.push_back(draft);
    }
    return ok();
  }

  // Names that are not known are work of one worker, in the order of its compute ops.
  int32_t kind_of(const std::string& name) {
    const auto [place, fresh] = kinds_.try_emplace(name, small(recording_.kinds.size()));
    if (fresh) {
      recording_.kinds.push_back({name, name, OpRole::Local, Scope::Alone, false, false});
      recording_.notes.push_back(cat("'", name, "' is counted as work of its worker alone"));
    }
    return place->second;
  }

  Status check_workers(const std::string& path) {
    for (int32_t p = 0; p < recording_.pipelines; ++p) {
      for (int32_t s = 0; s < recording_.width; ++s) {
        recording_.workers.push_back({p, s});
        if (computing_.count(p * recording_.width + s) > 0) continue;
        return invalid(cat(path, ": expected ops of ", recording_.pipelines, " pipelines with ",
                           recording_.width, " stages each, found none of pipeline ", p, ", stage ",
                           s, ": add the trace of this worker"));
      }
    }
    return ok();
  }

  // Says to which stage and micro-batch each message belongs, step by step and worker by worker.
  void name_messages() {
    std::set<int32_t> wrong;
    std::vector<RecordedOp>& ops = recording_.ops;
    for (size_t first = 0, end = 0; first < ops.size(); first = end) {
      while (end < ops.size() && ops[end].step == ops[first].step &&
             ops[end].worker == ops[first].worker) {
        ++end;
      }
      for (const bool gradient : {false, true}) {
        for (const OpRole role : {OpRole::Send, OpRole::Receive}) {
          if (!name_messages(first, end, gradient, role)) wrong.insert(ops[first].step);
        }
      }
    }
    if (wrong.empty()) return;
    std::string left_out;
    for (const int32_t step : wrong) {
      left_out += cat(left_out.empty() ? "" : ", ", recording_.steps[at(step)]);
    }
    recording_.notes.push_back(
        cat("steps whose messages do not fit their compute ops are left "
            "out: ",
            left_out));
    ops.erase(std::remove_if(ops.begin(), ops.end(),
                             [&wrong](const RecordedOp& op) { return wrong.count(op.step) > 0; }),
              ops.end());
  }

  bool name_messages(size_t first, size_t end, bool gradient, OpRole role) {
    const OpRole maker = gradient ? OpRole::Backward : OpRole::Forward;
    // The stage at the end of the model that has no such message.
    const bool lowest = (role == OpRole::Receive) != gradient;
    const int32_t without = lowest ? 0 : recording_.stages - 1;
    const int32_t to_sender = role == OpRole::Send ? 0 : gradient ? 1 : -1;
    size_t from = first;
    for (size_t i = first; i < end; ++i) {
      RecordedOp& op = recording_.ops[i];
      const OpKindSeen& kind = recording_.kinds[at(op.kind)];
      if (kind.role != role || kind.gradient != gradient) continue;
      for (; from < end; ++from) {
        const RecordedOp& made = recording_.ops[from];
        if (recording_.kinds[at(made.kind)].role == maker && made.stage != without) break;
      }
      if (from == end) return false;
      op.stage = recording_.ops[from].stage + to_sender;
      op.micro = recording_.ops[from].micro;
      ++from;
    }
    for (; from < end; ++from) {
      const RecordedOp& made = recording_.ops[from];
      if (recording_.kinds[at(made.kind)].role == maker && made.stage != without) return false;
    }
    return true;
  }

  Recording recording_;
  std::map<Place, Seat> seats_;
  std::map<int64_t, int32_t> pipelines_;
  std::map<std::string, int32_t> kinds_;
  std::set<int32_t> computing_;
  std::vector<Draft> drafts_;
  int32_t first_tensor_ = std::numeric_limits<int32_t>::max();
};

// What an action's name says.
struct Action {
  int32_t stage = 0, micro = -1;
  std::string verb;
};

// PP:2SEND_F4: stage, verb, micro-batch; nothing for other names.
std::optional<Action> action_of(std::string_view name) {
  if (name.substr(0, 3) != "PP:") return {};
  name.remove_prefix(3);
  const auto number = [&name](int32_t& value) {
    int64_t wide = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), wide);
    if (error != std::errc() || wide < 0 || wide >= kMostNumber) return false;
    name.remove_prefix(static_cast<size_t>(end - name.data()));
    value = static_cast<int32_t>(wide);
    return true;
  };
  Action action;
  if (!number(action.stage)) return {};
  const size_t letters = std::min(name.find_first_of("0123456789/"), name.size());
  action.verb = std::string(name.substr(0, letters));
  name.remove_prefix(letters);
  if (!name.empty() && name.front() != '/' && !number(action.micro)) return {};
  return action;
}

std::vector<OpKindSeen> known_actions() {
  constexpr Scope kAlone = Scope::Alone;
  return {{"F", "forward", OpRole::Forward, kAlone, false, false},
          {"B", "backward", OpRole::Backward, kAlone, false, false},
          {"I", "backward-input", OpRole::Backward, kAlone, false, false},
          {"W", "backward-weight", OpRole::WeightGradient, kAlone, false, false},
          {"SEND_F", "forward-pp-comm", OpRole::Send, kAlone, false, false},
          {"RECV_F", "forward-pp-comm", OpRole::Receive, kAlone, false, false},
          {"SEND_B", "backward-pp-comm", OpRole::Send, kAlone, true, false},
          {"RECV_B", "backward-pp-comm", OpRole::Receive, kAlone, true, false},
          {"REDUCE", "reduce", OpRole::Collective, Scope::Stage, false, false},
          {"REDUCE_GRAD", "reduce", OpRole::Collective, Scope::Stage, false, false},
          {"NORM", "norm", OpRole::Collective, kAlone, false, false},
          {"STEP", "step", OpRole::Collective, Scope::All, false, false}};
}

class ActionReader {
 public:
  Result<Recording> read(const std::vector<TraceSource>& sources) {
    recording_.kinds = known_actions();
    for (size_t k = 0; k < recording_.kinds.size(); ++k) {
      kinds_.emplace(recording_.kinds[k].name, small(k));
    }
    bool profiler = false;
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto& rank = sources[i].rows.rank;
      profiler = profiler || rank.has_value();
      add(sources[i], rank.value_or(-1));
    }
    // Receives are posted ahead, and those of one link are drawn one after the other.
    recording_.starts_when_sent = !profiler;
    recording_.format = profiler ? "a trace of PyTorch's profiler" : "Tenuto's trace";
    if (first_stage_.empty()) {
      return invalid(cat(sources.front().path,
                         ": expected forwards named PP:0F0, found none: record a training step"));
    }
    seat_workers();
    for (int32_t s = 0; s < recording_.stages; ++s) {
      if (seen_stages_.count(s) > 0) continue;
      return invalid(cat(sources.front().path, ": expected ops of ", recording_.stages,
                         " stages, found none of stage ", s,
                         ": add the trace of the worker that has it"));
    }
    name_sets();
    take(drafts_, recording_);
    for (const auto& [place, sum] : promised_) {
      const auto ops = static_cast<double>(sum.ops);
      recording_.promised.push_back({place.second, place.first, sum.ops, sum.promised_ms / ops,
                                     sum.recorded_ms / ops, sum.late_ms / ops});
    }
    return std::move(recording_);
  }

 private:
  // Compares the promised ops of a file with those that happened, by worker and name.
  void add_promised(const TraceSource& source) {
    using Named = std::pair<int64_t, std::string>;
    std::map<Named, const TraceRow*> promised;
    for (const TraceRow& row : source.rows.rows) {
      if (row.promised) promised.emplace(Named{row.process, source.rows.names[at(row.name)]}, &row);
    }
    if (promised.empty()) return;
    for (const TraceRow& row : source.rows.rows) {
      const std::string& name = source.rows.names[at(row.name)];
      const auto action = row.promised ? std::nullopt : action_of(name);
      const auto kind = action ? kinds_.find(action->verb) : kinds_.end();
      if (kind == kinds_.end()) continue;
      // A promised op has its name without "PP:".
      const auto found = promised.find(Named{row.process, name.substr(3)});
      if (found == promised.end()) continue;
      const TraceRow& expected = *found->second;
      PromisedKind& sum = promised_[{action->stage, kind->second}];
      sum.ops += 1;
      sum.promised_ms += expected.duration / kMicrosecondsInMillisecond;
      sum.recorded_ms += row.duration / kMicrosecondsInMillisecond;
      sum.late_ms += (row.start + row.duration - expected.start - expected.duration) /
                     kMicrosecondsInMillisecond;
      promised.erase(found);
    }
  }

  void add(const TraceSource& source, int64_t rank) {
    add_promised(source);
    bool device = false;
    for (const TraceRow& row : source.rows.rows) device = device || row.device;
    std::map<std::tuple<int64_t, int32_t>, int64_t> seen;  // by worker and name: how often
    for (const TraceRow& row : source.rows.rows) {
      if (device && !row.device) continue;
      const auto action = action_of(source.rows.names[at(row.name)]);
      if (!action) continue;
      const auto kind = kinds_.find(action->verb);
      if (kind == kinds_.end()) continue;
      Draft draft;
      const int64_t worker = rank >= 0 ? rank : row.process;
      const int64_t times = seen[{worker, row.name}]++;
      draft.step = row.step >= 0 ? row.step : std::max<int64_t>(source.step, 0) + times;
      draft.chunk = worker;
      draft.op.kind = kind->second;
      draft.op.stage = action->stage;
      draft.op.micro = action->micro;
      take_times(row, draft.op);
      drafts_.push_back(draft);
      const OpRole role = recording_.kinds[at(kind->second)].role;
      if (role == OpRole::Forward || role == OpRole::Backward) {
        const auto [place, fresh] = first_stage_.try_emplace(worker, action->stage);
        if (!fresh) place->second = std::min(place->second, action->stage);
        holds_.insert({worker, action->stage});
        seen_stages_.insert(action->stage);
        recording_.stages = std::max(recording_.stages, action->stage + 1);
      }
    }
  }

  // Numbers the workers. In Tenuto's plans a worker's number is pipeline x width + stage; in other
  // traces the workers of one stage are of the pipelines in the order of their numbers.
  void seat_workers() {
    std::set<int32_t> firsts;
    for (const auto& [worker, stage] : first_stage_) firsts.insert(stage);
    recording_.width = small(firsts.size());
    std::map<int32_t, int32_t> column, next;
    for (const int32_t stage : firsts) column.emplace(stage, small(column.size()));
    bool regular = true;
    for (const auto& [worker, stage] : first_stage_) {
      // Beyond that, the numbers are those of processes.
      regular = regular && worker >= 0 && worker < 64 * small(first_stage_.size()) &&
                worker % recording_.width == column[stage];
    }
    std::vector<std::pair<RecordedWorker, int64_t>> seats;
    for (const auto& [worker, stage] : first_stage_) {
      const int32_t pipeline =
          regular ? static_cast<int32_t>(worker / recording_.width) : next[stage]++;
      seats.push_back({{pipeline, column[stage]}, worker});
      recording_.pipelines = std::max(recording_.pipelines, pipeline + 1);
    }
    std::sort(seats.begin(), seats.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first.pipeline, a.first.stage) < std::tie(b.first.pipeline, b.first.stage);
    });
    for (const auto& [seat, worker] : seats) {
      number_.emplace(worker, small(recording_.workers.size()));
      recording_.workers.push_back(seat);
    }
    std::vector<Draft> of_workers;
    for (Draft& draft : drafts_) {
      const auto number = number_.find(draft.chunk);
      if (number == number_.end()) continue;  // it computes nothing
      draft.op.worker = number->second;
      const OpKindSeen& kind = recording_.kinds[at(draft.op.kind)];
      // PyTorch names a receive by the stage that receives, Tenuto by the one that sends.
      if (kind.role == OpRole::Receive && holds_.count({draft.chunk, draft.op.stage}) > 0) {
        draft.op.stage += kind.gradient ? 1 : -1;
      }
      of_workers.push_back(draft);
    }
    drafts_ = std::move(of_workers);
  }

  // If two workers run a forward of one name, each pipeline numbers its own micro-batches.
  void name_sets() {
    std::map<std::tuple<int64_t, int32_t, int32_t>, int32_t> runs;
    bool repeated = false;
    for (const Draft& draft : drafts_) {
      if (recording_.kinds[at(draft.op.kind)].role != OpRole::Forward) continue;
      const auto [place, fresh] =
          runs.try_emplace({draft.step, draft.op.stage, draft.op.micro}, draft.op.worker);
      repeated = repeated || (!fresh && place->second != draft.op.worker);
    }
    if (!repeated) return;
    for (Draft& draft : drafts_) {
      draft.op.set = recording_.workers[at(draft.op.worker)].pipeline;
    }
  }

  Recording recording_;
  std::map<std::string, int32_t> kinds_;
  std::map<std::pair<int32_t, int32_t>, PromisedKind> promised_;  // sums, by stage and kind
  std::map<int64_t, int32_t> first_stage_, number_;  // by the worker's number in the trace
  std::set<std::pair<int64_t, int32_t>> holds_;      // worker, stage
  std::set<int32_t> seen_stages_;
  std::vector<Draft> drafts_;  // chunk: the worker's number in the trace
};

}  // namespace

std::string worker_name(const Recording& recording, int32_t worker) {
  const RecordedWorker& seat = recording.workers[at(worker)];
  return cat("worker ", worker, " (pipeline ", seat.pipeline, ", stage ", seat.stage, ")");
}

bool names_phases(const TraceRows& rows) {
  return std::find(rows.names.begin(), rows.names.end(), "forward-compute") != rows.names.end();
}

bool names_actions(const TraceRows& rows) {
  return std::any_of(rows.names.begin(), rows.names.end(),
                     [](const std::string& name) { return action_of(name).has_value(); });
}

Result<Recording> recording_of_phases(const std::vector<TraceSource>& sources) {
  return PhaseReader().read(sources);
}

Result<Recording> recording_of_actions(const std::vector<TraceSource>& sources) {
  return ActionReader().read(sources);
}

}  // namespace tenuto::analysis
