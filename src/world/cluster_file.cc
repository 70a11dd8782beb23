#include "world/cluster_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sentence.h"
#include "base/text.h"
#include "ir/plan.h"
#include "world/json_reading.h"

namespace tenuto {

namespace {

// Objects and lists are nested this deep: the devices of a port in the list of ports in the object.
constexpr int kMostDepth = 4;
constexpr size_t kMostName = 100;  // bytes of a port's name
// A byte per second, and more than any connection has.
constexpr double kLeastRate = 1e-9, kMostRate = 1e6;
constexpr double kLeastSpeed = 1e-6, kMostSpeed = 1e6;
constexpr double kMostLatency = 1e9;
// With more nodes than this, rates within nodes are exceptions from one rate of all: a table of the
// rates between all nodes would be large.
constexpr int32_t kMostNodeClasses = 4'096;
constexpr double kGigabyte = 1e9;

const NumberKey kLatency{"milliseconds", 0, kMostLatency};

// Stores the number of a matrix entry in a link: as its rate or as its latency.
using Take = void (*)(Link& link, double number);

void take_rate(Link& link, double gigabytes) { link.bytes_per_second = kGigabyte * gigabytes; }
void take_latency(Link& link, double milliseconds) {
  link.latency = from_milliseconds(milliseconds);
}

// Reads a tree; the first fault is kept, everything after it is skipped.
class ClusterReader {
 public:
  explicit ClusterReader(const std::string& source) : reading_(source) {}

  Result<Cluster> read(const Json& tree) {
    reading_.check_keys(tree, "", {"devices", "bandwidth_gbps"},
                        {"memory_bytes", "speed", "latency_ms", "place", "duplex", "ports"});
    if (failed()) return *reading_.error();
    count_ = reading_.whole_number(tree["devices"], "devices", kMostDevices);
    if (failed()) return *reading_.error();
    cluster_.workers.resize(static_cast<size_t>(count_));
    if (tree.contains("place")) read_places(tree["place"]);
    read_rates(tree["bandwidth_gbps"]);
    if (!failed() && tree.contains("latency_ms")) read_latency(tree["latency_ms"]);
    if (!failed() && nodes_.size > 0) set_nodes();
    read_each(tree, "memory_bytes", {"bytes", 1, static_cast<double>(kMostMemory)},
              [](Worker& worker, double bytes) { worker.memory = {std::llround(bytes)}; });
    read_each(tree, "speed", {"1 for a device as profiled", kLeastSpeed, kMostSpeed},
              [](Worker& worker, double speed) { worker.speed = speed; });
    if (tree.contains("duplex")) cluster_.half_duplex = is_half(tree["duplex"], "duplex");
    if (!failed() && tree.contains("ports")) read_ports(tree["ports"]);
    if (failed()) return *reading_.error();
    return std::move(cluster_);
  }

 private:
  bool failed() const { return reading_.error().has_value(); }

  // True for the second of two words; anything else than the two is refused.
  bool is_second(const Json& tree, const std::string& place, const char* first,
                 const char* second) {
    const std::string word = tree.is_string() ? tree.get<std::string>() : std::string();
    if (word != first && word != second) {
      reading_.refuse_value(place, cat("\"", first, "\" or \"", second, "\""), tree);
    }
    return word == second;
  }

  bool is_half(const Json& tree, const std::string& place) {
    return is_second(tree, place, "full", "half");
  }

  void read_ports(const Json& tree) {
    if (!tree.is_array() || tree.size() > static_cast<size_t>(kMostPorts)) {
      reading_.refuse_value("ports", cat("a list of at most ", kMostPorts, " ports"), tree);
      return;
    }
    std::set<std::string> names;
    for (size_t i = 0; i < tree.size() && !failed(); ++i) {
      const std::string place = cat("ports[", i, "]");
      Port port = port_of(tree[i], place);
      if (!failed() && !names.insert(port.name).second) {
        reading_.refuse(place + ".name", cat("another port is called ", excerpt(port.name),
                                             ", too: give each port its own name"));
      }
      cluster_.ports.push_back(std::move(port));
    }
  }

  Port port_of(const Json& tree, const std::string& place) {
    Port port;
    reading_.check_keys(tree, place, {"name", "devices", "bandwidth_gbps"}, {"duplex", "links"});
    if (failed()) return port;
    port.name = reading_.text(tree["name"], place + ".name");
    if (port.name.empty() || port.name.size() > kMostName) {
      reading_.refuse_value(place + ".name", cat("a text of 1 to ", kMostName, " bytes"),
                            tree["name"]);
    }
    read_devices(tree["devices"], place + ".devices", port);
    port.bytes_per_second =
        kGigabyte * reading_.number(tree["bandwidth_gbps"], place + ".bandwidth_gbps",
                                    {"gigabytes per second", kLeastRate, kMostRate});
    if (tree.contains("duplex")) port.half_duplex = is_half(tree["duplex"], place + ".duplex");
    if (tree.contains("links")) {
      port.inside = is_second(tree["links"], place + ".links", "leaving", "all");
    }
    return port;
  }

  void read_devices(const Json& tree, const std::string& place, Port& port) {
    if (!tree.is_array() || tree.empty()) {
      reading_.refuse_value(place, "a list with the numbers of at least one device", tree);
      return;
    }
    std::set<WorkerId> devices;
    for (size_t i = 0; i < tree.size() && !failed(); ++i) {
      const double number = tree[i].is_number() ? tree[i].get<double>() : -1;
      if (!(number >= 0 && number < count_ && number == std::floor(number))) {
        reading_.refuse_value(cat(place, "[", i, "]"),
                              cat("the number of a device, a whole number from 0 to ", count_ - 1),
                              tree[i]);
      } else if (!devices.insert({static_cast<int32_t>(number)}).second) {
        reading_.refuse(cat(place, "[", i, "]"),
                        cat("device ", number, " stands twice: leave one out"));
      }
    }
    port.devices.assign(devices.begin(), devices.end());
  }

  // A value of each device: one number for all, or a list.
  template <class Set>
  void read_each(const Json& tree, const std::string& name, const NumberKey& key, Set set) {
    if (failed() || !tree.contains(name)) return;
    const Json& value = tree[name];
    if (!value.is_array()) {
      if (!value.is_number()) {
        reading_.refuse_value(
            name, cat("a number or a list of ", count_, " numbers, one for each device"), value);
      }
      const double all = reading_.number(value, name, key);
      for (Worker& worker : cluster_.workers) set(worker, all);
      return;
    }
    if (!has_size(value, name)) return;
    for (size_t i = 0; i < value.size() && !failed(); ++i) {
      set(cluster_.workers[i], reading_.number(value[i], cat(name, "[", i, "]"), key));
    }
  }

  bool has_size(const Json& list, const std::string& place) {
    if (list.is_array() && list.size() == cluster_.workers.size()) return true;
    reading_.refuse_value(place, cat("a list of ", count_, " numbers, one for each device"), list);
    return false;
  }

  void read_places(const Json& tree) {
    if (!has_size(tree, "place")) return;
    for (size_t i = 0; i < tree.size() && !failed(); ++i) {
      const double number = tree[i].is_number() ? tree[i].get<double>() : -1;
      if (!(number >= 0 && number < kMostMatrixDevices && number == std::floor(number))) {
        reading_.refuse_value(
            cat("place[", i, "]"),
            cat("the class of the device, a whole number from 0 to ", kMostMatrixDevices - 1),
            tree[i]);
        return;
      }
      cluster_.place.push_back(static_cast<int32_t>(number));
    }
    const int32_t most = *std::max_element(cluster_.place.begin(), cluster_.place.end());
    members_.assign(static_cast<size_t>(most) + 1, 0);
    for (const int32_t place : cluster_.place) ++members_[static_cast<size_t>(place)];
  }

  double rate(const Json& tree, const std::string& place) {
    const bool none = tree.is_number() && tree.get<double>() == 0;
    return reading_.number(tree, place,
                           {none ? "gigabytes per second; every two devices need a connection"
                                 : "gigabytes per second",
                            kLeastRate, kMostRate});
  }

  void read_rates(const Json& tree) {
    const std::string place = "bandwidth_gbps";
    if (failed()) return;
    if (tree.is_array()) {
      const size_t size = by_class() ? members_.size() : static_cast<size_t>(count_);
      if (!by_class() && count_ > kMostMatrixDevices) {
        reading_.refuse(
            place, cat("expected an object with inside, between and per_node, because a matrix is ",
                       "possible for ", kMostMatrixDevices, " devices at most, found a matrix"));
        return;
      }
      cluster_.between.assign(size, std::vector<Link>(size));
      for (int32_t i = 0; !by_class() && i < count_; ++i) cluster_.place.push_back(i);
      read_matrix(tree, place, take_rate);
      return;
    }
    if (by_class()) {
      reading_.refuse_value(
          place,
          cat("a matrix of ", members_.size(), " rows, one for each class that ", "place names"),
          tree);
      return;
    }
    if (!tree.is_object()) {
      reading_.refuse_value(place, "a matrix, or an object with the keys inside, between, per_node",
                            tree);
      return;
    }
    reading_.check_keys(tree, place, {"inside", "between", "per_node"}, {});
    if (failed()) return;
    take_rate(nodes_.inside, rate(tree["inside"], place + ".inside"));
    take_rate(nodes_.between, rate(tree["between"], place + ".between"));
    nodes_.size = reading_.whole_number(tree["per_node"], place + ".per_node", kMostDevices);
  }

  void read_latency(const Json& tree) {
    const std::string place = "latency_ms";
    if (tree.is_number()) {
      const double all = reading_.number(tree, place, kLatency);
      take_latency(nodes_.inside, all);
      take_latency(nodes_.between, all);
      for (std::vector<Link>& row : cluster_.between) {
        for (Link& link : row) take_latency(link, all);
      }
      return;
    }
    if (nodes_.size == 0) {
      if (!tree.is_array()) {
        reading_.refuse_value(place, "a number, or a matrix like bandwidth_gbps", tree);
        return;
      }
      read_matrix(tree, place, take_latency);
      return;
    }
    if (!tree.is_object()) {
      reading_.refuse_value(place, "a number, or an object with the keys inside, between", tree);
      return;
    }
    reading_.check_keys(tree, place, {"inside", "between"}, {});
    if (failed()) return;
    take_latency(nodes_.inside, reading_.number(tree["inside"], place + ".inside", kLatency));
    take_latency(nodes_.between, reading_.number(tree["between"], place + ".between", kLatency));
  }

  bool by_class() const { return !members_.empty(); }

  // True for a diagonal entry that is used by no pair of devices.
  bool is_idle(size_t row, size_t column) const {
    return row == column && (!by_class() || members_[row] < 2);
  }

  void read_matrix(const Json& tree, const std::string& place, Take take) {
    const size_t size = cluster_.between.size();
    const auto has_rows = [&](const Json& list, const std::string& where, const char* what) {
      if (list.is_array() && list.size() == size) return true;
      reading_.refuse_value(
          where,
          cat("a ", what,
              by_class() ? "one for each class that place names" : "one for each device"),
          list);
      return false;
    };
    if (!has_rows(tree, place, cat("matrix of ", size, " rows, ").c_str())) return;
    for (size_t row = 0; row < size && !failed(); ++row) {
      const std::string row_place = cat(place, "[", row, "]");
      if (!has_rows(tree[row], row_place, cat("list of ", size, " numbers, ").c_str())) return;
      for (size_t column = 0; column < size && !failed(); ++column) {
        const Json& entry = tree[row][column];
        if (is_idle(row, column) && (entry.is_number() || entry.is_null())) continue;
        take(cluster_.between[row][column], entry_of(entry, row_place, column, take));
      }
    }
  }

  // Makes the text of the entry's place only if the entry is wrong, since a matrix has many.
  double entry_of(const Json& entry, const std::string& row_place, size_t column, Take take) {
    const bool of_rates = take == take_rate;
    const double value = entry.is_number() ? entry.get<double>() : -1;
    const bool right =
        of_rates ? value >= kLeastRate && value <= kMostRate : value >= 0 && value <= kMostLatency;
    if (right) return value;
    const std::string place = cat(row_place, "[", column, "]");
    return of_rates ? rate(entry, place) : reading_.number(entry, place, kLatency);
  }

  // Divides the devices into nodes of equal size; the last one may be smaller.
  void set_nodes() {
    const int32_t per_node = nodes_.size, nodes = (count_ - 1) / per_node + 1;
    if (nodes <= kMostNodeClasses) {
      const auto size = static_cast<size_t>(nodes);
      cluster_.between.assign(size, std::vector<Link>(size, nodes_.between));
      for (size_t node = 0; node < size; ++node) cluster_.between[node][node] = nodes_.inside;
      for (int32_t i = 0; i < count_; ++i) cluster_.place.push_back(i / per_node);
      return;
    }
    cluster_.between = {{nodes_.between}};
    for (int32_t i = 0; i < count_; ++i) {
      const int32_t first = i / per_node * per_node, end = std::min(first + per_node, count_);
      for (int32_t j = first; j < end; ++j) {
        if (i != j) cluster_.exceptions[{WorkerId{i}, WorkerId{j}}] = nodes_.inside;
      }
    }
  }

  struct Nodes {
    Link inside, between;
    int32_t size = 0;  // devices of a node; 0 = the file has a matrix
  };

  JsonReading reading_;
  int32_t count_ = 1;
  std::vector<int32_t> members_;  // of each class that `place` names; empty without `place`
  Nodes nodes_;
  Cluster cluster_;
};

// One number if all are equal, else the list.
Json of_each(const std::vector<double>& values) {
  const bool equal = std::all_of(values.begin(), values.end(),
                                 [&](double value) { return value == values.front(); });
  return equal ? Json(values.front()) : Json(values);
}

double gigabytes(double bytes_per_second) {
  const double rate = bytes_per_second / kGigabyte;
  return rate == 0 ? kMostRate : std::clamp(rate, kLeastRate, kMostRate);
}

Json json_of(const Port& port) {
  Json devices = Json::array();
  for (const WorkerId device : port.devices) devices.push_back(device.value);
  return {{"name", port.name},
          {"devices", std::move(devices)},
          {"bandwidth_gbps", gigabytes(port.bytes_per_second)},
          {"duplex", port.half_duplex ? "half" : "full"},
          {"links", port.inside ? "all" : "leaving"}};
}

}  // namespace

Result<Cluster> cluster_from_json(std::string_view text, const std::string& source) {
  const auto tree = parse_json(text, source, {"cluster", kMostDepth});
  if (!tree.ok()) return tree.error();
  return ClusterReader(source).read(tree.value());
}

Result<Cluster> load_cluster(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return text.error();
  return cluster_from_json(text.value(), path);
}

std::string to_json(const Cluster& cluster) {
  const size_t devices = cluster.workers.size();
  CHECK(devices > 0, "a cluster file has devices");
  const bool by_class = cluster.exceptions.empty();
  CHECK(by_class || devices <= static_cast<size_t>(kMostMatrixDevices),
        "exceptions of a large cluster have no form in a file");
  std::vector<int32_t> places = cluster.place;
  if (places.empty()) places.assign(devices, 0);
  // Classes after the last one that has devices get no row in the file.
  size_t size = devices;
  if (by_class) size = static_cast<size_t>(*std::max_element(places.begin(), places.end())) + 1;
  const auto link = [&](size_t row, size_t column) -> Link {
    if (!by_class) {
      return cluster.link({static_cast<int32_t>(row)}, {static_cast<int32_t>(column)});
    }
    return cluster.between.empty() ? Link{} : cluster.between[row][column];
  };
  Json rates = Json::array(), latencies = Json::array();
  bool late = false;
  for (size_t row = 0; row < size; ++row) {
    Json rate_row = Json::array(), latency_row = Json::array();
    for (size_t column = 0; column < size; ++column) {
      const Link one = row == column && !by_class ? Link{} : link(row, column);
      rate_row.push_back(gigabytes(one.bytes_per_second));
      latency_row.push_back(to_milliseconds(one.latency));
      late = late || one.latency.count() > 0;
    }
    rates.push_back(std::move(rate_row));
    latencies.push_back(std::move(latency_row));
  }
  std::string text = cat("{\n \"devices\": ", devices);
  const auto put = [&text](const char* key, const std::string& value) {
    text += cat(",\n \"", key, "\": ", value);
  };
  // Writes one row of a matrix, or one port, on each line.
  const auto put_rows = [&](const char* key, const Json& list) {
    std::string rows;
    for (const Json& row : list) rows += cat(rows.empty() ? "" : ",\n  ", row.dump());
    put(key, cat("[\n  ", rows, "\n ]"));
  };
  std::vector<double> speed, memory;
  bool limited = false;
  for (const Worker& worker : cluster.workers) {
    speed.push_back(worker.speed);
    limited = limited || worker.memory.count > 0;
    memory.push_back(
        static_cast<double>(worker.memory.count > 0 ? worker.memory.count : kMostMemory));
  }
  if (by_class) put("place", Json(places).dump());
  put_rows("bandwidth_gbps", rates);
  if (late) put_rows("latency_ms", latencies);
  if (limited) put("memory_bytes", of_each(memory).dump());
  put("speed", of_each(speed).dump());
  if (cluster.half_duplex) put("duplex", "\"half\"");
  if (!cluster.ports.empty()) {
    Json ports = Json::array();
    for (const Port& port : cluster.ports) ports.push_back(json_of(port));
    put_rows("ports", ports);
  }
  return text + "\n}\n";
}

}  // namespace tenuto
