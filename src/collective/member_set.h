// Members of a group, by their places, as a set.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenuto {

// A set of places. Both sets of an operation must be over equally many members.
class MemberSet {
 public:
  // The empty set over `members` members.
  explicit MemberSet(int32_t members = 0) : words_(words_for(members)) {}
  // Words of a set over `members`: place p is bit p % 64 of word p / 64.
  static size_t words_for(int32_t members) { return (static_cast<size_t>(members) + 63) / 64; }

  // Adds the member at a place, or takes it out.
  void add(int32_t place) { words_[word(place)] |= bit(place); }
  void remove(int32_t place) { words_[word(place)] &= ~bit(place); }
  // Whether the member at a place is in it.
  bool has(int32_t place) const { return (words_[word(place)] & bit(place)) != 0; }
  // How many are in it.
  int32_t count() const {
    int32_t sum = 0;
    for (const uint64_t each : words_) sum += std::popcount(each);
    return sum;
  }
  // Whether no member is in it.
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](uint64_t each) { return each == 0; });
  }
  // contains: whether all of `other` are in it. meets: whether at least one of `other` is.
  bool contains(const MemberSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      if ((other.words_[i] & ~words_[i]) != 0) return false;
    }
    return true;
  }
  bool meets(const MemberSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      if ((other.words_[i] & words_[i]) != 0) return true;
    }
    return false;
  }
  // Adds all of `other`.
  MemberSet& operator|=(const MemberSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  // The bits, for messages.
  std::span<const uint64_t> words() const { return words_; }
  std::span<uint64_t> words() { return words_; }
  auto operator<=>(const MemberSet&) const = default;

 private:
  static size_t word(int32_t place) { return static_cast<size_t>(place) / 64; }
  static uint64_t bit(int32_t place) { return uint64_t{1} << (static_cast<uint32_t>(place) % 64); }
  std::vector<uint64_t> words_;
};

}  // namespace tenuto
