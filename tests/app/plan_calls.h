// Calls of tenuto plan in tests, and files for them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/flags.h"
#include "app/plan_command.h"

namespace tenuto {

using Json = nlohmann::ordered_json;

// A file of this test's own, removed at its end.
class Scratch {
 public:
  Scratch(const std::string& name, const std::string& text)
      : path_(testing::TempDir() + "tenuto-" + std::to_string(::getpid()) + name) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~Scratch() { std::filesystem::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  std::string text() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

// What a call prints, and its exit code.
struct Answer {
  int code = 0;
  std::string out, errors;
};

inline Answer answer(const PlanOptions& options) {
  std::ostringstream out, errors;
  const int code = run_plan(options, out, errors);
  return {code, out.str(), errors.str()};
}

inline Json planned(PlanOptions options) {
  options.json = true;
  const Answer it = answer(options);
  EXPECT_EQ(it.code, 0) << it.errors;
  EXPECT_EQ(it.errors, "");
  return it.code == 0 ? Json::parse(it.out) : Json();
}

// Refused with `code`: one sentence on stderr, nothing on stdout. Returns the sentence.
inline std::string refused(const PlanOptions& options, int code) {
  const Answer it = answer(options);
  EXPECT_EQ(it.code, code) << it.out << it.errors;
  EXPECT_EQ(it.out, "");
  EXPECT_EQ(std::count(it.errors.begin(), it.errors.end(), '\n'), 1) << it.errors;
  const std::string start = "tenuto plan: ";
  EXPECT_EQ(it.errors.substr(0, start.size()), start);
  return it.errors.substr(std::min(start.size(), it.errors.size()));
}

// The sentence with which the command line refuses these arguments; empty if it accepts them.
inline std::string refused_flags(std::vector<std::string> arguments) {
  CLI::App app("test", "tenuto");
  std::function<int()> action;
  add_plan_command(app, [&](std::function<int()> what) { action = std::move(what); });
  arguments.insert(arguments.begin(), "plan");
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return sentence_of(app, error);
  }
  return {};
}

}  // namespace tenuto
