#include "parameter_server/message_bytes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/text.h"
#include "ir/sync_mode.h"
#include "parameter_server/message_members.h"
#include "transport/bytes.h"

namespace tenuto::servers {

namespace {

constexpr auto kLastSyncKind = static_cast<uint8_t>(SyncKind::Rebalanced);

// ---- what is in a message ----------------------------------------------------------------------

// Those of the values below; those of plain values are in message_members.h.
template <class Form, Is<Work> T>
void members(Form& form, T& work) {
  form(work.serial, work.offer, work.local_steps, work.micros, work.applied);
  // Without local steps there is no outer step.
  if (work.local_steps > 1) form(work.outer);
}

template <class Form, Is<KeptRange> T>
void members(Form& form, T& kept) {
  form(kept.range, kept.keepers);
}

template <class Form, Is<Membership> T>
void members(Form& form, T& membership) {
  form(membership.epoch, membership.decider, membership.ranges, membership.replicas);
}

template <class Form, Is<OpenWork> T>
void members(Form& form, T& open) {
  form(open.work, open.read, open.offered);
}

template <class Form, Is<DecidedUpdate> T>
void members(Form& form, T& decided) {
  form(decided.update, decided.works);
}

template <class Form, Is<Stream> T>
void members(Form& form, T& stream) {
  form(stream.next, stream.fresh);
}

template <class Form, Is<Record> T>
void members(Form& form, T& record) {
  form(record.sequence, record.mode, record.version, record.committed, record.updates_decided,
       record.last_serial, record.streams, record.returned, record.open, record.updates,
       record.filling, record.applied, record.dropped, record.save, record.save_mass,
       record.digest);
}

template <class Form, Is<Enter> T>
void members(Form& form, T& enter) {
  form(enter.membership);
}

template <class Form, Is<KeeperReport> T>
void members(Form& form, T& report) {
  form(report.is_filled, report.record, report.stored);
}

template <class Form, Is<Assign> T>
void members(Form& form, T& assign) {
  form(assign.work, assign.have, assign.parent);
}

template <class Form, Is<Parameters> T>
void members(Form& form, T& parameters) {
  form(parameters.payload);
}

template <class Form, Is<Read> T>
void members(Form& form, T& read) {
  form(read.serial);
}

template <class Form, Is<Gradient> T>
void members(Form& form, T& gradient) {
  form(gradient.serial, gradient.payload);
}

template <class Form, Is<Stored> T>
void members(Form& form, T& stored) {
  form(stored.serial);
}

template <class Form, Is<KeptGradient> T>
void members(Form& form, T& kept) {
  form(kept.serial, kept.version, kept.payload);
}

template <class Form, Is<KeptVersion> T>
void members(Form& form, T& kept) {
  form(kept.version, kept.payload);
}

template <class Form, Is<Fill> T>
void members(Form& form, T& fill) {
  form(fill.state, fill.versions, fill.gradients, fill.tally);
}

template <class Form, Is<Relayed> T>
void members(Form& form, T& relayed) {
  form(relayed.serial, relayed.range, relayed.keepers, relayed.payload);
}

template <class Form, Is<Header> T>
void members(Form& form, T& header) {
  form(header.epoch, header.from, header.to, header.version);
}

template <class Form, Is<Message> T>
void members(Form& form, T& message) {
  form(message.header, message.body);
}

template <class Form, Is<IterationTime> T>
void members(Form& form, T& time) {
  form(time.compute, time.transfer);
}

template <class Form, Is<MeasuredIteration> T>
void members(Form& form, T& iteration) {
  form(iteration.replica, iteration.time, iteration.share, iteration.loss, iteration.receive,
       iteration.processor);
}

template <class Form, Is<ProcessAddress> T>
void members(Form& form, T& one) {
  form(one.process, one.address);
}

template <class Form, Is<PlacedMembers> T>
void members(Form& form, T& placed) {
  form(placed.members, placed.places);
}

template <class Form, Is<ConnectCommand> T>
void members(Form& form, T& command) {
  form(command.processes);
}

template <class Form, Is<BeginCommand> T>
void members(Form& form, T& command) {
  form(command.moment);
}

template <class Form, Is<MembersCommand> T>
void members(Form& form, T& command) {
  form(command.placed);
}

template <class Form, Is<LostCommand> T>
void members(Form& form, T& command) {
  form(command.process);
}

template <class Form, Is<MeasuredCommand> T>
void members(Form& form, T& command) {
  form(command.iteration);
}

template <class Form, Is<ModeCommand> T>
void members(Form& form, T& command) {
  form(command.mode);
}

template <class Form, Is<FormCommand> T>
void members(Form& form, T& command) {
  form(command.epoch, command.addresses);
}

template <class Form, Is<AskReport> T>
void members(Form& form, T& report) {
  form(report.mode, report.gain);
}

template <class Form, Is<FormingReport> T>
void members(Form& form, T& report) {
  form(report.epoch, report.address);
}

template <class Form, Is<ListeningReport> T>
void members(Form& form, T& report) {
  form(report.address, report.host, report.port);
}

template <class Form, Is<PlacedReport> T>
void members(Form& form, T& report) {
  form(report.epoch);
}

template <class Form, Is<MeasuredReport> T>
void members(Form& form, T& report) {
  form(report.iteration);
}

template <class Form, Is<ModeReport> T>
void members(Form& form, T& report) {
  form(report.mode, report.reason, report.version, report.alternatives);
}

template <class Form, Is<StateReport> T>
void members(Form& form, T& report) {
  form(report.keeper, report.version, report.is_filled, report.tally);
}

template <class Form, Is<FinishedReport> T>
void members(Form& form, T& report) {
  form(report.has_decider, report.decided, report.save);
}

template <class Form, Is<FinishCommand> T>
void members(Form& form, T& command) {
  form(command.save);
}

template <class Form, Is<LostReport> T>
void members(Form& form, T& report) {
  form(report.process);
}

template <class Form, Is<FailedReport> T>
void members(Form& form, T& report) {
  form(report.why);
}

template <class Form, Is<CommittedReport> T>
void members(Form& form, T& report) {
  form(report.version, report.applied, report.dropped, report.age, report.works, report.mode,
       report.filled, report.kappa);
}

template <class Form, Is<ValidatedReport> T>
void members(Form& form, T& report) {
  form(report.replica, report.step, report.loss_sum, report.micros, report.accuracy_sum);
}

template <class Form, Is<SavedFile> T>
void members(Form& form, T& file) {
  form(file.name, file.bytes, file.checksum);
}

template <class Form, Is<SavedReport> T>
void members(Form& form, T& report) {
  form(report.range, report.version, report.mass, report.files, report.tally, report.has_record,
       report.decided);
}

// ---- to bytes ----------------------------------------------------------------------------------

// The most items that a list of these has. More are not written.
template <class Item>
constexpr size_t most_items() {
  const bool is_short = std::is_same_v<Item, ModeAlternative>;
  return is_short ? kMostAlternatives : std::numeric_limits<size_t>::max();
}

class Writer {
 public:
  template <class... Values>
  void operator()(const Values&... values) {
    (write(values), ...);
  }

  EncodedMessage take() {
    const std::string text = bytes_.take();
    const auto bytes = std::as_bytes(std::span(text));
    return {{bytes.begin(), bytes.end()}, std::move(payloads_)};
  }

 private:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void write(const Number& number) { bytes_.number(number); }

  void write(const bool& flag) { write(static_cast<uint8_t>(flag ? 1 : 0)); }

  void write(const SyncKind& kind) { write(static_cast<uint8_t>(kind)); }

  void write(const Duration& duration) { write(int64_t{duration.count()}); }

  template <class Tag>
  void write(const Id<Tag>& id) {
    write(id.value);
  }

  template <class Tag>
  void write(const Count<Tag>& count) {
    write(count.value);
  }

  template <class Item>
  void write(const std::vector<Item>& items) {
    const size_t count = std::min(items.size(), most_items<Item>());
    write(static_cast<uint32_t>(count));
    for (size_t i = 0; i < count; ++i) write(items[i]);
  }

  template <class Item>
  void write(const std::optional<Item>& item) {
    write(item.has_value());
    if (item) write(*item);
  }

  void write(const Payload& payload) {
    write(size_of(payload).count);
    static const Payload kNothing = std::make_shared<const std::vector<std::byte>>();
    payloads_.push_back(payload == nullptr ? kNothing : payload);
  }

  void write(const std::string& text) { bytes_.text(text); }

  template <class Key, class Value>
  void write(const std::map<Key, Value>& items) {
    write(static_cast<uint32_t>(items.size()));
    for (const auto& [key, value] : items) {
      write(key);
      write(value);
    }
  }

  template <class... Bodies>
  void write(const std::variant<Bodies...>& body) {
    write(static_cast<uint8_t>(body.index()));
    std::visit([this](const auto& one) { this->write(one); }, body);
  }

  template <class Struct>
  requires std::is_class_v<Struct>
  void write(const Struct& value) { members(*this, value); }

  ByteWriter bytes_;
  std::vector<Payload> payloads_;
};

// The bytes of an item whose lists are empty: no item has fewer.
template <class Item>
size_t least_size() {
  static const size_t size = [] {
    Writer writer;
    writer(Item{});
    return writer.take().head.size();
  }();
  return size;
}

// ---- from bytes --------------------------------------------------------------------------------

// Reads bytes that may be anything. After the first fault nothing more is read.
class Reader {
 public:
  Reader(std::span<const std::byte> head, std::vector<Payload> payloads)
      : size_(head.size()), bytes_(head), payloads_(std::move(payloads)) {}

  template <class... Values>
  void operator()(Values&... values) {
    (read(values), ...);
  }

  // Of the payloads that the head names.
  const std::vector<int64_t>& sizes() const { return sizes_; }

  // Whether the bytes were a message, and nothing else.
  Status verdict() {
    if (fault_.empty() && bytes_.left() > 0) fail("the end", cat(bytes_.left(), " bytes more"));
    if (fault_.empty()) return ok();
    return Error{Code::Corrupt, Reach::Worker,
                 cat("a message of server shards is damaged: ", fault_,
                     ": start all processes from the same build")};
  }

 private:
  void fail(const std::string& expected, const std::string& found) {
    if (!fault_.empty()) return;
    fault_ = cat("expected ", expected, " at byte ", at_, " of ", size_, ", found ", found);
  }

  // The next number; 0 after a fault.
  template <class Number>
  Number next() {
    if (!fault_.empty()) return Number{};
    at_ = size_ - bytes_.left();
    if (bytes_.left() < sizeof(Number)) {
      fail(cat(sizeof(Number), " bytes"), cat(bytes_.left()));
      return Number{};
    }
    return bytes_.number<Number>();
  }

  template <class Number>
  requires std::is_arithmetic_v<Number>
  void read(Number& number) { number = next<Number>(); }

  void read(bool& flag) {
    const auto byte = next<uint8_t>();
    if (byte > 1) fail("0 or 1", cat(byte));
    flag = byte == 1;
  }

  void read(SyncKind& kind) {
    const auto byte = next<uint8_t>();
    if (byte > kLastSyncKind) return fail(cat("a sync mode from 0 to ", kLastSyncKind), cat(byte));
    kind = static_cast<SyncKind>(byte);
  }

  void read(Duration& duration) { duration = Duration(next<int64_t>()); }

  template <class Tag>
  void read(Id<Tag>& id) {
    read(id.value);
  }

  template <class Tag>
  void read(Count<Tag>& count) {
    read(count.value);
  }

  template <class Item>
  void read(std::vector<Item>& items) {
    const auto count = next<uint32_t>();
    const size_t most = std::min(bytes_.left() / least_size<Item>(), most_items<Item>());
    if (count > most) return fail(cat("at most ", most, " items"), cat(count));
    items.resize(count);
    for (Item& item : items) read(item);
  }

  template <class Item>
  void read(std::optional<Item>& item) {
    bool is_there = false;
    read(is_there);
    if (is_there) read(item.emplace());
  }

  void read(Payload& payload) {
    const auto size = next<int64_t>();
    if (size < 0) return fail("the size of a payload", cat(size));
    if (sizes_.size() < payloads_.size()) payload = std::move(payloads_[sizes_.size()]);
    sizes_.push_back(size);
  }

  void read(std::string& text) {
    const auto size = next<uint16_t>();
    const size_t most = std::min(bytes_.left(), kFrameText);
    if (size > most) return fail(cat("a text of at most ", most, " bytes"), cat(size));
    text.resize(size);
    for (char& letter : text) read(letter);
  }

  // Keys rise, so that the same items always have the same bytes.
  template <class Key, class Value>
  void read(std::map<Key, Value>& items) {
    const auto count = next<uint32_t>();
    const size_t most = bytes_.left() / (least_size<Key>() + least_size<Value>());
    if (count > most) return fail(cat("at most ", most, " items"), cat(count));
    for (uint32_t i = 0; i < count; ++i) {
      Key key;
      read(key);
      if (!items.empty() && key <= items.rbegin()->first) {
        return fail("items in rising order", "one that does not rise");
      }
      read(items[key]);
    }
  }

  template <class... Bodies>
  void read(std::variant<Bodies...>& body) {
    constexpr size_t kKinds = sizeof...(Bodies);
    const size_t kind = next<uint8_t>();
    if (kind >= kKinds) return fail(cat("a kind of message from 0 to ", kKinds - 1), cat(kind));
    read_body(kind, body);
  }

  template <size_t kKind = 0, class... Bodies>
  void read_body(size_t kind, std::variant<Bodies...>& body) {
    if constexpr (kKind < sizeof...(Bodies)) {
      if (kind == kKind) return read(body.template emplace<kKind>());
      read_body<kKind + 1>(kind, body);
    }
  }

  template <class Struct>
  requires std::is_class_v<Struct>
  void read(Struct& value) { members(*this, value); }

  size_t size_;
  ByteReader bytes_;
  std::vector<Payload> payloads_;
  std::vector<int64_t> sizes_;
  size_t at_ = 0;      // where the number began that was read last
  std::string fault_;  // the first; empty = none
};

// Reads a head, with the payloads that are here.
template <class Value>
Status read_head(std::span<const std::byte> head, Reader& reader, Value& value) {
  if (std::ssize(head) > kLargestHead) {
    return Error{Code::Corrupt, Reach::Worker,
                 cat("a message of server shards is damaged: expected at most ", kLargestHead,
                     " bytes, found ", head.size(), ": start all processes from the same build")};
  }
  reader(value);
  return reader.verdict();
}

// The whole value, which has no payloads.
template <class Value>
Result<Value> read_all_of(std::span<const std::byte> bytes) {
  Reader reader(bytes, {});
  Value value;
  if (const Status status = read_head(bytes, reader, value); !status.ok()) return status.error();
  return value;
}

template <class Value>
std::vector<std::byte> bytes_of(const Value& value) {
  Writer writer;
  writer(value);
  return writer.take().head;
}

int64_t sum_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

}  // namespace

EncodedMessage encode(const Message& message) {
  Writer writer;
  writer(message);
  return writer.take();
}

Result<std::vector<int64_t>> payload_sizes(std::span<const std::byte> head) {
  Reader reader(head, {});
  Message message;
  if (const Status status = read_head(head, reader, message); !status.ok()) return status.error();
  return reader.sizes();
}

Result<Message> decode(std::span<const std::byte> head, std::vector<Payload> payloads) {
  std::vector<int64_t> here;
  for (const Payload& payload : payloads) here.push_back(size_of(payload).count);
  Reader reader(head, std::move(payloads));
  Message message;
  if (const Status status = read_head(head, reader, message); !status.ok()) return status.error();
  if (reader.sizes() == here) return message;
  return Error{Code::Corrupt, Reach::Worker,
               cat("a message of server shards is damaged: expected ", reader.sizes().size(),
                   " payloads of the sizes that its head says, found ", here.size(), " of ",
                   sum_of(here), " bytes: start all processes from the same build")};
}

std::vector<std::byte> encode_command(const HostCommand& command) { return bytes_of(command); }

std::vector<std::byte> encode_report(const HostReport& report) { return bytes_of(report); }

Result<HostCommand> decode_command(std::span<const std::byte> bytes) {
  return read_all_of<HostCommand>(bytes);
}

Result<HostReport> decode_report(std::span<const std::byte> bytes) {
  return read_all_of<HostReport>(bytes);
}

}  // namespace tenuto::servers
