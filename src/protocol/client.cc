#include "protocol/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "ir/text.h"
#include "protocol/addresses.h"
#include "protocol/connect.h"
#include "protocol/credentials.h"
#include "protocol/message.grpc.pb.h"
#include "protocol/message_size.h"
#include "protocol/prepare_grpc.h"
#include "protocol/wire.h"

namespace tenuto {
namespace {

using Stream = grpc::ClientReaderWriter<wire::Report, wire::Instruction>;

constexpr std::chrono::milliseconds kFarewell{500};

// The pause between two tries to reach the coordinator: the first one, and the longest.
constexpr std::chrono::milliseconds kFirstPause{5}, kLongestPause{100};
// The limit of one try: the other end may be a host that is gone.
constexpr std::chrono::seconds kTryLimit{2};
// A question is given up after so many tries to connect to each address.
constexpr size_t kTriesForQuestion = 5;

// The credentials of this end.
std::shared_ptr<grpc::ChannelCredentials> credentials_of(const Tls* tls) {
  if (tls == nullptr) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({tls->authority, tls->key, tls->certificate});
}

std::shared_ptr<grpc::Channel> channel_to(const std::string& address, const Tls* tls) {
  prepare_grpc();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // No pings that measure the connection's bandwidth: there would be one for almost every report, a
  // fifth of all packets, and messages are small.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Each channel tries at once, without the back-off of an earlier one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMostInstruction));
  if (tls != nullptr) arguments.SetSslTargetNameOverride(kCoordinatorName);
  return grpc::CreateCustomChannel(address, credentials_of(tls), arguments);
}

// Tries several times to connect, and returns the last channel. One failed try means little: gRPC
// at times gives up a connection to a server that listens, with "No such file or directory".
// Probably it reads errno after another system call has changed it.
std::shared_ptr<grpc::Channel> channel_for_question(const std::string& coordinator, const Tls* tls,
                                                    Duration limit) {
  const Duration end = monotonic_clock().now() + limit;
  const std::vector<std::string> addresses = addresses_in(coordinator);
  const size_t most_tries = kTriesForQuestion * addresses.size();
  // A host that is gone must leave time for the others.
  const Duration try_limit = addresses.size() > 1 ? std::min<Duration>(limit, kTryLimit) : limit;
  auto channel = channel_to(addresses.front(), tls);
  Duration pause = kFirstPause;
  for (size_t tries = 1; tries < most_tries; ++tries) {
    if (connects(*channel, std::min<Duration>(try_limit, end - monotonic_clock().now()))) break;
    if (monotonic_clock().now() + pause >= end) break;
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(2 * pause, kLongestPause);
    channel = channel_to(addresses[tries % addresses.size()], tls);
  }
  return channel;
}

// Distinguishes this process from another one that claims to be the same worker; never 0.
uint64_t random_instance() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

class GrpcClient : public Client {
 public:
  GrpcClient(const ClientSettings& settings, Mailbox& mailbox,
             std::function<void(const Error&)> ended)
      : settings_(settings),
        addresses_(addresses_in(settings.coordinator)),
        mailbox_(mailbox),
        ended_(std::move(ended)) {}

  ~GrpcClient() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    {
      std::unique_lock lock(mutex_);  // wait until the last report is sent, kFarewell at most
      changed_.wait_for(lock, kFarewell, [this] { return written_ || !state_.ok(); });
      if (context_ != nullptr) context_->TryCancel();
    }
    if (thread_.joinable()) thread_.join();
  }

  Status start(const Report& first) {
    auto channel = reach(monotonic_clock().now() + settings_.connect_limit);
    if (!channel) {
      return Error{
          Code::Disconnected, Reach::Job,
          cat("worker ", settings_.self, ": no coordinator answers at ", settings_.coordinator,
              ": check that it is running, that the port is right, and that it ",
              settings_.tls ? cat("has a certificate of the same authority as the one given here "
                                  "(--tls), for the name ",
                                  kCoordinatorName, ", and that both certificates are valid today")
                            : std::string("does not require certificates (--tls)"))};
    }
    heard_at_ = monotonic_clock().now();
    report(first);
    thread_ = std::thread(
        [this, channel = std::move(channel)]() mutable { converse(std::move(channel)); });
    return ok();
  }

  void report(Report report) override {
    {
      const std::lock_guard lock(mutex_);
      report.worker = settings_.self;
      report.incarnation = settings_.incarnation;
      report.sequence = report_.sequence + 1;
      report_ = std::move(report);
      fresh_ = true;
    }
    changed_.notify_all();
  }

  void cut_off(Duration limit) override {
    const std::lock_guard lock(mutex_);
    cut_until_ = std::max(cut_until_, monotonic_clock().now() + limit);
  }

  std::shared_ptr<const Told> told() const override {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  Status state() const override {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  // Connects, trying one address after the other, again and again; null when nobody answers in time
  // or this client is leaving.
  std::shared_ptr<grpc::Channel> reach(Duration end) {
    for (Duration pause = kFirstPause;; pause = std::min<Duration>(2 * pause, kLongestPause)) {
      {
        std::unique_lock lock(mutex_);
        wait_for_partition(lock);
      }
      auto channel = channel_to(addresses_[address_], settings_.tls.get());
      const Duration left = end - monotonic_clock().now();
      if (connects(*channel, std::min<Duration>(left, kTryLimit))) return channel;
      address_ = (address_ + 1) % addresses_.size();
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, pause, [this] { return leaving_; })) return nullptr;
      if (monotonic_clock().now() >= end) return nullptr;
    }
  }

  // Waits while an injected partition lasts.
  void wait_for_partition(std::unique_lock<std::mutex>& lock) {
    while (!leaving_ && monotonic_clock().now() < cut_until_) {
      changed_.wait_for(lock, cut_until_ - monotonic_clock().now());
    }
  }

  // Runs one stream after another, for as long as a coordinator comes back.
  void converse(std::shared_ptr<grpc::Channel> channel) {
    while (true) {
      std::optional<Error> error = talk(channel);
      Duration end{};
      {
        const std::lock_guard lock(mutex_);
        if (leaving_) return;
        const bool over = told_ && told_->instruction.directive.phase == Phase::Out;
        if (!over) end = heard_at_ + settings_.return_limit;
      }
      if (!error) {
        channel = monotonic_clock().now() < end ? reach(end) : nullptr;
        if (channel) continue;
        error = Error{Code::Disconnected, Reach::Job,
                      cat("worker ", settings_.self, ": the coordinator at ", settings_.coordinator,
                          " cannot be reached any more (", reason_, ")")};
      }
      return end_with(*error);
    }
  }

  void end_with(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (leaving_) return;
      state_ = error;
    }
    changed_.notify_all();
    mailbox_.post({.status = error});
    ended_(error);
  }

  // Runs one stream to its end. Returns the refusal, or what is wrong with an instruction; none =
  // the coordinator may come back.
  std::optional<Error> talk(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    {
      const std::lock_guard lock(mutex_);
      if (leaving_) return std::nullopt;
      context_ = &context;
      fresh_ = true;  // this coordinator may have heard nothing yet
    }
    show({settings_.job, settings_.token}, settings_.self, context);
    const auto stub = wire::Coordinator::NewStub(channel);
    const auto stream = stub->Converse(&context);
    bool over = false;
    std::thread writer([&] { write(*stream, over); });
    std::optional<Error> error = read(*stream);
    const bool ended = !error;
    if (ended) {
      // By the coordinator, and cancelling the call could replace the status that says why.
      const grpc::Status status = stream->Finish();
      error = refusal_in(status);
      reason_ = status.error_message();
    }
    {
      const std::lock_guard lock(mutex_);
      over = true;
    }
    changed_.notify_all();
    context.TryCancel();
    writer.join();
    if (!ended) (void)stream->Finish();
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
    return error;
  }

  // `over`: guarded by the mutex.
  void write(Stream& stream, const bool& over) {
    bool ended = false;  // by the coordinator
    const Duration begun = monotonic_clock().now();
    while (!ended) {
      wire::Report message;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, settings_.heartbeat, [&] { return fresh_ || leaving_ || over; });
        wait_for_partition(lock);
        if (over) return;
        if (!fresh_ && leaving_) break;  // the last report has been sent
        if (is_silent(begun)) break;
        fresh_ = false;
        message = to_wire(report_);
        message.set_instance(instance_);
        message.set_term(told_ ? told_->instruction.directive.term : 0);
      }
      ended = !stream.Write(message);
    }
    const std::lock_guard lock(mutex_);
    written_ = leaving_;
    // If the coordinator has ended the stream, the status says why; cancelling the call could lose
    // it.
    if (!leaving_ && !ended) context_->TryCancel();
    changed_.notify_all();
  }

  // Whether a stream that has begun then has been silent for too long. When the coordinator has
  // moved, the new one gets the same time again, but no more than return_limit in all.
  bool is_silent(Duration begun) const {
    const Duration now = monotonic_clock().now();
    return now - std::max(heard_at_, begun) > settings_.silence_limit ||
           now - heard_at_ > std::max(settings_.silence_limit, settings_.return_limit);
  }

  std::optional<Error> read(Stream& stream) {
    wire::Instruction message;
    while (stream.Read(&message)) {
      const std::string fault = take(message);
      if (!fault.empty()) return Error{Code::Invalid, Reach::Job, fault};
    }
    return std::nullopt;
  }

  // Keeps an instruction. Returns a sentence when it cannot be understood, else nothing.
  std::string take(const wire::Instruction& message) {
    auto next = std::make_shared<Told>();
    next->instruction = from_wire(message);
    if (!message.plan().empty()) {
      Result<Plan> plan = plan_from_json(message.plan(), "the coordinator's plan");
      if (!plan.ok()) return plan.error().message;
      next->plan = std::make_shared<const Plan>(std::move(plan).value());
    }
    if (message.has_rest()) {
      RestOfStep rest = from_wire(message.rest());
      Result<Plan> plan = plan_from_json(message.rest().plan(), "what is left of a step");
      if (!plan.ok()) return plan.error().message;
      rest.plan = std::move(plan).value();
      next->rest = std::make_shared<const RestOfStep>(std::move(rest));
    }
    if (!message.job_toml().empty()) {
      next->job_toml = std::make_shared<const std::string>(message.job_toml());
    }
    const auto age = [](const Instruction& of) {
      return std::pair(of.directive.term, of.sequence);
    };
    {
      std::unique_lock lock(mutex_);
      wait_for_partition(lock);
      // Ignore a coordinator whose successor has sent an instruction already.
      if (told_ && next->instruction.directive.term < told_->instruction.directive.term) return {};
      heard_at_ = monotonic_clock().now();
      if (told_) {
        const bool repeated = age(next->instruction) <= age(told_->instruction);
        if (repeated) return {};
        if (!next->plan) next->plan = told_->plan;
        if (!next->rest) next->rest = told_->rest;
        if (!next->job_toml) next->job_toml = told_->job_toml;
      }
      told_ = std::move(next);
    }
    mailbox_.post({});
    return {};
  }

  const ClientSettings settings_;
  const std::vector<std::string> addresses_;
  size_t address_ = 0;  // the one that is tried next; of start(), then of the thread alone
  Mailbox& mailbox_;
  const std::function<void(const Error&)> ended_;
  const uint64_t instance_ = random_instance();
  std::string reason_;        // why the last stream ended; of the thread alone
  mutable std::mutex mutex_;  // guards all below but the thread; nothing is locked under it
  std::condition_variable changed_;
  grpc::ClientContext* context_ = nullptr;  // of the present stream
  Report report_;
  bool fresh_ = false, leaving_ = false, written_ = false;
  Duration heard_at_{};
  Duration cut_until_{};  // the end of an injected partition
  std::shared_ptr<const Told> told_;
  Status state_ = ok();
  std::thread thread_;  // the last member: it uses all of the others
};

}  // namespace

Result<std::unique_ptr<Client>> connect_client(const ClientSettings& settings, const Report& first,
                                               Mailbox& mailbox,
                                               std::function<void(const Error&)> ended) {
  auto client = std::make_unique<GrpcClient>(settings, mailbox, std::move(ended));
  const Status started = client->start(first);
  if (!started.ok()) return started.error();
  return std::unique_ptr<Client>(std::move(client));
}

Result<std::string> ask_coordinator(const std::string& address, const std::string& job,
                                    const std::string& token, const std::string& text,
                                    Duration limit, const Tls* tls) {
  const auto end = std::chrono::system_clock::now() + limit;
  const auto stub = wire::Coordinator::NewStub(channel_for_question(address, tls, limit));
  grpc::ClientContext context;
  context.set_deadline(end);
  show({job, token}, {}, context);
  wire::Question question;
  question.set_text(text);
  wire::Answer answer;
  const auto asking = stub->Ask(&context, &answer);
  asking->WriteLast(question, grpc::WriteOptions());
  const grpc::Status status = asking->Finish();
  if (const auto refusal = refusal_in(status)) return invalid(refusal->message);
  if (!status.ok()) {
    return Error{Code::Disconnected, Reach::Job,
                 cat("the coordinator of job '", job, "' at ", address, " does not answer (",
                     status.error_message(), "): check whether the run has ended")};
  }
  if (!answer.failure().empty()) return invalid(answer.failure());
  return answer.text();
}

}  // namespace tenuto
