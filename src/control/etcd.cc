#include "control/etcd.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "control/etcd.grpc.pb.h"
#include "protocol/connect.h"

namespace tenuto {
namespace {

namespace etcd = etcdserverpb;

// The pause between two checks whether another coordinator still holds the office.
constexpr std::chrono::milliseconds kLook{100};
// A call that is not answered is made again at the next endpoint.
constexpr std::chrono::milliseconds kCallLimit{1000};
// The pause before gRPC connects again to a member that refused a connection, in ms.
constexpr int kAgain = 200;
constexpr std::chrono::milliseconds kConnectLimit{300};
// The pause after a round of calls that no member has answered.
constexpr std::chrono::milliseconds kRound{20};

// The members of the cluster, any of which answers for all.
class Members {
 public:
  explicit Members(std::vector<std::string> endpoints) : endpoints_(std::move(endpoints)) {
    for (const std::string& endpoint : endpoints_) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
      arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kAgain);
      arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kAgain);
      channels_.push_back(
          grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
    }
  }

  // Makes the call at one member after the other until one answers: at each of them once, then
  // again until `limit` is over. Every call may be made twice: the second one changes nothing.
  template <class Call>
  Status ask(Duration limit, const Call& call) {
    const Duration end = monotonic_clock().now() + limit;
    std::string reason = "no connection";
    while (true) {
      for (size_t tried = 0; tried < channels_.size(); ++tried) {
        if (connects(*channels_[at_], kConnectLimit)) {
          grpc::ClientContext context;
          context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
          const grpc::Status status = call(channels_[at_], context);
          if (status.ok()) return ok();
          reason = status.error_message();
        }
        at_ = (at_ + 1) % channels_.size();
      }
      if (monotonic_clock().now() >= end) break;
      // Waiting lets gRPC work on the connections: without a call under way nothing else does.
      channels_[at_]->WaitForConnected(std::chrono::system_clock::now() + kRound);
    }
    return Error{Code::Disconnected, Reach::Job,
                 cat("etcd does not answer at ", names(), " (", reason,
                     "): is it running, and are these its client addresses?")};
  }

  std::string names() const {
    std::string all;
    for (const std::string& endpoint : endpoints_) all += cat(all.empty() ? "" : ", ", endpoint);
    return all;
  }

 private:
  std::vector<std::string> endpoints_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  size_t at_ = 0;
};

class EtcdStore : public Store {
 public:
  explicit EtcdStore(const EtcdSettings& settings)
      : settings_(settings),
        office_(cat("/tenuto/", settings.job, "/office")),
        place_(cat("/tenuto/", settings.job, "/facts")),
        members_(settings.endpoints),
        keepers_(settings.endpoints) {}

  ~EtcdStore() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    if (keeper_.joinable()) keeper_.join();
    if (lease_ != 0) revoke();
  }

  Status open() {
    const Status granted = grant();
    if (!granted.ok()) return granted;
    keeper_ = std::thread([this] { keep(); });
    const Status taken = take_office();
    return taken.ok() ? load() : taken;
  }

  Status write(const Facts& facts) override {
    if (written_ && facts == facts_) return ok();
    etcd::TxnRequest request;
    must_have_lease(request, lease_);  // then this store holds the office
    put(place_, to_json(facts), 0, request);
    etcd::TxnResponse response;
    const Status asked = transact(request, response);
    if (!asked.ok()) return asked;
    if (!response.succeeded()) {
      return Error{Code::Disconnected, Reach::Job,
                   cat("this coordinator's lease in etcd has expired (", office_,
                       "): another coordinator may lead the run now")};
    }
    facts_ = facts;
    written_ = true;
    return ok();
  }

  Facts read() const override { return facts_; }

 private:
  Status grant() {
    etcd::LeaseGrantRequest request;
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(settings_.lease).count());
    etcd::LeaseGrantResponse response;
    const Status asked = members_.ask(settings_.lease, [&](const auto& channel, auto& context) {
      return etcd::Lease::NewStub(channel)->LeaseGrant(&context, request, &response);
    });
    if (!asked.ok()) return asked;
    if (response.id() == 0) {
      return Error{Code::Invalid, Reach::Job, cat("etcd grants no lease: ", response.error())};
    }
    lease_ = response.id();
    return ok();
  }

  // The coordinator that creates the key holds the office as long as the key exists.
  Status take_office() {
    const Duration end = monotonic_clock().now() + settings_.take_limit;
    while (true) {
      etcd::TxnRequest request;
      etcd::Compare* nobody = request.add_compare();
      nobody->set_target(etcd::Compare::CREATE);
      nobody->set_key(office_);
      nobody->set_create_revision(0);
      put(office_, settings_.holder, lease_, request);
      request.add_failure()->mutable_request_range()->set_key(office_);
      etcd::TxnResponse response;
      const Status asked = transact(request, response);
      if (!asked.ok()) return asked;
      const etcd::KeyValue holder = holder_of(response);
      if (response.succeeded() || holder.lease() == lease_) return ok();
      if (!settings_.before.empty() && holder.value() == settings_.before) {
        const Status taken = take_over(holder.lease());
        if (!taken.ok()) return taken;
        continue;  // who is the holder now?
      }
      if (monotonic_clock().now() >= end) {
        return Error{Code::Timeout, Reach::Job,
                     cat("another coordinator still leads the job '", settings_.job,
                         "': ", holder.value(), " (etcd, ", office_, ")")};
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  // Puts this holder in the place of a dead one, if no other coordinator was faster.
  Status take_over(int64_t lease) {
    etcd::TxnRequest request;
    must_have_lease(request, lease);
    put(office_, settings_.holder, lease_, request);
    etcd::TxnResponse response;
    return transact(request, response);
  }

  static etcd::KeyValue holder_of(const etcd::TxnResponse& response) {
    if (response.responses_size() == 0) return {};
    const etcd::RangeResponse& range = response.responses(0).response_range();
    return range.kvs_size() == 0 ? etcd::KeyValue{} : range.kvs(0);
  }

  Status load() {
    etcd::RangeRequest request;
    request.set_key(place_);
    etcd::RangeResponse response;
    const Status asked = members_.ask(settings_.lease, [&](const auto& channel, auto& context) {
      return etcd::KV::NewStub(channel)->Range(&context, request, &response);
    });
    if (!asked.ok() || response.kvs_size() == 0) return asked;
    Result<Facts> facts = facts_from_json(response.kvs(0).value(), cat("etcd, ", place_));
    if (!facts.ok()) return facts.error();
    facts_ = facts.value();
    return ok();
  }

  // Adds the condition that the office key has this lease.
  void must_have_lease(etcd::TxnRequest& request, int64_t lease) const {
    etcd::Compare* held = request.add_compare();
    held->set_target(etcd::Compare::LEASE);
    held->set_key(office_);
    held->set_lease(lease);
  }

  static void put(const std::string& key, const std::string& value, int64_t lease,
                  etcd::TxnRequest& request) {
    etcd::PutRequest* put = request.add_success()->mutable_request_put();
    put->set_key(key);
    put->set_value(value);
    put->set_lease(lease);
  }

  Status transact(const etcd::TxnRequest& request, etcd::TxnResponse& response) {
    return members_.ask(settings_.lease, [&](const auto& channel, auto& context) {
      return etcd::KV::NewStub(channel)->Txn(&context, request, &response);
    });
  }

  // Renews the lease three times as often as needed. If that fails, the next write shows it.
  void keep() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, settings_.lease / 3, [this] { return leaving_; })) {
      lock.unlock();
      (void)keepers_.ask({}, [this](const auto& channel, auto& context) {
        const auto stream = etcd::Lease::NewStub(channel)->LeaseKeepAlive(&context);
        etcd::LeaseKeepAliveRequest request;
        request.set_id(lease_);
        etcd::LeaseKeepAliveResponse response;
        if (stream->Write(request)) stream->Read(&response);
        stream->WritesDone();
        while (stream->Read(&response)) {
        }
        return stream->Finish();
      });
      lock.lock();
    }
  }

  void revoke() {
    etcd::LeaseRevokeRequest request;
    request.set_id(lease_);
    etcd::LeaseRevokeResponse response;
    (void)members_.ask({}, [&](const auto& channel, auto& context) {
      return etcd::Lease::NewStub(channel)->LeaseRevoke(&context, request, &response);
    });
  }

  const EtcdSettings settings_;
  const std::string office_, place_;  // keys
  Members members_, keepers_;         // used by the caller's thread; by the thread keeper_
  int64_t lease_ = 0;
  Facts facts_;
  bool written_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;
  std::thread keeper_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_etcd(const EtcdSettings& settings) {
  if (settings.lease < std::chrono::seconds(1)) return invalid("the lease is below a second");
  if (settings.endpoints.empty()) return invalid("no address of etcd is given");
  auto store = std::make_unique<EtcdStore>(settings);
  const Status opened = store->open();
  if (!opened.ok()) return opened.error();
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace tenuto
