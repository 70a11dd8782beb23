// The programs of this build, for benchmarks that run them.
#pragma once

#include <filesystem>
#include <string>

namespace tenuto {

// The tenuto that was built together with the benchmark that asks.
inline std::string tenuto_of_this_build() {
  const auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  return (build / "src" / "app" / "tenuto").string();
}

}  // namespace tenuto
