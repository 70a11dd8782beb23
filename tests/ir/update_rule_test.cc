// The update rule: every mode against a reference over all small orders of arrival and over random
// histories with losses, joins and changes of mode; what each mode decides, as text.
#include "ir/update_rule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "base/text.h"
#include "ir/golden.h"
#include "ir/random_mode.h"
#include "ir/reference_rule.h"
#include "source_tree.h"

namespace tenuto {
namespace {

UpdateRule rule_of(const RuleStart& start) {
  auto rule = UpdateRule::make(start);
  EXPECT_TRUE(rule.ok()) << rule.error().message;
  return std::move(rule).value();
}

RuleStart start_of(const std::string& mode, int32_t replicas, int64_t micros = 4) {
  return {sync_mode_from_text(mode).value(), replicas, micros, {}, {}};
}

// Counts micro-batches by name, apart from the rule's own sums.
class Audit {
 public:
  explicit Audit(const SyncMode& mode) : mode_(mode) {}

  void offered(const Offer& offer) {
    ++made_[offer.replica.value];
    ++clock_[offer.replica.value];
    for (int64_t micro = 0; micro < offer.mass.micros; ++micro) {
      EXPECT_TRUE(waiting_.insert({offer.replica.value, offer.iteration.value, micro}).second)
          << "offered twice";
    }
  }
  void lost(int32_t replica) { clock_.erase(replica), made_.erase(replica), gone_.erase(replica); }
  void changed(const SyncMode& mode, const std::set<int32_t>& live) {
    mode_ = mode;
    made_.clear(), gone_.clear(), clock_.clear();
    for (const int32_t one : live) clock_[one] = 0;
    for (const auto& [replica, iteration, micro] : waiting_) {
      clock_[replica] = 1;
      made_[replica] = 1;
    }
  }
  void joined(int32_t replica, const std::set<int32_t>& live) {
    int64_t fewest = live.empty() ? 0 : clock_[*live.begin()];
    for (const int32_t one : live) fewest = std::min(fewest, clock_[one]);
    clock_[replica] = fewest;
  }

  void decided(const Decided& decided, const UpdateRule& rule) {
    for (const Update& update : decided.updates) {
      EXPECT_EQ(update.number, updates_++);
      ASSERT_EQ(update.parents.size(), update.members.size());
      for (size_t i = 0; i < update.members.size(); ++i) {
        if (i > 0) {
          EXPECT_LT(update.members[i - 1].replica, update.members[i].replica);
        }
        EXPECT_LE(update.members[i].version, update.version);
        take(update.members[i], applied_);
      }
    }
    for (const Dropped& dropped : decided.dropped) {
      take(dropped.offer, dropped_);
      if (dropped.reason == DropReason::Lost) continue;
      const int32_t replica = dropped.offer.replica.value;
      ++gone_[replica];
      // Half of the offers since the last change of mode, and one of before it.
      EXPECT_LE(2 * gone_[replica], made_[replica] + 1);
    }
    for (const Release& release : decided.released) {
      for (const auto& [other, clock] : clock_) {
        if (!mode_.bound) break;
        EXPECT_LE(clock_[release.offer.replica.value] - clock, *mode_.bound);
      }
    }
    EXPECT_EQ(rule.applied_mass(), applied_);
    EXPECT_EQ(rule.dropped_mass(), dropped_);
    const Mass waiting{std::ssize(waiting_)};
    EXPECT_EQ(rule.waiting_mass(), waiting);
    EXPECT_EQ(rule.offered_mass(), applied_ + dropped_ + waiting);
  }

 private:
  void take(const Offer& offer, Mass& sum) {
    for (int64_t micro = 0; micro < offer.mass.micros; ++micro) {
      EXPECT_EQ(waiting_.erase({offer.replica.value, offer.iteration.value, micro}), 1u)
          << "counted twice, or never offered";
    }
    sum += offer.mass;
  }

  SyncMode mode_;
  std::set<std::tuple<int32_t, int64_t, int64_t>> waiting_;
  std::map<int32_t, int64_t> made_, gone_, clock_;
  Mass applied_, dropped_;
  int64_t updates_ = 0;
};

std::string text_of(const Decided& decided) {
  std::string text;
  for (const Dropped& dropped : decided.dropped) {
    text += cat("  drops ", dropped.offer.replica, " iteration ", dropped.offer.iteration.value,
                dropped.reason == DropReason::Lost ? " lost" : " stale", "\n");
  }
  for (const Update& update : decided.updates) text += cat("  ", to_text(update), "\n");
  for (const Release& release : decided.released) {
    text +=
        cat("  releases ", release.offer.replica, " iteration ", release.offer.iteration.value,
            release.local_steps > 1 ? cat(" steps ", release.local_steps) : std::string(),
            " version ", release.offer.version.value, " mass ", release.offer.mass.micros, "\n");
  }
  if (decided.window) {
    text += cat("  opens window ", decided.window->number, " for ",
                to_milliseconds(decided.window->length), " ms\n");
  }
  return text;
}

// ---- all small orders ------------------------------------------------------------------------

// Every order in which replicas can offer and windows can end, up to `depth` inputs.
class AllOrders {
 public:
  AllOrders(const RuleStart& start, int depth) : start_(start), depth_(depth) {
    const UpdateRule rule = rule_of(start);
    const ReferenceRule reference(start);
    UpdateRule begun = rule;
    ReferenceRule also = reference;
    Audit audit(start.mode);
    const Decided decided = begun.begin();
    EXPECT_EQ(decided, also.begin());
    audit.decided(decided, begun);
    visit(begun, also, audit, "", 0);
  }
  int64_t orders() const { return orders_; }
  // The updates of every order, as text.
  const std::set<std::string>& histories() const { return histories_; }

 private:
  void visit(const UpdateRule& rule, const ReferenceRule& reference, const Audit& audit,
             const std::string& history, int inputs) {
    // Nobody waits for ever.
    ASSERT_TRUE(!reference.computing().empty() || reference.open_window() >= 0);
    if (inputs == depth_) {
      ++orders_;
      histories_.insert(history);
      return;
    }
    for (const auto& [replica, release] : reference.computing()) {
      UpdateRule next = rule;
      ReferenceRule next_reference = reference;
      Audit next_audit = audit;
      const auto decided = next.offer(release.offer);
      ASSERT_TRUE(decided.ok()) << decided.error().message;
      ASSERT_EQ(decided.value(), next_reference.offer(release.offer));
      next_audit.offered(release.offer);
      next_audit.decided(decided.value(), next);
      visit(next, next_reference, next_audit, history + updates_in(decided.value()), inputs + 1);
    }
    if (reference.open_window() < 0) return;
    UpdateRule next = rule;
    ReferenceRule next_reference = reference;
    Audit next_audit = audit;
    const Decided decided = next.close(reference.open_window());
    ASSERT_EQ(decided, next_reference.close(reference.open_window()));
    next_audit.decided(decided, next);
    visit(next, next_reference, next_audit, history + updates_in(decided), inputs + 1);
  }

  static std::string updates_in(const Decided& decided) {
    std::string text;
    for (const Update& update : decided.updates) text += to_text(update) + "\n";
    return text;
  }

  RuleStart start_;
  int depth_;
  int64_t orders_ = 0;
  std::set<std::string> histories_;
};

TEST(UpdateRule, AllSmallOrders) {
  int64_t orders = 0;
  for (const std::string mode : {"synchronous",
                                 "asynchronous",
                                 "x:1",
                                 "x:2",
                                 "x:3",
                                 "grace:1:1ms",
                                 "grace:2:1ms",
                                 "groups:0,1/2",
                                 "groups:0,1,2",
                                 "ring:1:0,0,0",
                                 "ring:2:0,1,0",
                                 "backup:1",
                                 "backup:2",
                                 "rebalanced:2,3,4",
                                 "bounded:0",
                                 "bounded:1",
                                 "x:2+bounded:0",
                                 "x:2+bounded:1",
                                 "grace:2:1ms+bounded:0",
                                 "groups:0,1/2+bounded:0",
                                 "ring:1:0,0,0+bounded:1",
                                 "backup:2+bounded:1",
                                 "asynchronous+local:3",
                                 "backup:1+bounded:0"}) {
    SCOPED_TRACE(mode);
    orders += AllOrders(start_of(mode, 3, 3), 7).orders();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  for (const std::string mode : {"x:2", "x:3+bounded:0", "groups:0,3/1,2+bounded:0",
                                 "ring:2:0,1,0,1+bounded:0", "backup:2", "grace:2:1ms"}) {
    SCOPED_TRACE(mode);
    orders += AllOrders(start_of(mode, 4, 1), 6).orders();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  RecordProperty("orders", static_cast<int>(orders));
  EXPECT_GT(orders, 10'000);
}

// Where a mode waits for all, the order in which they come changes nothing.
TEST(UpdateRule, OrdersThatDoNotMatter) {
  for (const std::string mode : {"synchronous", "rebalanced:2,3,1", "x:3", "groups:0,1,2",
                                 "grace:3:1ms", "ring:3:0,1,2", "synchronous+local:5"}) {
    SCOPED_TRACE(mode);
    EXPECT_EQ(AllOrders(start_of(mode, 3, 2), 6).histories().size(), 1u);
  }
  // The order does matter to others.
  EXPECT_GT(AllOrders(start_of("x:2", 3, 2), 6).histories().size(), 10u);
}

// ---- random histories ------------------------------------------------------------------------

struct History {
  explicit History(uint64_t seed)
      : random(seed),
        replicas(static_cast<int32_t>(2 + random.below(6))),
        micros(1 + random.below(5)),
        start{random_mode(random, replicas, micros), replicas, micros, {random.below(100)}, {}},
        rule(rule_of(start)),
        reference(start),
        audit(start.mode) {
    const Decided decided = rule.begin();
    EXPECT_EQ(decided, reference.begin());
    audit.decided(decided, rule);
  }

  std::set<int32_t> live() const {
    std::set<int32_t> found;
    for (int32_t i = 0; i < replicas; ++i) {
      if (reference.lost().count(i) == 0) found.insert(i);
    }
    return found;
  }

  void compare(const Result<Decided>& decided, const Decided& expected, const std::string& input) {
    log += input + "\n";
    ASSERT_TRUE(decided.ok()) << log << decided.error().message;
    ASSERT_EQ(text_of(decided.value()), text_of(expected)) << log;
    ASSERT_EQ(decided.value(), expected) << log;
    log += text_of(expected);
    audit.decided(expected, rule);
    ASSERT_TRUE(live().empty() || !reference.computing().empty() || reference.open_window() >= 0)
        << log << "everybody waits";
  }

  void step() {
    const int64_t choice = random.below(100);
    if (choice < 2) {
      const SyncMode mode = random_mode(random, replicas, micros);
      audit.changed(mode, live());
      compare(rule.change(mode), reference.change(mode), cat("mode ", to_text(mode)));
    } else if (const std::set<int32_t> alive = live(); choice < 4 && !alive.empty()) {
      auto one = alive.begin();
      std::advance(one, random.below(std::ssize(alive)));
      const int32_t replica = *one;
      audit.lost(replica);
      compare(rule.lose({replica}), reference.lose(replica), cat("lose ", replica));
    } else if (choice < 7 && !reference.lost().empty()) {
      const int32_t replica = *reference.lost().begin();
      audit.joined(replica, live());
      const Iteration iteration{1'000'000 * ++joins};  // apart from all others, for the audit
      compare(rule.join({replica}, iteration), reference.join(replica, iteration),
              cat("join ", replica));
    } else if (choice < 15 && reference.open_window() >= 0) {
      const int64_t number = reference.open_window() - random.below(2);  // or one that is over
      compare(rule.close(number), reference.close(number), cat("close ", number));
    } else if (!reference.computing().empty()) {
      auto one = reference.computing().begin();
      std::advance(one, random.below(std::ssize(reference.computing())));
      const Offer offer = one->second.offer;
      refuse_wrong_offers(offer);
      audit.offered(offer);
      compare(rule.offer(offer), reference.offer(offer), cat("offer ", offer.replica));
    }
  }

  // What nobody may offer changes nothing.
  void refuse_wrong_offers(Offer offer) {
    const UpdateRule before = rule;
    switch (random.below(5)) {
      case 0:
        offer.iteration.value += random.below(2) == 0 ? 1 : -1;
        break;
      case 1:
        offer.version.value += random.below(2) == 0 ? 1 : -1;
        break;
      case 2:
        offer.mass.micros += 1;
        break;
      case 3:
        offer.replica.value = replicas;
        break;
      default:
        offer.replica.value = static_cast<int32_t>(random.below(replicas));
        if (reference.computing().count(offer.replica.value) > 0) return;
    }
    EXPECT_FALSE(rule.offer(offer).ok()) << log;
    EXPECT_EQ(rule, before);
  }

  Random random;
  int32_t replicas;
  int64_t micros;
  RuleStart start;
  UpdateRule rule;
  ReferenceRule reference;
  Audit audit;
  int64_t joins = 0;
  std::string log;
};

TEST(UpdateRule, RandomHistories) {
  int64_t updates = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    History history(seed);
    for (int i = 0; i < 150; ++i) {
      history.step();
      if (testing::Test::HasFailure()) return;
    }
    updates += history.rule.version().value - history.start.version.value;
  }
  EXPECT_GT(updates, 5'000);
}

// ---- where the mass is -------------------------------------------------------------------------

// Counts from decisions alone, apart from the rule's own sums.
struct Ledger {
  std::map<int32_t, Release> computing, waiting;
  std::map<int32_t, Iteration> unapplied;  // by replica: behind its last iteration in an update
  Mass offered, applied, late, lost;
  int64_t window = -1;

  void take(const Decided& decided) {
    for (const Dropped& of : decided.dropped) {
      (of.reason == DropReason::Stale ? late : lost) += of.offer.mass;
      EXPECT_EQ(waiting.erase(of.offer.replica.value), 1u);
    }
    for (const Update& update : decided.updates) {
      applied += mass_of(update);
      for (const Offer& member : update.members) {
        const auto found = waiting.find(member.replica.value);
        ASSERT_NE(found, waiting.end());
        EXPECT_EQ(found->second.offer, member);
        unapplied[member.replica.value] = member.iteration + found->second.local_steps;
        waiting.erase(found);
      }
    }
    for (const Release& of : decided.released) computing[of.offer.replica.value] = of;
    if (decided.window) window = decided.window->number;
  }
  Mass waits() const {
    Mass mass;
    for (const auto& [replica, release] : waiting) mass += release.offer.mass;
    return mass;
  }
};

// One random input: a change of mode (often into backup), a loss, a join, the end of a window, or
// an offer.
void random_input(Random& random, UpdateRule& rule, Ledger& ledger, std::set<int32_t>& gone,
                  int32_t replicas, int64_t micros) {
  const int64_t choice = random.below(100);
  const auto one = static_cast<int32_t>(random.below(replicas));
  Result<Decided> decided = Decided{};
  if (choice < 12) {
    SyncMode mode = random_mode(random, replicas, micros);
    if (choice < 6)
      mode = sync_mode_from_text(cat("backup:", 1 + random.below(replicas - 1))).value();
    decided = rule.change(mode);
    ASSERT_TRUE(decided.ok()) << decided.error().message;
    EXPECT_TRUE(decided.value().dropped.empty()) << "a change of mode drops nothing";
  } else if (choice < 16 && gone.insert(one).second) {
    ledger.computing.erase(one);
    decided = rule.lose({one});
  } else if (choice < 24 && gone.count(one) > 0) {
    const Iteration next = ledger.unapplied[one];
    if (next > Iteration{}) {
      const UpdateRule before = rule;
      EXPECT_FALSE(rule.join({one}, {random.below(next.value)}).ok());
      EXPECT_EQ(rule, before);
    }
    gone.erase(one);
    decided = rule.join({one}, next + random.below(3));
  } else if (choice < 32) {
    decided = rule.close(ledger.window);
  } else if (const auto found = ledger.computing.find(one); found != ledger.computing.end()) {
    const Release release = found->second;
    ledger.computing.erase(found);
    ledger.waiting[one] = release;
    ledger.offered += release.offer.mass;
    decided = rule.offer(release.offer);
  }
  ASSERT_TRUE(decided.ok()) << decided.error().message;
  ledger.take(decided.value());
}

// Offered mass is applied, waits, or is named as dropped: as late, in the mode with backup workers,
// or as lost with its replica.
TEST(UpdateRule, MassIsAppliedWaitsOrIsNamed) {
  Mass late, lost, waited;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const auto replicas = static_cast<int32_t>(2 + random.below(6));
    const int64_t micros = 1 + random.below(5);
    UpdateRule rule = rule_of({random_mode(random, replicas, micros), replicas, micros, {}, {}});
    Ledger ledger;
    std::set<int32_t> gone;
    ledger.take(rule.begin());
    for (int i = 0; i < 300; ++i) {
      random_input(random, rule, ledger, gone, replicas, micros);
      if (testing::Test::HasFailure()) return;
      ASSERT_EQ(ledger.offered, ledger.applied + ledger.waits() + ledger.late + ledger.lost);
      ASSERT_EQ(ledger.offered, rule.offered_mass());
      ASSERT_EQ(ledger.waits(), rule.waiting_mass());
      waited += ledger.waits();
    }
    late += ledger.late;
    lost += ledger.lost;
  }
  EXPECT_GT(late, Mass{100});
  EXPECT_GT(lost, Mass{100});
  EXPECT_GT(waited, Mass{1000});
}

TEST(UpdateRule, AnAppliedIterationDoesNotJoin) {
  UpdateRule rule = rule_of({SyncMode{}, 2, 1, {}, {{5}, {5}}});
  const Decided begun = rule.begin();
  for (const Release& of : begun.released) ASSERT_TRUE(rule.offer(of.offer).ok());
  ASSERT_TRUE(rule.lose({1}).ok());
  const auto joined = rule.join({1}, {5});
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().message,
            "replica 1 cannot join with iteration 5, which is applied already: expected one from 6 "
            "on");
  EXPECT_TRUE(rule.join({1}, {6}).ok());
}

// ---- pairs of modes that are the same ----------------------------------------------------------

// Modes that must decide the same, apart from windows.
TEST(UpdateRule, EqualModes) {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"synchronous", "x:4"},
      {"synchronous", "grace:4:1ms"},
      {"synchronous", "groups:0,1,2,3"},
      {"synchronous", "ring:4:0,1,2,3"},
      {"synchronous", "rebalanced:3,3,3,3"},
      {"synchronous", "synchronous+bounded:0"},
      {"synchronous", "asynchronous+bounded:0"},  // not equal: see below
      {"asynchronous", "x:1"},
      {"asynchronous", "groups:0/1/2/3"},
      {"asynchronous", "bounded:1000"},
      {"asynchronous", "ring:1:0,0,0,0"},  // not equal
      {"x:2", "x:2+bounded:1000"}};
  for (const auto& [first, second] : pairs) {
    UpdateRule left = rule_of(start_of(first, 4, 3)), right = rule_of(start_of(second, 4, 3));
    std::map<int32_t, Offer> computing;
    const auto note = [&](const Decided& decided) {
      for (const Release& of : decided.released) computing[of.offer.replica.value] = of.offer;
    };
    EXPECT_EQ(left.begin(), right.begin());
    note(rule_of(start_of(first, 4, 3)).begin());
    Random random(7);
    bool equal = true;
    for (int i = 0; i < 200 && equal; ++i) {
      auto one = computing.begin();
      std::advance(one, random.below(std::ssize(computing)));
      const Offer offer = one->second;
      computing.erase(one);
      const auto decided = left.offer(offer);
      const auto other = right.offer(offer);
      ASSERT_TRUE(decided.ok());
      equal = other.ok() && decided.value() == other.value();
      note(decided.value());
    }
    const bool differs = second == "asynchronous+bounded:0" || second == "ring:1:0,0,0,0";
    EXPECT_EQ(equal, !differs) << first << " and " << second;
  }
}

// ---- what is decided, as text ------------------------------------------------------------------

// Plays lines: "replicas R micros M mode MODE", "offer R", "close", "lose R", "join R I", "mode
// MODE". The offers are those that the replicas were released for.
std::string played(const std::string& script) {
  std::optional<UpdateRule> rule;
  std::map<int32_t, Offer> computing;
  int64_t window = -1;
  std::string text;
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) {
    text += line + "\n";
    std::istringstream words(line);
    std::string word, mode;
    words >> word;
    Result<Decided> decided = Decided{};
    int32_t replica = 0;
    if (word == "replicas") {
      RuleStart start;
      words >> start.replicas >> word >> start.micros >> word >> mode;
      start.mode = sync_mode_from_text(mode).value();
      rule = rule_of(start);
      computing.clear();
      decided = rule->begin();
    } else if (word == "offer") {
      words >> replica;
      decided = rule->offer(computing[replica]);
    } else if (word == "close") {
      decided = rule->close(window);
    } else if (word == "mode") {
      words >> mode;
      decided = rule->change(sync_mode_from_text(mode).value());
    } else if (word == "lose") {
      words >> replica;
      decided = rule->lose({replica});
    } else if (word == "join") {
      Iteration iteration;
      words >> replica >> iteration.value;
      decided = rule->join({replica}, iteration);
    }
    if (!decided.ok()) {
      text += "  refused: " + decided.error().message + "\n";
      continue;
    }
    for (const Release& of : decided.value().released) {
      computing[of.offer.replica.value] = of.offer;
    }
    if (decided.value().window) window = decided.value().window->number;
    text += text_of(decided.value());
  }
  return text;
}

TEST(UpdateRule, Golden) {
  std::ifstream file(source_tree() + "/tests/ir/golden/update_rule.script");
  ASSERT_TRUE(file);
  std::stringstream script;
  script << file.rdbuf();
  expect_golden("ir/golden/update_rule.txt", played(script.str()));
}

TEST(UpdateRule, Refusals) {
  const auto refusal = [](const RuleStart& start) {
    const auto rule = UpdateRule::make(start);
    return rule.ok() ? std::string() : rule.error().message;
  };
  EXPECT_EQ(refusal(start_of("ring:2", 4)),
            "sync mode ring:2: expected its groups, parents, shares or window, found none: form it "
            "from the replicas' times first");
  EXPECT_EQ(refusal(start_of("rebalanced:4,4,5", 3)),
            "sync mode rebalanced: expected shares that add up to 12 micro-batches, those of 3 "
            "replicas, found 13");
  EXPECT_EQ(refusal(start_of("x:4", 3)),
            "sync mode x:4: expected a count from 1 to 3 with 3 replicas, found 4");
  RuleStart start = start_of("x:2", 3);
  start.micros = 0;
  EXPECT_EQ(refusal(start), "expected 1 to 1000000 micro-batches per replica, found 0");
  start = start_of("x:2", 3);
  start.iterations = {Iteration{1}};
  EXPECT_EQ(refusal(start), "expected the iterations of 3 replicas, found 1");
}

}  // namespace
}  // namespace tenuto
