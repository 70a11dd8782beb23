#include "control/decision_part.h"

#include <iterator>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

template <class T>
void append(std::vector<T>& to, std::vector<T>&& more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

void DecisionPart::say(const std::string& sentence) {
  if (!sentence.empty()) reason += reason.empty() ? sentence : "; " + sentence;
}

void DecisionPart::say(const char* of, const std::string& sentence) {
  event = of;
  say(sentence);
}

void DecisionPart::follow(DecisionPart later) {
  edits.append(std::move(later.edits));
  say(later.reason);
  if (std::string_view(later.event) != kDecisionEvent) event = later.event;
  append(expelled, std::move(later.expelled));
  append(cut_off, std::move(later.cut_off));
  append(steps, std::move(later.steps));
  append(verdicts, std::move(later.verdicts));
  append(repaired, std::move(later.repaired));
  if (later.checkpoint) checkpoint = std::move(later.checkpoint);
  if (later.wanted) wanted = std::move(later.wanted);
  if (!later.alternatives.empty()) {
    alternatives = std::move(later.alternatives);
    expected_steps = later.expected_steps;
  }
}

}  // namespace tenuto
