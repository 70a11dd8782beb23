#include "parameter_server/mass_store.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/text.h"

namespace tenuto::servers {

namespace {

static_assert(sizeof(float) == kElementBytes);

// The head of a state, as words. All but the last three are the same in all states of a store: the
// mass of the gradients before, the mass of the changes before, and a checksum.
constexpr size_t kOptimizer = 1, kStage = 3, kBegin = 4, kEnd = 5, kBefore = 6, kChanged = 7,
                 kSum = 8, kWords = 9;
using Head = std::array<uint64_t, kWords>;
constexpr uint64_t kForm = 0x33'4d'4f'54'55'4e'45'54;  // TENUTOM3, the first bytes

// Has what the numbers of a state mean. Rates, decays and schedules are not in it: a run may go on
// from a checkpoint with others.
Head head_of(const MassStoreSettings& of, const ElementRange& range) {
  const auto word = [](int64_t number) { return static_cast<uint64_t>(number); };
  return {kForm,
          word(static_cast<int64_t>(of.optimizer)),
          word(of.full.micros),
          word(range.stage.value),
          word(range.begin),
          word(range.end),
          0,
          0};
}

// Rows of a state, each with a number for each element: the parameters, then each moment, then the
// velocity of the outer step if there was one.
size_t row_count_of(TrialOptimizer optimizer, bool was_changed) {
  return 1 + moment_count(optimizer) + (was_changed ? 1 : 0);
}

size_t size_of_state(size_t elements, size_t rows) {
  return sizeof(Head) + elements * rows * sizeof(float);
}

// Of the head before its checksum, then of the rest.
uint64_t checksum(const Head& head, std::span<const std::byte> rest) {
  return crc32c(rest, crc32c(std::as_bytes(std::span(head).first(kSum))));
}

// Writes the head, with its checksum, in front of the rest of a state.
void seal(Head head, std::vector<std::byte>& state) {
  head[kSum] = checksum(head, std::span(state).subspan(sizeof(Head)));
  std::memcpy(state.data(), head.data(), sizeof(Head));
}

// The numbers of a payload. Its memory is that of a vector, so it is aligned for them.
std::span<const float> numbers_in(const Payload& payload) {
  return {reinterpret_cast<const float*>(payload->data()), payload->size() / sizeof(float)};
}

std::string text_of(const ElementRange& range) {
  return cat("elements ", range.begin, " to ", range.end, " of stage ", range.stage);
}

Error corrupt(const ElementRange& range, const std::string& what) {
  return {Code::Corrupt, Reach::Call,
          cat("servers: a state for ", text_of(range), ": ", what, ": send it again")};
}

Error misfit(const ElementRange& range, const std::string& what) {
  return {Code::Corrupt, Reach::Call, cat("states for ", text_of(range), ": ", what)};
}

// A state in its parts, which are in the payload.
struct SplitState {
  Head head = {};
  ElementRange range;
  std::vector<std::span<const std::byte>> rows;
};

// Takes a state of any range apart. `wanted`: the range that it is for, for the sentence. The sizes
// follow from the head, so its numbers are checked although the checksum fits.
Result<SplitState> split(const Payload& state, const ElementRange& wanted) {
  if (size_of(state).count < static_cast<int64_t>(sizeof(Head))) {
    return misfit(wanted, cat("expected a head of ", sizeof(Head), " bytes in each, found one of ",
                              size_of(state).count, " bytes"));
  }
  SplitState parts;
  std::memcpy(parts.head.data(), state->data(), sizeof(Head));
  const auto rest = std::span<const std::byte>(*state).subspan(sizeof(Head));
  if (parts.head[0] != kForm || parts.head[kSum] != checksum(parts.head, rest)) {
    return misfit(wanted, "the form or the checksum of one does not fit");
  }
  const auto number = [&](size_t word) { return static_cast<int64_t>(parts.head[word]); };
  const auto is_in = [&](size_t word, int64_t least, int64_t most) {
    return number(word) >= least && number(word) <= most;
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const bool has_range = is_in(kStage, 0, std::numeric_limits<int32_t>::max()) &&
                         is_in(kBegin, 0, kMost) && is_in(kEnd, 1, kMost) &&
                         number(kBegin) < number(kEnd);
  if (!has_range || !is_in(kBefore, 0, kMostMassBefore) || !is_in(kChanged, 0, kMostMassBefore) ||
      !is_in(kOptimizer, 0, static_cast<int64_t>(TrialOptimizer::AdamW))) {
    return misfit(wanted, "expected an optimizer, a range and a mass before in each, found others");
  }
  parts.range = {{static_cast<int32_t>(number(kStage))}, number(kBegin), number(kEnd)};
  const size_t row_count =
      row_count_of(static_cast<TrialOptimizer>(number(kOptimizer)), number(kChanged) > 0);
  const auto elements = static_cast<size_t>(parts.range.end - parts.range.begin);
  const size_t unit = row_count * sizeof(float);
  if (rest.size() % unit != 0 || rest.size() / unit != elements) {
    return misfit(wanted, cat("expected ", row_count, " numbers for each of ", text_of(parts.range),
                              ", found ", rest.size(), " bytes"));
  }
  const size_t row_size = elements * sizeof(float);
  for (size_t r = 0; r < row_count; ++r) {
    parts.rows.push_back(rest.subspan(r * row_size, row_size));
  }
  return parts;
}

// Whether both are of one run at one version: form, optimizer, full mass, masses before.
bool fit_together(const Head& one, const Head& other) {
  return std::equal(one.begin(), one.begin() + kStage, other.begin()) &&
         one[kBefore] == other[kBefore] && one[kChanged] == other[kChanged];
}

// Whether the states, in the order of their ranges, have each element of the range once.
Status check_cover(const std::vector<SplitState>& states, const ElementRange& range) {
  const auto elements = [](int64_t begin, int64_t end) {
    return cat("elements ", begin, " to ", end);
  };
  int64_t next = range.begin;  // the first element that none of the states so far has
  for (const SplitState& one : states) {
    const ElementRange& has = one.range;
    if (has.stage != range.stage || has.end <= range.begin || has.begin >= range.end) {
      return misfit(range, cat("found one of ", text_of(has)));
    }
    if (!fit_together(one.head, states.front().head)) {
      return misfit(range,
                    "expected one optimizer, full mass and mass before in all, found others");
    }
    const int64_t begin = std::max(has.begin, range.begin);
    if (begin > next) return misfit(range, cat(elements(next, begin), " are in none"));
    if (begin < next) {
      return misfit(range, cat(elements(begin, std::min(next, has.end)), " are in two"));
    }
    next = std::min(has.end, range.end);
  }
  if (next == range.end) return ok();
  return misfit(range, cat(elements(next, range.end), " are in none"));
}

bool is_length(double number) { return number >= 0 && std::isfinite(number); }

// Whether the settings that only jobs have are in range.
Status check_job_settings(const MassStoreSettings& of) {
  if (!is_length(of.clip_margin) || !is_length(of.weight_decay) || of.decayed < 0) {
    return invalid(
        cat("servers: expected a clip margin, a weight decay and a number of decayed "
            "elements of 0 or more, found ",
            of.clip_margin, ", ", of.weight_decay, " and ", of.decayed));
  }
  const RateSchedule& schedule = of.schedule;
  if (schedule.warm_up_steps < 0 || schedule.steps < 0 ||
      !(schedule.minimum_rate >= 0 && schedule.minimum_rate <= 1)) {
    return invalid(
        cat("servers: expected a warm-up and a run of 0 steps or more and a minimum rate "
            "from 0 to 1, found ",
            schedule.warm_up_steps, ", ", schedule.steps, " and ", schedule.minimum_rate));
  }
  return ok();
}

// Whether the numbers are in range.
Status check_numbers(const MassStoreSettings& of) {
  const auto is_factor = [](double number) { return number >= 0 && number < 1; };
  const AdamSettings& adam = of.adam;
  if (!is_length(of.rate) || of.rate == 0 || !is_length(of.clip)) {
    return invalid(cat("servers: expected a rate above 0 and a clip of 0 or more, found ", of.rate,
                       " and ", of.clip));
  }
  if (!is_factor(of.momentum) || !is_factor(adam.beta1) || !is_factor(adam.beta2)) {
    return invalid(cat("servers: expected a momentum and betas from 0 to below 1, found ",
                       of.momentum, ", ", adam.beta1, " and ", adam.beta2));
  }
  if (!is_length(adam.epsilon) || adam.epsilon == 0 || !is_length(adam.weight_decay)) {
    return invalid(
        cat("servers: expected an epsilon above 0 and a weight decay of 0 or more, "
            "found ",
            adam.epsilon, " and ", adam.weight_decay));
  }
  if (of.full.micros < 1) {
    return invalid(cat("servers: expected a full mass above 0, found ", of.full.micros));
  }
  return check_job_settings(of);
}

Status check_store(const MassStoreSettings& of, const ElementRange& range, size_t count) {
  if (const Status fault = check_numbers(of); !fault.ok()) return fault;
  if (of.clip > 0 && !of.whole_model) {
    return invalid(cat("servers: clipping needs the norm over the whole model, and ",
                       text_of(range), " are a part of it: set clip to 0"));
  }
  if (range.begin < 0 || range.end <= range.begin ||
      static_cast<size_t>(range.end - range.begin) != count) {
    return invalid(
        cat("servers: expected a parameter for each of ", text_of(range), ", found ", count));
  }
  return ok();
}

}  // namespace

StepSetting step_setting_of(const MassStoreSettings& settings) {
  StepSetting step;
  step.optimizer = settings.optimizer;
  step.rate = settings.rate;
  step.momentum = settings.momentum;
  step.clip = settings.clip;
  step.clip_margin = settings.clip_margin;
  step.adam = settings.adam;
  step.weight_decay = settings.weight_decay;
  step.decayed = settings.decayed;
  step.schedule = settings.schedule;
  return step;
}

Result<Payload> join_states(std::span<const Payload> states, const ElementRange& range) {
  CHECK(range.begin >= 0 && range.begin < range.end, text_of(range));
  std::vector<SplitState> parts;
  for (const Payload& state : states) {
    auto one = split(state, range);
    if (!one.ok()) return one.error();
    parts.push_back(std::move(one).value());
  }
  std::sort(parts.begin(), parts.end(), [](const SplitState& one, const SplitState& other) {
    return one.range.begin < other.range.begin;
  });
  if (const Status covered = check_cover(parts, range); !covered.ok()) return covered.error();
  std::vector<std::byte> all(sizeof(Head));
  const size_t row_count = parts.front().rows.size();
  all.reserve(sizeof(Head) + row_count * static_cast<size_t>(size_of(range).count));
  for (size_t r = 0; r < row_count; ++r) {
    for (const SplitState& one : parts) {
      const int64_t begin = std::max(one.range.begin, range.begin);
      const int64_t end = std::min(one.range.end, range.end);
      const auto cut =
          one.rows[r].subspan(static_cast<size_t>((begin - one.range.begin) * kElementBytes),
                              static_cast<size_t>((end - begin) * kElementBytes));
      all.insert(all.end(), cut.begin(), cut.end());
    }
  }
  Head head = parts.front().head;
  head[kBegin] = static_cast<uint64_t>(range.begin);
  head[kEnd] = static_cast<uint64_t>(range.end);
  seal(head, all);
  return Payload(std::make_shared<const std::vector<std::byte>>(std::move(all)));
}

Result<std::vector<float>> parameters_in(const Payload& state, const ElementRange& range) {
  const auto parts = split(state, range);
  if (!parts.ok()) return parts.error();
  if (parts.value().range != range) {
    return misfit(range, cat("found one of ", text_of(parts.value().range)));
  }
  const std::span<const std::byte> bytes = parts.value().rows.front();
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

Result<std::unique_ptr<MassStore>> MassStore::make(const MassStoreSettings& settings,
                                                   const ElementRange& range,
                                                   std::vector<float> initial) {
  const Status fault = check_store(settings, range, initial.size());
  if (!fault.ok()) return fault.error();
  return std::make_unique<MassStore>(settings, range, std::move(initial));
}

MassStore::MassStore(const MassStoreSettings& settings, const ElementRange& range,
                     std::vector<float> initial)
    : settings_(settings),
      range_(range),
      elements_(std::move(initial)),
      step_(step_setting_of(settings), elements_.size()) {
  const Status fault = check_store(settings, range, elements_.size());
  CHECK(fault.ok(), fault.error().message);
}

// The parts of an update, in the order in which they are taken.
std::vector<MassStore::Part> MassStore::parts_of(const DecidedUpdate& update,
                                                 std::span<const Payload> payloads) {
  std::vector<Part> parts;
  for (size_t i = 0; i < payloads.size(); ++i) {
    const Work& work = update.works[i];
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& one) {
      return one.local_steps == work.local_steps && one.outer == work.outer;
    });
    if (part == parts.end()) {
      parts.push_back({work.local_steps, work.outer, {}, {}});
      part = parts.end() - 1;
    }
    part->mass += update.update.members[i].mass;
    part->values.push_back(numbers_in(payloads[i]));
  }
  std::sort(parts.begin(), parts.end(), [](const Part& one, const Part& other) {
    return std::tie(one.local_steps, one.outer.rate, one.outer.momentum) <
           std::tie(other.local_steps, other.outer.rate, other.outer.momentum);
  });
  return parts;
}

void MassStore::apply(const DecidedUpdate& update, std::span<const Payload> gradients) {
  const size_t count = update.works.size();
  CHECK(gradients.size() == count && update.update.members.size() == count,
        cat("as many gradients and members as there are works, which are ", count, ", found ",
            gradients.size(), " and ", update.update.members.size()));
  for (const Payload& one : gradients) {
    CHECK(size_of(one) == size_of(range_),
          cat("a gradient of ", size_of(range_).count, " bytes, found ", size_of(one).count));
  }
  const Mass mass = mass_of(update.update);
  CHECK(mass > Mass{}, cat("a mass above 0, found ", mass.micros));
  for (const Part& part : parts_of(update, gradients)) {
    if (part.local_steps > 1) {
      take_changes(part);
    } else {
      take_gradients(part);
    }
  }
}

void MassStore::take_gradients(const Part& part) {
  const Mass applied = step_.state().before + changed();
  const double rate = rate_at(step_setting_of(settings_), share_of(applied, settings_.full));
  step_.take_at_rate(elements_, part.values, part.mass, settings_.full, rate);
}

void MassStore::take_changes(const Part& part) {
  set_outer(part.outer);
  const Mass full{settings_.full.micros * part.local_steps};
  outer_->take_sum(elements_, part.values, part.mass, full);
}

// The velocity goes on when rate and momentum change.
void MassStore::set_outer(const OuterStep& outer) {
  if (outer_ && outer_step_ == outer) return;
  TrialStep next(step_setting(outer), elements_.size());
  if (outer_) next.resume(outer_->state());
  outer_ = std::move(next);
  outer_step_ = outer;
}

Payload MassStore::parameters() const {
  const auto bytes = std::as_bytes(std::span(elements_));
  return std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
}

Payload MassStore::save() const {
  const OptimizerState& state = step_.state();
  const size_t rows = row_count_of(settings_.optimizer, outer_.has_value());
  const auto all = std::make_shared<std::vector<std::byte>>(size_of_state(elements_.size(), rows));
  auto rest = std::span<std::byte>(*all).subspan(sizeof(Head));
  const auto put = [&](std::span<const std::byte> from) {
    std::copy(from.begin(), from.end(), rest.begin());
    rest = rest.subspan(from.size());
  };
  Head head = head_of(settings_, range_);
  head[kBefore] = static_cast<uint64_t>(state.before.micros);
  head[kChanged] = static_cast<uint64_t>(changed().micros);
  put(std::as_bytes(std::span(elements_)));
  put(std::as_bytes(std::span(state.first)));
  put(std::as_bytes(std::span(state.second)));
  if (outer_) put(std::as_bytes(std::span(outer_->state().first)));
  seal(head, *all);
  return all;
}

Status MassStore::load(const Payload& state) {
  const auto found = static_cast<size_t>(size_of(state).count);
  Head head{};
  if (found >= sizeof(Head)) std::memcpy(head.data(), state->data(), sizeof(Head));
  const bool was_changed = head[kChanged] > 0;
  const size_t size =
      size_of_state(elements_.size(), row_count_of(settings_.optimizer, was_changed));
  if (found != size) return corrupt(range_, cat("expected ", size, " bytes, found ", found));
  auto rest = std::span<const std::byte>(*state).subspan(sizeof(Head));
  const Head own = head_of(settings_, range_);
  if (!std::equal(own.begin(), own.begin() + kBefore, head.begin())) {
    return corrupt(range_,
                   "expected one of this range, optimizer and full mass, found another one");
  }
  if (head[kSum] != checksum(head, rest)) {
    return corrupt(range_, "its checksum does not fit");
  }
  for (const uint64_t before : {head[kBefore], head[kChanged]}) {
    if (before <= static_cast<uint64_t>(kMostMassBefore)) continue;
    return corrupt(
        range_, cat("expected a mass from 0 to ", kMostMassBefore, " before it, found ", before));
  }
  const auto take = [&](std::span<std::byte> to) {
    std::copy_n(rest.begin(), to.size(), to.begin());
    rest = rest.subspan(to.size());
  };
  OptimizerState next;
  next.first.resize(step_.state().first.size());
  next.second.resize(step_.state().second.size());
  next.before = {static_cast<int64_t>(head[kBefore])};
  take(std::as_writable_bytes(std::span(elements_)));
  take(std::as_writable_bytes(std::span(next.first)));
  take(std::as_writable_bytes(std::span(next.second)));
  step_.resume(std::move(next));
  outer_.reset();
  if (!was_changed) return ok();
  OptimizerState velocity;
  velocity.first.resize(elements_.size());
  velocity.before = {static_cast<int64_t>(head[kChanged])};
  take(std::as_writable_bytes(std::span(velocity.first)));
  set_outer({});
  outer_->resume(std::move(velocity));
  return ok();
}

}  // namespace tenuto::servers
