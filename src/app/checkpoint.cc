#include "app/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/checksum.h"
#include "base/contains.h"
#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kManifestVersion = 1;
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kUnfinished = ".tmp";
constexpr const char* kAside = ".aside";

std::string hexadecimal(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

Error corrupt(std::string message) { return {Code::Corrupt, Reach::Job, std::move(message)}; }

Json to_json(const Manifest& manifest) {
  Json json = {{"format", "tenuto checkpoint"},
               {"version", kManifestVersion},
               {"step", manifest.step},
               {"epoch", manifest.epoch},
               {"partition", Json::array()},
               {"files", Json::array()},
               {"job", manifest.job}};
  for (const Stage& stage : manifest.partition) {
    json["partition"].push_back(
        {{"layer_first", stage.layer_first}, {"layer_end", stage.layer_end}});
  }
  for (const SavedShard& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.file}, {"bytes", file.bytes}, {"crc32c", file.checksum}});
  }
  return json;
}

bool is_integer(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_number_integer();
}
bool is_string(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string();
}
bool is_array(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_array();
}

// The manifest that the JSON says, or nothing when a field is missing or of a wrong type.
std::optional<Manifest> manifest_of(const Json& json) {
  if (!is_integer(json, "version") || json["version"] != kManifestVersion ||
      !is_integer(json, "step") || !is_integer(json, "epoch") || !is_string(json, "job") ||
      !is_array(json, "partition") || !is_array(json, "files") || json["files"].empty()) {
    return std::nullopt;
  }
  Manifest manifest{.step = json["step"], .epoch = json["epoch"], .job = json["job"]};
  for (const Json& stage : json["partition"]) {
    if (!is_integer(stage, "layer_first") || !is_integer(stage, "layer_end")) return std::nullopt;
    manifest.partition.push_back({stage["layer_first"], stage["layer_end"], {}});
  }
  for (const Json& file : json["files"]) {
    if (!is_string(file, "name") || !is_integer(file, "bytes") || !is_string(file, "crc32c")) {
      return std::nullopt;
    }
    const std::string name = file["name"];
    if (name.find('/') != std::string::npos) return std::nullopt;
    manifest.files.push_back({manifest.step, name, file["bytes"], file["crc32c"]});
  }
  return manifest;
}

Result<Manifest> read_manifest(const std::string& path) {
  const std::string file = cat(path, "/", kManifestName);
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return corrupt(cat(path, " is not a whole checkpoint: ", text.error().message));
  const Json json = Json::parse(text.value(), nullptr, false);
  const std::optional<Manifest> manifest = json.is_discarded() ? std::nullopt : manifest_of(json);
  if (!manifest) {
    return corrupt(cat(file,
                       " is damaged: expected the manifest that was written with the "
                       "checkpoint, found something else"));
  }
  return *manifest;
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

Result<SavedShard> describe_shard(const std::string& directory, const std::string& file,
                                  int64_t version) {
  const std::string path = cat(directory, "/", file);
  const auto opened = InputFile::open(path);
  if (!opened.ok()) return opened.error();
  SavedShard shard{version, file, 0, ""};
  std::vector<std::byte> buffer(1 << 20);
  uint32_t checksum = 0;
  while (true) {
    const auto count = opened.value().read(shard.bytes, buffer);
    if (!count.ok()) return count.error();
    if (count.value() == 0) break;
    checksum = crc32c(std::span(buffer).first(count.value()), checksum);
    shard.bytes += static_cast<int64_t>(count.value());
  }
  shard.checksum = hexadecimal(checksum);
  return shard;
}

std::string checkpoint_path(const std::string& run, int64_t step) {
  return cat(run, "/", kPrefix, step);
}

Result<std::string> finish_checkpoint(const std::string& run, const Manifest& manifest) {
  const std::string path = checkpoint_path(run, manifest.step);
  const std::string unfinished = path + kUnfinished;
  const Status written =
      write_file(cat(unfinished, "/", kManifestName), to_json(manifest).dump(2) + "\n");
  if (!written.ok()) return written.error();
  std::error_code failure;
  // A checkpoint of the same step from an earlier try gives way.
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
    if (name.rfind(kPrefix, 0) != 0) continue;
    const std::string digits = name.substr(std::strlen(kPrefix));
    int64_t step = 0;
    const auto end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, step);
    if (parsed.ec == std::errc() && parsed.ptr == end) steps.push_back(step);
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

Result<Manifest> find_checkpoint(const std::string& run, int64_t step) {
  const std::vector<int64_t> steps = list_checkpoints(run);
  if (steps.empty()) {
    return Error{Code::Invalid, Reach::Job, cat(run, " holds no checkpoint")};
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
  std::string advice = "; no older checkpoint is whole";
  for (auto older = steps.rbegin(); older != steps.rend(); ++older) {
    if (*older < wanted && verify_checkpoint(checkpoint_path(run, *older)).ok()) {
      advice = cat("; the checkpoint of step ", *older, " is whole: choose it with --from-step ",
                   *older);
      break;
    }
  }
  return corrupt(manifest.error().message + advice);
}

void prune_checkpoints(const std::string& run, int32_t keep) {
  std::error_code failure;
  std::vector<int64_t> steps = list_checkpoints(run);
  while (static_cast<int64_t>(steps.size()) > keep) {
    const std::string path = checkpoint_path(run, steps.front());
    // The name goes first: what is half removed is never taken for a checkpoint.
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
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) != 0 || entry.path().extension() != kUnfinished) continue;
    int64_t step = 0;
    const char* digits = name.data() + std::strlen(kPrefix);
    if (std::from_chars(digits, name.data() + name.size(), step).ec != std::errc()) continue;
    if (step <= last_step) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, failure);
}

Result<std::vector<int64_t>> set_aside_checkpoints(const std::string& run, int64_t after_step) {
  std::vector<int64_t> aside;
  for (const int64_t step : list_checkpoints(run)) {
    if (step <= after_step) continue;
    const std::string path = checkpoint_path(run, step);
    std::error_code failure;
    fs::remove_all(path + kAside, failure);
    fs::rename(path, path + kAside, failure);
    if (failure) {
      return Error{Code::Invalid, Reach::Job,
                   cat("cannot rename ", path, " to ", path, kAside, ": ", failure.message())};
    }
    aside.push_back(step);
  }
  return aside;
}

}  // namespace tenuto
