#include "app/launch_script.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "app/config.h"
#include "app/flags.h"
#include "app/train.h"
#include "base/file.h"
#include "base/sentence.h"
#include "base/text.h"
#include "run/checkpoint.h"
#include "run/host_workers.h"
#include "run/launch.h"
#include "run/supervise.h"
#include "world/load.h"

extern char** environ;

namespace tenuto {
namespace {

namespace fs = std::filesystem;

constexpr int kUsage = 2;

int fail(const std::string& sentence, int exit_code) {
  std::fprintf(stderr, "tenuto: %s\n", told(sentence).c_str());
  return exit_code;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// The Python of the scripts: that of the flag, of TENUTO_PYTHON, of the active environment, or
// python3.
std::string python_of(const LaunchOptions& options) {
  if (!options.python.empty()) return options.python;
  if (const std::string given = variable("TENUTO_PYTHON"); !given.empty()) return given;
  for (const char* active : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string python = variable(active) + "/bin/python";
    if (!variable(active).empty() && access(python.c_str(), X_OK) == 0) return python;
  }
  return "python3";
}

// Lets scripts find the package of the build tree, or of the installed tree, that this program is
// in. That of a wheel is found without that.
void show_package() {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  if (failure) return;
  const fs::path above = self.parent_path().parent_path();
  const fs::path installed = above / "lib" / "tenuto" / "python";
  const fs::path built = above.parent_path() / "python";
  for (const fs::path& package : {installed, built}) {
    // Written by the build, so the source of the package does not have it.
    if (!fs::exists(package / "tenuto" / "_built.py", failure)) continue;
    const std::string before = variable("PYTHONPATH");
    const std::string path = package.string() + (before.empty() ? "" : ":" + before);
    setenv("PYTHONPATH", path.c_str(), 1);
    return;
  }
}

// A file that is removed at the end.
class PassingFile {
 public:
  PassingFile() {
    std::string name = (fs::temp_directory_path() / "tenuto-job-XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    if (descriptor < 0) return;
    close(descriptor);
    path_ = name;
  }
  PassingFile(const PassingFile&) = delete;
  PassingFile& operator=(const PassingFile&) = delete;
  ~PassingFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }  // empty: it could not be made

 private:
  std::string path_;
};

// Runs a program to its end with stdout closed to it. Returns its exit code, 128 + the number of
// the signal that has ended it, or minus the errno of what went wrong.
int run_quietly(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int failure = posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return -failure;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -errno;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// What a script says of its job: the job file, which may be none, what replaces its settings, and
// fit(resume=...), which is none where it is None.
struct Description {
  std::string job_file;
  std::vector<std::string> overrides;
  std::optional<bool> resume;
};

Result<Description> read_description(const std::string& path, const std::string& script) {
  const Error none = invalid(
      cat(script, " has ended before it called tenuto.Pipeline(...).fit(...): call fit in the ",
          "part of the script that every start reaches"));
  const Result<std::string> text = read_file(path);
  if (!text.ok() || text.value().empty()) return none;
  const auto json = nlohmann::json::parse(text.value(), nullptr, false);
  if (!json.is_object() || !json.contains("overrides")) return none;
  Description found;
  found.job_file = json.value("job", "");
  const auto resume = json.find("resume");
  if (resume != json.end() && resume->is_boolean()) found.resume = resume->get<bool>();
  for (const auto& each : json["overrides"]) {
    if (each.is_string()) found.overrides.push_back(each.get<std::string>());
  }
  return found;
}

// Asks the script for its job: runs it with an environment in which fit() describes the job and
// ends the process.
//
// Errors: Invalid/Call  the script fails, or never calls fit()
Result<Description> ask_script(const LaunchOptions& options, const std::string& python) {
  const std::string& script = options.script.front();
  const PassingFile answer;
  if (answer.path().empty()) {
    return invalid(cat("no file can be made in ", fs::temp_directory_path().string(), ": ",
                       std::strerror(errno)));
  }
  setenv("TENUTO_DESCRIBE", answer.path().c_str(), 1);
  setenv("TENUTO_OVERRIDES", nlohmann::json(options.overrides).dump().c_str(), 1);
  std::vector<std::string> words = {python};
  words.insert(words.end(), options.script.begin(), options.script.end());
  const int ended = run_quietly(std::move(words));
  unsetenv("TENUTO_DESCRIBE");
  if (ended < 0) return invalid(cat("cannot start ", python, ": ", std::strerror(-ended)));
  if (ended != 0) {
    return invalid(cat(script, " has ended with exit code ", ended,
                       " before it could be trained: see its message above"));
  }
  return read_description(answer.path(), script);
}

// How the run in the folder `run` begins, by the flags and by what the script says. flags_of in
// python/tenuto/_place.py has the same rule for scripts that others start.
//
// Errors: Invalid/Call  a flag says the opposite of the script
Result<Beginning> beginning_of(const LaunchOptions& options, const std::optional<bool>& resume,
                               const std::string& run) {
  if (!resume.has_value()) return options.beginning;
  const std::string& script = options.script.front();
  if (!*resume) {
    if (options.beginning != Beginning::Resume) return options.beginning;
    return invalid(cat(script, " says fit(resume=False), and --resume continues the run: leave ",
                       "one of them out"));
  }
  if (options.beginning == Beginning::Overwrite) {
    return invalid(cat(script, " says fit(resume=True), and --overwrite replaces the run: leave ",
                       "one of them out"));
  }
  const bool asked = options.beginning == Beginning::Resume || options.from_step >= 0;
  // A run that has left no checkpoint begins once more.
  return asked || !list_checkpoints(run).empty() ? Beginning::Resume : Beginning::Overwrite;
}

// The logs of the workers of a run, and how long each is.
std::map<std::string, int64_t> logs_of(const std::string& run) {
  std::map<std::string, int64_t> found;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(run, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("worker-", 0) != 0 || entry.path().extension() != ".log") continue;
    found[entry.path().string()] = static_cast<int64_t>(entry.file_size(failure));
  }
  return found;
}

// Prints the first traceback that a script has left in its log since the logs were as `before`. The
// scripts of several workers often fail alike, so one is enough.
void print_traceback(const std::string& run, const std::map<std::string, int64_t>& before) {
  constexpr size_t kMost = 8000;
  for (const auto& [path, size] : logs_of(run)) {
    const Result<std::string> text = read_file(path);
    if (!text.ok()) continue;
    const auto known = before.find(path);
    const bool longer = known != before.end() && known->second <= size;
    const size_t from = longer ? static_cast<size_t>(known->second) : 0;
    const size_t first = text.value().find("Traceback (most recent call last):", from);
    if (first == std::string::npos) continue;
    std::fprintf(stderr, "%s:\n%s", path.c_str(), text.value().substr(first, kMost).c_str());
    return;
  }
}

// Writes the job of a script as a job file, from which any host's coordinator can lead the run.
int write_description(const LaunchOptions& options, const LoadedJob& loaded) {
  Job job = job_to_run(loaded);
  job.directory = fs::absolute(job.directory).lexically_normal().string();
  if (const Status written = write_file(options.describe, to_toml(job)); !written.ok()) {
    return fail(written.error().message, 1);
  }
  std::printf("%s has the job of %s: tenuto coordinator %s leads it\n", options.describe.c_str(),
              options.script.front().c_str(), options.describe.c_str());
  return 0;
}

// The workers in a list such as "0-1,4", ascending.
//
// Errors: Invalid/Call  it is no such list, or the run has no worker of that number
Result<std::vector<WorkerId>> workers_in(const std::string& list, int32_t count) {
  const Error wrong = invalid(cat("--worker '", list, "': expected numbers and ranges such as ",
                                  "0-1,4, each number from 0 to ", count - 1));
  const auto entries = entries_of(list);
  if (!entries.ok() || entries.value().empty()) return wrong;
  std::set<int64_t> numbers;
  for (const std::string_view entry : entries.value()) {
    const size_t dash = entry.find('-');
    const std::optional<int64_t> first = whole_number_of(entry.substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string_view::npos ? first : whole_number_of(entry.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= count) return wrong;
    for (int64_t number = *first; number <= *last; ++number) numbers.insert(number);
  }
  std::vector<WorkerId> workers;
  for (const int64_t number : numbers) workers.push_back({static_cast<int32_t>(number)});
  return workers;
}

// Starts this host's workers of a run whose coordinator others start.
int launch_workers(const LaunchOptions& options, const std::string& python, const Job& job) {
  const auto workers = workers_in(options.own_workers, job.worker_count());
  if (!workers.ok()) return fail(workers.error().message, kUsage);
  LaunchSettings settings;
  settings.program = python;
  settings.prefix = job.coordinator.launch;
  settings.coordinator = options.coordinator;
  settings.job = job.name;
  settings.token = options.token;
  settings.tls = options.tls;
  settings.directory = cat(job.directory, "/", job.name);
  settings.workers = workers.value();
  settings.script = options.script;
  settings.worker_count = job.worker_count();
  // A process that takes a place later needs a higher one, also after this launcher has died.
  settings.first_incarnation = static_cast<int32_t>(std::time(nullptr));
  std::error_code failure;
  fs::create_directories(settings.directory, failure);
  if (failure) {
    return fail(cat("cannot make the folder ", settings.directory, ": ", failure.message()), 1);
  }
  claim_signals();
  const std::map<std::string, int64_t> before = logs_of(settings.directory);
  const Result<int> ended = run_host_workers(settings, job.resilience.restarts);
  if (!ended.ok()) return fail(ended.error().message, 1);
  if (ended.value() == 1) print_traceback(settings.directory, before);
  return ended.value();
}

// Trains or evaluates what the script says next. `follows`: an earlier call of it has been done.
int launch_call(const LaunchOptions& options, const std::string& python, bool follows) {
  const std::string& script = options.script.front();
  const Result<Description> said = ask_script(options, python);
  if (!said.ok()) return fail(said.error().message, 1);
  const Description& description = said.value();
  const auto job = load_effective_job(description.job_file, description.overrides);
  if (!job.ok()) return fail(job.error().message, kUsage);
  if (!options.describe.empty()) return write_description(options, job.value());
  if (!options.coordinator.empty()) return launch_workers(options, python, job.value().job);
  const int32_t workers = job.value().job.worker_count();
  if (options.workers != 0 && options.workers != workers) {
    return fail(cat("-n ", options.workers, ": the job of ", script, " has ", workers,
                    " workers (parallel.stages x parallel.pipelines): give -n ", workers,
                    ", or change the job"),
                kUsage);
  }
  const std::string run = cat(job.value().job.directory, "/", job.value().job.name);
  // What an earlier evaluation has found is in its script's hands, so its files are replaced.
  const Result<Beginning> beginning = job.value().job.evaluate.empty()
                                          ? beginning_of(options, description.resume, run)
                                          : Result<Beginning>(Beginning::Overwrite);
  if (!beginning.ok()) return fail(beginning.error().message, kUsage);
  TrainOptions train_options;
  train_options.job_file = description.job_file;
  train_options.overrides = description.overrides;
  train_options.own_overrides = options.overrides;
  train_options.beginning = beginning.value();
  train_options.from_step = options.from_step;
  train_options.json = options.json;
  train_options.follows = follows;
  train_options.script = {python};
  train_options.script.insert(train_options.script.end(), options.script.begin(),
                              options.script.end());
  const std::map<std::string, int64_t> before = logs_of(run);
  const int exit_code = train(train_options);
  if (exit_code != 0) print_traceback(run, before);
  return exit_code;
}

}  // namespace

int launch_script(const LaunchOptions& options) {
  const std::string& script = options.script.front();
  if (access(script.c_str(), R_OK) != 0) {
    return fail(cat("cannot read the script ", script, ": ", std::strerror(errno)), kUsage);
  }
  show_package();
  const std::string python = python_of(options);
  unsetenv("TENUTO_DONE");
  unsetenv("TENUTO_NEXT");
  // Others start the run of these, so they cannot start the next one here.
  const bool is_part = !options.describe.empty() || !options.coordinator.empty();
  if (is_part) return launch_call(options, python, false);
  // A script whose call is done, and that calls evaluate() next, writes what its calls have
  // returned into this file and ends. Then it is started anew, and these calls return at once.
  const PassingFile next;
  if (next.path().empty()) return launch_call(options, python, false);
  setenv("TENUTO_NEXT", next.path().c_str(), 1);
  for (bool follows = false;; follows = true) {
    const int exit_code = launch_call(options, python, follows);
    const Result<std::string> done = read_file(next.path());
    if (exit_code != 0 || !done.ok() || done.value().empty()) return exit_code;
    if (const Status cleared = write_file(next.path(), ""); !cleared.ok()) {
      return fail(cleared.error().message, 1);
    }
    setenv("TENUTO_DONE", done.value().c_str(), 1);
  }
}

}  // namespace tenuto
