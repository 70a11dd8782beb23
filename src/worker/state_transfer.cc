#include "worker/state_transfer.h"

#include <algorithm>
#include <span>

#include "base/text.h"
#include "runtime/tag.h"
#include "runtime/worker.h"

namespace tenuto {
namespace {

// The next part is twice as large if the last one arrived within this share of the time between two
// parts, otherwise half as large.
constexpr double kShare = 0.05;

template <class Form>
std::span<std::byte> bytes_of(Form& form) {
  return std::as_writable_bytes(std::span(&form, 1));
}

}  // namespace

Status StateTransfers::begin(const std::vector<Joiner>& joiners, const TransferMoment& time) {
  std::erase_if(transfers_, [&](const auto& each) {  // remove those of earlier plans
    const int64_t serial = std::get<int64_t>(each.first);
    const bool told = std::any_of(joiners.begin(), joiners.end(), [&](const Joiner& joiner) {
      return joiner.plan_serial == serial;
    });
    return !told && each.second.open.empty();
  });
  for (const Joiner& joiner : joiners) {
    if (joiner.plan_serial < 0 || joiner.plan_serial > time.plan_serial) continue;
    for (size_t i = 0; i < joiner.stages.size() && i < joiner.donors.size(); ++i) {
      const bool gives = joiner.donors[i] == time.self;
      if (!gives && joiner.worker != time.self) continue;
      if (!gives && joiner.plan_serial != receives_since_) {
        receives_since_ = joiner.plan_serial;
        received_ = -1;
      }
      Transfer& transfer = transfers_[{joiner.worker, joiner.stages[i], joiner.plan_serial}];
      if (transfer.over() && transfer.open.empty()) transfer.body = {};
      transfer.stage = joiner.stages[i];
      transfer.gives = gives;
      transfer.peer = gives ? joiner.worker : joiner.donors[i];
      transfer.due = !transfer.over();
    }
  }
  return advance(time);
}

Status StateTransfers::advance(const TransferMoment& time) {
  if (!failed_.ok()) return failed_;
  for (auto& [name, transfer] : transfers_) {
    if (!transfer.open.empty()) continue;
    Status done = ok();
    if (transfer.due) {
      done = transfer.gives ? give(transfer, time) : ask(transfer, time);
    } else if (!transfer.gives && transfer.head.version >= 0) {
      done = take(transfer, time);
    }
    if (!done.ok()) return done;
  }
  const bool all = std::all_of(transfers_.begin(), transfers_.end(), [](const auto& each) {
    return each.second.gives || each.second.over();
  });
  const bool receives = std::any_of(transfers_.begin(), transfers_.end(),
                                    [](const auto& each) { return !each.second.gives; });
  if (receives && all && received_ < 0) received_ = time.version;
  return ok();
}

bool StateTransfers::ready() const {
  return std::all_of(transfers_.begin(), transfers_.end(), [](const auto& each) {
    const Transfer& transfer = each.second;
    return !transfer.due && (transfer.gives || transfer.open.empty());
  });
}

// Sends a copy of the part, so that only the joiner has to wait until it has arrived.
Status StateTransfers::give(Transfer& transfer, const TransferMoment& time) {
  transfer.due = false;
  transfer.total = time.state->state_bytes(transfer.stage);
  if (transfer.portion == 0) transfer.portion = sizes_.first;
  const Duration most(
      static_cast<int64_t>(kShare * static_cast<double>((time.now - transfer.since).count())));
  if (transfer.next > 0) {
    transfer.portion = transfer.took <= most ? std::min(sizes_.most, transfer.portion * 2)
                                             : std::max(sizes_.least, transfer.portion / 2);
  }
  transfer.since = time.now;
  const int64_t unit = time.state->state_unit(transfer.stage);
  const int64_t whole = std::max(unit, transfer.portion / unit * unit);
  transfer.head = {time.version, transfer.next, std::min(whole, transfer.total - transfer.next),
                   transfer.total, time.voids};
  transfer.body.resize(static_cast<size_t>(transfer.head.size));
  const Status copied = time.state->read_state(transfer.stage, transfer.next, transfer.body);
  if (!copied.ok()) return copied;
  transfer.next += transfer.head.size;
  transfer.begun = time.now;
  const auto send = [&](bool body, std::span<const std::byte> bytes) {
    const Ticket ticket = fresh_ticket();
    transfer.open.insert(ticket);
    return time.transport->send(transfer.peer,
                                tag_of_transfer(transfer.stage, body, time.epoch, time.version),
                                bytes, Stamp{}, ticket);
  };
  if (Status head = send(false, bytes_of(transfer.head)); !head.ok()) return head;
  return send(true, transfer.body);
}

// Receives the head first: it tells how much follows.
Status StateTransfers::ask(Transfer& transfer, const TransferMoment& time) {
  transfer.due = transfer.in_body = false;
  transfer.head = {.version = time.version};
  const Ticket ticket = fresh_ticket();
  transfer.open.insert(ticket);
  return time.transport->recv(transfer.peer,
                              tag_of_transfer(transfer.stage, false, time.epoch, time.version),
                              bytes_of(transfer.head), ticket);
}

Status StateTransfers::take(Transfer& transfer, const TransferMoment& time) {
  const Head& head = transfer.head;
  if (!transfer.in_body) {
    const int64_t total = time.state->state_bytes(transfer.stage);
    if (head.version != time.version || head.first != transfer.next || head.total != total ||
        head.size <= 0 || head.size > total - head.first ||
        head.size % time.state->state_unit(transfer.stage) != 0) {
      return Error{Code::Corrupt, Reach::Job,
                   cat("worker ", transfer.peer, " gives bytes ", head.first, " to ",
                       head.first + head.size, " of ", head.total, " of stage ", transfer.stage,
                       ", version ", head.version, ": expected those from ", transfer.next,
                       " on of ", total, ", version ", time.version)};
    }
    transfer.in_body = true;
    transfer.body.resize(static_cast<size_t>(head.size));
    const Ticket ticket = fresh_ticket();
    transfer.open.insert(ticket);
    return time.transport->recv(transfer.peer,
                                tag_of_transfer(transfer.stage, true, time.epoch, time.version),
                                transfer.body, ticket);
  }
  const Status written = time.state->write_state(transfer.stage, head.first, transfer.body);
  if (!written.ok()) return written;
  voids_ = head.voids;
  transfer.next = head.first + head.size;
  transfer.total = head.total;
  transfer.head = {};
  return ok();
}

bool StateTransfers::note(const Done& done, Duration now) {
  if (done.ticket == kNoTicket) return false;
  for (auto& [name, transfer] : transfers_) {
    if (transfer.open.erase(done.ticket) == 0) continue;
    if (!done.status.ok() && !transfer.gives) failed_ = done.status;
    if (transfer.open.empty()) transfer.took = now - transfer.begun;
    return true;
  }
  return false;
}

void StateTransfers::start_over() {
  transfers_.clear();
  received_ = receives_since_ = -1;
  failed_ = ok();
}

}  // namespace tenuto
