// The measured chains of layers, the clusters and the tables of other planners' steps in the shared
// data (tests/shared_data.h). Each function returns nothing when its file is absent or unreadable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A chain of layers by its name, e.g. "piped_vgg16". The whole backward of a layer counts as
// backward_input, and the stash has the size of the activation.
std::optional<Model> shared_chain(const std::string& name);

// A cluster by its name, e.g. "2x4nv50": no latency, unlimited memory, one class for each device.
std::optional<Cluster> shared_topology(const std::string& name);

// A row of a table. The columns are ratios to the lower bound.
struct ExpectedRow {
  std::string chain;
  double bound_ms = 0;  // lower bound on the step
  double data_parallel = 0, gpipe = 0, one_f_one_b = 0, pipedream = 0, dapple = 0;
  double natural_order = 0, min_cut = 0;            // least bottleneck, by order of the devices
  double searched = 0;                              // after a search
  std::string min_cut_replicas, searched_replicas;  // of each stage, e.g. "6-2"
};

// The seven tables: cluster and micro-batches, e.g. "2x4nv50_8".
std::vector<std::string> expected_tables();
// The cluster of a table.
std::string topology_of(const std::string& table);
// The micro-batches of a table.
int32_t micros_of(const std::string& table);

// The rows of a table; empty when it is absent.
std::vector<ExpectedRow> expected_table(const std::string& name);

}  // namespace tenuto
