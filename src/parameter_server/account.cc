#include "parameter_server/account.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "sync/progress.h"

namespace tenuto::servers {

// ---- text ------------------------------------------------------------------------------------

namespace {

std::string text_of(const std::vector<MicroRange>& ranges) {
  std::string text = cat(" ", ranges.size());
  for (const MicroRange& one : ranges) {
    text += cat(" ", one.stream.value, " ", one.begin, " ", one.end);
  }
  return text;
}

std::string text_of(const Work& work) {
  const Offer& offer = work.offer;
  return cat(" ", work.serial, " ", offer.replica.value, " ", offer.iteration.value, " ",
             offer.version.value, " ", offer.mass.micros, " ", work.local_steps,
             text_of(work.micros));
}

// The numbers of a line, one after the other.
class Numbers {
 public:
  // Errors are told by is_good().
  explicit Numbers(std::string_view rest) {
    while (!rest.empty() && is_good_) {
      rest.remove_prefix(1);  // the space
      const size_t end = std::min(rest.find(' '), rest.size());
      const auto number = number_in<int64_t>(rest.substr(0, end));
      is_good_ = number.has_value();
      numbers_.push_back(number.value_or(0));
      rest.remove_prefix(end);
    }
  }

  int64_t next() {
    if (at_ == numbers_.size()) is_good_ = false;
    return is_good_ ? numbers_[at_++] : 0;
  }
  int32_t small() {
    const int64_t number = next();
    if (number != static_cast<int32_t>(number)) is_good_ = false;
    return static_cast<int32_t>(number);
  }
  // A count of things that have at least one number each.
  int64_t count() {
    const int64_t number = next();
    if (number < 0 || number > std::ssize(numbers_) - static_cast<int64_t>(at_)) is_good_ = false;
    return is_good_ ? number : 0;
  }
  std::vector<MicroRange> ranges() {
    std::vector<MicroRange> ranges(static_cast<size_t>(count()));
    for (MicroRange& one : ranges) {
      one.stream.value = small();
      one.begin = next();
      one.end = next();
    }
    return ranges;
  }
  Work work() {
    Work work;
    work.serial = next();
    work.offer.replica.value = small();
    work.offer.iteration.value = next();
    work.offer.version.value = next();
    work.offer.mass.micros = next();
    work.local_steps = small();
    work.micros = ranges();
    return work;
  }

  bool is_good() const { return is_good_; }
  bool is_read() const { return is_good_ && at_ == numbers_.size(); }

 private:
  std::vector<int64_t> numbers_;
  size_t at_ = 0;
  bool is_good_ = true;
};

AppliedLine applied_in(Numbers& numbers) {
  AppliedLine line;
  line.keeper.value = numbers.small();
  line.version.value = numbers.next();
  line.number = numbers.next();
  line.moment = Duration(numbers.next());
  line.works.resize(static_cast<size_t>(numbers.count()));
  for (Work& work : line.works) work = numbers.work();
  return line;
}

Record record_in(Numbers& numbers) {
  Record record;
  record.version.value = numbers.next();
  record.committed.value = numbers.next();
  record.updates_decided = numbers.next();
  record.applied.micros = numbers.next();
  record.dropped.micros = numbers.next();
  record.streams.resize(static_cast<size_t>(numbers.count()));
  for (Stream& stream : record.streams) stream.fresh = numbers.next();
  record.returned = numbers.ranges();
  record.open.resize(static_cast<size_t>(numbers.count()));
  for (OpenWork& open : record.open) open.work = numbers.work();
  return record;
}

bool add_line(std::string_view line, RunAccount& account) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view kind = line.substr(0, end);
  Numbers numbers(line.substr(end));
  if (kind == "applied") {
    account.applied.push_back(applied_in(numbers));
  } else if (kind == "dropped") {
    DroppedLine dropped{numbers.next(), 0, {}};
    dropped.sequence = numbers.next();
    dropped.work = numbers.work();
    account.dropped.push_back(std::move(dropped));
  } else if (kind == "begun") {
    BegunLine begun{numbers.next(), 0};
    begun.sequence = numbers.next();
    account.begun.push_back(begun);
  } else if (kind == "last" && !account.last) {
    account.last = record_in(numbers);
  } else {
    return false;
  }
  return numbers.is_read();
}

}  // namespace

std::string to_text(const AppliedLine& line) {
  std::string text = cat("applied ", line.keeper.value, " ", line.version.value, " ", line.number,
                         " ", line.moment.count(), " ", line.works.size());
  for (const Work& work : line.works) text += text_of(work);
  return text;
}

std::string to_text(const DroppedLine& line) {
  return cat("dropped ", line.epoch, " ", line.sequence, text_of(line.work));
}

std::string to_text(const BegunLine& line) { return cat("begun ", line.epoch, " ", line.sequence); }

std::string to_text(const Record& last) {
  std::string text =
      cat("last ", last.version.value, " ", last.committed.value, " ", last.updates_decided, " ",
          last.applied.micros, " ", last.dropped.micros, " ", last.streams.size());
  for (const Stream& stream : last.streams) text += cat(" ", stream.fresh);
  text += text_of(last.returned);
  text += cat(" ", last.open.size());
  for (const OpenWork& open : last.open) text += text_of(open.work);
  return text;
}

Status add_lines(std::string_view text, RunAccount& account) {
  for (int64_t number = 1; text.find('\n') != std::string_view::npos; ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    if (add_line(line, account)) continue;
    return Error{Code::Corrupt, Reach::Call,
                 cat("line ", number, " of the account of a process: expected applied, dropped, ",
                     "begun or one last, with their numbers, found '", line.substr(0, 80), "'")};
  }
  return ok();
}

// ---- audit -----------------------------------------------------------------------------------

namespace {

Error wrong(std::string sentence) {
  return {Code::Corrupt, Reach::Job, cat("audit: ", std::move(sentence))};
}

// Micro-batches, and what they are in.
struct Placed {
  MicroRange range;
  std::string where;
};

class Auditor {
 public:
  // Micro-batches of a work.
  void add(const Work& work, const std::string& where) {
    Mass mass;
    for (const MicroRange& range : work.micros) {
      placed_.push_back({range, where});
      mass.micros += range.end - range.begin;
    }
    if (mass == work.offer.mass || fault_) return;
    fault_ = wrong(cat("work ", work.serial, " in ", where, " has ", mass.micros,
                       " micro-batches: expected the mass of its offer, ", work.offer.mass.micros));
  }
  void add(const MicroRange& range, const std::string& where) { placed_.push_back({range, where}); }

  // Whether each micro-batch below `fresh` of each stream was added once, and none besides.
  Status end(const std::vector<Stream>& streams) {
    if (fault_) return *fault_;
    std::stable_sort(placed_.begin(), placed_.end(), [](const Placed& left, const Placed& right) {
      return std::tie(left.range.stream, left.range.begin, left.range.end) <
             std::tie(right.range.stream, right.range.begin, right.range.end);
    });
    size_t at = 0;
    for (size_t i = 0; i < streams.size(); ++i) {
      const ReplicaId stream{static_cast<int32_t>(i)};
      int64_t begin = 0;
      for (; at < placed_.size() && placed_[at].range.stream == stream; ++at) {
        const MicroRange& range = placed_[at].range;
        if (range.begin < begin) {
          return wrong(cat("micro-batch ", range.begin, " of stream ", stream, " is in ",
                           placed_[at].where, " and in ", at > 0 ? placed_[at - 1].where : "none"));
        }
        if (range.begin > begin) return missing(stream, begin);
        if (range.end <= begin) return wrong(cat(placed_[at].where, " has an empty range"));
        begin = range.end;
      }
      if (begin < streams[i].fresh) return missing(stream, begin);
      if (begin > streams[i].fresh) {
        return wrong(cat("micro-batch ", begin - 1, " of stream ", stream, " is in ",
                         placed_[at - 1].where, ", but was never given out"));
      }
    }
    if (at == placed_.size()) return ok();
    return wrong(cat(placed_[at].where, " has micro-batches of stream ", placed_[at].range.stream,
                     ": expected one of ", streams.size(), " streams"));
  }

 private:
  static Error missing(ReplicaId stream, int64_t micro) {
    return wrong(cat("micro-batch ", micro, " of stream ", stream,
                     " is in no update, was not dropped by name, and does not wait"));
  }

  std::vector<Placed> placed_;
  std::optional<Error> fault_;
};

// The update of each version, as its first keeper had it.
Result<std::vector<AppliedLine>> applied_updates(const RunAccount& account) {
  std::map<Version, AppliedLine> found;
  for (const AppliedLine& line : account.applied) {
    const auto [place, is_new] = found.insert({line.version, line});
    AppliedLine& first = place->second;
    if (first.works != line.works || first.number != line.number) {
      return wrong(cat("keepers ", first.keeper, " and ", line.keeper,
                       " have applied different updates to version ", line.version.value));
    }
    if (!is_new && line.moment < first.moment) first = line;
  }
  std::vector<AppliedLine> updates;
  for (auto& [version, line] : found) {
    if (version.value != std::ssize(updates)) {
      return wrong(cat("no keeper has applied an update to version ", updates.size()));
    }
    updates.push_back(std::move(line));
  }
  return updates;
}

// Another decider has gone on from a record that did not know of it.
bool is_void(const DroppedLine& line, const RunAccount& account) {
  return std::any_of(account.begun.begin(), account.begun.end(), [&](const BegunLine& begun) {
    return begun.epoch > line.epoch && begun.sequence <= line.sequence;
  });
}

}  // namespace

Result<std::vector<AppliedLine>> audit(const RunAccount& account) {
  if (!account.last) return wrong("no decider has written how the run ended");
  const Record& last = *account.last;
  auto updates = applied_updates(account);
  if (!updates.ok()) return updates;
  const int64_t count = std::ssize(updates.value());
  if (last.version.value != count || last.updates_decided != count ||
      last.committed != last.version) {
    return wrong(cat(count,
                     " updates were applied: expected as many decided ones, and version and "
                     "committed version to be as many, found ",
                     last.updates_decided, ", ", last.version.value, " and ",
                     last.committed.value));
  }
  Auditor auditor;
  Mass applied, dropped;
  for (const AppliedLine& update : updates.value()) {
    for (const Work& work : update.works) {
      auditor.add(work, cat("update ", update.number));
      applied += work.offer.mass;
    }
  }
  for (const DroppedLine& line : account.dropped) {
    if (is_void(line, account)) continue;
    auditor.add(line.work, cat("the dropped work ", line.work.serial));
    dropped += line.work.offer.mass;
  }
  for (const OpenWork& open : last.open) {
    auditor.add(open.work, cat("the open work ", open.work.serial));
  }
  for (const MicroRange& range : last.returned) auditor.add(range, "what lost works returned");
  if (applied != last.applied || dropped != last.dropped) {
    return wrong(cat("micro-batches in updates and in dropped works: expected ",
                     last.applied.micros, " and ", last.dropped.micros, " as in the record, found ",
                     applied.micros, " and ", dropped.micros));
  }
  if (const Status fault = auditor.end(last.streams); !fault.ok()) return fault.error();
  return updates;
}

SyncMeasure measure_updates(const std::vector<AppliedLine>& updates, Duration end, Mass iteration) {
  SyncMeasure measure;
  AppliedMass applied(Version{0});
  Mass measured;
  double age_sum = 0;  // mass x age, in micro-batches
  for (const AppliedLine& update : updates) {
    if (update.moment > end) break;
    Mass mass;
    for (const Work& work : update.works) mass += work.offer.mass;
    // The first update is where measuring begins.
    if (measure.updates > 0) {
      measured += mass;
      for (const Work& work : update.works) {
        age_sum += applied.age_of(work.offer, mass) * static_cast<double>(work.offer.mass.micros);
      }
    }
    ++measure.updates;
    measure.end = update.moment;
    applied.add(mass);
  }
  if (measured == Mass{}) return measure;
  const double seconds = to_milliseconds(measure.end - updates.front().moment) / 1000;
  measure.mean_age =
      age_sum / static_cast<double>(measured.micros) / static_cast<double>(iteration.micros);
  if (seconds > 0) {
    measure.gradients_per_second = share_of(measured, iteration) / seconds;
    measure.updates_per_second = static_cast<double>(measure.updates - 1) / seconds;
  }
  return measure;
}

}  // namespace tenuto::servers
