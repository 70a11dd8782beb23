// Where the programs of this build are, for benchmarks that run them.
#pragma once

#include <filesystem>
#include <string>

namespace tenuto {

// The path of the tenuto that was built together with this benchmark.
inline std::string tenuto_of_this_build() {
  const auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  return (build / "src" / "app" / "tenuto").string();
}

}  // namespace tenuto
