// The sent values that a device keeps, so that a step can go on when a receiver is lost with its
// copy (compute.h). Values are moved, never copied.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/op.h"

namespace tenuto {

// The kept values of a worker, all its stages together: of the step that was begun last, and of the
// one before. `Held` is what the device holds as a value.
template <class Held>
class KeptValues {
 public:
  // Values by name, as a store has them.
  using Values = std::map<Value, Held>;

  // Step `next` begins: values kept of the step before stay; if the same step is run again, its own
  // do not. `give_up` gets the values that do not stay, and must leave none.
  template <class GiveUp>
  void begin(int64_t next, const GiveUp& give_up) {
    if (step_ != next) {
      if (step_ == next - 1) std::swap(before_, now_);
      if (step_ != next - 1) give_up(before_);
      step_ = next;
    }
    give_up(now_);
  }
  // The value is kept, in the place of one of the same name.
  void keep(const Value& value, Held held) { now_.insert_or_assign(value, std::move(held)); }
  // Takes out a value that is not needed any more, if it is here.
  std::optional<Held> drop(const Value& value) {
    const auto found = now_.find(value);
    if (found == now_.end()) return std::nullopt;
    std::optional<Held> held(std::move(found->second));
    now_.erase(found);
    return held;
  }
  // What is left of step `wanted` begins: puts the `stored` values, wherever they are, and no
  // others into the store. A second call changes nothing.
  void resume(int64_t wanted, const std::vector<Value>& stored, Values& store) {
    if (step_ != wanted) {  // the step after has been begun, or this one never was
      store.clear();
      now_ = step_ == wanted + 1 ? std::move(before_) : Values();
      step_ = wanted;
    }
    before_.clear();
    Values all;
    for (const Value& value : stored) {
      // A kept value is whole; in the store there may be memory whose message has not come.
      for (Values* place : {&now_, &store}) {
        if (const auto found = place->find(value); found != place->end()) {
          all.insert(place->extract(found));
          break;
        }
      }
    }
    store = std::move(all);
  }

 private:
  int64_t step_ = -1;  // that was begun last
  Values now_, before_;
};

}  // namespace tenuto
