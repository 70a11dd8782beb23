#include "control/client.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "control/message.grpc.pb.h"
#include "control/wire.h"
#include "ir/text.h"

namespace tenuto {
namespace {

constexpr int kMessageLimit = 64 << 20;
constexpr std::chrono::milliseconds kFarewell{500};

std::shared_ptr<grpc::Channel> channel_to(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMessageLimit);
  arguments.SetMaxSendMessageSize(kMessageLimit);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

class GrpcClient : public Client {
 public:
  GrpcClient(const ClientSettings& settings, Mailbox& mailbox,
             std::function<void(const std::string&)> ended)
      : settings_(settings), mailbox_(mailbox), ended_(std::move(ended)) {}

  ~GrpcClient() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    {
      std::unique_lock lock(mutex_);  // what was said last may take so long to leave
      changed_.wait_for(lock, kFarewell, [this] { return written_ || !state_.ok(); });
    }
    if (reader_.joinable()) {
      context_.TryCancel();
      reader_.join();
      writer_.join();
    }
  }

  Status start(const Report& first) {
    const auto channel = channel_to(settings_.coordinator);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + settings_.connect_limit)) {
      return Error{Code::Disconnected, Reach::Job,
                   cat("worker ", settings_.self, ": no coordinator answers at ",
                       settings_.coordinator, ": is it running, and is the port the right one?")};
    }
    stub_ = wire::Coordinator::NewStub(channel);
    stream_ = stub_->Converse(&context_);
    heard_at_ = monotonic_clock().now();
    report(first);
    writer_ = std::thread([this] { write(); });
    reader_ = std::thread([this] { read(); });
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

  std::shared_ptr<const Told> told() const override {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  Status state() const override {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  void write() {
    const Credentials credentials{settings_.job, settings_.token};
    while (true) {
      wire::Report message;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, settings_.heartbeat, [this] { return fresh_ || leaving_; });
        if (!fresh_ && leaving_) break;  // what was said last has been sent
        if (!state_.ok()) break;
        if (monotonic_clock().now() - heard_at_ > settings_.silence_limit) break;
        fresh_ = false;
        message = to_wire(report_, credentials);
      }
      if (!stream_->Write(message)) break;
    }
    const std::lock_guard lock(mutex_);
    written_ = true;
    if (!leaving_) context_.TryCancel();
    changed_.notify_all();
  }

  void read() {
    wire::Order message;
    std::string sentence;
    while (sentence.empty() && stream_->Read(&message)) {
      sentence = message.refusal().empty() ? take(message) : message.refusal();
    }
    context_.TryCancel();
    const grpc::Status status = stream_->Finish();
    if (sentence.empty()) {
      sentence = cat("worker ", settings_.self, ": the coordinator at ", settings_.coordinator,
                     " is gone (", status.error_message(), ")");
    }
    {
      const std::lock_guard lock(mutex_);
      if (leaving_) return;
      state_ = Error{Code::Disconnected, Reach::Job, sentence};
    }
    changed_.notify_all();
    mailbox_.post({.status = Error{Code::Disconnected, Reach::Job, sentence}});
    ended_(sentence);
  }

  // Keeps what was told; the sentence of a message that cannot be understood, else empty.
  std::string take(const wire::Order& message) {
    auto next = std::make_shared<Told>();
    next->instruction = from_wire(message);
    if (!message.plan().empty()) {
      Result<Plan> plan = plan_from_json(message.plan(), "the coordinator's plan");
      if (!plan.ok()) return plan.error().message;
      next->plan = std::make_shared<const Plan>(std::move(plan).value());
    }
    if (!message.job_toml().empty()) {
      next->job_toml = std::make_shared<const std::string>(message.job_toml());
    }
    {
      const std::lock_guard lock(mutex_);
      heard_at_ = monotonic_clock().now();
      if (told_) {
        const bool repeated = next->instruction.sequence <= told_->instruction.sequence;
        if (repeated) return {};
        if (!next->plan) next->plan = told_->plan;
        if (!next->job_toml) next->job_toml = told_->job_toml;
      }
      told_ = std::move(next);
    }
    mailbox_.post({});
    return {};
  }

  const ClientSettings settings_;
  Mailbox& mailbox_;
  const std::function<void(const std::string&)> ended_;
  grpc::ClientContext context_;
  std::unique_ptr<wire::Coordinator::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::Report, wire::Order>> stream_;
  mutable std::mutex mutex_;  // guards all below but the threads; nothing is locked under it
  std::condition_variable changed_;
  Report report_;
  bool fresh_ = false, leaving_ = false, written_ = false;
  Duration heard_at_{};
  std::shared_ptr<const Told> told_;
  Status state_ = ok();
  std::thread writer_, reader_;
};

}  // namespace

Result<std::unique_ptr<Client>> connect_client(const ClientSettings& settings, const Report& first,
                                               Mailbox& mailbox,
                                               std::function<void(const std::string&)> ended) {
  auto client = std::make_unique<GrpcClient>(settings, mailbox, std::move(ended));
  const Status started = client->start(first);
  if (!started.ok()) return started.error();
  return std::unique_ptr<Client>(std::move(client));
}

Result<std::string> ask_coordinator(const std::string& address, const std::string& job,
                                    const std::string& token, const std::string& text,
                                    Duration limit) {
  const auto stub = wire::Coordinator::NewStub(channel_to(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  wire::Question question;
  question.set_job(job);
  question.set_token(token);
  question.set_protocol(kProtocol);
  question.set_text(text);
  wire::Answer answer;
  const grpc::Status status = stub->Ask(&context, question, &answer);
  if (!status.ok()) {
    return Error{Code::Disconnected, Reach::Job,
                 cat("the coordinator of job '", job, "' at ", address, " does not answer (",
                     status.error_message(), "): has the run ended?")};
  }
  if (!answer.failure().empty()) return invalid(answer.failure());
  return answer.text();
}

}  // namespace tenuto
