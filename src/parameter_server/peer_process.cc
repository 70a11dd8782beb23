#include "parameter_server/peer_process.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "parameter_server/account.h"

namespace tenuto::servers {

namespace {

// Writes down each update that the store takes, and measures how long that lasts.
class WrittenStore : public ParameterStore {
 public:
  WrittenStore(PeerId keeper, std::unique_ptr<ParameterStore> store,
               std::shared_ptr<ApplyTimes> times,
               std::function<void(const std::string&)> write_down)
      : keeper_(keeper),
        store_(std::move(store)),
        times_(std::move(times)),
        write_down_(std::move(write_down)) {}

  void apply(const DecidedUpdate& update, std::span<const Payload> gradients) override {
    const Duration begun = monotonic_clock().now();
    store_->apply(update, gradients);
    const Duration ended = monotonic_clock().now();
    times_->add(update.update.version, ended - begun);
    if (!write_down_) return;
    write_down_(to_text(
        AppliedLine{keeper_, update.update.version, update.update.number, ended, update.works}));
  }
  Payload parameters() const override { return store_->parameters(); }
  Payload save() const override { return store_->save(); }
  Status load(const Payload& state) override { return store_->load(state); }

 private:
  PeerId keeper_;
  std::unique_ptr<ParameterStore> store_;
  std::shared_ptr<ApplyTimes> times_;
  std::function<void(const std::string&)> write_down_;
};

}  // namespace

PeerProcess::PeerProcess(PeerNet& net, PeerProcessSettings settings)
    : net_(net), settings_(std::move(settings)), tally_(Mass{settings_.decider.micros}) {}

// ---- members ---------------------------------------------------------------------------------

Status PeerProcess::place(const PlacedMembers& placed) {
  if (const Status fault = check(placed); !fault.ok()) return fault;
  if (placed.members.epoch <= placed_.members.epoch) {
    return invalid(cat("process ", settings_.self, " expected an epoch after ",
                       placed_.members.epoch, ", found ", placed.members.epoch));
  }
  for (const auto& [peer, process] : placed.places) {
    if (process == settings_.self || dropped_.count(process) > 0) continue;
    if (!opened_.insert(process).second) continue;
    if (const Status fault = net_.open(process); !fault.ok()) return fault;
  }
  if (const Status fault = make_peers(placed); !fault.ok()) return fault;
  placed_ = placed;
  return ok();
}

Status PeerProcess::make_peers(const PlacedMembers& placed) {
  const Membership& members = placed.members;
  const auto is_new_here = [&](PeerId peer) {
    const bool is_known = keepers_.count(peer) > 0 || parts_.count(peer) > 0;
    return !is_known && placed.places.at(peer) == settings_.self;
  };
  end_keepers(placed);
  for (const KeptRange& kept : members.ranges) {
    for (const PeerId keeper : kept.keepers) {
      if (!is_new_here(keeper)) continue;
      const Status fault = make_keeper(keeper, kept.range, members.epoch == 1);
      if (!fault.ok()) return fault;
    }
  }
  std::erase_if(parts_, [&](const auto& one) { return placed.places.count(one.first) == 0; });
  for (const std::vector<PeerId>& parts : members.replicas) {
    for (size_t stage = 0; stage < parts.size(); ++stage) {
      if (!is_new_here(parts[stage])) continue;
      const StageId own{static_cast<int32_t>(stage)};
      parts_.emplace(parts[stage], ReplicaPart(parts[stage], own));
    }
  }
  if (decider_ != nullptr || placed.places.at(members.decider) != settings_.self) return ok();
  DeciderStart start = settings_.decider;
  start.self = members.decider;
  auto made = Decider::make(start);
  if (!made.ok()) return made.error();
  decider_ = std::make_unique<Decider>(std::move(made).value());
  decider_id_ = start.self;
  return ok();
}

// Ends the keepers whose ranges were handed over.
void PeerProcess::end_keepers(const PlacedMembers& placed) {
  for (auto& [peer, keeper] : keepers_) {
    if (placed.places.count(peer) > 0) continue;
    while (std::optional<SavedState> one = keeper.take_saved()) {
      left_.push_back({keeper.range(), std::move(*one)});
    }
  }
  std::erase_if(keepers_, [&](const auto& one) { return placed.places.count(one.first) == 0; });
}

Status PeerProcess::make_keeper(PeerId peer, const ElementRange& range, bool is_filled) {
  if (!settings_.make_store) {
    return invalid(cat("process ", settings_.self, " is to keep elements ", range.begin, " to ",
                       range.end, " of stage ", range.stage,
                       ", and has nothing that makes them: expected another process"));
  }
  ShardStart start;
  start.self = peer;
  start.range = range;
  start.is_filled = is_filled;
  start.version = settings_.decider.record.version;
  start.tally = tally_of(settings_.decider.record);
  auto store = std::make_unique<WrittenStore>(peer, settings_.make_store(range), apply_times_,
                                              settings_.write_down);
  keepers_.emplace(peer, ServerShard(start, std::move(store)));
  return ok();
}

Status PeerProcess::install() {
  if (decider_ == nullptr) {
    return invalid(cat("process ", settings_.self, " has no decider that could begin epoch ",
                       placed_.members.epoch));
  }
  if (const Status fault = decider_->install(placed_.members); !fault.ok()) return fault;
  return after_decider();
}

void PeerProcess::lose(WorkerId process) {
  if (!dropped_.insert(process).second) return;
  if (opened_.count(process) > 0) net_.drop(process);
}

std::vector<WorkerId> PeerProcess::take_lost() { return std::exchange(lost_, {}); }

std::vector<PeerProcess::Saved> PeerProcess::take_saved(bool all_committed) {
  std::vector<Saved> all = std::exchange(left_, {});
  for (auto& [peer, keeper] : keepers_) {
    while (std::optional<SavedState> one = keeper.take_saved(all_committed)) {
      all.push_back({keeper.range(), std::move(*one)});
    }
  }
  return all;
}

// ---- messages --------------------------------------------------------------------------------

Status PeerProcess::wait(Duration limit) {
  if (window_end_) {
    limit = std::clamp(*window_end_ - monotonic_clock().now(), Duration{}, limit);
  }
  auto arrived = net_.wait(limit);
  if (!arrived.ok()) return arrived.error();
  for (const WorkerId process : arrived.value().lost) {
    if (dropped_.insert(process).second) lost_.push_back(process);
  }
  for (const PeerNet::Incoming& incoming : arrived.value().messages) {
    if (const Status fault = handle(incoming.message); !fault.ok()) return fault;
  }
  return close_window();
}

Status PeerProcess::handle(const Message& message) {
  const PeerId to = message.header.to;
  if (const auto keeper = keepers_.find(to); keeper != keepers_.end()) {
    if (const Status fault = keeper->second.handle(message); !fault.ok()) return fault;
    return post(keeper->second.take_messages());
  }
  if (const auto part = parts_.find(to); part != parts_.end()) {
    if (const Status fault = part->second.handle(message); !fault.ok()) return fault;
    return post(part->second.take_messages());
  }
  if (decider_ != nullptr && to == decider_id_) {
    if (const Status fault = decider_->handle(message); !fault.ok()) return fault;
    return after_decider();
  }
  ++refused_;
  return ok();
}

// Writes down what the decider has done, looks at its clock, and sends its messages.
Status PeerProcess::after_decider() {
  const int64_t epoch = decider_->membership().epoch, sequence = decider_->record().sequence;
  const bool is_ready = decider_->is_ready();
  if (is_ready) tally_.look(decider_->record());
  if (is_ready && decider_->record().filling.empty()) tally_.note_filled(epoch);
  std::vector<std::string> lines;
  if (is_ready && !has_begun_) {
    has_begun_ = true;
    lines.push_back(to_text(BegunLine{epoch, sequence}));
  }
  for (const DroppedWork& dropped : decider_->take_dropped()) {
    // Others get the micro-batches of a lost work.
    if (dropped.reason == DropReason::Lost) continue;
    // Before all have reported, the record that knows of it is the next one.
    lines.push_back(to_text(DroppedLine{epoch, sequence + (is_ready ? 0 : 1), dropped.work}));
  }
  for (const std::string& line : lines) {
    if (settings_.write_down) settings_.write_down(line);
  }
  if (const auto& window = decider_->window(); window && window->number != window_) {
    window_ = window->number;
    window_end_ = monotonic_clock().now() + window->length;
  }
  return post(decider_->take_messages());
}

// A peer that is no member any more, or whose process is lost, gets nothing.
Status PeerProcess::post(std::vector<Message> messages) {
  for (const Message& message : messages) {
    const auto place = placed_.places.find(message.header.to);
    if (place == placed_.places.end() || dropped_.count(place->second) > 0) continue;
    if (const Status fault = net_.send(place->second, message); !fault.ok()) return fault;
  }
  return ok();
}

Status PeerProcess::close_window() {
  if (!window_end_ || monotonic_clock().now() < *window_end_) return ok();
  window_end_.reset();
  decider_->close(window_);
  return after_decider();
}

// ---- the caller's side -----------------------------------------------------------------------

Status PeerProcess::offer(PeerId part, int64_t serial, std::vector<Payload> gradients) {
  const auto found = parts_.find(part);
  if (found == parts_.end()) {
    return invalid(cat("process ", settings_.self, " has no part ", part));
  }
  const Status offered = found->second.offer(serial, std::move(gradients));
  if (!offered.ok()) return offered;
  return post(found->second.take_messages());
}

Status PeerProcess::change(const SyncMode& mode) {
  if (decider_ == nullptr) {
    return invalid(cat("process ", settings_.self, " has no decider that could change the mode"));
  }
  if (const Status fault = decider_->change(mode); !fault.ok()) return fault;
  return after_decider();
}

Status PeerProcess::save() {
  if (decider_ == nullptr) {
    return invalid(cat("process ", settings_.self, " has no decider that could have states saved"));
  }
  decider_->save();
  return after_decider();
}

bool PeerProcess::has_committed_all() const {
  if (decider_ == nullptr || !decider_->is_ready()) return false;
  const Record& record = decider_->record();
  return record.committed == record.version && record.filling.empty();
}

bool PeerProcess::knows_save(Version save) const {
  return std::all_of(keepers_.begin(), keepers_.end(), [&](const auto& one) {
    return !one.second.is_filled() || one.second.knows_save(save);
  });
}

}  // namespace tenuto::servers
