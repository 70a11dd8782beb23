// Clusters, read from JSON.
#include "world/cluster_file.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "world/job_file.h"

namespace tenuto {
namespace {

constexpr char kTwo[] = "\"bandwidth_gbps\": {\"inside\": 25, \"between\": 5, \"per_node\": 2}";

Cluster read(const std::string& text) {
  const auto cluster = cluster_from_json(text, "test");
  EXPECT_TRUE(cluster.ok()) << cluster.error().message;
  return cluster.ok() ? cluster.value() : Cluster{};
}

double rate(const Cluster& cluster, int32_t from, int32_t to) {
  return cluster.link({from}, {to}).bytes_per_second;
}

// The error, without the name of the file.
std::string refusal(const std::string& text) {
  const auto cluster = cluster_from_json(text, "FILE");
  if (cluster.ok()) return "accepted";
  EXPECT_EQ(cluster.error().code, Code::Invalid);
  EXPECT_EQ(cluster.error().reach, Reach::Call);
  EXPECT_EQ(cluster.error().message.substr(0, 5), "FILE:");
  return cluster.error().message.substr(5);
}

TEST(ClusterFile, Nodes) {
  const Cluster cluster = read(cat("{\"devices\": 5, ", kTwo, "}"));
  ASSERT_EQ(cluster.workers.size(), 5U);
  EXPECT_EQ(cluster.place, (std::vector<int32_t>{0, 0, 1, 1, 2}));
  EXPECT_EQ(rate(cluster, 0, 1), 25e9);
  EXPECT_EQ(rate(cluster, 1, 2), 5e9);
  EXPECT_EQ(rate(cluster, 4, 3), 5e9);
  for (const Worker& worker : cluster.workers) {
    EXPECT_EQ(worker.speed, 1);
    EXPECT_EQ(worker.memory, Bytes{});
    EXPECT_TRUE(worker.alive);
  }
}

TEST(ClusterFile, MatrixMayBeAsymmetric) {
  const Cluster cluster = read(
      "{\"devices\": 3, \"bandwidth_gbps\": [[0, 1, 2], [3, null, 4], [5, 6, -1]], "
      "\"speed\": [1, 0.5, 2], \"memory_bytes\": [1e9, 2000, 1]}");
  EXPECT_EQ(rate(cluster, 0, 2), 2e9);
  EXPECT_EQ(rate(cluster, 2, 0), 5e9);
  EXPECT_EQ(rate(cluster, 1, 0), 3e9);
  EXPECT_EQ(cluster.workers[1].speed, 0.5);
  EXPECT_EQ(cluster.workers[0].memory, Bytes{1'000'000'000});
  EXPECT_EQ(cluster.workers[1].memory, Bytes{2000});
}

TEST(ClusterFile, OneNumberForAll) {
  const Cluster cluster =
      read(cat("{\"devices\": 2, ", kTwo, ", \"memory_bytes\": 16e9, \"speed\": 0.5}"));
  EXPECT_EQ(cluster.workers[1].memory, Bytes{16'000'000'000});
  EXPECT_EQ(cluster.workers[1].speed, 0.5);
}

// The largest clusters, whose nodes are classes of devices or exceptions from one class.
TEST(ClusterFile, ManyDevices) {
  for (const int32_t per_node : {1, 2, 7, 8, 16384, 10000}) {
    const Cluster cluster =
        read(cat("{\"devices\": 16384, \"bandwidth_gbps\": {\"inside\": 25, \"between\": 5, ",
                 "\"per_node\": ", per_node, "}}"));
    ASSERT_EQ(cluster.workers.size(), 16384U);
    for (const auto& [from, to] : std::vector<std::pair<int32_t, int32_t>>{
             {0, 1}, {1, 0}, {6, 7}, {7, 8}, {13, 14}, {0, 16383}, {9999, 10000}, {16382, 16383}}) {
      EXPECT_EQ(rate(cluster, from, to), from / per_node == to / per_node ? 25e9 : 5e9)
          << per_node << " a node, " << from << " to " << to;
    }
  }
}

double latency(const Cluster& cluster, int32_t from, int32_t to) {
  return to_milliseconds(cluster.link({from}, {to}).latency);
}

TEST(ClusterFile, LatencyHasTheFormOfTheRatesOrIsOneNumber) {
  const Cluster nodes =
      read(cat("{\"devices\": 3, ", kTwo, ", \"latency_ms\": {\"inside\": 0.5, \"between\": 2}}"));
  EXPECT_EQ(latency(nodes, 0, 1), 0.5);
  EXPECT_EQ(latency(nodes, 1, 2), 2);
  const Cluster same = read(cat("{\"latency_ms\": 3, \"devices\": 3, ", kTwo, "}"));
  EXPECT_EQ(latency(same, 0, 1), 3);
  EXPECT_EQ(latency(same, 2, 0), 3);
  const Cluster matrix = read(
      "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [2, 0]], \"latency_ms\": [[0, 4], [5, 0]]}");
  EXPECT_EQ(latency(matrix, 0, 1), 4);
  EXPECT_EQ(latency(matrix, 1, 0), 5);
  EXPECT_EQ(rate(matrix, 1, 0), 2e9);
}

TEST(ClusterFile, ClassesOfDevices) {
  const Cluster cluster = read(
      "{\"devices\": 4, \"place\": [2, 0, 1, 0], \"bandwidth_gbps\": [[8, 4, 2], [4, 0, 1], "
      "[3, 1, null]], \"latency_ms\": [[1, 2, 3], [2, 0, 4], [3, 4, 0]]}");
  EXPECT_EQ(rate(cluster, 1, 3), 8e9);
  EXPECT_EQ(rate(cluster, 0, 1), 3e9);
  EXPECT_EQ(rate(cluster, 1, 0), 2e9);
  EXPECT_EQ(rate(cluster, 2, 3), 4e9);
  EXPECT_EQ(latency(cluster, 3, 1), 1);
  EXPECT_EQ(latency(cluster, 2, 0), 4);
}

// Two hosts with a port each, device 1 with a port of its own inside the first.
constexpr char kPorts[] =
    "\"duplex\": \"half\", \"ports\": ["
    "{\"name\": \"host 0\", \"devices\": [2, 0, 1], \"bandwidth_gbps\": 3}, "
    "{\"name\": \"host 1\", \"devices\": [3], \"bandwidth_gbps\": 4, \"duplex\": \"full\", "
    "\"links\": \"leaving\"}, "
    "{\"name\": \"card\", \"devices\": [1], \"bandwidth_gbps\": 2, \"duplex\": \"half\", "
    "\"links\": \"all\"}]";

TEST(ClusterFile, Ports) {
  const Cluster cluster = read(cat("{\"devices\": 4, ", kTwo, ", ", kPorts, "}"));
  EXPECT_TRUE(cluster.half_duplex);
  ASSERT_EQ(cluster.ports.size(), 3U);
  EXPECT_EQ(cluster.ports[0], (Port{"host 0", {{0}, {1}, {2}}, 3e9, false, false}));
  EXPECT_EQ(cluster.ports[1], (Port{"host 1", {{3}}, 4e9, false, false}));
  EXPECT_EQ(cluster.ports[2], (Port{"card", {{1}}, 2e9, true, true}));
  // The rate of a message that has the ports for itself: the slowest of its link and of its ports.
  EXPECT_EQ(rate(cluster, 0, 1), 2e9);
  EXPECT_EQ(rate(cluster, 0, 2), 5e9);
  EXPECT_EQ(rate(cluster, 0, 3), 3e9);
  EXPECT_EQ(rate(cluster, 3, 1), 2e9);
  const Cluster without = read(cat("{\"devices\": 4, ", kTwo, ", \"duplex\": \"full\"}"));
  EXPECT_FALSE(without.half_duplex);
  EXPECT_TRUE(without.ports.empty());
}

TEST(ClusterFile, RefusesWrongPorts) {
  const std::string names = "name, devices, bandwidth_gbps, duplex, links";
  const auto one = [](const std::string& rest) { return cat("[{\"name\": \"a\", ", rest, "}]"); };
  const std::string range = "expected a number from 1e-09 to 1e+06 (gigabytes per second), found ";
  const std::string right = "\"devices\": [0], \"bandwidth_gbps\": 1";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", " ports: expected a list of at most 32768 ports, found an object"},
      {"[1]", cat(" ports[0]: expected an object with the keys ", names, ", found 1")},
      {"[{}]", cat(" ports[0]: the key name is missing; expected ", names)},
      {one("\"devices\": [0], \"gigabytes\": 1"),
       cat(" ports[0]: unknown key \"gigabytes\"; the keys are ", names)},
      {"[{\"name\": \"\", \"devices\": [0], \"bandwidth_gbps\": 1}]",
       " ports[0].name: expected a text of 1 to 100 bytes, found \"\""},
      {one("\"devices\": [], \"bandwidth_gbps\": 1"),
       " ports[0].devices: expected a list with the numbers of at least one device, found a list "
       "of 0"},
      {one("\"devices\": 0, \"bandwidth_gbps\": 1"),
       " ports[0].devices: expected a list with the numbers of at least one device, found 0"},
      {one("\"devices\": [0, 2], \"bandwidth_gbps\": 1"),
       " ports[0].devices[1]: expected the number of a device, a whole number from 0 to 1, found "
       "2"},
      {one("\"devices\": [0.5], \"bandwidth_gbps\": 1"),
       " ports[0].devices[0]: expected the number of a device, a whole number from 0 to 1, found "
       "0.5"},
      {one("\"devices\": [1, 0, 1], \"bandwidth_gbps\": 1"),
       " ports[0].devices[2]: device 1 stands twice: leave one out"},
      {one("\"devices\": [0], \"bandwidth_gbps\": 0"),
       cat(" ports[0].bandwidth_gbps: ", range, "0")},
      {one("\"devices\": [0], \"bandwidth_gbps\": -1"),
       cat(" ports[0].bandwidth_gbps: ", range, "-1")},
      {one("\"devices\": [0], \"bandwidth_gbps\": \"fast\""),
       cat(" ports[0].bandwidth_gbps: ", range, "\"fast\"")},
      {one(cat(right, ", \"duplex\": \"both\"")),
       " ports[0].duplex: expected \"full\" or \"half\", found \"both\""},
      {one(cat(right, ", \"links\": true")),
       " ports[0].links: expected \"leaving\" or \"all\", found true"},
      {cat("[{\"name\": \"a\", ", right, "}, {\"name\": \"a\", ", right, "}]"),
       " ports[1].name: another port is called a, too: give each port its own name"},
  };
  for (const auto& [ports, sentence] : cases) {
    EXPECT_EQ(refusal(cat("{\"devices\": 2, ", kTwo, ", \"ports\": ", ports, "}")), sentence)
        << ports;
  }
  EXPECT_EQ(refusal(cat("{\"devices\": 2, ", kTwo, ", \"duplex\": 2}")),
            " duplex: expected \"full\" or \"half\", found 2");
}

// Rates and latencies between all devices, and what else a file has.
void expect_same(const Cluster& found, const Cluster& wanted) {
  ASSERT_EQ(found.workers.size(), wanted.workers.size());
  EXPECT_EQ(found.ports, wanted.ports);
  EXPECT_EQ(found.half_duplex, wanted.half_duplex);
  const auto count = static_cast<int32_t>(found.workers.size());
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(found.workers[at].speed, wanted.workers[at].speed);
    EXPECT_EQ(found.workers[at].memory, wanted.workers[at].memory);
    for (int32_t j = 0; j < count; ++j) {
      if (i == j) continue;
      EXPECT_EQ(found.link({i}, {j}), wanted.link({i}, {j})) << i << " to " << j;
    }
  }
}

TEST(ClusterFile, WhatIsWrittenIsReadBack) {
  const std::string speeds = ", \"speed\": [1, 0.5, 1, 2, 1], \"memory_bytes\": 3e9";
  for (const std::string& text :
       {cat("{\"devices\": 5, ", kTwo, speeds, "}"),
        cat("{\"devices\": 5, ", kTwo, ", \"latency_ms\": {\"inside\": 0.25, \"between\": 2}}"),
        std::string("{\"devices\": 1, \"bandwidth_gbps\": [[0]]}"),
        cat("{\"devices\": 4, ", kTwo, ", ", kPorts, "}"),
        std::string("{\"devices\": 4, \"place\": [2, 0, 1, 0], \"bandwidth_gbps\": [[8, 4, 2], "
                    "[4, 0, 1], [3, 1, null]], \"latency_ms\": 0.125}")}) {
    const Cluster cluster = read(text);
    expect_same(read(to_json(cluster)), cluster);
  }
  Cluster cluster = read(cat("{\"devices\": 5, ", kTwo, "}"));
  cluster.exceptions[{{3}, {0}}] = {std::chrono::microseconds(125), 2e9};
  expect_same(read(to_json(cluster)), cluster);
  // Unlimited rates are written as the largest ones.
  const Cluster free = read(to_json(uniform_cluster(3, {})));
  EXPECT_EQ(rate(free, 0, 2), 1e15);
}

TEST(ClusterFile, RefusesWrongClassesAndLatencies) {
  const std::string three = "[[1, 1, 1], [1, 1, 1], [1, 1, 1]]";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {cat("{\"devices\": 2, ", kTwo, ", \"place\": [0, 1]}"),
       " bandwidth_gbps: expected a matrix of 2 rows, one for each class that place names, found "
       "an object"},
      {cat("{\"devices\": 2, \"place\": [0, 1], \"bandwidth_gbps\": ", three, "}"),
       " bandwidth_gbps: expected a matrix of 2 rows, one for each class that place names, found a "
       "list of 3"},
      {cat("{\"devices\": 2, \"place\": [0, -1], \"bandwidth_gbps\": ", three, "}"),
       " place[1]: expected the class of the device, a whole number from 0 to 4095, found -1"},
      {cat("{\"devices\": 2, \"place\": [0], \"bandwidth_gbps\": ", three, "}"),
       " place: expected a list of 2 numbers, one for each device, found a list of 1"},
      {"{\"devices\": 3, \"place\": [0, 0, 1], \"bandwidth_gbps\": [[0, 1], [1, 0]]}",
       " bandwidth_gbps[0][0]: expected a number from 1e-09 to 1e+06 (gigabytes per second; every "
       "two devices need a connection), found 0"},
      {cat("{\"devices\": 2, ", kTwo, ", \"latency_ms\": [[0, 1], [1, 0]]}"),
       " latency_ms: expected a number, or an object with the keys inside, between, found a list "
       "of 2"},
      {cat("{\"devices\": 3, \"bandwidth_gbps\": ", three, ", \"latency_ms\": {}}"),
       " latency_ms: expected a number, or a matrix like bandwidth_gbps, found an object"},
      {cat("{\"devices\": 3, \"bandwidth_gbps\": ", three,
           ", \"latency_ms\": [[0, 0, 0], [0, 0, -2], [0, 0, 0]]}"),
       " latency_ms[1][2]: expected a number from 0 to 1e+09 (milliseconds), found -2"},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refusal(text), sentence) << text;
}

TEST(ClusterFile, RefusesWrongNumbers) {
  const std::string rates = " (gigabytes per second)";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {cat("{\"devices\": 0, ", kTwo, "}"),
       " devices: expected a whole number from 1 to 16384, found 0"},
      {cat("{\"devices\": 1.5, ", kTwo, "}"),
       " devices: expected a whole number from 1 to 16384, found 1.5"},
      {cat("{\"devices\": \"8\", ", kTwo, "}"),
       " devices: expected a whole number from 1 to 16384, found \"8\""},
      {cat("{\"devices\": 16385, ", kTwo, "}"),
       " devices: expected a whole number from 1 to 16384, found 16385"},
      {cat("{\"devices\": 2, ", kTwo, ", \"speed\": [1, 0]}"),
       " speed[1]: expected a number from 1e-06 to 1e+06 (1 for a device as profiled), found 0"},
      {cat("{\"devices\": 2, ", kTwo, ", \"speed\": [1]}"),
       " speed: expected a list of 2 numbers, one for each device, found a list of 1"},
      {cat("{\"devices\": 2, ", kTwo, ", \"speed\": {\"0\": 1}}"),
       " speed: expected a number or a list of 2 numbers, one for each device, found an object"},
      {cat("{\"devices\": 2, ", kTwo, ", \"memory_bytes\": 0}"),
       " memory_bytes: expected a number from 1 to 9007199254740992 (bytes), found 0"},
      {cat("{\"devices\": 2, ", kTwo, ", \"memory_bytes\": [1e9, -5]}"),
       " memory_bytes[1]: expected a number from 1 to 9007199254740992 (bytes), found -5"},
      {cat("{\"devices\": 2, ", kTwo, ", \"memory_bytes\": \"16 GB\"}"),
       " memory_bytes: expected a number or a list of 2 numbers, one for each device, found \"16 "
       "GB\""},
      {"{\"devices\": 2, \"bandwidth_gbps\": 25}",
       " bandwidth_gbps: expected a matrix, or an object with the keys inside, between, per_node, "
       "found 25"},
      {"{\"devices\": 3, \"bandwidth_gbps\": [[0, 1, 1], [1, 0, 1]]}",
       " bandwidth_gbps: expected a matrix of 3 rows, one for each device, found a list of 2"},
      {"{\"devices\": 3, \"bandwidth_gbps\": [[0, 1, 1], [1, 0], [1, 1, 0]]}",
       " bandwidth_gbps[1]: expected a list of 3 numbers, one for each device, found a list of 2"},
      {"{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], 5]}",
       " bandwidth_gbps[1]: expected a list of 2 numbers, one for each device, found 5"},
      {"{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [0, 0]]}",
       " bandwidth_gbps[1][0]: expected a number from 1e-09 to 1e+06 (gigabytes per second; every "
       "two devices need a connection), found 0"},
      {"{\"devices\": 2, \"bandwidth_gbps\": [[0, -1], [1, 0]]}",
       cat(" bandwidth_gbps[0][1]: expected a number from 1e-09 to 1e+06", rates, ", found -1")},
      {"{\"devices\": 2, \"bandwidth_gbps\": [[0, true], [1, 0]]}",
       cat(" bandwidth_gbps[0][1]: expected a number from 1e-09 to 1e+06", rates, ", found true")},
      {"{\"devices\": 2, \"bandwidth_gbps\": {\"inside\": 25, \"between\": null, \"per_node\": 1}}",
       cat(" bandwidth_gbps.between: expected a number from 1e-09 to 1e+06", rates,
           ", found null")},
      {"{\"devices\": 2, \"bandwidth_gbps\": {\"inside\": 25, \"between\": 5, \"per_node\": 0}}",
       " bandwidth_gbps.per_node: expected a whole number from 1 to 16384, found 0"},
      {"{\"devices\": 5000, \"bandwidth_gbps\": [[0]]}",
       " bandwidth_gbps: expected an object with inside, between and per_node, because a matrix is "
       "possible for 4096 devices at most, found a matrix"},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refusal(text), sentence) << text;
}

TEST(ClusterFile, RefusesWrongForm) {
  const std::string names =
      "devices, bandwidth_gbps, memory_bytes, speed, latency_ms, place, duplex, ports";
  const std::string form =
      ": expected a cluster as JSON, found text that is not JSON (is the file cut off, or is a "
      "number written in another form?)";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", " expected a cluster as JSON, found an empty file"},
      {" \n", " expected a cluster as JSON, found an empty file"},
      {"[]", cat(" expected an object with the keys ", names, ", found a list of 0")},
      {"7", cat(" expected an object with the keys ", names, ", found 7")},
      {"{}", cat(" the key devices is missing; expected ", names)},
      {"{\"devices\": 2}", cat(" the key bandwidth_gbps is missing; expected ", names)},
      {cat("{\"device\": 2, ", kTwo, "}"), " unknown key \"device\", did you mean devices?"},
      {cat("{\"devices\": 2, ", kTwo, ", \"zzzzzzzzzz\": 1}"),
       cat(" unknown key \"zzzzzzzzzz\"; the keys are ", names)},
      {"{\"devices\": 2, \"bandwidth_gbps\": {\"inside\": 25, \"betwen\": 5, \"per_node\": 1}}",
       " bandwidth_gbps: unknown key \"betwen\", did you mean between?"},
      {"{\"devices\": 2, \"bandwidth_gbps\": {\"inside\": 25, \"per_node\": 1}}",
       " bandwidth_gbps: the key between is missing; expected inside, between, per_node"},
      {cat("{\"devices\": 2, \"devices\": 3, ", kTwo, "}"),
       " the key devices stands twice: leave one out"},
      {"{\"devices\": 2,\n \"speed\": [NaN]}", cat("2:12", form)},
      {"{\"devices\": 2,", cat("1:15", form)},
      {cat("{\"devices\": 2, ", kTwo, "} x"), cat("1:79", form)},
      {"{\"devices\": 1e999}", " a number of the cluster is too large to be read"},
      {"{\"devices\": [[[[[[1]]]]]]}",
       " expected a cluster, found lists or objects nested 5 times and more"},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refusal(text), sentence) << text;
  EXPECT_EQ(refusal(std::string(1'000'000, '[')), cat("1:1000001", form));
}

TEST(ClusterFile, ReadsPlainFilesOnly) {
  const File file(cat("{\"devices\": 2, ", kTwo, "}"));
  EXPECT_TRUE(load_cluster(file.path()).ok());
  for (const char* path : {"/dev/zero", "/tmp", "/tmp/tenuto-there-is-no-such-file"}) {
    const auto cluster = load_cluster(path);
    ASSERT_FALSE(cluster.ok());
    EXPECT_NE(cluster.error().message.find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace tenuto
