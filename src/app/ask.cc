#include "app/ask.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/sentence.h"
#include "base/text.h"
#include "protocol/client.h"
#include "protocol/tls.h"
#include "run/coordinator_address.h"
#include "run/run_directory.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLinksShown = 8;  // whose network is printed
constexpr Duration kAnswerLimit = std::chrono::seconds(10);

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
  // Absent from the answer of an older coordinator.
  const Json network = status.value("network", Json::array());
  for (size_t i = 0; i < std::min(network.size(), kLinksShown); ++i) {
    std::printf("network %s-%s: round trip %s ms, varies by %s ms, %s packets sent again\n",
                network[i]["first"].dump().c_str(), network[i]["second"].dump().c_str(),
                network[i]["round_trip_ms"].dump().c_str(),
                network[i]["variation_ms"].dump().c_str(), network[i]["repeated"].dump().c_str());
  }
  if (network.size() > kLinksShown) {
    std::printf("network: %s more links; --json lists them\n",
                cat(network.size() - kLinksShown).c_str());
  }
  for (const Json& worker : status["workers"]) {
    const std::string joining = worker["joining"].get<std::string>();
    const bool alive = worker["alive"].get<bool>();
    if (alive && joining == "no" && !worker["slow"].get<bool>()) continue;
    const char* what = joining == "receiving"       ? "receives the state"
                       : joining == "invited"       ? "is preparing to join"
                       : alive                      ? "is slow"
                       : worker["came"].get<bool>() ? "is dead"
                                                    : "has not connected yet";
    const std::string reason = alive && joining == "no" ? worker.value("reason", "") : "";
    std::printf("worker %s %s%s%s\n", worker["worker"].dump().c_str(), what,
                reason.empty() ? "" : ": ", reason.c_str());
  }
}

// Asks the coordinator of the run.
Result<std::string> ask_run(const std::string& run, const std::string& text) {
  const Result<std::string> folder = find_run(run);
  if (!folder.ok()) return folder.error();
  const Result<CoordinatorAddress> where = read_coordinator_address(folder.value());
  if (!where.ok()) return where.error();
  const CoordinatorAddress& known = where.value();
  const auto tls = read_tls(known.tls);
  if (!tls.ok()) return tls.error();
  const Result<std::string> answer =
      ask_coordinator(known.address, known.job, known.token, text, kAnswerLimit, tls.value().get());
  const bool silent = !answer.ok() && answer.error().code == Code::Disconnected;
  return silent ? not_live(folder.value(), answer.error().message) : answer;
}

}  // namespace

int run_status(const std::string& run, bool json) {
  const Result<std::string> answer = ask_run(run, "status");
  if (!answer.ok()) return fail(answer.error());
  Json status = Json::parse(answer.value(), nullptr, false);
  if (!status.is_object())
    return fail(
        Error{Code::Corrupt, Reach::Call,
              "the coordinator's answer is not JSON: do both run the same version of tenuto?"});
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
