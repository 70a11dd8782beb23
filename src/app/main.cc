// tenuto: the command line.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/ask.h"
#include "app/commands.h"
#include "app/commit.h"
#include "app/config.h"
#include "app/doctor.h"
#include "app/flags.h"
#include "app/launch_script.h"
#include "app/train.h"
#include "app/worker_program.h"
#include "base/last_words.h"
#include "base/memory.h"
#include "base/sentence.h"
#include "base/standard_output.h"
#include "base/text.h"
#include "protocol/addresses.h"
#include "run/run_directory.h"
#include "run/token.h"
#include "transport/ucx/ucx.h"
#include "world/load.h"

namespace tenuto {
namespace {

constexpr int kUsage = 2;
constexpr double kMostExact = 9007199254740991;  // of a seed or a step that a flag gives
constexpr Duration kDescribeLimit = std::chrono::seconds(30);

int fail(const std::string& sentence, int exit_code) {
  std::fprintf(stderr, "tenuto: %s\n", told(sentence).c_str());
  return exit_code;
}

// Becomes another program; returns only when that fails.
int become(const Result<std::string>& program, const std::vector<std::string>& arguments) {
  if (!program.ok()) return fail(program.error().message, 1);
  const int failure = execute(program.value(), arguments);
  return fail(cat("cannot start ", program.value(), ": ", std::strerror(failure)), 1);
}

int print_config(const TrainOptions& options) {
  const Result<LoadedJob> loaded = load_effective_job(options.job_file, options.overrides);
  if (!loaded.ok()) return fail(loaded.error().message, kUsage);
  const std::string text = options.json ? config_json(loaded.value()) : config_text(loaded.value());
  std::printf("%s%s", text.c_str(), text.empty() || text.back() == '\n' ? "" : "\n");
  return 0;
}

// What train and coordinator have in common.
struct TrainCommand {
  TrainOptions options;
  bool resume = false, overwrite = false, print = false;
};

int run_train(CLI::App& command, TrainCommand& asked) {
  if (asked.options.job_file.empty()) {
    return fail("the name of the job file is empty: give a job file in TOML (see examples/)",
                kUsage);
  }
  if (command.count("--from-step") > 0 && asked.options.from_step < 0) {
    return fail(
        cat("--from-step ", asked.options.from_step,
            ": expected 0 or more; leave --from-step out to continue from the newest checkpoint"),
        kUsage);
  }
  Result<std::vector<std::string>> overrides = overrides_in(command.remaining());
  if (!overrides.ok()) return fail(overrides.error().message, kUsage);
  asked.options.overrides = std::move(overrides).value();
  if (asked.print) return print_config(asked.options);
  if (asked.resume && asked.overwrite) {
    return fail("--resume continues a run and --overwrite replaces it: give one of them", kUsage);
  }
  if (asked.options.from_step >= 0 && !asked.resume) {
    return fail("--from-step chooses the checkpoint to continue from: give --resume too", kUsage);
  }
  asked.options.beginning = asked.resume      ? Beginning::Resume
                            : asked.overwrite ? Beginning::Overwrite
                                              : Beginning::Fresh;
  return train(asked.options);
}

void add_train_options(CLI::App& command, TrainCommand& asked) {
  command.allow_extras();
  command.add_option("job", asked.options.job_file, "job file (TOML)")->required();
  command.add_flag("--resume", asked.resume, "continue from the newest checkpoint of the run");
  command.add_option("--from-step", asked.options.from_step,
                     "with --resume: continue from the checkpoint of this step");
  command.add_flag("--overwrite", asked.overwrite, "replace an earlier run of the same name");
  command.add_flag("--print-config", asked.print, "show each setting and where it came from");
  command.add_flag("--json", asked.options.json, "one JSON object on stdout");
}

void add_train_commands(CLI::App& app, const Chosen& chosen) {
  static TrainCommand train_asked, coordinator_asked;
  CLI::App* train = app.add_subcommand("train", "train a model: the main job");
  add_train_options(*train, train_asked);
  train->footer(
      "Settings of the job file are replaced by --section.key=value.\n"
      "Example: tenuto train examples/quickstart.toml --parallel.stages=4 --job.name=four\n\n" +
      key_help());
  train->callback([chosen, train] { chosen([train] { return run_train(*train, train_asked); }); });
  CLI::App* coordinator =
      app.add_subcommand("coordinator", "train with workers that are started by `tenuto worker`");
  add_train_options(*coordinator, coordinator_asked);
  coordinator_asked.options.start_workers = false;
  coordinator->add_option("--token-file", coordinator_asked.options.token_file,
                          "file with the token of the job; if the file does not exist, "
                          "the coordinator creates it with a new token");
  coordinator->add_flag("--stand-by", coordinator_asked.options.stands_by,
                        "while another coordinator leads the run, wait until it is gone, then go "
                        "on in its place; for coordinator.store = \"etcd\"");
  coordinator->footer(
      "The token of the job is taken from --token-file, else from coordinator.token, else from "
      "TENUTO_TOKEN.\n"
      "Example: tenuto coordinator job.toml --token-file token --coordinator.listen=10.0.0.1:7000 "
      "--network.device=eth0\n"
      "docs/several-hosts.md shows a job on several hosts from the beginning.");
  coordinator->callback([chosen, coordinator] {
    chosen([coordinator] { return run_train(*coordinator, coordinator_asked); });
  });
}

// Checks the addresses at which a coordinator may be: "HOST:PORT", or several of them.
Status check_addresses(const std::string& list) {
  for (const std::string& address : addresses_in(list)) {
    const size_t colon = address.rfind(':');
    const size_t digits = colon == std::string::npos ? std::string::npos : colon + 1;
    const bool has_port = digits < address.size() &&
                          address.find_first_not_of("0123456789", digits) == std::string::npos;
    if (colon != 0 && has_port) continue;
    return invalid(cat("--coordinator '", list, "': expected HOST:PORT, as the coordinator prints ",
                       "it when it starts, or several, separated by commas"));
  }
  return ok();
}

// The token that a worker shows: that of the file, or without one that of TENUTO_TOKEN.
Result<std::string> token_to_show(const std::string& file) {
  if (!file.empty()) return read_token(file);
  const std::string given = token_in_environment();
  if (const Status fits = check_token(given, "TENUTO_TOKEN"); !fits.ok()) return fits.error();
  if (!given.empty()) return given;
  return invalid(
      "a worker must show the token of its job: give --token-file FILE, a copy of the "
      "coordinator's, or set TENUTO_TOKEN");
}

// Checks the flags of `tenuto launch` with which it starts the workers of one host alone.
Status check_own_workers(const LaunchOptions& asked) {
  if (asked.coordinator.empty() != asked.own_workers.empty()) {
    return invalid(
        "--coordinator says where the coordinator of a run is, and --worker which workers are "
        "started here: give both, or none of them to start the whole run here");
  }
  if (asked.coordinator.empty()) return ok();
  if (asked.workers != 0 || asked.beginning != Beginning::Fresh || asked.from_step >= 0 ||
      asked.json || !asked.describe.empty()) {
    return invalid(
        "-n, --resume, --from-step, --overwrite, --json and --describe do not go with "
        "--coordinator: how the run begins is said to `tenuto coordinator`");
  }
  return check_addresses(asked.coordinator);
}

int run_launch(CLI::App& command, LaunchOptions& asked, bool resume, bool overwrite,
               const std::string& token_file) {
  if (resume && overwrite) {
    return fail("--resume continues a run and --overwrite replaces it: give one of them", kUsage);
  }
  if (command.count("-n") > 0 && asked.workers < 1) {
    return fail(cat("-n ", asked.workers, ": expected the number of workers, at least 1"), kUsage);
  }
  std::vector<std::string> words = command.remaining();
  const auto script = std::find_if(
      words.begin(), words.end(), [](const std::string& word) { return word.rfind("--", 0) != 0; });
  Result<std::vector<std::string>> overrides = overrides_in({words.begin(), script});
  if (!overrides.ok()) return fail(overrides.error().message, kUsage);
  asked.overrides = std::move(overrides).value();
  asked.script.assign(script, words.end());
  if (asked.script.empty()) {
    return fail(
        "which script is to be trained? Give it behind the flags: tenuto launch -n 4 "
        "train.py",
        kUsage);
  }
  asked.beginning = resume      ? Beginning::Resume
                    : overwrite ? Beginning::Overwrite
                                : Beginning::Fresh;
  if (const Status fits = check_own_workers(asked); !fits.ok()) {
    return fail(fits.error().message, kUsage);
  }
  if (!asked.coordinator.empty()) {
    Result<std::string> token = token_to_show(token_file);
    if (!token.ok()) return fail(token.error().message, kUsage);
    asked.token = std::move(token).value();
  }
  return launch_script(asked);
}

void add_launch_command(CLI::App& app, const Chosen& chosen) {
  static LaunchOptions asked;
  static bool resume = false, overwrite = false;
  static std::string token_file;
  CLI::App* command = app.add_subcommand("launch", "train the PyTorch modules of a Python script");
  command->prefix_command();  // what follows the script is the script's own
  command->add_option("-n,--workers", asked.workers,
                      "workers to start: as many as the script's job has");
  command->add_option("--python", asked.python,
                      "the Python (TENUTO_PYTHON, that of the active environment, python3)");
  command->add_flag("--resume", resume, "continue from the newest checkpoint of the run");
  command->add_option("--from-step", asked.from_step,
                      "with --resume: continue from the checkpoint of this step");
  command->add_flag("--overwrite", overwrite, "replace an earlier run of the same name");
  command->add_flag("--json", asked.json, "one JSON object on stdout");
  command->add_option("--describe", asked.describe,
                      "train nothing: write the script's job to this file, for `tenuto "
                      "coordinator`");
  command->add_option("--coordinator", asked.coordinator,
                      "host:port of the coordinator, or several, separated by commas, if it may "
                      "move: start workers alone");
  command->add_option("--worker", asked.own_workers,
                      "with --coordinator: the workers of this host, such as 0-1,4");
  command->add_option("--tls", asked.tls,
                      "with --coordinator: folder with ca.pem, cert.pem and key.pem");
  command->add_option("--token-file", token_file,
                      "with --coordinator: file with the token of the job (TENUTO_TOKEN)");
  command->footer(
      "Settings of the script's job are replaced by --section.key=value, behind these flags and in "
      "front of the script.\n"
      "Example: tenuto launch -n 4 --job.steps=20 examples/bring_your_model.py\n"
      "docs/script-on-hosts.md shows a script on three hosts.");
  command->callback([chosen, command] {
    chosen([command] { return run_launch(*command, asked, resume, overwrite, token_file); });
  });
}

// Checks what can be wrong in a worker's command line alone.
Status check_worker(const std::string& address, const std::string& job, int worker) {
  if (const Status right = check_addresses(address); !right.ok()) return right;
  if (job.empty()) return invalid("--job is empty: give the job.name of the coordinator's job");
  if (worker < 0) return invalid(cat("--worker ", worker, ": workers are numbered from 0"));
  return ok();
}

void add_worker_command(CLI::App& app, const Chosen& chosen) {
  static std::string address, job, tls, token_file;
  static int worker = 0;
  CLI::App* command = app.add_subcommand("worker", "one worker of a run on several hosts");
  command
      ->add_option("--coordinator", address,
                   "host:port of the coordinator, or several, separated by commas, if it may move")
      ->required();
  command->add_option("--job", job, "name of the job")->required();
  command->add_option("--worker", worker, "number of this worker, from 0")->required();
  command->add_option("--tls", tls,
                      "folder with ca.pem, cert.pem and key.pem, see coordinator.tls");
  command->add_option("--token-file", token_file,
                      "file with the token of the job: a copy of the coordinator's");
  command->footer(
      "The token is taken from --token-file, else from TENUTO_TOKEN. Checkpoints go to the run's "
      "folder, which all hosts must see.\n"
      "Exit codes: 0 the job is done; 75 start the worker again, it can join the run later; 1 "
      "it failed; 2 wrong usage.\n"
      "Example: tenuto worker --coordinator 10.0.0.1:7000 --job run --worker 0 --token-file "
      "token");
  command->callback([chosen] {
    chosen([] {
      if (const Status right = check_worker(address, job, worker); !right.ok()) {
        return fail(right.error().message, kUsage);
      }
      const Result<std::string> token = token_to_show(token_file);
      if (!token.ok()) return fail(token.error().message, kUsage);
      setenv("TENUTO_TOKEN", token.value().c_str(), 1);
      // A process that takes the place later needs a higher incarnation: use the time in seconds.
      std::vector<std::string> arguments = {
          "run",           "--coordinator",        address, "--job", job, "--worker", cat(worker),
          "--incarnation", cat(std::time(nullptr))};
      if (!tls.empty()) arguments.insert(arguments.end(), {"--tls", tls});
      // Which devices the job has is not known here.
      Result<std::string> program = find_torch_worker();
      if (!program.ok() && find_paced_worker().ok()) {
        fail(cat(program.error().message,
                 "; this worker was built without torch and supports paced devices only"),
             0);
        program = find_paced_worker();
      }
      return become(program, arguments);
    });
  });
}

void add_sample_command(CLI::App& app, const Chosen& chosen) {
  static std::string run, prompt = "\n";
  static int64_t bytes = 500, seed = 1, step = -1;
  static double temperature = 0.8;
  CLI::App* command = app.add_subcommand("sample", "print text from the model of a run");
  command->add_option("run", run, "folder of the run, or its name under runs/")->required();
  command->add_option("--prompt", prompt, "text to continue");
  number_flag(*command, "--bytes", bytes, whole_numbers(0, 1e9), "bytes to print (500)");
  number_flag(*command, "--temperature", temperature, {0, 1e6},
              "randomness of the choices; 0 = always the likeliest byte (0.8)");
  number_flag(*command, "--seed", seed, whole_numbers(0, kMostExact), "of the random choices (1)");
  number_flag(*command, "--step", step, whole_numbers(0, kMostExact),
              "of the checkpoint (the newest)");
  command->footer("Example: tenuto sample runs/quickstart --prompt 'The ' --bytes 300");
  command->callback([chosen] {
    chosen([] {
      const Result<std::string> folder = find_run(run);
      if (!folder.ok()) return fail(folder.error().message, kUsage);
      return become(find_torch_worker(),
                    {"sample", folder.value(), "--prompt", prompt, "--bytes", cat(bytes),
                     "--temperature", cat(temperature), "--seed", cat(seed), "--step", cat(step)});
    });
  });
}

void add_live_commands(CLI::App& app, const Chosen& chosen) {
  static std::string run, wish;
  static bool json = false;
  CLI::App* status = app.add_subcommand("status", "look at a live run");
  status->add_option("run", run, "folder of the run, or its name under runs/")->required();
  status->add_flag("--json", json, "one JSON object");
  status->footer("Example: tenuto status runs/quickstart");
  status->callback([chosen] { chosen([] { return run_status(run, json); }); });
  CLI::App* inject = app.add_subcommand("inject", "change a live run, or inject a fault into it");
  inject->add_option("run", run, "folder of the run, or its name under runs/")->required();
  inject
      ->add_option("wish", wish,
                   "resilience.slow_links=adapt, =observe or =off; resilience.slow_workers and "
                   "resilience.layers in the same way; checkpoint: save one soon; "
                   "trace=N: the next N steps are written as traces; "
                   "link=I-J:Xms: adds X ms of one-way latency to this link of a rehearsal, 0ms: "
                   "removes it; link=P.S-P.S:Xms: to the link of two workers, port=NAME:Xms: to "
                   "all links of a port or of a worker; "
                   "worker=P.S:X: this worker runs at X times its speed, 1: at full speed; "
                   "partition=P.S:Xms: no message reaches or leaves this worker for X ms; "
                   "clock-skew=P.S:Xms: its clock is X ms ahead, 0ms: removes it; "
                   "kill=P.S, stop=P.S, resume=P.S, start=P.S: does this to the worker's process; "
                   "cpu-hog=P.S:N: N threads take the processors of its host; "
                   "bandwidth-hog=P.S:XMB: a process there sends itself X MB/s, 0MB: as much as it "
                   "can; of both: :Xms at the end: for X ms, :off instead of N or X: ends it; "
                   "kill=coordinator, stop=coordinator: does it to the coordinator")
      ->required();
  inject->footer("Example: tenuto inject runs/paced link=1-2:20ms");
  inject->callback([chosen] { chosen([] { return run_inject(run, wish); }); });
}

int print_version() {
  std::printf("tenuto %s (commit %s)\n", version_text(), commit_text());
  std::printf("UCX %s\n", ucx_version().empty() ? "none" : ucx_version().c_str());
  const Result<std::string> worker = find_torch_worker();
  if (!worker.ok()) {
    std::printf("%s\n", worker.error().message.c_str());
    return 0;
  }
  const Result<std::string> devices = output_of({worker.value(), "--describe"}, kDescribeLimit);
  const std::string text = devices.ok() ? devices.value() : devices.error().message + "\n";
  std::printf("%s", text.c_str());
  return 0;
}

int run(int count, char** arguments) {
  CLI::App app(
      "Tenuto trains deep networks with pipeline and data parallelism, and continues when links or "
      "workers are slow or die.",
      "tenuto");
  app.footer(
      "Example: tenuto train examples/quickstart.toml\nHelp on a command: tenuto train "
      "--help");
  app.require_subcommand(0, 1);
  bool version = false;
  app.add_flag("--version", version, "versions of tenuto, UCX and torch");
  std::function<int()> action;
  const Chosen chosen = [&action](std::function<int()> what) { action = std::move(what); };
  add_train_commands(app, chosen);
  add_launch_command(app, chosen);
  add_profile_command(app, chosen);
  add_plan_command(app, chosen);
  add_simulate_command(app, chosen);
  add_schedule_command(app, chosen);
  add_collective_command(app, chosen);
  add_analyze_command(app, chosen);
  add_sample_command(app, chosen);
  add_live_commands(app, chosen);
  add_doctor_command(app, chosen);
  add_bench_command(app, chosen);
  add_worker_command(app, chosen);
  add_completion_command(app, chosen);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {  // thrown by the library for errors and for --help
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(sentence_of(app, error), kUsage);
  }
  if (version) return print_version();
  if (action) return action();
  std::printf("%s", app.help().c_str());
  return kUsage;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  tenuto::end_with_last_words("tenuto");
  tenuto::hold_standard_streams();
  tenuto::keep_freed_memory();
  return tenuto::exit_code_with_output(tenuto::run(count, arguments));
}
