#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "bench/slow_link.h"
#include "ir/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

const std::vector<double> kForward = {8, 9, 10, 9, 10, 9, 9, 10};
const std::vector<double> kBackward = {9, 11, 11, 11, 10, 10, 10, 9};
const std::vector<double> kWeight = {5, 6, 6, 7, 6, 6, 6, 6};

template <class Number>
std::string list(const std::vector<Number>& numbers, double divisor) {
  std::string text;
  for (const Number number : numbers)
    text += cat(text.empty() ? "" : ", ", static_cast<double>(number) / divisor);
  return "[" + text + "]";
}

void write_job(const Settings& settings, const Work& work) {
  std::ofstream file(settings.folder / "job.toml");
  const Mode& mode = work.mode;
  const auto times = [&](const std::vector<double>& all) { return list(all, settings.faster); };
  file << "[job]\nname = \"cell\"\nsteps = " << work.steps << "\ndirectory = \""
       << (settings.folder / "runs").string() << "\"\ncheckpoint_every = 0\nvalidate_every = 0\n"
       << "validate_micros = 0\ntrace_steps = " << list(work.trace_steps, 1)
       << "\n[model]\nlayers = " << kStages
       << "\n[optimizer]\nkind = \"sgd\"\nclip = 0.0\n[parallel]\nstages = " << kStages
       << "\nmicros = " << kMicros << "\norder = \"" << mode.order << "\"\ndispatch = \""
       << mode.dispatch << "\"\nsplit_backward = " << (mode.split ? "true" : "false")
       << "\n[device]\nkind = \"paced\"\nmessage_bytes = 1024\nforward_ms = " << times(kForward)
       << "\nbackward_input_ms = " << times(kBackward)
       << "\nbackward_weight_ms = " << times(kWeight) << "\n[network]\nsend = \"" << mode.send
       << "\"\n[resilience]\nslow_links = \"" << (mode.adapts ? "adapt" : "off") << "\"\n";
  for (const Fault& fault : work.faults) {
    file << "[[fault]]\nkind = \"" << fault.kind << "\"\nlink = " << fault.link
         << "\nat_step = " << fault.at_step << "\n";
    if (lasts(fault)) file << "latency_ms = " << fault.latency_ms / settings.faster << "\n";
    if (fault.until_step >= 0) file << "until_step = " << fault.until_step << "\n";
  }
}

}  // namespace

const std::vector<Mode>& modes() {
  static const std::vector<Mode> all = {
      {"blocking 1f1b", "1f1b", "listed", "blocking", false, false},
      {"blocking zb", "zb-h2", "listed", "blocking", true, false},
      {"offloaded zb", "zb-h2", "listed", "offloaded", true, false},
      {"adapted", "auto", "ready", "offloaded", true, true},
  };
  return all;
}

void give_up(const std::string& sentence) {
  std::fprintf(stderr, "slow_link_bench: %s\n", sentence.c_str());
  std::exit(1);
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) give_up(cat("cannot read ", path.string()));
  return text.str();
}

fs::path train(const Settings& settings, const Work& work) {
  write_job(settings, work);
  const std::string job = (settings.folder / "job.toml").string();
  const std::string log = (settings.folder / "log").string();
  const std::string command =
      cat("'", settings.tenuto, "' train '", job, "' --json > '", log, "' 2>&1");
  fs::remove_all(settings.folder / "runs");
  if (std::system(command.c_str()) != 0) give_up(cat("a run failed: ", read_all(log)));
  return settings.folder / "runs" / "cell";
}

Plan plan_of(const fs::path& run, int64_t serial) {
  const auto file = [&](int64_t of) {
    return run / (of < 2 ? std::string("plan-1.json") : cat("plan-1-", of, ".json"));
  };
  if (serial == 0) {
    for (serial = 1; fs::exists(file(serial + 1));) ++serial;
  }
  auto plan = plan_from_json(read_all(file(serial)), file(serial).string());
  if (!plan.ok()) give_up(plan.error().message);
  return std::move(plan).value();
}

Model model_of(const Settings& settings, const Plan& plan) {
  Model model;
  model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    Layer& layer = model.layers[static_cast<size_t>(plan.stages[s].layer_first)];
    layer.forward = from_milliseconds(kForward[s] / settings.faster);
    layer.backward_input = from_milliseconds(kBackward[s] / settings.faster);
    layer.backward_weight = from_milliseconds(kWeight[s] / settings.faster);
  }
  return model;
}

PriceOptions pricing_of(const Mode& mode) {
  PriceOptions options;
  options.sending = mode.send == "blocking" ? Sending::Blocking : Sending::Offloaded;
  return options;
}

std::string file_name(const Mode& mode) {
  std::string name = mode.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

}  // namespace tenuto
