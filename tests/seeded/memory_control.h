// For tests: control messages in memory, in place of gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/mailbox.h"
#include "control/server.h"
#include "protocol/client.h"

namespace tenuto {

class MemoryClient;
class MemoryServer;

// What carries the messages between workers and coordinator.
class MemoryControl {
 public:
  virtual ~MemoryControl() = default;
  // The worker's side. A worker has one incarnation at a time.
  virtual void enter(MemoryClient& client) = 0;
  virtual void leave(MemoryClient& client) = 0;
  virtual void say(const Report& report) = 0;
  // The coordinator's side.
  virtual void open(MemoryServer& server) = 0;
  virtual void close() = 0;
  virtual std::vector<std::variant<Report, StreamEnded>> take() = 0;
  virtual void tell(const Instruction& instruction, const std::string& plan) = 0;
};

// A worker's end of the conversation.
class MemoryClient : public Client {
 public:
  MemoryClient(MemoryControl& control, const ClientSettings& settings, Report first,
               Mailbox& mailbox)
      : control_(control),
        self_(settings.self),
        incarnation_(settings.incarnation),
        mailbox_(mailbox) {
    control_.enter(*this);
    report(std::move(first));
  }
  ~MemoryClient() override { control_.leave(*this); }

  void report(Report report) override {
    report.worker = self_;
    report.incarnation = incarnation_;
    report.sequence = ++sequence_;
    if (const auto now = told(); now) report.term = now->instruction.directive.term;
    control_.say(report);
  }
  void cut_off(Duration) override {}
  std::shared_ptr<const Told> told() const override {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  Status state() const override {
    const std::lock_guard lock(mutex_);
    return state_;
  }

  WorkerId self() const { return self_; }
  int32_t incarnation() const { return incarnation_; }
  // As in the real client, the newest instruction of the highest term counts.
  void hear(Told next) {
    const auto age = [](const Instruction& of) {
      return std::pair(of.directive.term, of.sequence);
    };
    {
      const std::lock_guard lock(mutex_);
      if (told_ && age(next.instruction) <= age(told_->instruction)) return;
      if (told_ && !next.rest) next.rest = told_->rest;
      told_ = std::make_shared<const Told>(std::move(next));
    }
    mailbox_.post({});
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      state_ = Error{Code::Disconnected, Reach::Job, "this process has ended"};
    }
    mailbox_.post({});
  }

 private:
  MemoryControl& control_;
  const WorkerId self_;
  const int32_t incarnation_;
  Mailbox& mailbox_;
  int64_t sequence_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<const Told> told_;
  Status state_ = ok();
};

// The coordinator's end.
class MemoryServer : public Server {
 public:
  MemoryServer(MemoryControl& control, std::function<void()> wake)
      : control_(control), wake_(std::move(wake)) {
    control_.open(*this);
  }
  ~MemoryServer() override { control_.close(); }
  const std::string& address() const override { return address_; }
  std::vector<std::variant<Report, StreamEnded>> take() override { return control_.take(); }
  std::vector<Question> take_questions() override { return {}; }
  void answer(int64_t, const std::string&, const std::string&) override {}
  void tell(const Instruction& instruction, const std::string& plan) override {
    control_.tell(instruction, plan);
  }
  void repeat(Duration) override {}
  void wake() const { wake_(); }

 private:
  MemoryControl& control_;
  const std::string address_ = "memory:1";
  const std::function<void()> wake_;
};

}  // namespace tenuto
