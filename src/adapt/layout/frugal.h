// Layouts that need little memory, and whether a model fits into the memory of the devices at all.
//
// The devices with the most memory come first. Each stage has equally many devices, and takes as
// many layers as fit. So fits() may be false for a model that fits in another way; but if it is
// true, a layout fits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// What is assumed when memory is checked. The defaults are the problem as it is.
struct MemoryCase {
  bool recompute = false;  // stages that do not fit otherwise run their forwards again
  bool whole = false;    // replicas take whole micro-batches in turn, and one in flight is enough;
                         // else rows are split, and stage n of N holds min(micros, N - n)
  double more = 0;       // bytes that every device has in addition; may be negative
  double rows = 1;       // factor of the rows of a micro-batch; a step keeps its number of rows
  double optimizer = 1;  // factor of what devices keep besides the weights
  int32_t devices = 0;   // additional ones, each like the one with the most memory
};

// The layout whose largest shortage of memory is the smallest.
struct NearestLayout {
  Layout layout;
  MemoryShortage shortage;  // the largest; `missing` may be 0 or negative
};

// "stage 0 of 2 (layers 0 to 3 on 4 devices) needs 400 bytes more than device 0 has".
std::string shortage_text(const LayoutProblem& problem, const Layout& layout,
                          const MemoryShortage& shortage);

// Searches such layouts for one problem.
class FrugalLayouts {
 public:
  // `problem` must outlive this.
  explicit FrugalLayouts(const LayoutProblem& problem);

  // As nearest(), but with `count` stages and without recomputation.
  // Requires: 1 <= count <= min(layers, devices)
  Layout with_stages(int32_t count) const;
  // Whether a layout fits, with any number of stages.
  bool fits(const MemoryCase& it) const;
  // The nearest layout with any number of stages. `it.more` and `it.devices` are ignored.
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
