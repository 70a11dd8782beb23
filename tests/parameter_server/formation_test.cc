// The parts of a replica of two stages come together, again and again.
#include "parameter_server/formation.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "parameter_server/forming_part.h"

namespace tenuto::servers {
namespace {

constexpr ReplicaId kOther{0}, kOwn{1};

// Members with a replica of parts 4 and 5, and with one of these parts. Peer i lives in process
// 10 + i.
PlacedMembers members_with(int64_t epoch, std::vector<PeerId> own, PeerId decider = {0}) {
  PlacedMembers placed;
  placed.members = {epoch,
                    decider,
                    {{{{0}, 0, 6}, {{1}, {2}}}, {{{1}, 0, 4}, {{3}}}},
                    {{{4}, {5}}, std::move(own)}};
  for (int32_t i = 0; i < 10; ++i) placed.places[PeerId{i}] = WorkerId{10 + i};
  return placed;
}

// ---- formations ------------------------------------------------------------------------------

TEST(Formation, StaysWhileItsPartsAndTheDeciderStay) {
  const Formation first = formation_of(members_with(3, {{6}, {7}}), kOwn, {});
  EXPECT_EQ(first.epoch, 3);
  EXPECT_EQ(first.processes, (std::vector<WorkerId>{{16}, {17}}));
  EXPECT_EQ(formation_of(members_with(4, {{6}, {7}}), kOwn, first), first);
  EXPECT_EQ(formation_of(members_with(5, {{6}, {7}}, {8}), kOwn, first).epoch, 5);
  EXPECT_EQ(formation_of(members_with(5, {{6}, {9}}), kOwn, first).epoch, 5);
  EXPECT_EQ(formation_of(members_with(5, {}), kOwn, first), Formation{});
  EXPECT_EQ(formation_of(members_with(6, {{6}, {7}}), kOwn, {}).epoch, 6);
  EXPECT_EQ(formation_of(members_with(3, {}), kOther, {}).processes,
            (std::vector<WorkerId>{{14}, {15}}));
}

// "16 3: a b" tells process 16 the addresses for the formation of epoch 3.
std::vector<std::string> texts_of(const std::vector<Formations::Task>& tasks) {
  std::vector<std::string> texts;
  for (const Formations::Task& task : tasks) {
    std::string text = cat(task.process, " ", task.command.epoch, ":");
    for (const std::string& address : task.command.addresses) text += " " + address;
    texts.push_back(text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Formation, AddressesAreGivenOnceAllAreKnown) {
  Formations formations;
  formations.set_members(members_with(3, {{6}, {7}}));
  formations.set_address({17}, {3, "b"});
  EXPECT_EQ(texts_of(formations.take_tasks()), Texts{});
  formations.set_address({16}, {3, "a"});
  EXPECT_EQ(texts_of(formations.take_tasks()), (Texts{"16 3: a b", "17 3: a b"}));
  EXPECT_EQ(texts_of(formations.take_tasks()), Texts{});
  // Members that change neither of the replicas.
  formations.set_members(members_with(4, {{6}, {7}}));
  formations.set_address({16}, {3, "a"});
  EXPECT_EQ(texts_of(formations.take_tasks()), Texts{});
}

TEST(Formation, AddressesOfAnEarlierOneAreForgotten) {
  Formations formations;
  formations.set_members(members_with(3, {{6}, {7}}));
  formations.set_address({16}, {3, "a"});
  formations.set_members(members_with(4, {}));
  formations.set_address({17}, {3, "b"});
  EXPECT_EQ(texts_of(formations.take_tasks()), Texts{});
  formations.set_members(members_with(5, {{6}, {9}}));
  formations.set_address({16}, {3, "late"});
  formations.set_address({19}, {5, "d"});
  formations.set_address({77}, {5, "a stranger"});
  EXPECT_EQ(texts_of(formations.take_tasks()), Texts{});
  formations.set_address({16}, {5, "c"});
  EXPECT_EQ(texts_of(formations.take_tasks()), (Texts{"16 5: c d", "19 5: c d"}));
}

// ---- a part ----------------------------------------------------------------------------------

// A wire that is connected when the test says so.
class PlayedWire : public PartWire {
 public:
  Result<std::string> listen(int64_t epoch) override {
    if (is_broken) return invalid("the device is in use");
    return cat("wire:", epoch);
  }
  Status end() override {
    ++ends;
    return ok();
  }
  Status connect(const std::vector<std::string>& addresses) override {
    connected_to = addresses;
    return ok();
  }
  Result<bool> go_on() override { return is_connected; }
  std::vector<StageId> take_lost() override { return std::exchange(lost, {}); }

  bool is_broken = false, is_connected = false;
  int ends = 0;
  std::vector<std::string> connected_to;
  std::vector<StageId> lost;
};

// "forming 3 wire:3", "placed 3", "lost 17".
Texts texts_of(const std::vector<HostReport>& reports) {
  Texts texts;
  for (const HostReport& report : reports) {
    if (const auto* forming = std::get_if<FormingReport>(&report)) {
      texts.push_back(cat("forming ", forming->epoch, " ", forming->address));
    } else if (const auto* placed = std::get_if<PlacedReport>(&report)) {
      texts.push_back(cat("placed ", placed->epoch));
    } else if (const auto* lost = std::get_if<LostReport>(&report)) {
      texts.push_back(cat("lost ", lost->process));
    } else {
      texts.push_back(cat("another report: ", report.index()));
    }
  }
  return texts;
}

struct PlayedPart {
  // The reports after these members.
  Texts take(const PlacedMembers& placed) {
    const Status taken = part.take(placed);
    EXPECT_TRUE(taken.ok()) << (taken.ok() ? "" : taken.error().message);
    return texts_of(part.take_reports());
  }
  Texts advance(Duration now) {
    const Status advanced = part.advance(now);
    EXPECT_TRUE(advanced.ok()) << (advanced.ok() ? "" : advanced.error().message);
    return texts_of(part.take_reports());
  }
  bool may_begin(int64_t serial) const {
    Work work;
    work.serial = serial;
    return part.may_begin(work);
  }
  // It is connected to the others in the formation of this epoch.
  void form(int64_t epoch) {
    EXPECT_TRUE(part.take(FormCommand{epoch, {"a", "b"}}).ok());
    wire.is_connected = true;
    advance({});
    wire.is_connected = false;
  }

  PlayedWire wire;
  FormingPart part{kOwn, &wire};
};

TEST(FormingPart, IsPlacedWhenItIsConnected) {
  PlayedPart played;
  EXPECT_EQ(played.take(members_with(3, {{6}, {7}})), Texts{"forming 3 wire:3"});
  EXPECT_EQ(played.advance({}), Texts{});
  ASSERT_TRUE(played.part.take(FormCommand{3, {"a", "b"}}).ok());
  EXPECT_EQ(played.wire.connected_to, (Texts{"a", "b"}));
  EXPECT_EQ(played.advance({}), Texts{});
  EXPECT_FALSE(played.may_begin(serials_before(3) + 1));
  played.wire.is_connected = true;
  EXPECT_EQ(played.advance({}), Texts{"placed 3"});
  EXPECT_EQ(played.advance({}), Texts{});
  EXPECT_TRUE(played.may_begin(serials_before(3) + 1));
  // Other members of the same formation are placed at once.
  EXPECT_EQ(played.take(members_with(4, {{6}, {7}})), Texts{"placed 4"});
  EXPECT_TRUE(played.may_begin(serials_before(3) + 9));
}

TEST(FormingPart, NewerMembersEndWhatIsUnderWay) {
  PlayedPart played;
  played.take(members_with(3, {{6}, {7}}));
  EXPECT_EQ(played.take(members_with(4, {})), Texts{"placed 4"});
  EXPECT_EQ(played.wire.ends, 1);
  // The command of the formation that is over.
  ASSERT_TRUE(played.part.take(FormCommand{3, {"a", "b"}}).ok());
  EXPECT_TRUE(played.wire.connected_to.empty());
  EXPECT_EQ(played.take(members_with(5, {{6}, {9}})), Texts{"forming 5 wire:5"});
  ASSERT_TRUE(played.part.take(FormCommand{5, {"c", "d"}}).ok());
  EXPECT_EQ(played.take(members_with(6, {{6}, {9}}, {8})), Texts{"forming 6 wire:6"});
  EXPECT_EQ(played.wire.ends, 1) << "the wire itself ends the one before";
  played.form(6);
  EXPECT_TRUE(played.may_begin(serials_before(6) + 1));
}

// After a change of the decider a part may still have a work of the one before, which the other
// parts perhaps never got.
TEST(FormingPart, WorksOfAnEarlierFormationAreNotBegun) {
  PlayedPart played;
  played.take(members_with(3, {{6}, {7}}));
  played.form(3);
  EXPECT_TRUE(played.may_begin(serials_before(3) + 2));
  played.take(members_with(4, {{6}, {7}}, {8}));
  EXPECT_FALSE(played.may_begin(serials_before(3) + 2));
  played.form(4);
  EXPECT_FALSE(played.may_begin(serials_before(3) + 2));
  EXPECT_TRUE(played.may_begin(serials_before(4) + 1));
}

TEST(FormingPart, ALostPartIsReportedIfNoOtherFormationComes) {
  PlayedPart played;
  played.take(members_with(3, {{6}, {7}}));
  played.form(3);
  const Duration begun = std::chrono::seconds(7);
  played.wire.lost = {{1}};
  EXPECT_EQ(played.advance(begun), Texts{});
  EXPECT_EQ(played.advance(begun + kAnotherFormation - Duration{1}), Texts{});
  EXPECT_EQ(played.advance(begun + kAnotherFormation), Texts{"lost 17"});
  EXPECT_EQ(played.advance(begun + 2 * kAnotherFormation), Texts{});
  played.wire.lost = {{1}};
  played.advance(begun);
  EXPECT_EQ(played.take(members_with(4, {})), Texts{"placed 4"});
  EXPECT_EQ(played.advance(begun + kAnotherFormation), Texts{});
}

TEST(FormingPart, AFailureOfTheWireIsOneOfThePart) {
  PlayedPart played;
  played.wire.is_broken = true;
  const Status taken = played.part.take(members_with(3, {{6}, {7}}));
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().message, "the device is in use");
  FormingPart stranger({2}, &played.wire);
  EXPECT_FALSE(stranger.take(members_with(3, {{6}, {7}})).ok());
}

TEST(FormingPart, OneStageNeedsNoOthers) {
  FormingPart part({}, nullptr);
  ASSERT_TRUE(part.take(members_with(3, {{6}, {7}})).ok());
  EXPECT_EQ(texts_of(part.take_reports()), Texts{"placed 3"});
  ASSERT_TRUE(part.advance({}).ok());
  EXPECT_EQ(texts_of(part.take_reports()), Texts{});
  EXPECT_TRUE(part.may_begin(Work{}));
}

}  // namespace
}  // namespace tenuto::servers
