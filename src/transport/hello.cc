#include "transport/hello.h"

#include "base/text.h"

namespace tenuto {

namespace {

// Compares all bytes even after a difference, so that the time taken tells nothing about the token.
bool same_secret(const std::string& left, const std::string& right) {
  unsigned char difference = left.size() == right.size() ? 0 : 1;
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    difference |= static_cast<unsigned char>(left[i] ^ right[i]);
  }
  return difference == 0;
}

}  // namespace

Status verify_hello(const Hello& mine, const Hello& theirs, const std::string& where) {
  if (theirs.version != mine.version) {
    return Error{Code::Invalid, Reach::Link,
                 cat(where, " speaks wire version ", theirs.version, ", expected ", mine.version,
                     ": start every worker from the same build of tenuto")};
  }
  if (theirs.job != mine.job) {
    return Error{Code::Invalid, Reach::Link,
                 cat(where, " belongs to job '", theirs.job, "', expected '", mine.job,
                     "': check the address, because another run may be listening there")};
  }
  if (!same_secret(theirs.token, mine.token)) {
    return token_error(where, mine.job);
  }
  if (theirs.epoch != mine.epoch) {
    return Error{Code::Invalid, Reach::Link,
                 cat(where, " is of epoch ", theirs.epoch, ", expected ", mine.epoch,
                     ": the members of the run have changed, and one of the two does not know it "
                     "yet")};
  }
  return ok();
}

Error token_error(const std::string& where, const std::string& job) {
  return {
      Code::Invalid, Reach::Link,
      cat(where, " has a wrong token for job '", job, "': start it from the launcher of this run")};
}

std::string to_text(const Tag& tag) {
  return cat("epoch ", tag.epoch, " step ", tag.step, " name ", tag.name);
}

Error size_error(WorkerId from, WorkerId to, const Tag& tag, Bytes sent, Bytes posted) {
  return invalid(cat("worker ", from, " sends ", sent.count, " bytes to worker ", to, " (",
                     to_text(tag), "), which expects ", posted.count,
                     ": both ends must agree on the size"));
}

Error lost_error(WorkerId peer, const std::string& why) {
  return {Code::Disconnected, Reach::Worker, cat("worker ", peer, " is lost: ", why)};
}

Error dropped_error(WorkerId peer) {
  return {Code::Cancelled, Reach::Call, cat("the link with worker ", peer, " was dropped")};
}

Error twice_error(const char* call, WorkerId peer, const Tag& tag) {
  return invalid(cat("a ", call, " with worker ", peer, " under ", to_text(tag),
                     " is already under way: names must differ"));
}

Error closed_error(WorkerId self) {
  return {Code::Cancelled, Reach::Call, cat("the wire of worker ", self, " is closed")};
}

Done received(Ticket ticket, WorkerId from, const Stamp& stamp, Duration now) {
  Done done;
  done.ticket = ticket;
  done.peer = from;
  done.finish = stamp.arrival != Duration::zero() ? stamp.arrival : now;
  done.sent = stamp.sent;
  done.tally = stamp.tally;
  return done;
}

}  // namespace tenuto
