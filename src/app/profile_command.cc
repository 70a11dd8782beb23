#include "app/profile_command.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "adapt/report/profile_report.h"
#include "app/commands.h"
#include "app/config.h"
#include "app/flags.h"
#include "app/output_files.h"
#include "app/profile_worker.h"
#include "app/waiting_line.h"
#include "app/worker_program.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sentence.h"
#include "base/text.h"
#include "communicator/join.h"
#include "communicator/link_measure.h"
#include "monitor/topology.h"
#include "protocol/tls.h"
#include "run/launch.h"
#include "run/supervise.h"
#include "run/token.h"
#include "transport/process/process_wire.h"
#include "world/cluster_file.h"
#include "world/fault.h"
#include "world/load.h"

namespace tenuto {

namespace {

namespace fs = std::filesystem;

// Added to the time for measuring: a worker needs time to start, read its data, make the model at
// every number of rows, and run the least number of steps that it measures.
constexpr Duration kStartLimit = std::chrono::minutes(10);
// How long workers may take to end after the last measurement.
constexpr Duration kEndLimit = std::chrono::seconds(10);

// A folder for the workers' logs and files. It is removed at the end, also when a signal ends this
// process.
class Scratch {
 public:
  // Errors: Invalid/Job  the folder cannot be made
  static Result<std::unique_ptr<Scratch>> make() {
    std::error_code failure;
    std::string name = (fs::temp_directory_path(failure) / "tenuto-profile-XXXXXX").string();
    if (failure || ::mkdtemp(name.data()) == nullptr) {
      return write_error(name, failure ? failure.value() : errno);
    }
    return std::unique_ptr<Scratch>(new Scratch(std::move(name)));
  }
  ~Scratch() {
    leaving_ = true;
    ::pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
    remove();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const std::string& name) const { return cat(path_, "/", name); }
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)), thread_([this] { listen(); }) {}
  void remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  // claim_signals() blocks these signals, so sigwait() takes them. Workers end with this process.
  void listen() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, one);
    int number = 0;
    while (!leaving_) {
      if (::sigwait(&signals, &number) != 0 || number == SIGUSR1) continue;
      remove();
      ::_exit(128 + number);
    }
  }

  const std::string path_;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;
};

// Layers can be measured only if a paced device has the same length of each kind of op everywhere.
Status check_lengths(const DeviceSettings& device) {
  if (device.kind != "paced") return ok();
  if (!device.profile.empty()) {
    return invalid(cat("device.profile: ", device.profile,
                       " has the times of the layers already: leave it out, or measure the links "
                       "alone with --links-only"));
  }
  for (const auto* lengths :
       {&device.forward_ms, &device.backward_input_ms, &device.backward_weight_ms}) {
    if (std::set<double>(lengths->begin(), lengths->end()).size() <= 1) continue;
    return invalid(
        "device.forward_ms, backward_input_ms and backward_weight_ms have different numbers for "
        "the stages of a paced device, and no times of layers follow from them: give one number "
        "for all stages, or measure the links alone with --links-only");
  }
  return ok();
}

Result<Job> read_job(const ProfileOptions& options) {
  Result<LoadedJob> loaded = load_effective_job(options.job_file, options.overrides);
  if (!loaded.ok()) return loaded.error();
  Job job = std::move(loaded.value().job);
  if (Status right = check_between_processes(job.network, "tenuto profile"); !right.ok()) {
    return right.error();
  }
  if (!options.links_only) {
    if (Status right = check_lengths(job.device); !right.ok()) return right.error();
  }
  return job;
}

// The last message of a worker that has ended with an error, if there is one.
std::optional<std::string> last_words(Launcher& launcher) {
  for (const Exited& exited : launcher.reap()) {
    if (exited.signalled) {
      return cat("the process of worker ", exited.worker, " was ended by signal ", exited.number);
    }
    if (exited.number == 0) continue;
    std::string said = exited.last_words;
    constexpr std::string_view kName = "tenuto: ";
    if (said.rfind(kName, 0) == 0) said.erase(0, kName.size());
    return said.empty() ? cat("the process of worker ", exited.worker, " ended with exit code ",
                              exited.number)
                        : said;
  }
  return std::nullopt;
}

Error failed(const std::string& sentence) { return {Code::Disconnected, Reach::Job, sentence}; }

// Waits until all workers have ended without an error.
Status await_end(Launcher& launcher, Duration limit) {
  const Duration end = monotonic_clock().now() + limit;
  while (true) {
    if (const auto said = last_words(launcher)) return failed(*said);
    if (launcher.alive() == 0) return ok();
    if (monotonic_clock().now() >= end) {
      return Error{
          Code::Timeout, Reach::Job,
          cat("the measurement has not ended within ", fixed(to_milliseconds(limit) / 1000, 0),
              " s: take a smaller model or fewer rows, or another machine")};
    }
    std::vector<pollfd> waits;
    for (const int descriptor : launcher.descriptors()) waits.push_back({descriptor, POLLIN, 0});
    ::poll(waits.data(), waits.size(), 100);
  }
}

// The settings for launching workers, with Torch or without.
Result<LaunchSettings> launch_settings(const Job& job, const Scratch& scratch, bool torch) {
  Result<std::string> program = torch ? find_torch_worker() : find_paced_worker();
  if (!program.ok()) return program.error();
  LaunchSettings settings;
  settings.program = std::move(program).value();
  settings.prefix = job.coordinator.launch;
  settings.token = random_token();
  settings.directory = scratch.path();
  return settings;
}

Result<ModelProfile> measure_model(const Job& job, double seconds, const Scratch& scratch,
                                   Watch& watch) {
  watch.begin("measuring the layers");
  auto settings = launch_settings(job, scratch, job.device.kind != "paced");
  if (!settings.ok()) return settings.error();
  const std::string file = scratch.file("model.json");
  settings.value().task = {"profile-layers", "--job-file", scratch.file("job.toml"), "--out", file,
                           "--seconds",      cat(seconds)};
  settings.value().workers = {{0}};
  Launcher launcher;
  if (Status started = launcher.start(settings.value()); !started.ok()) return started.error();
  const Duration limit = kStartLimit + 2 * from_milliseconds(seconds * 1000);
  if (Status ended = await_end(launcher, limit); !ended.ok()) return ended.error();
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return text.error();
  return model_profile_from_json(text.value(), file);
}

// On a virtual clock, links are copied from the settings: there is nothing to measure.
LinkTable table_of(const Cluster& cluster) {
  const auto count = static_cast<int32_t>(cluster.workers.size());
  LinkTable table(count);
  for (int32_t from = 0; from < count; ++from) {
    for (int32_t to = 0; to < count; ++to) {
      if (from != to) table.at({from}, {to}).link = cluster.link({from}, {to});
    }
  }
  return table;
}

// The hub listens where a coordinator would: at coordinator.listen.
Result<ProcessWireSettings> hub_settings(const Job& job) {
  ProcessWireSettings settings;
  settings.choice = wire_choice(job.network.wire);
  if (job.network.tls) {
    const auto tls = read_tls(job.coordinator.tls);
    if (!tls.ok()) return tls.error();
    settings.tls = tls.value();
  }
  const std::string& listen = job.coordinator.listen;
  const size_t colon = listen.rfind(':');
  const char* const end = listen.data() + listen.size();
  const auto read = colon == std::string::npos
                        ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                        : std::from_chars(listen.data() + colon + 1, end, settings.listen_port);
  if (read.ec != std::errc{} || read.ptr != end) {
    return invalid(cat("coordinator.listen is '", listen, "': expected host:port"));
  }
  settings.listen_host = listen.substr(0, colon);
  return settings;
}

// A ring for each place that has several workers, then one ring of all workers.
std::vector<std::vector<WorkerId>> rings_of(const Cluster& cluster) {
  std::vector<std::vector<WorkerId>> rings(cluster.between.size() + 1);
  for (size_t w = 0; w < cluster.workers.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    rings[static_cast<size_t>(cluster.place[w])].push_back(worker);
  }
  for (size_t p = 0; p + 1 < rings.size(); ++p) {
    rings.back().insert(rings.back().end(), rings[p].begin(), rings[p].end());
  }
  if (rings.size() == 2) rings.pop_back();  // one place has the same ring
  rings.erase(
      std::remove_if(rings.begin(), rings.end(), [](const auto& ring) { return ring.size() < 2; }),
      rings.end());
  return rings;
}

// Connects to the workers and measures the links between them.
Result<LinkReport> measure_as_hub(const Job& job, const Address& address,
                                  std::unique_ptr<Transport>& wire, QueueMailbox& mailbox,
                                  double seconds, Watch& watch) {
  JoinSettings settings;
  settings.count = job.worker_count() + 1;
  settings.meeting = address.text;
  settings.limit = from_milliseconds(job.network.connect_seconds * 1000);
  if (Status met = meet(settings, wire, mailbox); !met.ok()) return met.error();
  const Duration end = monotonic_clock().now() + from_milliseconds(seconds * 1000);
  LinkHub hub(*wire, mailbox, job.worker_count(), end, &watch);
  watch.begin("measuring links, pair by pair");
  auto table = hub.measure_pairs();
  if (!table.ok()) return table.error();
  LinkReport report{table.value(), cluster_of_links(table.value()), {}, true};
  watch.begin("measuring rings of links");
  for (const std::vector<WorkerId>& ring : rings_of(report.cluster)) {
    const auto rate = hub.measure_ring(ring, report.table);
    if (!rate.ok()) return rate.error();
    report.rings.push_back({ring, rate.value()});
    count_item(&watch);
  }
  if (Status told = hub.finish(); !told.ok()) return told.error();
  return report;
}

Result<LinkReport> measure_links(const Job& job, double seconds, const Scratch& scratch,
                                 Watch& watch) {
  const Cluster known = cluster_of(job);
  const int32_t workers = job.worker_count();
  if (on_virtual_clock(job) || workers == 1) {
    const LinkTable table = table_of(known);
    LinkReport report{table, cluster_of_links(table), {}, workers == 1};
    report.cluster.workers = known.workers;
    return report;
  }
  watch.begin("connecting the workers");
  auto settings = launch_settings(job, scratch, false);
  if (!settings.ok()) return settings.error();
  const auto hub = hub_settings(job);
  if (!hub.ok()) return hub.error();
  QueueMailbox mailbox;
  const Hello hello{links_hello(workers), settings.value().token, kWireVersion, {0}, 0};
  auto made = make_process_wire(hub.value(), hello, mailbox);
  if (!made.ok()) return made.error();
  std::unique_ptr<Transport> wire = std::move(made).value();
  const Address address = wire->address();
  settings.value().task = {"profile-links", "--job-file", scratch.file("job.toml"),
                           "--hub",         address.text, "--worker",
                           "{worker}",      "--workers",  cat(workers)};
  for (int32_t w = 0; w < workers; ++w) settings.value().workers.push_back({w});
  Launcher launcher;
  if (Status started = launcher.start(settings.value()); !started.ok()) return started.error();
  auto report = measure_as_hub(job, address, wire, mailbox, seconds, watch);
  if (!report.ok()) {
    // If a worker has ended, its last message tells more than the error on this side.
    const auto said = last_words(launcher);
    return said ? failed(*said) : report.error();
  }
  report.value().cluster.workers = known.workers;
  const Status closed = wire->close(kEndLimit);
  if (!closed.ok()) return closed.error();
  if (Status ended = await_end(launcher, kEndLimit); !ended.ok()) return ended.error();
  return report;
}

std::string device_text(const Job& job) {
  const DeviceSettings& device = job.device;
  if (device.kind == "paced") return cat("a paced device, ", device.clock, " clock");
  if (device.kind != "cpu") return cat(device.kind, ", ", device.precision);
  return cat(device.kind, ", ", device.precision, ", ", device.threads,
             device.threads == 1 ? " thread" : " threads");
}

Result<ProfileReport> profiled(const ProfileOptions& options, Watch& watch) {
  const auto job = read_job(options);
  if (!job.ok()) return job.error();
  const std::string model_file = (fs::path(options.out) / "model.json").string();
  const std::string cluster_file = (fs::path(options.out) / "cluster.json").string();
  // Opened before the measurements, so that a folder that takes no files is known at once. Both
  // files get their names together: those of two profiles would not belong together.
  OutputFiles files;
  if (Status made = files.make_folder(options.out); !made.ok()) return made.error();
  if (!options.links_only) {
    if (Status opened = files.open(model_file); !opened.ok()) return opened.error();
  }
  if (!options.layers_only) {
    if (Status opened = files.open(cluster_file); !opened.ok()) return opened.error();
  }
  const auto scratch = Scratch::make();
  if (!scratch.ok()) return scratch.error();
  if (Status written = write_file(scratch.value()->file("job.toml"), to_toml(job.value()));
      !written.ok()) {
    return written.error();
  }
  ProfileReport report;
  report.device = device_text(job.value());
  if (!options.links_only) {
    auto model = measure_model(job.value(), options.seconds, *scratch.value(), watch);
    if (!model.ok()) return model.error();
    report.model = std::move(model).value();
    const Status written = files.write(model_file, to_json(*report.model));
    if (!written.ok()) return written.error();
    report.model_file = model_file;
  }
  if (!options.layers_only) {
    auto links = measure_links(job.value(), options.seconds, *scratch.value(), watch);
    if (!links.ok()) return links.error();
    report.links = std::move(links).value();
    const Status written = files.write(cluster_file, to_json(report.links->cluster));
    if (!written.ok()) return written.error();
    report.cluster_file = cluster_file;
  }
  if (Status named = files.finish(); !named.ok()) return named.error();
  return report;
}

}  // namespace

int run_profile(const ProfileOptions& options, std::ostream& out, std::ostream& errors) {
  if (options.job_file.empty()) {
    errors << "tenuto profile: the name of the job file is empty: give a job file in TOML (see "
              "examples/)\n";
    return 2;
  }
  claim_signals();
  Watch watch;
  std::optional<WaitingLine> waiting;
  waiting.emplace(&errors == &std::cerr ? stderr : nullptr, watch, std::nullopt);
  const auto report = profiled(options, watch);
  waiting.reset();  // ends the waiting line before other output
  if (!report.ok()) {
    errors << "tenuto profile: " << told(report.error().message) << "\n";
    const bool bad_job =
        report.error().code == Code::Invalid && report.error().reach == Reach::Call;
    return bad_job ? 2 : 1;  // 1: a measurement failed, or a file cannot be written
  }
  out << (options.json ? profile_json(report.value()) : profile_text(report.value()));
  return 0;
}

void add_profile_command(CLI::App& app, Chosen chosen) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = app.add_subcommand(
      "profile", "Measures a job's layers and links, on its own device and workers");
  command->allow_extras();
  command->footer(
      "Writes model.json, the times and bytes of each layer, and cluster.json, the links between "
      "the workers: what `tenuto plan` needs to know.\n"
      "Settings of the job file are replaced by --section.key=value.\n"
      "Example: tenuto profile examples/quickstart.toml --out measured\n"
      "docs/planning.md goes from a job to a plan.");
  path_flag(*command, "job", options->job_file, "job file (TOML)")->required();
  path_flag(*command, "--out", options->out, "folder for model.json and cluster.json (.)");
  number_flag(*command, "--seconds", options->seconds, NumberRange{0.1, 1e6},
              "time limit of the layers, and that of the links; figures that are certain earlier "
              "end it (20)");
  auto* layers = command->add_flag("--layers-only", options->layers_only, "write model.json alone");
  command->add_flag("--links-only", options->links_only, "write cluster.json alone")
      ->excludes(layers);
  command->add_flag("--json", options->json, "one JSON object on stdout");
  command->callback([options, command, chosen = std::move(chosen)] {
    chosen([options, command] {
      auto overrides = overrides_in(command->remaining());
      if (!overrides.ok()) {
        std::cerr << "tenuto profile: " << told(overrides.error().message) << "\n";
        return 2;
      }
      options->overrides = std::move(overrides).value();
      return run_profile(*options);
    });
  });
}

}  // namespace tenuto
