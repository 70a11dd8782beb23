// iterations.txt in the folder of a run with server shards: what its replicas have measured, as a
// recording (sync/predict_record.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "sync/predict_record.h"

namespace tenuto {

// The open file.
class IterationFile {
 public:
  // A file has at most so many samples, about 8 MB: enough to learn from, and a long run does not
  // fill its disk with them.
  static constexpr int64_t kMostSamples = 100'000;

  // Opens for appending; a new file begins with the first line of a recording. One that is there is
  // of the same run.
  //
  // Errors: those of LineFile and read_file
  static Result<IterationFile> open(const std::string& path, int32_t replicas,
                                    int64_t most_samples = kMostSamples);

  // Appends a round as a whole. It does nothing when the file would have too many samples.
  //
  // Shapes: a sample of each replica, in their order
  // Errors: those of LineFile::write
  Status write(std::span<const IterationSample> round);

 private:
  IterationFile() = default;
  LineFile file_;
  int64_t left_ = 0;  // samples that may still be written
};

}  // namespace tenuto
