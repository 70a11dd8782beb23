#!/usr/bin/env python3
"""Copies a source and puts bugs into the copy, each behind a switch that a test throws (seeded.h).

    seed.py SOURCE_FOLDER FILE OUTPUT

A bug is a piece of the source, which must occur there exactly once, and the text that replaces it
in the copy. So the product contains no switches. If the piece is changed in the source, the build
of the tests fails with an error that names the bug, and the piece must be changed here, too.
"""

import os
import re
import sys

# FILE: [(bug, a piece of the source, the same piece with the bug)], in the order of the file.
BUGS = {
    "adapt/salvage.cc": [
        ("Total", """\
    whole_.push_back(std::any_of(holders.begin(), holders.end(),
                                 [&](WorkerId holder) { return has_totals(holder, s); }));
""", """\
    whole_.push_back(!is_seeded(Seeded::Total) &&
                     std::any_of(holders.begin(), holders.end(),
                                 [&](WorkerId holder) { return has_totals(holder, s); }));
"""),
        ("Redone", """\
      if (whole_[at(s)]) continue;
""", """\
      if (whole_[at(s)] && !is_seeded(Seeded::Redone)) continue;
"""),
        ("NoKeep", """\
  if (value.kind == ValueKind::Activation) return need_forward(value.stage, value.micro, {});
""", """\
  if (is_seeded(Seeded::NoKeep)) return;
  if (value.kind == ValueKind::Activation) return need_forward(value.stage, value.micro, {});
"""),
        ("NoRedo", """\
      if (!runs) continue;
""", """\
      if (!runs || is_seeded(Seeded::NoRedo)) continue;
"""),
    ],
    "run/coordinate.cc": [
        ("Journal", """\
  if (!write_down(check)) return follows;
  die_if_due(decision, begins);
  if (decision.instruction) {
""", """\
  if (is_seeded(Seeded::Journal) && decision.instruction) {
    server_->tell(*decision.instruction,
                  decision.new_plan ? to_json(*state_.planning.present) : std::string());
  }
  if (!write_down(check)) return follows;
  die_if_due(decision, begins);
  if (decision.instruction && !is_seeded(Seeded::Journal)) {
"""),
    ],
    "worker/decide_step.cc": [
        ("Undo", """\
  } else if (leads_back(Version{s_.device.version}, Version{directive().committed})) {
""", """\
  } else if (leads_back(Version{s_.device.version}, Version{directive().committed}) &&
             !is_seeded(Seeded::Undo)) {
"""),
    ],
    "control/commit.cc": [
        ("First", """\
bool is_kept(const State& state, int64_t version) {
""", """\
bool is_kept(const State& state, int64_t version) {
  if (is_seeded(Seeded::First)) {
    const auto& stages = state.rules.stages;
    return std::all_of(stages.begin(), stages.end(), [&](const Stage& stage) {
      return std::any_of(stage.holders.begin(), stage.holders.end(), [&](WorkerId holder) {
        const Member& of = member_of(state, holder);
        return of.alive && of.report.epoch == state.epoch && of.report.phase == Phase::Running &&
               of.report.version >= version;
      });
    });
  }
"""),
        ("Phase", """\
    if (report.epoch != state.epoch || report.phase != Phase::Running) return false;
""", """\
    const bool runs = report.phase == Phase::Running || is_seeded(Seeded::Phase);
    if (report.epoch != state.epoch || !runs) return false;
"""),
    ],
    "control/salvage.cc": [
        ("Losses", """\
    if (!is_known(last)) target =
""", """\
    if (!is_known(last) && !is_seeded(Seeded::Losses)) target =
"""),
    ],
    "control/query.cc": [
        ("Decision", """\
              .target = salvaged ? state.salvage.target : state.target,
""", """\
              .target = salvaged ? state.salvage.target
                        : is_seeded(Seeded::Decision) && state.epoch > state.rules.epoch
                            ? -1
                            : state.target,
"""),
        ("Phase", """\
(member.report.epoch == state.epoch && member.report.phase == Phase::Frozen);
""", """\
(member.report.epoch == state.epoch &&
            (member.report.phase == Phase::Frozen || is_seeded(Seeded::Phase)));
"""),
    ],
    "control/join.cc": [
        ("Uncommitted", """\
DecisionPart send_back_joiners(const State& state) {
  DecisionPart out;
""", """\
DecisionPart send_back_joiners(const State& state) {
  DecisionPart out;
  if (is_seeded(Seeded::Uncommitted)) return out;
"""),
        ("NoTag", """\
return report.received >= 0 && report.received <= state.committed;
""", """\
return report.received >= 0 && (report.received <= state.committed || is_seeded(Seeded::NoTag));
"""),
    ],
    "control/layers.cc": [
        ("Early", """\
         report.received <= state.committed;
""", """\
         (report.received <= state.committed || is_seeded(Seeded::Early));
"""),
    ],
    "control/take_up.cc": [
        ("Forgets", """\
  move_layers(state.stages, facts.moves);
""", """\
  if (!is_seeded(Seeded::Forgets)) move_layers(state.stages, facts.moves);
"""),
    ],
    "control/rest.cc": [
        ("Attempt", """\
    if (held != nullptr && held->attempt != stock.attempt) inventory.values.clear();
""", """\
    const bool old = held != nullptr && held->attempt != stock.attempt;
    if (old && !is_seeded(Seeded::Attempt)) inventory.values.clear();
"""),
    ],
    "rehearsal/paced.cc": [
        ("KeepAcc", """\
  begin_step(step);
""", """\
  const bool keeps = is_seeded(Seeded::KeepAcc) && account_.step() == step;
  begin_step(step);
"""),
        ("KeepAcc", """\
  common_->begin(step);
  std::fill(sums_.begin(), sums_.end(), 0.0F);
""", """\
  common_->begin(step);
  if (!keeps) std::fill(sums_.begin(), sums_.end(), 0.0F);
"""),
    ],
    "runtime/reduction.cc": [
        ("InPlace", """\
      combine(settings_.element, settings_.operation, total, here, came);
""", """\
      combine(settings_.element, settings_.operation, total, here, came);
      if (is_seeded(Seeded::InPlace)) {
        const std::span<const std::byte> own = part(own_, chain);
        copy({const_cast<std::byte*>(own.data()), own.size()}, total);
      }
"""),
    ],
    "runtime/step_run.cc": [
        ("Ahead", """\
    return may_update(Iteration{state_.input.step}, Version{standing_.committed});
""", """\
    return may_update(Iteration{state_.input.step}, Version{standing_.committed}) ||
           is_seeded(Seeded::Ahead);
"""),
    ],
    "runtime/step_values.cc": [
        ("FreeTotal", """\
  compute.keep(value);
""", """\
  if (is_seeded(Seeded::FreeTotal) && value.kind == ValueKind::Total) compute.discard(value);
  compute.keep(value);
"""),
    ],
    "runtime/tag.cc": [
        ("Fence", """\
  append(name, chunk.value, kTagChunks);
  return {epoch, step, name};
""", """\
  append(name, chunk.value, kTagChunks);
  if (is_seeded(Seeded::Fence) || is_seeded(Seeded::Stale)) epoch = 0;
  return {epoch, step, name};
"""),
    ],
}


def seed(text, name):
    """The text with all bugs of the file in it."""
    for bug, right, wrong in BUGS[name]:
        count = text.count(right.strip())
        if count != 1:
            sys.exit(f"seed.py: the rule that {bug} breaks is {count} times in src/{name}, "
                     f"expected once: say in tests/seeded/seed.py where it is now:\n{right}")
        text = text.replace(right.strip(), wrong.strip())
    # Goes after the first include, which is the source's own header.
    return re.sub(r'(#include "[^"]*"\n)', r'\1#include "seeded/seeded.h"\n', text, count=1)


def main():
    source, name, output = sys.argv[1:]
    with open(os.path.join(source, name), encoding="utf-8") as file:
        text = seed(file.read(), name)
    os.makedirs(os.path.dirname(output), exist_ok=True)
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
