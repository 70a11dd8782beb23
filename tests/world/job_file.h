// A job file for a test.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/check.h"

namespace tenuto {

// A file in /tmp that lives as long as the object.
class File {
 public:
  explicit File(const std::string& text) {
    char name[] = "/tmp/tenuto_job_XXXXXX";
    const int descriptor = ::mkstemp(name);
    CHECK(descriptor >= 0, "no temporary file");
    ::close(descriptor);
    path_ = name;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { std::remove(path_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  // Where it is.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tenuto
