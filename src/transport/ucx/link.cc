// The protocol of UcxEngine: which peers are accepted, what is granted, how links end. It calls UCX
// only to reject connections.
#include "base/clock.h"
#include "base/text.h"
#include "transport/ucx/engine.h"

namespace tenuto {

namespace {

// How long a refused connection stays open, so that the refusal can reach the other side. The other
// side normally closes it before that.
constexpr Duration kRefuseLimit = std::chrono::seconds(2);
// After a forced close UCX completes its requests within moments; after this limit its worker is
// destroyed together with them.
constexpr Duration kEndLimit = std::chrono::seconds(2);

Duration now() { return monotonic_clock().now(); }

Bytes size_of(size_t count) { return {static_cast<int64_t>(count)}; }

}  // namespace

void UcxEngine::report(Ticket ticket, WorkerId peer, Status status) {
  Done done;
  done.ticket = ticket;
  done.peer = peer;
  done.status = std::move(status);
  mailbox_.post(std::move(done));
}

void UcxEngine::connect(WorkerId peer, const std::string& name, const SocketAddress& to,
                        Ticket ticket) {
  if (phase_ != Phase::Running) return report(ticket, peer, closed_error(self_.self));
  if (peer == self_.self) return report(ticket, peer, invalid("a worker connects to itself"));
  end_farewell(peer);
  if (peers_[peer].link != nullptr || peers_[peer].mending || connecting_.contains(peer)) {
    return report(ticket, peer,
                  invalid(cat("worker ", self_.self, " and worker ", peer,
                              " are already connected: of a pair exactly one end connects")));
  }
  Connecting& connecting = connecting_[peer];
  connecting.name = name;
  connecting.to = to;
  connecting.ticket = ticket;
  connecting.limit = now() + settings_.connect_limit;
}

void UcxEngine::send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
                     Ticket ticket) {
  if (phase_ != Phase::Running) return report(ticket, to, closed_error(self_.self));
  Peer& peer = peers_[to];
  if (peer.lost) return report(ticket, to, lost_error(to, *peer.lost));
  if (peer.sends.contains(tag)) return report(ticket, to, twice_error("send", to, tag));
  const Sending sending{bytes, stamp, ticket};
  if (peer.link != nullptr) {
    const auto granted = peer.link->granted.find(tag);
    if (granted != peer.link->granted.end()) {
      const Granted grant = granted->second;
      peer.link->granted.erase(granted);
      return pair(*peer.link, tag, sending, grant);
    }
  }
  peer.sends.emplace(tag, sending);
}

void UcxEngine::recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Taker taker,
                     Ticket ticket) {
  if (phase_ != Phase::Running) return report(ticket, from, closed_error(self_.self));
  Peer& peer = peers_[from];
  if (peer.lost) return report(ticket, from, lost_error(from, *peer.lost));
  const auto [place, fresh] =
      peer.receives.emplace(tag, Receiving{bytes, taker, ticket, next_grant_});
  if (!fresh) return report(ticket, from, twice_error("receive", from, tag));
  peer.granted.emplace(next_grant_++, tag);
  if (peer.link != nullptr) grant(*peer.link, tag, place->second);
}

void UcxEngine::drop(WorkerId peer) {
  const Error error = dropped_error(peer);
  const auto found = connecting_.find(peer);
  if (found != connecting_.end() && found->second.resumes == 0) give_up(peer, error);
  Peer& side = peers_[peer];
  const uint64_t instance = side.link != nullptr || side.mending ? side.instance : 0;
  if (side.link != nullptr) end(*side.link, error);
  part(peer, error);
  side.lost.reset();
  if (instance != 0 && side.dialled) notify_dropped_peer(peer, side, instance);
}

// Ends an attempt to connect with `error`.
void UcxEngine::give_up(WorkerId peer, const Error& error) {
  const auto node = connecting_.extract(peer);
  if (node.mapped().attempt != nullptr) end(*node.mapped().attempt, error);
  if (node.mapped().ticket != kNoTicket) report(node.mapped().ticket, peer, error);
}

void UcxEngine::grant(Link& link, const Tag& tag, const Receiving& posted) {
  Frame frame;
  frame.kind = FrameKind::Grant;
  frame.channel = link.remote_id;
  frame.grant = posted.grant;
  frame.size = posted.bytes.size();
  frame.tag = tag;
  frame.arrived.swap(link.arrived);
  control(link, frame);
}

// A send and its grant have both come: sends the message, or reports that their sizes differ.
void UcxEngine::pair(Link& link, const Tag& tag, const Sending& sending, const Granted& granted) {
  if (granted.size == sending.bytes.size()) {
    Peer& side = peers_[link.peer];
    const auto [place, fresh] = side.sent.try_emplace(granted.grant);
    if (!fresh) {  // a peer must not use a number for two receives
      ++tally_.malformed;
      side.sends.emplace(tag, sending);
      return;
    }
    place->second.sending = sending;
    return transmit(link, granted.grant, place->second);
  }
  Frame frame;
  frame.kind = FrameKind::Mismatch;
  frame.channel = link.remote_id;
  frame.grant = granted.grant;
  frame.size = sending.bytes.size();
  const WorkerId peer = link.peer;
  control(link, frame);
  report(sending.ticket, peer,
         size_error(self_.self, peer, tag, size_of(sending.bytes.size()), size_of(granted.size)));
}

void UcxEngine::handle(const Frame& frame, ucp_ep_h reply) {
  if (frame.kind == FrameKind::Hello || frame.kind == FrameKind::Drop) {
    return on_hello(frame, reply);
  }
  const auto found = links_.find(frame.channel);
  if (found == links_.end()) {
    ++tally_.unknown_grants;
    return;
  }
  Link& link = *found->second;
  if (link.state == LinkState::Ended) return;
  const bool greeting = link.state == LinkState::Greeting;
  const bool open = link.state == LinkState::Open || link.state == LinkState::Parted;
  if (greeting && frame.kind == FrameKind::Welcome) return on_welcome(link, frame);
  if (greeting && frame.kind == FrameKind::Refuse) return on_refuse(link, frame);
  if (open) peers_[link.peer].fresh = true;
  if (open && frame.kind == FrameKind::Ask) return answer_ask(link);
  if (open && frame.kind == FrameKind::Here) return;
  if (open && frame.kind == FrameKind::Grant) return on_grant(link, frame);
  if (open && frame.kind == FrameKind::Mismatch) return on_mismatch(link, frame);
  if (open && frame.kind == FrameKind::Bye) return on_bye(link);
  if (open && frame.kind == FrameKind::Got) return on_got(link, frame.arrived);
  if (open && frame.kind == FrameKind::AllGranted) return on_all_granted(link);
  ++tally_.malformed;
}

// The peer has heard nothing from here for a while and asks for a sign of life.
void UcxEngine::answer_ask(Link& link) {
  if (link.state != LinkState::Open) return;
  Frame frame;
  frame.kind = FrameKind::Here;
  frame.channel = link.remote_id;
  control(link, frame);
}

void UcxEngine::on_hello(const Frame& frame, ucp_ep_h reply) {
  Link* link = nullptr;
  for (auto& [id, each] : links_) {
    if (reply != nullptr && each->endpoint == reply) link = each.get();
  }
  if (link == nullptr || link->state != LinkState::Accepted) {
    ++tally_.malformed;
    return;
  }
  Status verdict = judge_hello(frame);
  link->remote_id = frame.own_channel;
  if (verdict.ok() && frame.kind == FrameKind::Drop) verdict = on_farewell(frame.hello.self);
  if (!verdict.ok()) {
    if (frame.kind == FrameKind::Hello) ++tally_.refused;
    Frame answer;
    answer.channel = link->remote_id;
    answer.kind = FrameKind::Refuse;
    answer.text = verdict.error().message;
    link->state = LinkState::Refused;
    link->limit = now() + kRefuseLimit;
    return control(*link, answer);
  }
  const WorkerId peer = frame.hello.self;
  Peer& side = peers_[peer];
  link->peer = peer;
  link->limit = Duration::max();
  if (frame.resumes != 0) return on_resumption(*link);
  if (side.mending) lose(peer, "another process has taken its place");
  side.dialled = false;
  side.instance = frame.instance;
  side.name = frame.address;
  side.where.reset();
  if (const auto where = resolve(frame.address, false); where.ok()) side.where = where.value();
  welcome(*link);
}

// Decides whether the sender of a hello is accepted.
Status UcxEngine::judge_hello(const Frame& frame) {
  const WorkerId peer = frame.hello.self;
  const Status verdict = verify_hello(self_, frame.hello, cat("worker ", peer));
  if (!verdict.ok()) return verdict;
  if (frame.expected != self_.self) {
    return invalid(cat("at ", address_, " listens worker ", self_.self, ", expected worker ",
                       frame.expected, ": check the list of addresses"));
  }
  if (phase_ != Phase::Running || peer == self_.self) return closed_error(self_.self);
  if (frame.resumes != 0 || frame.kind == FrameKind::Drop) return judge_resumption(frame);
  const Peer& side = peers_[peer];
  if (side.link != nullptr || (side.mending && side.instance == frame.instance)) {
    return invalid(cat("worker ", peer, " and worker ", self_.self,
                       " are already connected: of a pair exactly one end connects"));
  }
  return ok();
}

void UcxEngine::welcome(Link& link) {
  Frame answer;
  answer.kind = FrameKind::Welcome;
  answer.channel = link.remote_id;
  answer.own_channel = link.id;
  answer.hello = self_;
  answer.instance = instance_;
  link.state = LinkState::Open;
  control(link, answer);
  if (link.state == LinkState::Open) become_open(link);
}

void UcxEngine::on_welcome(Link& link, const Frame& frame) {
  const auto found = connecting_.find(link.peer);
  if (found == connecting_.end() || found->second.attempt != &link) return;
  const std::string where = cat("worker ", frame.hello.self, " at ", found->second.name);
  Status verdict = verify_hello(self_, frame.hello, where);
  if (verdict.ok() && frame.hello.self != link.peer) {
    verdict = invalid(cat(where, " answers, expected worker ", link.peer));
  }
  const uint64_t resumes = found->second.resumes;
  if (verdict.ok() && resumes != 0 && frame.instance != resumes) {
    verdict = invalid("another process has taken its place");
  }
  if (verdict.ok() && peers_[link.peer].link != nullptr) {
    verdict = invalid(cat("worker ", link.peer, " connected from its end at the same time: of a ",
                          "pair exactly one end connects"));
  }
  if (!verdict.ok() && resumes != 0) return lose(link.peer, verdict.error().message);
  if (!verdict.ok()) return give_up(link.peer, verdict.error());
  Peer& side = peers_[link.peer];
  const Connecting done = std::move(found->second);
  connecting_.erase(found);
  link.remote_id = frame.own_channel;
  link.state = LinkState::Open;
  link.limit = Duration::max();
  if (resumes != 0) return mended(link);
  side.dialled = true;
  side.instance = frame.instance;
  side.name = done.name;
  side.where = done.to;
  report(done.ticket, link.peer, ok());
  become_open(link);
}

void UcxEngine::on_refuse(Link& link, const Frame& frame) {
  const auto found = connecting_.find(link.peer);
  if (found == connecting_.end() || found->second.attempt != &link) return;
  if (found->second.farewell) return end_farewell(link.peer);
  if (found->second.resumes != 0) return lose(link.peer, cat("it refused: ", frame.text));
  give_up(link.peer,
          {Code::Invalid, Reach::Link,
           cat("worker ", link.peer, " at ", found->second.name, " refused: ", frame.text)});
}

void UcxEngine::become_open(Link& link) {
  Peer& peer = peers_[link.peer];
  peer.link = &link;
  peer.lost.reset();
  const std::map<Tag, Receiving> receives = peer.receives;  // losing the peer empties the original
  for (const auto& [tag, posted] : receives) {
    if (link.state == LinkState::Open) grant(link, tag, posted);
  }
}

void UcxEngine::on_grant(Link& link, const Frame& frame) {
  if (link.state != LinkState::Open) return;
  Peer& peer = peers_[link.peer];
  if (!frame.arrived.empty()) on_got(link, frame.arrived);
  if (const auto again = peer.sent.find(frame.grant); again != peer.sent.end()) {
    return send_again(link, frame, again->second);
  }
  const Granted granted{frame.grant, frame.size};
  if (const auto found = peer.sends.find(frame.tag); found != peer.sends.end()) {
    const Sending sending = found->second;
    peer.sends.erase(found);
    return pair(link, frame.tag, sending, granted);
  }
  if (!link.granted.emplace(frame.tag, granted).second) ++tally_.unknown_grants;
  if (link.granted.size() <= settings_.most_awaited) return;
  const std::string why = cat("it has posted more than ", settings_.most_awaited,
                              " messages that worker ", self_.self, " has not sent");
  const WorkerId id = link.peer;
  const uint64_t instance = peer.instance;
  end(link, lost_error(id, why));
  lose(id, why);
  if (peer.dialled) notify_dropped_peer(id, peer, instance);
}

void UcxEngine::on_mismatch(Link& link, const Frame& frame) {
  Peer& peer = peers_[link.peer];
  const auto found = peer.granted.find(frame.grant);
  if (found == peer.granted.end() || peer.receives.at(found->second).fetching) {
    ++tally_.unknown_grants;
    return;
  }
  const Tag tag = found->second;
  const Receiving posted = peer.receives.at(tag);
  peer.receives.erase(tag);
  peer.granted.erase(found);
  report(posted.ticket, link.peer,
         size_error(link.peer, self_.self, tag, size_of(frame.size), size_of(posted.bytes.size())));
}

// A message has arrived completely.
void UcxEngine::here(Link& link, const Tag& tag, const DataHeader& header) {
  Peer& peer = peers_[link.peer];
  const auto place = peer.receives.find(tag);
  const Ticket ticket = place->second.ticket;
  peer.granted.erase(place->second.grant);
  peer.receives.erase(place);
  mailbox_.post(received(ticket, link.peer, stamp_of(header), now()));
  if (link.state != LinkState::Open) return;
  link.arrived.push_back(header.grant);
  if (header.acknowledge == 1 || link.arrived.size() >= kFrameArrivals) say_got(link);
}

void UcxEngine::say_got(Link& link) {
  Frame frame;
  frame.kind = FrameKind::Got;
  frame.channel = link.remote_id;
  frame.arrived.swap(link.arrived);
  control(link, frame);
}

// The peer has closed its wire in order: calls with it end, but it is not reported lost. The answer
// tells the peer that everything it sent has been received; the peer then closes the endpoint.
void UcxEngine::on_bye(Link& link) {
  if (link.state == LinkState::Parted) return;
  link.state = LinkState::Parted;
  Peer& peer = peers_[link.peer];
  if (!link.said_bye) {
    link.said_bye = true;
    if (!link.arrived.empty()) say_got(link);
    Frame bye;
    bye.kind = FrameKind::Bye;
    bye.channel = link.remote_id;
    control(link, bye);
  }
  if (peer.link != &link) return;
  peer.link = nullptr;
  peer.lost = "it closed its wire";
  end_calls(peer, link.peer, lost_error(link.peer, *peer.lost));
}

// The error of a call that UCX returned after the peer had closed its wire in order.
Error UcxEngine::parted_error(const Link& link) const {
  const auto found = peers_.find(link.peer);
  if (found == peers_.end() || !found->second.lost) return closed_error(self_.self);
  return lost_error(link.peer, *found->second.lost);
}

// The endpoint is broken. An open connection is repaired, or, while this wire closes, its peer is
// lost. An attempt to connect ends here; tick_connecting() makes the next one.
void UcxEngine::fail(Link& link, const std::string& why) {
  if (link.ended || link.broken) return;
  if (link.state == LinkState::Open && phase_ == Phase::Running) return break_link(link, why);
  const LinkState state = link.state;
  const WorkerId peer = link.peer;
  const Error error = lost_error(peer, why);
  end(link, error);
  if (state == LinkState::Greeting) {
    if (const auto found = connecting_.find(peer); found != connecting_.end()) {
      if (found->second.attempt == &link) {
        found->second.attempt = nullptr;
        found->second.last_error = why;
      }
    }
  }
  if (state == LinkState::Open) lose(peer, why);
}

// Takes a link out of use. tick() closes its endpoint; requests that UCX has not completed end with
// `error` when UCX returns them.
void UcxEngine::end(Link& link, const Error& error) {
  link.ended = error;
  link.state = LinkState::Ended;
  link.granted.clear();
  const auto found = peers_.find(link.peer);
  if (found != peers_.end() && found->second.link == &link) found->second.link = nullptr;
}

// Ends every call with `peer`. Calls that UCX has not completed end when UCX returns them.
void UcxEngine::end_calls(Peer& peer, WorkerId id, const Error& error) {
  const auto sends = std::exchange(peer.sends, {});
  const auto receives = std::exchange(peer.receives, {});
  const auto sent = std::exchange(peer.sent, {});
  peer.granted.clear();
  peer.break_after = -1;
  for (const auto& [tag, sending] : sends) report(sending.ticket, id, error);
  for (const auto& [grant, each] : sent) {
    if (!each.in_flight && each.sending.ticket != kNoTicket) report(each.sending.ticket, id, error);
  }
  for (const auto& [tag, posted] : receives) {
    if (!posted.fetching) report(posted.ticket, id, error);
  }
}

size_t UcxEngine::unsent() const {
  size_t count = static_cast<size_t>(sends_in_flight_);
  for (const auto& [id, peer] : peers_) {
    count += peer.sends.size();
    for (const auto& [grant, each] : peer.sent) {
      count += !each.in_flight && each.sending.ticket != kNoTicket ? 1 : 0;
    }
  }
  return count;
}

void UcxEngine::close(Duration limit) {
  if (phase_ != Phase::Running) return;
  close_limit_ = now() + limit;
  phase_ = Phase::Flushing;
  for (auto& [id, peer] : peers_) {
    if (!peer.mending) continue;
    peer.lost = peer.mending->why;
    part(id, lost_error(id, *peer.lost));
  }
  while (!connecting_.empty()) give_up(connecting_.begin()->first, closed_error(self_.self));
}

Duration UcxEngine::tick() {
  const std::vector<ucp_conn_request_h> requests = std::move(requests_);
  requests_.clear();
  for (ucp_conn_request_h request : requests) {
    if (phase_ == Phase::Running && links_.size() < peers_.size() + settings_.most_strangers) {
      accept(request);
    } else {
      ucp_listener_reject(listener_, request);
    }
  }
  const Duration moment = now();
  Duration next = tick_connecting(moment);
  next = std::min(next, tick_links(moment));
  next = std::min(next, tick_mending(moment));
  next = std::min(next, tick_watching(moment));
  next = std::min(next, tick_late(moment));
  next = std::min(next, tick_closing(moment));
  next = std::min(next, tick_ended(moment));
  if (phase_ == Phase::Ending && links_.empty()) phase_ = Phase::Closed;
  return next;
}

Duration UcxEngine::tick_connecting(Duration moment) {
  Duration next = Duration::max();
  std::vector<WorkerId> late;
  for (auto& [peer, connecting] : connecting_) {
    const bool mends = connecting.mends();  // then the limit is that of peer.mending
    if (!mends && moment >= connecting.limit) {
      late.push_back(peer);
      continue;
    }
    if (mends && is_held_by_ucx(peer)) continue;
    if (connecting.attempt == nullptr && moment >= connecting.retry) {
      attempt(peer, connecting, moment);
    }
    if (!mends) next = std::min(next, connecting.limit);
    if (connecting.attempt == nullptr) next = std::min(next, connecting.retry);
  }
  for (const WorkerId peer : late) {
    const Connecting& connecting = connecting_[peer];
    if (connecting.farewell) {
      end_farewell(peer);
      continue;
    }
    const std::string last =
        connecting.last_error.empty() ? std::string("no answer") : connecting.last_error;
    give_up(peer,
            {Code::Timeout, Reach::Link,
             cat("worker ", self_.self, " could not reach worker ", peer, " at ", connecting.name,
                 " within ", fixed(to_milliseconds(settings_.connect_limit), 0), " ms (", last,
                 "): is it running, and is the address right?")});
  }
  return next;
}

Duration UcxEngine::tick_links(Duration moment) {
  Duration next = Duration::max();
  for (auto& [id, link] : links_) {
    const bool attempt = link->state == LinkState::Greeting;
    if (!attempt && link->state != LinkState::Accepted && link->state != LinkState::Refused) {
      continue;
    }
    if (moment < link->limit) {
      next = std::min(next, link->limit);
      continue;
    }
    if (attempt) {
      fail(*link, "no answer");
      continue;
    }
    if (link->state == LinkState::Accepted) ++tally_.refused;
    end(*link, lost_error(link->peer, "it did not identify itself"));
  }
  return next;
}

// Closing: first all sends leave, then both ends send Bye, then the endpoints close.
Duration UcxEngine::tick_closing(Duration moment) {
  if (phase_ == Phase::Flushing && (unsent() == 0 || moment >= close_limit_)) {
    if (const size_t left = unsent(); left > 0) {
      verdict_ = Error{Code::Timeout, Reach::Call,
                       cat("worker ", self_.self, " closed its wire with ", left,
                           " messages that had not left within the limit")};
    }
    phase_ = Phase::Parting;
    for (auto& [id, link] : links_) {
      if (link->state != LinkState::Open) continue;
      link->said_bye = true;
      if (!link->arrived.empty()) say_got(*link);
      Frame bye;
      bye.kind = FrameKind::Bye;
      bye.channel = link->remote_id;
      control(*link, bye);
    }
    for (auto& [id, peer] : peers_) end_calls(peer, id, closed_error(self_.self));
  }
  if (phase_ == Phase::Parting) {
    bool waiting = false;
    for (auto& [id, link] : links_) waiting |= link->state == LinkState::Open;
    if (!waiting || moment >= close_limit_) {
      phase_ = Phase::Ending;
      close_limit_ = moment + kEndLimit;
      for (auto& [id, link] : links_) {
        if (!link->ended) end(*link, closed_error(self_.self));
      }
    }
  }
  if (phase_ == Phase::Ending && (links_.empty() || moment >= close_limit_)) phase_ = Phase::Closed;
  return phase_ == Phase::Running || phase_ == Phase::Closed ? Duration::max() : close_limit_;
}

}  // namespace tenuto
