#include "adapt/layout/chain_data.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "shared_data.h"

namespace tenuto {

namespace {

std::string path_of(const std::string& name) { return shared_data("planner/" + name); }

}  // namespace

std::optional<Model> shared_chain(const std::string& name) {
  std::ifstream file(path_of(name + ".chain"));
  Model model;
  double forward_ms = 0, backward_ms = 0, activation = 0, parameters = 0;
  std::string layer_name;
  while (file >> forward_ms >> backward_ms >> activation >> parameters >> layer_name) {
    Layer layer;
    layer.forward = from_milliseconds(forward_ms);
    layer.backward_input = from_milliseconds(backward_ms);
    layer.activation = layer.stash = Bytes{static_cast<int64_t>(activation)};
    layer.parameters = Bytes{static_cast<int64_t>(parameters)};
    model.layers.push_back(layer);
  }
  if (model.layers.empty() || !file.eof()) return std::nullopt;
  return model;
}

std::optional<Cluster> shared_topology(const std::string& name) {
  std::ifstream file(path_of("topologies/" + name + ".tsv"));
  Cluster cluster;
  for (std::string line; std::getline(file, line);) {
    std::istringstream rates(line);
    std::vector<Link> row;
    for (double rate = 0; rates >> rate;) row.push_back({Duration{}, rate * 1e9});
    cluster.between.push_back(row);
    cluster.place.push_back(static_cast<int32_t>(cluster.place.size()));
  }
  cluster.workers.resize(cluster.between.size());
  for (const std::vector<Link>& row : cluster.between) {
    if (row.size() != cluster.between.size()) return std::nullopt;
  }
  if (cluster.workers.empty()) return std::nullopt;
  return cluster;
}

std::vector<std::string> expected_tables() {
  return {"2x4nv50_8", "2x4nv50_32", "4x2pcie10s_8", "4x2pcie10s_32",
          "mixed8s_8", "mixed8s_32", "4x4mixs_16"};
}

std::string topology_of(const std::string& table) { return table.substr(0, table.rfind('_')); }

int32_t micros_of(const std::string& table) {
  return std::atoi(table.substr(table.rfind('_') + 1).c_str());
}

std::vector<ExpectedRow> expected_table(const std::string& name) {
  std::ifstream file(path_of("expected/" + name + ".txt"));
  std::vector<ExpectedRow> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    ExpectedRow row;
    std::string spp, ours;  // the words before the replicas of each
    words >> row.chain >> row.bound_ms >> row.data_parallel >> row.gpipe >> row.one_f_one_b >>
        row.pipedream >> row.dapple >> row.natural_order >> row.min_cut >> row.searched >> spp >>
        row.min_cut_replicas >> ours >> row.searched_replicas;
    // The headings and the line of means have words where a row has numbers, or fewer of these.
    if (words && spp == "SPP" && ours == "ours") rows.push_back(row);
  }
  return rows;
}

}  // namespace tenuto
