#include "run/request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "control/commit.h"
#include "control/replan.h"
#include "ir/update_rule.h"
#include "world/fault.h"
#include "world/fit.h"

namespace tenuto {
namespace {

constexpr double kMostMilliseconds = 1e9;
constexpr int kMostTraced = 1'000'000;   // steps
constexpr double kMostMegabytes = 1e12;  // per second

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

constexpr const char* kRealLinks =
    "the links of this run are real and cannot be slowed: only a rehearsal takes link=... and "
    "port=..., that is, paced devices on the virtual clock, or a job with [[fault]] tables";

// `wish`: what follows "link=" with two workers, or "port=", which is `kind`.
Result<Request> links_request_of(const std::string& kind, std::string_view wish, const Job& job) {
  const size_t colon = std::min(wish.rfind(':'), wish.size());
  Request request{Request::Kind::Fault, 0};
  (kind == "port" ? request.fault.port : request.fault.pair) = wish.substr(0, colon);
  std::string_view rest = wish.substr(std::min(colon + 1, wish.size()));
  double& milliseconds = request.fault.latency_ms;
  const bool read = colon > 0 && take(rest, milliseconds, "ms") && rest.empty();
  if (!read || !(milliseconds >= 0 && milliseconds <= kMostMilliseconds)) {
    return invalid(cat(
        "'", kind, "=", wish, "' is not a slow ", kind, ": expected ",
        kind == "port" ? "the name of a port, or a worker" : "two workers with a dash between them",
        ", and the additional one-way latency, such as ",
        kind == "port" ? "port=0.1:30ms" : "link=0.1-1.1:30ms", "; 0ms removes it"));
  }
  if (!can_slow_links(job)) return invalid(kRealLinks);
  Job asked = job;
  asked.faults = {request.fault};
  const auto misfit = find_misfit_of_workers(asked);
  if (misfit) return invalid(cat("'", kind, "=", wish, "': ", misfit->sentence));
  return request;
}

// `wish`: what follows "link=".
Result<Request> link_request_of(std::string_view wish, const Job& job) {
  if (wish.substr(0, wish.rfind(':')).find('.') != std::string_view::npos) {
    return links_request_of("link", wish, job);
  }
  std::string_view rest = wish;
  int32_t before = 0, behind = 0;
  double milliseconds = 0;
  const bool read = take(rest, before, "-") && take(rest, behind, ":") &&
                    take(rest, milliseconds, "ms") && rest.empty();
  if (!read || !(milliseconds >= 0 && milliseconds <= kMostMilliseconds)) {
    return invalid(
        cat("'link=", wish, "' is not a slow link: expected its two stages",
            " and its additional one-way latency, such as link=0-1:30ms; 0ms removes it"));
  }
  if (!can_slow_links(job)) {
    return invalid(kRealLinks);
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
  const WorkerId worker = worker_of(fault, job.seats());
  if (worker.value >= 0 && worker.value < job.process_count()) return worker;
  if (job.is_served()) {
    const std::string servers =
        job.has_servers() ? cat(" and ", job.sync.servers, " servers") : std::string();
    return invalid(cat("there is no worker ", fault.worker, " in this run of ",
                       job.parallel.pipelines, " replicas", servers, ", numbered from 0 to ",
                       job.process_count() - 1));
  }
  return invalid(cat(
      "there is no worker ", fault.worker, " in this run of ",
      job.parallel.holders.empty()
          ? cat(job.parallel.pipelines, " pipelines with ", job.parallel.stages, " workers each")
          : cat(job.parallel.stages, " stages with unequal holders")));
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

// The kinds of requests about a process.
constexpr std::array<const char*, 4> kOfProcesses = {"kill", "stop", "resume", "start"};

// `wish`: what follows "sync.mode=".
Result<ServedRequest> mode_request_of(std::string_view wish, const Job& job) {
  if (wish == "auto") {
    if (job.sync.mode == "auto") return ServedRequest(ModeWish{});
    return invalid(cat("this run began with sync.mode = \"", job.sync.mode,
                       "\" and has no chooser: request a mode by its name"));
  }
  const Result<SyncMode> mode = sync_mode_from_text(wish);
  if (!mode.ok()) return mode.error();
  const Status right = check_mode_of_run(mode.value(), job.parallel.pipelines, job.parallel.micros);
  if (!right.ok()) return right.error();
  return ServedRequest(ModeWish{mode.value()});
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
                       "' is not a slow worker: expected PIPELINE.STAGE or its number",
                       " and the speed it keeps, such as worker=0.1:0.5; 1 = full speed"));
  }
  const Result<WorkerId> worker = known_worker(fault, job);
  if (!worker.ok()) return worker.error();
  fault.worker = cat(worker.value());  // the number, also where PIPELINE.STAGE was given
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
    return invalid(
        cuts ? cat("'partition=", wish,
                   "' is not a partition: expected PIPELINE.STAGE or its number and for how"
                   " long, such as partition=0.1:500ms")
             : cat("'clock-skew=", wish,
                   "' is not a clock skew: expected PIPELINE.STAGE or its number and how far its"
                   " clock is ahead, such as clock-skew=0.1:-20ms; 0ms removes it"));
  }
  (cuts ? fault.for_ms : fault.skew_ms) = milliseconds;
  const Result<WorkerId> worker = known_worker(fault, job);
  if (!worker.ok()) return worker.error();
  fault.worker = cat(worker.value());  // the number, also where PIPELINE.STAGE was given
  if (!cuts || can_cut_off(job)) return request;
  return invalid(
      "the network of this run is real and cannot be cut: only a rehearsal takes partition=..., "
      "that is, a "
      "job with a [[fault]] of kind \"partition\", or one on a real clock with faults of links");
}

// The kinds of requests for a hog.
constexpr std::array<const char*, 2> kHogs = {"cpu-hog", "bandwidth-hog"};

// `wish`: what follows "cpu-hog=" or "bandwidth-hog=", which is `kind`.
Result<Request> hog_request_of(const std::string& kind, std::string_view wish, const Job& job) {
  const bool computes = kind == kHogs[0];
  const size_t colon = wish.find(':');
  Request request{Request::Kind::Hog, 1};
  Fault& fault = request.fault;
  fault.kind = kind;
  fault.worker = wish.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? "" : wish.substr(colon + 1);
  if (rest == "off") {
    request.number = 0;
  } else {
    bool read =
        computes ? take(rest, fault.threads, "") : take(rest, fault.megabytes_per_second, "MB");
    if (read && rest.starts_with(':')) {
      rest.remove_prefix(1);
      read = take(rest, fault.for_ms, "ms") && fault.for_ms > 0;
    }
    const bool fits =
        computes ? fault.threads >= 1 && fault.threads <= kMostHogThreads
                 : fault.megabytes_per_second >= 0 && fault.megabytes_per_second <= kMostMegabytes;
    if (!read || !rest.empty() || !fits || !(fault.for_ms <= kMostMilliseconds)) {
      return invalid(
          cat("'", kind, "=", wish, "' is not a hog: expected PIPELINE.STAGE or its number and ",
              computes ? cat("1 to ", kMostHogThreads,
                             " threads, such as cpu-hog=0.1:4 or "
                             "cpu-hog=0.1:4:3000ms; cpu-hog=0.1:off ends it")
                       : std::string("a rate, such as bandwidth-hog=0.1:50MB or "
                                     "bandwidth-hog=0.1:0MB:3000ms (0MB: as much as it can); "
                                     "bandwidth-hog=0.1:off ends it")));
    }
  }
  const Result<WorkerId> worker = known_worker(fault, job);
  if (!worker.ok()) return worker.error();
  fault.worker = cat(worker.value());  // the number, also where PIPELINE.STAGE was given
  if (job.device.kind != "paced") return request;
  return invalid(cat(kind, "=", wish,
                     ": a hog takes real resources from a host, and the paced devices of this run "
                     "only imitate computing: take worker=P.S:SPEED or link=I-J:Xms"));
}

// `wish`: what follows "trace=".
Result<Request> trace_request_of(std::string_view wish) {
  Request request{Request::Kind::Trace, 0};
  std::string_view rest = wish;
  if (take(rest, request.number, "") && rest.empty() && request.number >= 1 &&
      request.number <= kMostTraced) {
    return request;
  }
  return invalid(cat("'trace=", wish, "' is no number of steps: expected 1 to ", kMostTraced,
                     ", such as trace=5"));
}

// A wish to treat a kind of trouble in another way; none = it is another wish.
std::optional<Result<Request>> treatment_wish(const std::string& wish, const Job& job) {
  const size_t equals = std::min(wish.find('='), wish.size());
  const std::string value = wish.substr(std::min(equals + 1, wish.size()));
  const auto* const of = std::find_if(
      kTreatmentKeys.begin(), kTreatmentKeys.end(),
      [&](TreatmentKey key) { return wish.substr(0, equals) == cat("resilience.", name_of(key)); });
  if (of == kTreatmentKeys.end()) return std::nullopt;
  const std::optional<Treatment> how = treatment_from(*of, value);
  if (!how) return std::nullopt;
  const Request request{.kind = Request::Kind::Treat, .key = *of, .how = *how};
  if (*of == TreatmentKey::Mode || *of == TreatmentKey::SlowLinks) return Result<Request>(request);
  if (*of == TreatmentKey::Layers && !has_fine_stages(job)) {
    return Result<Request>(
        invalid("the layers of this run cannot move: it began with resilience.layers = \"off\", "
                "and its stages are whole; resume it with --resilience.layers=observe"));
  }
  Job asked = job;
  asked.resilience.*setting_of(*of) = value;
  if (const auto misfit = find_misfit_of_layers(asked)) {
    return Result<Request>(invalid(cat(misfit->key, " ", misfit->sentence)));
  }
  return Result<Request>(request);
}

// A wish for a hog as a request; none = it is another wish.
std::optional<Result<Request>> hog_wish(const std::string& wish, const Job& job) {
  for (const std::string kind : kHogs) {
    if (!wish.starts_with(kind + "=")) continue;
    return hog_request_of(kind, std::string_view(wish).substr(kind.size() + 1), job);
  }
  return std::nullopt;
}

}  // namespace

Result<Request> request_of(const std::string& wish, const Job& job) {
  if (wish == "checkpoint") return Request{Request::Kind::Checkpoint, 0};
  if (wish == "end") return Request{Request::Kind::Stop, 0};
  const size_t equals = wish.find('=');
  if (wish.starts_with("link=")) return link_request_of(std::string_view(wish).substr(5), job);
  if (wish.starts_with("port=")) {
    return links_request_of("port", std::string_view(wish).substr(5), job);
  }
  if (wish.starts_with("trace=")) return trace_request_of(std::string_view(wish).substr(6));
  if (wish.starts_with("worker=")) return worker_request_of(std::string_view(wish).substr(7), job);
  const auto wants = [&](const std::string& kind) {
    return equals != std::string::npos && wish.substr(0, equals) == kind;
  };
  for (const std::string kind : kOfProcesses) {
    if (wants(kind)) return death_request_of(kind, std::string_view(wish).substr(equals + 1), job);
  }
  if (const std::optional<Result<Request>> hog = hog_wish(wish, job)) return *hog;
  for (const std::string kind : {"partition", "clock-skew"}) {
    if (wants(kind)) return time_request_of(kind, std::string_view(wish).substr(equals + 1), job);
  }
  if (const std::optional<Result<Request>> treatment = treatment_wish(wish, job)) return *treatment;
  return invalid(cat("'", wish, "' cannot be requested of a live run: expected ",
                     "resilience.slow_links=adapt, =observe or =off, "
                     "resilience.slow_workers=adapt or =observe, "
                     "resilience.layers=adapt, =observe or =off, "
                     "resilience.mode=act, =observe or =off, "
                     "checkpoint, end, trace=STEPS, link=I-J:Xms, link=P.S-P.S:Xms, port=NAME:Xms, "
                     "worker=P.S:SPEED, partition=P.S:Xms, clock-skew=P.S:Xms, kill=P.S, "
                     "stop=P.S, resume=P.S or start=P.S, cpu-hog=P.S:THREADS, "
                     "bandwidth-hog=P.S:RATEMB, "
                     "kill=coordinator or stop=coordinator"));
}

Result<ServedRequest> served_request_of(const std::string& wish, const Job& job) {
  if (wish == "checkpoint") return ServedRequest(Request{Request::Kind::Checkpoint, 0});
  const size_t equals = std::min(wish.find('='), wish.size());
  const std::string key = wish.substr(0, equals);
  const std::string_view value = std::string_view(wish).substr(std::min(equals + 1, wish.size()));
  if (key == "sync.mode") return mode_request_of(value, job);
  if (std::find(kOfProcesses.begin(), kOfProcesses.end(), key) != kOfProcesses.end()) {
    const Result<Request> request = death_request_of(key, value, job);
    if (!request.ok()) return request.error();
    return ServedRequest(request.value());
  }
  if (const std::optional<Result<Request>> hog = hog_wish(wish, job)) {
    if (!hog->ok()) return hog->error();
    return ServedRequest(hog->value());
  }
  return invalid(cat("'", wish, "' cannot be requested of this run: expected ",
                     "sync.mode=MODE or sync.mode=auto, checkpoint, kill=N, stop=N, resume=N or ",
                     "start=N with the number of a worker, cpu-hog=N:THREADS, ",
                     "bandwidth-hog=N:RATEMB, kill=coordinator or stop=coordinator"));
}

std::string shown_treatment(const Treatments& treatments, TreatmentKey key, const Job& job) {
  const std::string wish = cat("resilience.", name_of(key), "=", name_of(key, Treatment::Adapt));
  return request_of(wish, job).ok() ? name_of(key, treatments.of(key)) : "";
}

std::string describe_request(const Request& request) {
  const Fault& fault = request.fault;
  const bool ends = request.kind == Request::Kind::Hog && request.number == 0;
  return ends ? cat("requested: the ", fault.kind, " beside worker ", fault.worker, " ends")
              : cat("requested: ", describe(fault));
}

std::string answer_of(const Request& request, const State& after) {
  if (request.kind == Request::Kind::Trace) return cat("up to step ", after.trace_until - 1);
  if (request.kind != Request::Kind::Fault) return "done";
  for (const Fault& fault : after.faults) {
    const bool begins = !ends_slowness(request.fault) && fault.until_step < 0;
    const int64_t step = begins ? fault.at_step : fault.until_step;
    if (concern_one_thing(fault, request.fault) && step > open_step(after)) {
      return lasts(fault) ? cat("from step ", step, " on") : cat("in step ", step);
    }
  }
  return ends_slowness(request.fault) ? "there was no fault to remove" : "the run has ended";
}

}  // namespace tenuto
