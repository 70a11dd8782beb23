// Layouts that need little memory, and whether a model fits into the devices at all.
//
// The devices with the most memory come first, each stage has equally many of them, and takes as
// many layers as fit. So a model that fits in another way may be told not to fit; but what is told
// to fit does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// What memory must suffice for, compared with the problem as it is.
struct MemoryCase {
  bool recompute = false;  // stages that do not fit otherwise run their forwards again
  bool whole = false;    // replicas take whole micro-batches in turn, and one in flight is enough;
                         // else rows are split, and stage n of N holds min(micros, N - n)
  double more = 0;       // bytes that every device has in addition; may be negative
  double rows = 1;       // share of its rows that a micro-batch has; the step keeps its rows
  double optimizer = 1;  // share of what devices keep besides the weights now
  int32_t devices = 0;   // in addition to those that there are, like the one with most memory
};

// The layout that misses least.
struct NearestLayout {
  Layout layout;
  MemoryShortage shortage;  // of the stage that misses most; missing may be 0 or negative
};

// "stage 0 of 2 (layers 0 to 3 on 4 devices) needs 400 bytes more than device 0 has".
std::string shortage_text(const LayoutProblem& problem, const Layout& layout,
                          const MemoryShortage& shortage);

// Asks for one problem.
class FrugalLayouts {
 public:
  // `problem` must outlive this.
  explicit FrugalLayouts(const LayoutProblem& problem);

  // The layout of `count` stages without recomputation whose stage that misses most misses least.
  // Requires: 1 <= count <= min(layers, devices)
  Layout with_stages(int32_t count) const;
  // Whether a layout of some number of stages fits.
  bool fits(const MemoryCase& it) const;
  // The layout that misses least, of all numbers of stages. `it.more` and `it.devices` are ignored.
  NearestLayout nearest(MemoryCase it) const;

  // The device with the most memory, and the one with the least.
  int32_t largest() const { return devices_.front(); }
  int32_t smallest() const { return devices_.back(); }

 private:
  double need(Layers layers, int32_t in_flight, double replicas, const MemoryCase& it) const;
  std::vector<int32_t> ends(int32_t count, const MemoryCase& it) const;
  std::vector<int32_t> least_ends(int32_t count, MemoryCase& it) const;
  int32_t in_flight(int32_t behind, const MemoryCase& it) const;
  double memory(int32_t place, const MemoryCase& it) const;
  Layout layout(const std::vector<int32_t>& ends) const;

  const LayoutProblem& problem_;
  std::vector<int32_t> devices_;  // the one with the most memory first
};

}  // namespace tenuto
