#include "protocol/tls.h"

#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace tenuto {

Result<std::shared_ptr<const Tls>> read_tls(const std::string& folder) {
  if (folder.empty()) return std::shared_ptr<const Tls>();
  auto tls = std::make_shared<Tls>();
  for (const auto& [name, text] : {std::pair("ca.pem", &tls->authority),
                                   {"cert.pem", &tls->certificate},
                                   {"key.pem", &tls->key}}) {
    const std::string path = cat(folder, "/", name);
    Result<std::string> read = read_file(path);
    if (!read.ok() || read.value().find("-----BEGIN ") == std::string::npos) {
      return Error{Code::Invalid, Reach::Job,
                   cat(path, " (coordinator.tls) ", read.ok() ? "is not PEM" : "cannot be read",
                       ": expected the authority's certificate in ca.pem, this host's own in "
                       "cert.pem and its key in key.pem")};
    }
    *text = std::move(read).value();
  }
  return std::shared_ptr<const Tls>(std::move(tls));
}

}  // namespace tenuto
