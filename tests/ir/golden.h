// Golden files, compared whole. UPDATE_GOLDEN=1 rewrites them; the difference is reviewed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "source_tree.h"

namespace tenuto {

// Expects that the file `name` below tests/ holds exactly `text`.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = source_tree() + "/tests/" + name;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing: run with UPDATE_GOLDEN=1 and review it";
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << path << " differs: review, or run with UPDATE_GOLDEN=1";
}

}  // namespace tenuto
