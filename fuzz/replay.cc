// Runs a fuzz target over stored inputs, without libFuzzer: the named files and all files in the
// named folders, sorted by name.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "target.h"

namespace fs = std::filesystem;

int main(int count, char** words) {
  std::vector<fs::path> paths;
  for (int i = 1; i < count; ++i) {
    if (!fs::is_directory(words[i])) {
      paths.emplace_back(words[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(words[i])) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file.good() && !file.eof()) {
      std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
      return 1;
    }
    // Printed before the input is run, so that a crash comes with its input's name.
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  std::printf("%zu inputs\n", paths.size());
  return paths.empty() ? 1 : 0;  // an empty corpus tests nothing
}
