#include "run/live_page.h"

#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/text.h"
#include "control/planning.h"
#include "page/event_line.h"
#include "run/plan_cache.h"
#include "run/token.h"
#include "sim/price.h"

namespace tenuto {
namespace {

constexpr Duration kTurn = std::chrono::seconds(1);
constexpr size_t kMostQuestions = 16;
constexpr size_t kMostPromises = 64;
// Plans with more ops are not priced for the page: that would take seconds of a core.
constexpr size_t kMostOps = 500'000;
// Op times have been measured after so many steps.
constexpr int64_t kMeasured = 3;
constexpr const char* kUrlFile = "/page.url";
constexpr const char* kTokenFile = "/page.token";
constexpr const char* kBeforeToken = "/?token=";

double seconds_of(Duration duration) { return to_milliseconds(duration) / 1e3; }

// The server of a run that has a page. Questions of the page have numbers below 0.
class PagedServer : public Server {
 public:
  PagedServer(std::unique_ptr<Server> server, LivePage& live)
      : server_(std::move(server)), live_(live) {}

  const std::string& address() const override { return server_->address(); }
  std::vector<std::variant<Report, StreamEnded>> take() override { return server_->take(); }
  std::vector<Question> take_questions() override {
    std::vector<Question> all = server_->take_questions();
    for (Question& question : live_.take_questions()) all.push_back(std::move(question));
    return all;
  }
  void answer(int64_t question, const std::string& text, const std::string& failure) override {
    if (LivePage::is_question(question)) return live_.answer(question, text, failure);
    server_->answer(question, text, failure);
  }
  void tell(const Instruction& instruction, const std::string& plan) override {
    server_->tell(instruction, plan);
  }
  void repeat(Duration quiet) override { server_->repeat(quiet); }

 private:
  const std::unique_ptr<Server> server_;
  LivePage& live_;
};

}  // namespace

LivePage::~LivePage() {
  ends_ = true;
  if (server_) server_->wake();
  if (thread_.joinable()) thread_.join();
}

// A coordinator that takes up the run of another one keeps its token, so that open pages and
// Prometheus go on.
Result<std::string> LivePage::take_token() const {
  const std::string file = input_.directory->path() + kTokenFile;
  if (input_.takes_up || input_.start.before != 0) return read_or_make_token(file);
  const std::string token = random_token();
  const Status written = write_file(file, token + "\n", 0600);
  if (!written.ok()) return written.error();
  return token;
}

// Where the coordinator before this one served the page; empty = there was none.
std::string LivePage::earlier_address() const {
  if (!input_.takes_up && input_.start.before == 0) return {};
  const Result<std::string> url = read_file(input_.directory->path() + kUrlFile);
  if (!url.ok()) return {};
  const size_t end = url.value().find(kBeforeToken);
  const size_t colon = url.value().rfind(':', end);
  if (end == std::string::npos || colon == std::string::npos) return {};
  const std::string& wanted = input_.job->coordinator.page;
  return wanted.substr(0, wanted.rfind(':')) + url.value().substr(colon, end - colon);
}

std::string LivePage::start(std::function<void()> bell) {
  const std::string& wanted = input_.job->coordinator.page;
  if (wanted == "off") return {};
  const auto without = [](const std::string& why) {
    return cat("this run has no page: ", why,
               "; coordinator.page takes another host:port, or \"off\"");
  };
  const Result<std::string> token = take_token();
  if (!token.ok()) return without(token.error().message);
  bell_ = std::move(bell);
  site_.emplace(token.value(), *this);
  const auto listen = [this](const std::string& address) {
    return page::HttpServer::listen(
        address, page::ServerLimits(),
        [this](const page::HttpRequest& request, int64_t ticket) {
          return site_->answer(request, ticket);
        },
        monotonic_clock());
  };
  const std::string earlier = earlier_address();
  auto server = listen(earlier.empty() ? wanted : earlier);
  if (!server.ok() && !earlier.empty()) server = listen(wanted);
  if (!server.ok()) return without(server.error().message);
  std::string host = wanted.substr(0, wanted.rfind(':'));
  if (host == "0.0.0.0" || host == "[::]") host = host_name();
  const std::string url =
      cat("http://", host, ":", server.value()->port(), kBeforeToken, token.value());
  const std::string file = input_.directory->path() + kUrlFile;
  const Result<std::string> before = read_file(file);
  const Status written = write_file(file, url + "\n", 0600);  // the token is a secret
  if (!written.ok()) return without(written.error().message);
  server_ = std::move(server).value();
  thread_ = std::thread([this] {
    while (!ends_) server_->turn(kTurn);
  });
  const bool is_known = !earlier.empty() && before.ok() && before.value() == url + "\n";
  return is_known ? std::string() : cat("page: ", url);
}

void LivePage::leave() const {
  if (!server_) return;
  for (const char* file : {kUrlFile, kTokenFile}) {
    std::error_code failure;
    std::filesystem::remove(input_.directory->path() + file, failure);
  }
}

// ---- what the coordinator tells --------------------------------------------------------------

void LivePage::note(const std::string& kind, RunMoment moment, const std::string& sentence,
                    const EventDetails& details) {
  if (server_) take_event(event_line(kind, moment.epoch, moment.step, sentence, details));
}

// Takes events of this coordinator and of the one before it in the same way.
void LivePage::take_event(const std::string& line) {
  const std::optional<page::EventLine> event = page::event_of_line(line);
  if (!event) return;
  history_.add_event(event->kind, event->epoch, event->step, event->reason);
  const bool is_mode = event->kind == "mode";
  if (is_mode || event->plan != 0) {
    history_.add_change();
    why_ = event->reason;
  }
  if (!is_mode && event->alternatives.empty()) return;
  alternatives_ = event->alternatives;
  compared_in_ = event->step;
}

void LivePage::take_up_events() {
  if (input_.job->coordinator.page == "off") return;
  const Result<std::string> text = read_file(input_.directory->path() + "/events.jsonl");
  if (!text.ok()) return;  // the page begins empty, and the run goes on
  std::istringstream lines(text.value());
  for (std::string line; std::getline(lines, line);) take_event(line);
}

void LivePage::take_up(const MetricsLine& line) {
  page::ShownStep shown;
  shown.step = line.step;
  shown.loss = line.loss;
  const auto& took = line.period_ms      ? line.period_ms
                     : line.iteration_ms ? line.iteration_ms
                                         : line.step_ms;
  shown.seconds = took.value_or(0) / 1e3;
  add_step(shown, line.validation_loss, line.validation_accuracy);
}

void LivePage::add_step(const page::ShownStep& step, const std::optional<double>& validation_loss,
                        const std::optional<double>& validation_accuracy) {
  history_.add_step(step);
  if (validation_loss) history_.add_validation({step.step, *validation_loss, validation_accuracy});
}

// On the devices' clock a step lasts from the last weight gradient of the step before it to its own
// one. That is what a price promises, and a busy host does not count there.
void LivePage::add(const StepRecord& step) {
  if (!server_) return;
  page::ShownStep shown;
  shown.step = step.step;
  if (step.has_loss()) shown.loss = step.loss;
  shown.seconds = seconds_of(step.duration);
  if (step.iteration) {
    const bool follows = before_ && before_->first + 1 == step.step;
    shown.seconds = seconds_of(follows ? step.iteration_end - before_->second : *step.iteration);
    before_.emplace(step.step, step.iteration_end);
  }
  add_step(shown, step.validation_loss, step.validation_accuracy);
}

void LivePage::add(const ServedStep& step) {
  if (!server_) return;
  page::ShownStep shown;
  shown.step = step.step;
  shown.loss = step.loss;
  shown.seconds = seconds_of(step.duration);
  add_step(shown, step.validation_loss, step.validation_accuracy);
}

bool LivePage::is_due() const { return server_ && board_.is_due(monotonic_clock().now()); }

void LivePage::show(const State& state) {
  if (!server_) return;
  const Planning& planning = state.planning;
  const bool is_measured = state.committed >= state.rules.first_step + kMeasured;
  if (state.situation == Situation::Running && is_measured && planning.from >= 0) {
    const bool is_new = !question_ || question_->plan != planning.present ||
                        !same_situation(question_->cluster, planning.monitor->cluster);
    if (is_new) {
      question_ = std::make_shared<const PlanRequest>(question_of(state, planning.present, false));
    }
  }
  show(snapshot_of(state, *input_.job, times_), question_);
}

void LivePage::show(const ServedStatus& status, const ServedProcesses& processes) {
  if (!server_) return;
  show(snapshot_of(status, processes, *input_.job), nullptr);
}

void LivePage::show(page::Snapshot snapshot, std::shared_ptr<const PlanRequest> question) {
  snapshot.why = why_;
  snapshot.alternatives = alternatives_;
  snapshot.compared_in = compared_in_;
  snapshot.history = history_;
  board_.show(std::make_shared<const View>(View{std::move(snapshot), std::move(question)}),
              monotonic_clock().now());
}

std::vector<Question> LivePage::take_questions() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(questions_, {});
}

void LivePage::answer(int64_t question, const std::string& text, const std::string& failure) {
  if (server_) server_->answer(-1 - question, page::wish_answer(text, failure));
}

// ---- what the page's thread asks -------------------------------------------------------------

std::shared_ptr<const page::Picture> LivePage::look() {
  std::shared_ptr<const View> view = board_.look(monotonic_clock().now());
  if (view == seen_) return picture_;
  seen_ = std::move(view);
  price(*seen_);
  picture_ = std::make_shared<const page::Picture>(page::Picture{seen_->snapshot, promises_});
  return picture_;
}

// Prices the plan in force once for each cluster. The run does not wait for it.
void LivePage::price(const View& view) {
  if (!view.question || view.question == priced_) return;
  priced_ = view.question;
  const Plan& plan = *priced_->plan;
  size_t ops = 0;
  for (const auto& list : plan.schedule.lists) ops += list.size();
  if (ops > kMostOps) return;
  const Result<Duration> step = whole_step_time(plan, priced_->model, priced_->cluster);
  if (!step.ok()) return;
  // A later cluster may change the price of a plan that is in force already.
  const int64_t in_force = view.snapshot.in_force;
  const bool is_first = promises_.empty() || promises_.back().from < in_force;
  const page::Promise promise{is_first ? in_force : view.snapshot.step, seconds_of(step.value()),
                              plan.order};
  promises_.push_back(promise);
  if (promises_.size() > kMostPromises) promises_.erase(promises_.begin());
}

bool LivePage::ask(int64_t ticket, const std::string& wish) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (questions_.size() >= kMostQuestions) return false;
    questions_.push_back({-1 - ticket, wish});
  }
  bell_();
  return true;
}

std::unique_ptr<Server> with_page(std::unique_ptr<Server> server, LivePage& live) {
  return std::make_unique<PagedServer>(std::move(server), live);
}

}  // namespace tenuto
