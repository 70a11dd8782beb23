// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

namespace tenuto {

// Owns one number; -1 = none.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  // As the system calls take it.
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace tenuto
