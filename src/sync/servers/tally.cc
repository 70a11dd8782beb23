#include "sync/servers/tally.h"

#include "base/random.h"
#include "base/text.h"
#include "sync/servers/message.h"

namespace tenuto::servers {

namespace {

uint64_t word(int64_t number) { return static_cast<uint64_t>(number); }

std::string text_of(Version version, const Tally& tally) {
  return cat("version ", version.value, " after ", tally.updates, " updates of ",
             tally.applied.micros, " micro-batches with digest ", tally.digest);
}

Error wrong(const std::string& sentence) {
  return {Code::Corrupt, Reach::Job,
          cat("audit: ", sentence, ": resume from a checkpoint that was made before")};
}

}  // namespace

uint64_t digest_after(uint64_t digest, const DecidedUpdate& update) {
  digest = mix(digest, word(update.update.number), word(update.update.version.value));
  for (const Work& work : update.works) {
    digest = mix(digest, word(work.serial), word(work.offer.replica.value),
                 word(work.offer.iteration.value));
    for (const MicroRange& range : work.micros) {
      digest = mix(digest, word(range.stream.value), word(range.begin), word(range.end));
    }
  }
  return digest;
}

void add(Tally& tally, const DecidedUpdate& update) {
  ++tally.updates;
  tally.applied += mass_of(update.update);
  tally.digest = digest_after(tally.digest, update);
}

Tally tally_of(const Record& record) {
  return {record.updates_decided, record.applied, record.digest};
}

Balance balance_of(const Record& record) {
  Balance balance;
  balance.version = record.version;
  balance.tally = tally_of(record);
  balance.dropped = record.dropped;
  for (const Stream& stream : record.streams) balance.given += Mass{stream.fresh};
  for (const OpenWork& open : record.open) balance.in_work += open.work.offer.mass;
  for (const MicroRange& range : record.returned) {
    balance.returned += Mass{range.end - range.begin};
  }
  return balance;
}

Status check_balance(const Balance& balance) {
  const Mass applied = balance.tally.applied;
  if (balance.given == applied + balance.dropped + balance.in_work + balance.returned) return ok();
  return wrong(cat("at version ", balance.version.value, " expected ", balance.given.micros,
                   " micro-batches that were given out to be in updates, dropped, in work or ",
                   "returned, found ", applied.micros, ", ", balance.dropped.micros, ", ",
                   balance.in_work.micros, " and ", balance.returned.micros));
}

Status check_tallies(std::span<const KeptTally> kept, const std::optional<Balance>& decided) {
  if (!decided) return wrong("expected a decider that says what it has decided, found none");
  if (kept.empty()) return wrong("expected keepers that say what they have applied, found none");
  for (const KeptTally& one : kept) {
    if (one.version == decided->version && one.tally == decided->tally) continue;
    return wrong(cat("expected ", text_of(decided->version, decided->tally),
                     ", as the decider has decided, found ", text_of(one.version, one.tally),
                     " at ", one.keeper));
  }
  return check_balance(*decided);
}

std::string audit_text(const Balance& decided, size_t keepers) {
  return cat(decided.tally.updates, " updates, ", decided.tally.applied.micros,
             " micro-batches applied, ", decided.dropped.micros, " dropped, the same at all ",
             keepers, " keepers");
}

}  // namespace tenuto::servers
