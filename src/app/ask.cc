#include "app/ask.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/sentence.h"
#include "base/text.h"
#include "protocol/client.h"
#include "protocol/tls.h"
#include "run/coordinator_address.h"
#include "run/run_directory.h"
#include "run/status_lines.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kAnswerLimit = std::chrono::seconds(10);

int fail(const Error& error) {
  std::fprintf(stderr, "tenuto: %s\n", told(error.message).c_str());
  return error.code == Code::Invalid ? 2 : 1;
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
    std::printf("%s", status_lines(status.dump()).c_str());
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
