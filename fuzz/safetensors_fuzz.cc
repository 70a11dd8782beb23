// A safetensors file: opened, every tensor read; a written copy must have the same contents.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/safetensors.h"
#include "base/text.h"
#include "target.h"

using namespace tenuto;

namespace {

// A file in memory; its path is that of the open descriptor.
class Input {
 public:
  Input() : descriptor_(::memfd_create("input", 0)) {
    CHECK(descriptor_ >= 0, "no file in memory can be made");
  }
  ~Input() { ::close(descriptor_); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  void put(const uint8_t* data, size_t size) const {
    CHECK(::ftruncate(descriptor_, 0) == 0, "the input cannot be emptied");
    CHECK(::pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size), "cannot write");
  }
  std::string path() const { return cat("/proc/self/fd/", descriptor_); }

 private:
  int descriptor_;
};

// Where the copy is written: in memory if /dev/shm is writable.
std::string copy_path() {
  const bool memory = ::access("/dev/shm", W_OK) == 0;
  const std::string folder = memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
  return cat(folder, "/tenuto-fuzz-", static_cast<int64_t>(::getpid()));
}

using Bytes = std::vector<std::byte>;

std::vector<Bytes> read_tensors(SafetensorsFile& file) {
  std::vector<Bytes> all;
  for (const auto& [name, place] : file.tensors()) {
    Bytes& bytes = all.emplace_back(static_cast<size_t>(place.end - place.first));
    const Status status = file.read(name, bytes);
    CHECK(status.ok(), "a tensor of an accepted file is not read: " + status.error().message);
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Input input;
  input.put(data, size);
  auto file = SafetensorsFile::open(input.path());
  if (!file.ok()) {
    expect_sentence(file.error(), input.path());
    return 0;
  }
  const std::vector<Bytes> contents = read_tensors(file.value());
  std::vector<NamedTensor> tensors;
  for (const auto& [name, place] : file.value().tensors()) {
    tensors.push_back({name, place.dtype, place.shape, contents[tensors.size()]});
  }
  const std::string path = copy_path();
  const Status written = write_safetensors(path, tensors, file.value().metadata());
  CHECK(written.ok(), "the copy cannot be written: " + written.error().message);
  auto copy = SafetensorsFile::open(path);
  CHECK(copy.ok(), "the copy is not read: " + copy.error().message);
  CHECK(copy.value().metadata() == file.value().metadata(), "the metadata differ");
  CHECK(copy.value().tensors().size() == tensors.size(), "the copy has other tensors");
  for (const NamedTensor& tensor : tensors) {
    const TensorPlace& place = copy.value().tensors().at(tensor.name);
    CHECK(place.dtype == tensor.dtype && place.shape == tensor.shape, "the copy has other shapes");
  }
  CHECK(read_tensors(copy.value()) == contents, "the copy has other bytes");
  ::unlink(path.c_str());
  return 0;
}
