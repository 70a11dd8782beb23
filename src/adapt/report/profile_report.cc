#include "adapt/report/profile_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

std::string padded(std::string text, size_t width, bool right = true) {
  const size_t missing = text.size() < width ? width - text.size() : 0;
  return right ? std::string(missing, ' ') + text : text + std::string(missing, ' ');
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return cat(fixed(bytes / 1e9, 2), " GB");
  if (bytes >= 1e6) return cat(fixed(bytes / 1e6, 2), " MB");
  if (bytes >= 1e3) return cat(fixed(bytes / 1e3, 2), " kB");
  return cat(fixed(bytes, 0), " B");
}

std::string rate_text(double bytes_per_second) {
  return bytes_per_second > 0 ? bytes_text(bytes_per_second) + "/s" : "unlimited";
}

std::string percent(double share) { return cat(fixed(100 * share, 1), " %"); }

std::string list_of(const std::vector<WorkerId>& workers) {
  std::string text;
  for (const WorkerId worker : workers) text += cat(text.empty() ? "" : " ", worker);
  return text;
}

std::string model_text(const ModelProfile& model, const std::string& device) {
  std::string rows;
  for (const int32_t some : model.rows) rows += cat(rows.empty() ? "" : ", ", some);
  std::string text = cat("layers      ", model.layers.size(), " on ", device, "; micro-batches of ",
                         rows, model.rows.size() == 1 && model.rows[0] == 1 ? " row" : " rows",
                         "; the table has those of ", model.rows.back(), "\n");
  text += cat("an op       ", fixed(to_milliseconds(model.op), 4), " ms beside its layers\n\n");
  size_t width = 5;
  for (const LayerProfile& layer : model.layers) width = std::max(width, layer.name.size());
  text +=
      padded("layer", width, false) +
      "  forward ms  input grad ms  weight grad ms  update ms  kept per row  parameters  spread\n";
  const auto ms = [](Duration time, size_t columns) {
    return padded(fixed(to_milliseconds(time), 3), columns);
  };
  for (const LayerProfile& layer : model.layers) {
    text += padded(layer.name, width, false) + ms(layer.forward.back(), 12) +
            ms(layer.backward_input.back(), 15) + ms(layer.backward_weight.back(), 16) +
            ms(layer.update, 11) + padded(bytes_text(static_cast<double>(layer.stash.count)), 14) +
            padded(bytes_text(static_cast<double>(layer.parameters.count)), 12) +
            padded(percent(layer.spread), 8) + "\n";
  }
  return text;
}

// The workers of each place.
std::vector<std::vector<WorkerId>> places_of(const Cluster& cluster) {
  std::vector<std::vector<WorkerId>> places(cluster.between.empty() ? 1 : cluster.between.size());
  for (size_t w = 0; w < cluster.workers.size(); ++w) {
    const auto place = static_cast<size_t>(cluster.place.empty() ? 0 : cluster.place[w]);
    places[place].push_back({static_cast<int32_t>(w)});
  }
  return places;
}

std::string links_text(const LinkReport& links) {
  const auto places = places_of(links.cluster);
  const size_t workers = links.cluster.workers.size();
  std::string text =
      cat("workers     ", workers, " in ", places.size(), places.size() == 1 ? " place" : " places",
          links.measured ? ""
                         : "; their links are the job's settings, because a "
                           "virtual clock has no others",
          "\n");
  if (workers < 2) return text;
  text += "\nfrom to         rate    latency  spread\n";
  for (size_t from = 0; from < places.size(); ++from) {
    for (size_t to = 0; to < places.size(); ++to) {
      if (from == to && places[from].size() < 2) continue;
      double spread = 0;
      for (const WorkerId one : places[from]) {
        for (const WorkerId other : places[to]) {
          if (one != other) spread = std::max(spread, links.table.at(one, other).spread);
        }
      }
      const Link& link = links.cluster.between[from][to];
      text += padded(cat(from), 4) + padded(cat(to), 3) +
              padded(rate_text(link.bytes_per_second), 13) +
              padded(cat(fixed(to_milliseconds(link.latency), 4), " ms"), 11) +
              padded(percent(spread), 8) + "\n";
    }
  }
  text += "\n";
  for (size_t p = 0; p < places.size(); ++p) {
    text += cat("place ", p, "     workers ", list_of(places[p]), "\n");
  }
  for (const auto& [ends, link] : links.cluster.exceptions) {
    text += cat("odd link    from worker ", ends.first, " to ", ends.second, ": ",
                rate_text(link.bytes_per_second), "\n");
  }
  for (const RingFigure& ring : links.rings) {
    text += cat("ring        workers ", list_of(ring.workers),
                ", all at once: ", rate_text(ring.bytes_per_second), " each\n");
  }
  return text;
}

}  // namespace

std::string profile_text(const ProfileReport& report) {
  std::string text;
  if (report.model) text += model_text(*report.model, report.device);
  if (report.links) text += (text.empty() ? "" : "\n") + links_text(*report.links);
  text += "\n";
  if (!report.model_file.empty()) text += cat("wrote       ", report.model_file, "\n");
  if (!report.cluster_file.empty()) text += cat("wrote       ", report.cluster_file, "\n");
  return text;
}

std::string profile_json(const ProfileReport& report) {
  using Json = nlohmann::ordered_json;
  const auto file = [](const std::string& name) { return name.empty() ? Json() : Json(name); };
  Json json = {{"model_file", file(report.model_file)},
               {"cluster_file", file(report.cluster_file)}};
  json["device"] = report.device;
  if (report.model) {
    double spread = 0;
    for (const LayerProfile& layer : report.model->layers) spread = std::max(spread, layer.spread);
    json["layers"] = report.model->layers.size();
    json["rows"] = report.model->rows;
    json["op_ms"] = to_milliseconds(report.model->op);
    json["layer_spread"] = spread;
  }
  if (report.links) {
    const LinkReport& links = *report.links;
    double spread = 0;
    for (int32_t from = 0; from < links.table.workers(); ++from) {
      for (int32_t to = 0; to < links.table.workers(); ++to) {
        spread = std::max(spread, links.table.at({from}, {to}).spread);
      }
    }
    json["workers"] = links.cluster.workers.size();
    json["places"] = links.cluster.place.empty()
                         ? std::vector<int32_t>(links.cluster.workers.size(), 0)
                         : links.cluster.place;
    json["links_measured"] = links.measured;
    json["link_spread"] = spread;
    json["rings"] = Json::array();
    for (const RingFigure& ring : links.rings) {
      std::vector<int32_t> workers;
      for (const WorkerId worker : ring.workers) workers.push_back(worker.value);
      json["rings"].push_back({{"workers", workers}, {"bytes_per_second", ring.bytes_per_second}});
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tenuto
