#include "world/places.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace tenuto {
namespace {

using Group = std::vector<int32_t>;  // members, ascending

struct Pair {
  double rate = 0;
  int32_t one = 0, other = 0;
};

// Disjoint groups of members, which can be merged (union-find).
class Groups {
 public:
  explicit Groups(size_t members) : parent_(members) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int32_t find(int32_t member) {
    int32_t& parent = parent_[static_cast<size_t>(member)];
    return parent == member ? member : parent = find(parent);
  }
  // Merges the groups of two members; false if they are in one group already.
  bool join(int32_t one, int32_t other) {
    const int32_t left = find(one), right = find(other);
    parent_[static_cast<size_t>(std::max(left, right))] = std::min(left, right);
    return left != right;
  }

 private:
  std::vector<int32_t> parent_;
};

std::vector<Pair> pairs_of(const RateBetween& rate, const Group& group) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = i + 1; j < group.size(); ++j) {
      pairs.push_back({rate(group[i], group[j]), group[i], group[j]});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair& left, const Pair& right) {
    return std::tuple(-left.rate, left.one, left.other) <
           std::tuple(-right.rate, right.one, right.other);
  });
  return pairs;
}

// Divides a group by single linkage; returns the whole group when its links are of one kind.
std::vector<Group> parts_of(const RateBetween& rate, const Group& group) {
  const std::vector<Pair> pairs = pairs_of(rate, group);
  if (pairs.empty() || pairs.front().rate < kSameRates * pairs.back().rate) return {group};
  Groups joined(static_cast<size_t>(group.back()) + 1);
  std::vector<Pair> tree;
  for (const Pair& pair : pairs) {
    if (joined.join(pair.one, pair.other)) tree.push_back(pair);
  }
  size_t cut = 0;  // this many of the tree's links, the fastest ones, are within the parts
  double largest = kSameRates;
  for (size_t i = 1; i < tree.size(); ++i) {
    const double ratio = tree[i - 1].rate / tree[i].rate;
    if (ratio < largest) continue;
    largest = ratio;
    cut = i;
  }
  if (cut == 0) return {group};
  Groups some(static_cast<size_t>(group.back()) + 1);
  for (size_t i = 0; i < cut; ++i) some.join(tree[i].one, tree[i].other);
  std::map<int32_t, Group> parts;
  for (const int32_t member : group) parts[some.find(member)].push_back(member);
  std::vector<Group> all;
  for (auto& [first, part] : parts) all.push_back(std::move(part));
  return all;
}

void divide(const RateBetween& rate, const Group& group, std::vector<Group>& places) {
  const std::vector<Group> parts = parts_of(rate, group);
  if (parts.size() == 1) {
    places.push_back(group);
    return;
  }
  for (const Group& part : parts) divide(rate, part, places);
}

}  // namespace

std::vector<int32_t> find_places(int32_t count, const RateBetween& rate) {
  Group all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Group> places;
  if (count > 0) divide(rate, all, places);
  std::sort(places.begin(), places.end());
  std::vector<int32_t> place(all.size());
  for (size_t p = 0; p < places.size(); ++p) {
    for (const int32_t worker : places[p]) {
      place[static_cast<size_t>(worker)] = static_cast<int32_t>(p);
    }
  }
  return place;
}

}  // namespace tenuto
