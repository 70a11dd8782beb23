#include "transport/ucx/engine.h"

#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr unsigned kControlId = 1, kDataId = 2;
constexpr Duration kRetryFirst = std::chrono::milliseconds(5);
// The limit of one attempt to reconnect. TCP resends a lost SYN only after 1 s, so a new attempt
// may get through sooner.
constexpr Duration kMendAttempt = std::chrono::seconds(1);
constexpr Duration kLinger = std::chrono::seconds(1);
constexpr Duration kLingerPause = std::chrono::milliseconds(1);

Duration now() { return monotonic_clock().now(); }

std::string words(ucs_status_t status) { return ucs_status_string(status); }

}  // namespace

// UCX prints every broken connection on stdout; here each one is a report in a mailbox.
void quiet_ucx() {
  if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

UcxEngine::UcxEngine(const UcxSettings& settings, Hello self, Mailbox& mailbox, UcxTally& tally)
    : settings_(settings), self_(std::move(self)), mailbox_(mailbox), tally_(tally) {
  next_id_ = mix(static_cast<uint64_t>(now().count()), static_cast<uint64_t>(getpid()),
                 static_cast<uint64_t>(self_.self.value)) |
             1;
  instance_ = next_id_;
}

UcxEngine::~UcxEngine() {
  for (auto& [id, peer] : peers_) {
    stop_mending(id, peer);
    stop_watching(peer);
  }
  if (worker_ != nullptr) {
    for (ucp_conn_request_h request : requests_) ucp_listener_reject(listener_, request);
    if (listener_ != nullptr) {
      // An accepted connection keeps a pointer to the listener until its request has come. UCX 1.13
      // uses that pointer also for a request that comes after the listener was destroyed.
      silence(port_);
      ucp_listener_destroy(listener_);
    }
    ucp_worker_destroy(worker_);
  }
  if (context_ != nullptr) ucp_cleanup(context_);
  abandon_flights();
}

// Ends the requests that UCX has not completed. Its worker is destroyed, so nothing touches their
// buffers any more.
void UcxEngine::abandon_flights() {
  for (Flight* flight : flights_) {
    if (flight->ticket != kNoTicket) {
      report(flight->ticket, flight->link->peer, closed_error(self_.self));
    }
    delete flight;
  }
  flights_.clear();
}

Status UcxEngine::open() {
  if (settings_.device.empty()) {
    const auto device = device_of(settings_.listen_host);
    if (!device.ok()) return device.error();
    settings_.device = device.value();
  }
  if (const Status status = open_context(); !status.ok()) return status;
  if (const Status status = open_worker(); !status.ok()) return status;
  return listen();
}

Status UcxEngine::open_context() {
  quiet_ucx();
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) {
    return invalid("UCX cannot read its configuration: check the environment variables UCX_*");
  }
  const std::pair<const char*, const char*> wanted[] = {
      {"TLS", settings_.device_memory ? kDeviceTransports : kHostTransports},
      {"NET_DEVICES", settings_.device.c_str()}};
  for (const auto& [name, value] : wanted) {
    if (ucp_config_modify(config, name, value) != UCS_OK) {
      ucp_config_release(config);
      return invalid(cat("UCX refuses the setting ", name, " = ", value));
    }
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  const ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status == UCS_OK) return ok();
  context_ = nullptr;
  return invalid(cat("UCX offers no TCP on the device '", settings_.device, "' (", words(status),
                     "): `ip link` lists the devices of this machine"));
}

void UcxEngine::set_handler(unsigned id, ucp_am_recv_callback_t callback, uint32_t flags) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  params.id = id;
  params.flags = flags;
  params.cb = callback;
  params.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &params);
  CHECK(status == UCS_OK, words(status));
}

Status UcxEngine::open_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  params.events = UCP_WAKEUP_TX | UCP_WAKEUP_RX;
  ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return invalid(cat("UCX cannot use the device '", settings_.device, "': ", words(status)));
  }
  status = ucp_worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return invalid(cat("UCX gives no event descriptor: ", words(status)));
  // A message for the device's memory is written by UCX after the callback, so UCX must keep its
  // data.
  const uint32_t kept = settings_.device_memory ? UCP_AM_FLAG_PERSISTENT_DATA : 0;
  set_handler(kControlId, &UcxEngine::on_control, 0);
  set_handler(kDataId, &UcxEngine::on_data, kept);
  return ok();
}

Status UcxEngine::listen() {
  const bool bare_v6 = settings_.listen_host.find(':') != std::string::npos;
  const auto bracketed = [&](const std::string& host) {
    return host.find(':') != std::string::npos ? cat("[", host, "]") : host;
  };
  const std::string wanted =
      cat(bare_v6 ? cat("[", settings_.listen_host, "]") : settings_.listen_host, ":",
          settings_.listen_port);
  const auto where = resolve(wanted);
  if (!where.ok()) return where.error();
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&where.value().storage);
  params.sockaddr.addrlen = where.value().length;
  params.conn_handler = {&UcxEngine::on_connection, this};
  ucs_status_t status = ucp_listener_create(worker_, &params, &listener_);
  if (status != UCS_OK) {
    listener_ = nullptr;
    return Error{Code::Disconnected, Reach::Link,
                 cat("worker ", self_.self, " cannot listen at ", wanted, ": ", words(status),
                     "; is the port in use?")};
  }
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(listener_, &attributes);
  if (status != UCS_OK)
    return invalid(cat("UCX does not tell its listening address: ", words(status)));
  port_ = port_of(attributes.sockaddr);
  const std::string& host =
      settings_.advertised_host.empty() ? settings_.listen_host : settings_.advertised_host;
  address_ = cat(bracketed(host), ":", port_);
  return ok();
}

UcxEngine::Link& UcxEngine::add_link(LinkState state, WorkerId peer) {
  auto link = std::make_unique<Link>();
  link->engine = this;
  link->id = next_id_++;
  link->state = state;
  link->peer = peer;
  Link& added = *link;
  links_.emplace(added.id, std::move(link));
  return added;
}

void UcxEngine::accept(ucp_conn_request_h request) {
  Link& link = add_link(LinkState::Accepted, WorkerId{});
  link.limit = now() + settings_.hello_limit;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxEngine::on_error, &link};
  if (ucp_ep_create(worker_, &params, &link.endpoint) != UCS_OK) links_.erase(link.id);
}

// One try to reach a peer; `connecting` says where and until when.
void UcxEngine::attempt(WorkerId peer, Connecting& connecting, Duration moment) {
  Link& link = add_link(LinkState::Greeting, peer);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&connecting.to.storage);
  params.sockaddr.addrlen = connecting.to.length;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxEngine::on_error, &link};
  const ucs_status_t status = ucp_ep_create(worker_, &params, &link.endpoint);
  connecting.pause = connecting.pause == Duration::zero()
                         ? kRetryFirst
                         : std::min<Duration>(connecting.pause * 2, 40 * kRetryFirst);
  connecting.retry = moment + connecting.pause;
  if (status != UCS_OK) {
    connecting.last_error = words(status);
    links_.erase(link.id);
    return;
  }
  connecting.attempt = &link;
  Frame hello;
  hello.kind = connecting.farewell ? FrameKind::Drop : FrameKind::Hello;
  hello.own_channel = link.id;
  hello.hello = self_;
  hello.expected = peer;
  hello.instance = instance_;
  hello.resumes = connecting.resumes;
  hello.address = address_;
  if (connecting.resumes != 0) link.limit = moment + kMendAttempt;
  control(link, hello);
}

// Sends a control frame, always eager. A Hello or Drop also lets the other side answer.
void UcxEngine::control(Link& link, const Frame& frame) {
  auto* flight = new Flight;
  flight->kind = Flight::Kind::Control;
  flight->link = &link;
  flight->bytes = encode(frame);
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = &UcxEngine::on_sent;
  params.user_data = flight;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  const bool first = frame.kind == FrameKind::Hello || frame.kind == FrameKind::Drop;
  if (first) params.flags |= UCP_AM_SEND_FLAG_REPLY;
  flights_.insert(flight);
  ++link.requests;
  const ucs_status_ptr_t request = ucp_am_send_nbx(
      link.endpoint, kControlId, nullptr, 0, flight->bytes.data(), flight->bytes.size(), &params);
  if (!UCS_PTR_IS_PTR(request)) landed(flight, UCS_PTR_STATUS(request));
}

// Hands the bytes of a message to UCX.
void UcxEngine::transmit(Link& link, uint64_t grant, Sent& sent) {
  Sending& sending = sent.sending;
  if (sending.bytes.size() <= kKeptMessage) keep(sent);
  sent.link = link.id;
  sent.in_flight = true;
  const Bytes size{static_cast<int64_t>(sending.bytes.size())};
  const bool rendezvous =
      size.count > 0 &&
      (settings_.protocol == UcxProtocol::Rendezvous ||
       (settings_.protocol == UcxProtocol::Automatic && link.rate.rendezvous(size)));
  auto* flight = new Flight;
  flight->kind = Flight::Kind::Send;
  flight->link = &link;
  flight->size = size.count;
  flight->ticket = sending.ticket;
  flight->own = sent.own;
  flight->header = {link.remote_id,
                    grant,
                    sending.stamp.sent.count(),
                    sending.stamp.arrival.count(),
                    sent.kept ? 0u : 1u,
                    sending.stamp.tally};
  if (settings_.protocol == UcxProtocol::Automatic) {
    if (const Duration moment = now(); link.rate.wants_probe(size, moment)) {
      flight->header.acknowledge = 1;
      link.probe = grant;
      link.rate.start(size, {link.sending}, moment);
    }
  }
  ++(rendezvous ? tally_.rendezvous_sent : tally_.eager_sent);
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = &UcxEngine::on_sent;
  params.user_data = flight;
  params.flags = rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  flights_.insert(flight);
  link.sending += size.count;
  ++link.requests;
  ++sends_in_flight_;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(link.endpoint, kDataId, &flight->header, sizeof(flight->header),
                      sending.bytes.data(), sending.bytes.size(), &params);
  if (!UCS_PTR_IS_PTR(request)) landed(flight, UCS_PTR_STATUS(request));
  Peer& peer = peers_[link.peer];
  if (peer.break_after > 0 && --peer.break_after == 0) {
    peer.break_after = -1;
    if (!link.ended) fail(link, "an injected fault broke it");
  }
}

// UCX has completed a request and does not use its buffers any more.
void UcxEngine::landed(Flight* flight, ucs_status_t status) {
  const std::unique_ptr<Flight> owner(flight);
  Link& link = *flight->link;
  flights_.erase(flight);
  --link.requests;
  if (flight->kind == Flight::Kind::Send) {
    link.sending -= flight->size;
    --sends_in_flight_;
  }
  if (status != UCS_OK && !link.ended) fail(link, words(status));
  if (flight->kind == Flight::Kind::Send) landed_send(*flight, status);
  if (flight->kind == Flight::Kind::Receive) landed_receive(*flight, status);
}

void UcxEngine::landed_send(const Flight& flight, ucs_status_t status) {
  Link& link = *flight.link;
  if (link.ended) {
    if (flight.ticket == kNoTicket) return;
    return report(flight.ticket, link.peer, status == UCS_OK ? ok() : Status(*link.ended));
  }
  Peer& peer = peers_[link.peer];
  const auto found = peer.sent.find(flight.header.grant);
  if (found == peer.sent.end() || found->second.link != link.id) {  // the peer has parted
    if (flight.ticket == kNoTicket) return;
    return report(flight.ticket, link.peer, status == UCS_OK ? ok() : parted_error(link));
  }
  found->second.in_flight = false;
  if (!link.broken) sent_left(peer, link, flight.header.grant, found->second);
}

void UcxEngine::landed_receive(const Flight& flight, ucs_status_t status) {
  Link& link = *flight.link;
  if (status == UCS_OK && flight.taker.take != nullptr) {
    flight.taker.take(flight.taker.self, flight.buffer);
  }
  const Stamp stamp = stamp_of(flight.header);
  if (link.ended) {
    if (status != UCS_OK) return report(flight.ticket, link.peer, *link.ended);
    return mailbox_.post(received(flight.ticket, link.peer, stamp, now()));
  }
  Peer& peer = peers_[link.peer];
  peer.fresh = true;
  const auto found = peer.receives.find(flight.tag);
  if (found == peer.receives.end() || found->second.grant != flight.header.grant) {
    if (status != UCS_OK) return report(flight.ticket, link.peer, parted_error(link));
    return mailbox_.post(received(flight.ticket, link.peer, stamp, now()));
  }
  found->second.fetching = false;
  if (status == UCS_OK) here(link, flight.tag, flight.header);
}

// The bytes of a message, or its announcement, have come. An unexpected message is dropped.
ucs_status_t UcxEngine::arrived(const DataHeader& header, void* data, size_t length,
                                bool rendezvous) {
  const auto found = links_.find(header.channel);
  if (found == links_.end() || found->second->state != LinkState::Open) {
    ++tally_.unknown_grants;
    return UCS_OK;
  }
  Link& link = *found->second;
  Peer& peer = peers_[link.peer];
  peer.fresh = true;
  const auto granted = peer.granted.find(header.grant);
  const auto place =
      granted == peer.granted.end() ? peer.receives.end() : peer.receives.find(granted->second);
  if (place == peer.receives.end() || place->second.fetching) {
    ++tally_.unknown_grants;
    return UCS_OK;
  }
  const Tag tag = place->first;
  Receiving& posted = place->second;
  if (length != posted.bytes.size()) {
    const Receiving ended = posted;
    peer.receives.erase(place);
    peer.granted.erase(granted);
    report(ended.ticket, link.peer,
           size_error(link.peer, self_.self, tag, {static_cast<int64_t>(length)},
                      {static_cast<int64_t>(ended.bytes.size())}));
    return UCS_OK;
  }
  const bool by_ucx = rendezvous || settings_.device_memory;
  if (by_ucx && length > 0) return fetch(link, header, data, tag, posted, rendezvous);
  if (posted.taker.take != nullptr) {
    posted.taker.take(posted.taker.self, {static_cast<const std::byte*>(data), length});
  } else if (length > 0) {
    std::memcpy(posted.bytes.data(), data, length);
  }
  here(link, tag, header);
  return UCS_OK;
}

// Lets UCX write a message into the posted buffer: one that was announced, or one that has come and
// may have to go to a device's memory. From here on UCX owns the message.
ucs_status_t UcxEngine::fetch(Link& link, const DataHeader& header, void* data, const Tag& tag,
                              Receiving& posted, bool rendezvous) {
  auto* flight = new Flight;
  flight->kind = Flight::Kind::Receive;
  flight->link = &link;
  flight->header = header;
  flight->size = static_cast<int64_t>(posted.bytes.size());
  flight->tag = tag;
  flight->buffer = posted.bytes;
  flight->taker = posted.taker;
  flight->ticket = posted.ticket;
  flights_.insert(flight);
  ++link.requests;
  posted.fetching = true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = &UcxEngine::on_received;
  params.user_data = flight;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_, data, posted.bytes.data(), posted.bytes.size(), &params);
  if (UCS_PTR_IS_PTR(request)) return UCS_INPROGRESS;
  landed(flight, UCS_PTR_STATUS(request));
  // The data of an eager message is already released: INPROGRESS keeps UCX from releasing it again.
  return rendezvous ? UCS_OK : UCS_INPROGRESS;
}

// Closes the endpoints of ended links by force, so that nothing that is still queued leaves. A link
// is erased when its endpoint is closed and UCX has returned every buffer. UCX closes the sockets
// in later rounds of progress, without a wake-up. So for a while after a close the thread wakes by
// itself, at growing pauses. Returns the moment of the next wake-up.
Duration UcxEngine::tick_ended(Duration moment) {
  bool waiting = false, mends = false, returning = false;
  for (auto it = links_.begin(); it != links_.end();) {
    Link& link = *it->second;
    const bool returns = link.requests > 0 && moment < link.return_limit;
    returning |= returns;
    if (link.state == LinkState::Ended && !link.closing && !returns) {
      link.closing = true;
      last_close_ = moment;
      ucp_request_param_t params{};
      params.op_attr_mask =
          UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
      params.cb.send = &UcxEngine::on_closed;
      params.user_data = &link;
      params.flags = UCP_EP_CLOSE_FLAG_FORCE;
      const ucs_status_ptr_t request = ucp_ep_close_nbx(link.endpoint, &params);
      if (!UCS_PTR_IS_PTR(request)) link.closed = true;
    }
    const bool gone = link.closed && link.requests == 0;
    waiting |= link.state == LinkState::Ended && !gone;
    mends |= gone && link.broken;
    it = gone ? links_.erase(it) : std::next(it);
  }
  if (mends) return moment;  // the link that replaces it may open now
  if (returning) return moment + kLingerPause;
  const Duration since = moment - last_close_;
  if (!waiting && (last_close_ == Duration::zero() || since > kLinger)) return Duration::max();
  return moment + std::clamp<Duration>(since / 4, kLingerPause, 50 * kLingerPause);
}

void UcxEngine::on_connection(ucp_conn_request_h request, void* self) {
  static_cast<UcxEngine*>(self)->requests_.push_back(request);
}

void UcxEngine::on_error(void* link, ucp_ep_h, ucs_status_t status) {
  auto& broken = *static_cast<Link*>(link);
  broken.engine->fail(broken, words(status));
}

ucs_status_t UcxEngine::on_control(void* self, const void*, size_t, void* data, size_t length,
                                   const ucp_am_recv_param_t* param) {
  auto& engine = *static_cast<UcxEngine*>(self);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    ++engine.tally_.malformed;
    return UCS_OK;
  }
  const auto frame = decode({static_cast<const std::byte*>(data), length});
  if (!frame.ok()) {
    ++engine.tally_.malformed;
    return UCS_OK;
  }
  const bool reply = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  engine.handle(frame.value(), reply ? param->reply_ep : nullptr);
  return UCS_OK;
}

ucs_status_t UcxEngine::on_data(void* self, const void* header, size_t header_length, void* data,
                                size_t length, const ucp_am_recv_param_t* param) {
  auto& engine = *static_cast<UcxEngine*>(self);
  DataHeader read;
  if (header_length != sizeof(read)) {
    ++engine.tally_.malformed;
    return UCS_OK;
  }
  std::memcpy(&read, header, sizeof(read));
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return engine.arrived(read, data, length, rendezvous);
}

void UcxEngine::on_sent(void* request, ucs_status_t status, void* flight) {
  auto* done = static_cast<Flight*>(flight);
  done->link->engine->landed(done, status);
  ucp_request_free(request);
}

void UcxEngine::on_received(void* request, ucs_status_t status, size_t length, void* flight) {
  auto* done = static_cast<Flight*>(flight);
  const bool whole = length == static_cast<size_t>(done->size);
  done->link->engine->landed(done, status == UCS_OK && !whole ? UCS_ERR_MESSAGE_TRUNCATED : status);
  ucp_request_free(request);
}

void UcxEngine::on_closed(void* request, ucs_status_t, void* link) {
  static_cast<Link*>(link)->closed = true;
  ucp_request_free(request);
}

}  // namespace tenuto
