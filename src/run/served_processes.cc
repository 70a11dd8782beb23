#include "run/served_processes.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "parameter_server/message_bytes.h"

namespace tenuto {

using servers::ProcessKind;

bool is_ready(const ServedPlace& place) {
  return place.is_taken() && (place.process.kind != ProcessKind::Part || place.elements > 0);
}

std::string name_of(const ServedPlace& place) {
  std::string what = "server";
  if (place.process.kind == ProcessKind::Part) {
    what = cat("replica ", place.process.replica);
    if (place.stages > 1) what += cat(", stage ", place.process.stage);
  }
  return cat("worker ", place.worker, " (", what, ")");
}

ServedProcesses::ServedProcesses(const Job& job) : job_(job) {
  const Seats seats = job.seats();
  for (int32_t worker = 0; worker < job.process_count(); ++worker) {
    ServedPlace place;
    place.worker = {worker};
    place.stages = job.parallel.stages;
    if (worker < job.worker_count()) {
      place.process.kind = ProcessKind::Part;
      place.process.replica = {seats.pipeline_of(place.worker)};
      place.process.stage = {seats.place_of(place.worker)};
    }
    places_.push_back(std::move(place));
  }
}

ServedPlace* ServedProcesses::at(WorkerId worker) {
  const bool has_place = worker.value >= 0 && worker.value < std::ssize(places_);
  return has_place ? &places_[static_cast<size_t>(worker.value)] : nullptr;
}

ServedPlace* ServedProcesses::at_process(WorkerId process) {
  const auto place = std::find_if(places_.begin(), places_.end(), [&](const ServedPlace& one) {
    return one.is_hosted() && one.process.number == process;
  });
  return place == places_.end() ? nullptr : &*place;
}

ServedPlace* ServedProcesses::hear(const Report& report, Duration now) {
  ServedPlace* place = at(report.worker);
  if (place == nullptr || report.incarnation < place->least_incarnation) return nullptr;
  if (!place->is_taken()) {
    place->incarnation = report.incarnation;
    place->has_exited = false;
  }
  if (place->incarnation != report.incarnation) return nullptr;
  place->heard_at = now;
  place->elements = report.elements;
  if (!place->is_declared_lost) place->suspect_since.reset();
  std::erase_if(place->commands, [&](const Numbered& one) { return one.serial <= report.obeyed; });
  return place;
}

void ServedProcesses::host(ServedPlace& place, WorkerId process) { place.process.number = process; }

void ServedProcesses::command(WorkerId process, const servers::HostCommand& command) {
  ServedPlace* place = at_process(process);
  if (place == nullptr) return;
  const std::vector<std::byte> bytes = servers::encode_command(command);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  place->commands.push_back({++place->told, std::string(text, bytes.size())});
}

std::vector<std::string> ServedProcesses::take_said(ServedPlace& place, const Report& report) {
  std::vector<std::string> said;
  for (const Numbered& one : report.said) {
    // A report is repeated with all that the process has not been told to be heard.
    if (one.serial != place.heard + 1) continue;
    place.heard = one.serial;
    said.push_back(one.bytes);
  }
  return said;
}

void ServedProcesses::lose(ServedPlace& place) {
  place.least_incarnation = std::max(place.least_incarnation, place.incarnation + 1);
  place.incarnation = -1;
  place.process.number = {};
  place.elements = place.heard = place.told = 0;
  place.commands.clear();
  place.suspect_since.reset();
  place.suspicion.clear();
  place.is_declared_lost = false;
  ++place.deaths;
}

void ServedProcesses::forgive(Duration slept) {
  for (ServedPlace& place : places_) {
    place.heard_at += slept;
    if (place.suspect_since) *place.suspect_since += slept;
  }
}

std::vector<Hosted> ServedProcesses::hosted() const {
  std::vector<Hosted> all;
  for (const ServedPlace& place : places_) {
    if (!place.is_hosted()) continue;
    Hosted one;
    one.worker = place.worker;
    one.incarnation = place.incarnation;
    one.process = place.process.number;
    one.heard = place.heard;
    one.commands = place.commands;
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<int64_t> ServedProcesses::elements() const {
  std::vector<int64_t> elements(static_cast<size_t>(job_.parallel.stages), 0);
  for (const ServedPlace& place : places_) {
    if (place.process.kind != ProcessKind::Part || place.elements == 0) continue;
    elements[static_cast<size_t>(place.process.stage.value)] = place.elements;
  }
  if (std::find(elements.begin(), elements.end(), 0) != elements.end()) elements.clear();
  return elements;
}

bool ServedProcesses::are_all_here() const {
  return std::all_of(places_.begin(), places_.end(), is_ready);
}

bool ServedProcesses::may_have_replica(const std::function<bool(const ServedPlace&)>& comes) const {
  std::vector<bool> is_whole(static_cast<size_t>(job_.parallel.pipelines), true);
  for (const ServedPlace& place : places_) {
    if (place.process.kind != ProcessKind::Part || place.is_taken() || comes(place)) continue;
    is_whole[static_cast<size_t>(place.process.replica.value)] = false;
  }
  return std::find(is_whole.begin(), is_whole.end(), true) != is_whole.end();
}

std::string ServedProcesses::missing() const {
  std::string names;
  for (const ServedPlace& place : places_) {
    if (!is_ready(place)) names += cat(names.empty() ? "" : ", ", name_of(place));
  }
  return names;
}

}  // namespace tenuto
