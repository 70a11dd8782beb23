#include "ir/sync_mode.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/number.h"
#include "base/sentence.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr std::array<std::string_view, 8> kNames = {
    "synchronous", "asynchronous", "x", "grace", "groups", "ring", "backup", "rebalanced"};
constexpr int64_t kMostBound = 1'000'000'000;
constexpr int64_t kMostShare = 1'000'000;  // micro-batches of a replica's iteration
constexpr int32_t kMostLocalSteps = 1'000'000;
constexpr double kMostWindowMs = 1e9;

bool has_count(SyncKind kind) {
  return kind == SyncKind::Count || kind == SyncKind::Grace || kind == SyncKind::Ring ||
         kind == SyncKind::Backup;
}

// The parts of `text` between separators; a text without one is its own only part.
std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0;;) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    if (end == text.size()) return parts;
    at = end + 1;
  }
}

// Reads one mode; the first fault ends it.
class ModeReader {
 public:
  explicit ModeReader(std::string_view text) : text_(text) {}

  Result<SyncMode> read() {
    const std::vector<std::string_view> parts = parts_of(text_, '+');
    const std::vector<std::string_view> words = parts_of(parts[0], ':');
    if (auto error = read_kind(words)) return *error;
    for (size_t i = 1; i < parts.size(); ++i) {
      if (auto error = read_addition(parts[i])) return *error;
    }
    return std::move(mode_);
  }

 private:
  Error expected(const std::string& what, std::string_view found) const {
    return invalid(
        cat("sync mode '", excerpt(text_), "': expected ", what, ", found '", excerpt(found), "'"));
  }

  std::optional<Error> unknown(std::string_view word) const {
    std::array<std::string_view, kNames.size() + 1> names;
    std::copy(kNames.begin(), kNames.end(), names.begin());
    names.back() = "bounded";
    const std::string near = word.empty() ? "" : nearest(word, names.data(), names.size());
    return expected(cat("synchronous, asynchronous, x:K, grace:K, groups, ring:K, backup:K, "
                        "rebalanced or bounded:S",
                        near.empty() ? "" : cat(" (did you mean '", near, "'?)")),
                    word);
  }

  std::optional<Error> read_kind(const std::vector<std::string_view>& words) {
    if (words[0] == "bounded") {
      mode_.kind = SyncKind::Asynchronous;
      if (words.size() != 2) return expected("a bound, as in bounded:3", text_);
      return read_bound(words[1]);
    }
    const auto name = std::find(kNames.begin(), kNames.end(), words[0]);
    if (name == kNames.end()) return unknown(words[0]);
    mode_.kind = static_cast<SyncKind>(name - kNames.begin());
    size_t at = 1;
    if (has_count(mode_.kind)) {
      const auto count = words.size() > 1 ? number_in<int32_t>(words[1]) : std::nullopt;
      if (!count || *count < 1 || *count > kMostReplicas) {
        return expected(cat("a number of replicas behind '", words[0], ":'"),
                        words.size() > 1 ? words[1] : "");
      }
      mode_.count = *count;
      at = 2;
    }
    if (at < words.size()) {
      if (auto error = read_figures(words[at])) return error;
      ++at;
    }
    if (at < words.size()) return expected("nothing more", words[at]);
    return {};
  }

  // What may follow a kind and its count.
  std::optional<Error> read_figures(std::string_view word) {
    switch (mode_.kind) {
      case SyncKind::Grace:
        return read_window(word);
      case SyncKind::Groups:
        return read_groups(word);
      case SyncKind::Ring:
        return read_parents(word);
      case SyncKind::Rebalanced:
        return read_shares(word);
      default:
        return expected("nothing more", word);
    }
  }

  std::optional<Error> read_window(std::string_view word) {
    const bool unit = word.size() > 2 && word.ends_with("ms");
    const auto ms = unit ? number_in<double>(word.substr(0, word.size() - 2)) : std::nullopt;
    if (!ms || !(*ms > 0) || *ms > kMostWindowMs || from_milliseconds(*ms).count() == 0) {
      return expected("a window in milliseconds, such as 12.5ms", word);
    }
    mode_.window = from_milliseconds(*ms);
    return {};
  }

  std::optional<Error> read_groups(std::string_view word) {
    std::vector<std::vector<int32_t>> groups;
    for (const std::string_view part : parts_of(word, '/')) {
      groups.emplace_back();
      for (const std::string_view entry : parts_of(part, ',')) {
        const auto replica = number_in<int32_t>(entry);
        if (!replica || *replica < 0 || *replica >= kMostReplicas) {
          return expected("a replica's number", entry);
        }
        groups.back().push_back(*replica);
      }
      std::sort(groups.back().begin(), groups.back().end());
    }
    std::sort(groups.begin(), groups.end());
    size_t members = 0;
    for (const auto& group : groups) members += group.size();
    mode_.groups.assign(members, -1);
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const int32_t replica : groups[g]) {
        if (replica >= static_cast<int32_t>(members)) {
          return expected(cat("each of the ", members, " replicas once"), piece(replica));
        }
        if (mode_.groups[static_cast<size_t>(replica)] >= 0) {
          return expected("each replica in one group", cat(replica, " twice"));
        }
        mode_.groups[static_cast<size_t>(replica)] = static_cast<int32_t>(g);
      }
    }
    return {};
  }

  std::optional<Error> read_parents(std::string_view word) {
    for (const std::string_view entry : parts_of(word, ',')) {
      const auto parent = number_in<int32_t>(entry);
      if (!parent || *parent < 0 || *parent >= kMostReplicas) {
        return expected("a replica's number", entry);
      }
      mode_.parents.push_back({*parent});
    }
    return {};
  }

  std::optional<Error> read_shares(std::string_view word) {
    for (const std::string_view entry : parts_of(word, ',')) {
      const auto share = number_in<int64_t>(entry);
      if (!share || *share < 1 || *share > kMostShare) {
        return expected("a number of micro-batches, at least 1", entry);
      }
      mode_.shares.push_back(*share);
    }
    return {};
  }

  std::optional<Error> read_bound(std::string_view word) {
    const auto bound = number_in<int64_t>(word);
    if (!bound || *bound < 0 || *bound > kMostBound) {
      return expected(cat("a bound from 0 to ", kMostBound), word);
    }
    mode_.bound = *bound;
    return {};
  }

  std::optional<Error> read_addition(std::string_view part) {
    const size_t colon = std::min(part.find(':'), part.size());
    const std::string_view name = part.substr(0, colon);
    const std::string_view value = part.substr(std::min(colon + 1, part.size()));
    const int32_t place = name == "bounded" ? 1 : name == "local" ? 2 : name == "outer" ? 3 : 0;
    if (place == 0) return expected("+bounded:S, +local:H or +outer:RATE,MOMENTUM", part);
    if (place <= place_ || (place == 1 && mode_.bound)) {
      return expected("bounded, local and outer once each and in this order", part);
    }
    place_ = place;
    if (place == 1) return read_bound(value);
    if (place == 2) {
      const auto steps = number_in<int32_t>(value);
      if (!steps || *steps < 2 || *steps > kMostLocalSteps) {
        return expected(cat("a number of local steps from 2 to ", kMostLocalSteps), value);
      }
      mode_.local_steps = *steps;
      return {};
    }
    const std::vector<std::string_view> numbers = parts_of(value, ',');
    const auto rate = number_in<double>(numbers[0]);
    const auto momentum = numbers.size() == 2 ? number_in<double>(numbers[1]) : std::nullopt;
    // What is larger would be written with an exponent, whose + ends the mode.
    const auto fits = [](std::optional<double> of) { return of && std::abs(*of) <= 1000; };
    if (!fits(rate) || !fits(momentum))
      return expected("a rate and a momentum, as in outer:0.7,0.9", value);
    mode_.outer = {*rate, *momentum};
    return {};
  }

  std::string_view text_;
  SyncMode mode_;
  int32_t place_ = 0;  // of the addition that was read last
};

// In milliseconds without an exponent, whose + would end the mode.
std::string window_text(Duration window) {
  constexpr int64_t kPart = 1'000'000;
  std::string part = cat(kPart + window.count() % kPart).substr(1);
  part.resize(part.find_last_not_of('0') + 1);
  return cat(window.count() / kPart, part.empty() ? "" : ".", part, "ms");
}

template <class Items, class Write>
std::string joined(const Items& items, Write write) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) text += cat(i == 0 ? "" : ",", write(items[i]));
  return text;
}

std::string groups_text(const std::vector<int32_t>& groups) {
  const int32_t last = *std::max_element(groups.begin(), groups.end());
  std::string text;
  for (int32_t g = 0; g <= last; ++g) {
    std::string members;
    for (size_t replica = 0; replica < groups.size(); ++replica) {
      if (groups[replica] == g) members += cat(members.empty() ? "" : ",", replica);
    }
    text += cat(g == 0 ? "" : "/", members);
  }
  return text;
}

Error refused(const SyncMode& mode, const std::string& why) {
  return invalid(cat("sync mode ", told(to_text(mode)), ": ", why));
}

// A field that the kind has no use for would be ignored, and the text would not be read back.
Status check_unused(const SyncMode& mode) {
  const auto kind = [&](SyncKind of) { return mode.kind == of; };
  const char* unused = mode.count != 0 && !has_count(mode.kind)              ? "count"
                       : mode.window.count() != 0 && !kind(SyncKind::Grace)  ? "window"
                       : !mode.groups.empty() && !kind(SyncKind::Groups)     ? "groups"
                       : !mode.parents.empty() && !kind(SyncKind::Ring)      ? "parents"
                       : !mode.shares.empty() && !kind(SyncKind::Rebalanced) ? "shares"
                                                                             : nullptr;
  if (unused == nullptr) return ok();
  return invalid(cat("sync mode ", kNames[static_cast<size_t>(mode.kind)], ": expected no ", unused,
                     ", which this mode does not use, found some: leave it out"));
}

// Groups that are numbered otherwise have no text, so no other refusal may come before this one.
Status check_groups(const SyncMode& mode, int32_t replicas) {
  int32_t next = 0;
  for (const int32_t group : mode.groups) {
    if (group < 0 || group > next) {
      return invalid(
          cat("sync mode groups: expected groups numbered from 0 by their lowest "
              "replica, found group ",
              group, " where ", next, " is the next new one"));
    }
    next = std::max(next, group + 1);
  }
  if (mode.groups.empty() || static_cast<int32_t>(mode.groups.size()) == replicas) return ok();
  return refused(mode, cat("its groups have ", mode.groups.size(), " replicas, but there are ",
                           replicas, ": name each replica in one group"));
}

Status check_ring(const SyncMode& mode, int32_t replicas) {
  if (static_cast<int32_t>(mode.parents.size()) != replicas) {
    return refused(mode, cat("it has parents of ", mode.parents.size(), " replicas, but there are ",
                             replicas, ": give one parent per replica"));
  }
  int32_t members = 0;
  for (int32_t replica = 0; replica < replicas; ++replica) {
    const ReplicaId parent = mode.parents[static_cast<size_t>(replica)];
    if (parent.value < 0 || parent.value >= replicas ||
        mode.parents[static_cast<size_t>(parent.value)] != parent) {
      return refused(mode, cat("the parent of replica ", replica, " is ", parent,
                               ", which is not a member of the ring (its own parent)"));
    }
    members += parent.value == replica;
  }
  if (members == mode.count) return ok();
  return refused(mode, cat("expected ", mode.count, " members of the ring, found ", members));
}

Status check_axes(const SyncMode& mode) {
  if (mode.bound && (*mode.bound < 0 || *mode.bound > kMostBound)) {
    return refused(mode, cat("expected a bound from 0 to ", kMostBound));
  }
  if (mode.local_steps < 1 || mode.local_steps > kMostLocalSteps) {
    return refused(mode, cat("expected 1 to ", kMostLocalSteps, " local steps"));
  }
  const OuterStep plain;
  if (mode.local_steps == 1 && mode.outer != plain) {
    return refused(mode, "an outer step needs local steps: add +local:H with H of at least 2");
  }
  if (is_in_range(mode.outer)) return ok();
  return refused(mode,
                 "expected an outer rate above 0 and up to 1000, and an outer momentum of at "
                 "least 0 and below 1");
}

}  // namespace

bool is_in_range(const OuterStep& outer) {
  const bool rate = outer.rate > 0 && outer.rate <= 1000;
  const bool momentum = outer.momentum >= 0 && outer.momentum < 1;
  return rate && momentum;
}

bool is_formed(const SyncMode& mode) {
  switch (mode.kind) {
    case SyncKind::Grace:
      return mode.window.count() > 0;
    case SyncKind::Groups:
      return !mode.groups.empty();
    case SyncKind::Ring:
      return !mode.parents.empty();
    case SyncKind::Rebalanced:
      return !mode.shares.empty();
    default:
      return true;
  }
}

Status check(const SyncMode& mode, int32_t replicas) {
  if (replicas < 1 || replicas > kMostReplicas) {
    return invalid(cat("expected 1 to ", kMostReplicas, " replicas, found ", replicas));
  }
  if (const Status fault = check_unused(mode); !fault.ok()) return fault;
  if (mode.window.count() < 0 || mode.window > from_milliseconds(kMostWindowMs)) {
    return invalid(cat("sync mode grace: expected a window of 0 to ", kMostWindowMs, " ms"));
  }
  if (const Status fault = check_groups(mode, replicas); !fault.ok()) return fault;
  if (replicas == 1 && (mode.kind != SyncKind::Synchronous || mode.bound)) {
    return refused(mode, "one replica has no other one to wait for: use synchronous");
  }
  if (has_count(mode.kind)) {
    const int32_t most = mode.kind == SyncKind::Backup ? replicas - 1 : replicas;
    if (mode.count < 1 || mode.count > most) {
      return refused(mode, cat("expected a count from 1 to ", most, " with ", replicas,
                               " replicas, found ", mode.count));
    }
  }
  if (!mode.parents.empty()) {
    if (const Status fault = check_ring(mode, replicas); !fault.ok()) return fault;
  }
  if (!mode.shares.empty() && static_cast<int32_t>(mode.shares.size()) != replicas) {
    return refused(mode, cat("it has shares of ", mode.shares.size(), " replicas, but there are ",
                             replicas, ": give one share per replica"));
  }
  for (const int64_t share : mode.shares) {
    if (share < 1 || share > kMostShare) {
      return refused(
          mode, cat("expected shares from 1 to ", kMostShare, " micro-batches, found ", share));
    }
  }
  return check_axes(mode);
}

std::vector<ReplicaId> ring_of(const SyncMode& mode) {
  std::vector<ReplicaId> ring;
  if (mode.kind != SyncKind::Ring) return ring;
  for (size_t i = 0; i < mode.parents.size(); ++i) {
    const ReplicaId replica{static_cast<int32_t>(i)};
    if (mode.parents[i] == replica) ring.push_back(replica);
  }
  return ring;
}

std::string to_text(const SyncMode& mode) {
  const bool bounded = mode.kind == SyncKind::Asynchronous && mode.bound;
  std::string text(bounded ? "bounded" : kNames[static_cast<size_t>(mode.kind)]);
  if (has_count(mode.kind)) text += cat(":", mode.count);
  if (mode.window.count() != 0) text += cat(":", window_text(mode.window));
  if (!mode.groups.empty()) text += cat(":", groups_text(mode.groups));
  if (!mode.parents.empty()) {
    text += cat(":", joined(mode.parents, [](ReplicaId parent) { return parent.value; }));
  }
  if (!mode.shares.empty()) {
    text += cat(":", joined(mode.shares, [](int64_t share) { return share; }));
  }
  if (mode.bound) text += cat(bounded ? ":" : "+bounded:", *mode.bound);
  if (mode.local_steps != 1) text += cat("+local:", mode.local_steps);
  if (mode.outer != OuterStep{}) {
    text += cat("+outer:", mode.outer.rate, ",", mode.outer.momentum);
  }
  return text;
}

Result<SyncMode> sync_mode_from_text(std::string_view text) { return ModeReader(text).read(); }

}  // namespace tenuto
