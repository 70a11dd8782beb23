#include "analysis/read_recording.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "analysis/clocks.h"
#include "analysis/packed_file.h"
#include "analysis/trace_rows.h"
#include "base/sentence.h"
#include "base/text.h"

namespace tenuto::analysis {

namespace {

namespace fs = std::filesystem;

// The step in "trace-STEP.json", or -1.
int64_t step_in(std::string_view name) {
  constexpr std::string_view kStart = "trace-";
  if (!name.starts_with(kStart)) return -1;
  name.remove_prefix(kStart.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || step < 0) return -1;
  const std::string_view rest = name.substr(static_cast<size_t>(end - name.data()));
  return rest == ".json" || rest == ".json.gz" ? step : -1;
}

Result<std::vector<std::string>> files_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> steps, others;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (step_in(name) >= 0) {
      steps.push_back(entry.path().string());
    } else if (name.ends_with(".json") || name.ends_with(".json.gz")) {
      others.push_back(entry.path().string());
    }
  }
  if (error) return invalid(cat(path, ": cannot list the folder: ", error.message()));
  std::vector<std::string>& files = steps.empty() ? others : steps;
  if (files.empty()) {
    return invalid(cat(path,
                       ": expected traces (trace-STEP.json, *.json, *.json.gz), found none: list "
                       "steps in job.trace_steps and run the job again, or give a trace file"));
  }
  std::sort(files.begin(), files.end());
  return std::move(files);
}

// How a trace names its ops.
enum class Dialect : uint8_t { None, Phases, Actions };

Dialect dialect_of(const TraceRows& rows) {
  if (names_phases(rows)) return Dialect::Phases;
  return names_actions(rows) ? Dialect::Actions : Dialect::None;
}

Error foreign(const std::string& path, const TraceRows& rows) {
  if (rows.rows.empty()) {
    return invalid(cat(path,
                       ": expected the ops of at least one training step, found a trace "
                       "without events that last: record a step"));
  }
  std::string names;
  for (size_t i = 0; i < rows.names.size() && i < 3; ++i) {
    names += cat(i == 0 ? "" : ", ", "'", excerpt(rows.names[i]), "'");
  }
  return invalid(cat(path,
                     ": expected ops named as Tenuto and torch.distributed.pipelining name "
                     "them (PP:0F0) or by phase (forward-compute), found ",
                     names, ": this is the trace of another tool"));
}

// Leaves out the steps that have fewer forwards than the fullest one.
void keep_whole_steps(Recording& recording) {
  std::vector<int64_t> forwards(recording.steps.size());
  for (const RecordedOp& op : recording.ops) {
    const auto kind = static_cast<size_t>(op.kind);
    if (recording.kinds[kind].role == OpRole::Forward) ++forwards[static_cast<size_t>(op.step)];
  }
  const int64_t most = forwards.empty() ? 0 : *std::max_element(forwards.begin(), forwards.end());
  std::string left_out;
  std::vector<int32_t> renamed(recording.steps.size(), -1);
  std::vector<int64_t> steps;
  for (size_t s = 0; s < forwards.size(); ++s) {
    if (forwards[s] == most && most > 0) {
      renamed[s] = static_cast<int32_t>(steps.size());
      steps.push_back(recording.steps[s]);
    } else if (forwards[s] > 0) {
      left_out += cat(left_out.empty() ? "" : ", ", recording.steps[s]);
    }
  }
  std::vector<RecordedOp> ops;
  for (RecordedOp op : recording.ops) {
    op.step = renamed[static_cast<size_t>(op.step)];
    if (op.step >= 0) ops.push_back(op);
  }
  recording.ops = std::move(ops);
  recording.steps = std::move(steps);
  if (left_out.empty()) return;
  recording.notes.push_back(cat("steps with fewer forwards than others are left out: ", left_out));
}

// Notes compute ops that begin while at least half of the one before, or of themselves, is to come.
void note_overlaps(Recording& recording) {
  int64_t overlaps = 0;
  int32_t example = -1;
  const RecordedOp* before = nullptr;
  for (const RecordedOp& op : recording.ops) {
    const OpRole role = recording.kinds[static_cast<size_t>(op.kind)].role;
    if (role != OpRole::Forward && role != OpRole::Backward && role != OpRole::WeightGradient) {
      continue;
    }
    if (before != nullptr && before->worker == op.worker && before->step == op.step) {
      const double shorter = std::min(before->finish - before->start, op.finish - op.start);
      if (shorter > 0 && before->finish - op.start > shorter / 2) {
        ++overlaps;
        example = op.worker;
      }
    }
    before = &op;
  }
  if (overlaps == 0) return;
  recording.notes.push_back(
      cat(overlaps, " compute ops begin long before the one before has ended, as on ",
          worker_name(recording, example),
          ": a clock jumped, or a worker computes two ops at once; the replay runs them one after "
          "the other"));
}

}  // namespace

Result<Recording> recording_of(const std::vector<TraceSource>& sources) {
  Dialect dialect = Dialect::None;
  for (const TraceSource& source : sources) {
    const Dialect found = dialect_of(source.rows);
    if (found == Dialect::None) return foreign(source.path, source.rows);
    if (dialect != Dialect::None && found != dialect) {
      return invalid(cat(source.path, ": expected ops named as in ", sources.front().path,
                         ", found other names: give traces of one kind"));
    }
    dialect = found;
  }
  auto result =
      dialect == Dialect::Phases ? recording_of_phases(sources) : recording_of_actions(sources);
  if (!result.ok()) return result;
  Recording& recording = result.value();
  keep_whole_steps(recording);
  if (recording.ops.empty()) {
    return invalid(cat(sources.front().path, ": expected at least one whole step, found none: ",
                       recording.notes.empty() ? "record more" : recording.notes.back()));
  }
  note_overlaps(recording);
  align_clocks(recording);
  return result;
}

Result<Recording> read_recording(const std::string& path) {
  const auto files = files_of(path);
  if (!files.ok()) return files.error();
  std::vector<TraceSource> sources;
  for (const std::string& file : files.value()) {
    const auto text = read_packed_file(file);
    if (!text.ok()) return text.error();
    auto rows = read_trace_rows(text.value(), file);
    if (!rows.ok()) return rows.error();
    const int64_t step = step_in(fs::path(file).filename().string());
    sources.push_back({file, step, std::move(rows).value()});
  }
  return recording_of(sources);
}

}  // namespace tenuto::analysis
