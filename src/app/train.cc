#include "app/train.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "app/config.h"
#include "app/flags.h"
#include "app/make_job_plan.h"
#include "app/stand_by.h"
#include "app/worker_program.h"
#include "base/check.h"
#include "base/file.h"
#include "base/host.h"
#include "base/sentence.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"
#include "protocol/message_size.h"
#include "run/checkpoint.h"
#include "run/coordinate.h"
#include "run/coordinator_address.h"
#include "run/launch.h"
#include "run/progress.h"
#include "run/resume.h"
#include "run/served_run.h"
#include "run/supervise.h"
#include "run/token.h"
#include "sim/price.h"
#include "worker/machine.h"
#include "world/fault.h"
#include "world/job_model.h"
#include "world/load.h"
#include "world/memory_need.h"

namespace tenuto {
namespace {

// See Rules::explain_limit.
constexpr Duration kExplainLimit = std::chrono::milliseconds(500);
// How long the step under way may last after a request to stop.
constexpr Duration kStopLimit = std::chrono::seconds(10);
// How long a worker may take to answer after its step has been abandoned.
constexpr Duration kSalvageLimit = std::chrono::seconds(10);

// How long the kernel may take to close the files of a launcher that has just died.
constexpr Duration kLockLimit = std::chrono::seconds(10);

// How long the workers of a script may take to come, in seconds, unless the user says it: each
// imports torch first, which takes minutes from a slow disk.
constexpr double kScriptConnectSeconds = 120;

Duration from_seconds(double seconds) { return from_milliseconds(seconds * 1000); }

int fail(const Error& error, int exit_code) {
  std::fprintf(stderr, "tenuto: %s\n", told(error.message).c_str());
  return exit_code;
}

// The token of the token file, or of the job. Without either: a random one, if the launcher starts
// the workers; else that of the environment, because other workers must have it already.
Result<std::string> given_token(const TrainOptions& options, const Job& job) {
  if (!options.token_file.empty()) {
    return options.goes_on ? read_token(options.token_file)
                           : read_or_make_token(options.token_file);
  }
  if (!job.coordinator.token.empty()) return job.coordinator.token;
  if (options.start_workers) return random_token();
  const std::string given = token_in_environment();
  if (!given.empty()) return given;
  return Error{
      Code::Invalid, Reach::Job,
      "workers on other hosts must show a token, and this coordinator has none: give "
      "--token-file FILE (the coordinator creates it if it does not exist; copy it to each "
      "host), or set TENUTO_TOKEN or coordinator.token"};
}

// The token of the run. `orphan`: a run that goes on, whose workers have one already.
Result<std::string> token_of(const TrainOptions& options, const Job& job,
                             const std::optional<CoordinatorAddress>& orphan) {
  Result<std::string> token = given_token(options, job);
  if (!token.ok()) return token;
  const Status fits = check_token(token.value(), "coordinator.token or TENUTO_TOKEN");
  if (!fits.ok()) return fits.error();
  if (!orphan || token.value() == orphan->token) return token;
  return Error{Code::Invalid, Reach::Job,
               cat(job.directory, "/", job.name,
                   " holds a run that has not ended, and its workers use another token than the "
                   "given one: give the token with which the run began")};
}

// "ports" or "half-duplex links", if the cluster file of the job has them among its workers.
std::optional<std::string> shared_rates(const Job& job) {
  if (job.network.devices == nullptr) return std::nullopt;
  const Cluster cluster = cluster_of(job);
  if (!cluster.ports.empty()) return "ports";
  if (cluster.half_duplex) return "half-duplex links";
  return std::nullopt;
}

// A worker imitates the links of its own messages, and does not know when messages of others pass
// the same port.
Status check_shared_rates(const Job& job) {
  const std::optional<std::string> what = shared_rates(job);
  if (!what) return ok();
  if (on_virtual_clock(job)) {
    return invalid(
        cat("network.cluster: ", job.network.cluster, " has ", *what,
            ", whose rate the messages of several workers share, and on the virtual clock a worker "
            "knows its own messages only: price the job with tenuto simulate, or train with "
            "device.clock = \"real\""));
  }
  const std::string note =
      cat(job.network.cluster, " has ", *what, ": in this run each message takes as long as if it ",
          "had them for itself, so steps may be shorter than their price");
  std::fprintf(stderr, "tenuto train: %s\n", told(note).c_str());
  return ok();
}

// Hogs are started by the launcher that has started the workers.
Status check_without_hogs(const Job& job) {
  for (size_t i = 0; i < job.faults.size(); ++i) {
    if (!is_hog(job.faults[i])) continue;
    return invalid(
        cat("fault[", i, "].kind \"", job.faults[i].kind,
            "\": a hog is started only on the host of `tenuto train`, and the workers of "
            "`tenuto coordinator` are on hosts of their own: leave the fault out, and "
            "start a program there that takes their resources"));
  }
  return ok();
}

// Refuses valid jobs that `tenuto train` cannot run here.
Status check_runnable(const TrainOptions& options, const Job& job) {
  if (Status right = check_between_processes(job.network, "tenuto train"); !right.ok())
    return right;
  if (const Status shared = check_shared_rates(job); !shared.ok()) return shared;
  // Where others start the scripts, the first of them starts `tenuto coordinator`, and says what
  // its model is.
  const bool told_by_script = !options.start_workers && !job.model.digest.empty();
  const bool has_script = !options.script.empty() || told_by_script;
  if (has_script != (job.model.kind == "module")) {
    return invalid(cat("model.kind = \"", job.model.kind,
                       "\": PyTorch modules, and they alone, are trained ",
                       "by the script that makes them: tenuto launch SCRIPT.py"));
  }
  if (!options.start_workers) return check_without_hogs(job);  // workers read the data
  if (job.device.kind == "paced") return ok();
  for (const std::string& path : job.data.paths) {
    std::error_code failure;
    if (!std::filesystem::exists(path, failure)) {
      return invalid(cat("data.paths: there is no file or folder ", path, " on host ", host_name(),
                         ": name the files to train on"));
    }
  }
  return ok();
}

// What the first line of a run says, before that of its first step.
std::string first_sentence(const Job& job) {
  if (wire_of(job) == WireChoice::Ucx) return "the workers send their messages over UCX";
  return cat("the workers send their messages over TCP",
             job.network.tls ? ", encrypted by TLS 1.3" : "");
}

// With messages that block the device, even a valid plan can deadlock: pricing it shows that.
Status check_queues(const Job& job, const Plan& plan) {
  if (job.network.send != "blocking") return ok();
  Model model;
  model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
  PriceOptions options;
  options.update = options.lower_bound = false;
  options.sending = Sending::Blocking;
  const auto timeline = price(plan, model, cluster_of(job), options);
  if (timeline.ok()) return ok();
  Error error = timeline.error();
  error.message = cat("network.send = \"blocking\" under order ", plan.order, ": ", error.message);
  return error;
}

// The coordinator sends the plan to each worker as JSON, in one message.
Status check_plan_text(const Plan& plan) {
  const size_t size = to_json(plan).size();
  if (size <= static_cast<size_t>(kMostPlanText)) return ok();
  return Error{Code::Infeasible, Reach::Job,
               cat("the plan of ", plan.schedule.lists.size(), " workers and ",
                   plan.schedule.micro_count, " micro-batches is ", size,
                   " bytes long as JSON, which is sent to the workers: expected at most ",
                   kMostPlanText, "; take fewer micro-batches")};
}

// The plan that the workers run: that of all pipelines, or with server shards that of one replica.
Result<Plan> make_workers_plan(Job job) {
  if (job.is_served()) job.parallel.pipelines = 1;
  return make_job_plan(job);
}

// The workers that hold a stage of the plan; with server shards all replicas and servers.
std::vector<WorkerId> members_of(const Job& job, const Plan& plan) {
  std::set<WorkerId> members;
  for (int32_t i = 0; job.is_served() && i < job.process_count(); ++i) members.insert(WorkerId{i});
  for (const Stage& stage : plan.stages) {
    members.insert(stage.holders.begin(), stage.holders.end());
  }
  return {members.begin(), members.end()};
}

// With server shards each worker of a replica holds one stage. Some orders have several, unless the
// job says otherwise.
Status check_stages(const Job& job, const Plan& plan) {
  const auto stages = static_cast<int64_t>(plan.stages.size());
  if (!job.is_served() || stages == job.parallel.stages) return ok();
  return Error{
      Code::Infeasible, Reach::Job,
      cat("parallel.order = \"", job.parallel.order, "\" makes ", stages, " stages for ",
          job.parallel.stages, " workers of a replica, and with server shards each worker ",
          "holds one: set parallel.chunks to 1, or take another order")};
}

Status check_plan(const TrainOptions& options, const Job& job, const Plan& plan) {
  Status right = check(plan);
  if (right.ok()) right = check_stages(job, plan);
  if (right.ok()) right = check_queues(job, plan);
  if (right.ok()) right = check_plan_text(plan);
  const bool here = options.start_workers && job.coordinator.launch.empty();
  return right.ok() && here ? check_memory_of(job, plan, members_of(job, plan)) : right;
}

// What a run starts from: nothing, or a checkpoint.
struct Start {
  int64_t first_step = 0;
  int64_t saved = -1;
  std::vector<std::string> shards;
  int64_t mass = 0;  // server shards: of the checkpoint
};

Result<Start> start_from(const Job& job, const Plan& plan, const Manifest& manifest,
                         const std::string& path) {
  Status same = check_resumable(job, manifest, path);
  if (same.ok()) same = check_same_layers(plan, manifest, path);
  if (!same.ok()) return same.error();
  Start start{manifest.step, manifest.step, {}};
  if (manifest.servers) start.mass = manifest.servers->mass;
  for (const SavedShard& shard : manifest.files) {
    start.shards.push_back(cat(path, "/", shard.file));
  }
  return start;
}

Result<Start> start_of_evaluation(const Job& job, const Plan& plan, const std::string& run) {
  const Result<Evaluated> found = find_evaluated(job, run);
  if (!found.ok()) return found.error();
  return start_from(job, plan, found.value().manifest, found.value().path);
}

Result<Start> find_start(const TrainOptions& options, const Job& job, const Plan& plan,
                         const std::string& run) {
  if (!job.evaluate.empty()) return start_of_evaluation(job, plan, run);
  if (options.beginning != Beginning::Resume) return Start{};
  if (options.goes_on && list_checkpoints(run).empty()) return Start{};
  const Result<Manifest> manifest = find_checkpoint(run, options.from_step, "--from-step");
  if (!manifest.ok()) return manifest.error();
  const std::string path = checkpoint_path(run, manifest.value().step);
  return start_from(job, plan, manifest.value(), path);
}

Rules make_rules(const TrainOptions& options, const Job& job, const Plan& plan, const Start& start,
                 const RunDirectory& run) {
  Rules rules;
  rules.run = random_token();
  rules.epoch = run.next_epoch();
  rules.first_step = start.first_step;
  rules.evaluates = !job.evaluate.empty();
  rules.steps = rules.evaluates ? start.first_step : job.steps;
  rules.checkpoint_every = job.checkpoint_every;
  rules.saves_later = job.checkpoint_asynchronous;
  rules.trace_after = job.trace_after;
  rules.saved = start.saved;
  rules.micro_count = rules.evaluates ? 0 : plan.schedule.micro_count;
  rules.evaluation_count = job.validate_micros;
  rules.pipelines = job.parallel.pipelines;
  rules.places = job.seats().listed();
  rules.plan = std::make_shared<const Plan>(plan);
  // Blocking messages leave in list order, and plans for fewer workers do not take that into
  // account.
  rules.survive = job.resilience.dead_workers == "continue" && job.network.send != "blocking";
  auto whole = rules.survive ? make_plan_of_all(job, plan) : std::nullopt;
  if (whole) rules.whole = std::make_shared<const Plan>(std::move(*whole));
  rules.stages = whole ? rules.whole->stages : plan.stages;
  rules.model = job_model(job, plan);
  rules.cluster = cluster_of(job);
  rules.treatments = treatments_of(job.resilience);
  rules.restarts = job.resilience.restarts;
  // Copies hold final versions only, so a run with copies keeps the barrier.
  rules.chooses_update = job.parallel.optimizer == "auto" && job.resilience.copies == 0;
  rules.resume_shards = start.shards;
  rules.directory = run.path();
  rules.start_limit = from_seconds(job.network.connect_seconds);
  rules.silence_limit = from_seconds(job.network.silence_seconds);
  rules.lost_limit = from_seconds(job.resilience.silence_seconds);
  rules.explain_limit = kExplainLimit;
  rules.stop_limit = kStopLimit;
  rules.salvage_limit = kSalvageLimit;
  const bool one_host = options.start_workers && job.coordinator.launch.empty();
  rules.cut_off_limit = one_host ? Duration{} : kReturnLimit;
  return rules;
}

// The one object of --json.
void print_json(const RunDirectory& run, const Ending& ending, const Figures& figures,
                std::optional<int64_t> checkpoint) {
  nlohmann::ordered_json json = {{"run", run.path()}, {"exit_code", ending.exit_code}};
  const auto put = [&](const char* key, const auto& value) {
    json[key] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  json["steps"] = figures.steps_done;
  put("first_loss", figures.first_loss);
  put("last_loss", figures.last_loss);
  put("validation_loss", figures.validation_loss);
  put("validation_accuracy", figures.validation_accuracy);
  put("validation_step",
      figures.validation_loss ? std::optional(figures.validation_step) : std::nullopt);
  json["tokens_per_second"] = figures.tokens_per_second();
  put("checkpoint_step", checkpoint);
  json["checkpoint"] = checkpoint ? nlohmann::ordered_json(checkpoint_path(run.path(), *checkpoint))
                                  : nlohmann::ordered_json(nullptr);
  if (!ending.sentence.empty()) json["sentence"] = ending.sentence;
  std::printf("%s\n",
              json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

void print_figures(const Figures& figures, const Job& job) {
  if (figures.first_loss) {
    std::printf("first loss       %s nats\n", fixed(*figures.first_loss, 4).c_str());
    std::printf("last loss        %s nats\n", fixed(*figures.last_loss, 4).c_str());
  }
  if (figures.validation_loss) {
    std::printf("validation loss  %s nats (step %s)\n", fixed(*figures.validation_loss, 4).c_str(),
                cat(figures.validation_step).c_str());
    if (figures.validation_accuracy) {
      std::printf("accuracy         %s %%\n", fixed(100 * *figures.validation_accuracy, 1).c_str());
    }
  }
  if (figures.duration.count() > 0) {
    std::printf("tokens/s         %s\n", fixed(figures.tokens_per_second(), 0).c_str());
  }
  if (on_virtual_clock(job) && !figures.lag_valid) {
    std::printf(
        "the paced devices lagged behind their clock by more than a fifth of an op: this "
        "machine is too busy, and the times of this run are invalid\n");
  }
}

// The command that trains this job once more: the same flags, each as a shell takes it, and
// `flags`, each with a space before it.
std::string again(const TrainOptions& options, const std::string& flags) {
  const bool script = !options.script.empty();
  std::string command = cat("tenuto launch", flags);
  if (!script) {
    command = cat("tenuto ", options.start_workers ? "train " : "coordinator ", options.job_file);
  }
  if (!options.token_file.empty()) command += cat(" --token-file ", options.token_file);
  for (const std::string& entry : script ? options.own_overrides : options.overrides) {
    const bool plain = entry.find_first_of(" \t\"'[]{}()*?$&;<>|\\`!#~") == std::string::npos;
    command += plain ? cat(" --", entry) : cat(" '--", entry, "'");
  }
  return command + (script ? cat(" ", options.script[1], " ...") : flags);
}

// What to do about an ending that is not good. `start`: what the run was to begin from.
std::string advice_of(const TrainOptions& options, const RunDirectory& run, const Ending& ending,
                      const Start& start) {
  const std::vector<int64_t> steps = run.checkpoints();
  const bool may_succeed = ending.exit_code == 75;
  if (run.spares_earlier_run()) {
    return cat("; the earlier run in ", run.path(), " has not been replaced",
               may_succeed ? cat("; try again with: ", again(options, " --overwrite")) : "");
  }
  if (steps.empty()) {
    const char* flag = run.holds_run() ? " --overwrite" : "";
    return cat("; there is no checkpoint yet",
               may_succeed ? cat("; begin again with: ", again(options, flag)) : "");
  }
  const bool refused =
      start.saved >= 0 && !run.has_begun() &&
      ending.sentence.find(checkpoint_path(run.path(), start.saved)) != std::string::npos;
  if (refused) return cat("; ", advise_older(run.path(), start.saved, "--from-step"));
  const int64_t newest = run.has_begun() || start.saved < 0 ? steps.back() : start.saved;
  const std::string chosen = newest == steps.back() ? "" : cat(" --from-step ", newest);
  return cat("; the checkpoint of step ", newest, " is in ", checkpoint_path(run.path(), newest),
             "; continue with: ", again(options, cat(" --resume", chosen)));
}

// Says how the run ended, and what to do next.
void say_ending(const TrainOptions& options, const Job& job, const RunDirectory& run,
                const Ending& ending, const Figures& figures, const Start& start) {
  const std::vector<int64_t> steps = run.checkpoints();
  const std::optional<int64_t> checkpoint =
      steps.empty() ? std::nullopt : std::optional(steps.back());
  if (ending.exit_code != 0) {
    const std::string next = advice_of(options, run, ending, start);
    std::fprintf(stderr, "tenuto: %s%s\n", ending.sentence.c_str(), next.c_str());
  } else if (!ending.sentence.empty()) {
    std::fprintf(stderr, "tenuto: %s\n", ending.sentence.c_str());
  }
  if (options.json && options.follows) return;
  if (options.json) return print_json(run, ending, figures, checkpoint);
  print_figures(figures, job);
  if (ending.exit_code == 0 && checkpoint) {
    std::printf("checkpoint       %s\n", checkpoint_path(run.path(), *checkpoint).c_str());
    const bool in_stages = job.is_served() && job.parallel.stages > 1;
    if (job.model.kind == "gpt" && job.device.kind != "paced" && !in_stages) {
      std::printf("print text from it with: tenuto sample %s\n", run.path().c_str());
    }
  }
}

int say_all_done(const TrainOptions& options, const Job& job, const RunDirectory& run,
                 const Start& start) {
  say_ending(options, job, run, {0, ""}, {}, start);
  std::fprintf(stderr,
               "tenuto: all %s steps of this run are done: ask for more with --job.steps=N\n",
               cat(job.steps).c_str());
  return 0;
}

// The address of the coordinator of a run whose launcher is gone before the run ended: the workers
// wait for a coordinator there. None: there is no such run, or it is not to go on.
std::optional<CoordinatorAddress> find_orphan(const TrainOptions& options, const Job& job,
                                              const std::string& run) {
  // Workers have died with their launcher, and server shards with their coordinator.
  if (options.start_workers || job.is_served()) return {};
  if (options.beginning == Beginning::Overwrite || options.from_step >= 0) return {};
  std::error_code failure;
  if (!has_begun_in(run) || !std::filesystem::exists(run + "/config.toml", failure)) return {};
  Result<CoordinatorAddress> where = read_coordinator_address(run);
  if (!where.ok()) return {};
  return std::move(where).value();
}

// The run goes on as it began: with the same token and settings, and at the same address, unless
// this coordinator has stood by.
Status go_on_as_before(const CoordinatorAddress& before, const std::string& run, Job& job,
                       TrainOptions& options) {
  const Result<std::string> settings = read_file(run + "/config.toml");
  if (!settings.ok()) return settings.error();
  if (!is_run_of(settings.value(), job, options.stands_by)) {
    return invalid(cat(run, " holds a run that has not ended, and its workers may wait for a ",
                       "coordinator; this job's settings differ from its config.toml: continue ",
                       "with the same settings, or choose another name with --job.name=NAME"));
  }
  if (job.coordinator.listen.ends_with(":0")) job.coordinator.listen = before.address;
  const bool given = !options.token_file.empty() || !token_in_environment().empty();
  if (!given) job.coordinator.token = before.token;
  options.goes_on = true;
  return ok();
}

// The program of the workers; empty if someone else starts them.
Result<std::string> find_program(const TrainOptions& options, const Job& job) {
  if (!options.start_workers) return std::string();
  if (!options.script.empty()) return options.script.front();
  return job.device.kind == "paced" ? find_paced_worker() : find_torch_worker();
}

// What follows the Python of `tenuto launch` in the command of a worker.
std::vector<std::string> script_of(const TrainOptions& options) {
  if (options.script.empty()) return {};
  return {options.script.begin() + 1, options.script.end()};
}

// True for a coordinator that has never led the run: it could not begin, or the store was out of
// reach, and another coordinator tries again. Then it has nothing to finish.
bool has_not_begun(const Result<Ending>& ending, const CoordinatorStart& given) {
  return !ending.ok() && (given.before == 0 || ending.error().code == Code::Disconnected);
}

// Trains; none: another coordinator that stands by was faster.
std::optional<int> train_in_turn(const TrainOptions& asked) {
  TrainOptions options = asked;
  const Result<LoadedJob> loaded = load_effective_job(options.job_file, options.overrides);
  if (!loaded.ok()) return fail(loaded.error(), exit_code_of_command(loaded.error()));
  Job job = job_to_run(loaded.value());
  const std::string folder = cat(job.directory, "/", job.name);
  const std::optional<CoordinatorAddress> orphan = find_orphan(options, job, folder);
  const Status same = orphan ? go_on_as_before(*orphan, folder, job, options) : ok();
  if (!same.ok()) return fail(same.error(), 2);
  const Status runnable = check_runnable(options, job);
  if (!runnable.ok()) return fail(runnable.error(), 2);
  const Result<Plan> plan = make_workers_plan(job);
  if (!plan.ok()) return fail(plan.error(), exit_code_of_command(plan.error()));
  const Status right = check_plan(options, job, plan.value());
  if (!right.ok()) return fail(right.error(), right.error().code == Code::Exhausted ? 1 : 3);
  const auto tls = read_tls(job.coordinator.tls);
  if (!tls.ok()) return fail(tls.error(), 2);
  const Result<std::string> token = token_of(options, job, orphan);
  if (!token.ok()) return fail(token.error(), 2);
  const Result<std::string> program = find_program(options, job);
  if (!program.ok()) return fail(program.error(), 1);
  const Result<RunDirectory> run =
      RunDirectory::open(folder, options.beginning, kLockLimit, orphan.has_value());
  if (!run.ok() && options.stands_by && is_held(folder)) return std::nullopt;
  if (!run.ok()) return fail(run.error(), 2);
  const Result<Start> start = find_start(options, job, plan.value(), run.value().path());
  if (!start.ok()) return fail(start.error(), 2);
  if (!orphan && job.evaluate.empty() && start.value().first_step >= job.steps) {
    return say_all_done(options, job, run.value(), start.value());
  }
  claim_signals();
  RunInput input{.job = &job,
                 .plan = &plan.value(),
                 .directory = &run.value(),
                 .rules = make_rules(options, job, plan.value(), start.value(), run.value()),
                 .token = token.value(),
                 .token_file = options.token_file,
                 .tls = tls.value(),
                 .takes_up = orphan.has_value(),
                 .first_mass = start.value().mass,
                 .starts_workers = options.start_workers};
  const auto coordinator = [&](const CoordinatorStart& given) {
    Progress progress(options.json ? stderr : stdout, job);
    progress.open_with(first_sentence(job));
    input.progress = &progress;
    input.start = given;
    const Result<Ending> ending = job.is_served() ? coordinate_servers(input) : coordinate(input);
    progress.finish();
    if (has_not_begun(ending, given)) return fail(ending.error(), 1);
    const Ending how = ending.ok() ? ending.value() : Ending{1, ending.error().message};
    say_ending(options, job, run.value(), how, progress.figures(), start.value());
    return how.exit_code;
  };
  // It starts faster than a program with torch. Without it, hogs take the workers' own program.
  const Result<std::string> hogs = find_paced_worker();
  const Result<Ending> ending = supervise({.job = &job,
                                           .directory = run.value().path(),
                                           .program = program.value(),
                                           .token = input.token,
                                           .workers = members_of(job, plan.value()),
                                           .hog_program = hogs.ok() ? hogs.value() : "",
                                           .script = script_of(options),
                                           .coordinate = coordinator});
  remove_coordinator_address(run.value().path());  // a coordinator that died has not removed it
  if (!ending.ok()) return fail(ending.error(), 1);
  if (ending.value().sentence.empty()) return ending.value().exit_code;
  say_ending(options, job, run.value(), ending.value(), {}, start.value());
  return ending.value().exit_code;
}

}  // namespace

Job job_to_run(const LoadedJob& loaded) {
  Job job = loaded.job;
  const auto from = loaded.origin.find("network.connect_seconds");
  const bool chosen = from != loaded.origin.end() && from->second != "default";
  if (job.model.kind == "module" && !chosen) job.network.connect_seconds = kScriptConnectSeconds;
  return job;
}

int train(const TrainOptions& options) {
  while (true) {
    if (const std::optional<int> ended = await_turn(options)) return *ended;
    if (const std::optional<int> code = train_in_turn(options)) return *code;
  }
}

}  // namespace tenuto
