// The other process of real_wire_test: connects as worker 1 to the given address and does one thing
// until it is killed. wire_peer ADDRESS idle|stream|listen tcp|ucx [AUTHORITY CERTIFICATE KEY]
#include <sys/prctl.h>

#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/ucx.h"

namespace {

constexpr int kCount = 8;
constexpr size_t kSize = 16 << 20;
constexpr size_t kSmall = 32 << 10;  // fits into the socket buffers of a stopped process

// `tls`: none, or three PEM texts.
std::unique_ptr<tenuto::Transport> make_wire(const std::string& kind, std::span<char*> tls,
                                             tenuto::Mailbox& mailbox) {
  const tenuto::Hello hello{"tale", "secret", tenuto::kWireVersion, tenuto::WorkerId{1}, 0};
  if (kind == "tcp") {
    tenuto::TcpSettings settings;
    if (!tls.empty()) {
      settings.tls = std::make_shared<const tenuto::Tls>(tenuto::Tls{tls[0], tls[1], tls[2]});
    }
    auto made = tenuto::make_tcp_transport(settings, hello, mailbox);
    if (made.ok()) return std::move(made).value();
  } else {
    auto made = tenuto::make_ucx_transport({}, hello, mailbox);
    if (made.ok()) return std::move(made).value();
  }
  return nullptr;
}

}  // namespace

int main(int count, char** arguments) {
  using namespace tenuto;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (count != 4 && count != 7) return 2;
  QueueMailbox mailbox;
  const auto made = make_wire(arguments[3], std::span(arguments, count).subspan(4), mailbox);
  if (made == nullptr) return 1;
  Transport& wire = *made;
  if (!wire.connect(WorkerId{0}, {arguments[1]}, Ticket{1}).ok()) return 1;
  const auto done = mailbox.wait(std::chrono::seconds(20));
  if (!done.ok() || !done.value().status.ok()) return 1;
  const std::vector<std::byte> bytes(kSize);
  std::vector<std::vector<std::byte>> buffer(kCount, std::vector<std::byte>(kSize));
  uint64_t ticket = 1;
  // "listen" first grants one message. Then all modes send a message that says that the connection
  // works; "stream" goes on with large sends and receives.
  const bool listens = std::string(arguments[2]) == "listen";
  const std::span<std::byte> one(buffer[0].data(), kSmall);
  if (listens) static_cast<void>(wire.recv(WorkerId{0}, {0, 0, 0}, one, Ticket{++ticket}));
  static_cast<void>(wire.send(WorkerId{0}, {0, 0, 1000}, {bytes.data(), 1}, {}, Ticket{++ticket}));
  if (std::string(arguments[2]) == "stream") {
    for (int i = 0; i < kCount; ++i) {
      const Tag tag{0, 0, static_cast<uint64_t>(i)};
      static_cast<void>(wire.recv(WorkerId{0}, tag, buffer[i], Ticket{++ticket}));
      static_cast<void>(wire.send(WorkerId{0}, tag, bytes, {}, Ticket{++ticket}));
    }
  }
  for (int i = 0; i < 600; ++i) {
    static_cast<void>(mailbox.wait(std::chrono::milliseconds(100)));
  }
  return 0;
}
