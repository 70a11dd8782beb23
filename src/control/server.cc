#include "control/server.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "control/refused_calls.h"
#include "ir/text.h"
#include "protocol/credentials.h"
#include "protocol/message.grpc.pb.h"
#include "protocol/message_size.h"
#include "protocol/prepare_grpc.h"
#include "protocol/wire.h"

namespace tenuto {
namespace {

constexpr int kNoLimit = -1;  // for gRPC
// The most calls that one connection may have under way; a worker and a command have one each.
constexpr int kMostCallsOfAConnection = 16;
// The most questions that are read or answered at the same time; others wait unread.
constexpr size_t kMostQuestions = 256;
// A connection must have become one of gRPC after this time...
constexpr int kHandshakeMs = 5'000;
// ... and is closed after so long a time without a call.
constexpr int kIdleMs = 30'000;
// At most so many events of the queue are handled before the coordinator is woken.
constexpr size_t kMostAtOnce = 64;
// Time for the last instructions to leave when the server ends.
constexpr std::chrono::milliseconds kFarewell{200};

struct Stream;

struct Asking;

// What has happened when the queue yields a token. Opened, Read, Written, Finished: this call of a
// stream has ended. Called, Asked, Answered: somebody wants to ask, the question has been read, or
// its answer has been sent. Told: there is something to write. Late: a refusal takes too long.
enum class Happening : uint8_t {
  Opened,
  Read,
  Written,
  Finished,
  Told,
  Late,
  Called,
  Asked,
  Answered
};
struct Token {
  Stream* stream;  // null for Told, Late and questions
  Happening happening;
  Asking* asking = nullptr;
};

// One question. Lives until its answer has left.
struct Asking {
  int64_t id = 0;
  bool refused = false;  // its caller does not belong to the job
  grpc::ServerContext context;
  wire::Question question;
  grpc::ServerAsyncReader<wire::Answer, wire::Question> call{&context};
  std::optional<std::pair<std::string, std::string>> reply;  // to be sent: text, failure
  Token called{nullptr, Happening::Called, this}, asked{nullptr, Happening::Asked, this},
      answered{nullptr, Happening::Answered, this};
};

// One worker's stream. Lives until none of its calls is pending.
struct Stream {
  grpc::ServerContext context;
  grpc::ServerAsyncReaderWriter<wire::Instruction, wire::Report> call{&context};
  Token opened{this, Happening::Opened}, read{this, Happening::Read},
      written{this, Happening::Written}, finished{this, Happening::Finished};
  wire::Report incoming;
  int pending = 0;
  bool writing = false, finishing = false, reading_over = false;
  bool replaced = false;                    // its worker has a later stream
  bool settings_told = false, due = false;  // due: the newest instruction is to be written
  int64_t plan_told = 0;                    // serial of the newest plan that was written
  std::optional<Report> last;               // the newest; the worker is admitted with its first
  uint64_t instance = 0;                    // of the process at the other end
};

// Why a worker may not take part; empty = it may.
struct Refusal {
  std::string sentence;
  bool for_now = false;  // it may try again later
};

// The server's credentials. Without TLS anybody may connect; with it, only those who show a
// certificate of the authority.
std::shared_ptr<grpc::ServerCredentials> credentials_of(const Tls* tls) {
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls->authority;
  options.pem_key_cert_pairs.push_back({tls->key, tls->certificate});
  return grpc::SslServerCredentials(options);
}

class GrpcServer : public Server {
 public:
  GrpcServer(const ServerSettings& settings, std::function<void()> wake)
      : settings_(settings), wake_(std::move(wake)) {}

  ~GrpcServer() override {
    {
      std::unique_lock lock(mutex_);
      told_.wait_for(lock, kFarewell, [this] { return !telling_; });
      closing_ = true;  // a queue that is shut down takes no new calls
    }
    alarm_.Cancel();
    late_alarm_.Cancel();
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + kFarewell);
    if (queue_) queue_->Shutdown();
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    prepare_grpc();
    grpc::ServerBuilder builder;
    int port = 0;
    // No grpc::ResourceQuota: when its memory is used up gRPC ends any call, a worker's, too. The
    // calls of strangers are refused at once, and their connections end after kIdleMs.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // see channel_to() of protocol/client
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfAConnection);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMostReport));
    builder.SetMaxSendMessageSize(kNoLimit);
    builder.AddListeningPort(settings_.listen, credentials_of(settings_.tls.get()), &port);
    builder.RegisterService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0) {
      return invalid(
          cat("cannot listen on ", settings_.listen,
              " (coordinator.listen): the port is taken or the host is not this one; "
              "port 0 takes any free one",
              settings_.tls ? "; or cert.pem and key.pem of coordinator.tls are no pair" : ""));
    }
    const size_t colon = settings_.listen.rfind(':');
    address_ = cat(settings_.listen.substr(0, colon), ":", port);
    open_next();
    listen_for_question();
    thread_ = std::thread([this] { serve(); });
    return ok();
  }

  const std::string& address() const override { return address_; }

  std::vector<std::variant<Report, StreamEnded>> take() override {
    const std::lock_guard lock(mutex_);
    std::vector<std::variant<Report, StreamEnded>> all;
    for (auto& [worker, report] : reports_) all.emplace_back(std::move(report));
    for (const StreamEnded& ended : ended_) all.emplace_back(ended);
    reports_.clear();
    ended_.clear();
    return all;
  }

  std::vector<Question> take_questions() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(questions_, {});
  }

  void answer(int64_t question, const std::string& text, const std::string& failure) override {
    const std::lock_guard lock(mutex_);
    for (const auto& asking : askings_) {
      if (asking->id == question) asking->reply = std::pair(text, failure);
    }
    write_soon();
  }

  void tell(const Instruction& instruction, const std::string& plan) override {
    const std::lock_guard lock(mutex_);
    const bool left = instruction.rest && (!instruction_ || instruction_->rest != instruction.rest);
    if (left) rest_plan_ = to_json(instruction.rest->plan);
    instruction_ = instruction;
    if (!plan.empty()) plan_ = plan;
    write_soon();
  }

  void repeat(Duration quiet) override {
    const std::lock_guard lock(mutex_);
    if (monotonic_clock().now() - told_at_ >= quiet) write_soon();
  }

 private:
  // Only the thread that serves the queue makes calls of a stream or a question, so that no two
  // threads ever touch one call's buffers; other threads set an alarm for it here. Lock held.
  void write_soon() {
    if (telling_ || closing_) return;
    telling_ = true;
    told_at_ = monotonic_clock().now();
    alarm_.Set(queue_.get(), std::chrono::system_clock::now(), &tell_token_);
  }

  // Makes a stream for the next worker that connects. Lock held, or not yet serving.
  void open_next() {
    if (closing_) return;
    streams_.push_back(std::make_unique<Stream>());
    Stream* stream = streams_.back().get();
    stream->pending = 1;
    service_.RequestConverse(&stream->context, &stream->call, queue_.get(), queue_.get(),
                             &stream->opened);
  }

  // Gets ready for the next question, if there are not too many; those of strangers do not count.
  // Lock held, or not yet serving.
  void listen_for_question() {
    const auto of_the_job = std::count_if(askings_.begin(), askings_.end(),
                                          [](const auto& asking) { return !asking->refused; });
    if (closing_ || listening_ || static_cast<size_t>(of_the_job) >= kMostQuestions) return;
    listening_ = true;
    askings_.push_back(std::make_unique<Asking>());
    Asking* asking = askings_.back().get();
    asking->id = ++last_question_;
    service_.RequestAsk(&asking->context, &asking->call, queue_.get(), queue_.get(),
                        &asking->called);
  }

  // True when the coordinator has to answer.
  bool handle_question(const Token& token, bool succeeded) {
    Asking& asking = *token.asking;
    if (token.happening == Happening::Called) listening_ = false;
    const bool over = token.happening == Happening::Answered || !succeeded;
    const bool called = token.happening == Happening::Called && succeeded;
    const std::string refusal = called ? refusal_of(asking.context, expected_) : std::string();
    asking.refused |= !refusal.empty();
    if (over) {
      refused_.remove(&asking);
      std::erase_if(askings_, [&](const auto& of) { return of.get() == &asking; });
    }
    listen_for_question();
    if (over) return false;
    if (token.happening == Happening::Asked) {
      questions_.push_back({asking.id, asking.question.text()});
      return true;
    }
    if (closing_) return false;
    if (asking.refused) {
      asking.call.FinishWithError(refusal_status(refusal), &asking.answered);
      keep_refused(&asking, asking.context);
    } else {
      asking.call.Read(&asking.question, &asking.asked);
    }
    return false;
  }

  // Cancels a call that has been refused if its refusal cannot be sent within RefusedCalls::kLimit.
  // Lock held.
  void keep_refused(const void* call, const grpc::ServerContext& context) {
    refused_.add(
        call, [&context] { context.TryCancel(); }, monotonic_clock().now());
    watch_refused();
  }

  // Sets the alarm for the next refusal that will be late. Lock held.
  void watch_refused() {
    if (watching_ || closing_ || refused_.next() == Duration::max()) return;
    watching_ = true;
    const Duration left = refused_.next() - monotonic_clock().now();
    late_alarm_.Set(queue_.get(), std::chrono::system_clock::now() + left, &late_token_);
  }

  // Lock held.
  void reply(Asking& asking, const std::string& text, const std::string& failure) {
    if (closing_) return;
    wire::Answer answer;
    answer.set_text(text);
    answer.set_failure(failure);
    asking.call.Finish(answer, grpc::Status::OK, &asking.answered);
  }

  void serve() {
    void* token = nullptr;
    bool succeeded = false;
    while (queue_->Next(&token, &succeeded)) {
      bool news = handle(*static_cast<Token*>(token), succeeded);
      // Workers end a step at almost the same time: the coordinator is woken once for all reports
      // that have come.
      for (size_t more = 0; more < kMostAtOnce && take_next(token, succeeded); ++more) {
        news |= handle(*static_cast<Token*>(token), succeeded);
      }
      if (news) wake_();
    }
  }

  // Takes the next event of the queue if there is one now.
  bool take_next(void*& token, bool& succeeded) {
    return queue_->AsyncNext(&token, &succeeded, std::chrono::system_clock::time_point()) ==
           grpc::CompletionQueue::GOT_EVENT;
  }

  bool handle(const Token& token, bool succeeded) {
    const std::lock_guard lock(mutex_);
    if (token.asking != nullptr) return handle_question(token, succeeded);
    if (token.happening == Happening::Told) {
      for (const auto& stream : streams_) write(*stream);
      for (const auto& asking : askings_) {
        if (!asking->reply) continue;
        const auto [text, failure] = *std::exchange(asking->reply, std::nullopt);
        reply(*asking, text, failure);
      }
      telling_ = false;
      told_.notify_all();
      return false;
    }
    if (token.happening == Happening::Late) {
      watching_ = false;
      if (succeeded) refused_.cancel_late(monotonic_clock().now());
      watch_refused();
      return false;
    }
    Stream& stream = *token.stream;
    stream.pending -= 1;
    bool news = false;
    switch (token.happening) {
      case Happening::Opened:
        if (succeeded) {
          open_next();
          greet(stream);
        }
        break;
      case Happening::Read:
        news = succeeded ? heard(stream) : hung_up(stream);
        break;
      case Happening::Written:
        stream.writing = false;
        if (stream.due && succeeded) write(stream);
        break;
      case Happening::Finished:
        refused_.remove(&stream);
        break;
      case Happening::Told:
      case Happening::Late:
      case Happening::Called:
      case Happening::Asked:
      case Happening::Answered:
        break;
    }
    if (stream.pending == 0) {
      std::erase_if(streams_, [&](const auto& of) { return of.get() == &stream; });
    }
    return news;
  }

  // Reads nothing from a process that does not belong to the job.
  void greet(Stream& stream) {
    const std::string refusal = refusal_of(stream.context, expected_);
    if (refusal.empty()) return read(stream);
    refuse(stream, {refusal});
    hung_up(stream);
  }

  void read(Stream& stream) {
    if (closing_) return;
    stream.pending += 1;
    stream.call.Read(&stream.incoming, &stream.read);
  }

  bool heard(Stream& stream) {
    const Refusal refusal = refusal_in(stream);
    if (!refusal.sentence.empty()) {
      refuse(stream, refusal);
      return hung_up(stream);
    }
    const bool first = !stream.last;
    if (first) replace_others(stream);
    stream.last = from_wire(stream.incoming);
    stream.instance = stream.incoming.instance();
    reports_[stream.last->worker.value] = *stream.last;
    if (first) write(stream);
    read(stream);
    return true;
  }

  Refusal refusal_in(const Stream& stream) {
    const int32_t worker = stream.incoming.worker();
    if (worker < 0 || worker >= settings_.worker_count) {
      return {cat("there is no worker ", worker, " in job '", settings_.job, "': it has ",
                  settings_.worker_count, ", numbered from 0")};
    }
    if (stream.last && stream.last->worker.value != worker) {
      return {cat("worker ", stream.last->worker, " sent a report as worker ", worker)};
    }
    for (const auto& other : streams_) {
      if (is_earlier(*other, stream) && !is_same_process(*other, stream) && has_place(*other)) {
        return {cat("worker ", worker, " of job '", settings_.job,
                    "' is already connected: start each worker number once"),
                true};
      }
    }
    return {};
  }

  // False when the run goes on without the process at the other end of the stream. Its connection
  // may stay open for long after its host is gone.
  bool has_place(const Stream& stream) const {
    if (!instruction_) return true;
    const WorkerId worker = stream.last->worker;
    const auto& members = instruction_->directive.members;
    for (size_t i = 0; i < members.size() && i < instruction_->incarnations.size(); ++i) {
      const int32_t incarnation = instruction_->incarnations[i];
      if (members[i] == worker) return incarnation < 0 || incarnation == stream.last->incarnation;
    }
    return std::any_of(instruction_->joiners.begin(), instruction_->joiners.end(),
                       [&](const Joiner& of) {
                         return of.worker == worker && of.incarnation == stream.last->incarnation;
                       });
  }

  // True when `other` is an open stream of the same worker as `stream`.
  static bool is_earlier(const Stream& other, const Stream& stream) {
    return &other != &stream && other.last && !other.reading_over &&
           other.last->worker.value == stream.incoming.worker();
  }

  static bool is_same_process(const Stream& other, const Stream& stream) {
    return other.instance != 0 && other.instance == stream.incoming.instance();
  }

  // Drops the worker's other streams: it may come back before its broken stream is known to have
  // ended.
  void replace_others(const Stream& stream) {
    for (const auto& other : streams_) {
      if (!is_earlier(*other, stream)) continue;
      other->replaced = true;
      other->context.TryCancel();
    }
    std::erase_if(ended_, [&](const StreamEnded& ended) {
      return ended.worker.value == stream.incoming.worker() &&
             ended.incarnation == stream.incoming.incarnation();
    });
  }

  void refuse(Stream& stream, const Refusal& refusal) {
    if (stream.finishing || closing_) return;
    stream.finishing = true;
    stream.pending += 1;
    stream.call.Finish(refusal_status(refusal.sentence, refusal.for_now), &stream.finished);
    keep_refused(&stream, stream.context);
  }

  bool hung_up(Stream& stream) {
    stream.reading_over = true;
    if (!stream.finishing && !closing_) {
      stream.finishing = true;
      stream.pending += 1;
      stream.call.Finish(grpc::Status::OK, &stream.finished);
    }
    if (!stream.last || stream.replaced) return false;
    ended_.push_back({stream.last->worker, stream.last->incarnation});
    return true;
  }

  void write(Stream& stream) {
    if (!stream.last || stream.finishing || closing_ || !instruction_) return;
    stream.due = stream.writing;
    if (stream.writing) return;
    wire::Instruction message = to_wire(*instruction_);
    write_hosted(instruction_->hosted, stream.last->worker, stream.last->incarnation, &message);
    if (!stream.settings_told) message.set_job_toml(settings_.job_toml);
    if (stream.plan_told != instruction_->plan_serial) {
      message.set_plan(plan_);
      if (instruction_->rest) {
        message.mutable_rest()->set_plan(rest_plan_);
        write_rest(*instruction_->rest, stream.last->worker, message.mutable_rest());
      }
    }
    stream.settings_told = true;
    stream.plan_told = instruction_->plan_serial;
    stream.writing = true;
    stream.pending += 1;
    stream.call.Write(message, &stream.written);
  }

  const ServerSettings settings_;
  const Credentials expected_{settings_.job, settings_.token};
  const std::function<void()> wake_;
  std::string address_;
  wire::Coordinator::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  // Guards all below and every Stream. gRPC's own locks may be taken while it is held; wake_ is not
  // called then.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::map<int32_t, Report> reports_;  // at most one per worker
  std::vector<StreamEnded> ended_;     // at most one per admitted stream since the last take
  std::vector<std::unique_ptr<Asking>> askings_;
  std::vector<Question> questions_;  // not yet taken
  int64_t last_question_ = 0;
  bool listening_ = false;  // for the next question
  RefusedCalls refused_;    // of streams and questions
  bool watching_ = false;   // late_alarm_ is set: its token has not come back yet
  std::optional<Instruction> instruction_;
  std::string plan_;       // of the newest serial
  std::string rest_plan_;  // of instruction_->rest
  bool closing_ = false;
  Duration told_at_{};    // when the newest instruction was last sent
  bool telling_ = false;  // the alarm is set: its token has not come back yet
  std::condition_variable told_;
  Token tell_token_{nullptr, Happening::Told}, late_token_{nullptr, Happening::Late};
  grpc::Alarm alarm_, late_alarm_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Server>> start_server(const ServerSettings& settings,
                                             std::function<void()> wake) {
  auto server = std::make_unique<GrpcServer>(settings, std::move(wake));
  const Status started = server->start();
  if (!started.ok()) return started.error();
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace tenuto
