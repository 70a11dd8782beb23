// The members of the plain values in messages of server shards, in the order of their bytes.
//
// Only parameter_server/message_bytes.cc includes this file, which was cut off from it for its
// length. The functions are in an unnamed namespace, as those of message_bytes.cc are: both
// overload one name.
#pragma once

#include <concepts>
#include <type_traits>

#include "ir/sync_mode.h"
#include "ir/update_rule.h"
#include "parameter_server/host_message.h"
#include "sync/servers/message.h"
#include "sync/servers/tally.h"

namespace tenuto::servers {

namespace {

// Each function names the members of a struct in the order of their bytes, for writing and for
// reading alike: `form` is a Writer or a Reader.
template <class Given, class Wanted>
concept Is = std::same_as<std::remove_const_t<Given>, Wanted>;

template <class Form, class Empty>
requires std::is_empty_v<Empty>
void members(Form&, Empty&) {}

template <class Form, Is<Mass> T>
void members(Form& form, T& mass) {
  form(mass.micros);
}

template <class Form, Is<ElementRange> T>
void members(Form& form, T& range) {
  form(range.stage, range.begin, range.end);
}

template <class Form, Is<MicroRange> T>
void members(Form& form, T& range) {
  form(range.stream, range.begin, range.end);
}

template <class Form, Is<Offer> T>
void members(Form& form, T& offer) {
  form(offer.replica, offer.iteration, offer.version, offer.mass);
}

template <class Form, Is<Update> T>
void members(Form& form, T& update) {
  form(update.number, update.version, update.members, update.parents);
}

template <class Form, Is<OuterStep> T>
void members(Form& form, T& outer) {
  form(outer.rate, outer.momentum);
}

template <class Form, Is<SyncMode> T>
void members(Form& form, T& mode) {
  form(mode.kind, mode.count, mode.window, mode.groups, mode.parents, mode.shares, mode.bound,
       mode.local_steps, mode.outer);
}

template <class Form, Is<ModeAlternative> T>
void members(Form& form, T& one) {
  form(one.mode, one.gradients_per_second, one.age, one.progress);
}

template <class Form, Is<ProcessorTimes> T>
void members(Form& form, T& times) {
  form(times.run_delay, times.cpu, times.pressure);
}

template <class Form, Is<SendingLimit> T>
void members(Form& form, T& limit) {
  form(limit.process, limit.bytes_per_second);
}

template <class Form, Is<LeaseCommand> T>
void members(Form& form, T& command) {
  form(command.may_leave, command.cores, command.sending, command.spared);
}

template <class Form, Is<SentBytes> T>
void members(Form& form, T& sent) {
  form(sent.to, sent.bytes);
}

template <class Form, Is<TrafficReport> T>
void members(Form& form, T& report) {
  form(report.sent);
}

template <class Form, Is<Tally> T>
void members(Form& form, T& tally) {
  form(tally.updates, tally.applied, tally.digest);
}

template <class Form, Is<Balance> T>
void members(Form& form, T& balance) {
  form(balance.version, balance.tally, balance.given, balance.dropped, balance.in_work,
       balance.returned);
}

}  // namespace

}  // namespace tenuto::servers
