// The messages of server shards as bytes.
//
// A message is a *head* and its payloads. The head has all that is no payload, and the size of each
// payload; payloads are sent as they are, without a copy. Numbers are in the machine's byte order,
// as in all control messages (transport/bytes.h). A message has one form only: what is decoded and
// encoded again has the same bytes.
//
// The commands and reports of a run's host (parameter_server/host_message.h) are bytes of the same
// form. They have no payloads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "parameter_server/host_message.h"
#include "sync/servers/message.h"

namespace tenuto::servers {

// The longest head, in bytes. A record of 2,000 replicas that each have an open work and two more
// in updates fits, and with local steps one of 1,900 replicas.
inline constexpr int64_t kLargestHead = 1 << 20;

// A message as bytes.
struct EncodedMessage {
  std::vector<std::byte> head;
  std::vector<Payload> payloads;  // in the order in which decode() wants them; none is null
};

// The bytes of a message. A payload that is null becomes one of no bytes. The head may be longer
// than kLargestHead; whoever sends it has to look.
EncodedMessage encode(const Message& message);

// The sizes of the payloads that follow a head, in bytes, so that receives can be posted. No memory
// is taken for the payloads, and for the head at most a few times its bytes.
//
// Errors: Corrupt/Worker  these bytes are no head of a message, or more than kLargestHead
Result<std::vector<int64_t>> payload_sizes(std::span<const std::byte> head);

// The message of these bytes. Only their form is checked: whether a message makes sense is for the
// machine to say that takes it in.
//
// Errors: Corrupt/Worker  as payload_sizes; payloads of another number or of other sizes than the
//         head says
Result<Message> decode(std::span<const std::byte> head, std::vector<Payload> payloads);

// The bytes of a command. Texts are cut after kFrameText bytes (transport/bytes.h).
std::vector<std::byte> encode_command(const HostCommand& command);

// The bytes of a report, in the same way.
std::vector<std::byte> encode_report(const HostReport& report);

// The command of these bytes. Only their form is checked.
//
// Errors: Corrupt/Worker  these bytes are no command, or more than kLargestHead
Result<HostCommand> decode_command(std::span<const std::byte> bytes);

// The report of these bytes, in the same way.
//
// Errors: Corrupt/Worker  these bytes are no report, or more than kLargestHead
Result<HostReport> decode_report(std::span<const std::byte> bytes);

}  // namespace tenuto::servers
