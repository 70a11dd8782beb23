#include "parameter_server/connect.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace tenuto::servers {

void Connections::add(WorkerId process) {
  CHECK(started_.empty() || started_.back().process < process,
        cat("expected a process after ", started_.back().process, ", found ", process));
  started_.push_back({process, {}, false});
}

void Connections::set_address(WorkerId process, const std::string& address) {
  for (Started& one : started_) {
    if (one.process == process) one.address = address;
  }
}

void Connections::lose(WorkerId process) {
  std::erase_if(started_, [&](const Started& one) { return one.process == process; });
}

std::vector<Connections::Task> Connections::take_tasks() {
  std::vector<Task> tasks;
  ConnectCommand command;
  for (Started& one : started_) {
    if (one.address.empty()) break;
    if (!one.is_told) tasks.push_back({one.process, command});
    one.is_told = true;
    command.processes.push_back({one.process, one.address});
  }
  return tasks;
}

bool Connections::was_told(WorkerId process) const {
  return std::any_of(started_.begin(), started_.end(),
                     [&](const Started& one) { return one.process == process && one.is_told; });
}

Status connect(Transport& transport, Mailbox& mailbox, const std::vector<ProcessAddress>& processes,
               Duration limit) {
  uint64_t asked = 0;
  for (const ProcessAddress& one : processes) {
    const Status begun = transport.connect(one.process, {one.address}, Ticket{++asked});
    if (!begun.ok()) return begun;
  }
  while (asked > 0) {
    const auto done = mailbox.wait(limit);
    if (!done.ok()) return done.error();
    if (done.value().ticket != kNoTicket) --asked;
  }
  return ok();
}

}  // namespace tenuto::servers
