// tenuto-worker: one worker of a run, or the text that its model writes. Started by `tenuto`.
#include <linux/close_range.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "app/flags.h"
#include "app/profile_worker.h"
#include "app/real_device.h"
#include "base/last_words.h"
#include "base/standard_output.h"
#include "worker/hog.h"
#include "worker/parent.h"
#include "worker/worker_run.h"

namespace {

// The pause before a worker that was left out registers again.
constexpr std::chrono::seconds kPause{1};

int say(const std::string& sentence, int exit_code) {
  if (!sentence.empty()) std::fprintf(stderr, "tenuto: %s\n", sentence.c_str());
  return exit_code;
}

// Becomes a new process of the same worker, which keeps nothing of the old one. Returns only when
// that fails.
void come_forward_again(const tenuto::WorkerSettings& worker) {
  const long now = std::time(nullptr);
  std::vector<std::string> words = {
      "tenuto-worker", "run",
      "--coordinator", worker.coordinator,
      "--job",         worker.job,
      "--worker",      std::to_string(worker.self.value),
      "--incarnation", std::to_string(std::max<long>(now, worker.incarnation + 1L))};
  if (!worker.tls.empty()) words.insert(words.end(), {"--tls", worker.tls});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  setenv("TENUTO_TOKEN", worker.token.c_str(), 1);
  std::this_thread::sleep_for(kPause);
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execv("/proc/self/exe", pointers.data());
}

int run_worker(const tenuto::WorkerSettings& worker, int parent) {
  const tenuto::WorkerEnd end = tenuto::run_worker(worker, tenuto::real_device());
  const int exit_code = say(end.sentence, end.exit_code);
  // The coordinator has the launcher start its own workers again.
  if (end.left_out && parent == 0) {
    std::fprintf(
        stderr,
        "tenuto: worker %d was left out of the run; it starts again as a new process to join it\n",
        worker.self.value);
    come_forward_again(worker);
  }
  return exit_code;
}

// The exit code of a task that is done, or has said why not.
int end_of(const tenuto::Status& done) { return done.ok() ? 0 : say(done.error().message, 1); }

// Adds the task of a process that takes resources of its host.
const CLI::App* add_hog(CLI::App& app, tenuto::HogSettings& hog, int& parent) {
  CLI::App* take = app.add_subcommand("hog", "take resources away from the workers of this host");
  take->add_option("--threads", hog.threads, "that compute; 0 = send bytes to itself instead");
  take->add_option("--device", hog.device, "network device with the address to send to");
  take->add_option("--megabytes-per-second", hog.megabytes_per_second, "0 = as much as it can");
  take->add_option("--for-ms", hog.for_ms, "how long; 0 = until it is ended");
  take->add_option("--like", hog.like, "process on whose processors to compute; 0 = on all");
  take->add_option("--parent", parent, "end when this process ends; 0 = none");
  return take;
}

int run_program(int count, char** arguments) {
  CLI::App app("One worker of a Tenuto run; started by tenuto.", "tenuto-worker");
  app.require_subcommand(0, 1);
  tenuto::WorkerSettings worker;
  int parent = 0;
  CLI::App* run = app.add_subcommand("run", "take part in a run (token in TENUTO_TOKEN)");
  run->add_option("--coordinator", worker.coordinator, "host:port")->required();
  run->add_option("--job", worker.job, "name of the job")->required();
  run->add_option("--worker", worker.self.value, "number of this worker, from 0")->required();
  run->add_option("--incarnation", worker.incarnation,
                  "number of this process, higher than that of earlier ones");
  run->add_option("--tls", worker.tls, "folder with ca.pem, cert.pem and key.pem");
  run->add_option("--parent", parent, "end when this process ends; 0 = none");
  tenuto::SampleRequest request;
  CLI::App* sample = app.add_subcommand("sample", "print text from a run's model");
  sample->add_option("run", request.run, "folder of the run")->required();
  sample->add_option("--prompt", request.sampling.prompt, "text to continue");
  sample->add_option("--bytes", request.sampling.bytes, "how many to print");
  sample->add_option("--temperature", request.sampling.temperature, "0 = always the likeliest");
  sample->add_option("--seed", request.sampling.seed, "of the random choices");
  sample->add_option("--step", request.step, "of the checkpoint; -1 = the newest");
  tenuto::LayersTask layers;
  CLI::App* measure = app.add_subcommand("profile-layers", "measure a job's model");
  measure->add_option("--job-file", layers.job_file, "the job")->required();
  measure->add_option("--out", layers.out, "the model file to write")->required();
  measure->add_option("--seconds", layers.seconds, "how long to measure");
  measure->add_option("--parent", parent, "end when this process ends; 0 = none");
  tenuto::LinksTask links;
  CLI::App* probe =
      app.add_subcommand("profile-links", "measure links with others (token in TENUTO_TOKEN)");
  probe->add_option("--job-file", links.job_file, "the job")->required();
  probe->add_option("--hub", links.hub, "host:port of the process that says what to do")
      ->required();
  probe->add_option("--worker", links.worker, "number of this worker, from 0")->required();
  probe->add_option("--workers", links.workers, "how many there are")->required();
  probe->add_option("--parent", parent, "end when this process ends; 0 = none");
  tenuto::HogSettings hog;
  const CLI::App* take = add_hog(app, hog, parent);
  bool describe = false;
  app.add_flag("--describe", describe, "print versions and devices");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {  // thrown by the library for errors and for --help
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "tenuto-worker: %s\n", tenuto::sentence_of(app, error).c_str());
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  if (describe || app.get_subcommands().empty()) {
    std::printf("%s\n", tenuto::device_description().c_str());
    return 0;
  }
  if (sample->parsed()) {
    const tenuto::Status printed = tenuto::print_sample(request);
    const int exit_code = printed.ok() ? 0 : say(printed.error().message, 2);
    if (exit_code == 0) std::printf("\n");
    return exit_code;
  }
  if (!tenuto::tie_to_parent(parent)) return 1;
  if (take->parsed()) return end_of(tenuto::run_hog(hog));
  const char* token = std::getenv("TENUTO_TOKEN");
  worker.token = links.token = token == nullptr ? "" : token;
  unsetenv("TENUTO_TOKEN");
  if (measure->parsed()) return end_of(tenuto::measure_layers_of(layers));
  if (probe->parsed()) return end_of(tenuto::measure_links_with(links));
  return run_worker(worker, parent);
}

}  // namespace

int main(int count, char** arguments) {
  tenuto::end_with_last_words("tenuto-worker");
  tenuto::hold_standard_streams();
  return tenuto::exit_code_with_output(run_program(count, arguments));
}
