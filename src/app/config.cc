#include "app/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "world/keys.h"

namespace tenuto {

std::string config_text(const LoadedJob& loaded) { return to_toml(loaded.job, &loaded.origin); }

std::string config_json(const LoadedJob& loaded) {
  Job job = loaded.job;
  auto all = nlohmann::ordered_json::object();
  for (const Key& key : job_keys()) {
    const std::string name(key.name);
    const auto origin = loaded.origin.find(name);
    std::visit([&](const auto* value) { all[name]["value"] = *value; }, key.slot(job));
    all[name]["origin"] = origin == loaded.origin.end() ? "default" : origin->second;
  }
  return all.dump();
}

std::string key_help() {
  const Job defaults;
  size_t width = 0;
  for (const Key& key : job_keys()) width = std::max(width, key.name.size());
  std::string text;
  for (const Key& key : job_keys()) {
    std::string name(key.name);
    name.resize(width, ' ');
    text += cat("  --", name, "  ", key.help, " (", value_text(key, defaults), ")\n");
  }
  return text;
}

}  // namespace tenuto
