#include "seeded/whole_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "ir/text.h"
#include "run/coordinate.h"
#include "runtime/test_cluster.h"
#include "seeded/keeping_wire.h"
#include "seeded/memory_control.h"
#include "transport/memory.h"
#include "worker/worker_run.h"
#include "world/job_model.h"
#include "world/load.h"

namespace tenuto {
namespace {

// Thrown through a coordinator to end it at once.
struct Fallen {};

// A worker's version and weights at the end.
struct Held {
  int64_t version = -1;
  std::vector<float> weights;
};

// The run, with all that its threads share.
class WholeRun : public MemoryControl {
 public:
  explicit WholeRun(const Scenario& scenario);
  std::string play(const std::string& folder);

  void enter(MemoryClient& client) override;
  void leave(MemoryClient& client) override;
  void say(const Report& report) override;
  void open(MemoryServer& server) override;
  void close() override;
  std::vector<std::variant<Report, StreamEnded>> take() override;
  void tell(const Instruction& instruction, const std::string& plan) override;

  // What device and wire of a worker do here.
  WorkerWire make_wire(const Hello& hello, Mailbox& mailbox);
  WorkerCompute make_device(const Plan& plan, const std::vector<StageId>& stages, Mailbox& mailbox);
  bool lives(WorkerId worker) {
    const std::lock_guard lock(mutex_);
    return place(worker).alive;
  }
  void count(WorkerId worker);
  void note_held(WorkerId worker, Held held);

 private:
  // One worker number.
  struct Place {
    bool alive = true;
    int32_t incarnation = 0;
    int64_t calls = 0;
    MemoryClient* client = nullptr;
    std::optional<Report> newest;
    std::thread thread;
    bool ended = false;      // its thread
    bool exit_told = false;  // to a coordinator
    Held held;
  };

  Place& place(WorkerId worker) { return places_[static_cast<size_t>(worker.value)]; }
  void start(WorkerId worker);
  void kill(WorkerId worker);
  void later(std::function<void()> what);
  void carry();
  void lead();
  bool launch();
  std::string judge();
  void hand_over(WorkerId worker);
  void inform(WorkerId worker);
  void lose_stream(WorkerId worker);
  void tell_exit(WorkerId worker);
  void repeat();

  const Scenario scenario_;
  Job job_;
  Plan plan_;
  std::shared_ptr<const std::string> job_toml_;
  std::optional<RunDirectory> directory_;
  Rules rules_;
  std::pair<Post, Post> post_{Post(-1), Post(-1)};  // first: the launcher's end
  MemoryNetwork network_;
  SentBefore sent_;

  std::recursive_mutex mutex_;  // guards what follows
  std::vector<Place> places_;
  MemoryServer* server_ = nullptr;
  std::optional<Instruction> told_;
  std::shared_ptr<const Plan> told_plan_;
  std::set<WorkerId> said_;
  std::vector<StreamEnded> ended_streams_;
  int64_t tellings_ = 0;
  std::optional<Ending> ending_;
  Random random_;
  std::multimap<Duration, std::function<void()>> on_its_way_;
  std::condition_variable_any changed_;
  bool leaving_ = false;
};

WholeRun* run = nullptr;  // the only run of this process

thread_local WorkerId self_here;  // the worker whose thread this is

// A device that can be set not to resume; at its end it records its version and weights.
class WatchedDevice : public ForwardingDevice {
 public:
  WatchedDevice(std::unique_ptr<PacedDevice> device, WorkerId self, bool resumes)
      : ForwardingDevice(*device), device_(std::move(device)), self_(self), resumes_(resumes) {}
  ~WatchedDevice() override { run->note_held(self_, {device_->version(), device_->weights()}); }
  bool resumes() const override { return resumes_; }
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    run->count(self_);
    return under_.start(op, inputs_at, ticket);
  }

 private:
  const std::unique_ptr<PacedDevice> device_;
  const WorkerId self_;
  const bool resumes_;
};

class WatchedTransport : public ForwardingTransport {
 public:
  WatchedTransport(std::unique_ptr<Transport> under, WorkerId self)
      : ForwardingTransport(std::move(under)), self_(self) {}
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    run->count(self_);
    return under_->send(to, tag, bytes, stamp, ticket);
  }
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    run->count(self_);
    return under_->recv(from, tag, bytes, ticket);
  }

 private:
  const WorkerId self_;
};

Job job_of(const Scenario& scenario) {
  Job job = instant_job(scenario.stages, scenario.pipelines, scenario.micros);
  job.name = "whole";
  job.steps = scenario.steps;
  job.checkpoint_every = 0;
  job.validate_every = 0;
  job.validate_micros = 0;
  job.parallel.order = scenario.split_backward ? "zb-h1" : "1f1b";
  job.parallel.split_backward = scenario.split_backward;
  // Ops take some time, so that resuming a step saves time.
  job.device.forward_ms = job.device.backward_input_ms = job.device.backward_weight_ms = {0.1};
  job.device.parameter_bytes = scenario.parameter_bytes;
  job.resilience.slow_links = "off";
  return job;
}

Rules rules_of(const Job& job, const Plan& plan, const RunDirectory& directory) {
  constexpr Duration kLong = std::chrono::minutes(1);
  Rules rules;
  rules.run = "this one";
  rules.steps = job.steps;
  rules.micro_count = plan.schedule.micro_count;
  rules.pipelines = job.parallel.pipelines;
  rules.stages = plan.stages;
  rules.plan = std::make_shared<const Plan>(plan);
  rules.model = job_model(job, plan);
  rules.cluster = cluster_of(job);
  rules.treatments.slow_links = Treatment::Off;
  rules.survive = true;
  rules.directory = directory.path();
  rules.start_limit = rules.silence_limit = rules.stop_limit = rules.salvage_limit = kLong;
  // When two workers have lost each other for twice this time, the coordinator decides that their
  // link is cut. No link is cut here, but news of a death may be seconds late on a busy machine.
  rules.explain_limit = std::chrono::seconds(10);
  return rules;
}

WholeRun::WholeRun(const Scenario& scenario)
    : scenario_(scenario),
      job_(job_of(scenario)),
      plan_(plan_of(job_)),
      random_(mix(71, scenario.seed)) {
  job_toml_ = std::make_shared<const std::string>(to_toml(job_));
  places_ = std::vector<Place>(static_cast<size_t>(job_.worker_count()));
}

void WholeRun::enter(MemoryClient& client) {
  const std::lock_guard lock(mutex_);
  Place& of = place(client.self());
  of.client = &client;
  if (!of.alive) client.end();
  const WorkerId self = client.self();
  if (told_) later([this, self] { inform(self); });
}

void WholeRun::leave(MemoryClient& client) {
  const std::lock_guard lock(mutex_);
  Place& of = place(client.self());
  if (of.client == &client) of.client = nullptr;
}

void WholeRun::say(const Report& report) {
  const std::lock_guard lock(mutex_);
  Place& of = place(report.worker);
  if (!of.alive) return;
  of.newest = report;
  const WorkerId worker = report.worker;
  later([this, worker] { hand_over(worker); });
}

void WholeRun::hand_over(WorkerId worker) {
  if (server_ == nullptr || !place(worker).newest) return;
  said_.insert(worker);
  server_->wake();
}

std::vector<std::variant<Report, StreamEnded>> WholeRun::take() {
  const std::lock_guard lock(mutex_);
  std::vector<std::variant<Report, StreamEnded>> all;
  for (const WorkerId worker : std::exchange(said_, {})) all.emplace_back(*place(worker).newest);
  for (const StreamEnded& ended : std::exchange(ended_streams_, {})) all.emplace_back(ended);
  return all;
}

void WholeRun::open(MemoryServer& server) {
  const std::lock_guard lock(mutex_);
  server_ = &server;
  for (size_t w = 0; w < places_.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (places_[w].alive) later([this, worker] { hand_over(worker); });
  }
}

void WholeRun::close() {
  const std::lock_guard lock(mutex_);
  server_ = nullptr;
  said_.clear();
  ended_streams_.clear();
}

void WholeRun::tell(const Instruction& instruction, const std::string& plan) {
  const std::lock_guard lock(mutex_);
  const int64_t telling = tellings_++;
  const auto falls = [&](bool told) {
    return std::any_of(scenario_.falls.begin(), scenario_.falls.end(),
                       [&](const Fall& fall) { return fall.at == telling && fall.told == told; });
  };
  if (falls(false)) throw Fallen{};
  told_ = instruction;
  if (!plan.empty()) {
    Result<Plan> read = plan_from_json(plan, "the coordinator's plan");
    CHECK(read.ok(), "a plan that is told can be read");
    told_plan_ = std::make_shared<const Plan>(std::move(read).value());
  }
  for (size_t w = 0; w < places_.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    later([this, worker] { inform(worker); });
  }
  if (falls(true)) throw Fallen{};
}

// Hands a worker the newest instruction, whole.
void WholeRun::inform(WorkerId worker) {
  MemoryClient* client = place(worker).client;
  if (client == nullptr || !told_) return;
  Told told{*told_, told_plan_, nullptr, job_toml_};
  if (told_->rest) {
    RestOfStep own = *told_->rest;
    own.parts = {told_->rest->parts[static_cast<size_t>(worker.value)]};
    told.rest = std::make_shared<const RestOfStep>(std::move(own));
  }
  client->hear(std::move(told));
}

WorkerWire WholeRun::make_wire(const Hello& hello, Mailbox& mailbox) {
  WorkerWire wire;
  wire.transport = make_memory_transport(network_, hello, mailbox, monotonic_clock());
  wire.transport =
      std::make_unique<KeepingTransport>(std::move(wire.transport), hello, sent_, mailbox);
  wire.transport = std::make_unique<WatchedTransport>(std::move(wire.transport), hello.self);
  return wire;
}

WorkerCompute WholeRun::make_device(const Plan& plan, const std::vector<StageId>& stages,
                                    Mailbox& mailbox) {
  WorkerCompute made;
  auto device = make_paced(job_, plan, stages, monotonic_clock(), mailbox);
  made.paced = device.get();
  made.compute = std::make_unique<WatchedDevice>(std::move(device), self_here, scenario_.resumes);
  return made;
}

// Counts a call of the worker to device or wire, and kills it if the scenario says so.
void WholeRun::count(WorkerId worker) {
  const std::lock_guard lock(mutex_);
  const int64_t call = place(worker).calls++;
  for (const Blow& blow : scenario_.blows) {
    if (blow.worker != worker || blow.at != call) continue;
    if (blow.wrongly) {
      lose_stream(worker);
    } else {
      kill(worker);
    }
  }
}

void WholeRun::note_held(WorkerId worker, Held held) {
  const std::lock_guard lock(mutex_);
  place(worker).held = std::move(held);
}

void WholeRun::lose_stream(WorkerId worker) {
  const int32_t incarnation = place(worker).incarnation;
  later([this, worker, incarnation] {
    if (server_ == nullptr) return;
    ended_streams_.push_back({worker, incarnation});
    server_->wake();
  });
}

// As SIGKILL does: the worker sends nothing more, and the launcher notices its end.
void WholeRun::kill(WorkerId worker) {
  Place& of = place(worker);
  if (!of.alive) return;
  of.alive = false;
  of.newest.reset();
  said_.erase(worker);
  if (of.client != nullptr) of.client->end();
  network_.lose(worker);
  lose_stream(worker);
  later([this, worker] { tell_exit(worker); });
}

void WholeRun::tell_exit(WorkerId worker) {
  if (place(worker).alive) return;
  place(worker).exit_told = true;
  post_.first.send(to_notice({worker, true, SIGKILL, ""}), false);
}

void WholeRun::later(std::function<void()> what) {
  const Duration way{scenario_.way.count() == 0 ? 0 : random_.below(scenario_.way.count())};
  on_its_way_.emplace(monotonic_clock().now() + way, std::move(what));
  changed_.notify_one();
}

// Delivers control messages when their delay is over.
void WholeRun::carry() {
  std::unique_lock lock(mutex_);
  while (true) {
    const Duration now = monotonic_clock().now();
    if (on_its_way_.empty()) {
      changed_.wait(lock);
    } else if (on_its_way_.begin()->first > now) {
      changed_.wait_for(lock, on_its_way_.begin()->first - now);
    } else {
      const auto next = on_its_way_.extract(on_its_way_.begin());
      next.mapped()();
    }
  }
}

void WholeRun::start(WorkerId worker) {
  Place& of = place(worker);
  of.alive = true;
  of.ended = of.exit_told = false;
  of.newest.reset();
  const WorkerSettings settings{.coordinator = "memory:1",
                                .job = job_.name,
                                .token = "token",
                                .self = worker,
                                .incarnation = of.incarnation};
  of.thread = std::thread([this, settings] {
    self_here = settings.self;
    (void)run_worker(settings, {});
    const std::lock_guard lock(mutex_);
    place(settings.self).ended = true;
  });
}

// Runs the coordinators, one after the other.
void WholeRun::lead() {
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  for (int32_t term = 0;; ++term) {
    Result<std::pair<Post, Post>> pair = Post::make_pair();
    CHECK(pair.ok(), "a pair of sockets");
    {
      const std::lock_guard lock(mutex_);
      post_ = std::move(pair).value();
    }
    Progress progress(nowhere, job_);
    const RunInput input{.job = &job_,
                         .plan = &plan_,
                         .directory = &*directory_,
                         .rules = rules_,
                         .token = "token",
                         .progress = &progress,
                         .start = {&post_.second, "memory:1", term}};
    try {
      const Result<Ending> ending = coordinate(input);
      const std::lock_guard lock(mutex_);
      ending_ = ending.ok() ? ending.value() : Ending{1, ending.error().message};
      return;
    } catch (const Fallen&) {
    }
  }
}

// The launcher: carries out the coordinator's requests. True when the run is over.
bool WholeRun::launch() {
  const std::lock_guard lock(mutex_);
  for (const Notice& notice : post_.first.take()) {
    const WorkerId worker{notice.worker};
    if (notice.kind == Notice::Kind::Signal) later([this, worker] { kill(worker); });
    if (notice.kind == Notice::Kind::Leaving) leaving_ = true;
    if (notice.kind != Notice::Kind::Listening) continue;
    for (size_t w = 0; w < places_.size(); ++w) tell_exit({static_cast<int32_t>(w)});
  }
  bool all_ended = true;
  for (size_t w = 0; w < places_.size(); ++w) {
    Place& of = places_[w];
    if (of.ended && of.thread.joinable()) of.thread.join();
    all_ended = all_ended && of.ended;
    const bool over = told_ && told_->directive.phase == Phase::Out;
    if (!of.ended || over) continue;
    const WorkerId worker{static_cast<int32_t>(w)};
    kill(worker);  // it has left by itself
    if (!scenario_.comes_back || !of.exit_told || of.incarnation > 0) continue;
    ++of.incarnation;
    start(worker);
  }
  if (leaving_ && all_ended) post_.first.send({.kind = Notice::Kind::Alone}, false);
  return ending_.has_value();
}

// Sends the newest instruction to each worker again, in case one could not receive it before.
void WholeRun::repeat() {
  const std::lock_guard lock(mutex_);
  for (size_t w = 0; w < places_.size(); ++w) hand_over({static_cast<int32_t>(w)});
}

std::string WholeRun::play(const std::string& folder) {
  Result<RunDirectory> directory = RunDirectory::open(folder, Beginning::Fresh, Duration{});
  CHECK(directory.ok(), "a folder for the run");
  directory_.emplace(std::move(directory).value());
  rules_ = rules_of(job_, plan_, *directory_);
  told_plan_ = std::make_shared<const Plan>(plan_);
  std::thread([this] { carry(); }).detach();
  {
    const std::lock_guard lock(mutex_);
    for (size_t w = 0; w < places_.size(); ++w) start({static_cast<int32_t>(w)});
  }
  std::thread([this] { lead(); }).detach();
  for (int64_t look = 0; !launch(); ++look) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    if (look % 20 == 0) repeat();
  }
  const std::lock_guard lock(mutex_);
  return judge();
}

std::string WholeRun::judge() {
  if (ending_->exit_code != 0) return ending_->sentence;
  PlainLoop plain(job_);
  for (int64_t step = 0; step < job_.steps; ++step) plain.step();
  for (size_t s = 0; s < plan_.stages.size(); ++s) {
    bool held = false;
    for (const WorkerId holder : plan_.stages[s].holders) {
      const Place& of = place(holder);
      const bool knows = of.incarnation == 0 || (of.newest && of.newest->received >= 0);
      if (!of.alive || !knows) continue;
      held = true;
      if (of.held.version != job_.steps) {
        return cat("worker ", holder, " holds version ", of.held.version, " in the end");
      }
      if (of.held.weights != plain.weights(static_cast<int32_t>(s))) {
        return cat("worker ", holder, " holds other parameters than those of a plain loop");
      }
    }
    if (!held) return cat("nobody holds stage ", s, " in the end");
  }
  return {};
}

// The parent's end: returns what the child writes.
std::string listen(int descriptor, Duration limit, bool& over) {
  std::string said;
  const Duration end = monotonic_clock().now() + limit;
  over = false;
  while (!over) {
    const auto left = static_cast<int>(to_milliseconds(end - monotonic_clock().now()));
    pollfd waits{descriptor, POLLIN, 0};
    if (left <= 0 || poll(&waits, 1, left) <= 0) return said;
    char text[4096];
    const ssize_t count = read(descriptor, text, sizeof(text));
    over = count <= 0;
    if (count > 0) said.append(text, static_cast<size_t>(count));
  }
  return said;
}

// Returns the end of the log that the workers of a run share.
std::string last_words(const std::string& folder) {
  constexpr size_t kMost = 300;
  const Result<std::string> log = read_file(folder + "/log");
  if (!log.ok()) return log.error().message;
  const std::string& text = log.value();
  return text.substr(text.size() - std::min(text.size(), kMost));
}

}  // namespace

// Replaces protocol/client.cc, control/server.cc and worker/machine.cc.
Result<std::unique_ptr<Client>> connect_client(const ClientSettings& settings, const Report& first,
                                               Mailbox& mailbox,
                                               std::function<void(const Error&)>) {
  return std::unique_ptr<Client>(std::make_unique<MemoryClient>(*run, settings, first, mailbox));
}

Result<std::string> ask_coordinator(const std::string&, const std::string&, const std::string&,
                                    const std::string&, Duration, const Tls*) {
  return invalid("nobody is asked here");
}

Result<std::unique_ptr<Server>> start_server(const ServerSettings&, std::function<void()> wake) {
  return std::unique_ptr<Server>(std::make_unique<MemoryServer>(*run, std::move(wake)));
}

Result<WorkerWire> make_worker_wire(const Job&, const Hello& hello, Mailbox& mailbox,
                                    const RealDevice&, const WorkerHost&) {
  if (!run->lives(hello.self)) return Error{Code::Cancelled, Reach::Worker, "it has ended"};
  return run->make_wire(hello, mailbox);
}

Result<WorkerCompute> make_compute(const Job&, const Plan& plan, WorkerId,
                                   const std::vector<StageId>& stages, Mailbox& mailbox,
                                   const RealDevice&) {
  return run->make_device(plan, stages, mailbox);
}

std::string play(const Scenario& scenario, Duration limit) {
  std::string folder = (std::filesystem::temp_directory_path() / "tenuto-whole-XXXXXX").string();
  CHECK(mkdtemp(folder.data()) != nullptr, "a folder for the run");
  int ends[2];
  CHECK(pipe(ends) == 0, "a pipe");
  const pid_t child = fork();
  CHECK(child >= 0, "a process for the run");
  if (child == 0) {
    const int log = open((folder + "/log").c_str(), O_CREAT | O_WRONLY, 0600);
    dup2(log, STDERR_FILENO);
    run = new WholeRun(scenario);
    const std::string fault = run->play(folder);
    const std::string line = fault + "\n";
    const bool said_all = write(ends[1], line.data(), line.size()) > 0;
    _exit(said_all ? 0 : 1);
  }
  ::close(ends[1]);
  bool over = false;
  std::string said = listen(ends[0], limit, over);
  ::close(ends[0]);
  if (!over) ::kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (!over) {
    said = "the run comes to no end";
  } else if (said.empty()) {
    said = cat("the process of the run ended with status ", status, ": ", last_words(folder));
  } else {
    said.pop_back();
  }
  if (std::getenv("TENUTO_KEEP") == nullptr) {
    std::filesystem::remove_all(folder);
  } else {
    std::printf("%s: %s\n", folder.c_str(), said.c_str());
  }
  return said;
}

}  // namespace tenuto
