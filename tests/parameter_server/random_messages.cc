#include "random_messages.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ir/sync_mode.h"

namespace tenuto::servers {

namespace {

constexpr int64_t kMostItems = 3;

// Draws values of all types, one after the other.
class Drawing {
 public:
  Drawing(Random& random, int64_t most_payload) : random_(random), most_payload_(most_payload) {}

  void draw(int64_t& number) { number = static_cast<int64_t>(random_.next()); }
  void draw(uint64_t& number) { number = random_.next(); }
  void draw(int32_t& number) { number = static_cast<int32_t>(random_.next()); }
  void draw(double& number) { number = random_.uniform(); }
  void draw(bool& flag) { flag = random_.below(2) == 1; }
  void draw(Duration& duration) { duration = Duration(static_cast<int64_t>(random_.next())); }
  void draw(SyncKind& kind) { kind = static_cast<SyncKind>(random_.below(8)); }
  void draw(Mass& mass) { draw(mass.micros); }
  void draw(Tally& tally) { draw(tally.updates, tally.applied, tally.digest); }
  void draw(Payload& payload) {
    payload = random_payload(random_, random_.below(most_payload_ + 1));
  }
  template <class Tag>
  void draw(Id<Tag>& id) {
    draw(id.value);
  }
  template <class Tag>
  void draw(Count<Tag>& count) {
    draw(count.value);
  }
  template <class Item>
  void draw(std::vector<Item>& items) {
    items.resize(static_cast<size_t>(random_.below(kMostItems + 1)));
    for (Item& item : items) draw(item);
  }
  template <class Item>
  void draw(std::optional<Item>& item) {
    if (random_.below(2) == 1) draw(item.emplace());
  }
  template <class First, class Second, class... Others>
  void draw(First& first, Second& second, Others&... others) {
    draw(first);
    draw(second, others...);
  }

  void draw(ElementRange& range) { draw(range.stage, range.begin, range.end); }
  void draw(MicroRange& range) { draw(range.stream, range.begin, range.end); }
  void draw(Offer& offer) { draw(offer.replica, offer.iteration, offer.version, offer.mass); }
  void draw(Update& update) { draw(update.number, update.version, update.members, update.parents); }
  void draw(SyncMode& mode) {
    draw(mode.kind, mode.count, mode.window, mode.groups, mode.parents, mode.shares, mode.bound);
    draw(mode.local_steps, mode.outer.rate, mode.outer.momentum);
  }
  void draw(Work& work) {
    draw(work.serial, work.offer, work.local_steps, work.micros, work.applied);
    if (work.local_steps > 1) draw(work.outer.rate, work.outer.momentum);
  }
  void draw(KeptRange& kept) { draw(kept.range, kept.keepers); }
  void draw(OpenWork& open) { draw(open.work, open.read, open.offered); }
  void draw(DecidedUpdate& decided) { draw(decided.update, decided.works); }
  void draw(Stream& stream) { draw(stream.next, stream.fresh); }
  void draw(Membership& members) {
    draw(members.epoch, members.decider, members.ranges, members.replicas);
  }
  void draw(Record& record) {
    draw(record.sequence, record.mode, record.version, record.committed, record.updates_decided);
    draw(record.last_serial, record.streams, record.returned, record.open, record.updates);
    draw(record.filling, record.applied, record.dropped, record.save, record.save_mass);
    draw(record.digest);
  }
  void draw(KeptVersion& kept) { draw(kept.version, kept.payload); }
  void draw(KeptGradient& kept) { draw(kept.serial, kept.version, kept.payload); }
  void draw(Header& header) { draw(header.epoch, header.from, header.to, header.version); }

  void draw(Enter& body) { draw(body.membership); }
  void draw(KeeperReport& body) { draw(body.is_filled, body.record, body.stored); }
  void draw(PartReport&) {}
  void draw(Assign& body) { draw(body.work, body.have, body.parent); }
  void draw(Fetch&) {}
  void draw(Parameters& body) { draw(body.payload); }
  void draw(Read& body) { draw(body.serial); }
  void draw(Gradient& body) { draw(body.serial, body.payload); }
  void draw(Stored& body) { draw(body.serial); }
  void draw(Applied&) {}
  void draw(Fill& body) { draw(body.state, body.versions, body.gradients, body.tally); }
  void draw(Relayed& body) { draw(body.serial, body.range, body.keepers, body.payload); }

  template <size_t kKind = 0>
  void draw_body(Message& message, size_t kind) {
    if constexpr (kKind < kMessageKinds) {
      if (kind == kKind) return draw(message.body.emplace<kKind>());
      draw_body<kKind + 1>(message, kind);
    }
  }

 private:
  Random& random_;
  int64_t most_payload_;
};

bool same_bytes(const Payload& left, const Payload& right) {
  return left != nullptr && right != nullptr && *left == *right;
}

// Compares two bodies.
struct Sameness {
  bool operator()(const Enter& left, const Enter& right) const {
    return left.membership == right.membership;
  }
  bool operator()(const KeeperReport& left, const KeeperReport& right) const {
    return left.is_filled == right.is_filled && left.record == right.record &&
           left.stored == right.stored;
  }
  bool operator()(const PartReport&, const PartReport&) const { return true; }
  bool operator()(const Record& left, const Record& right) const { return left == right; }
  bool operator()(const Assign& left, const Assign& right) const {
    return left.work == right.work && left.have == right.have && left.parent == right.parent;
  }
  bool operator()(const Fetch&, const Fetch&) const { return true; }
  bool operator()(const Parameters& left, const Parameters& right) const {
    return same_bytes(left.payload, right.payload);
  }
  bool operator()(const Read& left, const Read& right) const { return left.serial == right.serial; }
  bool operator()(const Gradient& left, const Gradient& right) const {
    return left.serial == right.serial && same_bytes(left.payload, right.payload);
  }
  bool operator()(const Stored& left, const Stored& right) const {
    return left.serial == right.serial;
  }
  bool operator()(const Applied&, const Applied&) const { return true; }
  bool operator()(const Relayed& left, const Relayed& right) const {
    return left.serial == right.serial && left.range == right.range &&
           left.keepers == right.keepers && same_bytes(left.payload, right.payload);
  }
  bool operator()(const Fill& left, const Fill& right) const {
    bool same = same_bytes(left.state, right.state) && left.tally == right.tally &&
                left.versions.size() == right.versions.size() &&
                left.gradients.size() == right.gradients.size();
    for (size_t i = 0; same && i < left.versions.size(); ++i) {
      same = left.versions[i].version == right.versions[i].version &&
             same_bytes(left.versions[i].payload, right.versions[i].payload);
    }
    for (size_t i = 0; same && i < left.gradients.size(); ++i) {
      same = left.gradients[i].serial == right.gradients[i].serial &&
             left.gradients[i].version == right.gradients[i].version &&
             same_bytes(left.gradients[i].payload, right.gradients[i].payload);
    }
    return same;
  }
  template <class Left, class Right>
  bool operator()(const Left&, const Right&) const {
    return false;
  }
};

}  // namespace

Payload random_payload(Random& random, int64_t size) {
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes->size(); i += sizeof(uint64_t)) {
    const uint64_t word = random.next();
    std::memcpy(bytes->data() + i, &word, std::min(sizeof(word), bytes->size() - i));
  }
  return bytes;
}

Message random_message(Random& random, size_t kind, int64_t most_payload) {
  Drawing drawing(random, most_payload);
  Message message;
  drawing.draw(message.header);
  drawing.draw_body(message, kind);
  return message;
}

// Lists of 4 bytes an item, in messages whose other bytes are of each remainder by 4.
Message message_with_head(int64_t size) {
  Message message;
  if (size % 4 == 0) {
    KeeperReport body;
    body.record.filling.resize(static_cast<size_t>(size - 176) / 4);
    message.body = std::move(body);
  } else if (size % 4 == 1) {
    Enter body;
    body.membership.replicas.resize(static_cast<size_t>(size - 45) / 4);
    message.body = std::move(body);
  } else if (size % 4 == 2) {
    KeeperReport body;
    body.record.open.resize(1);  // an open work has 54 bytes
    body.record.filling.resize(static_cast<size_t>(size - 230) / 4);
    message.body = std::move(body);
  } else {
    Record body;
    body.filling.resize(static_cast<size_t>(size - 171) / 4);
    message.body = std::move(body);
  }
  return message;
}

bool are_same(const Message& left, const Message& right) {
  return left.header.epoch == right.header.epoch && left.header.from == right.header.from &&
         left.header.to == right.header.to && left.header.version == right.header.version &&
         std::visit(Sameness{}, left.body, right.body);
}

}  // namespace tenuto::servers
