#include "run/token.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "transport/bytes.h"

namespace tenuto {
namespace {

Error refusal(std::string sentence) { return {Code::Invalid, Reach::Job, std::move(sentence)}; }

}  // namespace

std::string random_token() {
  unsigned char bytes[16];
  CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "the kernel gives random bytes");
  std::string text;
  for (const unsigned char byte : bytes) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", byte);
    text += pair;
  }
  return text;
}

Status check_token(const std::string& token, const std::string& where) {
  const bool plain =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; });
  if (token.size() <= kFrameText && plain) return ok();
  return refusal(cat(where, " holds a token of ", token.size(), " bytes",
                     plain ? "" : ", not all of them printable ASCII",
                     ": expected one line of at most ", kFrameText,
                     " letters, digits and signs without spaces"));
}

std::string token_in_environment() {
  const char* token = std::getenv("TENUTO_TOKEN");
  return token == nullptr ? std::string() : std::string(token);
}

Result<std::string> read_token(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) {
    return refusal(cat("cannot read the token file ", file, " (--token-file): ",
                       std::strerror(errno), "; copy the coordinator's token file to this host"));
  }
  if (!S_ISREG(status.st_mode)) {
    return refusal(cat("the token file ", file, " (--token-file) is ",
                       S_ISDIR(status.st_mode) ? "a folder" : "not a regular file",
                       ": expected a file with one line"));
  }
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if ((status.st_mode & kOthers) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(status.st_mode & 07777));
    return refusal(cat("the token file ", file,
                       " (--token-file) can be read or written by others than its ", "owner (mode ",
                       mode, "), and a token is a secret: chmod 600 ", file));
  }
  Result<std::string> text = read_file(file);
  if (!text.ok()) return text;
  std::string& token = text.value();
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  if (token.empty()) {
    return refusal(cat("the token file ", file, " (--token-file) is empty: expected one line"));
  }
  const Status fits = check_token(token, cat("the token file ", file, " (--token-file)"));
  return fits.ok() ? text : fits.error();
}

Result<std::string> read_or_make_token(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) == 0 || errno != ENOENT) return read_token(file);
  const Status written = write_file(file, random_token() + "\n", 0600);
  if (!written.ok()) return written.error();
  return read_token(file);
}

}  // namespace tenuto
