// A keeper of a range of the parameters: the server shard, or its standby.
//
// Idea:  both do the same. They get the same records and gradients and take the same updates in
//        order of version, so a standby can take over at any moment. Only the first keeper of a
//        range is asked for parameters. Gradients are sent to both by the parts, not passed on by
//        the server shard, because its links carry the most.
// Limit: replicas read the version that they were released for, and slow ones may come late. The
//        parameters of such a version are kept until all have read them. While so many versions
//        are kept as ShardStart::kept_versions, a keeper takes no update that would need one more.
//        This ends, since those that wait for an old version never wait for a newer one.
// Saves: the state of a version that the record says is to be written down (Record::save) is made
//        when the range is at exactly that version, so those of all ranges belong together. It is
//        given out once the version is committed: before, another decider could make another
//        update of it. Only the first keeper of a range makes it. If that one is lost, its
//        successor makes it, if it has not gone on yet. Otherwise a range of that version is never
//        written down, and the next one is complete again.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sync/servers/message.h"

namespace tenuto::servers {

// Versions of a range that are kept for replicas that read late, besides the newest one.
inline constexpr int64_t kKeptVersions = 4;

// The parameters of a range with the optimizer's state, at some version.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  // Changes the parameters by an update.
  //
  // Shapes:   `gradients` has one for each work of the update, in their order; each has
  //           size_of(range) bytes
  // Requires: the mass of the update is above 0
  virtual void apply(const DecidedUpdate& update, std::span<const Payload> gradients) = 0;
  // The parameters, as replicas read them: size_of(range).
  virtual Payload parameters() const = 0;
  // Everything, for another keeper.
  virtual Payload save() const = 0;
  // Becomes what save() of another keeper has given.
  //
  // Errors: Corrupt/Call  this is no such payload
  virtual Status load(const Payload& state) = 0;
};

// What a keeper begins with.
struct ShardStart {
  PeerId self;
  ElementRange range;
  bool is_filled = true;                  // false: another keeper of the range sends its state
  Version version;                        // of the state, if it is filled
  int64_t kept_versions = kKeptVersions;  // at least 1
  Tally tally = {};                       // to `version`, if it is filled
};

// What a range was at a version that is to be written down.
struct SavedState {
  Version version;
  Mass mass;      // that was applied to this version
  Payload state;  // ParameterStore::save()
  // The record whose version is this one; none = the keeper was not sent it, as when the decider
  // was lost meanwhile.
  std::optional<Record> record;
  Tally tally = {};  // to this version
};

// The automaton: messages in, messages out.
class ServerShard {
 public:
  // Takes over the store, which has the state of the version that it begins with, or any if it is
  // not filled.
  ServerShard(const ShardStart& start, std::unique_ptr<ParameterStore> store);

  // Takes a message in. One of another epoch, or of a peer that is no member, is refused: it
  // changes nothing but refused().
  //
  // Errors: Invalid/Call    a message that a keeper does not get; other members than it belongs
  //                         to; a version that is not kept; a wrong version or size;
  //                         an update with an offer without mass, or with too much of it, or
  //                         without a work for each offer; an outer step out of range
  //         Exhausted/Call  more gradients than kGradientsPerReplica
  //         those of ParameterStore::load
  Status handle(const Message& message);

  // What is to be sent, in this order. Empty afterwards.
  std::vector<Message> take_messages();

  // The oldest state of a committed version that is to be written to a checkpoint and was not taken
  // yet; none = there is none.
  // `all_committed`: the caller knows that all versions so far are, as at the end of a run.
  std::optional<SavedState> take_saved(bool all_committed = false);

  // What it keeps.
  const ElementRange& range() const { return start_.range; }
  // The version that its range is at.
  Version version() const { return version_; }
  // What it has applied to this version.
  const Tally& tally() const { return tally_; }
  // It has its range.
  bool is_filled() const { return filled_; }
  // It has heard that this version, or a later one, is to be written down.
  bool knows_save(Version save) const { return record_.save >= save; }
  // Its range.
  const ParameterStore& store() const { return *store_; }
  // Gradients and old versions that it has now.
  int64_t gradients() const { return std::ssize(gradients_); }
  int64_t kept_versions() const { return std::ssize(kept_); }
  // Messages that were refused.
  int64_t refused() const { return refused_; }

 private:
  struct Arrived {
    Version version;
    Payload payload;
  };

  Status enter(const Header& header, const Membership& membership);
  Status take_record(const Header& header, const Record& record);
  Status take_gradient(const Header& header, const Gradient& gradient);
  Status check_size(const char* what, PeerId from, const Payload& payload) const;
  Status take_fill(const Header& header, const Fill& fill);
  Status answer(PeerId reader, Version version);
  void fill_others();
  bool is_over(int64_t serial) const;
  bool is_read(Version version) const;
  void prune();
  void note_save();
  void make_saved();
  Status proceed();
  Result<bool> apply_next();
  const Payload& newest();
  template <class Body>
  void send(PeerId to, Version version, Body body);

  ShardStart start_;
  std::unique_ptr<ParameterStore> store_;
  Membership membership_;
  std::vector<PeerId> keepers_;  // of its range
  bool filled_;
  bool has_record_ = false;  // of this epoch
  Version version_;
  Tally tally_;  // to version_
  Record record_;
  std::map<int64_t, Arrived> gradients_;  // by serial
  std::map<Version, Payload> kept_;
  Payload newest_;                     // of version_; none = nobody has read it yet
  std::map<PeerId, Version> waiting_;  // reads of versions that are not here yet, one of each part
  Version noted_;                      // the newest version of due_ so far; 0 = none
  std::map<Version, SavedState> due_;  // to be made; without the state
  std::deque<SavedState> saved_;       // made and not taken, by version
  std::vector<Message> messages_;
  int64_t refused_ = 0;
};

}  // namespace tenuto::servers
