#include "world/seats.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

}  // namespace

Seats::Seats(std::vector<std::vector<WorkerId>> workers)
    : places_(static_cast<int32_t>(workers.size())), listed_(std::move(workers)) {}

WorkerId Seats::worker(int32_t pipeline, int32_t place) const {
  constexpr int32_t kMostWorkers = 16384;
  if (pipeline < 0 || place < 0 || place >= places_) return {};
  if (listed_.empty()) {
    return pipeline <= kMostWorkers / places_ ? WorkerId{pipeline * places_ + place} : WorkerId{};
  }
  const std::vector<WorkerId>& workers = listed_[at(place)];
  return at(pipeline) < workers.size() ? workers[at(pipeline)] : WorkerId{};
}

std::vector<int32_t> Seats::widths(int32_t pipelines) const {
  if (listed_.empty()) return std::vector<int32_t>(at(places_), pipelines);
  std::vector<int32_t> widths;
  for (const std::vector<WorkerId>& workers : listed_) {
    widths.push_back(static_cast<int32_t>(workers.size()));
  }
  return widths;
}

int32_t Seats::place_of(WorkerId worker) const {
  if (listed_.empty()) return worker.value % places_;
  const auto found =
      std::find_if(listed_.begin(), listed_.end(), [&](const std::vector<WorkerId>& workers) {
        return std::find(workers.begin(), workers.end(), worker) != workers.end();
      });
  return found == listed_.end() ? -1 : static_cast<int32_t>(found - listed_.begin());
}

int32_t Seats::pipeline_of(WorkerId worker) const {
  if (listed_.empty()) return worker.value / places_;
  for (const std::vector<WorkerId>& workers : listed_) {
    const auto found = std::find(workers.begin(), workers.end(), worker);
    if (found != workers.end()) return static_cast<int32_t>(found - workers.begin());
  }
  return -1;
}

std::vector<std::pair<WorkerId, WorkerId>> Seats::pairs(int32_t link, int32_t workers) const {
  CHECK(link >= 0 && link + 1 < places_, "a link that is there");
  std::vector<std::pair<WorkerId, WorkerId>> pairs;
  if (listed_.empty()) {
    for (int32_t first = 0; first + places_ <= workers; first += places_) {
      pairs.push_back({{first + link}, {first + link + 1}});
    }
    return pairs;
  }
  for (const WorkerId before : listed_[at(link)]) {
    for (const WorkerId behind : listed_[at(link) + 1]) pairs.push_back({before, behind});
  }
  return pairs;
}

std::vector<std::vector<WorkerId>> places_of(const std::vector<Stage>& stages) {
  std::vector<std::vector<WorkerId>> places;
  std::set<WorkerId> seated;
  for (const Stage& stage : stages) {
    std::vector<WorkerId> workers;
    for (const WorkerId holder : stage.holders) {
      if (seated.insert(holder).second) workers.push_back(holder);
    }
    if (!workers.empty()) places.push_back(std::move(workers));
  }
  return places;
}

bool is_grid(const std::vector<std::vector<WorkerId>>& places) {
  const auto count = static_cast<int32_t>(places.size());
  for (int32_t place = 0; place < count; ++place) {
    const std::vector<WorkerId>& workers = places[at(place)];
    if (workers.size() != places.front().size()) return false;
    for (size_t p = 0; p < workers.size(); ++p) {
      if (workers[p].value != static_cast<int32_t>(p) * count + place) return false;
    }
  }
  return true;
}

}  // namespace tenuto
