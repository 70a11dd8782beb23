#include "run/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "base/contains.h"
#include "base/file.h"
#include "base/text.h"
#include "protocol/saved_shard.h"
#include "world/fit.h"
#include "world/load.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kManifestVersion = 1;
constexpr const char* kFormat = "tenuto checkpoint";
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kAside = ".aside";

Error corrupt(std::string message) { return {Code::Corrupt, Reach::Job, std::move(message)}; }

Json to_json(const Manifest& manifest) {
  Json json = {{"format", kFormat},       {"version", kManifestVersion}, {"step", manifest.step},
               {"epoch", manifest.epoch}, {"partition", Json::array()},  {"files", Json::array()},
               {"job", manifest.job}};
  for (const Stage& stage : manifest.partition) {
    json["partition"].push_back(
        {{"layer_first", stage.layer_first}, {"layer_end", stage.layer_end}});
  }
  for (const SavedShard& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.file}, {"bytes", file.bytes}, {"crc32c", file.checksum}});
  }
  if (manifest.servers) {
    json["servers"] = {{"version", manifest.servers->version}, {"mass", manifest.servers->mass}};
  }
  return json;
}

// The step in the name of a checkpoint's folder, with any text behind it; -1 = it has none.
int64_t step_in(std::string_view name) {
  if (!name.starts_with(kCheckpointPrefix)) return -1;
  const char* digits = name.data() + std::strlen(kCheckpointPrefix);
  int64_t step = -1;
  const auto read = std::from_chars(digits, name.data() + name.size(), step);
  return read.ec == std::errc() ? step : -1;
}

// Reads the fields of a manifest and checks each one. Keeps a sentence about the first wrong one;
// fields that are read after it do not count.
class ManifestReader {
 public:
  // `folder`: the name of the folder that it lies in.
  Result<Manifest> read(const Json& json, const std::string& folder) {
    Manifest manifest;
    if (!json.is_object()) return invalid("expected one JSON object, found something else");
    const std::string format = text(json, "format", "format");
    expect(format == kFormat, "format", cat('"', kFormat, '"'), cat('"', format, '"'));
    const int64_t version = number(json, "version", "version", 0);
    expect(version == kManifestVersion, "version", cat(kManifestVersion), cat(version));
    manifest.step = number(json, "step", "step", 0);
    const int64_t named = step_in(folder);
    expect(named < 0 || manifest.step == named, "step", cat(named, ", as the folder says"),
           cat(manifest.step));
    manifest.epoch = number(json, "epoch", "epoch", 1);
    manifest.job = text(json, "job", "job");
    read_partition(json, manifest);
    if (json.contains("servers")) read_servers(json["servers"], manifest);
    read_files(json, manifest);
    if (wrong_.empty()) read_job(manifest);
    if (!wrong_.empty()) return invalid(wrong_);
    return manifest;
  }

 private:
  void expect(bool holds, const std::string& field, const std::string& expected,
              const std::string& found) {
    if (wrong_.empty() && !holds) {
      wrong_ = cat("expected ", field, " ", expected, ", found ", found);
    }
  }
  static std::string found_in(const Json& json, const char* key) {
    constexpr size_t kMost = 40;
    if (!json.is_object() || !json.contains(key)) return "none";
    std::string text = json[key].dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > kMost) text = text.substr(0, kMost) + "...";
    return text;
  }
  int64_t number(const Json& json, const char* key, const std::string& field, int64_t least) {
    const bool has = json.is_object() && json.contains(key) && json[key].is_number_integer();
    // The comparison is also right for unsigned numbers that are too large for any field.
    const bool fits = has && json[key] >= least && json[key] <= kMostNumber;
    expect(fits, field, cat("to be a whole number from ", least, " to ", kMostNumber),
           found_in(json, key));
    return fits ? json[key].get<int64_t>() : 0;
  }
  std::string text(const Json& json, const char* key, const std::string& field) {
    const bool has = json.is_object() && json.contains(key) && json[key].is_string();
    expect(has, field, "to be a text", found_in(json, key));
    return has ? json[key].get<std::string>() : std::string();
  }
  // `of`: what has an entry.
  const Json& list(const Json& json, const char* key, const char* of = "stage") {
    static const Json none = Json::array();
    const bool has = json.contains(key) && json[key].is_array() && !json[key].empty();
    expect(has, key, cat("to be a list with an entry for each ", of), found_in(json, key));
    return has ? json[key] : none;
  }
  // The stages' layers, each stage's after those of the one before.
  void read_partition(const Json& json, Manifest& manifest) {
    int64_t end = 0;
    for (const Json& stage : list(json, "partition")) {
      const std::string field = cat("partition[", manifest.partition.size(), "].");
      const int64_t first = number(stage, "layer_first", field + "layer_first", 0);
      expect(first == end, field + "layer_first", cat(end), cat(first));
      end = number(stage, "layer_end", field + "layer_end", first + 1);
      expect(end <= std::numeric_limits<int32_t>::max(), field + "layer_end",
             "to be a number of layers", cat(end));
      manifest.partition.push_back({static_cast<int32_t>(first), static_cast<int32_t>(end), {}});
    }
  }
  void read_servers(const Json& json, Manifest& manifest) {
    ServedState state;
    state.version = number(json, "version", "servers.version", 0);
    state.mass = number(json, "mass", "servers.mass", 0);
    manifest.servers = state;
  }
  void read_files(const Json& json, Manifest& manifest) {
    bool has_record = false;
    for (const Json& file : list(json, "files", manifest.servers ? "range" : "stage")) {
      const std::string field = cat("files[", manifest.files.size(), "].");
      const std::string name = text(file, "name", field + "name");
      if (manifest.servers) {
        expect(is_state_file(name), field + "name", "to be a name with .state at its end", name);
      } else {
        const std::string expected = cat("stage-", manifest.files.size(), ".safetensors");
        expect(name == expected, field + "name", expected, name);
      }
      has_record |= name == kRecordFile;
      const int64_t bytes = number(file, "bytes", field + "bytes", 1);
      const std::string checksum = text(file, "crc32c", field + "crc32c");
      const bool digits = checksum.size() == 8 &&
                          checksum.find_first_not_of("0123456789abcdef") == std::string::npos;
      expect(digits, field + "crc32c", "to be 8 hexadecimal digits", checksum);
      manifest.files.push_back({manifest.step, name, bytes, checksum});
    }
    if (manifest.servers) {
      expect(has_record, "files", cat("to have ", kRecordFile), "none");
      return;
    }
    expect(manifest.files.size() == manifest.partition.size(), "files",
           cat("of ", manifest.partition.size(), " stages"), cat(manifest.files.size()));
  }
  // Checks that the settings can be read, and that their model has the layers of the partition. A
  // paced device has as many as its stages need.
  void read_job(const Manifest& manifest) {
    const Result<Job> job = job_from_toml(manifest.job, "job");
    if (!job.ok()) {
      wrong_ = job.error().message;
      return;
    }
    if (job.value().device.kind == "paced") return;
    const int32_t layers = cut_layers(job.value().model);
    const int32_t end = manifest.partition.back().layer_end;
    expect(end == layers, "partition",
           cat("to end at layer ", layers, ", as the model of job does"), cat(end));
  }

  static constexpr int64_t kMostNumber = int64_t{1} << 53;
  std::string wrong_;
};

Result<Manifest> read_manifest(const std::string& path) {
  const std::string file = cat(path, "/", kManifestName);
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return corrupt(cat(path, " is not a whole checkpoint: ", text.error().message));
  const Json json = Json::parse(text.value(), nullptr, false);
  if (json.is_discarded()) return corrupt(cat(file, " is damaged: it is no JSON"));
  Result<Manifest> manifest =
      ManifestReader().read(json, std::filesystem::path(path).filename().string());
  if (!manifest.ok()) return corrupt(cat(file, " is damaged: ", manifest.error().message));
  return manifest;
}

Status verify_file(const std::string& path, const SavedShard& expected) {
  const Result<SavedShard> found = describe_shard(path, expected.file, expected.version);
  if (!found.ok()) return corrupt(cat(path, " is not whole: ", found.error().message));
  const std::string file = cat(path, "/", expected.file);
  if (found.value().bytes != expected.bytes) {
    return corrupt(
        cat(file, " is damaged: expected ", expected.bytes, " bytes, found ", found.value().bytes));
  }
  if (found.value().checksum != expected.checksum) {
    return corrupt(cat(file, " is damaged: expected checksum ", expected.checksum, ", found ",
                       found.value().checksum));
  }
  return ok();
}

}  // namespace

bool is_state_file(std::string_view name) {
  return name.ends_with(".state") && name.find('/') == std::string_view::npos;
}

Result<std::string> finish_checkpoint(const std::string& run, const Manifest& manifest) {
  const std::string path = checkpoint_path(run, manifest.step);
  const std::string unfinished = unfinished_path(run, manifest.step);
  const Status written =
      write_file(cat(unfinished, "/", kManifestName), to_json(manifest).dump(2) + "\n");
  if (!written.ok()) return written.error();
  std::error_code failure;
  // Move away a checkpoint of the same step from an earlier try.
  const std::string replaced = path + ".old" + kUnfinished;
  if (fs::exists(path, failure)) fs::rename(path, replaced, failure);
  fs::rename(unfinished, path, failure);
  if (failure) {
    return Error{Code::Invalid, Reach::Job,
                 cat("cannot rename ", unfinished, " to ", path, ": ", failure.message())};
  }
  const Status durable = sync_directory(run);
  if (!durable.ok()) return durable.error();
  fs::remove_all(replaced, failure);
  return path;
}

std::vector<int64_t> list_checkpoints(const std::string& run) {
  std::vector<int64_t> steps;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(run, failure)) {
    const std::string name = entry.path().filename().string();
    const int64_t step = step_in(name);
    if (step >= 0 && name == cat(kCheckpointPrefix, step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<Manifest> verify_checkpoint(const std::string& path) {
  Result<Manifest> manifest = read_manifest(path);
  if (!manifest.ok()) return manifest;
  for (const SavedShard& file : manifest.value().files) {
    const Status whole = verify_file(path, file);
    if (!whole.ok()) return whole.error();
  }
  return manifest;
}

Result<Manifest> find_checkpoint(const std::string& run, int64_t step, std::string_view flag) {
  const std::vector<int64_t> steps = list_checkpoints(run);
  if (steps.empty()) {
    return Error{
        Code::Invalid, Reach::Job,
        cat(run, " holds no checkpoint: a run writes one every job.checkpoint_every steps ",
            "and at its end")};
  }
  const int64_t wanted = step < 0 ? steps.back() : step;
  if (!contains(steps, wanted)) {
    std::string all;
    for (const int64_t of : steps) all += cat(all.empty() ? "" : ", ", of);
    return Error{Code::Invalid, Reach::Job,
                 cat(run, " holds no checkpoint of step ", wanted, "; there are: ", all)};
  }
  Result<Manifest> manifest = verify_checkpoint(checkpoint_path(run, wanted));
  if (manifest.ok()) return manifest;
  return corrupt(cat(manifest.error().message, "; ", advise_older(run, wanted, flag)));
}

std::string advise_older(const std::string& run, int64_t step, std::string_view flag) {
  const std::vector<int64_t> steps = list_checkpoints(run);
  for (auto older = steps.rbegin(); older != steps.rend(); ++older) {
    if (*older < step && verify_checkpoint(checkpoint_path(run, *older)).ok()) {
      return cat("the checkpoint of step ", *older, " is whole: choose it with ", flag, " ",
                 *older);
    }
  }
  return "no older checkpoint is whole";
}

void prune_checkpoints(const std::string& run, int32_t keep) {
  std::error_code failure;
  std::vector<int64_t> steps = list_checkpoints(run);
  while (static_cast<int64_t>(steps.size()) > keep) {
    const std::string path = checkpoint_path(run, steps.front());
    // Rename it first, so that a folder that is half removed is never taken for a checkpoint.
    const std::string leaving = path + ".old" + kUnfinished;
    fs::rename(path, leaving, failure);
    fs::remove_all(failure ? path : leaving, failure);
    steps.erase(steps.begin());
  }
}

void remove_unfinished(const std::string& run, int64_t last_step) {
  std::error_code failure;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(run, failure)) {
    const int64_t step = step_in(entry.path().filename().string());
    const bool unfinished = step >= 0 && entry.path().extension() == kUnfinished;
    if (unfinished && step <= last_step) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, failure);
}

Result<std::vector<SetAside>> set_aside_checkpoints(const std::string& run, int64_t after_step) {
  std::vector<SetAside> aside;
  for (const int64_t step : list_checkpoints(run)) {
    if (step <= after_step) continue;
    const std::string path = checkpoint_path(run, step);
    std::string target = path + kAside;
    std::error_code failure;
    for (int number = 2; fs::exists(target, failure); ++number) {
      target = cat(path, kAside, "-", number);
    }
    fs::rename(path, target, failure);
    if (failure) {
      return Error{Code::Invalid, Reach::Job,
                   cat("cannot rename ", path, " to ", target, ": ", failure.message())};
    }
    aside.push_back({step, fs::path(target).filename().string()});
  }
  return aside;
}

}  // namespace tenuto
