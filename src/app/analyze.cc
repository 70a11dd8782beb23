#include "app/analyze.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/heat_map.h"
#include "analysis/read_recording.h"
#include "analysis/remedies.h"
#include "analysis/step_graph.h"
#include "app/commands.h"
#include "app/flags.h"
#include "app/output_files.h"
#include "base/sentence.h"
#include "base/text.h"
#include "run/run_directory.h"

namespace tenuto {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostLinks = 8;  // lines of a table for people
constexpr int kCannotWrite = 1, kUsage = 2;

// Everything that is printed.
struct Report {
  analysis::Recording recording;
  analysis::Analysis found;
  analysis::Remedies remedies;
};

int refuse(const Error& error, int exit_code, std::ostream& errors) {
  errors << "tenuto analyze: " << told(error.message) << "\n";
  return exit_code;
}

// A name that is no path may be that of a run.
Result<std::string> find_trace(const std::string& trace) {
  std::error_code error;
  if (std::filesystem::exists(trace, error)) return trace;
  if (trace.find('/') != std::string::npos || trace.ends_with(".json") || trace.ends_with(".gz")) {
    return invalid(cat(trace,
                       ": expected a trace file, a folder of traces or a run, found no such "
                       "file"));
  }
  return find_run(trace);
}

Result<Report> report_on(const std::string& path) {
  auto recording = analysis::read_recording(path);
  if (!recording.ok()) return recording.error();
  Report report;
  report.recording = std::move(recording).value();
  const auto graphs = analysis::graphs_of(report.recording);
  if (!graphs.ok()) return invalid(cat(path, ": ", graphs.error().message));
  const auto durations = analysis::durations_of(report.recording, graphs.value());
  report.found = analysis::analyze(report.recording, graphs.value(), durations);
  report.remedies =
      analysis::price_remedies(report.recording, graphs.value(), durations, report.found);
  return report;
}

Json json_of(const analysis::PartShare& share) {
  Json json;
  json["slowdown"] = share.slowdown;
  json["recovered"] = share.recovered;
  return json;
}

Json parts_of(const Report& report) {
  const analysis::Analysis& found = report.found;
  Json parts;
  for (const analysis::PartShare& share : found.by_operation) {
    Json part;
    part["operation"] = share.name;
    part.update(json_of(share));
    parts["by_operation"].push_back(part);
  }
  for (size_t w = 0; w < found.by_worker.size(); ++w) {
    const analysis::RecordedWorker& seat = report.recording.workers[w];
    Json part;
    part["worker"] = w;
    part["pipeline"] = seat.pipeline;
    part["stage"] = seat.stage;
    part.update(json_of(found.by_worker[w]));
    parts["by_worker"].push_back(part);
  }
  for (size_t s = 0; s < found.by_stage.size(); ++s) {
    Json part;
    part["stage"] = s;
    part.update(json_of(found.by_stage[s]));
    parts["by_stage"].push_back(part);
  }
  for (size_t p = 0; p < found.by_pipeline.size(); ++p) {
    Json part;
    part["pipeline"] = p;
    part.update(json_of(found.by_pipeline[p]));
    parts["by_pipeline"].push_back(part);
  }
  parts["by_link"] = Json::array();
  for (size_t l = 0; l < found.by_link.size(); ++l) {
    Json part;
    part["workers"] = Json::array({found.links[l].first, found.links[l].second});
    part.update(json_of(found.by_link[l]));
    parts["by_link"].push_back(part);
  }
  return parts;
}

Json promised_of(const analysis::Recording& recording) {
  Json all = Json::array();
  for (const analysis::PromisedKind& of : recording.promised) {
    Json one;
    one["stage"] = of.stage;
    one["operation"] = recording.kinds[static_cast<size_t>(of.kind)].label;
    one["ops"] = of.ops;
    one["promised_ms"] = of.promised_ms;
    one["recorded_ms"] = of.recorded_ms;
    one["late_ms"] = of.late_ms;
    all.push_back(one);
  }
  return all;
}

Json json_of(const Report& report) {
  const analysis::Analysis& found = report.found;
  Json json;
  json["slowdown"] = found.slowdown;
  json["verdict"] = found.verdict;
  json["suspects"] = Json::array();
  for (const analysis::Suspect& suspect : found.suspects) {
    Json one;
    one["kind"] = analysis::kind_name(suspect.kind);
    one["name"] = analysis::share_of(found, suspect).name;
    if (suspect.kind == analysis::Suspect::Kind::Worker) one["worker"] = suspect.index;
    if (suspect.kind == analysis::Suspect::Kind::Stage) one["stage"] = suspect.index;
    one.update(json_of(analysis::share_of(found, suspect)));
    json["suspects"].push_back(one);
  }
  json["recovered"] = found.recovered;
  json.update(parts_of(report));
  json["remedies"] = Json::array();
  for (const analysis::Remedy& remedy : report.remedies.priced) {
    Json one;
    one["name"] = remedy.name;
    one["what"] = remedy.what;
    one["step_ms"] = remedy.step_ms;
    one["speedup"] = remedy.speedup;
    json["remedies"].push_back(one);
  }
  if (!report.recording.promised.empty()) json["promised"] = promised_of(report.recording);
  json["recorded_ms"] = found.recorded_ms;
  json["replayed_ms"] = found.replayed_ms;
  json["balanced_ms"] = found.balanced_ms;
  json["format"] = report.recording.format;
  json["steps"] = report.recording.steps.size();
  json["notes"] = report.recording.notes;
  for (const std::string& note : report.remedies.notes) json["notes"].push_back(note);
  return json;
}

std::string row(const std::string& name, double slowdown, double recovered) {
  std::string text = name;
  text.resize(std::max<size_t>(text.size() + 1, 36), ' ');
  std::string share = fixed(100 * recovered, 1);
  share.insert(0, share.size() < 8 ? 8 - share.size() : 0, ' ');
  return cat(text, fixed(slowdown, 3), share, " %\n");
}

// The parts, the largest slowdown first, at most so many of them.
std::string table(std::string_view title, std::vector<analysis::PartShare> shares, size_t most) {
  if (shares.empty()) return "";
  std::stable_sort(shares.begin(), shares.end(),
                   [](const analysis::PartShare& a, const analysis::PartShare& b) {
                     return a.slowdown > b.slowdown;
                   });
  std::string head = cat("\nby ", title);
  head.resize(37, ' ');
  std::string text = cat(head, "alone   given back\n");
  for (size_t i = 0; i < shares.size() && i < most; ++i) {
    text += row(shares[i].name, shares[i].slowdown, shares[i].recovered);
  }
  if (shares.size() > most) text += cat("(", shares.size() - most, " more, see --json)\n");
  return text;
}

std::string column(double number) {
  std::string text = fixed(number, 2);
  text.insert(0, text.size() < 12 ? 12 - text.size() : 0, ' ');
  return text;
}

// Compares promised ops with measured ones: how long they last, and by how much they end later.
std::string promised_table(const analysis::Recording& recording) {
  if (recording.promised.empty()) return "";
  std::string text = "\nas promised, mean in ms";
  text.resize(37, ' ');
  text += "    promised    measured   ends late\n";
  for (const analysis::PromisedKind& of : recording.promised) {
    std::string name =
        cat("stage ", of.stage, " ", recording.kinds[static_cast<size_t>(of.kind)].label);
    name.resize(std::max<size_t>(name.size() + 1, 36), ' ');
    text += cat(name, column(of.promised_ms), column(of.recorded_ms), column(of.late_ms), "\n");
  }
  return text;
}

std::string text_of(const Report& report) {
  const analysis::Analysis& found = report.found;
  const analysis::Recording& recording = report.recording;
  std::string text =
      cat(found.verdict, "\n\nslowdown    ", fixed(found.slowdown, 3),
          " times the balanced step\nstep        ", fixed(found.recorded_ms, 2), " ms recorded, ",
          fixed(found.replayed_ms, 2), " ms replayed, ", fixed(found.balanced_ms, 2),
          " ms balanced\ntrace       ", recording.format, ", ", recording.steps.size(), " steps, ",
          recording.pipelines, " pipelines x ", recording.width, " stages\n\n");
  text += analysis::heat_text(recording, found);
  text += table("operation", found.by_operation, found.by_operation.size());
  text += table("stage", found.by_stage, kMostLinks);
  text += table("worker", found.by_worker, kMostLinks);
  text += table("link", found.by_link, kMostLinks);
  text += promised_table(recording);
  if (!report.remedies.priced.empty()) text += "\nwhat would have helped\n";
  for (const analysis::Remedy& remedy : report.remedies.priced) {
    text += cat(fixed(remedy.speedup, 3), " times as fast, ", fixed(remedy.step_ms, 2),
                " ms: ", remedy.what, "\n");
  }
  std::vector<std::string> notes = recording.notes;
  notes.insert(notes.end(), report.remedies.notes.begin(), report.remedies.notes.end());
  for (const std::string& note : notes) text += cat("note: ", note, "\n");
  return text;
}

}  // namespace

int run_analyze(const AnalyzeOptions& options, std::ostream& out, std::ostream& errors) {
  const auto place = find_trace(options.trace);
  if (!place.ok()) return refuse(place.error(), kUsage, errors);
  if (const Status names =
          check_names({{"the trace", place.value()}}, {{"--picture", options.picture}});
      !names.ok()) {
    return refuse(names.error(), kUsage, errors);
  }
  OutputFiles files;
  if (const Status opened = files.open(options.picture); !opened.ok()) {
    return refuse(opened.error(), kCannotWrite, errors);
  }
  const auto report = report_on(place.value());
  if (!report.ok()) return refuse(report.error(), kUsage, errors);
  if (!options.picture.empty()) {
    const std::string picture = analysis::heat_svg(report.value().recording, report.value().found);
    if (const Status written = files.write(options.picture, picture); !written.ok()) {
      return refuse(written.error(), kCannotWrite, errors);
    }
  }
  if (const Status finished = files.finish(); !finished.ok()) {
    return refuse(finished.error(), kCannotWrite, errors);
  }
  if (options.json) {
    const Json json = json_of(report.value());
    out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    out << text_of(report.value());
  }
  return 0;
}

void add_analyze_command(CLI::App& app, Chosen chosen) {
  auto options = std::make_shared<AnalyzeOptions>();
  CLI::App* command =
      app.add_subcommand("analyze", "who slowed a recorded run, by how much, and what would help");
  path_flag(*command, "trace", options->trace,
            "trace file (JSON, plain or gzip), folder of traces, or a run")
      ->required();
  path_flag(*command, "--picture", options->picture,
            "write the slowdown by worker as a picture (SVG) to this file");
  command->add_flag("--json", options->json, "one JSON object on stdout");
  command->footer(
      "Reads the traces of Tenuto's runs and of PyTorch's profiler, and Chrome traces with phases "
      "(docs/analyze.md).\n"
      "Example: tenuto analyze runs/quickstart --picture heat.svg");
  command->callback([options, chosen] { chosen([options] { return run_analyze(*options); }); });
}

}  // namespace tenuto
