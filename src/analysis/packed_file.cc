#include "analysis/packed_file.h"

#include <zlib.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace tenuto::analysis {

namespace {

constexpr int kGzip = 16;  // added to zlib's window bits: a header of gzip is expected
constexpr size_t kPiece = size_t{1} << 20;

// zlib's state of one file, freed at the end.
class Unpacker {
 public:
  Unpacker() { ready_ = inflateInit2(&stream_, MAX_WBITS + kGzip) == Z_OK; }
  ~Unpacker() {
    if (ready_) inflateEnd(&stream_);
  }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // Adds all of `packed`, which may be several packed files one behind the other, to `text`.
  Status unpack(std::string& packed, const std::string& path, std::string& text) {
    if (!ready_) return Error{Code::Exhausted, Reach::Call, cat(path, ": no memory to unpack it")};
    stream_.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream_.avail_in = static_cast<uInt>(packed.size());  // read_file takes less than 4 GiB
    std::string piece(kPiece, '\0');
    for (;;) {
      stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream_.avail_out = static_cast<uInt>(piece.size());
      const int state = inflate(&stream_, Z_NO_FLUSH);
      text.append(piece, 0, piece.size() - stream_.avail_out);
      if (text.size() > static_cast<size_t>(kMostFileBytes)) {
        return invalid(cat(path, ": expected at most ", kMostFileBytes,
                           " bytes after unpacking, found more: record fewer steps"));
      }
      if (state == Z_STREAM_END) {
        if (stream_.avail_in == 0) return ok();
        inflateReset(&stream_);
      } else if (state == Z_BUF_ERROR ||
                 (state == Z_OK && stream_.avail_in == 0 && stream_.avail_out > 0)) {
        return invalid(cat(path, ": expected a whole gzip file, found one that is cut off after ",
                           packed.size(), " bytes: copy it again"));
      } else if (state != Z_OK) {
        return invalid(cat(path, ": expected a gzip file, found damaged data: copy it again"));
      }
    }
  }

 private:
  z_stream stream_{};
  bool ready_ = false;
};

}  // namespace

Result<std::string> read_packed_file(const std::string& path) {
  auto content = read_file(path);
  if (!content.ok()) return content;
  std::string& packed = content.value();
  if (packed.size() < 2 || packed[0] != '\x1f' || packed[1] != '\x8b') return content;
  std::string text;
  Unpacker unpacker;
  if (const Status whole = unpacker.unpack(packed, path, text); !whole.ok()) return whole.error();
  return text;
}

}  // namespace tenuto::analysis
