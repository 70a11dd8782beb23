// The check that every wire makes before the first message, and the errors that all wires share.
#pragma once

#include "base/id.h"
#include "base/mailbox.h"
#include "base/result.h"
#include "transport/transport.h"

namespace tenuto {

// Checks that `theirs` belongs to the same run as `mine`. `where` names the other side in the error
// message, which never contains a token.
//
// Errors: Invalid/Link: another wire version, job, token or epoch, checked in this order.
Status verify_hello(const Hello& mine, const Hello& theirs, const std::string& where);

// The errors that all wires give in the same words.
Error token_error(const std::string& where, const std::string& job);
Error size_error(WorkerId from, WorkerId to, const Tag& tag, Bytes sent, Bytes posted);
Error lost_error(WorkerId peer, const std::string& why);
Error dropped_error(WorkerId peer);
Error twice_error(const char* call, WorkerId peer, const Tag& tag);
Error closed_error(WorkerId self);

// A tag as text for people.
std::string to_text(const Tag& tag);

// The report of a received message. Its finish is the stamp's virtual arrival, or `now` if there is
// none.
Done received(Ticket ticket, WorkerId from, const Stamp& stamp, Duration now);

}  // namespace tenuto
