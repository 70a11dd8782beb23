#include "run/notice.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace tenuto {

Notice to_notice(const Exited& exited) {
  Notice notice{.kind = Notice::Kind::Exited,
                .signalled = exited.signalled,
                .worker = exited.worker.value,
                .number = exited.number};
  const size_t count = std::min(exited.last_words.size(), sizeof(notice.words) - 1);
  std::copy_n(exited.last_words.data(), count, notice.words);
  return notice;
}

Exited from_notice(const Notice& notice) {
  return {{notice.worker}, notice.signalled, notice.number, notice.words};
}

Post& Post::operator=(Post&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Post::~Post() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<std::pair<Post, Post>> Post::make_pair() {
  int both[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) != 0) {
    return Error{Code::Exhausted, Reach::Job,
                 cat("cannot join launcher and coordinator: ", std::strerror(errno))};
  }
  return std::pair(Post(both[0]), Post(both[1]));
}

bool Post::send(const Notice& notice, bool wait) const {
  while (true) {
    const int how = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
    if (::send(descriptor_, &notice, sizeof(notice), how) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

std::vector<Notice> Post::take() const {
  std::vector<Notice> all;
  Notice notice;
  while (recv(descriptor_, &notice, sizeof(notice), MSG_DONTWAIT) == sizeof(notice)) {
    all.push_back(notice);
  }
  return all;
}

}  // namespace tenuto
