#include "world/cluster_file.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "ir/plan.h"

namespace tenuto {

namespace {

using Json = nlohmann::json;

// Objects and lists are nested this deep: the rows of the matrix in the object.
constexpr int kMostDepth = 3;
// A byte per second, and more than any connection has.
constexpr double kLeastRate = 1e-9, kMostRate = 1e6;
constexpr double kLeastSpeed = 1e-6, kMostSpeed = 1e6;
// With more nodes than this, rates within nodes are exceptions from one rate of all: a table of the
// rates between all nodes would be large.
constexpr int32_t kMostNodeClasses = 4'096;

struct NumberKey {
  std::string_view unit;
  double least = 0, most = 0;
};

// Reads a tree; the first fault is kept, everything after it is skipped.
class ClusterReader {
 public:
  explicit ClusterReader(const std::string& source) : source_(source) {}

  Result<Cluster> read(const Json& tree) {
    check_keys(tree, "", {"devices", "bandwidth_gbps"}, {"memory_bytes", "speed"});
    if (error_) return *error_;
    count_ = whole_number(tree["devices"], "devices", kMostDevices);
    if (error_) return *error_;
    cluster_.workers.resize(static_cast<size_t>(count_));
    read_rates(tree["bandwidth_gbps"]);
    read_each(tree, "memory_bytes", {"bytes", 1, static_cast<double>(kMostMemory)},
              [](Worker& worker, double bytes) { worker.memory = {std::llround(bytes)}; });
    read_each(tree, "speed", {"1 for a device as profiled", kLeastSpeed, kMostSpeed},
              [](Worker& worker, double speed) { worker.speed = speed; });
    if (error_) return *error_;
    return std::move(cluster_);
  }

 private:
  void refuse(const std::string& place, const std::string& sentence) {
    if (error_) return;
    error_ = invalid(cat(source_, ": ", place, place.empty() ? "" : ": ", sentence));
  }

  void refuse_value(const std::string& place, const std::string& wanted, const Json& found) {
    if (error_) return;
    const std::string what = found.is_array()    ? cat("a list of ", found.size())
                             : found.is_object() ? std::string("an object")
                                                 : shown(found);
    refuse(place, cat("expected ", wanted, ", found ", what));
  }

  static std::string shown(const Json& value) {
    constexpr size_t kMost = 40;
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > kMost ? text.substr(0, kMost - 3) + "..." : text;
  }

  // Refuses what is no object with these keys.
  void check_keys(const Json& tree, const std::string& place,
                  std::initializer_list<std::string_view> needed,
                  std::initializer_list<std::string_view> possible) {
    std::vector<std::string_view> all(needed);
    all.insert(all.end(), possible);
    std::string names;
    for (const std::string_view key : all) names += cat(names.empty() ? "" : ", ", key);
    if (!tree.is_object()) {
      refuse_value(place, cat("an object with the keys ", names), tree);
      return;
    }
    for (const auto& [key, value] : tree.items()) {
      if (std::find(all.begin(), all.end(), std::string_view(key)) != all.end()) continue;
      const std::string near = nearest(key, all.data(), all.size());
      refuse(place,
             cat("unknown key ", shown(key),
                 near.empty() ? cat("; the keys are ", names) : cat(", did you mean ", near, "?")));
    }
    for (const std::string_view key : needed) {
      if (!tree.contains(std::string(key))) {
        refuse(place, cat("the key ", key, " is missing; expected ", names));
      }
    }
  }

  int32_t whole_number(const Json& tree, const std::string& place, int32_t most) {
    const double number = tree.is_number() ? tree.get<double>() : 0;
    if (number >= 1 && number <= most && number == std::floor(number)) {
      return static_cast<int32_t>(number);
    }
    refuse_value(place, cat("a whole number from 1 to ", most), tree);
    return 1;
  }

  double number(const Json& tree, const std::string& place, const NumberKey& key) {
    const double number = tree.is_number() ? tree.get<double>() : std::nan("");
    if (number >= key.least && number <= key.most) return number;
    refuse_value(place, cat("a number from ", key.least, " to ", key.most, " (", key.unit, ")"),
                 tree);
    return key.least;
  }

  // A value of each device: one number for all, or a list.
  template <class Take>
  void read_each(const Json& tree, const std::string& name, const NumberKey& key, Take take) {
    if (error_ || !tree.contains(name)) return;
    const Json& value = tree[name];
    if (!value.is_array()) {
      if (!value.is_number()) {
        refuse_value(name, cat("a number or a list of ", count_, " numbers, one for each device"),
                     value);
      }
      const double all = number(value, name, key);
      for (Worker& worker : cluster_.workers) take(worker, all);
      return;
    }
    if (!has_size(value, name)) return;
    for (size_t i = 0; i < value.size() && !error_; ++i) {
      take(cluster_.workers[i], number(value[i], cat(name, "[", i, "]"), key));
    }
  }

  bool has_size(const Json& list, const std::string& place) {
    if (list.is_array() && list.size() == cluster_.workers.size()) return true;
    refuse_value(place, cat("a list of ", count_, " numbers, one for each device"), list);
    return false;
  }

  double rate(const Json& tree, const std::string& place) {
    const bool none = tree.is_number() && tree.get<double>() == 0;
    return 1e9 * number(tree, place,
                        {none ? "gigabytes per second; every two devices need a connection"
                              : "gigabytes per second",
                         kLeastRate, kMostRate});
  }

  void read_rates(const Json& tree) {
    const std::string place = "bandwidth_gbps";
    if (tree.is_array()) {
      read_matrix(tree, place);
      return;
    }
    if (!tree.is_object()) {
      refuse_value(place, "a matrix, or an object with the keys inside, between, per_node", tree);
      return;
    }
    check_keys(tree, place, {"inside", "between", "per_node"}, {});
    if (error_) return;
    set_nodes({{}, rate(tree["inside"], place + ".inside")},
              {{}, rate(tree["between"], place + ".between")},
              whole_number(tree["per_node"], place + ".per_node", kMostDevices));
  }

  void read_matrix(const Json& tree, const std::string& place) {
    if (count_ > kMostMatrixDevices) {
      refuse(place,
             cat("expected an object with inside, between and per_node, because a matrix is ",
                 "possible for ", kMostMatrixDevices, " devices at most, found a matrix"));
    }
    if (error_) return;
    const auto size = static_cast<size_t>(count_);
    if (tree.size() != size) {
      refuse_value(place, cat("a matrix of ", count_, " rows, one for each device"), tree);
      return;
    }
    cluster_.between.assign(size, std::vector<Link>(size));
    for (size_t row = 0; row < size && !error_; ++row) {
      cluster_.place.push_back(static_cast<int32_t>(row));
      const std::string row_place = cat(place, "[", row, "]");
      if (!has_size(tree[row], row_place)) return;
      for (size_t column = 0; column < size && !error_; ++column) {
        const Json& entry = tree[row][column];
        if (row == column && (entry.is_number() || entry.is_null())) continue;
        cluster_.between[row][column].bytes_per_second =
            rate(entry, error_ ? std::string() : entry_place(row_place, column, entry));
      }
    }
  }

  // The place of an entry; not made for the many entries that are right.
  static std::string entry_place(const std::string& row_place, size_t column, const Json& entry) {
    const double value = entry.is_number() ? entry.get<double>() : 0;
    return value >= kLeastRate && value <= kMostRate ? std::string()
                                                     : cat(row_place, "[", column, "]");
  }

  // Nodes of `per_node` devices; the last one may be smaller.
  void set_nodes(const Link& inside, const Link& between, int32_t per_node) {
    const int32_t nodes = (count_ - 1) / per_node + 1;
    if (nodes <= kMostNodeClasses) {
      const auto size = static_cast<size_t>(nodes);
      cluster_.between.assign(size, std::vector<Link>(size, between));
      for (size_t node = 0; node < size; ++node) cluster_.between[node][node] = inside;
      for (int32_t i = 0; i < count_; ++i) cluster_.place.push_back(i / per_node);
      return;
    }
    cluster_.between = {{between}};
    for (int32_t i = 0; i < count_; ++i) {
      const int32_t first = i / per_node * per_node, end = std::min(first + per_node, count_);
      for (int32_t j = first; j < end; ++j) {
        if (i != j) cluster_.exceptions[{WorkerId{i}, WorkerId{j}}] = inside;
      }
    }
  }

  const std::string& source_;
  int32_t count_ = 1;
  Cluster cluster_;
  std::optional<Error> error_;
};

// Line and column of byte `at` (1-based, as the parser counts).
std::string place_of(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, std::min(at == 0 ? 0 : at - 1, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return cat(line, ":", before.size() - begin + 1);
}

}  // namespace

Result<Cluster> cluster_from_json(std::string_view text, const std::string& source) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      // Printing a tree recurses to its depth, so nothing deeper than a cluster is kept.
      deep = deep || depth >= kMostDepth;
      if (deep) return false;
    }
    if (deep) return true;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!keys.back().insert(key).second && twice.empty()) twice = key;
    return true;
  };
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return invalid(cat(source, ": expected a cluster as JSON, found an empty file"));
  }
  Json tree;
  try {
    tree = Json::parse(text, watch);
  } catch (const Json::parse_error& fault) {
    return invalid(cat(source, ":", place_of(text, fault.byte),
                       ": expected a cluster as JSON, found a fault of form (is the file cut off, ",
                       "or is a number not in the form of JSON?)"));
  } catch (const Json::exception&) {
    return invalid(cat(source, ": a number of the cluster is too large to be read"));
  }
  if (deep) {
    return invalid(cat(source, ": expected a cluster, found lists or objects nested ",
                       kMostDepth + 1, " times and more"));
  }
  if (!twice.empty()) {
    return invalid(cat(source, ": the key ", twice.substr(0, 40), " stands twice: leave one out"));
  }
  return ClusterReader(source).read(tree);
}

Result<Cluster> load_cluster(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return text.error();
  return cluster_from_json(text.value(), path);
}

}  // namespace tenuto
