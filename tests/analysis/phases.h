// Writes small traces with phases: two pipelines of two stages, one micro-batch.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/text.h"

namespace tenuto::analysis {

// One event: milliseconds.
struct Phase {
  std::string name;
  int32_t pipeline = 0, stage = 0;
  double start = 0, finish = 0;
};

// A step in which a forward lasts 10 ms, a backward 20 and a message 2, but the forward of stage 1
// of pipeline 0 lasts `slow` ms. All end with a collective of 1 ms.
inline std::vector<Phase> phases_with(double slow) {
  std::vector<Phase> all;
  double last = 0;
  for (const int32_t p : {0, 1}) last = std::max(last, 54 + (p == 0 ? slow : 10));
  for (const int32_t p : {0, 1}) {
    const double ready = 12 + (p == 0 ? slow : 10);  // of the forward of stage 1
    all.push_back({"forward-compute", p, 0, 0, 10});
    all.push_back({"forward-send", p, 0, 10, 12});
    all.push_back({"forward-recv", p, 1, 1, 12});
    all.push_back({"forward-compute", p, 1, 12, ready});
    all.push_back({"backward-compute", p, 1, ready, ready + 20});
    all.push_back({"backward-send", p, 1, ready + 20, ready + 22});
    all.push_back({"backward-recv", p, 0, 13, ready + 22});
    all.push_back({"backward-compute", p, 0, ready + 22, ready + 42});
    all.push_back({"optimizer-clip-main-grad", p, 0, ready + 42, last + 1});
    all.push_back({"optimizer-clip-main-grad", p, 1, ready + 20, last + 1});
  }
  return all;
}

// The trace as text.
inline std::string text_of(const std::vector<Phase>& phases) {
  std::string text = "[";
  for (const int32_t p : {0, 1}) {
    for (const int32_t s : {0, 1}) {
      text += cat(R"({"name": "thread_name", "ph": "M", "pid": )", p, R"(, "tid": )", s,
                  R"(, "args": {"name": "PP rank )", s, R"(, TP rank 0, compute"}},)", "\n");
    }
  }
  for (size_t i = 0; i < phases.size(); ++i) {
    const Phase& phase = phases[i];
    const bool numbered = phase.name.ends_with("compute");
    text += cat(R"({"name": ")", phase.name, R"(", "ph": "X", "pid": )", phase.pipeline,
                R"(, "tid": )", phase.stage, R"(, "ts": )", phase.start * 1000, R"(, "dur": )",
                (phase.finish - phase.start) * 1000, R"(, "args": {"step": 7, "mb_id": )",
                numbered ? 0 : -1, R"(, "model_chunk": )", numbered ? 0 : -1, "}}",
                i + 1 < phases.size() ? ",\n" : "]\n");
  }
  return text;
}

// Writes a file into the folder of temporary files and returns its path.
inline std::string written(const std::string& name, const std::string& text) {
  const std::string path = cat(testing::TempDir(), "tenuto_analysis_", name);
  std::ofstream(path) << text;
  return path;
}

}  // namespace tenuto::analysis
