// What Perfetto requires of a Chrome trace: a trace that breaks one of these rules is shown with a
// warning, and without the slice or the arrow.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tenuto {

// A sentence for each breach in the text of a trace; empty = it is shown without a warning.
// - Slices of a thread lie one after the other, or one wholly within the other.
// - An arrow has one begin and one end, and each of its points lies in a slice of its thread that
//   has not ended yet.
inline std::vector<std::string> viewer_faults(const std::string& text) {
  struct Seen {
    int64_t start = 0, finish = 0;  // ns
  };
  using Track = std::pair<int, int>;
  std::vector<std::string> faults;
  const auto tree = nlohmann::json::parse(text, nullptr, false);
  if (!tree.is_object()) return {"not a JSON object"};
  const auto nanoseconds = [](const nlohmann::json& number) {
    return static_cast<int64_t>(std::llround(number.get<double>() * 1000));
  };
  std::map<Track, std::multimap<int64_t, Seen>> tracks;  // by start, then by place in the file
  for (const auto& event : tree["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int64_t start = nanoseconds(event["ts"]);
    const Seen seen{start, start + nanoseconds(event["dur"])};
    if (seen.finish < seen.start) faults.push_back("a slice ends before it starts");
    tracks[{event["pid"].get<int>(), event["tid"].get<int>()}].emplace(start, seen);
  }
  for (const auto& [track, slices] : tracks) {
    std::vector<Seen> open;
    for (const auto& [start, slice] : slices) {
      while (!open.empty() && open.back().finish <= start) open.pop_back();
      if (!open.empty() && slice.finish > open.back().finish) {
        faults.push_back("slices overlap on thread " + std::to_string(track.first) + "." +
                         std::to_string(track.second) + " at " + std::to_string(start) + " ns");
      }
      open.push_back(slice);
    }
  }
  std::map<int, std::pair<int, int>> arrows;  // by id: how many begins and ends
  for (const auto& event : tree["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase != "s" && phase != "t" && phase != "f") continue;
    const int id = event["id"];
    arrows[id].first += phase == "s" ? 1 : 0;
    arrows[id].second += phase == "f" ? 1 : 0;
    const int64_t time = nanoseconds(event["ts"]);
    bool inside = false;
    const Track track{event["pid"].get<int>(), event["tid"].get<int>()};
    for (const auto& [start, slice] : tracks[track]) {
      inside = inside || (start <= time && time < slice.finish);
    }
    if (!inside) faults.push_back("arrow " + std::to_string(id) + " has a point in no slice");
  }
  for (const auto& [id, ends] : arrows) {
    if (ends != std::pair(1, 1)) {
      faults.push_back("arrow " + std::to_string(id) + " has not one begin and one end");
    }
  }
  return faults;
}

}  // namespace tenuto
