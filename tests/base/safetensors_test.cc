// Shards and their checksum: what is written is read back, and damaged files are refused.
#include "base/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/checksum.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// RFC 3720, B.4.
TEST(Checksum, KnownAnswers) {
  std::vector<std::byte> bytes(32);
  EXPECT_EQ(crc32c(bytes), 0x8a9136aaU);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  EXPECT_EQ(crc32c(bytes), 0x62a8ab43U);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46dd794eU);
  EXPECT_EQ(crc32c({}), 0U);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);  // the usual check value
}

TEST(Checksum, CanBeComputedPieceByPiece) {
  const std::string text = "a text of an odd length, cut in every place";
  const uint32_t whole = crc32c(bytes_of(text));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view view = text;
    EXPECT_EQ(crc32c(bytes_of(view.substr(cut)), crc32c(bytes_of(view.substr(0, cut)))), whole);
  }
}

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / cat("tenuto-safetensors-", getpid());
    fs::create_directories(folder_);
    path_ = (folder_ / "shard.safetensors").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  Status write_two() const {
    return write_safetensors(path_,
                             {{"first.weight", "F32", {2, 3}, std::as_bytes(std::span(first_))},
                              {"second", "F32", {4}, std::as_bytes(std::span(second_))},
                              {"none", "I64", {0}, {}}},
                             {{"version", "7"}});
  }
  // Writes a file of this header and as many bytes of data.
  void write_raw(const std::string& header, size_t data) const {
    std::ofstream out(path_, std::ios::binary);
    const uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header << std::string(data, 'x');
  }
  std::string refusal() const {
    auto file = SafetensorsFile::open(path_);
    return file.ok() ? std::string() : file.error().message;
  }

  fs::path folder_;
  std::string path_;
  std::vector<float> first_{1, 2, 3, 4, 5, 6}, second_{-1, 0.5, 1e-40F, 3e38F};
};

TEST_F(Safetensors, ReadsBackWhatWasWritten) {
  ASSERT_TRUE(write_two().ok());
  auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().metadata().at("version"), "7");
  EXPECT_EQ(file.value().tensors().size(), 3U);
  EXPECT_EQ(file.value().tensors().at("first.weight").shape, (std::vector<int64_t>{2, 3}));
  std::vector<float> read(6);
  ASSERT_TRUE(file.value().read("first.weight", std::as_writable_bytes(std::span(read))).ok());
  EXPECT_EQ(read, first_);
  read.resize(4);
  ASSERT_TRUE(file.value().read("second", std::as_writable_bytes(std::span(read))).ok());
  EXPECT_EQ(read, second_);
}

TEST_F(Safetensors, LeavesNoTemporaryFileAndReplacesTheOldOne) {
  ASSERT_TRUE(write_two().ok());
  ASSERT_TRUE(write_two().ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Safetensors, SaysWhyItCannotWrite) {
  const Status written = write_safetensors((folder_ / "absent" / "shard").string(), {}, {});
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find("absent"), std::string::npos);
}

TEST_F(Safetensors, RefusesEveryTruncation) {
  ASSERT_TRUE(write_two().ok());
  const auto size = fs::file_size(path_);
  for (auto length = size; length-- > 0;) {
    fs::resize_file(path_, length);
    EXPECT_NE(refusal(), "") << "cut to " << length << " of " << size;
  }
  fs::remove(path_);
  EXPECT_NE(refusal().find(path_), std::string::npos);
}

// A flipped bit in the header may give another valid header, but never offsets outside the data, or
// sizes that do not fit.
TEST_F(Safetensors, FlippedHeaderBitsNeverLeadOutsideTheFile) {
  ASSERT_TRUE(write_two().ok());
  std::ifstream in(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  int64_t accepted = 0;
  for (size_t bit = 0; bit < 8 * (8 + length); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(path_, std::ios::binary) << flipped;
    auto file = SafetensorsFile::open(path_);
    if (!file.ok()) continue;
    ++accepted;
    for (const auto& [name, place] : file.value().tensors()) {
      std::vector<std::byte> into(static_cast<size_t>(place.end - place.first));
      EXPECT_TRUE(file.value().read(name, into).ok()) << "bit " << bit;
    }
  }
  EXPECT_LT(accepted, static_cast<int64_t>(4 * length));  // at least half are refused
}

TEST_F(Safetensors, RefusesWrongHeaders) {
  const auto entry = [](const std::string& shape, int64_t first, int64_t end) {
    return cat(R"({"dtype":"F32","shape":)", shape, R"(,"data_offsets":[)", first, ",", end, "]}");
  };
  const std::string a = entry("[2]", 0, 8), b = entry("[2]", 8, 16);
  write_raw(cat(R"({"a":)", a, R"(,"b":)", b, "}"), 16);
  EXPECT_EQ(refusal(), "");
  struct Wrong {
    std::string header, says;
    size_t data;
  };
  const Wrong cases[] = {
      {cat(R"({"a":)", a, R"(,"a":)", b, "}"), "twice", 16},
      {cat(R"({"a":)", a, R"(,"b":)", entry("[2]", 4, 12), "}"), "overlap", 12},
      {cat(R"({"a":)", a, R"(,"b":)", entry("[2]", 12, 20), "}"), "gap", 20},
      {cat(R"({"a":)", a, "}"), "cover 8 bytes", 16},
      {cat(R"({"a":)", entry("[3]", 0, 8), "}"), "needs 12", 8},
      {cat(R"({"a":)", entry("[-2]", 0, 8), "}"), "wrong shape", 8},
      {cat(R"({"a":)", entry("[4294967296,4294967296,4294967296]", 0, 8), "}"), "wrong shape", 8},
      {cat(R"({"a":)", entry("[2]", -8, 0), "}"), "data offset", 8},
      {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", "F33", 8},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "data_offsets", 8},
      {R"({"a":7})", "data_offsets", 8},
      {R"({"__metadata__":{"version":7}})", "not a string", 0},
      {R"([])", "JSON", 0},
      {R"({"a")", "JSON", 0},
      {std::string(100000, '['), "JSON", 0},
  };
  for (const Wrong& wrong : cases) {
    write_raw(wrong.header, wrong.data);
    EXPECT_NE(refusal().find(wrong.says), std::string::npos)
        << wrong.header.substr(0, 200) << ": " << refusal();
  }
}

TEST_F(Safetensors, RandomBytesAreRefused) {
  Random random(11);
  for (int round = 0; round < 500; ++round) {
    std::string text(static_cast<size_t>(random.below(200)), '\0');
    for (char& letter : text) letter = static_cast<char>(random.below(256));
    const auto length = static_cast<uint64_t>(text.size() > 8 ? random.below(64) : 0);
    if (text.size() > 8 && round % 2 == 0) std::memcpy(text.data(), &length, sizeof(length));
    std::ofstream(path_, std::ios::binary) << text;
    EXPECT_NE(refusal(), "");
  }
}

}  // namespace
}  // namespace tenuto
