#include "runtime/tally.h"

#include <map>

#include "base/random.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr uint64_t kKey = 0x7461'6c6c'79;

std::string name_of(const Contribution& each) {
  return cat("micro-batch ", each.micro, " of stage ", each.stage);
}

// The contributions by stage, as ranges of micro-batches: "stage 1: 0-3, 6".
std::string names_of(std::span<const Contribution> all) {
  const std::set<Contribution> sorted(all.begin(), all.end());
  std::string text;
  StageId stage{-1};
  for (auto it = sorted.begin(); it != sorted.end();) {
    if (it->stage != stage) text += cat(text.empty() ? "" : "; ", "stage ", it->stage, ": ");
    if (it->stage == stage) text += ", ";
    stage = it->stage;
    const int32_t first = it->micro.value;
    int32_t last = first;
    while (++it != sorted.end() && it->stage == stage && it->micro.value == last + 1) ++last;
    text += first == last ? cat(first) : cat(first, "-", last);
  }
  return text.empty() ? "nothing" : text;
}

// Says in words where `surplus` comes from: the tally found minus the tally wanted.
std::string account_for(std::span<const Contribution> wanted, uint64_t surplus) {
  std::map<uint64_t, Contribution> by_number;
  for (const Contribution& each : wanted) by_number.emplace(tally_of(each), each);
  const auto twice = [&](uint64_t number) { return by_number.find(number); };
  const auto missing = [&](uint64_t number) { return by_number.find(uint64_t{0} - number); };
  const auto none = by_number.end();
  if (const auto it = twice(surplus); it != none) {
    return cat(name_of(it->second), " is in it twice");
  }
  if (const auto it = missing(surplus); it != none) {
    return cat(name_of(it->second), " is not in it");
  }
  for (const auto& [number, each] : by_number) {
    if (const auto it = twice(surplus - number); it != none) {
      return cat(name_of(each), " and ", name_of(it->second), " are in it twice");
    }
    if (const auto it = twice(surplus + number); it != none) {
      return cat(name_of(each), " is not in it, and ", name_of(it->second), " twice");
    }
    if (const auto it = missing(surplus + number); it != none) {
      return cat(name_of(each), " and ", name_of(it->second), " are not in it");
    }
  }
  return {};
}

}  // namespace

uint64_t tally_of(const Contribution& each) {
  return mix(kKey, static_cast<uint64_t>(each.stage.value),
             static_cast<uint64_t>(each.micro.value));
}

uint64_t tally_of(std::span<const Contribution> all) {
  uint64_t tally = 0;
  for (const Contribution& each : all) tally += tally_of(each);
  return tally;
}

std::string difference_of(std::span<const Contribution> wanted, uint64_t found,
                          std::span<const Contribution> own) {
  const std::string why = account_for(wanted, found - tally_of(wanted));
  return cat("the sum must contain ", names_of(wanted), ", each once: ",
             why.empty() ? std::string("more than two of them are missing or in it twice") : why,
             "; this worker contributed ", names_of(own));
}

}  // namespace tenuto
