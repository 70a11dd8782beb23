#include "sync/placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/contains.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr size_t kNowhere = static_cast<size_t>(-1);
// Steps of the search, so that it takes milliseconds at most.
constexpr int64_t kSearchSteps = 4000;
// A move has to lower a sum of squares by this share of it, so that rounding makes no circles.
constexpr double kLower = 1 - 1e-9;

bool in_range(const HostAmounts& amounts) {
  return std::all_of(amounts.begin(), amounts.end(),
                     [](int64_t one) { return one >= 0 && one <= kMostHostAmount; });
}

Status check_hosts(const std::vector<PlacementHost>& hosts) {
  if (hosts.empty()) return invalid("a placement needs at least one host, found none");
  for (size_t i = 0; i < hosts.size(); ++i) {
    const PlacementHost& host = hosts[i];
    if (!in_range(host.capacity) || !in_range(host.used)) {
      return invalid(cat("host ", host.name, ": expected amounts from 0 to ", kMostHostAmount,
                         " of what it has and of what others use"));
    }
    const bool is_again = std::any_of(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(i),
                                      [&](const auto& other) { return other.name == host.name; });
    if (is_again) {
      return invalid(cat("a placement has two hosts of the name ", host.name,
                         ": expected one, with all that it has"));
    }
  }
  return ok();
}

Status check_items(const std::vector<PlacementItem>& items, size_t hosts) {
  std::vector<int> twins(items.size(), 0);  // in how many pairs an item is
  for (size_t i = 0; i < items.size(); ++i) {
    const PlacementItem& item = items[i];
    if (!in_range(item.demand)) {
      return invalid(
          cat(item.name, ": expected demands from 0 to ", kMostHostAmount, " of a host"));
    }
    for (const size_t host : item.hosts) {
      if (host < hosts) continue;
      return invalid(cat(item.name, " can be on host number ", host, ", and there are ", hosts));
    }
    if (!item.twin) continue;
    if (*item.twin >= items.size() || *item.twin == i) {
      return invalid(cat(item.name, ": expected another item as its twin, found number ",
                         *item.twin, " of ", items.size()));
    }
    if (items[*item.twin].twin == i && *item.twin < i) continue;  // counted already
    ++twins[i];
    ++twins[*item.twin];
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (twins[i] > 1) return invalid(cat(items[i].name, ": expected one twin, found several"));
  }
  return ok();
}

// Two hosts, compared by what a move changes: their larger load, then the other one, then how
// evenly all their resources are loaded.
struct PairLoad {
  double larger = 0, smaller = 0, squares = 0;
};

bool is_lower(const PairLoad& left, const PairLoad& right) {
  if (left.larger != right.larger) return left.larger < right.larger;
  if (left.smaller != right.smaller) return left.smaller < right.smaller;
  return left.squares < kLower * right.squares;
}

// Hosts are ranked by name here, so that the order in which they are given makes no difference.
class Placer {
 public:
  Placer(const std::vector<PlacementHost>& hosts, const std::vector<PlacementItem>& items)
      : hosts_(hosts), items_(items), ranked_(hosts.size()), at_(items.size(), kNowhere) {
    std::iota(ranked_.begin(), ranked_.end(), size_t{0});
    std::sort(ranked_.begin(), ranked_.end(),
              [&](size_t left, size_t right) { return hosts[left].name < hosts[right].name; });
    for (const size_t host : ranked_) loads_.push_back(hosts[host].used);
    find_scales();
    find_choices();
    find_order();
  }

  Placement run() {
    for (const size_t item : order_) put(item, best_host(item));
    exchange();
    search_lower();
    Placement placement;
    placement.hosts.resize(items_.size());
    placement.loads.resize(hosts_.size());
    for (size_t i = 0; i < items_.size(); ++i) placement.hosts[i] = ranked_[at_[i]];
    for (size_t i = 0; i < ranked_.size(); ++i) placement.loads[ranked_[i]] = loads_[i];
    placement.most = most();
    return placement;
  }

 private:
  void find_scales() {
    scales_.resize(ranked_.size());
    for (size_t r = 0; r < kHostResources; ++r) {
      double sum = 0, largest = 0;
      for (const PlacementItem& item : items_) sum += static_cast<double>(item.demand[r]);
      for (const PlacementHost& host : hosts_) {
        sum += static_cast<double>(host.used[r]);
        largest = std::max(largest, static_cast<double>(host.capacity[r]));
      }
      const double unknown = largest > 0 ? largest : std::max(1.0, sum);
      for (size_t i = 0; i < ranked_.size(); ++i) {
        const auto capacity = static_cast<double>(hosts_[ranked_[i]].capacity[r]);
        scales_[i][r] = capacity > 0 ? capacity : unknown;
      }
    }
  }

  void find_choices() {
    choices_.assign(items_.size(), std::vector<bool>(ranked_.size(), false));
    counts_.assign(items_.size(), 0);
    twins_.assign(items_.size(), kNowhere);
    for (size_t i = 0; i < items_.size(); ++i) {
      for (size_t host = 0; host < ranked_.size(); ++host) {
        choices_[i][host] = items_[i].hosts.empty() || contains(items_[i].hosts, ranked_[host]);
        counts_[i] += choices_[i][host] ? 1 : 0;
      }
      if (!items_[i].twin) continue;
      twins_[i] = *items_[i].twin;
      twins_[*items_[i].twin] = i;
    }
  }

  // What has no choice comes first, because the others go round it; then the largest demands.
  void find_order() {
    order_.resize(items_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::vector<double> sizes;
    for (const PlacementItem& item : items_) {
      double size = 0;
      for (size_t r = 0; r < kHostResources; ++r) {
        size = std::max(size, static_cast<double>(item.demand[r]) / largest_scale(r));
      }
      sizes.push_back(size);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](size_t left, size_t right) {
      const bool is_left_fixed = counts_[left] == 1, is_right_fixed = counts_[right] == 1;
      if (is_left_fixed != is_right_fixed) return is_left_fixed;
      return sizes[left] > sizes[right];
    });
  }

  double largest_scale(size_t resource) const {
    double largest = 0;
    for (const auto& scale : scales_) largest = std::max(largest, scale[resource]);
    return largest;
  }

  // Both twins are on one host only if neither can be on another one.
  bool may(size_t item, size_t host) const {
    if (!choices_[item][host]) return false;
    const size_t twin = twins_[item];
    if (twin == kNowhere || at_[twin] != host) return true;
    return counts_[item] == 1 && counts_[twin] == 1;
  }

  void put(size_t item, size_t host) {
    at_[item] = host;
    for (size_t r = 0; r < kHostResources; ++r) loads_[host][r] += items_[item].demand[r];
  }
  void take(size_t item) {
    for (size_t r = 0; r < kHostResources; ++r) loads_[at_[item]][r] -= items_[item].demand[r];
    at_[item] = kNowhere;
  }

  double part_of(size_t host, size_t resource) const {
    return static_cast<double>(loads_[host][resource]) / scales_[host][resource];
  }
  double peak(size_t host) const {
    double largest = 0;
    for (size_t r = 0; r < kHostResources; ++r) largest = std::max(largest, part_of(host, r));
    return largest;
  }
  double squares(size_t host) const {
    double sum = 0;
    for (size_t r = 0; r < kHostResources; ++r) sum += part_of(host, r) * part_of(host, r);
    return sum;
  }
  double most() const {
    double largest = 0;
    for (size_t host = 0; host < loads_.size(); ++host) largest = std::max(largest, peak(host));
    return largest;
  }
  PairLoad pair_load(size_t left, size_t right) const {
    const double one = peak(left), other = peak(right);
    return {std::max(one, other), std::min(one, other), squares(left) + squares(right)};
  }

  // There is one: an item with a choice is only kept away from its twin's host.
  size_t best_host(size_t item) {
    size_t best = kNowhere;
    std::tuple<double, double> least;
    for (size_t host = 0; host < loads_.size(); ++host) {
      if (!may(item, host)) continue;
      const double before = squares(host);
      put(item, host);
      const std::tuple cost(peak(host), squares(host) - before);
      take(item);
      if (best != kNowhere && cost >= least) continue;
      best = host;
      least = cost;
    }
    return best;
  }

  // Each change lowers the loads of all hosts, sorted from the largest on, or leaves them and
  // lowers the sum of squares; so this ends.
  void exchange() {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (const size_t item : order_) {
        has_changed = move_somewhere(item) || has_changed;
        for (const size_t other : order_) has_changed = swapped(item, other) || has_changed;
      }
    }
  }

  bool move_somewhere(size_t item) {
    if (counts_[item] == 1) return false;
    for (size_t host = 0; host < loads_.size(); ++host) {
      const size_t from = at_[item];
      if (host == from || !may(item, host)) continue;
      const PairLoad before = pair_load(from, host);
      take(item);
      put(item, host);
      if (is_lower(pair_load(from, host), before)) return true;
      take(item);
      put(item, from);
    }
    return false;
  }

  bool swapped(size_t item, size_t other) {
    const size_t from = at_[item], to = at_[other];
    if (item >= other || from == to || counts_[item] == 1 || counts_[other] == 1) return false;
    const PairLoad before = pair_load(from, to);
    take(item);
    take(other);
    const bool is_allowed = may(item, to) && may(other, from);
    put(item, is_allowed ? to : from);
    put(other, is_allowed ? from : to);
    if (!is_allowed) return false;
    if (is_lower(pair_load(from, to), before)) return true;
    take(item);
    take(other);
    put(item, from);
    put(other, to);
    return false;
  }

  // Looks for placements whose largest load is lower, until there is none or all steps are used.
  void search_lower() {
    best_ = most();
    best_at_ = at_;
    steps_ = kSearchSteps;
    const std::vector<size_t> before = at_;
    for (const size_t item : order_) take(item);
    search(0, most());
    for (const size_t item : order_) put(item, best_at_[item]);
    if (best_at_ != before) exchange();
  }

  // The items from this one of the order on; loads only grow on the way.
  void search(size_t depth, double largest) {
    if (steps_ == 0 || largest >= best_) return;
    --steps_;
    if (depth == order_.size()) {
      best_ = largest;
      best_at_ = at_;
      return;
    }
    const size_t item = order_[depth];
    for (size_t host = 0; host < loads_.size(); ++host) {
      if (!may(item, host)) continue;
      put(item, host);
      search(depth + 1, std::max(largest, peak(host)));
      take(item);
    }
  }

  const std::vector<PlacementHost>& hosts_;
  const std::vector<PlacementItem>& items_;
  std::vector<size_t> ranked_;                              // the host of each rank
  std::vector<HostAmounts> loads_;                          // by rank, as all below
  std::vector<std::array<double, kHostResources>> scales_;  // what counts as full
  std::vector<std::vector<bool>> choices_;                  // of each item
  std::vector<size_t> counts_;                              // of its choices
  std::vector<size_t> twins_, at_, order_;                  // of each item; all items
  std::vector<size_t> best_at_;                             // found by the search
  double best_ = 0;
  int64_t steps_ = 0;
};

// Why the host cannot have so much of this resource.
Error overloaded(const std::vector<PlacementHost>& hosts, const std::vector<PlacementItem>& items,
                 const Placement& placement, size_t host, size_t resource) {
  const auto text = [resource](int64_t amount) {
    return host_amount_text(static_cast<HostResource>(resource), amount);
  };
  const int64_t has = hosts[host].capacity[resource], used = hosts[host].used[resource];
  const int64_t asked = placement.loads[host][resource], lacks = asked - has;
  std::string remedy =
      cat("give it as much more, name another host, or let other jobs use less of it");
  // The smallest one without which the others fit.
  std::optional<size_t> least;
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t amount = items[i].demand[resource];
    if (placement.hosts[i] != host || amount < lacks) continue;
    if (!least || amount < items[*least].demand[resource]) least = i;
  }
  if (least) {
    remedy = cat("it fits if ", items[*least].name, ", which takes ",
                 text(items[*least].demand[resource]), ", goes to a host that is not named yet");
  }
  return {Code::Infeasible, Reach::Call,
          cat("host ", hosts[host].name, " would be overloaded: it has ", text(has),
              ", other jobs use ", text(used), ", and this job needs ", text(asked - used), ", ",
              text(lacks), " too much: ", remedy)};
}

int64_t amount_of(double amount) {
  return static_cast<int64_t>(
      std::min(std::ceil(std::max(amount, 0.0)), static_cast<double>(kMostHostAmount)));
}

}  // namespace

Result<Placement> place(const std::vector<PlacementHost>& hosts,
                        const std::vector<PlacementItem>& items, bool is_limited) {
  if (const Status fault = check_hosts(hosts); !fault.ok()) return fault.error();
  if (const Status fault = check_items(items, hosts.size()); !fault.ok()) return fault.error();
  Placement placement = Placer(hosts, items).run();
  if (!is_limited) return placement;
  std::optional<std::pair<size_t, size_t>> worst;
  double most = 1;
  for (size_t i = 0; i < hosts.size(); ++i) {
    for (size_t r = 0; r < kHostResources; ++r) {
      if (hosts[i].capacity[r] == 0) continue;
      const double part =
          static_cast<double>(placement.loads[i][r]) / static_cast<double>(hosts[i].capacity[r]);
      if (part > most) worst = std::pair(i, r), most = part;
    }
  }
  if (worst) return overloaded(hosts, items, placement, worst->first, worst->second);
  return placement;
}

UpdateRates rates_of(const SyncMode& mode, int32_t replicas, Duration iteration) {
  UpdateRates rates;
  const double per_second = 1e9 / static_cast<double>(iteration.count());
  rates.gradients = replicas * per_second / mode.local_steps;
  double members = 1;  // of an update, at least
  switch (mode.kind) {
    case SyncKind::Synchronous:
    case SyncKind::Rebalanced:
      members = replicas;
      break;
    case SyncKind::Asynchronous:
      break;
    case SyncKind::Groups:
      // Each group makes an update in an iteration. Not formed yet: each replica may be one.
      if (!mode.groups.empty()) {
        const int32_t last = *std::max_element(mode.groups.begin(), mode.groups.end());
        members = static_cast<double>(replicas) / (last + 1);
      }
      break;
    default:
      members = std::max(1, mode.count);
  }
  rates.updates = rates.gradients / members;
  return rates;
}

HostAmounts demand_of_keeper(Bytes size, const UpdateRates& rates, Duration apply, bool is_first) {
  const double bytes = rates.gradients * static_cast<double>(size.count);
  const double cores = 1000 * rates.updates * static_cast<double>(apply.count()) / 1e9;
  return {amount_of(cores), is_first ? amount_of(bytes) : 0, amount_of(bytes)};
}

HostAmounts demand_of_replica(Bytes size, double gradients, int64_t cores) {
  const double bytes = gradients * static_cast<double>(size.count);
  return {cores, amount_of(2 * bytes), amount_of(bytes)};
}

}  // namespace tenuto
