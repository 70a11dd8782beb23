#include "worker/conversation.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "protocol/addresses.h"
#include "protocol/report.h"
#include "worker/decide_worker.h"
#include "worker/worker_parts.h"

namespace tenuto {
namespace {

constexpr Duration kHeartbeat = std::chrono::milliseconds(500);
constexpr Duration kLook = std::chrono::seconds(1);
// A coordinator that repeats nothing for so long may be on a host that is gone, which ends no
// stream. If it can be elsewhere, look there while there is time left to wait.
constexpr Duration kElsewhere = std::chrono::seconds(10);
// From the end of the conversation to the end of the process, which may be in a long op then.
constexpr Duration kLeaveLimit = std::chrono::seconds(1);

}  // namespace

Status begin_conversation(const WorkerSettings& settings, Conversation& conversation) {
  auto tls = read_tls(settings.tls);
  if (!tls.ok()) return tls.error();
  conversation.tls = std::move(tls).value();
  const bool may_move = addresses_in(settings.coordinator).size() > 1;
  const ClientSettings client{.coordinator = settings.coordinator,
                              .job = settings.job,
                              .token = settings.token,
                              .self = settings.self,
                              .incarnation = settings.incarnation,
                              .connect_limit = kAnswerLimit,
                              .heartbeat = kHeartbeat,
                              .silence_limit = may_move ? kElsewhere : kReturnLimit,
                              .return_limit = kReturnLimit,
                              .tls = conversation.tls};
  Result<std::unique_ptr<Client>> connected =
      connect_client(client, Report{}, conversation.mailbox, [](const Error& error) {
        say(error.message);
        std::this_thread::sleep_for(kLeaveLimit);
        _exit(exit_code_of(error));
      });
  if (!connected.ok()) return connected.error();
  conversation.client = std::move(connected).value();
  conversation.begun = monotonic_clock().now();
  return ok();
}

std::shared_ptr<const Told> first_told(Conversation& conversation) {
  const Duration end = conversation.begun + kAnswerLimit;
  while (true) {
    auto told = conversation.client->told();
    if (told != nullptr || !conversation.client->state().ok()) return told;
    const Duration left = end - monotonic_clock().now();
    if (left <= Duration{}) return nullptr;
    // What comes here has no other reader: no transport has been made yet.
    (void)conversation.mailbox.wait(std::min(left, kLook));
  }
}

}  // namespace tenuto
