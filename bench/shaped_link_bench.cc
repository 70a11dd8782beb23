// The cost of a slow link in real time: four paced worker processes on the real clock, each in its
// own network namespace, with one link between them shaped to a low rate. Three runs: the order of
// the settings as it is listed; a plan that was made for the slow link beforehand; and a live run
// whose link is shaped during the run, and which must detect that by itself. Each iteration is
// shown beside its price.
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "adapt/adapt.h"
#include "base/quantile.h"
#include "base/text.h"
#include "bench/program.h"
#include "ir/text.h"
#include "plan/make_plan.h"
#include "sim/price.h"
#include "sim/trace_reader.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int32_t kStages = 4, kSlow = 1;  // the link between stages 1 and 2
// An Ethernet frame has 1514 bytes, 1448 of them TCP payload.
constexpr double kPayload = 1448.0 / 1514.0;
constexpr double kMostError = 5;  // percent, of an iteration from its price
constexpr int32_t kHealthy = 8;   // steps of the live run before the link is shaped
constexpr int32_t kFinding = 12;  // and the most steps from there to the new plan

struct Settings {
  std::string tenuto, cluster;  // programs
  std::string order = "zb-h1";
  int32_t micros = 24, iterations = 8, op_ms = 40, kilobytes = 256;
  int32_t cap = 0;        // rate of the slow link, Mbit/s; 0 = a message lasts 2.5 ops
  int32_t rate = 1000;    // rate of the other links
  bool priority = false;  // workers get real-time priority
  bool json = false;
  fs::path folder;

  double message_bytes() const { return 1024.0 * kilobytes; }
};

[[noreturn]] void give_up(const std::string& sentence) {
  std::fprintf(stderr, "shaped_link_bench: %s\n", sentence.c_str());
  std::exit(1);
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A running program, which dies with this one.
class Process {
 public:
  Process(const std::vector<std::string>& words, const fs::path& log) {
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(file, 1);
    dup2(file, 2);
    execvp(pointers[0], pointers.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!ended()) kill(pid_, SIGKILL);
    wait();
  }
  pid_t id() const { return pid_; }
  bool ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  bool wait() {
    if (!ended_) waitpid(pid_, &status_, 0);
    ended_ = true;
    return WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

// Runs tools/virtual_cluster with these words.
void cluster(const Settings& settings, std::vector<std::string> words) {
  words.insert(words.begin(), settings.cluster);
  const fs::path log = settings.folder / "cluster.log";
  if (!Process(words, log).wait()) give_up(cat("the virtual cluster: ", read(log)));
}

// Shapes both directions of the slow link.
void shape(const Settings& settings) {
  for (const auto& [from, to] : {std::pair(kSlow, kSlow + 1), std::pair(kSlow + 1, kSlow)}) {
    cluster(settings, {"link", cat(from), cat(to), cat(settings.cap)});
  }
}

void heal(const Settings& settings) {
  for (const auto& [from, to] : {std::pair(kSlow, kSlow + 1), std::pair(kSlow + 1, kSlow)}) {
    cluster(settings, {"unlink", cat(from), cat(to)});
  }
}

double bytes_per_second(int32_t megabits) { return megabits * 1e6 / 8 * kPayload; }

Cluster cluster_of(const Settings& settings, bool slow) {
  Cluster all = uniform_cluster(kStages, {{}, bytes_per_second(settings.rate)});
  if (!slow) return all;
  const Link link{{}, bytes_per_second(settings.cap)};
  all.exceptions[{{kSlow}, {kSlow + 1}}] = all.exceptions[{{kSlow + 1}, {kSlow}}] = link;
  return all;
}

Model model_of(const Settings& settings, const Plan& plan) {
  Model model;
  model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
  for (const Stage& stage : plan.stages) {
    Layer& layer = model.layers[static_cast<size_t>(stage.layer_first)];
    layer.forward = layer.backward_input = layer.backward_weight =
        from_milliseconds(settings.op_ms);
    model.layers[static_cast<size_t>(stage.layer_end) - 1].activation = {
        static_cast<int64_t>(settings.message_bytes())};
  }
  return model;
}

double price_ms(const Settings& settings, const Plan& plan, bool slow) {
  PriceOptions options;
  options.update = options.lower_bound = false;
  const auto priced = price(plan, model_of(settings, plan), cluster_of(settings, slow), options);
  if (!priced.ok()) give_up(priced.error().message);
  return to_milliseconds(priced.value().makespan);
}

// Writes the plan made for the slow link, as a file for parallel.schedule.
std::string write_told_plan(const Settings& settings) {
  Shape shape;
  shape.stages = kStages;
  shape.micros = settings.micros;
  shape.order = settings.order;
  shape.split_backward = true;
  const auto plan = make_plan(shape);
  if (!plan.ok()) give_up(plan.error().message);
  AdaptOptions options;
  options.least_gain = 0;
  options.price.update = false;
  const auto adapted =
      adapt(plan.value(), model_of(settings, plan.value()), cluster_of(settings, true), options);
  if (!adapted.ok()) give_up(adapted.error().message);
  const fs::path path = settings.folder / "told.json";
  std::ofstream(path) << to_json(adapted.value().plan);
  return path.string();
}

// A variant of the run.
struct Mode {
  std::string name, schedule;  // schedule: a plan's file; empty = the order of the settings
  bool adapts = false;         // live: the link is healthy at first
  int32_t steps = 0;
};

std::string list_of(int32_t count) {
  std::string text;
  for (int32_t i = 0; i < count; ++i) text += cat(i == 0 ? "[" : ", ", i);
  return text + "]";
}

void write_job(const Settings& settings, const Mode& mode) {
  std::ofstream file(settings.folder / "job.toml");
  file << "[job]\nname = \"run\"\nsteps = " << mode.steps << "\ndirectory = \""
       << (settings.folder / mode.name).string()
       << "\"\ncheckpoint_every = 0\nvalidate_every = 0\nvalidate_micros = 0\ntrace_steps = "
       << list_of(mode.steps) << "\n[model]\nlayers = " << kStages
       << "\n[optimizer]\nkind = \"sgd\"\nclip = 0.0\n[parallel]\nstages = " << kStages
       << "\nmicros = " << settings.micros;
  if (mode.schedule.empty()) {
    file << "\norder = \"" << settings.order << "\"\ndispatch = \""
         << (mode.adapts ? "ready" : "listed") << "\"";
  } else {
    file << "\nschedule = \"" << mode.schedule << "\"";
  }
  file << "\n[device]\nkind = \"paced\"\nclock = \"real\"\nmessage_bytes = "
       << static_cast<int64_t>(settings.message_bytes());
  for (const char* op : {"forward", "backward_input", "backward_weight"}) {
    file << "\n" << op << "_ms = " << settings.op_ms << ".0";
  }
  file << "\n[network]\ndevice = \"eth0\"\nprotocol = \"eager\"\n[resilience]\nslow_links = \""
       << (mode.adapts ? "adapt" : "off") << "\"\n[coordinator]\nlisten = \"10.77.0.254:0\"\n"
       << "launch = [\"ip\", \"netns\", \"exec\", \"vc{worker}\""
       << "]\n";
}

// One iteration of a run.
struct Iteration {
  int64_t step = 0;
  std::string plan;  // its order's name
  bool slow = false;
  double measured_ms = 0, priced_ms = 0;
  double error() const { return 100 * (measured_ms / priced_ms - 1); }
};

// The results of one run.
struct Outcome {
  std::vector<Iteration> iterations;
  std::vector<Duration> late;  // how much longer than asked each op lasted
  std::string story;
};

int64_t steps_done(const fs::path& run) {
  const std::string text = read(run / "metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

// Gives real-time priority to every thread of the workers that `parent` has started, so that other
// load on the machine does not affect the figures. Call it when they train: before, they would hold
// each other up.
void raise_workers(pid_t parent) {
  std::istringstream children(read(cat("/proc/", parent, "/task/", parent, "/children")));
  std::error_code gone;
  for (pid_t child = 0; children >> child;) {
    for (const auto& thread : fs::directory_iterator(cat("/proc/", child, "/task"), gone)) {
      sched_param priority{};
      priority.sched_priority = 10;
      if (sched_setscheduler(std::stoi(thread.path().filename()), SCHED_FIFO, &priority) == 0) {
        continue;
      }
      give_up("--priority needs root (or CAP_SYS_NICE) outside of any container");
    }
  }
}

// Trains; shapes the link of a live run after some steps. Returns the first step whose link is slow
// from its beginning to its end.
int64_t train(const Settings& settings, const Mode& mode) {
  write_job(settings, mode);
  const fs::path run = settings.folder / mode.name / "run", log = settings.folder / "train.log";
  if (!mode.adapts) shape(settings);
  Process process({settings.cluster, "exec", "hub", settings.tenuto, "train",
                   (settings.folder / "job.toml").string(), "--json"},
                  log);
  int64_t first = 0;
  bool raised = !settings.priority;
  while ((!raised || (mode.adapts && first == 0)) && !process.ended()) {
    const int64_t done = steps_done(run);
    if (!raised && done >= 1) {
      raise_workers(process.id());
      raised = true;
    }
    if (mode.adapts && first == 0 && done >= kHealthy) {
      shape(settings);
      first = steps_done(run) + 1;  // the running step is partly slow
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!process.wait()) give_up(cat("a run failed: ", read(log)));
  heal(settings);
  return first;
}

// A run's decisions as sentences, and its plans.
struct Changes {
  std::map<int64_t, Plan> plans;  // by their first step
  std::string story;
};

Plan read_plan(const fs::path& path) {
  auto plan = plan_from_json(read(path), path.string());
  if (!plan.ok()) give_up(plan.error().message);
  return std::move(plan).value();
}

Changes changes_of(const fs::path& run) {
  Changes changes;
  changes.plans.emplace(0, read_plan(run / "plan-1.json"));
  const std::regex in_force("plan (\\d+) \\(.*\\) is in force from step (\\d+)");
  std::istringstream lines(read(run / "events.jsonl"));
  std::string line;
  while (std::getline(lines, line)) {
    const Json json = Json::parse(line);
    const std::string kind = json["event"], reason = json["reason"];
    if (kind != "detection" && kind != "decision") continue;
    changes.story += cat("  step ", json["step"].get<int64_t>(), ": ", reason, "\n");
    std::smatch found;
    if (!std::regex_search(reason, found, in_force)) continue;
    const fs::path plan = run / cat("plan-1-", found[1].str(), ".json");
    const fs::path file = found[1].str() == "1" || !fs::exists(plan) ? run / "plan-1.json" : plan;
    changes.plans.insert_or_assign(std::stoll(found[2].str()), read_plan(file));
  }
  return changes;
}

// The time from the first op's start to the last weight gradient's end.
double measure(const Settings& settings, const std::vector<Span>& spans, Outcome& outcome) {
  Duration first = Duration::max(), last{};
  for (const Span& span : spans) {
    const OpKind kind = span.op.kind;
    const bool computes =
        kind == OpKind::Forward || kind == OpKind::BackwardInput || kind == OpKind::BackwardWeight;
    if (!computes) continue;
    first = std::min(first, span.start);
    last = std::max(last, span.finish);
    outcome.late.push_back(span.finish - span.start - from_milliseconds(settings.op_ms));
  }
  return to_milliseconds(last - first);
}

Outcome run_mode(const Settings& settings, const Mode& mode) {
  const int64_t slow_from = train(settings, mode);
  const fs::path run = settings.folder / mode.name / "run";
  const Changes changes = changes_of(run);
  Outcome outcome;
  outcome.story = changes.story;
  // Skip the first step (new connections and memory), with --priority also the second, and the step
  // in which the link was shaped, which has no price.
  for (int64_t step = settings.priority ? 2 : 1; step < mode.steps; ++step) {
    if (mode.adapts && step == slow_from - 1) continue;
    const Plan& plan = std::prev(changes.plans.upper_bound(step))->second;
    const fs::path trace = run / cat("trace-", step, ".json");
    const auto spans = spans_of_trace(read(trace), trace.string(), plan);
    if (!spans.ok()) give_up(spans.error().message);
    Iteration iteration{step, plan.order, step >= slow_from, 0, 0};
    iteration.measured_ms = measure(settings, spans.value(), outcome);
    iteration.priced_ms = price_ms(settings, plan, iteration.slow);
    outcome.iterations.push_back(std::move(iteration));
  }
  return outcome;
}

// A summary of the iterations of one kind.
struct Summary {
  std::string name;
  size_t iterations = 0;
  double measured_ms = 0, priced_ms = 0;            // medians
  double error = 0, worst_error = 0, worst_ms = 0;  // percent: of medians, largest; ms: longest
};

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

Summary summary_of(const std::string& name, const std::vector<Iteration>& all) {
  Summary summary{name, all.size()};
  std::vector<double> measured, priced;
  for (const Iteration& one : all) {
    measured.push_back(one.measured_ms);
    priced.push_back(one.priced_ms);
    if (std::abs(one.error()) > std::abs(summary.worst_error)) summary.worst_error = one.error();
    summary.worst_ms = std::max(summary.worst_ms, one.measured_ms);
  }
  summary.measured_ms = median(measured);
  summary.priced_ms = median(priced);
  if (!all.empty()) summary.error = 100 * (summary.measured_ms / summary.priced_ms - 1);
  return summary;
}

// Splits a live run into parts: healthy link; slow link under the first plan; slow link under a
// later one.
std::vector<Summary> parts_of(const Mode& mode, const Outcome& outcome) {
  if (!mode.adapts) return {summary_of(mode.name, outcome.iterations)};
  std::vector<Iteration> healthy, before, after;
  for (const Iteration& one : outcome.iterations) {
    const bool old = one.plan == outcome.iterations.front().plan;
    (!one.slow ? healthy : old ? before : after).push_back(one);
  }
  return {summary_of("live, healthy", healthy), summary_of("live, slow", before),
          summary_of("live, adapted", after)};
}

void print_run(const Mode& mode, const Outcome& outcome) {
  std::printf("\n%s:\n", mode.name.c_str());
  for (const Iteration& one : outcome.iterations) {
    std::printf("  step %2d  %-8s %-7s %8.1f ms, priced %8.1f ms  %+5.1f %%\n",
                static_cast<int>(one.step), one.plan.c_str(), one.slow ? "slow" : "healthy",
                one.measured_ms, one.priced_ms, one.error());
  }
  std::printf("%s", outcome.story.c_str());
  std::fflush(stdout);
}

Json to_json(const Summary& summary) {
  return {{"name", summary.name},
          {"iterations", summary.iterations},
          {"measured_ms", summary.measured_ms},
          {"priced_ms", summary.priced_ms},
          {"error_percent", summary.error},
          {"worst_error_percent", summary.worst_error}};
}

void print_summary(const Settings& settings, const std::vector<Summary>& all, Duration late) {
  const Summary& fixed = all[0];
  const Summary &told = all[1], &live = all[4];
  const bool busy = late * 20 > from_milliseconds(settings.op_ms);
  Json rows = Json::array();
  for (const Summary& of : all) rows.push_back(to_json(of));
  const double promise = fixed.priced_ms / told.priced_ms;
  if (settings.json) {
    const Json json = {{"rows", rows},
                       {"cap_megabits", settings.cap},
                       {"promised", promise},
                       {"told", fixed.measured_ms / told.measured_ms},
                       {"live", fixed.measured_ms / live.measured_ms},
                       {"late_p99_ms", to_milliseconds(late)},
                       {"busy", busy}};
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  std::printf("\n%-16s %5s %12s %10s %8s %8s\n", "", "steps", "median ms", "priced", "error",
              "worst");
  for (const Summary& of : all) {
    std::printf("%-16s %5zu %12.1f %10.1f %+6.1f %% %+6.1f %%\n", of.name.c_str(), of.iterations,
                of.measured_ms, of.priced_ms, of.error, of.worst_error);
  }
  std::printf("fixed over adapted: promised %.2f; measured %.2f told beforehand, %.2f found live\n",
              promise, fixed.measured_ms / told.measured_ms, fixed.measured_ms / live.measured_ms);
  std::printf("ops late by %.2f ms (99th percentile)%s\n", to_milliseconds(late),
              busy ? ": the machine was too busy, these times mean little" : "");
}

int run_table(Settings settings) {
  char folder[] = "/tmp/tenuto-shaped-link-XXXXXX";
  if (mkdtemp(folder) == nullptr) give_up("cannot make a folder in /tmp");
  settings.folder = folder;
  if (settings.cap == 0) {
    const double seconds = 2.5e-3 * settings.op_ms;
    settings.cap =
        static_cast<int32_t>(std::lround(settings.message_bytes() * 8e-6 / kPayload / seconds));
  }
  cluster(settings, {"up", cat(kStages), cat(settings.rate)});
  const int32_t steps = settings.iterations + (settings.priority ? 2 : 1);
  const std::vector<Mode> modes = {{"fixed", "", false, steps},
                                   {"told", write_told_plan(settings), false, steps},
                                   {"live", "", true, kHealthy + kFinding + settings.iterations}};
  if (!settings.json) {
    std::printf(
        "%d stages, %d micro-batches of %d KiB, ops of %d ms, real clock; link %d-%d at %d "
        "Mbit/s (%.1f ms a message), the others at %d\n",
        kStages, settings.micros, settings.kilobytes, settings.op_ms, kSlow, kSlow + 1,
        settings.cap, 1e3 * settings.message_bytes() / bytes_per_second(settings.cap),
        settings.rate);
  }
  std::vector<Summary> all;
  std::vector<Duration> late;
  for (const Mode& mode : modes) {
    const Outcome outcome = run_mode(settings, mode);
    if (!settings.json) print_run(mode, outcome);
    for (Summary& part : parts_of(mode, outcome)) all.push_back(std::move(part));
    late.insert(late.end(), outcome.late.begin(), outcome.late.end());
  }
  print_summary(settings, all, quantile(late, 0.99));
  fs::remove_all(settings.folder);
  return 0;
}

// Executes this program again under `virtual_cluster alone`, whose namespaces vanish with it.
int enter(const Settings& settings, int count, char** arguments) {
  if (std::system("unshare -n true 2>/dev/null || unshare -rn true 2>/dev/null") != 0) {
    give_up("network namespaces are not allowed here (`unshare -n true` fails)");
  }
  std::string self = fs::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words = {settings.cluster, "alone", self};
  for (int i = 1; i < count; ++i) words.emplace_back(arguments[i]);
  words.emplace_back("--inside");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  give_up(cat("cannot start ", settings.cluster));
}

}  // namespace
}  // namespace tenuto

int main(int argc, char** argv) {
  using tenuto::Settings;
  CLI::App app("A slow link in real time: worker processes in network namespaces");
  Settings settings;
  settings.tenuto = tenuto::tenuto_of_this_build();
  settings.cluster = TENUTO_SOURCE_DIR "/tools/virtual_cluster";
  bool inside = false;
  const auto whole = [](int32_t low, int32_t high) { return CLI::Range(low, high); };
  app.add_option("--iterations", settings.iterations, "of each run (8)")->check(whole(2, 1000));
  app.add_option("--micros", settings.micros, "micro-batches of a step (24)")
      ->check(whole(4, 1000));
  app.add_option("--op-ms", settings.op_ms, "length of each op (40)")->check(whole(5, 1000));
  app.add_option("--message-kib", settings.kilobytes, "size of a message (256)")
      ->check(whole(64, 16384));
  app.add_option("--cap", settings.cap, "Mbit/s of the slow link (a message lasts 2.5 ops)")
      ->check(whole(1, 100000));
  app.add_option("--rate", settings.rate, "Mbit/s of the other links (1000)")
      ->check(whole(1, 100000));
  app.add_option("--order", settings.order, "the fixed order (zb-h1)");
  app.add_flag("--priority", settings.priority,
               "workers go before everybody else on the machine; needs root");
  app.add_option("--tenuto", settings.tenuto, "the program that trains");
  app.add_option("--cluster", settings.cluster, "tools/virtual_cluster");
  app.add_flag("--json", settings.json, "one JSON object");
  app.add_flag("--inside", inside)->group("");
  CLI11_PARSE(app, argc, argv);
  return inside ? tenuto::run_table(settings) : tenuto::enter(settings, argc, argv);
}
