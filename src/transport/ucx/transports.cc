// What UCX finds on this machine.
#include <ucp/api/ucp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "transport/ucx/engine.h"
#include "transport/ucx/ucx.h"

namespace tenuto {

std::set<std::string> ucx_transports() {
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) return {};
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  const ucs_status_t opened = ucp_init(&parameters, config, &context);
  ucp_config_release(config);
  if (opened != UCS_OK) return {};
  char* text = nullptr;
  size_t size = 0;
  std::FILE* memory = ::open_memstream(&text, &size);
  if (memory != nullptr) {
    ucp_context_print_info(context, memory);
    std::fclose(memory);
  }
  ucp_cleanup(context);
  const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
  std::set<std::string> transports;
  const std::string report = text == nullptr ? std::string() : std::string(text, size);
  for (size_t at = report.find("resource"); at != std::string::npos;
       at = report.find("resource", at + 1)) {
    const std::string line = report.substr(at, report.find('\n', at) - at);
    const size_t slash = line.rfind('/');
    const size_t space = line.rfind(' ', slash);
    if (slash == std::string::npos || space == std::string::npos) continue;
    transports.insert(line.substr(space + 1, slash - space - 1));
  }
  return transports;
}

bool ucx_device_memory() {
  quiet_ucx();
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) return false;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  const bool named = ucp_config_modify(config, "TLS", kDeviceTransports) == UCS_OK;
  const bool opened = named && ucp_init(&params, config, &context) == UCS_OK;
  ucp_config_release(config);
  if (!opened) return false;
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  const bool asked = ucp_context_query(context, &attributes) == UCS_OK;
  ucp_cleanup(context);
  return asked && (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

std::string ucx_version() { return ucp_get_version_string(); }

}  // namespace tenuto
