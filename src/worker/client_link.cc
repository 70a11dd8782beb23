#include "worker/client_link.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "parameter_server/message_bytes.h"

namespace tenuto {
namespace {

// Between two looks at the client while there is nothing else to wait for.
constexpr Duration kLook = std::chrono::milliseconds(10);

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The entry for this process; null = there is none.
const Hosted* entry_of(const Instruction& told, const LinkSelf& self) {
  const auto is_own = [&](const Hosted& one) {
    return one.worker == self.worker && one.incarnation == self.incarnation;
  };
  const auto found = std::find_if(told.hosted.begin(), told.hosted.end(), is_own);
  return found == told.hosted.end() ? nullptr : &*found;
}

Error corrupt(const LinkSelf& self, const std::string& what) {
  return {Code::Corrupt, Reach::Job,
          cat("worker ", self.worker, ": ", what,
              ": start the coordinator and all workers from the same build")};
}

}  // namespace

ClientLink::ClientLink(Client& client, LinkSelf self) : client_(client), self_(std::move(self)) {
  report_.host = self_.host;
}

void ClientLink::tell_elements(int64_t elements) {
  report_.elements = elements;
  tell();
}

Result<std::optional<WorkerId>> ClientLink::process() {
  while (true) {
    if (Status heard = hear(); !heard.ok()) return heard.error();
    if (process_ || has_ended()) return process_;
    sleep_until(monotonic_clock().now() + kLook);
  }
}

void ClientLink::fail(const Error& why) {
  if (!failure_) failure_ = why;
}

void ClientLink::tell_failure(const Error& why, Duration limit) {
  report_.failure = cat("on host ", self_.host, ": ", why.message);
  report_.failure_code = why.code;
  tell();
  if (process_) say_to_host(servers::FailedReport{why.message});
  const Duration end = monotonic_clock().now() + limit;
  while (!has_ended() && client_.state().ok() && monotonic_clock().now() < end) {
    sleep_until(monotonic_clock().now() + kLook);
    told_ = client_.told();
  }
}

Result<std::optional<servers::HostCommand>> ClientLink::next(Duration limit) {
  const Duration end = monotonic_clock().now() + limit;
  while (true) {
    if (Status heard = hear(); !heard.ok()) return heard.error();
    if (!commands_.empty()) return take_command();
    const Duration now = monotonic_clock().now();
    if (has_ended() || now >= end) return none_;
    sleep_until(std::min(end, now + kLook));
  }
}

bool ClientLink::has_ended() const {
  return told_ != nullptr && told_->instruction.directive.phase == Phase::Out;
}

Status ClientLink::report(const servers::HostReport& one) {
  if (failure_) return *failure_;
  say_to_host(one);
  return ok();
}

// Takes the newest instruction, if it is new. At the end of the run the coordinator may be gone
// before this process is. Each instruction has the entry of every process of the run, so one that
// had an entry and has none any more does not belong to the run.
Status ClientLink::hear() {
  if (failure_) return *failure_;
  auto newest = client_.told();
  const bool is_new = newest != nullptr && newest != told_;
  if (is_new) told_ = std::move(newest);
  if (has_ended()) return ok();
  if (Status state = client_.state(); !state.ok()) return state;
  if (!is_new) return ok();
  const Instruction& instruction = told_->instruction;
  if (const Hosted* own = entry_of(instruction, self_); own != nullptr) return take(*own);
  if (!process_) return ok();
  is_left_out_ = true;
  return Error{Code::Cancelled, Reach::Worker,
               cat("worker ", self_.worker,
                   ": the run continues without this process, which was silent or unreachable "
                   "for too long; a new process may join in its place")};
}

Status ClientLink::take(const Hosted& hosted) {
  if (process_ && *process_ != hosted.process) {
    return corrupt(self_, cat("the coordinator calls this process ", hosted.process,
                              ", and called it ", *process_, " before"));
  }
  process_ = hosted.process;
  report_.phase = Phase::Running;
  const size_t before = said_.size();
  while (!said_.empty() && said_.front().serial <= hosted.heard) said_.pop_front();
  for (const Numbered& command : hosted.commands) {
    if (command.serial <= last_command_) continue;
    if (command.serial != last_command_ + 1) {
      return corrupt(
          self_, cat("expected command ", last_command_ + 1, ", found command ", command.serial));
    }
    commands_.push_back(command);
    last_command_ = command.serial;
  }
  if (said_.size() != before) tell();
  return ok();
}

// A process never comes back as itself, so a command counts as obeyed from here on.
Result<std::optional<servers::HostCommand>> ClientLink::take_command() {
  const Numbered first = std::move(commands_.front());
  commands_.pop_front();
  const auto command = servers::decode_command(std::as_bytes(std::span(first.bytes)));
  if (!command.ok()) return command.error();
  report_.obeyed = first.serial;
  tell();
  return std::optional(command.value());
}

void ClientLink::say_to_host(const servers::HostReport& one) {
  said_.push_back({++last_said_, text_of(servers::encode_report(one))});
  tell();
}

void ClientLink::tell() {
  Report whole = report_;
  if (told_ != nullptr) {
    whole.term = told_->instruction.directive.term;
    whole.epoch = told_->instruction.directive.epoch;
  }
  const auto count = static_cast<std::ptrdiff_t>(std::min(said_.size(), kMostSaid));
  whole.said.assign(said_.begin(), said_.begin() + count);
  client_.report(std::move(whole));
}

}  // namespace tenuto
