#include "protocol/saved_shard.h"

#include <cstdio>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "base/text.h"

namespace tenuto {

std::string checkpoint_path(const std::string& run, int64_t step) {
  return cat(run, "/", kCheckpointPrefix, step);
}

std::string unfinished_path(const std::string& run, int64_t step) {
  return checkpoint_path(run, step) + kUnfinished;
}

namespace {

std::string hexadecimal(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

}  // namespace

Result<SavedShard> describe_shard(const std::string& directory, const std::string& file,
                                  int64_t version, const AfterPiece& after_piece) {
  const std::string path = cat(directory, "/", file);
  const auto opened = InputFile::open(path);
  if (!opened.ok()) return opened.error();
  SavedShard shard{version, file, 0, ""};
  std::vector<std::byte> buffer(kPieceBytes);
  uint32_t checksum = 0;
  while (true) {
    const auto count = opened.value().read(shard.bytes, buffer);
    if (!count.ok()) return count.error();
    if (count.value() == 0) break;
    checksum = crc32c(std::span(buffer).first(count.value()), checksum);
    shard.bytes += static_cast<int64_t>(count.value());
    if (after_piece && !after_piece()) return not_wanted(path);
  }
  shard.checksum = hexadecimal(checksum);
  return shard;
}

}  // namespace tenuto
