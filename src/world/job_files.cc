#include "world/job_files.h"

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
// Deep enough for both files.
constexpr int kMostDepth = 4;

// Reads the file `path` into `content`; `key` is the name of the setting.
Status take_file(const LoadedJob& loaded, const std::string& key, const std::string& path,
                 std::string& content) {
  if (path.empty()) return ok();
  const auto text = read_file(path);
  if (!text.ok()) return text.error();
  const bool model = key == "device.profile";
  const auto tree = parse_json(text.value(), path, {model ? "model" : "cluster", kMostDepth});
  if (!tree.ok()) return tree.error();
  std::string line = tree.value().dump(-1, ' ', false, Json::error_handler_t::replace);
  if (line.size() > kMostContent) {
    return invalid(cat(path, ": ", line.size(), " bytes are too many for ", key,
                       ", which travels with the job to every worker: expected ", kMostContent,
                       " at most"));
  }
  if (!content.empty() && content != line) {
    const auto origin = loaded.origin.find(key + "_content");
    const std::string from = origin == loaded.origin.end() ? std::string() : origin->second;
    return invalid(cat(from == "flag" ? "--"
                       : from.empty() ? ""
                                      : from + ": ",
                       key, "_content is not the content of ", path, ": leave it out"));
  }
  content = std::move(line);
  return ok();
}

Status check_named(const std::string& key, const std::string& path, const std::string& content) {
  if (content.empty() || !path.empty()) return ok();
  return invalid(cat(key, "_content is taken from a file: name it in ", key));
}

}  // namespace

Status take_files(LoadedJob& loaded) {
  DeviceSettings& device = loaded.job.device;
  NetworkSettings& network = loaded.job.network;
  const auto take = [&](const std::string& key, const std::string& path,
                        std::string& content) -> Status {
    const Status taken = take_file(loaded, key, path, content);
    if (taken.ok() && !path.empty()) loaded.origin[key + "_content"] = path;
    return taken;
  };
  if (const Status taken = take("device.profile", device.profile, device.profile_content);
      !taken.ok()) {
    return taken;
  }
  return take("network.cluster", network.cluster, network.cluster_content);
}

Status read_contents(Job& job) {
  DeviceSettings& device = job.device;
  NetworkSettings& network = job.network;
  for (const Status& named :
       {check_named("device.profile", device.profile, device.profile_content),
        check_named("network.cluster", network.cluster, network.cluster_content)}) {
    if (!named.ok()) return named;
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
