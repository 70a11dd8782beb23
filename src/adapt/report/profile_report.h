// The reports of `tenuto profile` about its measurements.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "world/cluster.h"
#include "world/link_table.h"
#include "world/model_profile.h"

namespace tenuto {

// A ring of workers in which each one sent to the next, all at the same time.
struct RingFigure {
  std::vector<WorkerId> workers;
  double bytes_per_second = 0;  // of the slowest link
};

// The measurements of the links.
struct LinkReport {
  LinkTable table;
  Cluster cluster;
  std::vector<RingFigure> rings;
  bool measured = true;  // false: they are the settings of a virtual clock
};

// The results of one profile command.
struct ProfileReport {
  std::optional<ModelProfile> model;
  std::optional<LinkReport> links;
  std::string device;                    // "cpu, fp32, 1 thread"
  std::string model_file, cluster_file;  // where they were written
};

// For people: a line for each layer and for each kind of link.
std::string profile_text(const ProfileReport& report);

// For programs: one JSON object.
std::string profile_json(const ProfileReport& report);

}  // namespace tenuto
