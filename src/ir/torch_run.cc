#include "ir/torch_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// An op without its peer: what the dry run remembers of what a rank has done.
Op unaddressed(OpKind kind, StageId stage, MicroId micro, ValueKind moved = ValueKind::None) {
  Op op;
  op.kind = kind;
  op.moved = moved;
  op.stage = stage;
  op.micro = micro;
  return op;
}

// The cell of an op; a message is named by the stage that sends or receives it.
std::string cell(const Op& op) {
  const bool forward = op.moved == ValueKind::Activation;
  switch (op.kind) {
    case OpKind::Forward:
      return cat(op.stage, "F", op.micro);
    case OpKind::BackwardInput:
      return cat(op.stage, "I", op.micro);
    case OpKind::BackwardWeight:
      return cat(op.stage, "W", op.micro);
    case OpKind::Send:
      return cat(op.stage, forward ? "SEND_F" : "SEND_B", op.micro);
    default:
      return cat(op.stage.value + (forward ? 1 : -1), forward ? "RECV_F" : "RECV_B", op.micro);
  }
}

// Every rank issues its list from the front, each op once it is ready.
class DryRun {
 public:
  explicit DryRun(const Schedule& schedule)
      : schedule_(schedule),
        ranks_(at(schedule.stage_count)),
        done_(schedule.lists.size()),
        next_(schedule.lists.size(), 0) {
    for (size_t rank = schedule.lists.size(); rank-- > 0;) {
      for (const Op& op : schedule.lists[rank]) {
        if (!is_message(op)) ranks_[at(op.stage.value)] = rank;
      }
    }
  }

  // Empty when every list comes to its end, else which rank is stuck at which cell.
  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        while (front(rank) != nullptr && !wanted(*front(rank))) {
          const Op& op = *front(rank);
          done_[rank].insert(unaddressed(op.kind, op.stage, op.micro, op.moved));
          ++next_[rank];
          moved = true;
        }
      }
    }
    return standing();
  }

 private:
  const Op* front(size_t rank) const {
    const auto& list = schedule_.lists[rank];
    return next_[rank] < list.size() ? &list[next_[rank]] : nullptr;
  }

  bool has(StageId stage, const Op& op) const {
    return done_[ranks_[at(stage.value)]].contains(op);
  }

  // The op that this op waits for (the receive, if a local op would do too); none if it is ready.
  std::optional<Op> wanted(const Op& op) const {
    const StageId before{op.stage.value - 1}, behind{op.stage.value + 1};
    const auto unless = [](bool there, const Op& missing) {
      return there ? std::nullopt : std::optional(missing);
    };
    switch (op.kind) {
      case OpKind::Forward: {
        if (before.value < 0) return std::nullopt;
        const Op received = unaddressed(OpKind::Recv, before, op.micro, ValueKind::Activation);
        const Op made = unaddressed(OpKind::Forward, before, op.micro);
        return unless(has(op.stage, received) || has(op.stage, made), received);
      }
      case OpKind::BackwardInput: {
        if (behind.value >= schedule_.stage_count) return std::nullopt;
        const Op received = unaddressed(OpKind::Recv, behind, op.micro, ValueKind::Gradient);
        const Op made = unaddressed(OpKind::BackwardInput, behind, op.micro);
        return unless(has(op.stage, received) || has(op.stage, made), received);
      }
      case OpKind::Send: {
        const bool forward = op.moved == ValueKind::Activation;
        const Op made =
            unaddressed(forward ? OpKind::Forward : OpKind::BackwardInput, op.stage, op.micro);
        return unless(has(op.stage, made), made);
      }
      case OpKind::Recv: {
        const Op sent = unaddressed(OpKind::Send, op.stage, op.micro, op.moved);
        return unless(has(op.stage, sent), sent);
      }
      default:
        return std::nullopt;
    }
  }

  std::string standing() const {
    constexpr int kMost = 3;
    std::string all;
    int count = 0;
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (front(rank) == nullptr) continue;
      if (++count > kMost) continue;
      all += cat(count > 1 ? "; " : "", "rank ", rank, " stands at ", cell(*front(rank)),
                 ", which waits for ", cell(*wanted(*front(rank))));
    }
    return count > kMost ? cat(all, "; and ", count - kMost, " more") : all;
  }

  const Schedule& schedule_;
  std::vector<size_t> ranks_;       // of each stage
  std::vector<std::set<Op>> done_;  // by each rank
  std::vector<size_t> next_;
};

// Where the messages from one rank to another are not received in the order of sending; empty when
// they all are.
std::string mixed_up(const Schedule& schedule) {
  std::map<std::pair<size_t, size_t>, std::vector<Op>> sent, received;
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    for (const Op& op : schedule.lists[rank]) {
      const size_t peer = at(op.peer.value);
      if (op.kind == OpKind::Send) sent[{rank, peer}].push_back(op);
      if (op.kind == OpKind::Recv) received[{peer, rank}].push_back(op);
    }
  }
  for (const auto& [ends, sends] : sent) {
    const auto found = received.find(ends);
    if (found == received.end()) continue;
    for (size_t i = 0; i < std::min(sends.size(), found->second.size()); ++i) {
      const Op &send = sends[i], &receive = found->second[i];
      if (moved_value(send) == moved_value(receive)) continue;
      return cat("message ", i + 1, " from rank ", ends.first, " to rank ", ends.second,
                 " is sent by ", cell(send), " and taken by ", cell(receive));
    }
  }
  return {};
}

}  // namespace

const char* name_of(TorchEnding ending) {
  switch (ending) {
    case TorchEnding::Runs:
      return "runs";
    case TorchEnding::Hangs:
      return "hangs";
    case TorchEnding::MixesUp:
      return "mixes-up";
    default:
      return "not-taken";
  }
}

TorchRun torch_run(const Schedule& schedule) {
  constexpr const char* kMend =
      "tenuto schedule convert FILE --to csv-comms places the messages in an order that both run";
  if (const std::string standing = DryRun(schedule).run(); !standing.empty()) {
    return {TorchEnding::Hangs,
            cat("hangs, by its own dry run, because a rank takes its cells one after the other: ",
                standing, ". ", kMend)};
  }
  if (const std::string mixed = mixed_up(schedule); !mixed.empty()) {
    return {TorchEnding::MixesUp,
            cat("gets wrong values, because two ranks match messages by their order and not by "
                "name: ",
                mixed, ". ", kMend)};
  }
  return {TorchEnding::Runs,
          "runs it: its dry run comes to the end, and messages are taken in the order of sending"};
}

}  // namespace tenuto
