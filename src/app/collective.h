// tenuto collective: all-reduce algorithms as data, to look at, to check and to price.
#pragma once

#include <cstdint>
#include <iostream>
#include <string>

#include "base/result.h"
#include "ir/procedure.h"

namespace tenuto {

// The flags of `show`, `check` and `price`.
struct CollectiveOptions {
  std::string file;  // a procedure's text
  std::string algorithm = "ring";
  int32_t members = 8, chunks = 0, root = -1;
  std::string late;     // "RANK,..." or, to price, "RANK:MS,..."
  std::string picture;  // file for the SVG
  int64_t bytes = 64 << 20;
  double alpha_us = 10, gigabytes_per_second = 12.5;
  std::string slow_link;  // "FROM-TO:FACTOR" or "RANK:FACTOR", ...: share of the rate
  bool json = false;
};

// The rounds as a picture: a row for each member, a column for each round, an arrow for each
// message with its chunks: orange if the receiver adds them to its own, blue if it replaces its own
// by them.
std::string svg_of(const Procedure& procedure);

// `tenuto collective list`: every algorithm with what is known of it (AlgorithmCard).
int run_collective_list(const CollectiveOptions& options, std::ostream& out = std::cout);
// `tenuto collective show`: a procedure as text, and as a picture to a file. Exit codes as
// run_collective_check; 1 = the picture cannot be written.
int run_collective_show(const CollectiveOptions& options, std::ostream& out = std::cout,
                        std::ostream& errors = std::cerr);
// `tenuto collective check`: 0 = right; 2 = unreadable or wrong flags; 3 = refused, with the
// sentence.
int run_collective_check(const CollectiveOptions& options, std::ostream& out = std::cout,
                         std::ostream& errors = std::cerr);
// `tenuto collective price`: the time from the arrival of the first member to the end of the last.
int run_collective_price(const CollectiveOptions& options, std::ostream& out = std::cout,
                         std::ostream& errors = std::cerr);

}  // namespace tenuto
