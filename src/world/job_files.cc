#include "world/job_files.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "world/cluster_file.h"
#include "world/model_profile.h"

namespace tenuto {

namespace {

// The most bytes of a content: the job is sent to every worker with it.
constexpr size_t kMostContent = size_t{1} << 20;
// Deep enough for the files in JSON.
constexpr int kMostDepth = 4;

// A file of a job whose content travels with the job.
struct JobFile {
  std::string key, content_key;  // the settings with its path and with its content
  const char* json;              // what the JSON describes, as errors name it; nullptr = plain text
  const std::string* path;
  std::string* content;
};

std::array<JobFile, 3> files_of(Job& job) {
  DeviceSettings& device = job.device;
  NetworkSettings& network = job.network;
  SyncSettings& sync = job.sync;
  return {
      JobFile{"device.profile", "device.profile_content", "model", &device.profile,
              &device.profile_content},
      JobFile{"network.cluster", "network.cluster_content", "cluster", &network.cluster,
              &network.cluster_content},
      JobFile{"sync.chooser_file", "sync.chooser_content", nullptr, &sync.chooser_file,
              &sync.chooser_content},
  };
}

// Text that TOML can quote, and that is not empty: an empty content means that there is no file.
Status check_text(const JobFile& file, const std::string& text) {
  const auto is_ascii = [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return byte > 0 && byte < 0x80;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_ascii)) return ok();
  return invalid(cat(*file.path, ": expected a text in ASCII for ", file.key, ", found ",
                     text.empty() ? "an empty file" : "other bytes"));
}

// What travels: of JSON one line, of plain text all of it.
Result<std::string> content_of(const JobFile& file) {
  const auto text = read_file(*file.path);
  if (!text.ok()) return text.error();
  if (file.json == nullptr) {
    if (const Status right = check_text(file, text.value()); !right.ok()) return right.error();
    return text.value();
  }
  const auto tree = parse_json(text.value(), *file.path, {file.json, kMostDepth});
  if (!tree.ok()) return tree.error();
  return tree.value().dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Reads the file, if there is one, into the job.
Status take_file(LoadedJob& loaded, const JobFile& file) {
  if (file.path->empty()) return ok();
  auto content = content_of(file);
  if (!content.ok()) return content.error();
  if (content.value().size() > kMostContent) {
    return invalid(cat(*file.path, ": ", content.value().size(), " bytes are too many for ",
                       file.key, ", which travels with the job to every worker: expected ",
                       kMostContent, " at most"));
  }
  std::string& origin = loaded.origin[file.content_key];
  if (!file.content->empty() && *file.content != content.value()) {
    return invalid(cat(origin == "flag" ? "--"
                       : origin.empty() ? ""
                                        : origin + ": ",
                       file.content_key, " is not the content of ", *file.path, ": leave it out"));
  }
  *file.content = std::move(content).value();
  origin = *file.path;
  return ok();
}

}  // namespace

Status take_files(LoadedJob& loaded) {
  for (const JobFile& file : files_of(loaded.job)) {
    if (Status taken = take_file(loaded, file); !taken.ok()) return taken;
  }
  return ok();
}

Status read_contents(Job& job) {
  DeviceSettings& device = job.device;
  NetworkSettings& network = job.network;
  for (const JobFile& file : files_of(job)) {
    if (file.content->empty() || !file.path->empty()) continue;
    return invalid(cat(file.content_key, " is taken from a file: name it in ", file.key));
  }
  if (!device.profile_content.empty()) {
    auto profile = model_profile_from_json(device.profile_content, device.profile);
    if (!profile.ok()) return profile.error();
    const auto used = chain_at(profile.value(), job.parallel.micro_rows,
                               cat(device.profile, " at ", job.parallel.micro_rows, " rows"));
    if (!used.ok()) return used.error();
    device.layers = std::make_shared<const ModelProfile>(std::move(profile).value());
  }
  if (!network.cluster_content.empty()) {
    auto cluster = cluster_from_json(network.cluster_content, network.cluster);
    if (!cluster.ok()) return cluster.error();
    network.devices = std::make_shared<const Cluster>(std::move(cluster).value());
  }
  return ok();
}

}  // namespace tenuto
