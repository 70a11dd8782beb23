#include "app/ask.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/record.h"
#include "app/run_directory.h"
#include "base/file.h"
#include "base/sentence.h"
#include "base/text.h"
#include "control/join.h"
#include "control/replan.h"
#include "protocol/client.h"
#include "protocol/tls.h"
#include "world/fault.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr Duration kAnswerLimit = std::chrono::seconds(10);
constexpr const char* kFile = "/coordinator.json";
constexpr const char* kWish = "resilience.slow_links";
constexpr double kMostMilliseconds = 1e9;

const char* name_of(Situation situation) {
  switch (situation) {
    case Situation::Gathering:
      return "gathering";
    case Situation::Running:
      return "running";
    case Situation::Recovering:
      return "recovering";
    case Situation::Salvaging:
      return "salvaging";
    case Situation::Ended:
      break;
  }
  return "ended";
}

const char* name_of(Joining how) {
  if (how == Joining::No) return "no";
  return how == Joining::Invited ? "invited" : "learning";
}

// How a run has ended, by the last line of its events.
std::string end_of(const std::string& run) {
  const Result<std::string> events = read_file(run + "/events.jsonl");
  if (!events.ok() || events.value().empty()) return "it has not come to its first step";
  std::istringstream lines(events.value());
  Json last;
  for (std::string line; std::getline(lines, line);) {
    Json json = Json::parse(line, nullptr, false);
    const bool whole = json.is_object() && json.contains("event") && json.contains("step") &&
                       json.contains("reason") && json["reason"].is_string();
    if (whole) last = std::move(json);
  }
  if (last.is_null()) return "its events.jsonl is damaged";
  if (last["event"] == "end") {
    return cat("it ended at step ", last["step"].dump(), ": ", last["reason"].get<std::string>());
  }
  const Result<Figures> figures = read_figures(run, 0);
  return cat("it has not ended by itself, and nobody leads it, after ",
             figures.ok() ? figures.value().steps_done : 0,
             " steps: `tenuto coordinator` with the same command line goes on with it while its "
             "workers wait; `tenuto train` and, later, `tenuto coordinator` continue it with "
             "--resume from its newest checkpoint");
}

// Why the run in that folder cannot be asked; `otherwise` while a process works there.
Error not_live(const std::string& run, const std::string& otherwise) {
  const std::string holder = live_holder(run);
  if (!holder.empty()) return {Code::Disconnected, Reach::Call, otherwise};
  return invalid(cat(run, " is not a live run: ", end_of(run)));
}

int fail(const Error& error) {
  std::fprintf(stderr, "tenuto: %s\n", told(error.message).c_str());
  return error.code == Code::Invalid ? 2 : 1;
}

void print_status(const Json& status) {
  std::printf("%s: step %s of %s, %s\n", status["job"].get<std::string>().c_str(),
              status["step"].dump().c_str(), status["steps"].dump().c_str(),
              status["situation"].get<std::string>().c_str());
  std::printf("epoch %s: %s of %s workers\n", status["epoch"].dump().c_str(),
              status["members"].dump().c_str(), cat(status["workers"].size()).c_str());
  std::printf("plan %s: %s, in force from step %s; slow links: %s\n",
              status["plan_serial"].dump().c_str(), status["plan"].get<std::string>().c_str(),
              status["plan_from"].dump().c_str(), status["slow_links"].get<std::string>().c_str());
  for (const Json& link : status["links"]) {
    std::printf("link %s-%s is slow: round trip %s ms\n", link["first"].dump().c_str(),
                link["second"].dump().c_str(), link["round_trip_ms"].dump().c_str());
  }
  for (const Json& worker : status["workers"]) {
    const std::string joining = worker["joining"].get<std::string>();
    const bool alive = worker["alive"].get<bool>();
    if (alive && joining == "no" && !worker["slow"].get<bool>()) continue;
    const char* what = joining == "learning"        ? "receives the state"
                       : joining == "invited"       ? "makes itself ready to join"
                       : alive                      ? "is slow"
                       : worker["came"].get<bool>() ? "is gone"
                                                    : "has not come yet";
    std::printf("worker %s %s\n", worker["worker"].dump().c_str(), what);
  }
}

// Asks the coordinator of the run.
Result<std::string> ask_run(const std::string& run, const std::string& text) {
  const Result<std::string> folder = find_run(run);
  if (!folder.ok()) return folder.error();
  const Result<Whereabouts> where = read_whereabouts(folder.value());
  if (!where.ok()) return where.error();
  const Whereabouts& known = where.value();
  const auto tls = read_tls(known.tls);
  if (!tls.ok()) return tls.error();
  const Result<std::string> answer =
      ask_coordinator(known.address, known.job, known.token, text, kAnswerLimit, tls.value().get());
  const bool silent = !answer.ok() && answer.error().code == Code::Disconnected;
  return silent ? not_live(folder.value(), answer.error().message) : answer;
}

// Reads a number from the front of `text`, then `mark`, and removes both.
template <class Number>
bool take(std::string_view& text, Number& number, std::string_view mark) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// `wish`: what follows "link=".
Result<Request> link_request_of(std::string_view wish, const Job& job) {
  std::string_view rest = wish;
  int32_t before = 0, behind = 0;
  double milliseconds = 0;
  const bool read = take(rest, before, "-") && take(rest, behind, ":") &&
                    take(rest, milliseconds, "ms") && rest.empty();
  if (!read || !(milliseconds >= 0 && milliseconds <= kMostMilliseconds)) {
    return invalid(cat("'link=", wish, "' is no slow link: expected the two workers that it joins",
                       " and what it takes more, one way, such as link=0-1:30ms; 0ms = no more"));
  }
  if (!can_rehearse_links(job)) {
    return invalid(
        "the links of this run are real and cannot be slowed: only a rehearsal takes link=..., that"
        " is, paced devices on the virtual clock, or a job with [[fault]] tables");
  }
  const int32_t stages = job.parallel.stages;
  if (before < 0 || behind != before + 1 || behind >= stages) {
    return invalid(stages == 1
                       ? cat("there is no link ", before, "-", behind, ": one stage has no link")
                       : cat("there is no link ", before, "-", behind, ": the links are 0-1 to ",
                             stages - 2, "-", stages - 1));
  }
  Request request{Request::Kind::Fault, 0};
  request.fault.link = before;
  request.fault.latency_ms = milliseconds;
  return request;
}

// The worker of that name, which must have a place in the run.
Result<WorkerId> known_worker(const Fault& fault, const Job& job) {
  const WorkerId worker = worker_of(fault, job.parallel.stages);
  if (worker.value >= 0 && worker.value < job.worker_count()) return worker;
  return invalid(cat("there is no worker ", fault.worker, " in this run of ",
                     job.parallel.pipelines, " pipelines with ", job.parallel.stages,
                     " workers each"));
}

// `wish`: what follows "kill=", "stop=", "resume=" or "start=", which is `kind`.
Result<Request> death_request_of(const std::string& kind, std::string_view wish, const Job& job) {
  const int number = kind == "kill"     ? SIGKILL
                     : kind == "stop"   ? SIGSTOP
                     : kind == "resume" ? SIGCONT
                                        : 0;
  Request request{Request::Kind::Signal, number};
  request.fault.kind = kind;
  request.fault.worker = wish;
  if (wish == "coordinator" && (kind == "kill" || kind == "stop")) {
    request.fault.kind += "-coordinator";
    return request;
  }
  const Result<WorkerId> worker = known_worker(request.fault, job);
  if (!worker.ok()) return worker.error();
  return request;
}

// `wish`: what follows "worker=".
Result<Request> worker_request_of(std::string_view wish, const Job& job) {
  const size_t colon = wish.find(':');
  Request request{Request::Kind::Fault, 0};
  Fault& fault = request.fault;
  fault.kind = "slow-worker";
  fault.worker = wish.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? "" : wish.substr(colon + 1);
  if (!take(rest, fault.speed, "") || !rest.empty() || !(fault.speed > 0 && fault.speed <= 1)) {
    return invalid(cat("'worker=", wish,
                       "' is no slow worker: expected PIPELINE.STAGE or its number",
                       " and what is left of its speed, such as worker=0.1:0.5; 1 = all of it"));
  }
  const Result<WorkerId> worker = known_worker(fault, job);
  if (!worker.ok()) return worker.error();
  fault.worker = cat(worker.value());  // one name for each
  return request;
}

// `wish`: what follows "partition=" or "clock-skew=", which is `kind`.
Result<Request> time_request_of(const std::string& kind, std::string_view wish, const Job& job) {
  const bool cuts = kind == "partition";
  const size_t colon = wish.find(':');
  Request request{Request::Kind::Fault, 0};
  Fault& fault = request.fault;
  fault.kind = kind;
  fault.worker = wish.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? "" : wish.substr(colon + 1);
  double milliseconds = 0;
  const bool read = take(rest, milliseconds, "ms") && rest.empty();
  if (!read || !(std::abs(milliseconds) <= kMostMilliseconds) || (cuts && milliseconds <= 0)) {
    return invalid(cuts ? cat("'partition=", wish,
                              "' cuts nobody off: expected PIPELINE.STAGE or its number and for how"
                              " long, such as partition=0.1:500ms")
                        : cat("'clock-skew=", wish,
                              "' is no skew: expected PIPELINE.STAGE or its number and how far its"
                              " clock is ahead, such as clock-skew=0.1:-20ms; 0ms = no more"));
  }
  (cuts ? fault.for_ms : fault.skew_ms) = milliseconds;
  const Result<WorkerId> worker = known_worker(fault, job);
  if (!worker.ok()) return worker.error();
  fault.worker = cat(worker.value());  // one name for each
  if (!cuts || can_cut_off(job)) return request;
  return invalid(
      "the wires of this run hold nothing back: only a rehearsal takes partition=..., that is, a "
      "job with a [[fault]] of kind \"partition\", or one on a real clock with faults of links");
}

}  // namespace

Result<Whereabouts> read_whereabouts(const std::string& run) {
  const std::string path = run + kFile;
  const Result<std::string> file = read_file(path);
  std::error_code failure;
  if (!file.ok() && fs::exists(path, failure)) {
    return invalid(cat(file.error().message, ": only who has started a run may ask it"));
  }
  if (!file.ok()) {
    return not_live(run, cat(run, " is just beginning or ending: process ", live_holder(run),
                             " works in it, but cannot be asked; try again soon"));
  }
  const Json json = Json::parse(file.value(), nullptr, false);
  const auto field = [&](const char* key) {
    const bool has = json.is_object() && json.contains(key) && json[key].is_string();
    return has ? json[key].get<std::string>() : std::string();
  };
  for (const char* key : {"address", "job", "token"}) {
    if (!field(key).empty()) continue;
    return not_live(run,
                    cat(path, " is damaged: expected a JSON object with address, ",
                        "job and token, found no ", key, ": the run goes on, but cannot be asked"));
  }
  return Whereabouts{field("address"), field("job"), field("token"), field("tls")};
}

Status write_whereabouts(const std::string& run, const Whereabouts& where) {
  const Json json = {{"address", where.address},
                     {"job", where.job},
                     {"token", where.token},
                     {"tls", where.tls.empty() ? "" : fs::absolute(where.tls).string()}};
  return write_file(run + kFile, json.dump() + "\n", 0600);  // the token is a secret
}

void remove_whereabouts(const std::string& run) {
  std::error_code failure;
  fs::remove(run + kFile, failure);
}

std::string status_text(const State& state) {
  const Planning& planning = state.planning;
  Json links = Json::array(), workers = Json::array();
  for (const auto& [ends, watch] : planning.monitor->links) {
    if (!watch.slow()) continue;
    links.push_back({{"first", ends.first.value},
                     {"second", ends.second.value},
                     {"round_trip_ms", to_milliseconds(watch.round_trip())}});
  }
  for (size_t w = 0; w < state.members.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    const auto watch = planning.monitor->workers.find(worker);
    workers.push_back({{"worker", w},
                       {"alive", state.members[w].alive},
                       {"came", has_come(state.members[w])},
                       {"joining", name_of(state.members[w].joining)},
                       {"version", state.members[w].report.version},
                       {"slow", watch != planning.monitor->workers.end() && watch->second.slow()}});
  }
  const auto members = std::count_if(state.members.begin(), state.members.end(),
                                     [](const Member& member) { return member.alive; });
  const Json json = {{"situation", name_of(state.situation)},
                     {"step", state.committed},
                     {"steps", state.rules.steps},
                     {"epoch", state.epoch},
                     {"members", members},
                     {"saved", state.saved},
                     {"plan", planning.present->order},
                     {"plan_serial", planning.serial},
                     {"plan_from", planning.from},
                     {"slow_links", name_of(planning.slow_links)},
                     {"links", std::move(links)},
                     {"workers", std::move(workers)}};
  return json.dump();
}

Result<Request> request_of(const std::string& wish, const Job& job) {
  if (wish == "checkpoint") return Request{Request::Kind::Checkpoint, 0};
  const size_t equals = wish.find('=');
  if (wish.starts_with("link=")) return link_request_of(std::string_view(wish).substr(5), job);
  if (wish.starts_with("worker=")) return worker_request_of(std::string_view(wish).substr(7), job);
  const auto wants = [&](const std::string& kind) {
    return equals != std::string::npos && wish.substr(0, equals) == kind;
  };
  for (const std::string kind : {"kill", "stop", "resume", "start"}) {
    if (wants(kind)) return death_request_of(kind, std::string_view(wish).substr(equals + 1), job);
  }
  for (const std::string kind : {"partition", "clock-skew"}) {
    if (wants(kind)) return time_request_of(kind, std::string_view(wish).substr(equals + 1), job);
  }
  if (wish.substr(0, equals) == kWish && equals != std::string::npos) {
    const std::optional<SlowLinks> how = slow_links_of(wish.substr(equals + 1));
    if (how) return Request{Request::Kind::SlowLinks, static_cast<int>(*how)};
  }
  return invalid(cat("'", wish, "' cannot be had of a live run: expected ", kWish,
                     "=adapt, =observe or =off, checkpoint, link=I-J:Xms, worker=P.S:SPEED, "
                     "partition=P.S:Xms, clock-skew=P.S:Xms, kill=P.S, stop=P.S, resume=P.S or "
                     "start=P.S, kill=coordinator or stop=coordinator"));
}

std::string answer_of(const Request& request, const State& after) {
  if (request.kind != Request::Kind::Fault) return "done";
  for (const Fault& fault : after.faults) {
    const bool begins = !ends_slowness(request.fault) && fault.until_step < 0;
    const int64_t step = begins ? fault.at_step : fault.until_step;
    if (concern_one_thing(fault, request.fault) && step > after.committed) {
      return lasts(fault) ? cat("from step ", step, " on") : cat("in step ", step);
    }
  }
  return ends_slowness(request.fault) ? "nothing was wanted of it" : "the run has ended";
}

int run_status(const std::string& run, bool json) {
  const Result<std::string> answer = ask_run(run, "status");
  if (!answer.ok()) return fail(answer.error());
  Json status = Json::parse(answer.value(), nullptr, false);
  if (!status.is_object()) return fail(Error{Code::Corrupt, Reach::Call, "the answer is no JSON"});
  status["job"] = run;
  if (json) {
    std::printf("%s\n", status.dump().c_str());
  } else {
    print_status(status);
  }
  return 0;
}

int run_inject(const std::string& run, const std::string& wish) {
  const Result<std::string> answer = ask_run(run, wish);
  if (!answer.ok()) return fail(answer.error());
  std::printf("%s\n", answer.value().c_str());
  return 0;
}

}  // namespace tenuto
