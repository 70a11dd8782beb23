#include "parameter_server/forming_part.h"

#include <utility>

#include "base/text.h"

namespace tenuto::servers {

Status FormingPart::take(const PlacedMembers& placed) {
  placed_ = placed.members.epoch;
  is_reported_ = false;
  if (wire_ == nullptr) {
    report_if_placed();
    return ok();
  }
  if (replica_.value < 0 || replica_.value >= std::ssize(placed.members.replicas)) {
    return invalid(cat("the members of epoch ", placed_, " have no replica ", replica_));
  }
  Formation next = formation_of(placed, replica_, formation_);
  if (next != formation_) {
    formation_ = std::move(next);
    connects_ = is_connected_ = false;
    lost_.clear();
    lost_since_.reset();
    if (formation_.epoch == 0) {
      if (const Status ended = wire_->end(); !ended.ok()) return ended;
    } else {
      auto address = wire_->listen(formation_.epoch);
      if (!address.ok()) return address.error();
      reports_.push_back(FormingReport{formation_.epoch, std::move(address).value()});
    }
  }
  report_if_placed();
  return ok();
}

Status FormingPart::take(const FormCommand& command) {
  if (wire_ == nullptr || connects_ || command.epoch != formation_.epoch) return ok();
  connects_ = true;
  return wire_->connect(command.addresses);
}

Status FormingPart::advance(Duration now) {
  if (wire_ == nullptr || !connects_) return ok();
  if (!is_connected_) {
    const Result<bool> connected = wire_->go_on();
    if (!connected.ok()) return connected.error();
    is_connected_ = connected.value();
    report_if_placed();
  }
  for (const StageId stage : wire_->take_lost()) lost_.push_back(stage);
  if (lost_.empty()) return ok();
  if (!lost_since_) lost_since_ = now;
  if (now - *lost_since_ < kAnotherFormation) return ok();
  for (const StageId stage : std::exchange(lost_, {})) {
    reports_.push_back(LostReport{formation_.processes.at(static_cast<size_t>(stage.value))});
  }
  lost_since_.reset();
  return ok();
}

bool FormingPart::may_begin(const Work& work) const {
  if (wire_ == nullptr) return true;
  return is_connected_ && work.serial > serials_before(formation_.epoch);
}

void FormingPart::report_if_placed() {
  const bool has_all = wire_ == nullptr || formation_.epoch == 0 || is_connected_;
  if (is_reported_ || !has_all) return;
  is_reported_ = true;
  reports_.push_back(PlacedReport{placed_});
}

std::vector<HostReport> FormingPart::take_reports() { return std::exchange(reports_, {}); }

}  // namespace tenuto::servers
