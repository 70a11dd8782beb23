#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "bench/slow_link.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

const std::vector<double> kForward = {8, 9, 10, 9, 10, 9, 9, 10};
const std::vector<double> kBackward = {9, 11, 11, 11, 10, 10, 10, 9};
const std::vector<double> kWeight = {5, 6, 6, 7, 6, 6, 6, 6};

std::string list(const std::vector<double>& numbers, double divisor) {
  std::string text;
  for (const double number : numbers) text += cat(text.empty() ? "" : ", ", number / divisor);
  return "[" + text + "]";
}

std::string job_of(const Settings& settings, const Work& work) {
  std::ostringstream text;
  const Mode& mode = work.mode;
  const auto times = [&](const std::vector<double>& all) { return list(all, settings.faster); };
  text << "[model]\nlayers = " << kStages
       << "\n[optimizer]\nkind = \"sgd\"\nclip = 0.0\n[parallel]\nstages = " << kStages
       << "\nmicros = " << kMicros << "\norder = \"" << mode.order << "\"\ndispatch = \""
       << mode.dispatch << "\"\nsplit_backward = " << (mode.split ? "true" : "false")
       << "\n[device]\nkind = \"paced\"\nmessage_bytes = 1024\nforward_ms = " << times(kForward)
       << "\nbackward_input_ms = " << times(kBackward)
       << "\nbackward_weight_ms = " << times(kWeight) << "\n[network]\nsend = \"" << mode.send
       << "\"\n[resilience]\nslow_links = \"" << (mode.adapts ? "adapt" : "off") << "\"\n";
  for (const Fault& fault : work.faults) {
    text << "[[fault]]\nkind = \"" << fault.kind << "\"\nlink = " << fault.link
         << "\nat_step = " << fault.at_step << "\n";
    if (lasts(fault)) text << "latency_ms = " << fault.latency_ms / settings.faster << "\n";
    if (fault.until_step >= 0) text << "until_step = " << fault.until_step << "\n";
  }
  return text.str();
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

fs::path train(const Settings& settings, const Work& work) {
  return train(settings.tenuto, settings.folder, work.steps, work.trace_steps,
               job_of(settings, work));
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
